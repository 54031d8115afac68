"""What an importer is: it says what lies at a path, and reads it as steps in the columns of the run format."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ratioscope.errors import RatioscopeError, first_line
from ratioscope.run_format.table_files import Columns
from ratioscope.storage import bounds

SURPRISES = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RuntimeError)
"""What values of another kind than an importer counts on raise, somewhere."""


class ImportProblem(RatioscopeError):
    """A file of somebody else's that cannot be read as what it claims to be: which, where, and what is wrong."""


class BadLine(ValueError):
    """What an importer itself finds wrong with a line or a response: `str(error)` says what, without a full stop."""


@dataclass(frozen=True)
class Step:
    """One update of a foreign run."""

    number: int
    sequences: Columns
    tokens: Columns | None = None
    """None: the source has no tokens."""
    scalars: Mapping[str, Any] = field(default_factory=dict)
    messages: Columns | None = None


@dataclass(frozen=True)
class Description:
    """What lies at a path, found by looking at little of it."""

    framework: str
    format: str
    path: Path
    version: str = ""
    """Of the framework or of its format, where the files say so."""
    steps: int | None = None
    """How many, where that is known without reading everything."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Columns of the run format that it does not have, and why: a sentence each."""
    assumed: tuple[str, ...] = ()
    """What is taken for granted, and why: a sentence each."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """What the source knows of the run: fields of `Manifest`."""
    unpickles: str = ""
    """Why nothing of it can be read without running what is in a pickle; "": it can."""


class Line(int):
    """Number of a line of a file, from 1, which knows at which byte the line begins, and with what."""

    def __new__(cls, number: int, offset: int, text: bytes) -> "Line":
        line = super().__new__(cls, number)
        line.offset, line.text = offset, text[:_TOLD_BY]
        return line

    offset: int
    text: bytes


class StepStart(NamedTuple):
    """Where in a file begins what is read for a step."""

    step: int
    line: int
    offset: int
    text: bytes = b""
    """With which the line begins: another file has another one there."""


FIRST_LINE = StepStart(0, 1, 0)
_TOLD_BY = 200
"""Bytes of a line by which it is known again."""


@dataclass
class Reading:
    """How a source is read, and where it says what is wrong with it."""

    after: int = -1
    """Only steps beyond this one: a source that grows is read again and again."""
    growing: bool = False
    """The source may still be written: a last step that may be incomplete is left out."""
    unpickle: bool = False
    """The user allows unpickling."""
    skip_bad: bool = False
    """What cannot be read is left out and noted, instead of raised."""
    problems: list[str] = field(default_factory=list)
    bytes_read: int = 0
    """Of the source's files so far, where the importer counts them: for the progress."""

    places: dict[Path, list[StepStart]] = field(default_factory=dict)
    """Where the steps begin in files of many steps, by line; kept from look to look at a source that is followed."""
    taken: dict[Path, dict[Any, int]] = field(default_factory=dict)
    """Rows that were read of each response to which more may come, kept likewise: later ones are told from these."""
    judged: dict[Path, Any] = field(default_factory=dict)
    """What the beginning of a file shows of all of it, kept likewise once it is long enough to show it."""

    def begins(self, path: Path, step: int, line: int) -> None:
        """Remember that what is read for a step begins in this line of a file, unless an earlier look came as far."""
        known = self.places.setdefault(path, [])
        if isinstance(line, Line) and (not known or line > known[-1].line):
            known.append(StepStart(step, line, line.offset, line.text))

    def place(self, path: Path) -> StepStart:
        """Where the first step begins that is wanted of a file, as far as earlier looks came; else where it begins."""
        known = self.places.pop(path, [])
        if not known or not _begins_there(path, known[-1]):
            self.judged.pop(path, None)
            return FIRST_LINE
        first = next((at for at, place in enumerate(known) if place.step > self.after), len(known) - 1)
        self.places[path] = known[first:]
        return known[first]

    def bad(self, path: Path, what: str, line: int | None = None) -> None:
        """Say that something cannot be read.

        Args:
            what: what is wrong, without a full stop: it ends the sentence.
            line: counted from 1.

        Raises:
            ImportProblem: unless what is bad is left out.
        """
        where = f"{path}, line {line}" if line is not None else f"{path}"
        problem = f"{where}: {what}."
        if not self.skip_bad:
            raise ImportProblem(problem)
        self.problems.append(problem)

    @contextmanager
    def whole_file(self) -> Iterator[None]:
        """What is done with a file of which nothing can be read any more once something is wrong with it."""
        try:
            yield
        except ImportProblem as problem:
            if not self.skip_bad:
                raise
            self.problems.append(str(problem))

    @contextmanager
    def whole_line(self, path: Path, line: int) -> Iterator[None]:
        """What is done with one line: values of another kind than an importer counts on make the line a bad one."""
        try:
            yield
        except BadLine as error:
            self.bad(path, str(error), line)
        except SURPRISES as error:
            reason = first_line(error)
            self.bad(path, f"not of the shape that is known ({reason})", line)


def _begins_there(path: Path, place: StepStart) -> bool:
    """Whether the line still begins there, as it does no more where another file took the name."""
    before = b"\n" if place.offset else b""
    try:
        with bounds.opened(path) as file:
            file.seek(place.offset - len(before))
            return file.read(len(before) + len(place.text)) == before + place.text
    except OSError:
        return False


@dataclass(frozen=True)
class Sign:
    """Files or folders whose name tells a framework's, and what they must hold to be read."""

    files: str
    """A pattern, below the folder that is imported."""
    keys: tuple[str, ...]
    """Keys of the first record, columns, tables; of a folder, patterns of the names in it."""
    says_enough: bool = True
    """The name is used by nobody else; otherwise it is believed where at least half of the keys are there."""


@dataclass(frozen=True)
class Importer:
    """One foreign format."""

    name: str
    """What `--format` takes."""
    title: str
    describe: Callable[[Path], Description | None]
    """None: it is not that. Cheap, and at home with whatever lies at the path."""
    read: Callable[[Path, Reading], Iterator[Step]]
    """Its steps in ascending order, as they are asked for, in memory that does not grow with the run."""
    signs: tuple[Sign, ...] = ()
    """By what it is recognised where it cannot be read, so that somebody can say why."""
