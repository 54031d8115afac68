"""The three lights of a run: does it learn, how far is the policy from its data, can the log be trusted.

learning, off_policy, log = lights(summary, findings, remarks, limits)
learning.state.word, learning.sentence       # "rising", "Accuracy 43 → 91%."
log.severity                                 # of the state, or of a graver finding about the same

Each is judged by itself: a run that rises is rising whatever its ratios do. `LightState` declares the states with their
severity and signs; pages, reports and commands iterate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ratioscope.analysis.diagnosis.absence import nothing_to_judge, run_has_diverged
from ratioscope.analysis.diagnosis.log import log_is_broken
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.regime import variance_dominates
from ratioscope.analysis.diagnosis.rule import RULES, FindingRule, rule_words
from ratioscope.analysis.diagnosis.staleness import staleness_is_high
from ratioscope.analysis.diagnosis.update import update_is_large
from ratioscope.analysis.findings.course import level_moved, level_trend
from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.facts import STALENESS, Cause, Concern, Facts, facts_of
from ratioscope.analysis.findings.fall import LEVEL_WORDS, fall_of, finite_values, setback_of
from ratioscope.analysis.findings.finding import Finding, Outcome, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import capital, number, rounded_level
from ratioscope.analysis.findings.watched import sentence_start
from ratioscope.analysis.findings.words import at_most, in_steps, listed, tv_text
from ratioscope.analysis.linter.verdict import counted_outcomes, doubts, mostly_unknown, outcomes
from ratioscope.analysis.summary.summary import StepSummary

LEARNING, OFF_POLICY, LOG = NAMES = ("Learning", "Off-policy", "Log")
_OFF_POLICY_PAGES = ("drift", "staleness", "engine", "ratios", "variance")
"""Of rules about how far the policy is from its data, and what that costs."""
_OF_DATA = {STALENESS: "Highest staleness {}", "ratio_min": "Smallest ratio {}"}
"""Metrics that a likely cause names where a loss learned from data of another policy, with what was reached."""
_LOG_PAGE = "linter"
_MOST = 0.5
"""Of the steps: what is known in fewer is not known of the run."""
_MOST_NAMED = 3


class LightState(Enum):
    """What a light shows: word, severity where no finding is graver, sign of text, icon (Material Symbols)."""

    RISING = ("rising", Severity.NONE, "↗", "trending_up")
    FLAT = ("flat", Severity.NOTICE, "→", "trending_flat")
    DROPPING = ("dropping now", Severity.WARNING, "↘", "trending_down")
    SET_BACK = ("set back", Severity.WARNING, "∨", "swap_vert")
    FALLEN = ("fallen", Severity.WARNING, "↓", "south")
    SMALL = ("small", Severity.NONE, "✓", "check_circle")
    HIGH = ("high", Severity.WARNING, "◆", "warning")
    HARMFUL = ("harmful", Severity.WARNING, "▲", "error")
    TRUSTED = ("trusted", Severity.NONE, "✓", "verified")
    WITH_CARE = ("with care", Severity.WARNING, "◆", "warning")
    BROKEN = ("broken in part", Severity.CRITICAL, "▲", "error")
    UNKNOWN = ("unknown", Severity.NONE, "?", "help")

    def __init__(self, word: str, severity: Severity, sign: str, icon: str) -> None:
        self.word = word
        self.severity = severity
        self.sign = sign
        self.icon = icon


@dataclass(frozen=True)
class Light:
    """One of three things that a run is judged by."""

    name: str
    state: LightState
    sentence: str
    """What the state rests on, with one number; the text may quote the log."""
    severity: Severity

    @property
    def words(self) -> str:
        """State and sentence."""
        return f"{capital(self.state.word)}. {self.sentence}"

    def to_json(self) -> dict[str, str]:
        return {
            "name": self.name, "state": self.state.word, "severity": self.severity.word, "sentence": self.sentence
        }  # fmt: skip


def lights_text(shown: Sequence[Light]) -> str:
    """A line for each light, for the command line."""
    width = max(len(light.name) for light in shown)
    return "\n".join(f"{light.state.sign} {light.name:<{width}}  {light.words}" for light in shown)


def lights_line(shown: Sequence[Light]) -> str:
    """All lights in one line: of learning its sentence, of the others their states."""
    first, *others = shown
    states = "".join(f" {light.name}: {light.state.word}." for light in others)
    return f"{first.state.sign} {first.name}: {first.state.word}. {first.sentence}{states}"


_Judged = tuple[LightState, str]


def lights(
    summary: StepSummary, findings: Sequence[Finding], remarks: Sequence[Finding], limits: Limits, *, live: bool = False
) -> tuple[Light, Light, Light]:
    """Learning, Off-policy and Log.

    Args:
        summary: of the whole run.
        findings: of `diagnose`, worst first.
        remarks: of `lint`, worst first.
        live: whether the run goes on, so that a drop can be stopped.
    """
    learning = _learning(summary, findings, limits, live=live)
    off_policy = _off_policy(summary, facts_of(summary, limits), findings, learning[0])
    return (
        _light(LEARNING, *learning, findings),
        _light(OFF_POLICY, *off_policy, findings),
        _light(LOG, *_log(findings, remarks), findings),
    )


def lights_of(opened: Opened) -> tuple[Light, Light, Light]:
    """Those of a run that is open."""
    live = opened.run.status == "running"
    return lights(opened.summary, opened.findings, opened.remarks, opened.limits, live=live)


def _light_of(rule: FindingRule) -> str:
    """The name of the light that a rule's findings are about; "" for none."""
    if rule.outcome:
        return LEARNING
    return LOG if rule.page == _LOG_PAGE else OFF_POLICY if rule.page in _OFF_POLICY_PAGES else ""


def _about(name: str, findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if _light_of(RULES[finding.rule]) == name]


def _light(name: str, state: LightState, sentence: str, findings: Sequence[Finding]) -> Light:
    found = (finding.severity for finding in _about(name, findings) if finding.severity > Severity.NOTICE)
    return Light(name, state, sentence, max((state.severity, *found)))


def _learning(summary: StepSummary, findings: Sequence[Finding], limits: Limits, *, live: bool) -> _Judged:
    diverged = next((finding for finding in findings if finding.rule == run_has_diverged.name), None)
    if diverged is not None:
        return LightState.FALLEN, diverged.sentence
    if (fall := fall_of(summary, limits)) is not None:
        return LightState.FALLEN, f"{level_moved(summary, limits)} (step {fall.last_step})."
    drop, back = drop_of(summary, limits), setback_of(summary, limits)
    if drop is not None and (drop.is_low or live):
        if back is not None and back.fell_again and not live:
            return LightState.FALLEN, f"{back.levels} (step {back.last_step})."
        if live and not drop.lasting:
            return LightState.DROPPING, f"{capital(drop.words)}. Consider stopping."
        return LightState.FALLEN, f"{capital(drop.words)}."
    trend = level_trend(summary)
    if trend is None:
        return LightState.UNKNOWN, _too_few(summary)
    if back is not None and not back.regained:
        return LightState.SET_BACK, f"{back.levels}."
    after = ""
    moved = f"{trend.words} ({trend.where})"
    if back is not None:  # when is said of the fall
        after = f", lowest {rounded_level(back.lowest, share=back.share)}"
        moved = trend.words
    if trend.clear == "rose":
        return LightState.RISING, f"{moved}{after}."
    if trend.clear == "fell" and trend.start - trend.end > limits.reward_lowered * abs(trend.start):
        return LightState.FALLEN, f"{moved}."
    return LightState.FLAT, f"{moved}, {'slightly lower' if trend.clear else 'within noise'}{after}."


def _too_few(summary: StepSummary) -> str:
    n, rewards = (len(finite_values(summary, metric)) for metric in LEVEL_WORDS)
    if not n and not rewards:
        return "Neither evaluation accuracy nor reward is logged."
    return f"{n} evaluation{'s' * (n != 1)} and {rewards} reward{'s' * (rewards != 1)} are too few."


def _off_policy(summary: StepSummary, facts: Facts, findings: Sequence[Finding], learning: LightState) -> _Judged:
    if any(finding.rule == log_is_broken.name for finding in findings):
        return LightState.UNKNOWN, "The log is broken in the columns that would tell."
    staleness = facts.staleness
    found = [finding for finding in _about(OFF_POLICY, findings) if finding.severity > Severity.NOTICE]
    if not found and not staleness.n_known > _MOST * facts.n_steps:
        known = f"Staleness is known in {staleness.n_known} of {facts.n_steps} steps"
        return LightState.UNKNOWN, f"{sentence_start(facts.unknown) if facts.unknown else known}."
    engine = facts.path.part(Cause.ENGINE)
    if engine is not None and engine.median > facts.limits.engine:
        return LightState.HARMFUL, f"The engine alone makes {number(engine.median, digits=2)} " + (
            f"(limit {number(facts.limits.engine)})."
        )
    if facts.concern is Concern.BIAS:
        return LightState.HARMFUL, f"Staleness is {number(staleness.median, digits=2)} in the median step " + (
            f"(limit {staleness.limit:g})."
        )
    if found:
        return _state_of(found, findings, learning), _named(found, facts)
    blamed = [each.cause for each in _about(LEARNING, findings) if each.severity > Severity.NOTICE]
    if key := next((key for key in blamed if key in _OF_DATA), ""):
        fall = fall_of(summary, facts.limits) or setback_of(summary, facts.limits)
        values = summary.values[key].loc[: fall.found if fall else None]  # what came after it is no cause of it
        worst = number(float(values.min() if key == "ratio_min" else values.max()), digits=2)
        return LightState.HIGH, f"{_OF_DATA[key].format(worst)} before the fall."
    if staleness.largest <= staleness.limit:
        if engine is not None and facts.engine_alone:
            mean = f"{tv_text(engine.value)} on average (limit {number(facts.limits.engine)})"
            return LightState.SMALL, f"From the engine alone, {mean}."
        return LightState.SMALL, f"{capital(at_most('staleness', staleness))}."
    over = f", above the limit {in_steps(len(staleness.over), facts)}" if staleness.over else ""
    said = f"Staleness is {number(staleness.median, digits=2)} in the median step (limit {staleness.limit:g}){over}."
    return LightState.SMALL, said


def _state_of(found: Sequence[Finding], findings: Sequence[Finding], learning: LightState) -> LightState:
    """Harmful where a finding is critical, where the loss pays for the variance, or where it is the cause of a fall."""
    blamed = {finding.cause for finding in _about(LEARNING, findings) if finding.cause}
    fell = learning in (LightState.DROPPING, LightState.FALLEN)
    harms = any(
        finding.severity is Severity.CRITICAL
        or finding.rule == variance_dominates.name
        or (fell and finding.metric in blamed)
        for finding in found
    )
    return LightState.HARMFUL if harms else LightState.HIGH


def _named(found: Sequence[Finding], facts: Facts) -> str:
    first, *others = found
    distances = {staleness_is_high.name: ("staleness", facts.staleness), update_is_large.name: ("update", facts.update)}
    where = f" {in_steps(len(first.steps), facts)}" if first.steps else ""
    named = f"{capital(rule_words(first.rule))}{where}"
    if first.rule in distances:  # a reader of the chart counts those above the line
        what, level = distances[first.rule]
        noise = "" if len(first.steps) == level.n_above else f", beyond noise in {len(first.steps)}"
        named = f"{capital(what)} above {level.limit:g} in {level.n_above} steps{noise}"
    also = listed([rule_words(finding.rule) for finding in others[:_MOST_NAMED]])
    return named + (f"; also {also}." if also else ".")


def _log(findings: Sequence[Finding], remarks: Sequence[Finding]) -> _Judged:
    about = {finding.rule: finding for finding in _about(LOG, findings)}
    if nothing_to_judge.name in about:
        return LightState.UNKNOWN, about[nothing_to_judge.name].sentence
    problems = doubts(remarks)
    names = [rule.replace("_", " ") for rule in dict.fromkeys(remark.rule for remark in problems)]
    named = listed(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
    if log_is_broken.name in about:
        columns = dict.fromkeys(name for remark in remarks if remark.is_broken for name in remark.columns)
        return LightState.BROKEN, f"{listed(list(columns)[:_MOST_NAMED])}: {named}."
    grave = [rule_words(name) for name, finding in about.items() if finding.severity > Severity.NOTICE]
    if names:
        return LightState.WITH_CARE, f"{len(names)} check{'s' * (len(names) > 1)} found a problem: {named}."
    if grave:
        return LightState.WITH_CARE, f"{capital(listed(grave))}."
    counts = counted_outcomes(remarks)
    if not remarks or mostly_unknown(remarks):
        return LightState.UNKNOWN, f"{capital(counts)}." if remarks else "No check has run."
    ends = list(outcomes(remarks).values())
    ran = len(ends) - ends.count(Outcome.NOT_CHECKED)
    return LightState.TRUSTED, f"{f'{ran} of' if ran < len(ends) else 'All'} {len(ends)} checks ran, none failed."
