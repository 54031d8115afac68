"""Which page shows the evidence of a finding: its link opens that page, reports and alerts name it."""

from typing import Any

from ratioscope.analysis.diagnosis.report import finding_to_json
from ratioscope.analysis.findings.finding import Finding

PAGE_OF: dict[str, str] = {
    "nothing_to_judge": "linter",
    "diverged": "overview",
    "files_left_out": "linter",
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
}
"""By rule of `analysis.diagnosis.RULES`."""


def with_page(finding: Finding) -> dict[str, Any]:
    """A finding as JSON, with the page that shows it."""
    return finding_to_json(finding) | {"page": PAGE_OF[finding.rule]}
