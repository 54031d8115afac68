"""A fall of the reward from its best level, and which metrics changed before it did, as far as that shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from ratioscope.analysis.diagnosis.change_points import Shift, find_shift, significant
from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import RULES, rule, rule_words
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.fall import Fall, fall_of, levels_of, setback_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import level
from ratioscope.analysis.findings.words import listed
from ratioscope.catalogue import CATALOGUE

# What can go wrong before the reward does, and in which direction: +1 up, -1 down, 0 both.
CANDIDATES = {
    UPDATE_METRIC: 1, STALENESS: 1, "khat_token": 1, "ess_token": -1, "clip_fraction": 1, "grad_norm": 1,
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

    @property
    def cause(self) -> str:
        """The one that every sentence names: the first to have changed before the fall; "" for none."""
        return min(self.first, key=lambda key: self.first[key].first, default="")


@rule("reward_collapse", order=110, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_has_collapsed(evidence: RunEvidence) -> Finding | None:
    """The level has fallen from its best by the share that is set, and stayed there."""
    lost, fall = evidence.limits.reward_lost, fall_of(evidence.summary, evidence.limits)
    if fall is None:
        return None
    moved = moved_before(evidence, fall)
    title = CATALOGUE[fall.metric].title
    return Finding(
        severity=Severity.CRITICAL
        if fall.after < fall.best - lost * abs(fall.best) and not _evaluation_holds(evidence, fall)
        else Severity.WARNING,
        sentence=f"{fall.words}.{_first(moved)}",
        metric=fall.metric,
        steps=steps_of(fall.low),
        numbers=(
            Number(f"{title}, best before the fall", fall.best),
            Number(f"{title}, median since the fall", fall.after),
            evidence.latest(fall.metric),
        ),
        why=_story(evidence, moved, fall),
        do=_advice(evidence, moved, fall),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.limit,
        **_origin(evidence, moved, fall),
    )


@rule("reward_setback", order=120, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_was_set_back(evidence: RunEvidence) -> Finding | None:
    """The level fell as in a collapse, stayed low for three values or more, and came back."""
    fall = setback_of(evidence.summary, evidence.limits)
    if fall is None:
        return None
    moved = moved_before(evidence, fall)
    return Finding(
        severity=Severity.WARNING,
        sentence=f"{fall.words}.{_first(moved)}",
        metric=fall.metric,
        steps=steps_of(fall.low),
        numbers=(Number(f"{CATALOGUE[fall.metric].title}, best before", fall.best), evidence.latest(fall.metric)),
        why=_story(evidence, moved, fall),
        do=_advice(evidence, moved, fall),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.limit,
        **_origin(evidence, moved, fall),
    )


def with_cause(finding: Finding, others: Sequence[Finding], evidence: RunEvidence) -> Finding:
    """A fall with what the other findings say of its origin; any other finding as it is.

    A finding is the likely cause only where it begins after the level was at its best: what stood while the run was
    well is said beside it.
    """
    find = {reward_has_collapsed.name: fall_of, reward_was_set_back.name: setback_of}.get(finding.rule)
    fall = find(evidence.summary, evidence.limits) if find and finding.unexplained else None
    if fall is None:
        return finding
    grave = [each for each in others if each.severity > Severity.NOTICE and RULES[each.rule].cause and each.steps]
    changed = [each for each in grave if fall.best_step < min(each.steps) <= fall.found]
    stood = listed([rule_words(each.rule) for each in grave if min(each.steps) <= fall.best_step])
    also = f" Also, but there before the best level: {stood}." if stood else ""
    if not changed:
        return replace(finding, why=f"{finding.why}{also}")
    cause = changed[0]
    return replace(
        finding,
        why=f"Likely, from step {min(cause.steps)} on: {cause.sentence}{also}",
        do=f"{_told(_back(evidence, fall))} {cause.do}".strip(),
        cause=cause.metric,
        unexplained=False,
    )


def moved_before(evidence: RunEvidence, fall: Fall) -> Moved:
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
    return listed([CATALOGUE[key].label for key in keys])


def _dated(key: str, shift: Shift) -> str:
    """What a metric did, and when."""
    steps = f"in step {shift.first}" if shift.first == shift.last else f"between steps {shift.first} and {shift.last}"
    verb = "rose" if shift.after > shift.before else "fell"
    before, after = (level(value, share=CATALOGUE[key].share) for value in (shift.before, shift.after))
    return f"{CATALOGUE[key].label} {verb} from {before} to {after} {steps}"


def _first(moved: Moved) -> str:
    """What changed before a fall, where one metric is known to have been the first; a sentence with its space."""
    return f" {_dated(key, moved.before[key])}, before it." if (key := _only(moved.first)) else ""


def _origin(evidence: RunEvidence, moved: Moved, fall: Fall) -> dict[str, Any]:
    """The fields of a finding that say where the fall comes from, and how sure that is."""
    beside = bool(_beside(evidence, fall)) and not (moved.before or moved.meanwhile)
    return {
        "unexplained": not (moved.before or moved.meanwhile or beside),
        "cause": evidence.facts.staleness.key if beside else moved.cause,
        "sure": _sure(evidence, moved, fall),
    }


def _evaluation_holds(evidence: RunEvidence, fall: Fall) -> bool:
    """It is the training reward that fell, while evaluation accuracy was judged and did not."""
    return fall.metric == "reward" and any(metric == "eval_accuracy" for metric, *_ in levels_of(evidence.summary))


def _sure(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    holds = "evaluation accuracy shows no such fall" if _evaluation_holds(evidence, fall) else ""
    text = "; ".join(filter(None, (fall.noise_words, holds, _order(moved))))
    return f"{text[0].upper()}{text[1:]}"


def _only(keys: Mapping[str, Shift]) -> str:
    return next(iter(keys)) if len(keys) == 1 else ""


def _order(moved: Moved) -> str:
    """What is not known of the order in which things changed, a clause with its full stop."""
    if _only(moved.first):
        return "what changed before may be the cause, or have the same cause."
    if moved.before:
        return f"{_named(list(moved.first))} changed before it, at about the same time: their order is unknown."
    if moved.meanwhile:
        return f"{_named(list(moved.meanwhile))} changed at about the same time; which came first is unknown."
    if moved.looked_at:
        return "no other metric shows a sustained change before it."
    return "the fall came too early to tell what changed first."


def _story(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    """Where it may come from: evaluations date a fall to a stretch of steps, and order is no proof of a cause."""
    of = f"of {len(moved.looked_at)} metrics that were looked at"
    sizes = f"(medians before and after; the chance of any such change in error is below 5%, {of})"
    if moved.cause:
        others = [_dated(key, shift) for key, shift in (moved.before | moved.meanwhile).items() if key != moved.cause]
        also = f" Also: {'; '.join(others)}." if others else ""
        return f"Likely: {_dated(moved.cause, moved.before[moved.cause])} {sizes}.{also}"
    if moved.meanwhile:
        told = "; ".join(_dated(key, shift) for key, shift in moved.meanwhile.items())
        began = f"The fall began between steps {fall.still_good} and {fall.found}"
        return f"At about the same time: {told} {sizes}. {began}, so these may be causes or consequences."
    if beside := _beside(evidence, fall):
        return beside
    if not moved.looked_at:
        return "Too few steps come before the fall to tell a change of any other metric from its noise."
    return f"None {of} has a sustained change up to the fall that its noise and trend do not explain."


def _beside(evidence: RunEvidence, fall: Fall) -> str:
    """That staleness went clearly above its limit, for the first time, between the last good step and the fall."""
    level = evidence.facts.staleness
    over = level.over
    if not over or not fall.still_good < over[0] <= fall.found:
        return ""
    lag = evidence.values["version_lag"].get(over[0], nan)
    old = f" (data {lag:.0f} updates old)" if lag > 0 else ""
    text = (
        f"Likely: staleness was clearly above its limit of {level.limit:g} for the first time in step {over[0]}{old}, "
    )
    text += "between the last value at its best and the fall"
    return f"{text}; {evidence.setup.unbounded}." if evidence.setup.unbounded else f"{text}."


def _advice(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    """Sentences. From a fall that came back there is nothing to go back to."""
    back = _back(evidence, fall)
    if moved.before:
        told = [*back, f"look first at what changed before: {_named(list(moved.first))}"]
        return f"{_told(told)} If taking that back does not prevent the fall, it was not the cause."
    if moved.meanwhile:
        order = f"so that the order of the fall and of {_named(list(moved.meanwhile))} can be known"
        return _told([*back, f"evaluate more often, {order}"])
    closer = evidence.setup.against_staleness(evidence.facts)
    if _beside(evidence, fall) and closer:
        return f"{closer} {_told(back)}".strip()
    oldest = evidence.values["version_lag"].max()
    if evidence.setup.unbounded and closer and oldest > 0:
        suspect = f"The loss is the first suspect: {evidence.setup.unbounded}"
        suspect += f", and its data are up to {oldest:.0f} updates old."
        return f"{_told(back)} {suspect} {closer}".strip()
    unknown = (
        "The log does not show what changed first: look at which tokens and prompts "
        "changed, and evaluate more often, so that the fall can be dated."
    )
    return f"{_told(back)} {unknown}".strip()


def _back(evidence: RunEvidence, fall: Fall) -> list[str]:
    """What to go back to, a clause; nothing of a fall that came back."""
    if fall.came_back:
        return []
    if fall.last_good == evidence.values.index[0]:
        return ["begin again: no later step was at the level of the first"]
    at = "the last at the best level"
    if fall.last_good != fall.best_step:  # a later one may have been better still
        at = f"the last within noise of the level of step {fall.best_step}"
    return [f"go back to step {fall.last_good}, {at}"]


def _told(parts: Sequence[str]) -> str:
    """Imperatives as one sentence."""
    text = ", and ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
