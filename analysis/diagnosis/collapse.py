"""A fall of the reward from its best level, and which metrics changed before it did, as far as that shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratioscope.analysis.diagnosis.change_points import Shift, find_shift, significant
from ratioscope.analysis.diagnosis.evidence import Evidence, steps_of
from ratioscope.analysis.findings.facts import STALENESS, UPDATE
from ratioscope.analysis.findings.fall import Fall, fall_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.catalogue import CATALOGUE

# What can go wrong before the reward does, and in which direction: +1 up, -1 down, 0 both.
CANDIDATES = {
    UPDATE: 1, STALENESS: 1, "khat_token": 1, "ess_token": -1, "clip_fraction": 1, "grad_norm": 1,
    "kl_to_initial": 1, "entropy": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Moved:
    """Which metrics have a sustained change up to a fall, each by its key; with what order is known."""

    looked_at: tuple[str, ...]
    """Those with enough values to be judged."""
    before: dict[str, Shift]
    """Changed before the fall can have begun; the first ones first."""
    meanwhile: dict[str, Shift]
    """Changed at about the same time: the date's interval reaches into that of the fall."""

    @property
    def first(self) -> dict[str, Shift]:
        """Those of `before` of which none can be said to have changed later than another one."""
        earliest = min((shift.last for shift in self.before.values()), default=0)
        return {key: shift for key, shift in self.before.items() if shift.first <= earliest}


def reward_has_collapsed(evidence: Evidence) -> Finding | None:
    """The level has fallen from its best by the share that is set, and stayed there."""
    share, fall = evidence.limits.reward_fall, fall_of(evidence.summary, evidence.limits)
    if fall is None:
        return None
    moved = moved_before(evidence, fall)
    title = CATALOGUE[fall.metric].title
    return Finding(
        rule="reward_collapse",
        severity=Severity.CRITICAL if fall.after < fall.best - 2 * share * abs(fall.best) else Severity.WARNING,
        sentence=f"{fall.words}. {_order(moved)}",
        metric=fall.metric,
        steps=steps_of(fall.low),
        numbers=(
            Number(f"{title}, best", fall.best),
            Number(f"{title}, median since the fall", fall.after),
            evidence.latest(fall.metric),
        ),
        why=_story(moved, fall),
        do=_advice(moved),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.limit,
    )


def moved_before(evidence: Evidence, fall: Fall) -> Moved:
    """The sustained changes of the candidates in the steps up to where the fall was found.

    The version lag is allowed for: what rises and falls with the syncs has not changed.
    """
    values = evidence.values[evidence.values.index <= fall.found]
    lag = values["version_lag"]
    shifts = {
        key: shift
        for key, direction in CANDIDATES.items()
        if (shift := find_shift(values[key], direction, lag)) is not None
    }
    kept = sorted(significant(shifts).items(), key=lambda found: (found[1].last, found[1].first))
    before = {key: shift for key, shift in kept if shift.last <= fall.still_good}
    meanwhile = {key: shift for key, shift in kept if key not in before}
    return Moved(tuple(shifts), before, meanwhile)


def _named(keys: Sequence[str]) -> str:
    labels = [CATALOGUE[key].label for key in keys]
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def _dated(key: str, shift: Shift) -> str:
    """What a metric did, and when."""
    steps = f"in step {shift.first}" if shift.first == shift.last else f"between steps {shift.first} and {shift.last}"
    verb = "rose" if shift.after > shift.before else "fell"
    return f"{CATALOGUE[key].label} {verb} from {number(shift.before)} to {number(shift.after)} {steps}"


def _order(moved: Moved) -> str:
    """What changed first, as far as it can be known."""
    if moved.before:
        first = list(moved.first)
        if len(first) > 1:
            return f"{_named(first)} changed before it, at about the same time: their order is unknown."
        return f"{_dated(first[0], moved.before[first[0]])}, before it."
    if moved.meanwhile:
        return f"{_named(list(moved.meanwhile))} changed at about the same time; which came first is unknown."
    if moved.looked_at:
        return "No other metric shows a sustained change before it."
    return "It came too early to tell whether another metric changed before it."


def _story(moved: Moved, fall: Fall) -> str:
    if not moved.looked_at:
        return "Too few steps come before the fall to tell a change of any other metric from its noise."
    told = [_dated(key, shift) for key, shift in (moved.before | moved.meanwhile).items()]
    of = f"of {len(moved.looked_at)} metrics that were looked at"
    if not told:
        return f"None {of} has a sustained change up to the fall that its noise and trend do not explain."
    text = f"{'; '.join(told)} (medians before and after; the chance of any such change in error is below 5%, {of})."
    if moved.before:
        return f"{text} What changed before may be the cause, or have the same cause."
    began = f"The fall began between steps {fall.still_good} and {fall.found}"
    return f"{text} {began}, so these may be causes or consequences."


def _advice(moved: Moved) -> str:
    if moved.before:
        return (
            f"Go back to the last good state and look first at what changed before: {_named(list(moved.first))}. "
            "If taking that back does not prevent the fall, it was not the cause."
        )
    if moved.meanwhile:
        return (
            f"Go back to the last good state and evaluate more often, so that the order of the fall and of "
            f"{_named(list(moved.meanwhile))} can be known."
        )
    return (
        "Go back to the last good state. The log does not show what changed first: look at which tokens and prompts "
        "changed, and evaluate more often, so that the fall can be dated."
    )
