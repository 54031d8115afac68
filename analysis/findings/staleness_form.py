"""Which of the two forms of staleness speaks for a run."""

from ratioscope.analysis.summary.summary import StepSummary


def staleness_metric(summary: StepSummary) -> str:
    """`s_k`, or its bounded form where the mean ratio is significantly below 1 in most steps (truncated support)."""
    significant = summary.high["ratio_mean"] < 1
    return "s_k_bounded" if len(significant) and significant.mean() > 0.5 else "s_k"
