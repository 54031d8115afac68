"""The mapping file: what anybody's tables, JSON or databases mean, in TOML (docs/importing.md)."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from ratioscope.analysis.importers.sums import ColumnSum, WholeText, names_in, terms
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import Manifest
from ratioscope.toml_file import read_toml

Layout = Literal["lists", "rows", "groups", "steps"]
"""What a row is: a response, with a list of each column; a token; a group of responses, or all of a step, with an entry
per response in each list. Where rows are taken apart (`TableMap.each`), what an object in them is."""
IDS = ("seq_id", "group_id", "prompt_id")
"""Names of things: text is as good as a number."""
ROW = "[row]"
"""In place of a column: which row it is."""
Padding = Literal["none", "left", "right"]

# What a run's manifest may be told; the rest is the import's to say.
_RUN_FIELDS = ("algorithm", "schedule", "sampler", "model", "task", "optimiser", "planned_updates", "seed", "libraries")
_MANIFEST = (
    *_RUN_FIELDS,
    "created",
    "tags",
    "notes",
    "log_probability_decimals",
    "sampled_with",
    "framework",
    "version",
)
_MOST_LISTED = 8


@dataclass(frozen=True)
class TableMap:
    """Where the values of one of our tables are, and which of their columns is which of ours."""

    files: str = ""
    """Glob below the imported folder; "": those of [tokens] or else [sequences], or the file that is imported."""
    table: str = ""
    """Table of a database; "": its only one."""
    layout: Layout = "lists"
    each: str = ""
    """List whose objects are the rows, each with what lies around it (`paths.taken_apart`); "": there is none."""
    step: str | int = ""
    """Column with the step, or a sum of columns; a number: all of it is this step."""
    step_in_name: str = ""
    """Regular expression on a file's path below the imported folder; its first group is the step."""
    step_offset: int = 0
    """Added to it: steps of ours count from 0."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Ours to theirs: a name, a path (`at_path`), or for whole numbers a sum (`sums.terms`)."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values of ours that hold for every row."""


@dataclass(frozen=True)
class TokensMap(TableMap):
    """The tokens, and what has to be known to tell the sampled ones from the rest of a list."""

    padding: Padding = "none"
    length: str = ""
    """Column with the number of tokens in a padded list."""
    prompt_length: str = ""
    """Column with the number of tokens of the prompt, with which the lists begin."""
    mask: str = ""
    """Column that is true, or not 0, where the policy sampled the token."""
    ignore_index: int | None = None
    """What the mask holds where the policy sampled nothing, if it is no mask of 0 and 1 (-100 in labels)."""
    shifted: tuple[str, ...] = ()
    """Columns of ours (or mask) whose value at index i is about token i + 1."""


@dataclass(frozen=True)
class MappingFile:
    """A mapping file that holds nothing unknown."""

    file: Path
    tokens: TokensMap | None
    sequences: TableMap | None
    steps: TableMap | None
    run: Mapping[str, Any]
    digest: str
    """Changes when what it says does."""


def read_mapping(file: Path) -> MappingFile:
    """Read and check a mapping file.

    Raises:
        RatioscopeError: it cannot be read, names something that there is not, or leaves open what must be known.
    """
    contents = read_toml(file)
    shared: dict[str, Any] = {
        name: contents.pop(name) for name in ("step", "step_in_name", "step_offset") if name in contents
    }
    _known(file, "the mapping file", contents, ("tokens", "sequences", "steps", "run", "step", "step_in_name"))
    tables = {
        name: _table(file, name, contents[name], shared)
        for name in ("tokens", "sequences", "steps")
        if name in contents
    }
    tokens, sequences = tables.get("tokens"), tables.get("sequences")
    if tokens is None and sequences is None:
        raise RatioscopeError(f"{file}: says nothing of tokens or responses; add a table [tokens] or [sequences].")
    assert tokens is None or isinstance(tokens, TokensMap)
    steps, rows = tables.get("steps"), tokens or sequences
    if steps and rows and not steps.files:
        steps = replace(steps, files=rows.files, table=rows.table, layout=rows.layout, each=rows.each)
    if sequences and tokens and not sequences.files and sequences.layout not in ("lists", tokens.layout):
        raise RatioscopeError(f"{file}, [sequences]: the rows are those of [tokens], whose layout counts.")
    if sequences and tokens and not sequences.files and sequences.each not in ("", tokens.each):
        raise RatioscopeError(f"{file}, [sequences]: the rows are those of [tokens], whose each counts.")
    if rows and rows.layout == "groups" and not any("group_id" in of.columns for of in (tokens, sequences) if of):
        ids = {"group_id": ROW}
        sequences = replace(
            sequences or TableMap(step=rows.step), columns=ids | {**(sequences.columns if sequences else {})}
        )
    if sequences:
        layout = tokens.layout if tokens and not sequences.files else sequences.layout
        sequences = replace(sequences, columns=_with_texts(sequences.columns, layout))
    if tokens:
        tokens = replace(tokens, columns=_with_texts(tokens.columns, tokens.layout))
    run = contents.get("run", {})
    _known(file, "[run]", _dictionary(file, "[run]", run), _MANIFEST)
    _check_run(file, run)
    digest = hashlib.sha256(json.dumps([contents, shared], sort_keys=True, default=str).encode()).hexdigest()[:8]
    return MappingFile(file, tokens, sequences, steps, run, digest)


def _with_texts(columns: Mapping[str, str], layout: Layout) -> Mapping[str, str]:
    """With those marked that hold one text or name a row; where a row is several responses, lists are of them."""
    texts = {*IDS, *(column.name for column in schema.SEQUENCES.columns if pa.types.is_string(column.type))}
    one = {"lists": texts, "rows": texts, "groups": {"prompt"}, "steps": set[str]()}[layout]
    return {
        ours: WholeText(theirs) if ours in one and not isinstance(theirs, ColumnSum) else theirs
        for ours, theirs in columns.items()
    }


def _table(file: Path, name: str, found: Any, shared: dict[str, Any]) -> TableMap:
    where = f"[{name}]"
    kind = TokensMap if name == "tokens" else TableMap
    given = shared | _dictionary(file, where, found)
    if {"step", "step_in_name"} & found.keys():  # its own way to find the step takes the place of the shared one
        given = {key: value for key, value in given.items() if key in found or key == "step_offset"}
    rewards = _dictionary(file, f"[{name}.rewards]", given.pop("rewards", {})) if name == "sequences" else {}
    _known(file, where, given, [declared.name for declared in fields(kind)])
    for key, value in given.items():
        wanted: Any = _KINDS.get(key, str)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise RatioscopeError(f"{file}, {where}: {key} = {value!r} must be {_WORDS[wanted]}.")
    for key, allowed in (("layout", get_args(Layout)), ("padding", get_args(Padding))):
        if given.get(key, allowed[0]) not in allowed:
            raise RatioscopeError(f"{file}, {where}: {key}: {unknown(f'a {key}', given[key], allowed)}")
    columns = {**given.get("columns", {}), **{f"reward_{part}": column for part, column in rewards.items()}}
    constants = given.get("constants", {})
    for ours, theirs in columns.items():
        if not isinstance(theirs, str) or not theirs:
            raise RatioscopeError(f"{file}, [{name}.columns]: {ours} = {theirs!r} must be the name of a column.")
    declared = schema.ALL_TABLES[name]
    whole = {column.name for column in declared.columns if pa.types.is_integer(column.type)}
    columns = {
        ours: ColumnSum(theirs) if ours in whole and terms(theirs) else theirs for ours, theirs in columns.items()
    }
    if isinstance(step := given.get("step"), str) and terms(step):
        given["step"] = ColumnSum(step)
    for ours, theirs in {**columns, "step": given.get("step")}.items():
        if isinstance(theirs, ColumnSum) and not names_in(theirs):
            instead = "step = 1" if ours == "step" else f"a constant, under [{name}.constants]"
            raise RatioscopeError(f"{file}, {where}: {ours} = {str(theirs)!r} names no column; write {instead}.")
    for place, names in ((f"[{name}.columns]", columns), (f"[{name}.constants]", constants)):
        for ours in names:
            _check_ours(file, place, ours, declared)
    for ours, value in constants.items():
        column = declared.column(ours)
        is_number = column is not None and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
        if is_number and ours not in IDS and not (isinstance(value, int | float) and math.isfinite(value)):
            raise RatioscopeError(f"{file}, [{name}.constants]: {ours} = {value!r} must be a finite number.")
    both = sorted(columns.keys() & constants.keys())
    if both:
        raise RatioscopeError(f"{file}, [{name}]: {both[0]} is both a column and a constant.")
    made = kind(**{**given, "columns": columns, "constants": constants} | _listed(given))
    _check_step(file, where, made)
    if made.each and not _EACH.fullmatch(made.each):
        raise RatioscopeError(
            f"{file}, {where}: each = {made.each!r} must lead to a list of objects: 'choices', 'a.choices', or "
            "'groups[*].choices' for those in each of a list."
        )
    if made.layout == "rows" and not made.each and ROW in made.columns.values():
        raise RatioscopeError(f"{file}, [{name}.columns]: {ROW!r} is a token where layout = 'rows', and names nothing.")
    if isinstance(made, TokensMap):
        _check_tokens(file, made)
    return made


_EACH = re.compile(r"[^\[\]|]*[^\[\]|.](\[\*\]\.[^\[\]|]*[^\[\]|.])*")
_KINDS = {
    "step": str | int,
    "step_offset": int,
    "ignore_index": int,
    "shifted": list,
    "columns": dict,
    "constants": dict,
}
_WORDS = {
    int: "an integer",
    str: "a string",
    str | int: "a string or an integer",
    list: "a list of names",
    dict: "a table",
}


def _listed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"shifted": tuple(map(str, given["shifted"]))} if "shifted" in given else {}


def _check_ours(file: Path, place: str, ours: str, table: schema.DeclaredTable) -> None:
    if ours == "step":
        raise RatioscopeError(f'{file}, {place}: the step is given by a line step = "..." above, not as a column.')
    prefixes = {"tokens": ("extra_",), "sequences": ("reward_", "extra_"), "steps": ("extra_",)}[table.name]
    if table.column(ours) is None and not ours.startswith(prefixes):
        known = [column.name for column in table.columns if column.name != "step"]
        raise RatioscopeError(f"{file}, {place}: {unknown(f'a column of our {table.name} table', ours, known)}")


def _check_step(file: Path, where: str, table: TableMap) -> None:
    if (table.step != "") == bool(table.step_in_name):
        said = "both name a step" if table.step_in_name else "nothing says of which step a row is"
        raise RatioscopeError(
            f"{file}, {where}: {said}; give step = 'column', step = 0 where all is one step, or step_in_name = "
            "'step_(\\d+)' for a file's name."
        )
    if table.step_in_name:
        try:
            groups = re.compile(table.step_in_name).groups
        except re.error as error:
            raise RatioscopeError(f"{file}, {where}: step_in_name is no regular expression ({error}).") from None
        if groups < 1:
            raise RatioscopeError(f"{file}, {where}: step_in_name needs a group around the number, as in step_(\\d+).")


def _check_tokens(file: Path, tokens: TokensMap) -> None:
    if tokens.layout == "rows":
        of_lists = ("padding", "length", "prompt_length", "shifted")
        wrong = next((key for key in of_lists if getattr(tokens, key) not in ("", "none", ())), None)
        if wrong is not None:
            raise RatioscopeError(f"{file}, [tokens]: {wrong} is about lists, and layout = 'rows' has none.")
        if "seq_id" not in tokens.columns:
            raise RatioscopeError(
                f"{file}, [tokens.columns]: rows need seq_id, the column that says whose tokens they are."
            )
    if tokens.ignore_index is not None and not tokens.mask:
        raise RatioscopeError(f"{file}, [tokens]: ignore_index is about a mask, and none is named.")
    if tokens.padding != "none" and not (tokens.length or tokens.mask):
        raise RatioscopeError(
            f"{file}, [tokens]: padding = {tokens.padding!r} needs a length or a mask, to tell it from tokens."
        )
    for name in tokens.shifted:
        if name != "mask" and name not in tokens.columns:
            raise RatioscopeError(
                f"{file}, [tokens]: shifted: {unknown('mapped here', name, [*tokens.columns, 'mask'])}"
            )


def _check_run(file: Path, run: Mapping[str, Any]) -> None:
    types: dict[str, Any] = {each.name: getattr(each.type, "__origin__", each.type) for each in fields(Manifest)}
    for key, value in run.items():
        if key in ("planned_updates", "seed", "log_probability_decimals"):
            fits = isinstance(value, int) and not isinstance(value, bool)
        else:
            fits = isinstance(value, types.get(key, str))
        if not fits:
            raise RatioscopeError(f"{file}, [run]: {key} = {value!r} is of the wrong type.")


def _dictionary(file: Path, where: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise RatioscopeError(f"{file}: {where} must be a table.")
    return dict(found)


def _known(file: Path, where: str, found: Mapping[str, Any], known: Any) -> None:
    for key in found:
        if key not in known:
            raise RatioscopeError(f"{file}, {where}: {unknown('known here', key, known)}")
