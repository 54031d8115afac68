"""Responses by what is written in them, and by their reward: the next wrong answer, the next right one.

search_responses(run, "the answer is", 0, 149)              # a text, in any case, or "/regular expression/"
halves = reward_halves(run)
next_response(run, (12, 3), halves.condition(high=False))   # the next one with a low reward: (step, seq_id) or None

DuckDB searches; a regular expression takes time in proportion to the text, whatever it says (RE2). Rows that were held
out of the loss are passed over.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pandas as pd

from ratioscope.analysis.runs.columns import columns_with_values
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.relations import quoted, relations, source
from ratioscope.analysis.runs.store import Run
from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema

MOST_FOUND = 200
"""Responses in a result; all are counted."""
TOKENS_SEARCHED = {"response": 50_000_000, "content": 20_000_000, "token_id": 3_000_000}
"""By where the text is: what is searched in about two seconds on two cores."""

_CORRECT = ("correct", "accuracy", "exact_match", "solved")
"""In names of parts of a reward."""
_BY_LINE = "(?m)"
"""What an expression begins with whose ^ and $ are the ends of a line: a response may end with a blank one."""
_ESCAPES = re.compile(r"(?s)\\Q.*?(?:\\E|\Z)|\\.")
_BEFORE, _SHOWN = 40, 160
"""Characters of a response that are shown before a match, and in all."""


@dataclass(frozen=True)
class RewardHalves:
    """The rewards of a run in two halves, at the middle between the lowest and the highest."""

    column: str
    """Of responses: the reward, or the part of it that is said to be about correctness."""
    lowest: float
    highest: float
    distinct: int
    """How many different values there are."""

    @property
    def middle(self) -> float:
        return (self.lowest + self.highest) / 2

    @property
    def names(self) -> tuple[str, str]:
        """What the responses of each half are called: only of two rewards is the lower one that of a wrong answer."""
        return ("wrong answer", "right answer") if self.distinct == 2 else ("low reward", "high reward")

    def condition(self, *, high: bool) -> str:
        """Which responses are in a half, in SQL."""
        column = quoted(self.column)
        return f"{column} {'>' if high else '<='} {self.middle!r} and not isnan({column})"


@dataclass(frozen=True)
class FoundResponses:
    """The responses in which a text was found."""

    frame: pd.DataFrame
    """step, seq_id, response (its text around the match), reward, n_tokens, prompt; the first `MOST_FOUND`."""
    total: int


def text_column(run: Run) -> str:
    """Where the text of responses is logged, a key of `TOKENS_SEARCHED`; "": nowhere."""
    if "response" in columns_with_values(run.files[schema.SEQUENCES.name]):
        return "response"
    if "content" in columns_with_values(run.files[schema.MESSAGES.name]):
        return "content"
    known = "token_id" in columns_with_values(run.files[schema.TOKENS.name]) and run.vocabulary()
    return "token_id" if known else ""


def reward_halves(run: Run) -> RewardHalves | None:
    """The rewards of a whole run: of the first column with two values, the reward or a part of it that is named after
    correctness, else of the reward. None where all are the same, or none is logged.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    files = run.files[schema.SEQUENCES.name]
    parts = (name for name in columns_with_values(files) if name.startswith("reward_"))
    columns = ["reward", *sorted(name for name in parts if any(word in name.lower() for word in _CORRECT))]
    finite = ((quoted(name), f"filter (isfinite({quoted(name)}))") for name in columns)
    asked = (f"min({n}) {f}, max({n}) {f}, count(distinct {n}) {f}" for n, f in finite)
    with relations(run, tables=()) as connection:
        read = f"select {', '.join(asked)} from {source(files, schema.SEQUENCES)}"
        numbers = connection.execute(read).fetchall()[0]
    known = [RewardHalves(name, *numbers[3 * n : 3 * n + 3]) for n, name in enumerate(columns)]
    known = [halves for halves in known if halves.distinct > 1]
    return next((halves for halves in known if halves.distinct == 2), next(iter(known), None))


def search_responses(run: Run, text: str, first: int, last: int) -> FoundResponses:
    """The responses of the steps first..last in which a text is found, in the order of the log.

    Args:
        text: what is looked for in any case, or a regular expression between two slashes, whose ^ and $ are
            the ends of a line.

    Raises:
        RatioscopeError: the expression is none, no text is logged, or a file cannot be read any more.
    """
    with _rows(run, first, last, text) as (connection, rows, given):
        frame = connection.execute(
            f"""
            select step, seq_id, reward, n_tokens, prompt, total,
                if(place > 1 + {_BEFORE}, '… ', '') || substr(text, greatest(1, place - {_BEFORE}), {_SHOWN})
                    || if(place - {_BEFORE} + {_SHOWN} <= length(text), ' …', '') as response
            from (select *, {_place(text)} as place from (
                select *, count(*) over () as total from {rows} where {_matches(text)}
                order by step, seq_id limit {MOST_FOUND}))
            order by step, seq_id
            """,
            given,
        ).df()
    return FoundResponses(frame.drop(columns="total"), int(frame["total"].iloc[0]) if len(frame) else 0)


def next_response(
    run: Run, after: tuple[int, int], condition: str, text: str = "", last: int | None = None
) -> tuple[int, int] | None:
    """Step and seq_id of the first response after one, in the order of the log; None where there is no other.

    Args:
        condition: on its reward, in SQL (`RewardHalves.condition`).
        text: has to be found in it, too; see `search_responses`.
        last: step up to which to look; None: to the end.

    Raises:
        RatioscopeError: as `search_responses`.
    """
    with _rows(run, after[0], run.last_step if last is None else last, text) as (connection, rows, given):
        found = connection.execute(
            f"""
            select step, seq_id from {rows}
            where (step > $step or seq_id > $seq_id) and {condition} and {_matches(text)}
            order by step, seq_id limit 1
            """,
            {**given, "step": after[0], "seq_id": after[1]},
        ).fetchall()
    return (int(found[0][0]), int(found[0][1])) if found else None


@contextmanager
def _rows(
    run: Run, first: int, last: int, text: str
) -> Iterator[tuple[duckdb.DuckDBPyConnection, str, dict[str, str]]]:
    """A connection, a relation with the responses of some steps and their `text`, and the parameter of `_matches`."""

    def rows(table: schema.DeclaredTable) -> str:
        files = [file for file in run.files[table.name] if _is_in(file, first, last)]
        return f"(select * from {source(files, table)} where step between {first} and {last})"

    kept = f"where dropped is distinct from '{schema.HELD_OUT}'"
    said = f"(select *, response as text from {rows(schema.SEQUENCES)} {kept})"
    with relations(run, tables=()) as connection:
        if text:
            where = text_column(run)
            if not where:
                raise RatioscopeError("This run logs neither responses nor the texts of their tokens.")
            if where == "content":
                said = _joined(
                    rows(schema.MESSAGES), "content", "turn", "role = 'assistant'", rows(schema.SEQUENCES), kept
                )
            elif where == "token_id":
                known = run.vocabulary()
                connection.register("written", pd.DataFrame({"token_id": list(known), "word": list(known.values())}))
                tokens = f"(select * from {rows(schema.TOKENS)} left join written using (token_id))"
                said = _joined(tokens, "word", "position", "true", rows(schema.SEQUENCES), kept)
        try:
            yield connection, said, {"text": _pattern(text) or text} if text else {}
        except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
            if not _pattern(text):
                raise
            why = str(error).splitlines()[0].removeprefix("Invalid Input Error: ").removesuffix(f": {_pattern(text)}")
            raise RatioscopeError(f"{text} is not a regular expression: {why}.") from None


def _joined(parts: str, column: str, order: str, which: str, sequences: str, kept: str) -> str:
    """Responses whose text is that of their parts in order."""
    joined = f"string_agg({column}, '' order by {order}) as text"
    texts = f"select step, seq_id, {joined} from {parts} where {which} group by all"
    return f"(select * from ({texts}) left join {sequences} using (step, seq_id) {kept})"


def _is_in(file: TableFile, first: int, last: int) -> bool:
    return file.name.first_step <= last and file.name.last_step >= first


def _pattern(text: str) -> str:
    """The regular expression between two slashes, line by line, with the end of its last quotation; "" where the text
    is none."""
    found = text[1:-1] if len(text) > 2 and text[0] == text[-1] == "/" else ""
    escapes = _ESCAPES.findall(found)
    quotes = bool(escapes) and escapes[-1].startswith(r"\Q") and not escapes[-1].endswith(r"\E")
    return f"{_BY_LINE}{found}" + r"\E" * quotes if found else ""


def _matches(text: str) -> str:
    if not text:
        return "true"
    return "regexp_matches(text, $text)" if _pattern(text) else "contains(lower(text), lower($text))"


def _place(text: str) -> str:
    """Where the match begins, from 1: measured by the text before it, as the same text may stand earlier, too."""
    if not _pattern(text):
        return "instr(lower(text), lower($text))"
    return "1 + length(regexp_extract(text, '\\A(?s:(.*?))(?:' || $text || ')', 1))"
