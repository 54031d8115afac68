"""The Parquet files of a run: which a table has, and which are of a flush that is under way."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ratioscope.run_format import schema
from ratioscope.storage.places import scan, unfollowed


@dataclass(frozen=True)
class TableFile:
    """One complete Parquet file of a run."""

    path: Path
    name: schema.FileName
    size: int
    modified_ns: int

    @property
    def identity(self) -> str:
        """Changes when the file does; files are immutable, so this is for replaced ones."""
        return f"{self.resolved}:{self.size}:{self.modified_ns}"

    @property
    def resolved(self) -> Path:
        """Where it lies, whichever links lead there."""
        return _resolved(self) if self.path.is_absolute() else self.path.resolve()


@lru_cache(maxsize=100_000)
def _resolved(file: TableFile) -> Path:
    """A look at each folder above it: a run that is written has hundreds of files, which every question names."""
    return file.path.resolve()


@lru_cache(maxsize=100_000)
def _as_listed_before(file: TableFile) -> TableFile:
    """One object a file: each state of a run that is written lists all that there are."""
    return file


def listed_files(folder: Path) -> tuple[list[TableFile], list[str]]:
    """The files of a table, by their names, and one sentence for each that has another name."""
    files: list[TableFile] = []
    problems: list[str] = []
    if why := unfollowed(folder):
        return files, [f"{folder}: left out, {why}."]
    if not folder.is_dir():
        return files, problems
    for entry in scan(folder, sizes=True):
        name = schema.FileName.parse(entry.name)
        if entry.link and entry.name.endswith(".parquet"):
            problems.append(f"{entry.path}: left out, {entry.link}.")
        if not entry.is_file:
            continue
        if name is not None:
            files.append(_as_listed_before(TableFile(entry.path, name, entry.size, entry.modified_ns)))
        elif entry.name.endswith(".parquet"):
            problems.append(f"{entry.path}: left out, its name is not first-last-w<writer>.parquet.")
    return files, problems


def in_flight(listed: Mapping[str, Sequence[TableFile]]) -> set[str]:
    """Identities of the files that are left out until their flush is whole: their steps would seem to lack rewards.

    A writer flushes one table after the other, in the order of `schema.TABLES`, so that only its newest file of a table
    can be ahead of a table behind it. Where more are, that table is not written with every flush.

    Args:
        listed: the files of each table, of a run that is being written.
    """
    of_writer: defaultdict[int, dict[str, list[TableFile]]] = defaultdict(dict)
    for table in schema.TABLES:
        for file in listed.get(table, ()):
            of_writer[file.name.writer].setdefault(table, []).append(file)
    found: set[str] = set()
    for tables in of_writer.values():
        flushed: int | None = None  # the last step of which every table behind is there
        for files in reversed(tables.values()):
            if flushed is not None:
                ahead = [file for file in files if file.name.last_step > flushed]
                if len(ahead) == 1:
                    found.add(ahead[0].identity)
            last = max(file.name.last_step for file in files)
            flushed = last if flushed is None else min(flushed, last)
    return found
