"""What a command prints: text from logs made harmless, complaints on stderr, progress on a terminal only."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ratioscope.inert import one_line, safe, safe_values


def print_line(text: str) -> None:
    """Print on stdout, at once: a pipe's reader need not wait."""
    print(safe(text), flush=True)


def print_wrapped(text: str) -> None:
    """Print findings: in a pipe a line each, on a terminal wrapped below their words, with coloured severities."""
    if not sys.stdout.isatty():
        print_line(text)
        return
    from typer import style

    for line in wrapped(safe(text), min(shutil.get_terminal_size().columns, _WIDEST)).split("\n"):
        word, gap, rest = line.partition(" ")
        coloured = gap and word in _COLOURS and "NO_COLOR" not in os.environ
        print(f"{style(word, fg=_COLOURS[word], bold=True)} {rest}" if coloured else line)
    sys.stdout.flush()


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a head and rows in columns: in a pipe as wide as they are, on a terminal the first column is wrapped."""
    print_line(table_text(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))


def table_text(rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Rows of equally many cells in columns; what the first one has no room for goes on in the line below.

    Args:
        width: in columns of the terminal; None: as wide as the cells are.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        widths[0] = max(_NARROWEST, min(widths[0], width - 1 - sum(each + 2 for each in widths[1:])))
    lines = []
    for first, *others in rows:
        indent = " " * (len(first) - len(first.lstrip()))
        cell, *rest = textwrap.wrap(first, widths[0], subsequent_indent=f"{indent}  ", break_on_hyphens=False) or [""]
        cells = [each.ljust(width) for each, width in zip((cell, *others), widths, strict=True)]
        lines += ["  ".join(cells).rstrip(), *rest]
    return "\n".join(lines)


_NARROWEST = 16
"""Columns that names have at least."""
_WIDEST = 100
"""Columns: longer lines are hard to read."""
_DEEPEST = 15
_COLOURS = {"notice": "blue", "warning": "yellow", "critical": "red"}
_LABEL = re.compile(r"\s{2,}(?:\w[\w ]*: )?|\S+(?: \S+)*?\s{2,}")
"""What stands before the words of a line: a severity, a light's name, "Why:"."""


def wrapped(text: str, width: int) -> str:
    """Lines of at most so many columns; what goes on begins below the words of its line."""
    lines = []
    for line in text.split("\n"):
        label = _LABEL.match(line)
        indent = " " * min(len(label[0]) if label else 0, _DEEPEST)
        lines.append(
            textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, drop_whitespace=True,
                          break_on_hyphens=False, replace_whitespace=False) if line else ""
        )  # fmt: skip
    return "\n".join(lines)


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
