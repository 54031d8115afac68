"""Batches of texts that a trainer logs from a queue: what repeats the batch before, which rows answer one prompt, and
whether the rewards of its functions add up to the one that it trained with.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ratioscope.analysis.importers import responses
from ratioscope.analysis.importers.values import as_number, as_part

Row = Mapping[str, Any]
"""A response."""

FIRST = 8
"""Batches that are looked at for what holds of all of them."""

NO_TOTAL = (
    "the files have the rewards of each function, not their weights, and the plain sum does not give the advantages"
)
SUM = "The reward is the sum of the reward functions, as the advantages in the first files are those of that sum."


@dataclass(frozen=True)
class Batches:
    """What the first batches show of all of them."""

    rewards: tuple[str, ...]
    """Columns of numbers beside the trainer's own: reward functions, and numbers that these logged."""
    size: int
    """Responses to a prompt: what all runs of equal prompts are multiples of; 0: no number above 1."""
    has_total: bool
    """The reward is that of the only function, or the plain sum, to which the advantages are proportional."""
    said: int = 0
    """Responses to a prompt as the trainer's settings say; 0: they are not there."""

    @classmethod
    def of(cls, first: Sequence[Sequence[Row]], own: Collection[str], advantage: str, said: int = 0) -> "Batches":
        """Look at some batches.

        Args:
            own: columns that are the trainer's.
            advantage: the one with the advantage.
            said: responses to a prompt by the trainer's settings, where these are known.
        """
        rewards = _rewards(next(filter(None, first), []), own)
        size = math.gcd(*(length for rows in first for length in _runs(rows)))
        size = size if size > 1 else 0
        has_total = len(rewards) == 1 or _adds_up(first, rewards, size, said, advantage)
        return cls(rewards, size, has_total, said)

    def groups(self, rows: Sequence[Row]) -> list[int]:
        """One number for as many responses as the settings say; else for those that follow each other on the same
        prompt, `size` at most."""
        return _groups(rows, self.size, self.said)

    def reward(self, row: Row) -> dict[str, float | None]:
        """The reward of a response and its parts, as columns of the sequences table."""
        parts = responses.parts({name: row.get(name) for name in self.rewards}) if len(self.rewards) > 1 else {}
        scored = any(_is_number(row.get(name)) for name in self.rewards)
        return {"reward": _total(row, self.rewards) if self.has_total and scored else None} | parts


def seen_before(before: Sequence[str], rows: Sequence[str]) -> int:
    """How many rows at the beginning are the last of the batch before: a queue drops the oldest for new ones.

    One row may be alike by chance.
    """
    longest = min(len(before), len(rows))
    overlaps = (size for size in range(longest, 1, -1) if before[-size:] == rows[:size])
    return next(overlaps, 1 if len(rows) == 1 and before[-1:] == rows else 0)


def _rewards(rows: Sequence[Row], own: Collection[str]) -> tuple[str, ...]:
    return tuple(
        name
        for name in (rows[0] if rows else ())
        if name not in own
        and all(row[name] is None or as_part(row[name]) is not None for row in rows)
        and any(row[name] is not None for row in rows)
    )


def _adds_up(batches: Sequence[Sequence[Row]], names: Sequence[str], size: int, said: int, advantage: str) -> bool:
    """Whether advantages are those of the plain sum of the columns: proportional to it within every group."""
    judged = False
    for rows in batches:
        groups = np.array(_groups(rows, size, said))
        sums = np.array([_total(row, names) for row in rows])
        advantages = np.array([as_number(row.get(advantage)) or 0.0 for row in rows])
        for group in set(groups.tolist()):
            ours, theirs = sums[groups == group], advantages[groups == group]
            ours = ours - ours.mean()
            one, other = np.linalg.norm(ours), np.linalg.norm(theirs)
            if one < 1e-9 and other < 1e-6:
                continue
            if one < 1e-9 or other < 1e-9 or ours @ theirs / (one * other) < 1 - 1e-5:
                return False
            judged = True
    return judged


def _is_number(value: Any) -> bool:
    """Whether a function scored the response: the trainers count NaN as 0 beside the others."""
    return (number := as_number(value)) is not None and not math.isnan(number)


def _total(row: Row, names: Sequence[str]) -> float:
    values = [as_number(row[name]) for name in names]
    return float(np.nansum([np.nan if value is None else value for value in values]))


def _runs(rows: Sequence[Row]) -> list[int]:
    """How many responses follow each other on the same prompt, by run."""
    return [len([*run]) for _, run in groupby(rows, key=lambda row: responses.plain_text(row["prompt"]))]


def _groups(rows: Sequence[Row], size: int, said: int) -> list[int]:
    if said and _fits(rows, said):
        return [place // said for place in range(len(rows))]
    numbers: list[int] = []
    for run in _runs(rows):
        first = numbers[-1] + 1 if numbers else 0
        numbers += [first + (place // size if size else 0) for place in range(run)]
    return numbers


def _fits(rows: Sequence[Row], size: int) -> bool:
    """Whether rows may be groups of this size, one after the other: no run of equal prompts has parts of two.

    Prompts may differ within a group: of several turns, the earlier ones are in the prompt.
    """
    begin = 0
    for run in _runs(rows):
        end = begin + run
        if begin // size != (end - 1) // size and (begin % size or end % size):
            return False
        begin = end
    return not len(rows) % size
