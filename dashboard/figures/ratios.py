"""Figures of the ratio's distribution: heat map and quantiles over steps, both tails, what was left out."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.ratios.distributions import DrawnTail, Survival
from ratioscope.analysis.summary.order_statistics import bin_log_ratio
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode
from ratioscope.tails import QUANTILES, Array

_RATIO_TICKS = np.array(
    [1e-30, 1e-12, 1e-6, 0.001, 0.01, 0.1, 0.5, 0.8, 0.95, 1, 1.05, 1.25, 2, 10, 100, 1e3, 1e6, 1e12]
)
MOST_COLUMNS = 400
# Charts over steps that stand under each other have their axes above each other.
WIDE = {"l": 64, "r": 96, "t": 36, "b": 44}
# Beyond these bins exp(log-ratio) is 0 or infinite in floating point.
_LAST_FINITE_BIN = 74
# From 0.03 % of a step's tokens to all of them; the palest colour still stands out from the surface.
_DENSITY_STOPS = (0.0, 0.45, 0.75, 1.0)

_Steps = tuple[int | None, int | None]
_ALL: _Steps = (None, None)


def heat_map(summary: StepSummary, mode: Mode, steps: _Steps = _ALL, *, ratio: str = "ρ_k") -> go.Figure:
    """Step by log-ratio; colour is the share of the step's tokens, on a log scale. Ratios 0 and ∞ are edge marks."""
    fig = base.figure(mode, height=360, y_title=f"ratio {ratio}, finer near 1")
    histogram = summary.histogram
    base.set_steps(fig, steps, summary.values.index)
    if not len(histogram):
        return fig
    step, bins = (histogram[name].to_numpy(dtype=np.int64) for name in ("step", "bin"))
    tokens = histogram["tokens"].to_numpy(dtype=float)
    first, last = int(step.min()), int(step.max())
    every = max(1, -(-(last - first + 1) // MOST_COLUMNS))
    finite = np.abs(bins) <= _LAST_FINITE_BIN
    low, high = (min(int(bins[finite].min()), -5), max(int(bins[finite].max()), 5)) if finite.any() else (-5, 5)
    # A column for every step there could be: a step without tokens stays a gap.
    column = (step - first) // every
    counts = np.zeros((high - low + 1, int(column.max()) + 1))
    np.add.at(counts, (bins[finite] - low, column[finite]), tokens[finite])
    total = np.bincount(column, tokens, counts.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = counts / total
        colour = np.where(share > 0, np.log10(share), np.nan).astype(np.float32)
    rows = np.arange(low, high + 1)
    centre = np.exp(bin_log_ratio(rows.astype(float)))
    x = first + np.arange(counts.shape[1]) * every + (every - 1) / 2
    where = "step %{x}" if every == 1 else f"{every} steps around %{{x:.0f}}"
    fig.add_heatmap(
        x=x.astype(np.float32),
        y=rows.astype(np.float32),
        z=colour,
        customdata=np.stack([np.broadcast_to(centre[:, None], share.shape), share], axis=-1).astype(np.float32),
        hovertemplate=where + ": %{customdata[1]:.2p} of the tokens near ratio %{customdata[0]:.3g}<extra></extra>",
        hoverongaps=False,
        colorscale=list(zip(_DENSITY_STOPS, mode.density, strict=True)),
        zmin=-3.5,
        zmax=0,
        colorbar={
            "title": {"text": "tokens", "font": {"size": 11, "color": mode.muted}},
            "tickvals": [-3, -2, -1, 0],
            "ticktext": ["0.1%", "1%", "10%", "100%"],
            "tickfont": {"color": mode.muted, "size": 11},
            "thickness": 10,
            "outlinewidth": 0,
            "x": 1.0,
            "xpad": 8,
            "len": 1.0,
        },
    )
    places = np.arcsinh(np.log(_RATIO_TICKS) / 0.01) / 0.15
    shown = (places >= low - 1) & (places <= high + 1)
    shown[1:] &= (np.diff(places) > 0.04 * (high - low)) | (_RATIO_TICKS[1:] == 1)
    fig.update_yaxes(
        tickvals=places[shown],
        ticktext=[f"{tick:g}" for tick in _RATIO_TICKS[shown]],
        showgrid=False,
        zeroline=False,
        range=[low - 1.5, high + 1.5],
    )
    fig.update_layout(hovermode="closest", margin=WIDE)
    for beyond, name, edge in ((bins < -_LAST_FINITE_BIN, "ratio 0", 0.0), (bins > _LAST_FINITE_BIN, "infinite", 1.0)):
        _edge_marks(fig, np.unique(step[beyond]), f"{name}: {int(tokens[beyond].sum())} tokens", edge, mode)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return fig


def _edge_marks(fig: go.Figure, steps: NDArray[Any], name: str, edge: float, mode: Mode) -> None:
    """Triangles on the lower (0) or upper (1) edge for what has no place on the axis, counted in the legend."""
    if not len(steps):
        return
    shown = steps[:: -(-len(steps) // base.MOST_POINTS)]
    fig.add_scatter(
        x=shown.astype(np.int32),
        y=np.full(len(shown), edge, np.float32),
        yaxis="y2",
        name=f"{name} in {len(steps)} step{'s' * (len(steps) != 1)}",
        mode="markers",
        marker={
            "symbol": "triangle-up" if edge else "triangle-down",
            "size": 8,
            "color": mode.severity[max(mode.severity)],
        },
        showlegend=True,
        hoverinfo="skip",
    )
    fig.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


def quantile_fan(
    summary: StepSummary, mode: Mode, steps: _Steps = _ALL, *, ratio: str = "ρ_k", colour: str = theme.CURRENT
) -> go.Figure:
    """Quantiles of the token ratio over steps: extremes as thin lines, the middle 98 % as a band."""
    fig = base.figure(mode, height=340, y_title=f"ratio {ratio}")
    base.log_axis(fig)
    shown = {key: summary.values[key] for key in ("ratio_min", *QUANTILES, "ratio_max")}
    drawable = {key: series.where((series > 0) & np.isfinite(series)) for key, series in shown.items()}
    base.add_band(fig, drawable["ratio_p01"], drawable["ratio_p99"], colour)
    for key, name, width, dash in (
        ("ratio_max", "maximum", 1.0, "dot"),
        ("ratio_p999", "99.9%", 1.0, "dash"),
        ("ratio_p99", "99%", 1.4, "solid"),
        ("ratio_p50", "median", 2.4, "solid"),
        ("ratio_p01", "1%", 1.4, "solid"),
        ("ratio_min", "minimum", 1.0, "dot"),
    ):
        base.add_line(fig, drawable[key], name=name, colour=colour, width=width, dash=dash, metric=key)
    smallest, largest = shown["ratio_min"], shown["ratio_max"]
    _edge_marks(fig, smallest.index[smallest == 0].to_numpy(), "minimum 0", 0.0, mode)
    _edge_marks(fig, largest.index[np.isposinf(largest)].to_numpy(), "maximum infinite", 1.0, mode)
    finer_log_ticks(fig, np.concatenate([series.dropna().to_numpy() for series in drawable.values()]))
    fig.update_layout(margin=WIDE)
    base.add_threshold(fig, 1.0, "on-policy", mode)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)


def finer_log_ticks(fig: go.Figure, values: Array, axis: str = "yaxis") -> None:
    """Within a decade and a half powers of ten are too few labels for a logarithmic axis."""
    known = values[(values > 0) & np.isfinite(values)]
    if not len(known) or known.max() > 30 * known.min():
        return
    ticks: dict[str, Any] = {"dtick": None, "nticks": 6, "minorloglabels": "complete", "exponentformat": "none"}
    if known.max() > 3 * known.min():
        places = np.outer(10.0 ** np.arange(-12, 13), [1, 2, 5]).ravel()
        places = places[(places > known.min() / 2) & (places < known.max() * 2)]
        ticks = {"tickvals": places, "ticktext": [f"{place:g}" for place in places]}
    fig.update_layout({axis: ticks})


# Beside both tails, as a share of what they take.
_ROOM = 0.12


def survival_curve(
    survival: Survival, mode: Mode, *, ratio: str = "ρ_k", unit: str = "tokens", colour: str = theme.CURRENT
) -> go.Figure:
    """Both tails on one log-log chart, from the median outwards, each with its fitted Pareto tail.

    To the right the share of ratios of at least x, to the left of at most x; equal factors are equal distances, so that
    the slopes (-1/k-hat and 1/k-hat of a Pareto tail) can be compared.
    """
    fig = base.figure(mode, height=320, x_title=f"ratio {ratio}", y_title=f"share of {unit} beyond")
    _tail(fig, survival.upper, mode, name="at or above x", colour=colour, sign=1)
    _tail(fig, survival.lower, mode, name="at or below x", colour=mode.behavior, sign=-1)
    fig.add_vline(x=1, line={"color": mode.muted, "width": 1, "dash": "dash"})
    for count, side, words in ((survival.n_zero, "left", "ratio 0"), (survival.n_infinite, "right", "infinite")):
        if count:
            fig.add_annotation(
                text=f"{'◀ ' * (side == 'left')}{words}: {count:,} {unit}{' ▶' * (side == 'right')}",
                x=0 if side == "left" else 1,
                xref="paper",
                xanchor=side,
                y=0.02,
                yref="paper",
                yanchor="bottom",
                showarrow=False,
                font={"size": 11, "color": mode.severity[max(mode.severity)]},
            )
    ends = np.concatenate([survival.upper.weight, 1 / survival.lower.weight, [1.0]])
    left, right = float(np.log10(ends.min())), float(np.log10(ends.max()))
    span = max(right - left, 0.1)
    # Left to itself the axis makes room for the words beside the fits: twenty decades of it on a phone.
    room = [left - _ROOM * span, right + _ROOM * span]
    decades = max(1, round(span / 5))
    fig.update_xaxes(type="log", exponentformat="power", dtick=decades, showgrid=True, gridcolor=mode.grid, range=room)
    finer_log_ticks(fig, ends, "xaxis")
    fig.update_yaxes(type="log", tickformat="~p", dtick=1)
    fig.update_layout(margin={"t": 12})
    fig.update_layout(hovermode="closest", dragmode="zoom")
    return fig


def _tail(fig: go.Figure, tail: DrawnTail, mode: Mode, *, name: str, colour: str, sign: int) -> None:
    """One tail and its fit; `sign` -1: of weights 1 / ratio, drawn at the ratio."""
    fig.add_scatter(
        x=tail.weight**sign,
        y=tail.share.astype(np.float32),
        name=name,
        showlegend=False,
        mode="lines+markers" if len(tail.weight) == 1 else "lines",
        line={"color": colour, "width": 2},
        hovertemplate=f"%{{y:.2p}} are {name.removesuffix('x')}%{{x:.3g}}<extra></extra>",
    )
    if not len(tail.fit_weight):
        return
    fig.add_scatter(
        x=tail.fit_weight**sign,
        y=tail.fit_share.astype(np.float32),
        name="Pareto fit",
        showlegend=False,
        mode="lines",
        line={"color": mode.text, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    middle = len(tail.fit_weight) // 2
    # Outwards both lines only fall: words on the higher one, going outwards, are clear of both.
    higher = np.append(tail.share[tail.weight <= tail.fit_weight[middle]][-1:], tail.fit_share[middle]).max()
    fig.add_annotation(
        text=f"k̂ = {tail.khat:.2f}",  # what that means stands below
        align="left" if sign > 0 else "right",
        x=float(sign * np.log10(tail.fit_weight[middle])),
        y=float(np.log10(higher)),
        xanchor="left" if sign > 0 else "right",
        yanchor="bottom",
        xshift=4 * sign,
        yshift=2,
        showarrow=False,
        font={"size": 12, "color": mode.text},
    )


def left_out(rows: pd.DataFrame, mode: Mode, steps: _Steps = _ALL) -> go.Figure:
    """Rows without a usable ratio, by step and cause; `rows`: as `analysis.ratios.sentences.left_out` counts them."""
    fig = base.figure(mode, height=200, y_title="rows")
    styles = ("solid", "dash", "dot", "dashdot", "longdash")
    for (name, series), dash in zip(rows.items(), styles, strict=False):
        colour = mode.muted if str(name).startswith("responses") else mode.severity[max(mode.severity)]
        base.add_line(fig, series, name=str(name), colour=colour, dash=dash, number=".0f")
    fig.update_yaxes(rangemode="tozero")
    fig.update_traces(showlegend=True)
    fig.update_layout(margin=WIDE)
    return base.set_steps(fig, steps, rows.index)
