"""What happened to a run, and what is fine about it, in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ratioscope.analysis.findings.course import is_falling, is_unsteady, learning
from ratioscope.analysis.findings.facts import STALENESS, UPDATE, Cause, Facts, Level, heavy_tails
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.inventory import rule_words
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import at_most
from ratioscope.analysis.linter.remark import Remark
from ratioscope.analysis.linter.verdict import mostly_unknown
from ratioscope.analysis.summary.summary import StepSummary

OUTCOMES = ("diverged", "reward_collapse", "reward_setback")
"""Rules that find what a run is for to be lost, if for a time: what happened, whatever is graver among its causes."""


def grave(findings: Sequence[Finding]) -> list[Finding]:
    """What is more than a notice."""
    return [finding for finding in findings if finding.severity > Severity.NOTICE]


def leading(findings: Sequence[Finding]) -> Finding | None:
    """The finding that says what happened; None: nothing graver than a notice.

    Args:
        findings: of `diagnose`, worst first.
    """
    found = grave(findings)
    return next((finding for finding in found if finding.rule in OUTCOMES), found[0] if found else None)


def health(summary: StepSummary, facts: Facts, findings: Sequence[Finding], remarks: Sequence[Remark] = ()) -> str:
    """Is it healthy? Yes, no or unknown, and what was found; arguments as of `headline`."""
    doubts = [remark for remark in remarks if remark.is_problem]
    lead = leading(findings)
    if lead and lead.rule not in _HELD_BACK:
        others = [finding for finding in grave(findings) if finding is not lead]
        return f"No: {', '.join(rule_words(finding.rule) for finding in (lead, *others))}."
    if lead or not facts.n_steps or not facts.staleness.n_known or mostly_unknown(remarks):
        return "Unknown."
    if any(doubt.severity is Severity.CRITICAL for doubt in doubts):
        return "Unknown: the log cannot be trusted as it is."
    if is_falling(summary) and not is_unsteady(summary):
        return "Unknown: it falls at the end, and may come back."
    but = [f"{len(findings)} notice{'s' * (len(findings) > 1)}"] * bool(findings)
    but += ["learning that is not steady"] * is_unsteady(summary)
    said = f"Yes, with {' and '.join(but)}" if but else "Yes"
    return f"{said}{', as far as the log can be trusted' * bool(doubts)}."


def headline(summary: StepSummary, facts: Facts, findings: Sequence[Finding], remarks: Sequence[Remark] = ()) -> str:
    """What happened? The text may quote the log.

    Args:
        summary: of the steps that `facts` are of.
        findings: of `diagnose`, worst first.
        remarks: of `lint`, worst first.
    """
    doubts = [remark for remark in remarks if remark.is_problem]
    lead = leading(findings)
    if not facts.n_steps:
        return lead.sentence if lead else "No step is on disk yet."
    steps = f"{facts.n_steps} step{'s' * (facts.n_steps > 1)}"
    if lead:
        said = lead.sentence
    elif not facts.staleness.n_known:
        said = f"Cannot tell from {steps}: {facts.unknown}."
    elif doubts:
        found = "Nothing graver than a notice was found" if findings else "No rule found anything"
        said = f"{found} in {steps}, but use the log with care: {doubts[0].sentence}"
    else:
        staleness = at_most("staleness", facts.staleness)
        if facts.staleness.n_known < facts.n_steps:
            staleness += ", not known in every step"
        if Cause.ENGINE in facts.sources:
            staleness += f", most of it from {Cause.ENGINE.words}, whose own limit is {number(facts.limits.engine)}"
        # Of a course that swings, the last swing says nothing.
        opening = "Falling at the end of" if is_falling(summary) else "Nothing to worry about in"
        opening = "Learning is not steady in" if is_unsteady(summary) else opening
        said = f"{opening} {steps}: {staleness}."
    # The finding of a fall says what evaluation accuracy did.
    fell = lead is not None and lead.rule in ("reward_collapse", "reward_setback")
    return f"{said} {'' if fell else learning(summary, facts.limits)}".strip()


@dataclass(frozen=True)
class _Kind:
    """A kind of trouble: the metric that shows it, the rules that look for it, and what is said where none found it."""

    metric: str
    rules: tuple[str, ...]
    words: Callable[[StepSummary, Facts], str]
    """Empty: there is nothing to find fault with, and nothing to call fine."""


def _of_level(name: str, level: Level) -> str:
    return "" if level.over else at_most(name, level)


def _tails(summary: StepSummary, facts: Facts) -> str:
    return "" if len(heavy_tails(summary, facts.limits)) else "no heavy tail of the ratios"


def _clipped(summary: StepSummary, _: Facts) -> str:
    clipped = summary.values["clip_fraction"]
    return f"clip fraction {percent(clipped.mean())} on average" if clipped.max() > 0 else ""


def _entropy(summary: StepSummary, _: Facts) -> str:
    known = summary.values["entropy"].dropna()
    return f"entropy {number(known.iloc[0], digits=2)} nats at first, {number(known.iloc[-1], digits=2)} at the end"


def _groups(summary: StepSummary, _: Facts) -> str:
    return f"{percent(summary.values['zero_advantage_group_fraction'].mean())} of the prompt groups without a signal"


_KINDS = (
    _Kind(
        STALENESS,
        ("sampler_not_following", "engine_mismatch", "denominator_wrong", "truncated_support", "staleness_high",
         "staleness_growing", "kl_high", "bias_regime"),
        lambda _, facts: _of_level("staleness", facts.staleness),
    ),
    _Kind(UPDATE, ("update_large", "trust_region_infeasible"),
          lambda _, facts: _of_level("update drift", facts.update)),
    _Kind("khat_token", ("heavy_tail", "ess_collapse", "variance_regime", "length_trap"), _tails),
    _Kind("clip_fraction", ("clip_saturated", "clip_zero"), _clipped),
    _Kind("entropy", ("entropy_collapse",), _entropy),
    _Kind("zero_advantage_group_fraction", ("zero_signal",), _groups),
)  # fmt: skip
_HELD_BACK = {"nothing_to_judge", "log_broken"}
_KNOWN = 0.8
"""In so large a share of the steps a metric has to be there before it is called fine."""


def fine(summary: StepSummary, facts: Facts, findings: Sequence[Finding]) -> str:
    """What rules looked at and found nothing about, each with its number; "" where there is nothing.

    What is not logged is not fine.
    """
    found = {finding.rule for finding in findings}
    if found & _HELD_BACK:
        return ""
    told = [
        kind.words(summary, facts)
        for kind in _KINDS
        if not found & {*kind.rules} and summary.values[kind.metric].notna().mean() >= _KNOWN
    ]
    return f"Fine: {', '.join(filter(None, told))}." if any(told) else ""
