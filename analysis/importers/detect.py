"""What lies at a path: which of the known formats, there or in the folders below."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ratioscope.analysis.importers.formats import IMPORTERS
from ratioscope.analysis.importers.recognised import Lacking, lacking_framework
from ratioscope.analysis.importers.source import Description, Importer, ImportProblem, Reading, Step
from ratioscope.analysis.importers.values import config
from ratioscope.errors import RatioscopeError, first_line, unknown
from ratioscope.run_format.manifest import MANIFEST_NAME

# Folders below the one that is named are looked into so deep, and no more than so many of them.
_DEPTH, _MOST_FOLDERS = 2, 200


@dataclass(frozen=True)
class FoundSource:
    """A source, and the format that it is in."""

    importer: Importer
    description: Description
    place: Path
    """The path that was described; its files may lie deeper (`description.path`)."""

    def read(self, reading: Reading) -> Iterator[Step]:
        """The steps of the source; what its importer did not count on is said in a sentence, too.

        Raises:
            ImportProblem: something cannot be read.
        """
        path = self.description.path
        try:
            yield from self.importer.read(path, reading)
        except RatioscopeError:
            raise
        except Exception as error:  # a file is anybody's, and any library's error may be about it
            reason = first_line(error)
            raise ImportProblem(f"{path}: cannot be read ({reason}).") from error


def detect(path: Path, name: str = "") -> list[FoundSource]:
    """Every format that the path is in, those that can be told most surely first; a run of ours is in none.

    Args:
        name: look for this format alone.

    Raises:
        RatioscopeError: there is no format of that name.
    """
    if name and name not in (names := [importer.name for importer in IMPORTERS]):
        raise unknown("a format", name, names)
    if _is_run(path):
        return []
    asked = [importer for importer in IMPORTERS if name in ("", importer.name)]
    described = [(importer, _described(importer, path)) for importer in asked]
    return [FoundSource(importer, description, path) for importer, description in described if description is not None]


def _is_run(folder: Path) -> bool:
    """Whether it is a run of ours: others, prime-rl among them, write a file of that name, too."""
    return isinstance(config(folder / MANIFEST_NAME).get("schema_version"), str)


def _described(importer: Importer, path: Path) -> Description | None:
    """What an importer says of a path; None, too, where files of that name hold something else altogether."""
    with suppress(Exception):  # anything may lie there, and nobody has said that it is of this format
        return importer.describe(path)
    return None


def search(path: Path, name: str = "") -> Iterator[FoundSource]:
    """The sources at a path or, where there is none, in the folders below it; what matches is not looked into."""
    yield from _search(path, name, _DEPTH, [_MOST_FOLDERS])


def _search(path: Path, name: str, depth: int, left: list[int]) -> Iterator[FoundSource]:
    found = detect(path, name)
    yield from found
    if found or depth == 0 or _is_run(path):
        return
    for place in _below(path):
        if left[0] == 0:
            return
        left[0] -= 1
        yield from _search(place, name, depth - 1, left)


def _below(path: Path) -> list[Path]:
    """The folders in a folder; none where it cannot be looked into."""
    try:
        with os.scandir(path) as entries:
            below = sorted(e.path for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return []
    return [Path(place) for place in below]


def the_source(path: Path, name: str = "") -> FoundSource:
    """The one source at a path or, where there is none, the one in the folders below it.

    Raises:
        RatioscopeError: nothing is there, no format is recognised, or several sources or formats are.
    """
    if not path.exists():
        raise RatioscopeError(f"{path}: there is no such file or folder.")
    if _is_run(path):
        raise RatioscopeError(f"{path}: this is a run of ratioscope already; ratioscope dashboard {path} opens it.")
    found = list(search(path, name))
    if len(found) == 1:
        return found[0]
    if places := list(dict.fromkeys(each.place for each in found)):
        if len(places) == 1:
            listed = " or ".join(f"--format {each.importer.name} ({each.importer.title})" for each in found)
            raise RatioscopeError(f"{places[0]}: several formats fit what is here; choose with {listed}.")
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        raise RatioscopeError(
            f"{path}: nothing to import here, but in {', '.join(map(str, places[:3]))}{more}; name one of them."
        )
    if there := _recognised(path, name):
        raise RatioscopeError(str(there))
    if name:
        title = next(importer.title for importer in IMPORTERS if importer.name == name)
        raise RatioscopeError(f"{path}: no {title} is here; without --format every known format is tried.")
    if path.is_dir() and not any(path.iterdir()):
        raise RatioscopeError(f"{path}: the folder is empty.")
    known = ", ".join(dict.fromkeys(importer.title for importer in IMPORTERS))
    raise RatioscopeError(
        f"{path}: none of the known formats is here ({known}). A mapping file describes any other Parquet, JSON, "
        f"SQLite or Arrow files; ratioscope import --template {quote(str(path))} prints one to fill in."
    )


def _recognised(path: Path, name: str) -> Lacking | None:
    """What is there of a known framework without being readable, at the path or below."""
    asked = [importer for importer in IMPORTERS if name in ("", importer.name)]
    places = [path, *_below(path)]
    places += [deeper for place in places[1:] for deeper in _below(place)]
    return next((found for place in places[:_MOST_FOLDERS] if (found := lacking_framework(place, asked))), None)


def hint(folder: Path) -> str:
    """What to type where a folder was opened as a run and is another program's; "" where it is not that either."""
    found = next(iter(detect(folder)), None) if folder.exists() else None
    return (
        f"{folder}: this is no run yet but a {found.importer.title}; ratioscope import {folder} makes one of it."
        if found
        else ""
    )
