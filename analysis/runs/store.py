"""Runs on disk: which there are, whether they live, and which of their files can be read.

Reading is read-only: nothing is ever written into a run's folder. A bad file is skipped and reported, never fatal.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratioscope.analysis.runs.columns import counted
from ratioscope.analysis.runs.files import TableFile, in_flight, listed_files
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.unreadable import unreadable
from ratioscope.errors import RatioscopeError, RunFormatError, first_line
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest
from ratioscope.run_format.seals import broken, is_sealed, not_text
from ratioscope.storage.bounds import bomb, largest_bytes, too_large
from ratioscope.storage.cache import entry_of
from ratioscope.storage.failures import StorageError
from ratioscope.storage.parquet import fetch_footers, footer, read_table
from ratioscope.storage.places import Remote, place, scan, scan_below

# Runs may lie in folders of an ablation; deeper trees are somebody's home folder.
SEARCH_DEPTH = 4

# A run that is written has hundreds of small step files and grows at its end, and each of its states is asked for all
# of them several times: so many together are read once.
_AT_ONCE = 64


@lru_cache(maxsize=256)
def _step_rows(files: tuple[TableFile, ...]) -> pa.Table:
    parts = [read_table(file.path) for file in files]
    return pa.concat_tables(parts, promote_options="permissive").combine_chunks()


# Of runs up to so many bytes every byte is checked when they are opened, which takes 0.7 s at most. Of larger ones
# pages are checked as they are summed.
_VERIFIED_BYTES = 10**9


@dataclass(frozen=True)
class Run:
    """One run as it was when it was opened; `open_run` again to see news."""

    folder: Path
    manifest: Manifest
    files: dict[str, tuple[TableFile, ...]]
    problems: tuple[str, ...] = ()
    """One sentence a file that had to be left out."""
    signature: str = field(default="", compare=False)
    status: str = field(default="", compare=False)
    """When it was opened: a run does not grow stale while somebody reads it."""
    left_out: tuple[LeftOut, ...] = ()
    """Rows that are on disk and that no reader of the tables sees."""

    @cached_property
    def places(self) -> list[Path]:
        """The folders that its files lie in, also those that links lead to."""
        return sorted({self.folder, *(file.resolved.parent for files in self.files.values() for file in files)})

    @property
    def last_step(self) -> int:
        """The last step on disk; -1 for an empty run."""
        responses = (*self.files["tokens"], *self.files["sequences"])  # a run of texts has no tokens
        return max((file.name.last_step for file in responses), default=-1)

    @cached_property
    def versions_ahead(self) -> "pd.Series[int]":
        """By how much the policy's version at the start of a step exceeds the step, by step, where it does."""
        versions = self._policy_versions.groupby("step")["policy_version"].last().dropna()  # whichever writer said it
        ahead = (versions - versions.index.astype("int64")).rename("ahead")  # in 64 bits a difference cannot wrap
        return ahead[ahead != 0]

    @cached_property
    def counts_versions(self) -> bool:
        """Whether the policy's version is known at any step, or there are no steps to know it of: it is then counted
        like steps."""
        versions = self._policy_versions["policy_version"]
        return not len(versions) or bool(versions.notna().any())

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps table by step. Of a step that several writers have a row of, each column is of the last to say it.

        Raises:
            RatioscopeError: a file cannot be read any more.
        """
        rows = self.read("steps").sort_values("step", kind="stable")
        several = rows["step"].duplicated().any()
        return rows.groupby("step", as_index=False).last() if several else rows.reset_index(drop=True)

    @cached_property
    def repeated_steps(self) -> list[int]:
        """Steps of which one writer wrote several rows."""
        steps = self.table("steps", ["step"])["step"].to_numpy() if self.files["steps"] else np.empty(0, np.int64)
        writers = [file.name.writer for file in self.files["steps"] for _ in range(counted(file)[0])]
        rows = pd.DataFrame({"step": steps, "writer": writers})
        return sorted({*map(int, rows["step"][rows.duplicated()])})

    @cached_property
    def _policy_versions(self) -> pd.DataFrame:
        return self.read("steps", ["step", "policy_version"])

    def read(self, table: str, columns: list[str] | None = None) -> pd.DataFrame:
        """A whole table as a frame; for the small ones (steps, sequences). Empty when nothing was written yet.

        Raises:
            RatioscopeError: a file cannot be read any more.
        """
        names = columns or [column.name for column in schema.ALL_TABLES[table].columns]
        if not self.files[table]:
            return pd.DataFrame(columns=names)
        try:
            frame = self.table(table, columns).to_pandas()
        except UnicodeDecodeError as error:
            raise unreadable([file.path for file in self.files[table]], error) or error from None
        return frame.reindex(columns=[*names, *(name for name in frame.columns if name not in names)])

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of all files of a table, which has some, with all columns or those of some that a file has.

        Raises:
            RatioscopeError: a file cannot be read any more.
        """
        files = self.files[table]
        try:
            if table != schema.STEPS.name:
                return pa.concat_tables(
                    (read_table(file.path, columns) for file in files), promote_options="permissive"
                )
            blocks = (_step_rows(files[first : first + _AT_ONCE]) for first in range(0, len(files), _AT_ONCE))
            whole = pa.concat_tables(blocks, promote_options="permissive")
            return whole.select([name for name in columns or whole.column_names if name in whole.column_names])
        except RatioscopeError:  # it has vanished
            raise
        except (OSError, pa.ArrowException) as error:
            if problem := unreadable([file.path for file in self.files[table]], error):
                raise problem from None
            raise

    def vocabulary(self) -> dict[int, str]:
        """Texts of the token ids that occur; empty where the run has no vocabulary.

        Raises:
            RunFormatError: the file is there and cannot be read.
        """
        path = self.folder / "vocabulary.parquet"
        if not path.is_file():
            return {}
        try:
            table = read_table(path)
            if why := not_text(table):
                raise ValueError(why)
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            reason = first_line(error)
            raise RunFormatError(f"{path}: cannot be read ({reason}); remove it to see token ids instead.") from None
        schema.check(schema.VOCABULARY, table.schema, path)
        return dict(zip(table["token_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def open_run(folder: str | Path) -> Run:
    """Open one run.

    Raises:
        RunFormatError: the folder is not a run, or its format is newer than this reader.
    """
    folder = place(folder)
    scan_below(folder)
    if not isinstance(folder, Remote) and not (folder / MANIFEST_NAME).is_file() and (said := _foreign(folder)):
        raise RunFormatError(said)
    if not folder.is_dir():
        raise RunFormatError(f"{folder}: there is no such folder{_near(folder)}.")
    if not (folder / MANIFEST_NAME).is_file() and (inside := _runs_in(folder)):
        several = f"holds {len(inside)} runs and is none itself; name one of them: {inside[0]}"
        raise RunFormatError(f"{folder}: {several}{', ...' * (len(inside) > 1)}")
    if problem := _unreadable_name(folder):
        raise RunFormatError(problem)
    for last_try in (False, False, True):
        # Before anything is read: what comes in meanwhile is then news, and not overlooked.
        as_read, places = run_signature(folder), _places(folder)
        manifest = Manifest.read(folder)
        try:
            # Steps are written last and listed first: the tokens of every listed step are on disk.
            listed = {
                table: listed_files(folder / table) for table in [*reversed(schema.TABLES), *schema.OCCASIONAL_TABLES]
            }
            refused = _refused(listed, keep=manifest.status != "running")
        except FileNotFoundError:
            if last_try:
                raise
            continue
        # Else the run was compacted meanwhile, or a whole flush came in between two tables.
        status = manifest.live_status()
        is_written = status == "running"
        settled = not is_written or isinstance(folder, Remote) or run_signature(folder) == as_read
        if last_try or (_places(folder) == places and settled):
            break
    problems = [_one_line(problem) for _, found in listed.values() for problem in found]
    later = in_flight({table: found for table, (found, _) in listed.items()}) if is_written else set()
    files = {
        table: tuple(file for file in found if file.identity not in refused and file.identity not in later)
        for table, (found, _) in listed.items()
    }
    return Run(folder, manifest, files, (*problems, *map(_one_line, refused.values())), as_read, status)


def _near(folder: Path) -> str:
    """A folder beside it that was perhaps meant, a clause."""
    names: list[str] = []
    with suppress(OSError, RatioscopeError):
        names = [child.name for child in scan(folder.parent) if child.is_dir]
    close = get_close_matches(folder.name, names, n=1, cutoff=0.8)
    return f"; did you mean {folder.parent / close[0]}" if close else ""


def _foreign(folder: Path) -> str:
    """What to type where the folder is another program's.

    Asked by name and only here: opening runs loads no importer, and what is kept of a run outlives changes of them.
    """
    return str(import_module("ratioscope.analysis.importers.detect").hint(folder))


def _runs_in(folder: Path) -> list[Path]:
    with suppress(OSError, RatioscopeError):
        return [child.path for child in scan(folder) if child.is_dir and (child.path / MANIFEST_NAME).is_file()]
    return []


def _one_line(text: str) -> str:
    """What a file's name may bring along is spelled out."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


def _unreadable_name(folder: Path) -> str:
    """What is wrong with a name that is no text: databases and pages take none."""
    try:
        str(folder.resolve()).encode()
    except UnicodeEncodeError:
        name = os.fsencode(folder).decode("utf-8", "backslashreplace")
        return f"{name}: a folder's name must be UTF-8; rename it."
    return ""


def _places(folder: Path) -> list[int]:
    """Which folders the tables lie in: other ones after the run was compacted."""
    tables = (folder / table for table in schema.ALL_TABLES)
    return [table.stat().st_ino for table in tables if table.is_dir()]


def run_signature(folder: Path) -> str:
    """A short text that changes whenever the run has news: its manifest's or a table folder's change time."""
    scan_below(folder)
    manifest = folder / MANIFEST_NAME
    stamps = [_stamp(folder / table) for table in schema.ALL_TABLES]
    # The heartbeat rewrites the manifest every few seconds; only what it says of the state is news.
    try:
        state = Manifest.read(folder).live_status() if manifest.exists() else "-"
    except RatioscopeError as error:
        state = str(error)
    return hashlib.sha256("|".join([*stamps, state]).encode()).hexdigest()[:16]


def _stamp(folder: Path) -> str:
    if not isinstance(folder, Remote):
        return str(folder.stat().st_mtime_ns) if folder.exists() else "-"
    # A folder that is elsewhere has no time of its own.
    return str([(child.name, child.size, child.modified_ns) for child in scan(folder)]) if folder.is_dir() else "-"


def _refused(listed: dict[str, tuple[list[TableFile], list[str]]], *, keep: bool) -> dict[str, str]:
    """The files that cannot be used, by identity, and why. What is found out of a run that has ended is kept."""
    files = [(table, file) for table, (found, _) in listed.items() for file in found]
    kept = entry_of("footers", str(largest_bytes()), *(file.identity for _, file in files))
    known = kept.read(_read_refused)
    if known is not None:
        return known
    fetch_footers(file.path for _, file in files)
    whole = sum(file.size for _, file in files) <= _VERIFIED_BYTES
    refused = {}
    for table, file in files:
        try:
            problem = _file_problem(file, table, whole, largest_bytes())
        except OSError as error:  # of the machine, not of the file: the next look may be luckier
            problem, keep = f"{file.path}: left out, it cannot be read ({error.strerror}).", False
        if problem:
            refused[file.identity] = problem
    if keep:
        kept.put(json.dumps(refused).encode())
    return refused


def _read_refused(contents: bytes) -> dict[str, str]:
    return {str(identity): str(problem) for identity, problem in json.loads(contents).items()}


@lru_cache(maxsize=100_000)
def _file_problem(file: TableFile, table: str, whole: bool, limit: int) -> str:
    """Why a file cannot be used; empty when it can. A footer is read once for each state of a file.

    Args:
        whole: look at all its bytes, not at the footer alone.
        limit: of memory, under which it is judged.

    Raises:
        OSError: the system does not let it be read.
    """
    try:
        if whole and not isinstance(file.path, Remote) and (why := broken(file.path)):
            return f"{file.path}: left out, {why}."
        metadata = footer(file.path)
        # The others are read whole.
        if why := bomb(metadata, file.size) if table == schema.TOKENS.name else too_large(metadata):
            return f"{file.path}: left out, {why}."
        found = metadata.schema.to_arrow_schema()
        version = (found.metadata or {}).get(b"ratioscope.schema_version", schema.SCHEMA_VERSION.encode())
        schema.check_version(version.decode("utf-8", "replace"), str(file.path))
        declared = schema.ALL_TABLES[table]
        schema.check(declared, found, file.path)
        if why := _contradiction(file, declared, metadata) or (_strange_text(file.path, found) if whole else ""):
            return f"{file.path}: left out, {why}."
    except RunFormatError as error:
        return f"{error} The file is left out."
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # else it is pyarrow's, of what is in the file
            raise
        reason = first_line(error, 120)
        return f"{file.path}: left out, not a complete Parquet file ({reason})."
    return ""


def _strange_text(path: Path, found: pa.Schema) -> str:
    """What is wrong with text that our own writer did not write, a clause; "": nothing."""
    texts = [field.name for field in found if not pa.types.is_primitive(field.type)]
    return not_text(read_table(path, texts)) if texts and not is_sealed(path) else ""


def _contradiction(file: TableFile, table: schema.DeclaredTable, metadata: pq.FileMetaData) -> str:
    """What a file's values have against its table and its name, a clause, by its footer; without statistics, by its
    values: a key that is missing in a row, or steps that the name does not tell of."""
    if not metadata.num_rows:
        return ""
    leaves = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    for column in table.required:
        place = leaves.index(column.name)
        groups = (metadata.row_group(number).column(place) for number in range(metadata.num_row_groups))
        found = [group.statistics for group in groups if group.num_values]
        if any(each is None or not each.has_null_count or not each.has_min_max for each in found):
            values = read_table(file.path, [column.name]).column(0)
            nulls = values.null_count
            ends = [end.as_py() for end in pc.min_max(values).values()] if column.name == "step" and not nulls else []
        else:
            nulls, ends = (
                sum(each.null_count for each in found),
                [end for each in found for end in (each.min, each.max)],
            )
        if nulls:
            return f"column {column.name} is required, and there are nulls in it"
        if column.name == "step" and not file.name.first_step <= min(ends) <= max(ends) <= file.name.last_step:
            return f"it has steps {min(ends)} to {max(ends)}, its name says other ones"
    return ""


@dataclass(frozen=True)
class Listed:
    """A line in the list of runs: the manifest and what a directory listing tells, no table is opened."""

    run_id: str
    """Stable within its root: the relative path, or the folder's name for a root that is itself a run."""
    folder: Path
    manifest: Manifest | None
    steps: int
    problem: str = ""
    status: str = field(init=False)
    """What the manifest says of the writer when it is read: a heartbeat that is held against a later clock has
    stopped, if one only waits. "" where there is no manifest."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.manifest.live_status() if self.manifest else "")

    def to_json(self) -> dict[str, Any]:
        """As `ratioscope ls --json` prints it: unknown is null."""
        return {
            "run": self.run_id,
            "name": self.manifest.name if self.manifest else None,
            "status": self.status or "unreadable",
            "algorithm": self.manifest.algorithm_name or None if self.manifest else None,
            "source": self.manifest.source.get("framework") if self.manifest else None,
            "steps": self.steps,
            "created": self.manifest.created if self.manifest else None,
            "problem": self.problem or None,
        }


def discover(roots: Iterable[str | Path]) -> list[Listed]:
    """All runs below the roots, newest first.

    A folder with a broken manifest is listed with its problem, and so is a storage that does not answer.
    """
    listed: dict[str, Listed] = {}
    for root in map(place, roots):
        try:
            folders = list(_run_folders(root, SEARCH_DEPTH))
        except StorageError as error:
            listed[str(root)] = Listed(str(root), root, None, 0, str(error))
            continue
        for folder in folders:
            manifest, steps = None, 0
            try:
                manifest, problem, steps = Manifest.read(folder), _unreadable_name(folder), _count_steps(folder)
            except RatioscopeError as error:
                problem = str(error)
            run_id = _free_id(root, folder, listed)
            listed[run_id] = Listed(run_id, folder, manifest, steps, problem)
    return sorted(listed.values(), key=lambda run: run.manifest.created if run.manifest else "", reverse=True)


def _free_id(root: Path, folder: Path, listed: Mapping[str, Listed]) -> str:
    """A run's place below its root, with as many of the folders above it as tell it from the others."""
    whole = folder.resolve()
    below = folder.relative_to(root).parts if folder != root else whole.parts[-1:]
    ids = ["/".join(below), *("/".join(whole.parts[-n:]) for n in range(len(below) + 1, len(whole.parts))), str(whole)]
    for run_id in (os.fsencode(each).decode("utf-8", "backslashreplace") for each in ids):
        if run_id not in listed or listed[run_id].folder.resolve() == whole:
            break
    return run_id


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError):
        inside = scan(folder) if isinstance(folder, Remote) else None  # one listing tells of both
        if (folder / MANIFEST_NAME).is_file():
            scan_below(folder)
            yield folder
            return
        if depth == 0:
            return
        for child in inside or scan(folder):
            if child.is_dir and not child.name.startswith("."):
                # A link may lead to a run, and not to a tree: that may be the one it lies in.
                yield from _run_folders(child.path, depth - 1 if not child.is_link else 0)


def _count_steps(folder: Path) -> int:
    names: list[schema.FileName | None] = []
    for table in ("tokens", "sequences"):  # a run of texts has no tokens
        with suppress(OSError):
            names += [schema.FileName.parse(child.name) for child in scan(folder / table)]
    known, behind = 0, -1
    for first, last in sorted((name.first_step, name.last_step) for name in names if name):
        known += max(0, last - max(first, behind + 1) + 1)
        behind = max(behind, last)
    return known
