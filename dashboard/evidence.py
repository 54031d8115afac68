"""Which page shows the evidence of a finding: its link opens that page, reports and alerts name it."""

from dataclasses import dataclass
from typing import Any

from ratioscope.analysis.diagnosis.report import finding_to_json
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.overview.verdict import CHANGE, SINCE, SURE, Answer

PAGE_OF: dict[str, str] = {
    "nothing_to_judge": "linter",
    "diverged": "overview",
    "files_left_out": "linter",
    "ended_badly": "overview",
    "log_broken": "linter",
    "sampler_not_following": "staleness",
    "engine_mismatch": "engine",
    "denominator_wrong": "engine",
    "truncated_support": "engine",
    "survivor_bias": "drift",
    "staleness_high": "drift",
    "staleness_growing": "staleness",
    "kl_high": "drift",
    "bias_regime": "variance",
    "update_large": "drift",
    "trust_region_infeasible": "drift",
    "heavy_tail": "ratios",
    "variance_regime": "variance",
    "ess_collapse": "ratios",
    "length_trap": "ratios",
    "clip_saturated": "clipping",
    "clip_zero": "clipping",
    "zero_signal": "clipping",
    "entropy_collapse": "overview",
    "reward_collapse": "overview",
    "reward_setback": "overview",
}
"""By rule of `analysis.diagnosis.RULES`."""


def with_page(finding: Finding) -> dict[str, Any]:
    """A finding as JSON, with the page that shows it."""
    return finding_to_json(finding) | {"page": PAGE_OF[finding.rule]}


_ANOTHER_RULE = {
    "reward_collapse", "reward_setback", "staleness_high", "staleness_growing", "update_large", "heavy_tail",
    "variance_regime", "ess_collapse", "length_trap", "clip_saturated", "trust_region_infeasible",
}  # fmt: skip
"""Rules whose remedy may be another gate or weight, which the what-if on Clipping tries on the run's own tokens."""


@dataclass(frozen=True)
class Link:
    """One click to the evidence."""

    page: str
    query: dict[str, str]
    label: str = ""
    """"": the page's title."""


def link_of(answer: Answer, run_id: str, *, has_tokens: bool) -> Link | None:
    """Where an answer of Overview is shown; None: on the same page.

    Args:
        has_tokens: whether the log has any, for the pages that are about them.
    """
    finding = answer.finding
    if answer.question == SURE:
        return Link("linter", {"run": run_id})
    if finding is None:
        return None
    if answer.question == SINCE:
        if not finding.steps or not has_tokens:
            return None
        first = str(min(finding.steps))
        return Link("tokens", {"run": run_id, "step": first}, f"Tokens of step {first}")
    if answer.question == CHANGE and finding.rule in _ANOTHER_RULE and has_tokens:
        return Link("clipping", {"run": run_id}, "Try another rule")
    page = PAGE_OF[finding.rule]
    return None if page == "overview" else Link(page, steps_query(finding, run_id))


def steps_query(finding: Finding, run_id: str) -> dict[str, str]:
    """The run, the metric and the steps of a finding, as a page's parameters."""
    query = {"run": run_id, "show": finding.metric}
    if len(finding.steps) > 1:
        query |= {"from": str(min(finding.steps)), "to": str(max(finding.steps))}
    return query
