"""Figures of how heavy tails are: the tail index over steps in its named zones, ratios against the length."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.ratios.growth import KINDS, Growth
from ratioscope.analysis.ratios.sentences import mean_limits, unfitted
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.ratios import WIDE, finer_log_ticks
from ratioscope.dashboard.theme import Mode
from ratioscope.metric import KHAT_LIMIT, Moment
from ratioscope.tails import Array

_Steps = tuple[int | None, int | None]

# Where each zone of the tail index ends, and what holds in it (Vehtari et al.; squares: their index is twice as large).
ZONES = (
    (KHAT_LIMIT[Moment.SECOND], "squares usable"),
    (0.5, "means good"),
    (KHAT_LIMIT[Moment.FIRST], "means usable"),
    (1.0, "unreliable"),
    (np.inf, "meaningless"),
)
_ZONE_STRENGTH = (0.0, 0.05, 0.10, 0.17, 0.26)
_KHAT_TICKS = np.array([-7, -3, -1, 0, 0.35, 0.5, 0.7, 1, 2, 4, 8, 16, 64])
_TRACE_COLOURS = {"token": "#8C4BB8", "geometric": "#009E73", "product": theme.CURRENT}
_NAMES = {"token": "token ratio", "geometric": "geometric mean", "product": "product"}
# Markers of the three kinds stand side by side.
_OFFSETS = {"token": 0.95, "geometric": 1.0, "product": 1.05}
# The 5 % and 95 % quantiles of a normal distribution, in standard deviations.
_NORMAL_95 = 1.6449


def khat_place(khat: Array) -> Array:
    """Where a tail index stands on its axis: linear from 0 to 1, where all the limits are, logarithmic outside."""
    inside = np.clip(khat, 0, 1)
    return np.asarray(inside + (np.log2(np.maximum(khat, 1)) - np.log2(1 - np.minimum(khat, 0))) / 2)


def tail_index(
    summary: StepSummary,
    mode: Mode,
    steps: _Steps = (None, None),
    keys: tuple[str, ...] = ("khat_token", "khat_token_new", "khat_seq"),
) -> go.Figure:
    """Tail indices over steps in shaded, named zones; open circles at the bottom where none could be fitted.

    The dotted lines are from where on means fail with as few ratios as a step has (min(1 - 1/log10 n, 0.7)).
    """
    fig = base.figure(mode, height=400, y_title="tail index k̂")
    drawn = {key: summary.values[key] for key in keys}
    known = np.concatenate([series[np.isfinite(series)].to_numpy() for series in drawn.values()])
    low = min(-0.15, float(khat_place(np.array(known.min(initial=0.0)))) - 0.1)
    high = max(1.3, float(khat_place(np.array(known.max(initial=0.0)))) + 0.1)
    _zones(fig, mode, low, high)
    limits: dict[str, pd.Series[float]] = {}
    for key, series in drawn.items():
        if not np.isfinite(series).any() and not np.isinf(series).any():
            continue
        _index_line(fig, key, series)
        base.add_infinite(fig, series, mode)
        sample = CATALOGUE[key].sample
        limits.setdefault(sample, mean_limits(summary.values[sample]))
    for size, limit in limits.items():
        if (limit < KHAT_LIMIT[Moment.FIRST] - 0.005).any():
            places = pd.Series(khat_place(np.asarray(limit, dtype=float)), index=limit.index)
            what = "sequences" if size == "n_sequences" else "tokens"
            colour = theme.metric_colour("khat_seq" if what == "sequences" else "khat_token")
            base.add_line(fig, places, name=f"limit for means, n = {what}", colour=colour, dash="dot", width=1)
    for key in drawn:
        _not_fitted(fig, key, summary, mode)
    ticks = _KHAT_TICKS[(khat_place(_KHAT_TICKS) >= low) & (khat_place(_KHAT_TICKS) <= high)]
    axis = {"tickvals": khat_place(ticks), "ticktext": [f"{tick:g}" for tick in ticks], "range": [low, high]}
    fig.update_layout(yaxis=axis | {"showgrid": False, "zeroline": False})  # not the axes of the edge marks
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)


def _zones(fig: go.Figure, mode: Mode, low: float, high: float) -> None:
    colour, start = mode.severity[max(mode.severity)], low
    for (end, name), strength in zip(ZONES, _ZONE_STRENGTH, strict=True):
        top = min(high, float(khat_place(np.array(min(end, 1e9)))))
        fig.add_hrect(y0=start, y1=top, fillcolor=theme.rgba(colour, strength), line_width=0, layer="below")
        fig.add_annotation(
            text=name,
            x=1,
            xref="paper",
            y=(start + top) / 2,
            xanchor="left",
            xshift=6,
            showarrow=False,
            font={"size": 11, "color": mode.muted},
        )
        start = top
    fig.update_layout(margin=WIDE)


def _index_line(fig: go.Figure, key: str, series: "pd.Series[float]") -> None:
    shown = base.reduce(series.where(np.isfinite(series)))
    fig.add_scatter(
        x=shown.index.to_numpy(np.int32),
        y=khat_place(np.asarray(shown, dtype=float)).astype(np.float32),
        customdata=shown.to_numpy(np.float32),
        name=CATALOGUE[key].label.removeprefix("Tail index, "),
        mode="lines+markers" if len(shown) < 60 else "lines",
        line={"color": theme.metric_colour(key), "width": 1.8},
        marker={"size": 4},
        showlegend=True,
        hovertemplate="k̂ %{customdata:.2f}",
        connectgaps=False,
    )


def _not_fitted(fig: go.Figure, key: str, summary: StepSummary, mode: Mode) -> None:
    reasons = unfitted(summary, key)
    if not len(reasons) or len(reasons) == len(summary.values):  # said in words where there is none at all
        return
    shown = reasons.iloc[:: -(-len(reasons) // base.MOST_POINTS)]
    fig.add_scatter(
        x=shown.index.to_numpy(np.int32),
        y=np.full(len(shown), 0.03, np.float32),
        yaxis="y2",
        name="not fitted",
        showlegend=not any(trace.name == "not fitted" for trace in fig.data),
        text=[base.plotly_text(reason) for reason in shown],
        mode="markers",
        marker={"symbol": "circle-open", "size": 6, "color": theme.metric_colour(key), "line": {"width": 1.2}},
        hovertemplate="not fitted: %{text}<extra></extra>",
    )
    fig.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


def ratio_by_length(growth: Growth, mode: Mode) -> go.Figure:
    """Median, middle half and middle 90 % of each kind of ratio against the number of tokens.

    The dashed lines are where independent tokens with a normal log-ratio would have their middle 90 %.
    """
    fig = _length_figure(growth, mode, "ratio")
    for kind in KINDS:
        rows, colour = _of_kind(growth, kind), _TRACE_COLOURS[kind]
        x = rows["tokens"].to_numpy() * _OFFSETS[kind]
        median = _positive(rows["p50"])
        for low, high, thickness in (("p05", "p95", 1.2), ("p25", "p75", 5.0)):
            below, above = _positive(rows[low]), _positive(rows[high])
            fig.add_scatter(
                x=x,
                y=median,
                error_y={
                    "array": above - median,
                    "arrayminus": median - below,
                    "symmetric": False,
                    "thickness": thickness,
                    "width": 0,
                    "color": colour if thickness < 2 else theme.rgba(colour, 0.45),
                },
                mode="markers",
                marker={"size": 7, "color": colour},
                name=_NAMES[kind],
                legendgroup=kind,
                showlegend=low == "p05",
                customdata=rows[["p05", "p95", "n", "tokens"]].to_numpy(dtype=float),
                hovertemplate="first %{customdata[3]} tokens of %{customdata[2]} responses: median %{y:.3g}, "
                "middle 90% from %{customdata[0]:.3g} to %{customdata[1]:.3g}<extra></extra>",
            )
        for side in (-1, 1):
            with np.errstate(over="ignore"):
                edge = median * np.exp(side * _NORMAL_95 * rows["spread_independent"].to_numpy(dtype=float))
            _theory(fig, rows["tokens"], edge, colour, named=side < 0 and kind == KINDS[0])
    finer_log_ticks(fig, _drawn_y(fig))
    base.add_threshold(fig, 1.0, "on-policy", mode)
    return fig


def spread_by_length(growth: Growth, mode: Mode, buckets: pd.DataFrame | None = None) -> go.Figure:
    """Spread of the log-ratio with its 95 % interval against the number of tokens, and what independence would give.

    Args:
        buckets: of finished responses by their length, as `lengths.length_trap` has them; drawn as squares.
    """
    fig = _length_figure(growth, mode, "standard deviation of the log-ratio (nats)")
    for number, kind in enumerate(KINDS):
        rows, colour = _of_kind(growth, kind), _TRACE_COLOURS[kind]
        _with_interval(fig, rows["tokens"], rows, name=_NAMES[kind], colour=colour, symbol="circle", line=True)
        _theory(fig, rows["tokens"], _positive(rows["spread_independent"]), colour, named=number == 0)
    if buckets is not None and len(buckets) > 1:
        rows = buckets.rename(columns={"spread_log_w": "spread"})
        rows = rows.rename(columns={"spread_log_w_low": "spread_low", "spread_log_w_high": "spread_high"})
        name, colour = "product, finished responses by length", mode.text
        _with_interval(fig, rows["mean_length"], rows, name=name, colour=colour, symbol="square", line=False)
    finer_log_ticks(fig, _drawn_y(fig))
    return fig


def _drawn_y(fig: go.Figure) -> Array:
    return np.concatenate([np.asarray(trace.y, dtype=float) for trace in fig.data])


def _length_figure(growth: Growth, mode: Mode, y_title: str) -> go.Figure:
    fig = base.figure(mode, height=360, x_title="tokens", y_title=y_title)
    base.log_axis(fig)
    ticks = sorted(set(growth.rows["tokens"].tolist()))
    fig.update_xaxes(type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], showgrid=False)
    fig.update_layout(hovermode="closest", dragmode="zoom")
    return fig


def _of_kind(growth: Growth, kind: str) -> pd.DataFrame:
    return growth.rows[growth.rows["kind"] == kind]


def _positive(values: "pd.Series[float]") -> Array:
    """What a logarithmic axis has a place for; NaN elsewhere."""
    numbers = values.to_numpy(dtype=float)
    return np.where((numbers > 0) & np.isfinite(numbers), numbers, np.nan)


def _theory(fig: go.Figure, tokens: "pd.Series[int]", y: Array, colour: str, *, named: bool) -> None:
    fig.add_scatter(
        x=tokens.to_numpy(np.int32),
        y=y,
        mode="lines",
        name="independent tokens",
        legendgroup="theory",
        showlegend=named,
        line={"color": colour, "width": 1.2, "dash": "dash"},
        hoverinfo="skip",
    )


def _with_interval(
    fig: go.Figure,
    x: "pd.Series[float]",
    rows: pd.DataFrame,
    *,
    name: str,
    colour: str,
    symbol: str,
    line: bool,
) -> None:
    value, low, high = (_positive(rows[end]) for end in ("spread", "spread_low", "spread_high"))
    fig.add_scatter(
        x=x.to_numpy(np.float32),
        y=value,
        error_y={
            "array": np.nan_to_num(high - value),
            "arrayminus": np.nan_to_num(value - low),
            "symmetric": False,
            "thickness": 1.2,
            "width": 3,
            "color": colour,
        },
        mode="lines+markers" if line else "markers",
        marker={"size": 7, "color": colour, "symbol": symbol},
        line={"color": colour, "width": 1.8},
        name=name,
        hovertemplate="%{x:.3~s} tokens: %{y:.3g} nats<extra></extra>",
    )
