"""Columns that are equal where the policies differ, and which of the two is the copy.

The copy is the one that does not fit the others: the sampler's record is one engine away from its recomputation at any
age, the recomputation is the current policy on fresh data, and the new policy is one update away from the current one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.distances import FLOOR, Distances, distances_of
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.sample import COLUMNS
from ratioscope.analysis.linter.versions import versions

# Equal in more than this share of the rows that could differ: one is a copy of the other.
COPIED_SHARE = 0.99
FEWEST_ROWS = 20
# Two float32 passes over the same weights.
EQUAL = 1e-5
# Beyond these factors a distance is not what it is on fresh data.
_ENGINE_GROWS, _UPDATE_GROWS = 3.0, 1.8
_B, _T, _C, _N, _F = COLUMNS
_CERTAIN = -1e-3
_FEW_STEPS = 3
_NOTHING_MOVED = 0.9995
# First tokens of prompts, one and the same in several steps.
_FEWEST_REPEATS = 20
# Old and fresh tokens, whose distance from the sampler is compared by the median, and how much farther the old ones
# must be where the policy moves.
_FEWEST_AGED, _GROWN = 100, 1.25
# Share of the steps that have a gradient and a learning rate: a few skipped updates leave a policy moving.
_MOST_UPDATED = 0.5
# Beyond so many nats rounding makes copies of columns that are not.
_LARGEST_ROUNDING = 1e-3

_WORDS = {
    (_B, _C): "in tokens that were sampled by older versions",
    (_T, _C): "in tokens that were sampled by older versions",
    (_C, _N): "before and after an update",
    (_C, _F): "in the second half of the steps",
    (_B, _T): "although the manifest states another engine or temperature for the sampler",
}
_DO = {
    _B: "Log what the sampler returned with the tokens; the trainer's own recomputation belongs in logp_current (for "
    "the old weights, in logp_behavior_train).",
    _T: "Recompute it with the weights that sampled, or leave it out.",
    _C: "Compute logp_current by a forward pass before the first gradient step of the update.",
    _N: "Compute logp_new by a forward pass after the optimiser's last step of the update.",
    _F: "Compute logp_reference with the frozen reference, or leave it out.",
}


@check(order=180, needs=ANY, page="drift", compares=True)
def copied_columns(evidence: LogEvidence) -> list[Finding]:
    """Columns that are equal where the policies differ, and which of them does not fit the others."""
    if evidence.rounding > _LARGEST_ROUNDING:
        return not_checked(f"{_rounded(evidence)}: columns that seem equal may differ in what was rounded away.")
    if len(evidence.steps) and any((evidence.steps[key] == 0).all() for key in ("grad_norm", "learning_rate")):
        return not_checked("No update had a gradient and a learning rate: the policies may well be the same.")
    if policy_stands_still(evidence).present:
        return not_checked("No update moves the policy: equal columns need not be copies.")
    if not evidence.rounding and (still := _still(evidence)):
        return [still]
    remarks, measured = [], []
    if same := _of_unknown_age(evidence):
        remarks.append(same)
    for one, other, rows in _pairs(evidence):
        x, y = evidence.sample.column(one), evidence.sample.column(other)
        known = rows & np.isfinite(x) & np.isfinite(y) & ((x < _CERTAIN) | (y < _CERTAIN))
        if known.sum() < FEWEST_ROWS:
            continue
        share = float((np.abs(x - y) <= EQUAL)[known].mean())
        measured.append(f"{one} equals {other} in {percent(share)} of {int(known.sum()):,} tokens")
        # A first update of a warm-up moves few tokens beyond rounding; a copy moves none.
        if share > (_NOTHING_MOVED if (one, other) == (_C, _N) else COPIED_SHARE):
            remarks.append(_copied(evidence, one, other, share, int(known.sum())))
    if not measured and not remarks:
        return not_checked(
            f"Fewer than {FEWEST_ROWS} tokens are older than their update, and as few could have moved with it."
        )
    return remarks or passed(f"No copies: {'; '.join(measured)}.")


def _pairs(evidence: LogEvidence) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Columns that must differ, and the rows in which they must."""
    sample = evidence.sample
    usable = sample.rows["invalid"].isna().to_numpy()
    old, step = usable & (sample.column("version_lag") > 0) & moved_since(evidence), sample.column("step")
    if not evidence.problems(versions):
        yield _B, _C, old
        yield _T, _C, old
    if evidence.rounding:  # what an update or an engine changes may be rounded away
        return
    if evidence.gradients[0] == 0 or evidence.gradients[1] < evidence.gradients[0]:  # else no update moves the policy
        yield _C, _N, usable
    sampler = evidence.run.manifest.sampler
    if sampler.get("dtype", "same") != "same" or sampler.get("temperature", 1.0) != 1.0:
        yield _B, _T, usable
    update = np.abs(sample.column(_N) - sample.column(_C))
    early = update[np.isfinite(update) & (step <= np.median(step))] if len(sample) else update
    if len(sample) and not (len(early) and (early > EQUAL).mean() < 1 - COPIED_SHARE):
        yield _C, _F, usable & (step > np.median(step)) & (sample.column("position") >= 0)


def _rounded(evidence: LogEvidence) -> str:
    return f"The source keeps {evidence.log.decimals} decimals of a log-probability"


def _of_unknown_age(evidence: LogEvidence) -> Finding | None:
    """Where no version is logged: sampler and current policy equal to the last digit in nearly every token, which two
    programs never are, whatever the age."""
    if evidence.log.has_versions or evidence.rounding:
        return None
    sample = evidence.sample
    x, y = sample.column(_B), sample.column(_C)
    known = np.isfinite(x) & np.isfinite(y) & (x < _CERTAIN)
    share = float((x == y)[known].mean()) if known.sum() >= FEWEST_ROWS else 0.0
    if share <= COPIED_SHARE:
        return None
    return Finding(
        f"{_B} equals {_C} to the last digit in {percent(share)} of {int(known.sum()):,} tokens. One value was written "
        "as both, or one engine sampled and trained on the same weights. The age of the data, which would tell, is not "
        "logged.",
        Severity.WARNING,
        "Log what the sampler returned and the trainer's own recomputation; leave out what was not computed.",
        (estimated("share of equal tokens", share),),
        evidence.all_steps,
        (_B, _C),
        evidence.rows_where(f"{_B} = {_C} and uncertain"),
    )


def moved_since(evidence: LogEvidence) -> NDArray[np.bool_]:
    """Whether an update since a row's version moved the policy, as far as logp_new or the learning rate say: at the
    start of a warm-up none does."""
    sample, steps = evidence.sample, evidence.steps
    apart = np.abs(sample.column(_N) - sample.column(_C))
    still = {int(step) for step in steps["step"][steps["learning_rate"] == 0]} - {*sample.rows["step"][apart > EQUAL]}
    still |= {*sample.rows["step"][np.isfinite(apart)]} - {*sample.rows["step"][apart > EQUAL]}
    versions = steps["policy_version"].to_numpy(dtype=float)
    moving = np.sort(versions[~steps["step"].isin(still).to_numpy()])
    low = sample.column("behavior_version")
    high = low + sample.column("version_lag")
    known = low >= np.min(versions, initial=np.inf)
    return ~known | (np.searchsorted(moving, high) > np.searchsorted(moving, low))


class _Unmoved(NamedTuple):
    """Columns in which nothing moves, neither within an update nor over the versions since a token was sampled."""

    n: int
    of: str
    """The column of older weights that logp_current equals."""
    age: float
    """Updates, the largest."""
    sampler_moves: bool | None
    """Whether the sampler's values are farther away on older tokens: then the policy moves, and columns are copies."""


def _unmoved(evidence: LogEvidence) -> _Unmoved | None:
    sample = evidence.sample
    usable = sample.rows["invalid"].isna().to_numpy() & (sample.column(_C) < _CERTAIN)
    old = usable & (sample.column("version_lag") > 0)
    update = np.abs(sample.column(_N) - sample.column(_C))[usable]
    sampled, computed = (np.abs(sample.column(name) - sample.column(_C)) for name in (_B, _T))
    # The trainer's own values are free of what the engines differ by.
    of, apart = (_T, computed) if np.isfinite(computed[old]).sum() >= FEWEST_ROWS else (_B, sampled)
    update, age = update[np.isfinite(update)], apart[old & np.isfinite(apart)]
    signal = (np.nan_to_num(sample.column("advantage"))[usable] != 0).any()
    several = len(evidence.all_steps) > _FEW_STEPS
    if not (several and signal and min(len(update), len(age)) >= FEWEST_ROWS):
        return None
    if max((update > EQUAL).mean(), (age > EQUAL).mean()) > 1 - COPIED_SHARE:
        return None
    grows = _grows(sampled, old, usable & (sample.column("version_lag") == 0)) if of == _T else None
    return _Unmoved(len(update), of, float(np.nanmax(sample.column("version_lag"))), grows)


def _still(evidence: LogEvidence) -> Finding | None:
    """A policy that never moves, or columns that are all copies of one: nothing tells which."""
    found = _unmoved(evidence)
    if found is None or found.sampler_moves:
        return None
    return Finding(
        f"The policy does not move: logp_new equals logp_current, and logp_current equals {found.of} on tokens that "
        f"are up to {found.age:.0f} versions old. Updates change nothing, or the columns are copies of one.",
        Severity.CRITICAL,
        ("" if evidence.steps["learning_rate"].notna().any() else "Log the learning rate. ")
        + "Look whether the optimiser steps on the weights that the log-probabilities are of.",
        (estimated("tokens", found.n),),
        evidence.all_steps,
        (_N, _C),
    )


@mark(needs=((_C,), ("advantage",)), limit=COPIED_SHARE)
def policy_stands_still(evidence: LogEvidence) -> MarkReading | None:
    """Log-probabilities of the same tokens are the same under all versions, although gradients and learning rate are
    not 0.

    Copies would be equal, too: so the sampler's values must stand still, or be as near to the trainer's at any age.
    """
    stopped = 0 < evidence.gradients[0] == evidence.gradients[1]
    if evidence.rounding or stopped or not _updated(evidence):
        return None
    found = _unmoved(evidence)
    if found is not None and found.sampler_moves is False:
        return MarkReading(
            1.0, f"logp_current equals {found.of} and logp_new, on tokens up to {found.age:.0f} versions old",
            evidence.all_steps, (_C, _N), evidence.rows_where("invalid is null and uncertain and version_lag > 0"),
        )  # fmt: skip
    ranges = {name: _first_tokens(evidence, name) for name in (_C, _B, _N)}
    if len(ranges[_C]) < _FEWEST_REPEATS or not (np.nan_to_num(evidence.sample.column("advantage")) != 0).any():
        return None
    # Of a column of another model that stands still the others tell: the sampler, or the new policy, moves.
    still = {name: float((each <= EQUAL).mean()) for name, each in ranges.items() if len(each) >= _FEWEST_REPEATS}
    if _leaves(evidence) is False:  # its values differ by its noise alone
        still.pop(_B, None)
    return MarkReading(
        min(still.values()), f"logp_current of {len(ranges[_C]):,} first tokens of prompts is the same in all steps",
        evidence.all_steps, (_C,), evidence.rows_where("invalid is null and position = 0"),
    )  # fmt: skip


def _leaves(evidence: LogEvidence) -> bool | None:
    """Whether the sampler's values go away from the trainer's over the steps; None where too few say."""
    sample = evidence.sample
    usable, step = sample.rows["invalid"].isna().to_numpy(), sample.column("step")
    late = step > np.median(step) if len(step) else step > 0
    return _grows(np.abs(sample.column(_B) - sample.column(_C)), usable & late, usable & ~late)


def _grows(apart: NDArray[np.float64], old: NDArray[np.bool_], fresh: NDArray[np.bool_]) -> bool | None:
    """Whether values are farther away on older, or later, tokens than on fresh ones; None where too few say."""
    aged, new = (apart[rows & np.isfinite(apart)] for rows in (old, fresh))
    if min(len(aged), len(new)) < _FEWEST_AGED:
        return None
    return bool(np.median(aged) > _GROWN * np.median(new) + EQUAL)


def _updated(evidence: LogEvidence) -> bool:
    """Whether most steps have a gradient and a learning rate."""
    steps = evidence.steps[["grad_norm", "learning_rate"]].astype(float)
    return bool(((steps > 0) & np.isfinite(steps)).all(axis=1).mean() > _MOST_UPDATED)


def _first_tokens(evidence: LogEvidence, column: str) -> NDArray[np.float64]:
    """Ranges of a column over the steps, nats: of a prompt's first token that came in several, far apart."""
    needed = ("sequences.prompt_id", "token_id", column)
    if not all(evidence.log.has(name) for name in needed) or len(evidence.all_steps) <= _FEW_STEPS:
        return np.empty(0)

    def look() -> NDArray[np.float64]:
        found = evidence.frame(
            f"""
            select max({column}) - min({column}) as range
            from examined join (select distinct on (step, seq_id) step, seq_id, prompt_id from sequence)
                using (step, seq_id)
            where position = 0 and invalid is null and isfinite({column}) and prompt_id is not null
            group by prompt_id, token_id
            having min({column}) < {_CERTAIN}
                and max(step) - min(step) >= {(evidence.all_steps[-1] - evidence.all_steps[0]) / 2}
            """
        )
        return found["range"].to_numpy(dtype=float)

    ranges: NDArray[np.float64] = evidence.once(f"first tokens of {column}", look)
    return ranges


def _may_stand_still(evidence: LogEvidence) -> bool:
    """Whether nothing tells a copied logp_new from a policy that no update moves."""
    again = _first_tokens(evidence, _C)
    if len(again) >= _FEWEST_REPEATS and np.median(again) > EQUAL:
        return False
    old = evidence.sample.column("version_lag") > 0
    distances = (np.abs(evidence.sample.column(name) - evidence.sample.column(_C)) for name in (_T, _B))
    return not any(_grows(apart, old, ~old) for apart in distances)


def _copied(evidence: LogEvidence, one: str, other: str, share: float, n: int) -> Finding:
    found = distances_of(evidence)
    fits = {column: _fits(found, column) for column in (one, other)}
    blamed = [column for column in (one, other) if fits[column] is False]
    if len(blamed) != 1:
        blamed = [column for column in (one, other) if fits[column] is None and sum(map(bool, fits.values())) == 1]
    if (one, other) == (_C, _F) or ((one, other) == (_B, _T) and len(blamed) != 1):
        blamed = [_F] if other == _F else [_B]
    columns = tuple(blamed) if len(blamed) == 1 else (one, other)
    said = f"{columns[0]} is a copy" if len(columns) == 1 else "cannot tell which of the two is the copy"
    if (one, other) == (_B, _C):
        said += ", or behavior_version is wrong"
        columns = (*columns, "behavior_version")
    if (one, other) == (_C, _N) and _may_stand_still(evidence):
        said += ", or no update moves the policy"
    return Finding(
        f"{one} equals {other} in {percent(share)} of {n:,} tokens {_WORDS[one, other]}: {said}.",
        Severity.WARNING if columns == (_F,) else Severity.CRITICAL,
        _DO[columns[0]],
        (estimated("share of equal tokens", share),),
        evidence.all_steps,
        columns,
        evidence.rows_where(
            f"invalid is null and uncertain and abs({one} - {other}) <= {EQUAL} and (version_lag > 0 or "
            f"'{other}' <> '{_C}')"
        ),
    )


def _fits(found: Distances, column: str) -> bool | None:
    """Whether a column is where it should be from the others; None where the others do not say."""
    fresh, old = found.fresh, found.old
    if column == _B:
        return _within(old.get((_B, _T)), fresh.get((_B, _T)), _ENGINE_GROWS)
    if column == _T:
        near = _small(fresh.get((_T, _C)))
        return near if near is False else _within(old.get((_B, _T)), fresh.get((_B, _T)), _ENGINE_GROWS)
    if column == _C:
        near = _small(fresh.get((_T, _C), fresh.get((_B, _C))))
        return near if near is False else _within(old.get((_C, _N)), fresh.get((_C, _N)), _UPDATE_GROWS)
    if column == _N:
        moved = fresh.get((_T, _N))
        moved = fresh.get((_B, _N)) if moved is None or not np.isfinite(moved) else moved
        if moved is not None and np.isfinite(moved) and moved < FLOOR:
            return False
        return _within(old.get((_C, _N)), fresh.get((_C, _N)), _UPDATE_GROWS)
    return None


def _small(value: float | None) -> bool | None:
    return None if value is None or not np.isfinite(value) else value < 10 * FLOOR


def _within(old: float | None, fresh: float | None, factor: float) -> bool | None:
    if old is None or fresh is None or not (np.isfinite(old) and np.isfinite(fresh)):
        return None
    return old <= factor * max(fresh, FLOOR)
