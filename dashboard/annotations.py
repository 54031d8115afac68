"""The user's own tags and notes on runs, and on steps of a run.

Runs are never written to: annotations are kept in the user's data folder, one small file per run, found by the run's
folder, and nobody else reads them, but for notes on steps in a report that is passed on; in a folder that is a group's,
its people do. Text is kept as it was typed and must be escaped like the text of a log.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratioscope.inert import one_line, safe
from ratioscope.storage.whole_files import replace_atomically

MOST_TAGS, LONGEST_TAG, LONGEST_NOTE = 20, 60, 4_000
MOST_PINS, LONGEST_PIN = 100, 200

Pin = tuple[int, str]
"""A step and the note on it, in one line."""


@dataclass(frozen=True)
class Annotation:
    """What the user has written about a run."""

    tags: tuple[str, ...] = ()
    text: str = ""
    pins: tuple[Pin, ...] = ()
    """By step."""

    def pinned(self, step: int, text: str) -> "Annotation":
        """The same with this note on a step, or with none where the text is empty."""
        others = {at: said for at, said in self.pins if at != step}
        return replace(self, pins=tuple(sorted((others | {step: text}).items())))


def annotations_folder() -> Path:
    """$RATIOSCOPE_NOTES, or a folder among the user's data; may not exist yet."""
    default = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ratioscope" / "notes"
    return Path(os.environ.get("RATIOSCOPE_NOTES") or default)


def read_annotations(folders: Iterable[Path]) -> dict[Path, Annotation]:
    """The annotations of these runs' folders; runs without one and files that cannot be read are left out."""
    try:
        written = {path.name for path in annotations_folder().iterdir()}
    except OSError:
        return {}
    if not written:  # to resolve thousands of folders takes a second
        return {}
    found = {}
    for folder in folders:
        place = _place(folder)
        if place.name in written:
            with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
                found[folder] = _annotation(json.loads(place.read_text(encoding="utf-8")))
    return found


def annotation_of(folder: Path) -> Annotation:
    """What the user has written about one run."""
    return read_annotations([folder]).get(folder, Annotation())


def write_annotation(folder: Path, annotation: Annotation) -> Annotation:
    """Keep an annotation of a run in place of the previous one; an empty one deletes it. Returns what was kept.

    Raises:
        OSError: the folder of annotations cannot be written.
    """
    wanted = {"tags": annotation.tags, "text": annotation.text, "pins": annotation.pins}
    place, kept = _place(folder), _annotation(wanted)
    if kept == Annotation():
        place.unlink(missing_ok=True)
        return kept
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    contents = {"folder": str(folder.resolve()), "tags": kept.tags, "text": kept.text, "pins": kept.pins}
    replace_atomically(place, json.dumps(contents).encode(), private=True)
    return kept


def split_tags(text: str) -> tuple[str, ...]:
    """Tags from a line of text, separated by commas."""
    return tuple(dict.fromkeys(stripped for tag in text.split(",") if (stripped := tag.strip())))


def _annotation(contents: dict[str, Any]) -> Annotation:
    tags = [one_line(tag)[:LONGEST_TAG] for tag in list(contents["tags"])[:MOST_TAGS]]
    pins = [(int(step), one_line(text)[:LONGEST_PIN].strip()) for step, text in contents.get("pins", ())[:MOST_PINS]]
    text = safe(contents["text"])[:LONGEST_NOTE].strip()
    return Annotation(tuple(tags), text, tuple((step, said) for step, said in pins if said))


def _place(folder: Path) -> Path:
    return annotations_folder() / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]}.json"
