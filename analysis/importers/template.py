"""A mapping file to fill in, with the columns that are there and what their names and shapes look like."""

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from ratioscope.analysis.importers import plain, sqlite_rows
from ratioscope.analysis.importers.batches import SUFFIXES
from ratioscope.analysis.importers.contents import columns_in, records_of
from ratioscope.analysis.importers.mapping_file import ROW
from ratioscope.analysis.importers.paths import Record, as_called, at_path, taken_apart
from ratioscope.analysis.importers.source import BadLine, ImportProblem, Reading
from ratioscope.errors import RatioscopeError


@dataclass(frozen=True)
class _Called:
    """How programs call what we call so; the first of them that fits. The user decides."""

    ours: str
    pattern: str
    never: str = "^$"
    """Names that fit and mean something else."""
    text: bool = False
    """Text or a conversation, in place of numbers."""
    id: bool = False
    """A name or a number."""


_TOKENS = (
    _Called("logp_behavior", r"(rollout|inference|generation|sampl\w*|vllm|behaviou?r|(^|_)gen_)\w*log_?p\w*"),
    _Called("logp_reference", r"ref\w*_?log_?p\w*"),
    _Called("logp_current", r"(old|prev|train\w*|actor|prox\w*|current|policy)\w*log_?p\w*|^per_token_log_?p(rob)?s?$"),
    _Called("logp_behavior", r"^(log_?probs?|logps?|lps?|completion_log_?probs|token_log_?probs)$", r"prompt"),
    _Called("entropy", r"entrop"),
    _Called("advantage", r"advantage|^advs?$", r"zero"),
    _Called("mask", r"mask|^labels$", r"attention|masked"),
    _Called(
        "token_id", r"(generation|response|completion|output|action)\w*_(ids|tokens)|^output_ids$", r"prompt|num|len"
    ),
    _Called("token_id", r"^token(_?ids?)?$|^tokens$|^toks?$|^gen(erated)?_(ids|tokens)$|^ids$|^input_ids$", r"prompt"),
    _Called("behavior_version", r"(weight|rollout|sampl\w*|inference|generation)\w*version"),
    _Called("behavior_version", r"version|policy_step", r"^version$|schema|format|api|agent"),
    _Called("prompt_length", r"prompt_len\w*|num_prompt_tokens"),
)
_REWARD = _Called("reward", r"^(reward|score|rew)s?(\.total)?$|total_reward|^final_reward$")
_RESPONSE = _Called("response", r"^(response|completion|output|answer)s?(_text)?$", text=True)
_SEQUENCES = (
    _Called(
        "group_id", r"group|^uids?$|prompt_i(d|dx)(?!s)|task_i(d|dx)|task_index|problem_id", r"overrid|size", id=True
    ),
    _REWARD,
    _Called("prompt", r"^(prompt|input|question|problem)s?(_text)?$", text=True),
    _RESPONSE,
    _Called("finish_reason", r"finish|stop_reason", text=True),
)
_STEP = _Called(
    "step",
    r"^(global_?|train\w*_|optim\w*_|gen_)?(steps?|iters?|updates?)(_?(idx|index|id|num(ber)?))?$|iteration|rollout_id",
    id=True,
)
_SEQ_ID = _Called("seq_id", r"^(seq|sequence|sample|response|traj\w*|rollout)_?(id|idx|index|uid)$|^seq$", id=True)
_OF_STEPS = (
    _Called("policy_version", r"^(policy|trainer)_version$"),
    _Called("loss", r"^((policy|actor|train\w*)_)?loss$"),
    _Called("grad_norm", r"grad_?norm"),
)
# Without one of these a row has no tokens.
_NEEDED = {"token_id", "logp_behavior", "logp_current"}
# Files that are looked at, records of each, and names that are listed.
_MOST_FILES, _MOST_RECORDS, _MOST_COLUMNS = 8, 20, 200
_IGNORED = -100
_BESIDE_A_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What begins with a word for a step, of the numbers in a file's path.
_STEP_IN_NAME = re.compile(r"((?:global_?)?(?:step|iter(?:ation)?|update|rollout)s?[_-]?)\d+", re.IGNORECASE)

_HEAD = """\
# What the files hold, for: ratioscope import {path} --mapping THIS_FILE.toml
# Left of "=" stand ratioscope's names (ratioscope explain format), on the right the names in your files.
# Lines that begin with "#?" were guessed from names: check each, and remove the "#?" of those that are right.
# Other lines that begin with "#" are off. What your files lack stays off: it is shown as not logged.
"""

_STEPS_HEAD = """
# --- Which update a row belongs to: a column, or a number in the name of the file -------------------------------------
{step}
# step_in_name = '...'                # a regular expression with a group around the number
# step_offset = -1                    # ratioscope counts from 0
"""

_LAYOUT = '# "lists": a row is a response; "rows": a token; "groups", "steps": a list of responses'

_TOKENS_HEAD = """
[tokens]
{files}
layout = "{layout}"   {about}
{lines}
# padding = "..."                     # "left" or "right" where lists are padded to one length; needs length or mask
# length = "..."                      # column with the number of tokens in a padded list
# shifted = ["..."]                   # columns whose value at index i is about token i + 1

[tokens.columns]
{columns}

# [tokens.constants]
# behavior_version = "..."
"""

_SEQUENCES_HEAD = """
[sequences]
{files}
[sequences.columns]
{columns}

# [sequences.rewards]                 # parts of the reward, by names of yours
# format = "..."                      # a.b leads into an object, a[*].b into each of a list, a[0] to its first

{steps}

# [run]                               # what is known of the run
# framework = "..."
# algorithm = {{ name = "..." }}
"""

_OF_STEPS_OFF = """\
# [steps]                             # what is known of an update: of a step's rows the last value counts
# files = "..."                       # without it: the files of [tokens]
# [steps.columns]
# policy_version = "..."              # of the weights before the update, counted as behavior_version is; or "a - b"
# loss = "..."
# grad_norm = "..."\
"""


@dataclass(frozen=True)
class _Source:
    """A file or a table of a database, and its first records."""

    file: Path
    table: str
    columns: Mapping[str, str]
    records: Sequence[Record]
    each: str = ""
    """The list whose objects the records were taken apart into; "": they are as they are stored."""

    def candidates(self, called: _Called, depths: Sequence[int]) -> Iterator[str]:
        """Columns whose names and kinds fit, one that is called as ours is first; `depths`: of lists in lists."""
        for name, kind in sorted(self.columns.items(), key=lambda column: _last_of(column[0]) != called.ours):
            # stepIdx is step_idx, too
            words = {last := _last_of(name), _BESIDE_A_CAPITAL.sub("_", last)}
            fits = last == called.ours or any(re.search(called.pattern, word, re.IGNORECASE) for word in words)
            fits = fits and not re.search(called.never, last, re.IGNORECASE)
            fits = fits and not (called.text and "[*]" in name)  # pieces of texts are none
            if fits and _depth(name, kind) in depths and (called.id or _is_text(kind) == called.text):
                yield name


@dataclass
class _Guesses:
    """What is likely which of ours, in a source."""

    source: _Source
    layout: str
    step: str
    trouble: str
    """What is to be done about the step before the files can be read; "": nothing."""
    tokens: dict[str, str]
    sequences: dict[str, str]
    seq_id: str

    @property
    def weight(self) -> int:
        return 3 * len(self.tokens.keys() & _NEEDED) + len(self.sequences)


def template(path: Path | None) -> str:
    """The text of a mapping file; with a path, with the columns of the files there and what they may be.

    Raises:
        RatioscopeError: there is nothing at the path that a mapping file could describe.
    """
    sources, problems = _sources(path) if path is not None else ([], [])
    guesses = [_guessed(source) for source in sources]
    guessed = max(guesses, key=lambda one: one.weight, default=None)
    tokens, sequences = (guessed.tokens, guessed.sequences) if guessed else ({}, {})
    scored = _scored(guessed, guesses) if guessed and tokens else None
    if guessed and scored:
        tokens, sequences = {"seq_id": guessed.seq_id} | tokens, {"seq_id": scored.seq_id} | scored.sequences
    usual = ("token_id", "logp_behavior", "logp_current", "advantage")
    text = _HEAD.format(path=_comment(quote(str(path))) if path is not None else "PATH")
    text += "".join(map(_listed, sources)) + "".join(f"#\n# {_comment(str(problem))}\n" for problem in problems)
    text += _STEPS_HEAD.format(step=_step_line(path, guessed))
    files = _files_lines(path, guessed)
    layout = guessed.layout if guessed else "lists"
    if tokens or not sequences:
        names = ("prompt_length", "mask", "ignore_index")
        of_table: dict[str, str] = {name: tokens[name] for name in names if name in tokens}
        per_token = {ours: theirs for ours, theirs in tokens.items() if ours not in of_table}
        text += _TOKENS_HEAD.format(
            files=files,
            layout=layout,
            about=_LAYOUT,
            lines=_each_line(guessed) + _lines(guessed, of_table, ("prompt_length", "mask")),
            columns=_lines(guessed, per_token, ("seq_id", *usual) if layout == "rows" else usual),
        )
        files = '# files = "..."                       # where responses are in files of their own'
    else:
        files += f'\nlayout = "{layout}"   {_LAYOUT}'
    text += _SEQUENCES_HEAD.format(
        files=_files_lines(path, scored, guessed) if scored else files,
        columns=_lines(scored or guessed, sequences, ("group_id", "reward", "prompt", "response")),
        steps=_of_steps(path, guessed, guesses) if guessed and tokens else _OF_STEPS_OFF,
    )
    return text.rstrip()


# Guesses --------------------------------------------------------------------------------------------------------------


def _guessed(source: _Source) -> _Guesses:
    """What the names say, as far as the shapes of the first records go along with it."""
    lists = [called for called in _TOKENS if called.ours in _NEEDED]
    depth = next((depth for depth in (2, 1) if _named(source, lists, (depth,))), 0)
    several = depth == 2 or (depth == 0 and (bool(_named(source, (_REWARD,), (1,))) or _has_texts(source)))
    of_token = range(1 + several, 2 + several) if depth else (0,)
    of_response = range(1 + several)
    tokens: dict[str, str] = {}
    seq_id = _named(source, (_SEQ_ID,), (0,))
    if depth or seq_id:
        tokens = {} if depth else seq_id
        for called in _TOKENS:
            if called.ours in tokens:
                continue
            spread_over = ("advantage", "behavior_version")
            depths = [*of_response, *of_token] if called.ours in spread_over else of_token
            tokens |= _named(source, (called,), of_response if called.ours == "prompt_length" else depths)
        tokens = _of_one_length(source, tokens) if depth else tokens
    if not tokens.keys() & _NEEDED:
        tokens = {}
    if _ignored(source, tokens.get("mask")):
        tokens["ignore_index"] = str(_IGNORED)
    text_depths = [*of_response, 1 + several]
    sequences: dict[str, str] = {}
    for called in _SEQUENCES:
        sequences |= _named(source, (called,), text_depths if called.text else of_response)
    step, trouble = _step_of(source, of_response)
    layout = "rows" if tokens and not depth else _of_several(source, sequences, step) if several else "lists"
    if not source.each and (objects := _objects(source, tokens)):
        return _guessed(_taken_apart(source, objects))
    if source.each and _of_one_prompt(source, sequences):
        sequences.setdefault("group_id", ROW)
    return _Guesses(source, layout, step, trouble, tokens, sequences, seq_id.get("seq_id", ""))


def _named(source: _Source, called: Sequence[_Called], depths: Sequence[int]) -> dict[str, str]:
    """By our name, the first column that fits."""
    found: dict[str, str] = {}
    for one in called:
        name = next(source.candidates(one, depths), None)
        if name is not None:
            found.setdefault(one.ours, name)
    return found


def _of_one_length(source: _Source, tokens: dict[str, str]) -> dict[str, str]:
    """Those of the lists that can stand beside each other; what has one value a response may."""
    sizes = {ours: [_sizes(at_path(record, theirs)) for record in source.records] for ours, theirs in tokens.items()}
    known = next((sizes[name] for name in ("logp_behavior", "logp_current", "token_id") if name in sizes), [])
    prompts = (
        [at_path(record, tokens["prompt_length"]) for record in source.records] if "prompt_length" in tokens else None
    )

    def fits(ours: str) -> bool:
        if ours == "prompt_length":
            return True
        for place, (mine, wanted) in enumerate(zip(sizes[ours], known, strict=False)):
            if (
                mine is None
                or wanted is None
                or mine == wanted
                or len(mine) < len(wanted)
                or 0 in (len(mine), len(wanted))
            ):
                continue
            more = [abs(one - other) for one, other in zip(mine, wanted, strict=False)]
            prompt = prompts[place] if prompts is not None else None
            if more not in ([prompt] if not isinstance(prompt, list) else prompt, prompt):
                return False
        return True

    return {ours: theirs for ours, theirs in tokens.items() if fits(ours)}


def _sizes(value: Any) -> list[int] | None:
    """How long a list is, or each list in one; None: it is none."""
    if not isinstance(value, list):
        return None
    if any(isinstance(one, list) for one in value):
        return [len(one) if isinstance(one, list) else 0 for one in value]
    return [len(value)]


def _ignored(source: _Source, mask: str | None) -> bool:
    found = [at_path(record, mask) for record in source.records] if mask else []
    lists = [one for value in found if isinstance(value, list) for one in value]
    return _IGNORED in [each for one in lists for each in (one if isinstance(one, list) else [one])]


def _of_several(source: _Source, sequences: Mapping[str, str], step: str) -> str:
    """Whether the responses of a row are to one prompt."""
    prompts = [at_path(record, sequences["prompt"]) for record in source.records] if "prompt" in sequences else []
    differ = [value for value in prompts if isinstance(value, list) and any(one != value[0] for one in value)]
    chat = all(isinstance(one, Mapping) for value in differ for one in value)
    return "steps" if (differ and not chat) or "group_id" in sequences or (step and not prompts) else "groups"


def _has_texts(source: _Source) -> bool:
    """Whether a row has several responses, as texts; a list of objects is a conversation."""
    listed = [source.columns[name] for name in source.candidates(_RESPONSE, (1,))]
    return not _named(source, (_RESPONSE,), (0,)) and any(not re.search("object|struct", kind) for kind in listed)


def _objects(source: _Source, tokens: Mapping[str, str]) -> str:
    """The list whose objects have tokens and a reward beside them; "": there is none, or it has one object a row."""
    for theirs in tokens.values():
        name = theirs.rpartition("[*].")[0]
        beside = any(one.rpartition("[*].")[0] == name for one in source.candidates(_REWARD, (1,)))
        if name and beside and any(len(value) > 1 for value in _values(source, name) if isinstance(value, list)):
            return name
    return ""


def _taken_apart(source: _Source, each: str) -> _Source:
    """The source with the objects of a list as its records."""
    columns = {as_called(name, each): kind for name, kind in source.columns.items()}
    records = []
    for record in source.records:
        with suppress(BadLine):
            records += [one for _, one in taken_apart(record, each)]
    return replace(source, columns=columns, records=records, each=each)


def _of_one_prompt(source: _Source, sequences: Mapping[str, str]) -> bool:
    """Whether the prompt lies around the objects that are responses, and not in them."""
    each = source.each.replace("[*]", "")
    return "prompt" in sequences and not sequences["prompt"].startswith(f"{each}.")


def _step_of(source: _Source, depths: Sequence[int]) -> tuple[str, str]:
    """The column that says the step, and what is the matter with it; one with which nothing is comes first."""
    found = [(name, what) for name in source.candidates(_STEP, depths) if (what := _trouble(source, name)) is not None]
    return min(found, key=lambda one: bool(one[1]), default=("", ""))


def _trouble(source: _Source, name: str) -> str | None:
    """What is to be done about a column before it can be the step; "": nothing, None: it is none."""
    found = [value[0] if isinstance(value, list) and value else value for value in _values(source, name)]
    if not any(isinstance(value, int | float | str) and re.search(r"\d", str(value)) for value in found):
        return None
    if odd := [value for value in found if not _is_number(value)]:
        return (
            f"It has {_comment(repr(odd[0])):.40}, which is no whole number: write whole numbers into the files first."
        )
    if [*map(float, found)] != sorted(map(float, found)):
        return "The rows are not in its order: sort those of each file by it first" + _sorting(source, name)
    return ""


def _scored(guessed: _Guesses, guesses: Sequence[_Guesses]) -> _Guesses | None:
    """Where the rewards are, of files that name the responses as those of the tokens do."""
    if not guessed.seq_id or "reward" in guessed.sequences:
        return None
    return next((one for one in guesses if one.seq_id and not one.tokens and "reward" in one.sequences), None)


def _values(source: _Source, name: str) -> list[Any]:
    return [at_path(record, name) for record in source.records] if name else []


def _is_number(value: Any) -> bool:
    with suppress(ValueError, TypeError, OverflowError):
        return not isinstance(value, bool) and float(value).is_integer()
    return False


def _last_of(name: str) -> str:
    """What a column is called in its object; the total of rewards is their `.total`."""
    found = re.search(r"[^.\]]*(\.total)?$", name)
    return (found and found[0]) or name


def _depth(name: str, kind: str) -> int:
    """Lists in lists; of what lies in each of a list, one after the other, there is one at least."""
    return max(kind.count("list"), int("[*]" in name))


def _is_text(kind: str) -> bool:
    return any(word in kind for word in ("string", "object", "struct", "utf8"))


# Text -----------------------------------------------------------------------------------------------------------------


def _step_line(path: Path | None, guessed: _Guesses | None) -> str:
    if guessed is None:
        return '# step = "step"'
    column = f"#? step = {_quoted(guessed.step)}"
    if guessed.step and not guessed.trouble:
        return column
    within = _within(path, guessed.source.file)
    if match := _STEP_IN_NAME.search(within):
        return f"#? step_in_name = '{match[1]}(\\d+)'"
    if guessed.step:
        return f"{column}\n# {guessed.trouble}"
    runs = re.findall(r"\d+", within)
    if len(runs) == 1:
        return "#? step_in_name = '(\\d+)'"
    return (
        "#? step = 0                            # all of it is one step: no column and no name says of which a row is"
    )


def _files_lines(path: Path | None, guessed: _Guesses | None, beside: _Guesses | None = None) -> str:
    """Which files a table is in; as a guess, with their step, where they are beside those of others."""
    if guessed is None:
        return 'files = "*.parquet"'
    lines = [f"files = {_quoted(re.sub(r'[0-9]+', '*', glob.escape(_within(path, guessed.source.file))))}"]
    lines += [f"table = {_quoted(guessed.source.table)}"] if guessed.source.table else []
    lines += [f"step = {_quoted(guessed.step)}"] if beside is not None and guessed.step != beside.step else []
    return "\n".join(lines if beside is None else [f"#? {line}" for line in lines])


def _of_steps(path: Path | None, guessed: _Guesses, guesses: Sequence[_Guesses]) -> str:
    """What is known of the updates: from files with a row each, or beside the tokens where a row is a step."""
    own = _named(guessed.source, _OF_STEPS if guessed.layout == "steps" else _OF_STEPS[:1], (0,))
    own = {ours: theirs for ours, theirs in own.items() if guessed.tokens.get("behavior_version") != theirs}
    if own:
        return f"#? [steps]\n#? [steps.columns]\n{_lines(guessed, own, ())}"
    for one in guesses:
        found = _named(one.source, _OF_STEPS, (0,))
        of_responses = one.tokens or one.seq_id or one.sequences.keys() - {"reward"}  # which may be their mean
        if found and one.step and not one.trouble and not of_responses:
            return f"#? [steps]\n{_files_lines(path, one, guessed)}\n#? [steps.columns]\n{_lines(one, found, ())}"
    return _OF_STEPS_OFF


def _each_line(guessed: _Guesses | None) -> str:
    if guessed is None or not guessed.source.each:
        return ""
    return f"#? each = {_quoted(guessed.source.each)}   # its objects are the rows; in a name below it is one of them\n"


def _sorting(source: _Source, column: str) -> str:
    if source.table.isidentifier() and column.isidentifier():
        return f', as in\n#   CREATE TABLE sorted AS SELECT * FROM "{source.table}" ORDER BY "{column}" + 0, rowid'
    first = "[0]" if "list" in source.columns[column] else ""
    return _by_jq(source, column, f"sort_by(.{{0}}{first} | tonumber)[]", "s")


def _by_jq(source: _Source, column: str, program: str, options: str = "") -> str:
    """The command that writes JSON lines anew, where a shell takes the names for no more than names."""
    name = source.file.name
    if source.file.suffix not in (".jsonl", ".ndjson") or not re.fullmatch(r"[A-Za-z_][\w.]*", column, re.ASCII):
        return "."
    return f", as in\n#   jq -c{options} '{program.format(column)}' {_comment(quote(name))} > rows.jsonl"


def _lines(guessed: _Guesses | None, found: Mapping[str, str], usual: Sequence[str]) -> str:
    """Guesses, and what else there could be."""
    columns = guessed.source.columns if guessed else {}
    lines = []
    for ours in dict.fromkeys([*usual, *found]):
        if ours not in found:
            lines.append(f'# {ours} = "..."')
        elif ours == "ignore_index":
            lines.append(f"#? {ours} = {found[ours]}   # what the mask holds where nothing was sampled")
        else:
            kind = _comment(columns.get(found[ours], "what lies in one list"))
            kind = kind.replace("item: ", "").replace("element: ", "")
            lines.append(f"#? {ours} = {_quoted(found[ours])}   # {kind}")
    return "\n".join(lines)


def _listed(source: _Source) -> str:
    names = source.columns
    shown = [f"#   {_comment(name)}: {_comment(kind)}\n" for name, kind in list(names.items())[:_MOST_COLUMNS]]
    more = f"#   and {len(names) - _MOST_COLUMNS} more\n" if len(names) > _MOST_COLUMNS else ""
    table = f", table {_comment(source.table)}," if source.table else ""
    return f"#\n# {_comment(source.file.name)}{table} has\n{''.join(shown)}{more}"


def _comment(text: str) -> str:
    """On one line: a name with a line break in it would end the comment, and TOML knows no other such signs."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _quoted(text: str) -> str:
    """As a basic string of TOML holds it."""
    inside = "".join(f"\\u{ord(sign):04x}" if ord(sign) < 32 or sign in '"\\\x7f' else sign for sign in text)
    return f'"{inside}"'


def _within(path: Path | None, file: Path) -> str:
    return file.name if path is None or file == path else file.relative_to(path).as_posix()


# Sources --------------------------------------------------------------------------------------------------------------


def _sources(path: Path) -> tuple[list[_Source], list[RatioscopeError]]:
    """The first files of each kind of name, and the tables of databases; and what is wrong with others."""
    if not path.exists():
        raise RatioscopeError(f"{path}: there is no such file or folder.")
    found: dict[str, Path] = {}
    for file in _files(path):
        found.setdefault(re.sub(r"\d+", "*", _within(path, file)), file)
        if len(found) == _MOST_FILES:
            break
    if not found:
        endings = ", ".join(SUFFIXES)
        raise RatioscopeError(f"{path}: no file here that a mapping file can describe; their names end in {endings}.")
    problems: list[RatioscopeError] = []
    sources = []
    for file in found.values():
        try:
            tables = list(sqlite_rows.tables(file)) if file.suffix in sqlite_rows.SUFFIXES else [""]
            found_in = [_Source(file, table, columns_in(file, table), _first(file, table)) for table in tables]
            sources += [source for source in found_in if source.columns]
            if not any(source.columns for source in found_in):
                problems.append(_nothing_in(file))
        except RatioscopeError as error:
            problems.append(error)
    if not sources:
        raise problems[0]
    return sources, problems


def _nothing_in(file: Path) -> RatioscopeError:
    """Why a file shows no columns."""
    looking = Reading()
    try:
        if file.suffix not in sqlite_rows.SUFFIXES:
            next(plain.records(file, looking), None)
    except ImportProblem as problem:
        return problem
    return RatioscopeError(f"{file}: has no rows; name a file that has some.")


def _first(file: Path, table: str) -> list[Record]:
    return [record for _, record in islice(records_of(file, table), _MOST_RECORDS)]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    yield from (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
