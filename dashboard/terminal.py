"""What a command prints: text from logs made harmless, complaints on stderr, progress on a terminal only."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ratioscope.inert import one_line, safe, safe_values


def print_line(text: str) -> None:
    """Print on stdout, at once: a pipe's reader need not wait."""
    print(safe(text), flush=True)


def say_json(contents: Any, indent: int | None = None) -> None:
    """Print JSON on stdout; there is no NaN in it.

    Raises:
        ValueError: there is.
    """
    print_line(json.dumps(safe_values(contents), allow_nan=False, indent=indent))


def complain(text: str) -> None:
    """One sentence on stderr."""
    print(f"ratioscope: {one_line(text)}", file=sys.stderr, flush=True)


def shows_progress(quiet: bool) -> bool:
    """Whether somebody is looking: stderr is a terminal, and they did not ask for silence."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def working(what: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show that work goes on while the block runs; do not print inside.

    Args:
        what: a few words, shown as they are.
        quiet: show nothing; nothing is shown either where stderr is no terminal.

    Yields:
        A function of the parts done and of all parts.
    """
    if not shows_progress(quiet):
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        console=Console(stderr=True, highlight=False, markup=False),
        transient=True,
        redirect_stdout=False,  # else what goes to a file would be drawn on stderr
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(one_line(what), total=None, count="")
        yield lambda done, of: bar.update(task, completed=done, total=of, count=f"{done} of {of}")
