"""Errors that a user can cause: one sentence that says what, where and what to do; the command line prints it alone."""

from collections.abc import Iterable
from difflib import get_close_matches

from ratioscope.inert import safe


class RatioscopeError(Exception):
    """Something the user can mend; `str(error)` is the whole message, in which what it quotes of a log is inert."""

    def __str__(self) -> str:
        return safe(super().__str__())


class RunFormatError(RatioscopeError):
    """A file or folder does not follow the run format."""


class VanishedError(RatioscopeError, FileNotFoundError):
    """A file was there when its folder was listed, and is not any more."""


class MissingPackageError(RatioscopeError, ModuleNotFoundError):
    """A package is not installed; the message ends with the line that installs it."""


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of what an error of a library says, without its full stop; its kind where it says nothing."""
    said = (isinstance(error, OSError) and error.strerror) or error
    line = next(iter(str(said).strip().splitlines()), "") or type(error).__name__
    return line[:most].rstrip(". ")


# More names than these are not listed.
_MOST_LISTED = 12


def unknown(what: str, name: str, known: Iterable[str]) -> RatioscopeError:
    """The error for a name that is not one of `known`: the closest ones, or all of them.

    Args:
        what: what it should name, with its article: "a metric", "a gate".
    """
    names = list(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return RatioscopeError(f"{name!r} is not {what}; did you mean {' or '.join(close)}?")
    listed = ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
    return RatioscopeError(f"{name!r} is not {what}; there are: {listed}.")
