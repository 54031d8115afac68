"""The answer of the Clipping page, in words."""

from ratioscope.analysis.findings.course import sync_period
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.summary.summary import StepSummary


def headline(summary: StepSummary) -> str:
    """How much the loss clipped, on which side, and whether it follows the weight syncs."""
    clipped = summary.values["clip_fraction"].dropna()
    if not len(clipped):
        return "Clip masks are not logged in this run."
    if clipped.max() == 0:
        return "The loss clipped no token in any step: its gate cannot bind, or it has none."
    low, high = summary.values["clip_fraction_low"].mean(), summary.values["clip_fraction_high"].mean()
    text = f"The loss clipped {percent(clipped.mean())} of the tokens on average and {percent(clipped.max())} in step "
    text += str(clipped.idxmax())
    if low + high > 0:
        side = "below the lower bound" if low > high else "above the upper bound"
        text += f"; {percent(max(low, high) / (low + high))} of the clipped ones were {side}"
    text += "."
    period = sync_period(summary.values["version_lag"])
    if period:
        lag = summary.values["version_lag"].reindex(clipped.index)
        fresh, stale = clipped[lag <= 0.25 * period].mean(), clipped[lag >= 0.75 * period].mean()
        text += f" It follows the weight syncs, every {period} updates: "
        text += f"{percent(fresh)} on fresh data, {percent(stale)} on the stalest."
    return text
