"""What a folder is that no importer can read: whose files have such names, and what they lack.

Each importer names its signs beside itself; what is said of them is said here.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow.parquet as pq

from ratioscope.analysis.importers import sqlite_rows
from ratioscope.analysis.importers.pickles import torch_file
from ratioscope.analysis.importers.source import Importer, Reading, Sign
from ratioscope.analysis.importers.values import config, first_object
from ratioscope.storage.bounds import check_kind

# So many files are put in order to look at the first.
_MOST_FILES = 1_000


@dataclass(frozen=True)
class Lacking:
    """A file or folder with a framework's name, without what its importer needs."""

    importer: Importer
    path: Path
    absent: tuple[str, ...]
    """Keys; none where the file is empty."""
    share: float
    """Of what is needed, how much is there."""

    def __str__(self) -> str:
        framework = self.importer.title.partition(":")[0]
        lacks = f"it has no {', '.join(self.absent)}" if self.absent else "it is empty"
        can = f"; ratioscope import --template {quote(str(self.path))} prints what describes it" if self.absent else ""
        return f"{self.path}: by its name it is from {framework}, but {lacks}{can if self.path.is_file() else ''}."


def lacking_framework(path: Path, importers: Iterable[Importer]) -> Lacking | None:
    """The most likely of the frameworks whose names something at a path has, if it lacks what its importer needs."""
    found = [one for importer in importers for sign in importer.signs if (one := _looked_at(path, importer, sign))]
    return max(found, key=lambda one: one.share, default=None)


def _looked_at(path: Path, importer: Importer, sign: Sign) -> Lacking | None:
    with suppress(Exception):  # anything may lie there
        place = next(iter(sorted(islice(path.glob(sign.files), _MOST_FILES))), None) if path.is_dir() else None
        if place is None and path.is_file() and fnmatchcase(path.name, sign.files.rpartition("/")[2]):
            place = path
        if place is None:
            return None
        if place.is_file() and place.stat().st_size == 0:
            return Lacking(importer, place, (), 0.0) if sign.says_enough else None
        there = _keys(place)
        absent = tuple(key for key in sign.keys if not any(fnmatchcase(name, key) for name in there))
        share = 1 - len(absent) / len(sign.keys)
        if absent and (sign.says_enough or share >= 0.5):
            return Lacking(importer, place, absent, share)
    return None


def _keys(place: Path) -> Collection[Any]:
    """What can be in a file of its kind: keys of the first record, columns, tables; of a folder, names."""
    if place.is_dir():
        return [entry.name for entry in islice(place.iterdir(), _MOST_FILES)]
    check_kind(place)
    if place.suffix == ".parquet":
        return pq.read_schema(place).names
    if place.suffix == ".pt":
        payload = torch_file(place, Reading(skip_bad=True), lazily=True)
        return [str(key) for key in payload] if isinstance(payload, dict) else ()
    if place.suffix in sqlite_rows.SUFFIXES:
        return sqlite_rows.tables(place)
    return (config(place) if place.suffix == ".json" else first_object(place)).keys()
