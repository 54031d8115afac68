"""Caveats of numbers, typed: why a number is missing, why it cannot be trusted, or what to know of it.

`None` is no note. A table has two columns of text, `note_kind` and `note`, both "" where there is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is the matter. Code asks for the kind; the text is for the reader alone."""

    UNDEFINED = "undefined"
    """There is no value: nothing to compute it from, or 0/0."""
    NOT_LOGGED = "not logged"
    """There is no value: a column that it needs is not logged, or not given."""
    NOT_ESTIMABLE = "not estimable"
    """There is no tail index: too few weights, ties, or a weight that is not finite."""
    NO_TAIL = "no tail"
    """There is no tail index because all large weights are equal."""
    INFINITE = "infinite"
    """The value is infinite."""
    UNRELIABLE = "unreliable"
    """The value is there, and what was not seen could move it: its interval is open on that side."""
    REMARK = "remark"
    """The value holds: what it describes, or why it has no interval."""


# What the texts of a kind begin with.
_OPENINGS = {
    Kind.NOT_ESTIMABLE: "not estimable: ",
    Kind.NO_TAIL: "not estimable: ",
    Kind.UNRELIABLE: "unreliable: ",
}


@dataclass(frozen=True)
class Note:
    """One caveat of one number."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def reason(self) -> str:
        """The text without the words that name its kind, for sentences that name it themselves."""
        return self.text.removeprefix(_OPENINGS.get(self.kind, ""))


def remark(text: str) -> Note:
    """What to know of a value that holds."""
    return Note(Kind.REMARK, text)


def text_of(note: Note | None) -> str:
    """The text; "" without a note."""
    return note.text if note else ""


def is_unreliable(note: Note | None) -> bool:
    """Whether the number is there and cannot be trusted."""
    return note is not None and note.kind is Kind.UNRELIABLE


def joined(note: Note | None, text: str) -> Note | None:
    """The note with a remark behind it; "" adds nothing."""
    if not text:
        return note
    return Note(note.kind, f"{note.text}; {text}") if note else remark(text)


def cells(note: Note | None) -> dict[str, str]:
    """A row's two cells."""
    return {"note_kind": note.kind.value if note else "", "note": text_of(note)}


def note_columns(notes: Iterable[Note | None]) -> dict[str, list[str]]:
    """The two columns of a table."""
    listed = list(notes)
    return {name: [cells(note)[name] for note in listed] for name in cells(None)}


def from_cells(note_kind: str, note: str) -> Note | None:
    """A row's note."""
    return Note(Kind(note_kind), note) if note_kind else None
