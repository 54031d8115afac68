"""Figures of the ratio's distribution: heat map over steps, quantile fan, survival curve."""

import numpy as np
import plotly.graph_objects as go

from analysis.answers import sync_steps
from analysis.distributions import Survival
from analysis.order_statistics import bin_log_ratio
from analysis.summary import StepSummary
from dashboard import theme
from dashboard.figures import base
from dashboard.theme import DARK, Mode

_RATIO_TICKS = np.array([0.001, 0.01, 0.1, 0.5, 0.8, 0.95, 1, 1.05, 1.25, 2, 10, 100, 1000])
MOST_COLUMNS = 400


def heat_map(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Step by log-ratio; colour is the share of the step's tokens, on a log scale."""
    fig = base.figure(mode, height=360, y_title="ratio ρ_k, finer near 1")
    histogram = summary.histogram
    if not len(histogram):
        return fig
    every = max(1, int(np.ceil(histogram["step"].nunique() / MOST_COLUMNS)))
    columns = (histogram["step"] // every * every).to_numpy()
    low, high = int(histogram["bin"].min()), int(histogram["bin"].max())
    low, high = min(low, -5), max(high, 5)
    x = np.unique(columns)
    counts = np.zeros((high - low + 1, len(x)))
    np.add.at(counts, (histogram["bin"].to_numpy() - low, np.searchsorted(x, columns)), histogram["tokens"].to_numpy())
    share = counts / counts.sum(axis=0)
    with np.errstate(divide="ignore"):
        colour = np.where(share > 0, np.log10(share), np.nan).astype(np.float32)
    bins = np.arange(low, high + 1)
    ratio = np.exp(bin_log_ratio(bins.astype(float)))
    fig.add_heatmap(
        x=x.astype(np.int32),
        y=bins.astype(np.float32),
        z=colour,
        customdata=np.stack([np.broadcast_to(ratio[:, None], share.shape), share], axis=-1).astype(np.float32),
        hovertemplate="step %{x}: %{customdata[1]:.2%} of the tokens near ratio %{customdata[0]:.4g}<extra></extra>",
        colorscale="Cividis" if mode is DARK else [[0, "#EAF3FA"], [0.5, "#5BA3D0"], [1, "#08306B"]],
        zmin=-3.5,
        zmax=0,
        colorbar={
            "title": {"text": "share of tokens", "font": {"size": 11, "color": mode.muted}},
            "tickvals": [-3, -2, -1, 0],
            "ticktext": ["0.1 %", "1 %", "10 %", "100 %"],
            "tickfont": {"color": mode.muted, "size": 11},
            "thickness": 10,
            "outlinewidth": 0,
        },
    )
    places = np.arcsinh(np.log(_RATIO_TICKS) / 0.01) / 0.15
    shown = (places >= low - 1) & (places <= high + 1)
    shown[1:] &= (np.diff(places) > 0.04 * (high - low)) | (_RATIO_TICKS[1:] == 1)
    fig.update_yaxes(tickvals=places[shown], ticktext=[f"{tick:g}" for tick in _RATIO_TICKS[shown]], showgrid=False)
    fig.update_layout(hovermode="closest")
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)


def quantile_fan(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Quantiles of the token ratio over steps, extremes as thin lines."""
    fig = base.figure(mode, height=320, y_title="ratio ρ_k")
    base.log_axis(fig)
    lines = (
        ("ratio_max", "maximum", 1.0, "dot"),
        ("ratio_p999", "99.9 %", 1.2, "dash"),
        ("ratio_p99", "99 %", 1.4, "solid"),
        ("ratio_p50", "median", 2.4, "solid"),
        ("ratio_p01", "1 %", 1.4, "solid"),
        ("ratio_min", "minimum", 1.0, "dot"),
    )
    for key, name, width, dash in lines:
        series = summary.values[key]
        base.add_line(
            fig,
            series.where((series > 0) & np.isfinite(series)),
            name=name,
            colour=theme.CURRENT,
            width=width,
            dash=dash,
            opacity=1.0 if key == "ratio_p50" else 0.75,
        )
    base.add_threshold(fig, 1.0, "on-policy", mode)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)


def survival_curve(survival: Survival, mode: Mode) -> go.Figure:
    """log-log P(ρ > x) of the chosen steps, with the fitted Pareto tail drawn on it."""
    fig = base.figure(mode, height=320, x_title="ratio x", y_title="share of tokens with ρ_k > x")
    fig.add_scatter(
        x=survival.ratio.astype(np.float32),
        y=survival.share.astype(np.float32),
        name="observed",
        mode="lines",
        line={"color": theme.CURRENT, "width": 2},
        hovertemplate="%{y:.3%} of the tokens have a ratio above %{x:.4g}<extra></extra>",
    )
    if survival.khat is not None:
        fig.add_scatter(
            x=survival.fit_ratio.astype(np.float32),
            y=survival.fit_share.astype(np.float32),
            name=f"Pareto tail, k̂ = {survival.khat:.2f}",
            mode="lines",
            line={"color": theme.NEW, "width": 2, "dash": "dash"},
            hoverinfo="skip",
        )
    fig.update_xaxes(type="log", exponentformat="power", dtick=1, showgrid=True, gridcolor=mode.grid)
    fig.update_yaxes(type="log", tickformat="~p", dtick=1)
    fig.update_layout(hovermode="closest", dragmode="zoom")
    return fig
