"""Figures of bias and variance: the blind spot, tokens against responses, truncation, the terms of a gradient step."""

from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.facts import STALENESS
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.series import AXIS_ROUNDING, over_steps
from ratioscope.dashboard.theme import Mode

# Below the limit of χ² there is at least so much room, by that above it: two corners have their names there.
_BELOW = 0.4
_RESPONSES = "#009E73"  # what is of whole responses has this colour in every chart

# What a term of the lemma is drawn in, and its name.
TERMS = {
    "A": ("A: true progress", "#009E73"),
    "B": ("B: bias along the gradient", theme.AMBER),
    "C_variance": ("−C: variance", "#CC79A7"),
    "C_bias": ("−C: squared bias", theme.SKY),
}


class Axes(NamedTuple):
    """Ranges that both panels of the blind spot share."""

    tv: tuple[float, float]
    log_chi2: tuple[float, float]
    """Decimal logarithms."""


def blind_spot_axes(points: pd.DataFrame, tv_limit: float, chi2_limit: float) -> Axes:
    """One range for both panels: all finite points and both limits, each with room for a name."""
    tv = points["tv"][np.isfinite(points["tv"])]
    chi2 = points[["chi2_token", "chi2_seq"]].to_numpy(dtype=float)
    logs = np.log10(chi2[np.isfinite(chi2) & (chi2 > AXIS_ROUNDING)])
    limit = np.log10(max(chi2_limit, AXIS_ROUNDING))
    right = max(1.6 * tv_limit, 1.08 * float(tv.max()) if len(tv) else 0.0)
    low, high = min([limit - 2, *logs]), max([limit + 2, *logs])
    low = min(low, limit - _BELOW * (high - limit))
    pad = 0.05 * (high - low)
    return Axes((-0.03 * right, right), (low - pad, high + 2.5 * pad))


def blind_spot(
    points: pd.DataFrame, column: str, mode: Mode, *, axes: Axes, tv_limit: float, chi2_limit: float
) -> go.Figure:
    """Total variation against chi-square, a point a step, joined in their order; limits part the four regimes.

    Args:
        points: `analysis.variance.failure_mode.blind_spot`.
        column: chi2_token or chi2_seq.
    """
    of = "tokens" if column == "chi2_token" else "whole responses"
    fig = base.figure(mode, height=390, x_title="total variation of tokens", y_title=f"χ² of {of}")
    base.log_axis(fig)
    known = points.dropna(subset=["tv", column])
    tv, chi2 = known["tv"], known[column]
    finite = np.isfinite(tv) & np.isfinite(chi2)
    drawn = known[finite & (chi2 > AXIS_ROUNDING)]
    half = base.MOST_POINTS // 2
    drawn = drawn.loc[base.reduce(drawn["tv"], half).index.union(base.reduce(drawn[column], half).index)]
    _add_regimes(fig, mode, axes, tv_limit, chi2_limit)
    if column == "chi2_token":
        _add_least_chi2(fig, axes, mode)
    fig.add_scatter(
        x=drawn["tv"].to_numpy(np.float32),
        y=drawn[column].to_numpy(np.float32),
        mode="lines",
        line={"color": mode.muted, "width": 0.7},
        opacity=0.25,
        hoverinfo="skip",
        showlegend=False,
    )
    trusted = drawn["tv_trusted"] & drawn[f"{column}_trusted"]
    for name, chosen, symbol in (
        ("unreliable", drawn[~trusted], "circle-open"),
        ("reliable", drawn[trusted], "circle"),
    ):
        if len(chosen):
            _add_steps(fig, chosen["tv"], chosen[column], chosen.index, name, symbol)
    low, high = (10.0**end for end in axes.log_chi2)
    beyond, below = known[~finite], known[finite & (chi2 <= AXIS_ROUNDING)]
    for name, marks, height, symbol, anchor in (
        (f"infinite in {len(beyond)} steps", beyond, high / 1.15, "triangle-up", "top"),
        (f"on-policy in {len(below)} steps", below, low * 1.15, "triangle-down", "bottom"),
    ):
        if len(marks):
            shown = marks.iloc[:: -(-len(marks) // base.MOST_POINTS)]
            places = shown["tv"].clip(upper=axes.tv[1])
            _add_steps(fig, places, pd.Series(height, index=shown.index), shown.index, name, symbol, at_edge=True)
            fig.add_annotation(
                x=float(places.max()), y=float(np.log10(height)), text=name, showarrow=False, xanchor="left",
                yanchor=anchor, xshift=8, font={"size": 11, "color": mode.muted},
            )  # fmt: skip
    fig.update_layout(
        hovermode="closest",
        dragmode="zoom",
        showlegend=False,
        margin={"t": 40, "r": 72},
        coloraxis={
            "colorscale": list(zip((0, 1), mode.sequential, strict=True)),
            "cmin": int(points.index.min()) if len(points) else 0,
            "cmax": int(points.index.max()) if len(points) else 1,
            "colorbar": _colour_bar("", mode)
            | {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom", "len": 0.5}
            | {"thickness": 6, "nticks": 4, "ticksuffix": ""},
        },
    )
    fig.add_annotation(
        x=0.48, y=1.02, xref="paper", yref="paper", text="step", showarrow=False, xanchor="right", yanchor="bottom",
        font={"size": 11, "color": mode.muted},
    )  # fmt: skip
    fig.update_xaxes(range=axes.tv, showgrid=False)
    return fig.update_yaxes(range=axes.log_chi2, showgrid=False)


def _add_steps(
    fig: go.Figure, x: "pd.Series[float]", y: "pd.Series[float]", steps: "pd.Index[Any]", name: str, symbol: str,
    *, at_edge: bool = False,
) -> None:  # fmt: skip
    value = "" if at_edge else ", χ² %{y:.3g}"
    fig.add_scatter(
        x=x.to_numpy(np.float32),
        y=y.to_numpy(np.float32),
        customdata=steps.to_numpy(np.int32),
        name=name,
        showlegend=False,
        mode="markers",
        marker={
            "symbol": symbol,
            "size": 8,
            "color": steps.to_numpy(np.int32),
            "coloraxis": "coloraxis",
            "line": {"width": 1.5 if symbol == "circle-open" else 0},
        },
        hovertemplate=f"update %{{customdata}}: total variation %{{x:.3g}}{value}<extra>{name}</extra>",
    )


def _add_legend(fig: go.Figure, name: str, symbol: str, mode: Mode) -> None:
    """A line in the legend for marks whose colour is a number: by itself Plotly would draw it in black."""
    nowhere = np.array([np.nan], np.float32)
    marker = {"symbol": symbol, "size": 8, "color": mode.text, "line": {"width": 1.5, "color": mode.text}}
    fig.add_scatter(x=nowhere, y=nowhere, name=name, mode="markers", marker=marker, hoverinfo="skip")


def _add_least_chi2(fig: go.Figure, axes: Axes, mode: Mode) -> None:
    """TV ≤ √χ² / 2, and beyond χ² = 1 TV ≤ χ² / (1 + χ²): what a chi-square bounds, and nothing the other way."""
    chi2 = np.geomspace(10 ** axes.log_chi2[0], 10 ** axes.log_chi2[1], 200)
    tv = np.where(chi2 <= 1, np.sqrt(chi2) / 2, chi2 / (1 + chi2))
    inside = tv <= axes.tv[1]
    x, y = tv[inside].astype(np.float32), chi2[inside].astype(np.float32)
    corner = np.array([axes.tv[1]] * 2, np.float32), np.array([y[-1], y[0]], np.float32)
    fig.add_scatter(
        x=np.concatenate([x, corner[0]]), y=np.concatenate([y, corner[1]]), name="no policies", mode="lines",
        line={"width": 0}, fill="toself", fillcolor=theme.rgba(mode.grid, 0.7), hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    fig.add_scatter(
        x=x, y=y, name="least χ² at this total variation", showlegend=False, mode="lines",
        line={"color": mode.exact, "width": 1.4, "dash": "dash"}, hoverinfo="skip",
    )  # fmt: skip
    fig.add_annotation(
        x=1, y=0, xref="paper", yref="paper", text="no two policies<br>lie below the curve", showarrow=False,
        xanchor="right", yanchor="bottom", align="right", xshift=-4, font={"size": 11, "color": mode.muted},
    )  # fmt: skip


def _add_regimes(fig: go.Figure, mode: Mode, axes: Axes, tv_limit: float, chi2_limit: float) -> None:
    """What lies beyond each limit as a region, and what each corner is called."""
    (left, right), (low, high), limit = axes.tv, axes.log_chi2, float(np.log10(max(chi2_limit, AXIS_ROUNDING)))
    (_, bias), (_, variance) = TERMS["B"], TERMS["C_variance"]
    for colour, ends in (
        (bias, {"x0": tv_limit, "x1": right, "y0": 10**low, "y1": 10**high}),
        (variance, {"x0": left, "x1": right, "y0": 10**limit, "y1": 10**high}),
    ):
        fig.add_shape(type="rect", **ends, fillcolor=theme.rgba(colour, 0.1), line={"width": 0}, layer="below")
    line = {"color": mode.muted, "width": 1, "dash": "dot"}
    fig.add_vline(x=tv_limit, line=line)
    fig.add_hline(y=10**limit, line=line)
    said = {"showarrow": False, "font": {"size": 11, "color": mode.muted}}
    fig.add_annotation(
        x=tv_limit, y=low, text=f"limit {tv_limit:.3g}", xanchor="left", yanchor="bottom", xshift=2, **said
    )
    fig.add_annotation(
        x=1, xref="paper", y=limit, text=f"limit {chi2_limit:.3g}", xanchor="left", align="left",
        xshift=4, **said,
    )  # fmt: skip
    corners = (
        ("<b>variance</b>,<br>not seen in TV", left, high, "left", "top"),
        ("<b>bias</b> and<br><b>variance</b>", right, high, "right", "top"),
        ("<b>bias</b>", right, limit, "right", "top"),
    )
    for name, x, y, side, edge in corners:
        fig.add_annotation(
            x=x, y=y, text=name, showarrow=False, xshift=4 if side == "left" else -4, xanchor=side, yanchor=edge,
            align=side, font={"size": 12, "color": mode.text}, bgcolor=theme.rgba(mode.surface, 0.6), borderpad=1,
        )  # fmt: skip


def _colour_bar(title: str, mode: Mode) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 11, "color": mode.muted}},
        "tickfont": {"color": mode.muted, "size": 11},
        "thickness": 10,
        "outlinewidth": 0,
        "nticks": 6,
    }


def staleness_of_levels(
    summary: StepSummary, responses: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None]
) -> go.Figure:
    """Staleness of tokens, and the same distance over whole responses (`failure_mode.response_staleness`)."""
    inside = summary.up_to(*((responses.index.min(), responses.index.max()) if len(responses) else (None, None)))
    fig = over_steps(inside, [STALENESS], mode, y_title="total variation", height=280, steps=steps)
    for trace in fig.data:
        if trace.name and trace.mode == "lines" and trace.fill is None:
            trace.update(name="tokens", showlegend=True)
    base.add_band(fig, responses["low"], responses["high"], _RESPONSES)
    base.add_line(fig, responses["tv"], name="whole responses", colour=_RESPONSES, number=".3g")
    return fig


def truncation_curve(
    caps: pd.DataFrame, variance_doubted: "pd.Series[bool]", own: dict[str, float | str], mode: Mode
) -> go.Figure:
    """Bias against variance as the cap C varies, C written at the points; colour is the effective sample size.

    Args:
        caps: indexed by C, with bias_proxy, variance_proxy and ess.
        variance_doubted: by C: its variance cannot be trusted, an open mark.
        own: bias_proxy and variance_proxy of the run's own rule; empty: not drawn.
    """
    fig = base.figure(
        mode, height=400, x_title="bias: share of the ratio's mass removed by the cap", y_title="variance: mean v²"
    )
    known = caps[np.isfinite(caps["bias_proxy"]) & np.isfinite(caps["variance_proxy"])]
    bias, variance = (known[key].to_numpy(np.float32) for key in ("bias_proxy", "variance_proxy"))
    fig.add_scatter(
        x=bias, y=variance, mode="lines", line={"color": mode.muted, "width": 1}, hoverinfo="skip", showlegend=False
    )
    open_mark = variance_doubted.reindex(known.index).fillna(False).to_numpy(dtype=bool)
    for name, chosen, symbol in (("cap C", ~open_mark, "circle"), ("variance unreliable", open_mark, "circle-open")):
        if not chosen.any():
            continue
        fig.add_scatter(
            x=bias[chosen],
            y=variance[chosen],
            customdata=np.stack([known.index[chosen].astype(float), known["ess"].to_numpy(float)[chosen]], axis=-1),
            name=name,
            showlegend=False,
            mode="markers",
            marker={
                "symbol": symbol, "size": 11, "color": known["ess"].to_numpy(np.float32)[chosen],
                "coloraxis": "coloraxis", "line": {"width": 2 if symbol == "circle-open" else 0},
            },
            hovertemplate="C = %{customdata[0]:g}: bias %{x:.3g}, variance %{y:.3g}, "
            "effective sample size %{customdata[1]:.1%}<extra></extra>",
        )  # fmt: skip
        _add_legend(fig, name, symbol, mode)
    _add_caps(fig, known, mode)
    own_bias, own_variance = (float(own.get(key, np.nan)) for key in ("bias_proxy", "variance_proxy"))
    if isfinite(own_bias) and isfinite(own_variance):
        fig.add_scatter(
            x=np.array([own_bias], np.float32),
            y=np.array([own_variance], np.float32),
            name="this run's rule",
            mode="markers",
            marker={"symbol": "diamond", "size": 13, "color": theme.NEW},
            hovertemplate="this run's rule: bias %{x:.3g}, variance %{y:.3g}<extra></extra>",
        )
    if len(variance) and variance.min() > 0 and variance.max() > 10 * variance.min():
        base.log_axis(fig)
    fig.update_layout(
        hovermode="closest",
        dragmode="zoom",
        coloraxis={
            "colorscale": list(zip((0, 1), mode.sequential, strict=True)),
            "cmin": 0,
            "cmax": 1,
            "colorbar": _colour_bar("ESS", mode) | {"tickformat": ".0%"},
        },
    )
    right = max([*bias, own_bias if isfinite(own_bias) else 0.0, 1e-6])
    return fig.update_xaxes(showgrid=True, range=[-0.03 * right, 1.12 * right], tickformat="~p")


def _add_caps(fig: go.Figure, known: pd.DataFrame, mode: Mode) -> None:
    """C beside its point, where it does not cover the name of the one before."""
    bias, variance = known["bias_proxy"].to_numpy(float), known["variance_proxy"].to_numpy(float)
    if not len(bias):
        return
    width, height = (np.ptp(values) or 1.0 for values in (bias, np.log(np.maximum(variance, 1e-12))))
    kept: list[int] = []
    for place in range(len(bias)):
        near = [
            abs(bias[place] - bias[other]) / width < 0.05
            and abs(np.log(max(variance[place], 1e-12) / max(variance[other], 1e-12))) / height < 0.06
            for other in kept
        ]
        if not any(near):
            kept.append(place)
    fig.add_scatter(
        x=bias[kept].astype(np.float32),
        y=variance[kept].astype(np.float32),
        mode="text",
        text=["no cap" if np.isinf(known.index[place]) else f"C = {known.index[place]:g}" for place in kept],
        textposition="top right",
        textfont={"size": 11, "color": mode.muted},
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )


def lemma_bars(terms: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """A, B and the parts of -C stacked with their signs, a bar a probe; their sum with its standard error on it.

    Args:
        terms: `analysis.variance.failure_mode.lemma_terms`, of one estimator.
    """
    fig = base.figure(mode, height=340, y_title="expected gain per step")
    shown = terms.iloc[:: max(1, -(-len(terms) // base.MOST_POINTS))]
    x = shown["step"].to_numpy(np.int32)
    wide = 0.5 * float(np.diff(x).min()) if len(x) > 1 and np.diff(x).min() > 0 else 1.0
    for key, (name, colour) in TERMS.items():
        sign = -1 if key.startswith("C") else 1
        fig.add_bar(
            x=x,
            y=(sign * shown[key]).to_numpy(np.float32),
            width=wide,
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y:.3g}",
        )
    fig.add_scatter(
        x=x,
        y=shown["total"].to_numpy(np.float32),
        error_y={"type": "data", "array": shown["total_error"].to_numpy(np.float32), "color": mode.text, "width": 4},
        name="A + B − C ± standard error",
        mode="markers",
        marker={"symbol": "diamond", "size": 9, "color": mode.text},
        hovertemplate="%{y:.3g}",
    )
    fig.update_layout(barmode="relative")
    fig.update_yaxes(zeroline=True, zerolinecolor=mode.muted)
    pad = pd.Index([int(x.min() - wide), int(x.max() + wide)]) if len(x) else pd.Index([], dtype=int)
    return base.set_steps(fig, steps, pad)


def lemma_over_learning_rates(curve: pd.DataFrame, chosen: float, mode: Mode) -> go.Figure:
    """A + B - C of one probe over learning rates, with one standard error as band and the chosen rate as a line."""
    fig = base.figure(mode, height=340, x_title="learning rate η", y_title="A + B − C")
    eta = curve.index.to_numpy(np.float32)
    total, error = (curve[key].to_numpy(np.float32) for key in ("total", "total_error"))
    fig.add_scatter(
        x=np.concatenate([eta, eta[::-1]]),
        y=np.concatenate([total + error, (total - error)[::-1]]),
        fill="toself",
        fillcolor=theme.rgba(theme.CURRENT, 0.15),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
    )
    fig.add_scatter(
        x=eta, y=total, name="A + B − C", mode="lines", line={"color": theme.CURRENT, "width": 2},
        hovertemplate="η = %{x:.2g}: %{y:.3g}<extra></extra>", showlegend=False,
    )  # fmt: skip
    fig.add_vline(x=chosen, line={"color": mode.muted, "width": 1, "dash": "dash"})
    fig.add_annotation(
        x=np.log10(chosen), y=1, yref="paper", yanchor="bottom", text=f"η = {chosen:g}", showarrow=False,
        font={"size": 11, "color": mode.muted},
    )  # fmt: skip
    fig.add_hline(y=0, line={"color": mode.muted, "width": 1})
    fig.update_xaxes(type="log", exponentformat="power", dtick=1, showgrid=True)
    return fig.update_layout(hovermode="closest", dragmode="zoom")
