"""The reader's own tags and notes on runs.

Runs are other people's and never written to: notes lie in the user's own data folder, one small file a run, found by
the run's folder. Text is kept as it was typed; whoever shows it treats it like the text of a log.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratioscope.manifest import replace_atomically

MOST_TAGS, LONGEST_TAG, LONGEST_NOTE = 20, 60, 4_000


@dataclass(frozen=True)
class Note:
    """What the reader has written about a run."""

    tags: tuple[str, ...] = ()
    text: str = ""


def notes_folder() -> Path:
    """$RATIOSCOPE_NOTES, or a folder among the user's data; may not exist yet."""
    default = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ratioscope" / "notes"
    return Path(os.environ.get("RATIOSCOPE_NOTES") or default)


def read_notes(folders: Iterable[Path]) -> dict[Path, Note]:
    """The notes on these runs' folders; runs without one are left out, and so is a file that is no note."""
    try:
        written = {path.name for path in notes_folder().iterdir()}
    except OSError:
        return {}
    found = {}
    for folder in folders:
        place = _place(folder)
        if place.name in written:
            with suppress(OSError, ValueError, KeyError, TypeError):
                found[folder] = _note(json.loads(place.read_text(encoding="utf-8")))
    return found


def write_note(folder: Path, note: Note) -> Note:
    """Keep a note on a run, replacing the one before; an empty one takes it away. Returns what was kept.

    Raises:
        OSError: the notes folder cannot be written.
    """
    place, kept = _place(folder), _note({"tags": note.tags, "text": note.text})
    if kept == Note():
        place.unlink(missing_ok=True)
        return kept
    place.parent.mkdir(parents=True, exist_ok=True)
    contents = {"folder": str(folder.resolve()), "tags": kept.tags, "text": kept.text}
    replace_atomically(place, json.dumps(contents).encode())
    return kept


def split_tags(text: str) -> tuple[str, ...]:
    """Tags from a line of text, separated by commas."""
    return tuple(dict.fromkeys(stripped for tag in text.split(",") if (stripped := tag.strip())))


def writable(text: object) -> str:
    """Text that every encoder takes: JSON can hold halves of characters, which UTF-8 cannot."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def _note(contents: dict[str, Any]) -> Note:
    tags = [writable(tag)[:LONGEST_TAG] for tag in list(contents["tags"])[:MOST_TAGS]]
    return Note(tuple(tags), writable(contents["text"])[:LONGEST_NOTE].strip())


def _place(folder: Path) -> Path:
    return notes_folder() / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]}.json"
