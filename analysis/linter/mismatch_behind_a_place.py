"""Marks of a mismatch that begins behind a number of tokens, as where one engine leaves a window of the context out.

Before that place there is nearly nothing, and behind it at once most of what follows: what grows with the position has
a little of it from the first token on, and most of it at the end. Only responses that pass the place are looked at.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import FEWEST_FRESH, differing, engine_columns
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.place import expected, shortfall, strata
from ratioscope.analysis.linter.sample import Floats

_RISES = 1.5
"""Times the mismatch of the first fifth of the positions in another one: where all have about the same, none begins."""
_PARTS, _CANDIDATES = 5, 60
_NEAREST, _FEWEST_OF_A_PART = 4, 50
"""Tokens on either side of a place that a response must have, and tokens of each part of either half of the groups."""
_FLOOR = 0.02
"""Of what the probability of tokens explains: less is as good as nothing."""
_FLAT, _AT_ONCE = 2.0, 0.4
"""Times the first half of the tokens before the place that the second half may have; and share of what follows that the
first quarter behind it has. A straight line from the first token on has 3 and at most 0.3."""
_FLAT_IF_STATED, _AT_ONCE_IF_STATED = 1.3, 0.15
"""The same of a place that the manifest names: nobody looked for it, so that it may rise in a straight line."""
_NAMED = re.compile(r"window|context|position_embeddings|chunk|block|page_size")
"""Settings of a number of tokens at which an engine begins to compute otherwise."""
_NEAR = 0.1
_DEEPEST = 4


class _Begins(NamedTuple):
    """Where the mismatch begins: at a number of tokens, of the response or with the prompt."""

    times: float
    at: int
    with_prompt: bool
    setting: str = ""
    """Of the manifest, with its value; empty: it has none of that size."""


def _begins(evidence: LogEvidence) -> _Begins | None:
    """None: too little is known."""

    def look() -> _Begins | None:
        frame = differing(evidence)
        if frame is None:
            return None
        stated = {value: name for name, value in _settings(evidence)}
        found = [_best(frame, name, stated) for name in _counted(frame)]
        best = max((each for each in found if each is not None), key=lambda each: each.times, default=None)
        if best is None or best.setting:
            return best
        near = [value for value in stated if abs(value - best.at) <= max(_NEAREST, _NEAR * value)]
        return best._replace(setting=f"{stated[near[0]]} is {near[0]}") if near else best

    return evidence.once("where the mismatch begins", look)


def _settings(evidence: LogEvidence) -> Iterator[tuple[str, int]]:
    """Numbers of tokens that the manifest names, by the last part of their names."""

    def inside(settings: Mapping[str, Any], depth: int) -> Iterator[tuple[str, int]]:
        for name, value in settings.items():
            if isinstance(value, Mapping) and depth < _DEEPEST:
                yield from inside(value, depth + 1)
            elif isinstance(value, int) and not isinstance(value, bool) and value > 0 and _NAMED.search(str(name)):
                yield str(name), value

    manifest = evidence.run.manifest
    for part in (manifest.model, manifest.sampler, manifest.algorithm, manifest.schedule, manifest.task):
        yield from inside(part, 0)


def _counted(frame: pd.DataFrame) -> tuple[str, ...]:
    """How positions may count: in the response, or with the prompt, as far as it is known."""
    prompt = (frame["absolute"] - frame["position"]).dropna()
    if len(prompt) == len(frame) and prompt.nunique() == 1:  # either way the same
        return ("absolute",)
    return ("position", "absolute") if len(prompt) >= FEWEST_FRESH else ("position",)


def _best(frame: pd.DataFrame, name: str, stated: Mapping[int, str]) -> _Begins | None:
    """The place behind which the mismatch is most times that before it; None: too few tokens.

    Args:
        name: "position", or "absolute" with the prompt.
        stated: names of settings by their number of tokens.
    """
    frame = frame[frame[name].notna()]
    counted, distance = frame[name].to_numpy(dtype=np.int64), shortfall(frame)
    should = expected(distance, strata(frame))
    edges = np.quantile(counted, np.linspace(0, 1, _PARTS + 1))
    part = np.searchsorted(edges[1:-1], counted, side="right")
    level = np.bincount(part, distance, _PARTS) / np.maximum(np.bincount(part, should, _PARTS), 1e-12)
    if not level.max() > _RISES * level[0]:
        return _Begins(1.0, 0, name == "absolute")
    response = frame.groupby(["step", "seq_id"], sort=False).ngroup().to_numpy()
    half = frame.groupby(["step", "group_id"], sort=False, dropna=False).ngroup().to_numpy() % 2
    of_response = pd.Series(counted).groupby(response)
    extent = of_response.min().to_numpy()[response], of_response.max().to_numpy()[response]
    low, high = (int(np.quantile(counted, edge)) for edge in (0.02, 0.98))

    def times(at: int, flat: float, at_once: float) -> float:
        """By how much the mismatch behind is above that before, in either half of the prompt groups; 0: not at once."""
        passing = (extent[0] <= at - _NEAREST) & (extent[1] >= at + _NEAREST)
        quarter = max((high - at) // 4, _NEAREST)
        of = np.searchsorted([(at + low) // 2, at, at + quarter, (at + high) // 2], counted, side="right")
        sides = [_above(of, distance, should, passing & (half == side), flat, at_once) for side in (0, 1)]
        return min(sides)

    best = _Begins(1.0, 0, name == "absolute")
    for at in range(low + _NEAREST, high - 2 * _NEAREST, max(1, (high - low) // _CANDIDATES)):
        if (found := times(at, _FLAT, _AT_ONCE)) > best.times:
            best = _Begins(found, at, name == "absolute")
    for at in sorted(stated):
        # A place that one looks for is found somewhat behind where it begins.
        found = times(at, _FLAT_IF_STATED, _AT_ONCE_IF_STATED) if low < at < high - 2 * _NEAREST else 0.0
        if found > max(1.0, best.times / 2):
            return _Begins(max(found, best.times), at, name == "absolute", f"{stated[at]} is {at}")
    return best


def _above(
    part: NDArray[np.int64], distance: Floats, should: Floats, which: NDArray[np.bool_], flat: float, at_once: float
) -> float:
    """The least mismatch of the three parts behind a place over that of the two before it."""
    if (np.bincount(part[which], minlength=5) < _FEWEST_OF_A_PART).any():
        return 0.0
    held, fair = (np.bincount(part[which], each[which], 5) for each in (distance, should))
    if not (fair > 0).all():
        return 0.0
    level = np.maximum(held / fair, _FLOOR)
    later = held[3:].sum() / fair[3:].sum()
    if level[1] > flat * level[0] or level[2] < at_once * later:
        return 0.0
    return float(level[2:].min() / max(level[:2].max(), held[:2].sum() / fair[:2].sum()))


@mark(needs=ENGINE_COLUMNS, limit=4.0)
def mismatch_begins_at_a_place(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch begins at once behind a number of tokens, with or without the prompt, and there is little before."""
    found = _begins(evidence)
    if found is None:
        return None
    counted = "prompt and response" if found.with_prompt else "the response"
    return MarkReading(
        found.times,
        f"behind token {found.at} of {counted} the mismatch is {number(found.times)} × that before it",
        evidence.all_steps, engine_columns(evidence), place=f"tokens behind {found.at} of {counted}",
    )  # fmt: skip


@mark(needs=ENGINE_COLUMNS, limit=0.5)
def manifest_has_that_place(evidence: LogEvidence) -> MarkReading | None:
    """The manifest has a window, a context or a block of that number of tokens."""
    found = _begins(evidence)
    if found is None:
        return None
    if not found.setting or found.times <= mismatch_begins_at_a_place.limit:
        return MarkReading(0.0, "")
    return MarkReading(1.0, f"the manifest's {found.setting}")
