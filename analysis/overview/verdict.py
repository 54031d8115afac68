"""What a run comes to, as its page and its report say it: three lights, what happened, since when, why, what to change,
how sure.

found = run_verdict(summary, findings, remarks, limits)
for light in found.lights: light.name, light.state.word, light.sentence
for answer in found.answers: answer.question, answer.text, answer.finding
found.fine                           # what rules looked at and found nothing about
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from re import split

from ratioscope.analysis.diagnosis.absence import not_seen
from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed, reward_was_set_back
from ratioscope.analysis.diagnosis.drop import reward_is_dropping
from ratioscope.analysis.diagnosis.evidence import LATEST
from ratioscope.analysis.findings.drop import Drop, drop_of
from ratioscope.analysis.findings.facts import Concern, Facts, facts_of, unreliable_steps
from ratioscope.analysis.findings.fall import Fall, fall_of, setback_of
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.linter.verdict import counted_outcomes, doubts, mostly_unknown
from ratioscope.analysis.overview.lights import Light, LightState, lights
from ratioscope.analysis.overview.sentences import cause_ahead, fine, grave, leading, overview_headline
from ratioscope.analysis.summary.summary import StepSummary

WHAT, SINCE, WHY, CHANGE, SURE = QUESTIONS = (
    "What happened?",
    "Since when?",
    "Why?",
    "What to change?",
    "How sure?",
)
_LONGEST, _SIGNS = 2, 3
"""Sentences of what to change; of the further signs of a cause."""


@dataclass(frozen=True)
class Answer:
    """One of `QUESTIONS` with its answer, text as in the log."""

    question: str
    text: str
    finding: Finding | None = None
    """Whose evidence it is; None: that of no single finding."""
    more: str = ""
    """What belongs to it and need not be read first: further signs, what is not logged."""

    @property
    def whole(self) -> str:
        """The answer with what belongs to it."""
        return f"{self.text} {self.more}".strip()


@dataclass(frozen=True)
class Verdict:
    """All that is said first of a run; of one without a grave finding what happened and how sure that is."""

    lights: tuple[Light, ...]
    """Learning, Off-policy, Log."""
    answers: tuple[Answer, ...]
    fine: str
    lead: Finding | None
    """The finding that says what happened."""
    cause: Finding | None
    """Another one that says more of why."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The lights with their words, then questions and answers."""
        return (
            *((light.name, light.words) for light in self.lights),
            *((answer.question, answer.whole) for answer in self.answers),
        )


def run_verdict(
    summary: StepSummary, findings: Sequence[Finding], remarks: Sequence[Finding], limits: Limits, *, live: bool = False
) -> Verdict:
    """The answers about a whole run, as rules look at all of it.

    Args:
        findings: of `diagnose`, worst first.
        remarks: of `lint`.
        live: whether the run goes on.
    """
    facts, ahead = facts_of(summary, limits), cause_ahead(findings, remarks)
    lead = None if ahead else leading(findings)
    shown = lights(summary, findings, remarks, limits, live=live)
    what = Answer(WHAT, overview_headline(facts, findings, remarks), lead)
    if not facts.n_steps:
        return Verdict(shown, (what,), "", lead, None)
    sure = _sure(summary, facts, lead, remarks, shown[-1])
    told = fine(summary, facts, findings)
    if lead is None:
        problem = ahead or next((remark for remark in remarks if remark.is_problem), None)
        change = (Answer(CHANGE, _first(problem.do, _LONGEST)[0]),) if problem else ()
        # Where one sign alone speaks for a cause, what happened has said it.
        told_of_it = (Answer(WHY, ahead.why),) if ahead and ": " in ahead.why else ()
        return Verdict(shown, (what, *told_of_it, *change, sure), told, None, None)
    if lead.of_cause:  # the third answer names it
        happened, named = _first(what.text)
        what = replace(what, text=happened, more=named)
    why, signs = _first(lead.why)
    cause = _cause(lead, findings)
    answers = (
        what,
        Answer(SINCE, _since(summary, limits, lead), lead),
        Answer(WHY, why, cause or lead, _first(signs, _SIGNS)[0]),
        Answer(CHANGE, _first(lead.do, _LONGEST)[0], lead),
        sure,
    )
    return Verdict(shown, answers, told, lead, cause)


def _first(text: str, most: int = 1) -> tuple[str, str]:
    """Its first sentences, and the others."""
    sentences = split(r"(?<=[.?!])\s+(?=[A-Z(])", text.strip())
    return " ".join(sentences[:most]), " ".join(sentences[most:])


def _cause(lead: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The finding about the metric that what happened names as its likely cause: the evidence of its `why`."""
    return next((each for each in grave(findings) if each is not lead and each.metric == lead.cause), None)


def _since(summary: StepSummary, limits: Limits, lead: Finding) -> str:
    """When it began."""
    found = level_low(summary, limits, lead)
    return f"{found.since if found else _when(summary, lead)}."


def level_low(summary: StepSummary, limits: Limits, lead: Finding) -> Fall | Drop | None:
    """The fall or drop of the level that a finding is about; None: it is about something else."""
    find = {
        reward_has_collapsed.name: fall_of, reward_was_set_back.name: setback_of, reward_is_dropping.name: drop_of
    }.get(lead.rule)  # fmt: skip
    return find(summary, limits) if find else None


def _when(summary: StepSummary, finding: Finding) -> str:
    """The steps of a finding, without a full stop."""
    if not finding.steps:
        return "It is about the whole run"
    first, last, n = min(finding.steps), max(finding.steps), len(finding.steps)
    if finding.begins_unseen:
        return f"Since step {first} at least: earlier steps were not looked at"
    if n == 1:
        return f"In step {first}"
    index = summary.values.index
    if n == LATEST < len(index) and first == int(index[-LATEST]):
        return f"In the last {LATEST} steps at least, which are those that were looked at"
    if n == len(index):
        return "In every step, from the first one on"
    end = "the end" if last == int(index[-1]) else f"step {last}"
    whole = n == int(((index >= first) & (index <= last)).sum())
    return f"From step {first} to {end}" + (", in every step" if whole else f", in {n} of these steps")


def _sure(summary: StepSummary, facts: Facts, lead: Finding | None, remarks: Sequence[Finding], log: Light) -> Answer:
    """What the finding leaves open, what the linter says, and what is not logged; no text where the light of the log
    says all that need be read first."""
    problems = doubts(remarks)
    counts = counted_outcomes(remarks)
    if log.state is LightState.BROKEN:
        trust = f"The log is broken in part ({counts}): {problems[0].sentence.rstrip('.')}"
    elif problems:
        said_before = lead is None and facts.staleness.n_known  # it says what happened
        trust = f"With care ({counts})" + ("" if said_before else f": {problems[0].sentence.rstrip('.')}")
    elif mostly_unknown(remarks):
        trust = f"Whether the log can be trusted is unknown ({counts})"
    else:
        trust = f"No check found a problem in the log ({counts})"
    beside = []
    doubtful, known = unreliable_steps(summary, "ratio_mean")
    if doubtful:
        beside.append(f"means of the ratio are unreliable in {doubtful} of {known} steps")
    if unseen := not_seen(summary, facts):
        beside.append(f"not logged, so not judged: {'; '.join(unseen)}")
    if lead is None and (unseen_tail := _open_variance(facts)):
        beside.append(unseen_tail)
    sure, noise = _first(lead.sure if lead else "")
    if sure or log.state is LightState.TRUSTED:  # the light says so
        beside.insert(0, trust)
        sure = sure or ("The log is trusted." if lead else "")
    else:
        sure = f"{trust}."
    signs = lead if lead and lead.of_cause else None
    return Answer(SURE, sure, signs, more=" ".join([*filter(None, [noise]), *(f"{capital(each)}." for each in beside)]))


def _open_variance(facts: Facts) -> str:
    """Why it is unknown whether variance is large, a clause; empty where it is known, or where bias is large."""
    if facts.variance_is_open:
        return (
            f"the χ² of whole responses rests on the largest ratio in {facts.n_open_chi2} of {facts.n_chi2} steps and "
            "may be above its limit"
        )
    if facts.concern is Concern.NEITHER and facts.n_infinite_chi2:
        return (
            f"the exact χ² is infinite in {facts.n_infinite_chi2} of {facts.n_exact_chi2} steps, as the sampler leaves "
            "out tokens of the policy, so variance cannot be measured"
        )
    return ""
