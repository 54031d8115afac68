"""The answer that each page opens with, in words, computed from the data."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.ratios import sentences as heavy_tails
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE


def overview(summary: StepSummary, findings: list[Finding], limits: Limits = Limits()) -> str:
    """Is this run healthy?"""
    if not len(summary.values):
        return "No step is on disk yet."
    steps = f"{len(summary.values)} step{'s' * (len(summary.values) > 1)}"
    learning = _change(summary.values["eval_accuracy"].dropna(), "Evaluation accuracy", "evaluations", 0.01)
    if not learning:
        reward = summary.values["reward"].replace([np.inf, -np.inf], np.nan).dropna()
        learning = _change(reward, "Training reward", "steps")
    grave = [finding for finding in findings if finding.severity > Severity.NOTICE]
    if grave:
        count = f"{len(grave)} finding{'s' * (len(grave) > 1)} in {steps}. {grave[0].sentence}"
    else:
        staleness = _top(summary, staleness_metric(summary))
        update = _top(summary, "u_k")
        drift = "not logged" if np.isnan(update) else f"at most {update:.2g} (limit {limits.update:g})"
        stale = f"at most {staleness:.2g}" if np.isfinite(staleness) else "not known in every step"
        count = (
            f"Nothing to worry about in {steps}: staleness {stale} (limit {limits.staleness:g}), update drift {drift}."
        )
    return f"{count} {learning}".strip()


def drift(summary: StepSummary, limits: Limits = Limits()) -> str:
    """Staleness, or the update?"""
    if not len(summary.values):
        return "No step is on disk yet."
    key = staleness_metric(summary)
    staleness, update = summary.values[key], summary.values["u_k"]
    limit = limits.staleness
    over = int((staleness > limit).sum())
    known = staleness.dropna()
    if not len(known):
        return "No step has a usable token: staleness is unknown."
    text = f"Staleness is {known.iloc[-1]:.2g} now"
    text += (
        f" and was above the limit of {limit:g} in {over} of {len(staleness)} steps." if over else f", below {limit:g}."
    )
    if update.notna().any():
        share = update.mean() / (update.mean() + staleness.mean()) if staleness.mean() > 0 else 1.0
        version, engine = summary.values[["s_k_version", "s_k_engine"]].mean()
        source = "the age of the data" if np.isnan(engine) or version >= engine else "the engine"
        larger = "the update itself" if share > 0.5 else source
        text += f" Of the path from the sampler to the new policy, {larger} makes up {max(share, 1 - share):.0%}."
    else:
        text += " The new policy's log-probs are not logged, so the update drift is unknown."
    lag = summary.values["version_lag"]
    if lag.nunique() > 2 and staleness.nunique() > 2:
        # Of a frame: that of two series would import scipy.stats, which takes a second.
        correlation = pd.concat([lag, staleness], axis=1).corr(method="spearman").to_numpy()[0, 1]
        text += f" Staleness follows the version lag with a rank correlation of {correlation:.2f}."
    return text


def ratios(summary: StepSummary, limits: Limits = Limits()) -> str:
    """How heavy are the tails?"""
    return heavy_tails.answer(summary, limits)


def clipping(summary: StepSummary) -> str:
    """What did the loss throw away?"""
    clipped = summary.values["clip_fraction"].dropna()
    if not len(clipped):
        return "Clip masks are not logged in this run."
    if clipped.max() == 0:
        return "The loss clipped no token in any step: its gate cannot bind, or it has none."
    low, high = summary.values["clip_fraction_low"].mean(), summary.values["clip_fraction_high"].mean()
    text = f"The loss clipped {clipped.mean():.1%} of the tokens on average and {clipped.max():.1%} in step "
    text += str(clipped.idxmax())
    if low + high > 0:
        side = "below the lower bound" if low > high else "above the upper bound"
        text += f"; {max(low, high) / (low + high):.0%} of the clipped ones were {side}"
    text += "."
    period = sawtooth_period(summary.values["version_lag"])
    if period:
        lag = summary.values["version_lag"].reindex(clipped.index)
        fresh, stale = clipped[lag <= 0.25 * period].mean(), clipped[lag >= 0.75 * period].mean()
        text += f" It follows the weight syncs, every {period} updates: "
        text += f"{fresh:.1%} on fresh data, {stale:.1%} on the stalest."
    return text


def sawtooth_period(lag: "pd.Series[float]") -> int | None:
    """Steps between weight syncs, where the version lag rises and falls back regularly."""
    values = lag.to_numpy()
    falls = np.flatnonzero(np.diff(values) < -0.5) + 1
    if len(falls) < 2 or len(set(np.diff(falls))) != 1:
        return None
    return int(np.diff(falls)[0])


def sync_steps(lag: "pd.Series[float]") -> list[int]:
    """Steps at which fresh weights had reached the sampler: the lag fell."""
    return [int(step) for step in lag.index[1:][np.diff(lag.to_numpy()) < -0.5]]


def course(summary: StepSummary, *keys: str) -> str:
    """What some metrics did over the steps, a sentence each: first and last value, and the extreme in between."""
    return " ".join(_course(summary, key) for key in keys)


def _course(summary: StepSummary, key: str) -> str:
    title, series = CATALOGUE[key].title, summary.values[key].dropna()
    if not len(series):
        return f"{title} is not logged."
    first, last = series.index[0], series.index[-1]
    text = f"{title} is {series.iloc[0]:.3g} in step {first}"
    if first == last:
        return f"{text}."
    text += f" and {series.iloc[-1]:.3g} in step {last}"
    low, high = series.min(), series.max()
    if low == high:
        return f"{text}, always the same."
    return f"{text}; lowest {low:.3g} in step {series.idxmin()}, highest {high:.3g} in step {series.idxmax()}."


def _top(summary: StepSummary, key: str) -> float:
    return float(summary.values[key].max())


def _change(series: "pd.Series[float]", what: str, times: str, least: float = 0.0) -> str:
    """Whether the last values differ from the first ones by more than `least`, and than they do among themselves."""
    if len(series) < (2 if least else 4):
        return ""
    few = max(1, min(5, len(series) // 2))
    start, end = series.iloc[:few], series.iloc[-few:]
    change, spread = end.mean() - start.mean(), np.sqrt((start.var() + end.var()) / few) if few > 1 else 0.0
    clear = abs(change) > max(least, 2 * spread)
    verb = ("rose" if change > 0 else "fell") if clear else "shows no clear trend"
    ends = f"{start.mean():.3g} to {end.mean():.3g}"
    means = f" (means of the first and last {few} {times})" if few > 1 else ""
    return f"{what} {verb} from {ends}{means}." if clear else f"{what} {verb}: {ends}{means}."
