"""Marks of a mismatch that sits in few whole responses, among others in which sampler and trainer agree.

Responses are chosen by every second token, and judged by the others: where single tokens differ, wherever they are, the
others show nothing. They are held against responses outside at the same positions, and at tokens as likely as theirs.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import FEWEST_FRESH, differing, engine_columns
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.place import places_of, shortfall, strata
from ratioscope.analysis.linter.sample import Floats

_OF_RESPONSES = ("engine", "rank", "environment", "adapter", "prompt")
"""Dimensions of which one part has whole responses: what is its own is no matter of single requests."""
_FEWEST_RESPONSES, _FEWEST_FOUND, _MOST_FOUND = 50, 10, 0.25
"""Responses of a log; those that hold the mismatch, and the largest share of all that is few."""
_FAR = 3.0
"""Times the mismatch of the others, from which on a response is far from them."""
_AGAIN, _HELD, _SCATTERED = 0.6, 0.5, 0.8
"""Of the responses chosen by half of their tokens, the share that is far by the others, too; what they hold of the
mismatch; and the share of them that lies in steps in which most responses are not like them."""
_PARTS, _DRAWN_TO_ALL, _ROUNDS = 5, 20.0, 6
"""Parts of the positions; tokens by which a cell is drawn towards its stratum; rounds until the choice stays."""
_APART = 0.5
"""Distance of a token from which on the trainer gives it less than half."""
_FAR_BELOW, _FEWEST_GROUPS = 0.5, 10
"""Deviations of rewards by which these responses are below the others of their groups, and such groups."""


@dataclass(frozen=True)
class _Few:
    """The responses that hold the mismatch; `rows`: step, seq_id, group_id, begins (of the first token far apart)."""

    rows: pd.DataFrame
    share: float
    held: float
    times: float


def _few(evidence: LogEvidence) -> "list[_Few] | None":
    """One, or none; None: too little is known."""

    def look() -> "list[_Few] | None":
        frame = differing(evidence)
        # Where no age is known, old data are as far from the policy, and whole responses are old.
        if frame is None or not evidence.knows_age:
            return None
        frame = _set_apart(frame, evidence)
        response = frame.groupby(["step", "seq_id"], sort=False).ngroup().to_numpy().astype(np.int64)
        if len(frame) < FEWEST_FRESH or response.max() + 1 < _FEWEST_RESPONSES:
            return None
        found = [_far(frame, response, name) for name in ("position", "absolute") if frame[name].notna().all()]
        few = [each for each in found if each is not None]
        return [min(few, key=lambda each: each.times)] if len(few) == len(found) else []

    return evidence.once("responses that hold the mismatch", look)


def _set_apart(frame: pd.DataFrame, evidence: LogEvidence) -> pd.DataFrame:
    """The tokens outside of a server, rank, environment, adapter or prompts that hold it, of the usual source."""
    outside = np.ones(len(frame), dtype=bool)
    for place in places_of(evidence):
        if place.dimension in _OF_RESPONSES:
            outside &= ~place.holds(frame)
    if evidence.log.has("sequences.source"):
        source = evidence.frame("select step, seq_id, any_value(source) as source from sequence group by all")
        of = frame[["step", "seq_id"]].merge(source, on=["step", "seq_id"], how="left")["source"]
        usual = of.mode()
        outside &= ((of == usual.iloc[0]) if len(usual) else of.isna()).to_numpy()
    return frame[outside]


def _far(frame: pd.DataFrame, response: NDArray[np.int64], counted: str) -> _Few | None:
    """The few responses that are far from the others; None where there are none, or they are not few.

    Args:
        response: number of each token's response.
        counted: "position" or "absolute", the places at which responses are compared.
    """
    distance, stratum, n = shortfall(frame), strata(frame), int(response.max()) + 1
    places = frame[counted].to_numpy(dtype=float)
    edges = np.quantile(places, np.linspace(0, 1, _PARTS + 1)[1:-1])
    part = np.searchsorted(edges, places, side="right").astype(np.int64)
    half = (np.arange(len(frame)) - np.flatnonzero(np.diff(response, prepend=-1))[response]) % 2

    def sums(side: int, far: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """What each response has in one half of its tokens, and what others have at such tokens."""
        these = half == side
        should = _of_others(distance, stratum, part, these & ~far[response])[these]
        of = response[these]
        return np.bincount(of, distance[these], n).astype(float), np.bincount(of, should, n).astype(float)

    far = np.zeros(n, dtype=bool)
    for _ in range(_ROUNDS):
        has, should = sums(1, far)
        # At first from what all have on average, above which the few are and the others, as a rule, not.
        chosen = has > (_FAR if far.any() else 1.0) * should
        if (chosen == far).all():
            break
        far = chosen
    if not 0 < far.sum() <= 2 * _MOST_FOUND * n:
        return None
    has, should = sums(0, far)
    again = far & (has > _FAR * should)
    if not _FEWEST_FOUND <= again.sum() <= _MOST_FOUND * n or again.sum() < _AGAIN * far.sum():
        return None
    held = float(has[again].sum() / has.sum())
    begins = frame["position"].where(distance > _APART).groupby(response).min()
    rows = frame[["step", "seq_id", "group_id"]].groupby(response).first().assign(begins=begins, far=again)
    scattered = float((rows.groupby("step")["far"].transform("mean")[again] <= 0.5).mean())
    if held < _HELD or scattered < _SCATTERED:
        return None
    return _Few(rows[again], float(again.mean()), held, float(has[again].sum() / max(should[again].sum(), 1e-12)))


def _of_others(
    distance: Floats, stratum: NDArray[np.int64], part: NDArray[np.int64], others: NDArray[np.bool_]
) -> Floats:
    """The mean distance of others at tokens of the same stratum and part of the positions, at each token."""
    cell, n = stratum * _PARTS + part, int((stratum.max() + 1) * _PARTS)
    total, size = np.bincount(cell[others], distance[others], n), np.bincount(cell[others], minlength=n)
    by_stratum = total.reshape(-1, _PARTS).sum(axis=1), size.reshape(-1, _PARTS).sum(axis=1)
    usual = np.repeat(by_stratum[0] / np.maximum(by_stratum[1], 1), _PARTS)
    return np.asarray(((total + _DRAWN_TO_ALL * usual) / (size + _DRAWN_TO_ALL))[cell])


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def few_responses_hold_the_mismatch(evidence: LogEvidence) -> MarkReading | None:
    """A few whole responses, of no one server, rank, environment, adapter, prompt or step, hold most of the mismatch;
    times that of others at the same positions."""
    found = _few(evidence)
    if not found:
        return None if found is None else MarkReading(1.0, "")
    (few,) = found
    begins = few.rows["begins"].median()
    since = "" if np.isnan(begins) else f" from token {begins:.0f} (median) on"
    return MarkReading(
        few.times,
        f"{percent(few.share)} of the responses hold {percent(few.held)} of the mismatch{since}, {number(few.times)} × "
        "that of others there",
        steps_with(few.rows.groupby("step").size()), engine_columns(evidence), first_of(few.rows),
    )  # fmt: skip


@mark(needs=(*ENGINE_COLUMNS, ("sequences.reward",)), limit=4.0)
def these_responses_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """Where few responses hold the mismatch, they earn far less than the others of their groups, or of their steps
    where no group is logged; standard errors."""
    found = _few(evidence)
    if not found:
        return None if found is None else MarkReading(0.0, "")
    (few,) = found
    grouped = evidence.log.meets(GROUP)
    rewards = evidence.frame(
        f"select step, seq_id, {'group_id' if grouped else '0'} as group_id, reward::double as reward from sequence "
        "where isfinite(reward) and dropped is null order by step, seq_id"
    )
    rows = rewards.merge(few.rows[["step", "seq_id"]].assign(far=True), on=["step", "seq_id"], how="left")
    rows = rows.assign(far=rows["far"].notna())
    means = rows.groupby(["step", "group_id", "far"])["reward"].mean().unstack("far").dropna()
    if len(means) < _FEWEST_GROUPS or len(means.columns) < 2:
        return None
    less, unit = means[False] - means[True], "groups" if grouped else "steps"
    error = float(less.std()) / len(less) ** 0.5
    low = float(less.mean()) > _FAR_BELOW * float(rows["reward"].std())
    return MarkReading(
        float(less.mean()) / max(error, 1e-12) if low else 0.0,
        f"they earn {number(float(means[True].mean()), digits=2)}, others of their {unit} "
        f"{number(float(means[False].mean()), digits=2)}",
        (), ("reward",),
    )  # fmt: skip
