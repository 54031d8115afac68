"""Files that share steps, read side by side: memory holds a step and never a file."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def side_by_side(
    first: Mapping[Path, int], read: Callable[[Path], Iterator[tuple[int, T]]]
) -> Iterator[tuple[int, list[T], bool]]:
    """The steps in ascending order, what the files have of each, and whether it is the last.

    Args:
        first: by file, its first step: it is opened when that is due.
        read: the parts of a file and their steps, ascending.
    """
    waiting = sorted(first.items(), key=lambda pair: (pair[1], str(pair[0])), reverse=True)
    opened: list[tuple[tuple[int, T], Iterator[tuple[int, T]]]] = []
    while waiting or opened:
        while waiting and (not opened or waiting[-1][1] <= min(step for (step, _), _ in opened)):
            parts = read(waiting.pop()[0])
            if (begin := next(parts, None)) is not None:
                opened.append((begin, parts))
        if not opened:
            return
        due = min(step for (step, _), _ in opened)
        found: list[T] = []
        left: list[tuple[tuple[int, T], Iterator[tuple[int, T]]]] = []
        for begin, parts in opened:
            head: tuple[int, T] | None = begin
            while head is not None and head[0] == due:
                found.append(head[1])
                head = next(parts, None)
            if head is not None:
                left.append((head, parts))
        opened = left
        yield due, found, not (waiting or opened)
