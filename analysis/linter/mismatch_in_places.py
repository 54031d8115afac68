"""Marks of what a mismatch is like within its place: drawn at another temperature, truncated, or begun at a turn."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import ENGINE_COLUMNS, STATES
from ratioscope.analysis.linter.differing import AT_ONCE, differing, engine_columns, levels
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.place import Place, places_of, shortfall
from ratioscope.analysis.linter.signatures import (
    LARGEST_SHARE_ABOVE,
    LEAST_R2,
    STANDARD_ERRORS,
    StraightLine,
    line_of,
)
from ratioscope.analysis.summary.intervals import cluster_variance

_SET_APART = ("engine", "rank", "environment", "adapter", "prompt", "turn", "segment")
"""Dimensions of which one part may be sampled with settings of its own."""
_LESS_STEEP = 0.5
"""Of the slope in the place: more than what there is elsewhere, so that the line is the place's own."""
_MOVED = 1e-3
"""Nats, from which on a log-ratio differs from 0."""
_FEWEST_GROUPS = 8
"""Prompt groups on either side, of which a mean ratio is said."""
_FEWEST_OF_A_TURN, _FEWEST_ALIKE = 300, 200
"""Tokens of a turn, and of either side at the same positions, of which a level is said."""


@dataclass(frozen=True)
class _Parts:
    """The tokens of a place and the others, of the same weights."""

    place: Place
    inside: pd.DataFrame
    outside: pd.DataFrame


def _parts(evidence: LogEvidence) -> _Parts | None:
    """The first place that may have settings of its own; None where there is none."""

    def look() -> _Parts | None:
        frame = differing(evidence) if evidence.knows_age else None
        place = next((each for each in places_of(evidence) if each.dimension in _SET_APART), None)
        if frame is None or place is None:
            return None
        inside = place.holds(frame)
        return _Parts(place, frame[inside], frame[~inside])

    return evidence.once("parts of the place", look)


@mark(needs=(*ENGINE_COLUMNS, *STATES), limit=LEAST_R2)
def temperature_of_the_place(evidence: LogEvidence) -> MarkReading | None:
    """Where one part holds the mismatch, log-ratios are a straight line in the log-probability there, and are not
    elsewhere; R²."""
    parts = _parts(evidence)
    line, other = (_line(parts.inside), _line(parts.outside)) if parts else (None, None)
    if parts is None or line is None:
        return None
    own = other is None or abs(other.slope) < _LESS_STEEP * abs(line.slope)
    if not (line.clear and line.in_use and own):
        return MarkReading(0.0, "")
    elsewhere = "" if other is None else f", elsewhere its slope is {other.slope:.3f}"
    return MarkReading(
        line.r2,
        f"in {parts.place.words} the sampler drew at {number(line.temperature)} × the trainer's temperature: there "
        f"log-ratios follow the log-probability (slope {line.slope:.3f}, R² {line.r2:.2f}){elsewhere}",
        evidence.all_steps,
        engine_columns(evidence),
        place=parts.place.words,
    )


def _line(frame: pd.DataFrame) -> StraightLine | None:
    """The line of some tokens, inside states that several responses share: one group, version and tokens so far."""
    response = frame.groupby(["step", "seq_id"], sort=False)
    whole = response.cumcount() == frame["position"]
    frame = frame[whole & frame["token_id"].notna()]
    if frame.empty:
        return None
    token = pd.util.hash_array(frame["token_id"].to_numpy(dtype=np.int64) * 1_000_003 + frame["position"].to_numpy())
    so_far = pd.Series(token, index=frame.index).groupby([frame["step"], frame["seq_id"]]).cumsum() - token
    values = pd.DataFrame(
        {
            "step": frame["step"],
            "group_id": frame["group_id"],
            "x": frame["logp_behavior"].astype(float) + frame["fresh"] / 2,
            "y": frame["fresh"],
        }
    )
    state = [frame["step"], frame["group_id"], frame["version_lag"].fillna(0), frame["position"], so_far]
    within = values.groupby(state, sort=False)
    shared = within["x"].transform("size") > 1
    values[["x", "y"]] -= within[["x", "y"]].transform("mean")
    values = values[shared]
    squares = pd.DataFrame({"xx": values["x"] ** 2, "xy": values["x"] * values["y"], "yy": values["y"] ** 2})
    return line_of(squares.groupby([values["step"], values["group_id"]]).sum())


@mark(needs=ENGINE_COLUMNS, limit=1.0)
def truncation_of_the_place(evidence: LogEvidence) -> MarkReading | None:
    """Where one part holds the mismatch, nearly no ratio is above 1 there and probability is missing, and elsewhere
    not; missing probability over what is seen as missing."""
    parts = _parts(evidence)
    if parts is None:
        return None
    inside, outside = _mass(parts.inside), _mass(parts.outside)
    if inside is None or outside is None:
        return None
    least = [max(evidence.limits.mean_ratio_trifle, STANDARD_ERRORS * each.error) for each in (inside, outside)]
    cut = inside.above <= LARGEST_SHARE_ABOVE < outside.above and outside.missing < least[1]
    return MarkReading(
        inside.missing / least[0] if cut else 0.0,
        f"in {parts.place.words} the mean ratio is {number(1 - inside.missing)} and {percent(1 - inside.above)} of "
        f"the log-ratios that differ from 0 are negative, elsewhere {number(1 - outside.missing)} and "
        f"{percent(1 - outside.above)}",
        evidence.all_steps,
        engine_columns(evidence),
        place=parts.place.words,
    )


@dataclass(frozen=True)
class _Mass:
    missing: float
    """1 less the mean ratio."""
    error: float
    above: float
    """Of the log-ratios that differ from 0 the share that is above."""


def _mass(frame: pd.DataFrame) -> _Mass | None:
    groups = pd.DataFrame({"rho": np.exp(frame["fresh"]), "n": 1.0}).groupby([frame["step"], frame["group_id"]]).sum()
    moved = frame["fresh"][frame["fresh"].abs() > _MOVED]
    if len(groups) < _FEWEST_GROUPS or moved.empty:
        return None
    rho, n = groups["rho"].to_numpy(float), groups["n"].to_numpy(float)
    return _Mass(1 - float(rho.sum() / n.sum()), sqrt(cluster_variance(rho, n)), float((moved > 0).mean()))


@mark(needs=(*ENGINE_COLUMNS, ("turn",)), limit=3.0)
def mismatch_from_a_turn_on(evidence: LogEvidence) -> MarkReading | None:
    """From one turn on every turn has many times the mismatch of those before it, at once, and stays as it began."""
    frame = differing(evidence)
    if frame is None:
        return None
    frame = frame[frame["turn"].notna()]
    turn = frame["turn"].astype(int)
    size = turn.value_counts()
    enough = turn.isin(size.index[size >= _FEWEST_OF_A_TURN])
    frame, turn = frame[enough], turn[enough]
    level = levels(frame, turn)
    if len(level) < 2:
        return None
    times, at = max(_rises(frame, turn, level), default=(1.0, 0))
    if not at:
        return MarkReading(1.0, "")
    first, last = level.index[at], level.index[-1]
    named = f"turn {first}" if first == last else f"turns {first} to {last}"
    distance = shortfall(frame)
    held = float(distance[(turn >= first).to_numpy()].sum() / distance.sum())
    return MarkReading(
        times,
        f"{percent(held)} of the mismatch is in {named}, each with at least {number(times)} × the mismatch of any turn "
        "before (turns counted from 0)",
        evidence.all_steps,
        engine_columns(evidence),
        place=named,
    )


def _rises(frame: pd.DataFrame, turn: "pd.Series[int]", level: "pd.Series[float]") -> Iterator[tuple[float, int]]:
    """By how much the turns from each on are above those before, where they are so at once and not by position."""
    values = level.to_numpy()
    for at in range(1, len(values)):
        before, behind = max(values[:at].max(), 1e-3), values[at:]
        if behind[0] > AT_ONCE * np.median(behind):
            edge = _edge(frame, turn, int(level.index[at - 1]), int(level.index[at]))
            yield min(float(behind.min() / before), edge, _at_one_position(frame, turn, int(level.index[at]))), at


def _edge(frame: pd.DataFrame, turn: "pd.Series[int]", last: int, first: int) -> float:
    """The mismatch of the earlier half of a turn over that of the later half of the one before."""
    of = frame["position"].groupby([frame["step"], frame["seq_id"], turn])
    middle = (of.transform("min") + of.transform("max")) / 2
    near = ((turn == last) & (frame["position"] > middle)) | ((turn == first) & (frame["position"] <= middle))
    level = levels(frame[near], turn[near])
    return float(level.loc[first] / max(level.loc[last], 1e-3)) if {first, last} <= {*level.index} else 1.0


def _at_one_position(frame: pd.DataFrame, turn: "pd.Series[int]", first: int) -> float:
    """The mismatch from a turn on over that before it, of positions that both have; infinite where none has both."""
    behind = turn >= first
    share = behind.groupby(frame["position"]).transform("mean")
    both = (share > 0) & (share < 1)
    if both.sum() < 2 * _FEWEST_ALIKE or min((both & behind).sum(), (both & ~behind).sum()) < _FEWEST_ALIKE:
        return float("inf")
    level = levels(frame[both], behind[both])
    return float(level.loc[True] / max(level.loc[False], 1e-3)) if len(level) == 2 else float("inf")
