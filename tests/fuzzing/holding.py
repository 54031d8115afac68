"""What has to hold of every answer: numbers or one sentence, in time, and nothing is written outside of its folder."""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis.strategies import SearchStrategy

from ratioscope.errors import RatioscopeError

SECONDS = 30.0
"""The longest that anything may take; a busy machine is no hang."""


_folders: list["tempfile.TemporaryDirectory[str]"] = []


def lasting() -> Path:
    """A folder that is there until the process ends."""
    _folders.append(tempfile.TemporaryDirectory(prefix="ratioscope-fuzzing-"))
    return Path(_folders[-1].name)


class Broken(AssertionError):
    """An answer that is none."""


@dataclass(frozen=True)
class Target:
    """One way in: strange values, and what is done with one of them in a folder."""

    examples: SearchStrategy[Any]
    ask: Callable[[Path, Any], None]
    kind: Callable[[Any], str]
    """What is strange about a value, for the tally: values of one kind are one."""
    few: int = 10
    """Examples in the test run."""


def answered(target: Target, example: Any) -> str:
    """Ask about a value: the sentence that it was refused with, "" where there are numbers.

    Raises:
        Broken: neither came in time, or a file elsewhere was touched.
        Exception: what would have been a traceback.
    """
    with tempfile.TemporaryDirectory() as place:
        inside = Path(place) / "own" / "own" / "inside"  # `../..` ends in a folder of ours, too
        inside.mkdir(parents=True)
        for folder in inside.parents[:3]:
            (folder / "neighbour").write_text("whole")
        around = _around(inside)
        said = ""
        with _in_time():
            try:
                target.ask(inside, example)
            except RatioscopeError as refused:
                said = str(refused)
                check_sentence(said)
        if (found := _around(inside)) != around:
            raise Broken(f"touched outside of its folder: {sorted(found.items() ^ around.items())}")
    return said


def _around(inside: Path) -> dict[str, bytes]:
    """What lies in the three folders above."""
    entries = [path for folder in inside.parents[:3] for path in folder.iterdir()]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in entries}


def check_sentence(said: str) -> None:
    """One line that ends like a sentence; control characters in it are the printer's to escape."""
    if len(said.split("\n")) != 1 or not said.endswith((".", "?")):
        raise Broken(f"not one sentence: {said[:300]!r}")
    if "Traceback" in said:
        raise Broken(f"inner workings: {said[:300]!r}")


@contextmanager
def _in_time() -> Iterator[None]:
    began = time.monotonic()

    def stop(number: int, frame: FrameType | None) -> None:
        raise Broken(f"no answer in {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if time.monotonic() - began > SECONDS:  # a library that lets no signal through
        raise Broken(f"an answer took {time.monotonic() - began:.0f} s")
