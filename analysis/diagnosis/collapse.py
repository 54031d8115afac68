"""A fall of the reward from its best level: its likely cause, and which metrics changed before it, as far as known.

A cause of the family FALL is named where one stands (`diagnosis.falling`); else what changed first, by the change
points of everything that is watched. What was so at the best level already is said beside it, as "also".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratioscope.analysis.diagnosis.around import courses_of
from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of
from ratioscope.analysis.diagnosis.fallen_policy import update_passed_its_limit
from ratioscope.analysis.diagnosis.falling import METRIC_OF, suspects_all_along
from ratioscope.analysis.diagnosis.rule import RULES, rule, rule_words
from ratioscope.analysis.findings.cause import Family, Suspect, deciding, of_family, rivals
from ratioscope.analysis.findings.change_points import Shift
from ratioscope.analysis.findings.fall import Fall, fall_of, levels_of, setback_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import capital, number
from ratioscope.analysis.findings.watched import WatchedCourse, changed, moved_along, sentence_start
from ratioscope.analysis.findings.words import listed
from ratioscope.catalogue import CATALOGUE

_MOST_NAMED = 6
"""Metrics that a sentence names."""


@dataclass(frozen=True)
class Moved:
    """Which metrics have a sustained change up to a fall, each by its key; with what order is known."""

    courses: Mapping[str, WatchedCourse]
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

    def named(self, keys: Sequence[str]) -> str:
        """Their names, six at most."""
        more = [f"{len(keys) - _MOST_NAMED} more"] if len(keys) > _MOST_NAMED else []
        return listed([*(self.courses[key].label for key in keys[:_MOST_NAMED]), *more])

    def dated(self, key: str, shift: Shift) -> str:
        """What a metric did, and when, as a sentence begins."""
        return sentence_start(self.courses[key].dated(shift))


@rule("reward_collapse", order=110, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_has_collapsed(evidence: RunEvidence) -> Finding | None:
    """The level has fallen from its best by the share that is set, and stayed there."""
    lost, fall = evidence.limits.reward_lost, fall_of(evidence.summary, evidence.limits)
    if fall is None:
        return None
    title = CATALOGUE[fall.metric].title
    return Finding(
        severity=Severity.CRITICAL
        if fall.after < fall.best - lost * abs(fall.best) and not _evaluation_holds(evidence, fall)
        else Severity.WARNING,
        sentence=f"{fall.words}.{_first(evidence, fall)}",
        metric=fall.metric,
        steps=fall.low_steps,
        numbers=(
            Number(f"{title}, best before the fall", fall.best),
            Number(f"{title}, median since the fall", fall.after),
            evidence.latest(fall.metric),
        ),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.limit,
        **_origin(evidence, fall),
    )


@rule("reward_setback", order=120, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_was_set_back(evidence: RunEvidence) -> Finding | None:
    """The level fell as in a collapse, stayed low for three values or more, and came back."""
    fall = setback_of(evidence.summary, evidence.limits)
    if fall is None:
        return None
    return Finding(
        severity=Severity.WARNING,
        sentence=f"{fall.words}.{_first(evidence, fall)}",
        metric=fall.metric,
        steps=fall.low_steps,
        numbers=(Number(f"{CATALOGUE[fall.metric].title}, best before", fall.best), evidence.latest(fall.metric)),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.limit,
        **_origin(evidence, fall),
    )


def with_cause(finding: Finding, others: Sequence[Finding], evidence: RunEvidence) -> Finding:
    """A fall with what the other findings say of its origin; any other finding as it is.

    A finding is the likely cause only where it begins after the level was at its best: what stood while the run was
    well is said beside it.
    """
    find = {reward_has_collapsed.name: fall_of, reward_was_set_back.name: setback_of}.get(finding.rule)
    fall = find(evidence.summary, evidence.limits) if find else None
    if fall is None:
        return finding
    grave = [each for each in others if each.severity > Severity.NOTICE and RULES[each.rule].cause and each.steps]
    changed_since = [each for each in grave if fall.best_step < min(each.steps) <= fall.found]
    stood = listed([rule_words(each.rule) for each in grave if min(each.steps) <= fall.best_step])
    also = f" Also, but there before the best level: {stood}." if stood else ""
    if not changed_since or not finding.unexplained:
        return replace(finding, why=f"{finding.why}{also}")
    cause = changed_since[0]
    return replace(
        finding,
        why=f"Likely, from step {min(cause.steps)} on: {cause.sentence}{also}",
        do=f"{_told(_back(evidence, fall))} {cause.do}".strip(),
        cause=cause.metric,
        unexplained=False,
    )


def moved_before(evidence: RunEvidence, fall: Fall) -> Moved:
    """The sustained changes of what is watched in the steps up to where the fall was found."""

    def look() -> Moved:
        courses = courses_of(evidence)
        found = changed(courses, evidence.values["version_lag"], fall.found)
        kept = {key: shift for key, shift in found.items() if shift is not None}
        before = {key: shift for key, shift in kept.items() if shift.last <= fall.still_good}
        meanwhile = {key: shift for key, shift in kept.items() if key not in before}
        return Moved(courses, tuple(found), before, meanwhile)

    return evidence.once(f"moved before {fall.found}", look)


def _first(evidence: RunEvidence, fall: Fall) -> str:
    """What comes before a fall, where one thing is known to have come first; a sentence with its space."""
    if causes := _causes(evidence):
        return "" if len(causes[0]) > 1 else f" {causes[0][0].cause.words}."
    moved = moved_before(evidence, fall)
    return f" {moved.dated(key, moved.before[key])}, before it." if (key := _only(moved.first)) else ""


def _causes(evidence: RunEvidence) -> list[list[Suspect]]:
    """The causes of the fall that stand, the likeliest first, each with its rivals."""
    return rivals(Family.FALL, evidence)


def _origin(evidence: RunEvidence, fall: Fall) -> dict[str, Any]:
    """The fields of a finding that say where the fall comes from, and how sure that is."""
    causes, moved = _causes(evidence), moved_before(evidence, fall)
    leading = causes[0][0] if causes else None
    first = moved.cause if moved.cause in CATALOGUE else ""
    return {
        "unexplained": not (causes or moved.before or moved.meanwhile),
        "cause": metric_of(leading) if leading else first,
        "of_cause": leading.cause.name if leading else "",
        "sure": _sure(evidence, moved, fall),
        "why": _story(evidence, moved, fall),
        "do": _advice(evidence, moved, fall),
    }


def _evaluation_holds(evidence: RunEvidence, fall: Fall) -> bool:
    """It is the training reward that fell, while evaluation accuracy was judged and did not."""
    return fall.metric == "reward" and any(metric == "eval_accuracy" for metric, *_ in levels_of(evidence.summary))


def _sure(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    holds = "evaluation accuracy shows no such fall" if _evaluation_holds(evidence, fall) else ""
    causes = _causes(evidence)
    clauses = filter(None, ("" if causes else _order(moved), holds, fall.noise_words))
    told = [f"{capital(clause.removesuffix('.'))}." for clause in clauses]
    return " ".join([*([signs_of(evidence, causes)] if causes else []), *told])


def metric_of(suspect: Suspect) -> str:
    """The metric that a cause is seen in; "" for none."""
    return next((METRIC_OF[sign.mark.name] for sign in suspect.speaking if sign.mark.name in METRIC_OF), "")


def signs_of(evidence: RunEvidence, causes: Sequence[Sequence[Suspect]]) -> str:
    """How much speaks for the leading cause, and how many of the others have all that they need; a sentence."""
    (leading, *_), others = causes[0], sum(map(len, causes)) - 1
    known = sum(sign.known for sign in leading.of((*leading.cause.requires, *leading.cause.supports)))
    looked = len(of_family(Family.FALL)) - 1
    fits = (
        f"{others} of {looked} other causes fit{'s' * (others == 1)}, too"
        if others
        else f"none of {looked} other causes fits"
    )
    seen, needed = len(leading.speaking), len(leading.cause.requires)
    if needed < known != seen:  # the required ones are there, or it would not be named
        further = f", {seen - needed} of {known - needed} others" if seen > needed else ""
        return f"Required sign{'s' * (needed > 1)} found{further}; {fits}."
    return f"{f'All {known}' if known > 1 else 'Its only'} sign{'s' * (known > 1)} found; {fits}."


def _only(keys: Mapping[str, Shift]) -> str:
    return next(iter(keys)) if len(keys) == 1 else ""


def _order(moved: Moved) -> str:
    """What is not known of the order in which things changed, a clause."""
    if _only(moved.first):
        return "what changed before may be the cause, or have the same cause"
    if moved.before:
        return f"{moved.named(list(moved.first))} changed before it, at about the same time: their order is unknown"
    if moved.meanwhile:
        return f"{moved.named(list(moved.meanwhile))} changed at about the same time; which came first is unknown"
    if moved.looked_at:
        return "no other metric shows a sustained change before it"
    return "the fall came too early to tell what changed first"


def _story(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    """Where it may come from: evaluations date a fall to a stretch of steps, and order is no proof of a cause."""
    if causes := _causes(evidence):
        return causes_in_words(causes, _no_rival(evidence, fall))
    if moved.cause:
        others = [moved.dated(key, shift) for key, shift in (moved.before | moved.meanwhile).items()
                  if key != moved.cause]  # fmt: skip
        also = f" Then: {'; '.join(others[:_MOST_NAMED])}." if others else ""
        return f"First to change: {moved.dated(moved.cause, moved.before[moved.cause])}.{also}"
    if moved.meanwhile:
        told = "; ".join(moved.dated(key, shift) for key, shift in list(moved.meanwhile.items())[:_MOST_NAMED])
        began = f"The fall began between steps {fall.still_good} and {fall.found}"
        return f"At about the same time: {told}. {began}, so these may be causes or consequences."
    text = f"No early warning in {moved.named(moved.looked_at)}."
    if not moved.looked_at:
        text = "Too few steps come before the fall to tell a change of any other metric from its noise."
        if along := list(moved_along(moved.courses, fall.best_step, int(fall.low.index[-1])).values()):
            told = "; ".join(along[:_MOST_NAMED])
            text = f"While it fell: {told}. Too few steps come before it to tell causes from consequences."
    if not (held := suspects_all_along(evidence)):
        return text
    signs = "; ".join(sign.reading.clause for each in held for sign in each.speaking)
    return f"First suspect: {_small(held[0].cause.words)}. All along: {signs}. {text}"


def _no_rival(evidence: RunEvidence, fall: Fall) -> str:
    """A large update between the best level and the lowest one, and why it is not the cause; a sentence or none."""
    drift, lowest = evidence.facts.update, max(step_of(fall.low.idxmin()), fall.found)
    values = evidence.values[drift.key]
    within = values[(values.index > fall.best_step) & (values.index <= lowest)]
    large = within[within > drift.limit]
    if not len(large) or update_passed_its_limit(evidence).present:
        return ""
    step = step_of(large.idxmax())
    if large.index.min() > fall.found:
        but = f"after the fall had begun (step {fall.found})"
    elif step not in drift.over:
        but = "no larger than its noise"
    else:
        but = "as large while the run was well"
    return f"Also in the window: an update drift of {number(float(large.max()), digits=2)} in step {step}, but {but}."


def causes_in_words(causes: Sequence[Sequence[Suspect]], no_rival: str = "") -> str:
    """The leading cause with what speaks for it, its rivals, what was none, and the other causes that stand."""
    leading, *others = causes[0]
    clauses = [sign.reading.clause for sign in leading.speaking]
    text = f"Likely cause: {_small(leading.cause.words)} ({clauses[0]})."
    if others:
        named = " or ".join(_small(each.cause.words) for each in others)
        columns = deciding(causes[0])
        text += f" Or: {named}." + (f" Log {listed(columns[:2])} to decide." if columns else "")
    text += f" {no_rival}" if no_rival else ""
    text += "".join(f" {sentence_start(clause)}." for clause in clauses[1:4])
    beside = [f"{each[0].cause.words} ({each[0].speaking[0].reading.clause})" for each in causes[1:]]
    return f"{text} Also: {'; '.join(beside)}." if beside else text


def _advice(evidence: RunEvidence, moved: Moved, fall: Fall) -> str:
    """Sentences. From a fall that came back there is nothing to go back to."""
    back = _back(evidence, fall)
    if causes := _causes(evidence):
        return f"{_told(back)} {remedy_of(evidence, causes[0][0])}".strip()
    if moved.before:
        told = [*back, f"look first at what changed before: {moved.named(list(moved.first))}"]
        return f"{_told(told)} If taking that back does not prevent the fall, it was not the cause."
    if moved.meanwhile:
        named = moved.named(list(moved.meanwhile))
        if _is_known_by_step(evidence, fall):
            return _told([*back, f"look first at what changed at about the same time: {named}"])
        return _told([*back, f"evaluate more often, so that the order of the fall and of {named} can be known"])
    if held := suspects_all_along(evidence):
        return f"{_told(back)} {remedy_of(evidence, held[0])}".strip()
    if _is_known_by_step(evidence, fall):
        when = f"between steps {fall.still_good} and {fall.found}"
        return _told([*back, f"look for what changed {when} and is not logged: code, data, a restart"])
    return _told([*back, "evaluate more often, so that the fall can be dated"])


def _is_known_by_step(evidence: RunEvidence, fall: Fall) -> bool:
    """Whether what fell has a value in every step around the fall: no more evaluations would date it."""
    return bool(evidence.values[fall.metric].loc[fall.still_good : fall.found].notna().all())


def _small(text: str) -> str:
    return f"{text[0].lower()}{text[1:]}"


def remedy_of(evidence: RunEvidence, suspect: Suspect) -> str:
    """A cause's remedy, in the settings of this run where they are known."""
    of_age = {"old_data_without_bound", "data_too_old"}
    closer = evidence.setup.against_staleness(evidence.facts) if suspect.cause.name in of_age else ""
    if suspect.cause.name == "update_too_large":
        closer = f"{evidence.setup.smaller_updates}.{evidence.setup.recentre}"
    return closer or suspect.cause.do


def _back(evidence: RunEvidence, fall: Fall) -> list[str]:
    """What to go back to, a clause; nothing of a fall that came back to stay."""
    if fall.came_back and not fall.fell_again:
        return []
    if evidence.values.index[0] in (fall.last_good, fall.best_step):  # no later step was better, beyond noise
        return ["restart"]
    return [f"go back to step {fall.last_good}"]


def _told(parts: Sequence[str]) -> str:
    """Imperatives as one sentence."""
    text = ", and ".join(parts)
    return f"{capital(text)}." if text else ""
