"""Figures of the Drift page: the path of policies, the triangle, exact against sampled, the certificate's terms."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.findings.facts import PPO, STALENESS, Cause
from ratioscope.analysis.findings.numbers import interval_text
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.series import label, over_steps
from ratioscope.dashboard.formats import plain_number
from ratioscope.dashboard.theme import Mode
from ratioscope.notes import Kind

_CLIPPED = theme.metric_colour(PPO)
# In the form of the headlines, in which the edges add up to at least the direct ways.
_TV = "tv_bounded"
_OTHERS = {"kl_k3": "KL", "chi2": "χ²"}
# What the way between two policies is called.
PARTS = {
    "behavior_train/behavior": "engine",
    "current/behavior_train": "age",
    "current/behavior": "staleness",
    "new/current": "update",
    "new/behavior": "what PPO clips",
}


def path_diagram(frame: pd.DataFrame, mode: Mode) -> go.Figure:
    """The policies in a row, an edge a pair: as wide as its total variation, which is written at it with its interval.

    The direct ways stand below the row: staleness (where it has two parts) and what PPO clips. What else is measured
    of a pair is said where one points at it, and in the table.

    Args:
        frame: `analysis.drift.pairs.measure`, not by step.
    """
    of = {(row["pair"], row["metric"]): row for row in frame.to_dict("records")}
    recomputed = not np.isnan(of["behavior_train/behavior", _TV]["value"])
    nodes = {"behavior": mode.behavior, "recomputed": mode.behavior, "current": theme.CURRENT, "new": theme.NEW}
    names = [name for name in nodes if recomputed or name != "recomputed"]
    place = {name: float(number) for number, name in enumerate(names)}
    if recomputed:
        edges = [
            ("behavior_train/behavior", "behavior", "recomputed", mode.behavior),
            ("current/behavior_train", "recomputed", "current", theme.CURRENT),
            ("new/current", "current", "new", theme.NEW),
        ]
        bows = [("current/behavior", "behavior", "current", theme.CURRENT, -0.6)]
    else:
        edges = [
            ("current/behavior", "behavior", "current", theme.CURRENT),
            ("new/current", "current", "new", theme.NEW),
        ]
        bows = []
    bows.append(("new/behavior", "behavior", "new", _CLIPPED, -1.4 if recomputed else -1.0))
    fig = base.figure(mode, height=270 if recomputed else 210, x_title="")
    tvs = [row["value"] for (_, metric), row in of.items() if metric == _TV]
    largest = max([value for value in tvs if np.isfinite(value)], default=0.0)
    for pair, start, end, colour in edges:
        ends = np.array([place[start] + 0.09, place[end] - 0.15], np.float32)
        _add_edge(fig, of, pair, ends, np.zeros(2, np.float32), colour, largest)
        _add_label(fig, of, pair, (place[start] + place[end]) / 2, 0.3, "bottom", mode)
    for pair, start, end, colour, depth in bows:
        t = np.linspace(0.02, 0.98, 97)
        x = place[start] + (place[end] - place[start]) * t
        y = depth * 4 * t * (1 - t) - 0.12
        _add_edge(fig, of, pair, x.astype(np.float32), y.astype(np.float32), colour, largest)
        _add_label(fig, of, pair, (place[start] + place[end]) / 2, depth - 0.2, "top", mode, in_a_row=True)
    fig.add_scatter(
        x=np.array(list(place.values()), np.float32),
        y=np.zeros(len(place), np.float32),
        mode="markers+text",
        text=names,
        textposition="top center",
        textfont={"size": 12, "color": mode.muted},
        marker={"size": 15, "color": [nodes[name] for name in names], "line": {"width": 2, "color": mode.surface}},
        cliponaxis=False,
        hoverinfo="skip",
    )
    fig.update_layout(showlegend=False, hovermode="closest", dragmode=False, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    fig.update_xaxes(visible=False, range=[-0.35, len(names) - 0.65], fixedrange=True)
    return fig.update_yaxes(visible=False, range=[-2.0 if recomputed else -1.6, 1.25], fixedrange=True)


def _add_edge(fig: go.Figure, of: dict[Any, Any], pair: str, x: Any, y: Any, colour: str, largest: float) -> None:
    row = of[pair, _TV]
    known = np.isfinite(row["value"])
    width = 1.5 + 9 * row["value"] / largest if known and largest > 0 else 1.5
    doubtful = not known or row["note_kind"] == Kind.UNRELIABLE
    middle = len(x) // 2
    numbers = ", ".join(f"{name} {_value(of[pair, key])}" for key, name in {_TV: "TV", **_OTHERS}.items())
    fig.add_scatter(
        x=x, y=y, mode="lines",
        line={"color": colour, "width": width, "dash": "dot" if doubtful else "solid", "simplify": False},
        hoverinfo="skip", opacity=0.85,
    )  # fmt: skip
    fig.add_scatter(
        x=np.array([x[-1] if len(x) == 2 else x[middle]], np.float32),
        y=np.array([y[-1] if len(y) == 2 else y[middle]], np.float32),
        mode="markers",
        marker={"symbol": "triangle-right", "size": 8 + width, "color": colour},
        hovertemplate=f"{pair}: {numbers}<extra></extra>",
    )


def _value(row: dict[str, Any]) -> str:
    return plain_number(float(row["value"]), row["low"], row["high"])


def _ends(row: dict[str, Any]) -> str:
    if np.isnan(row["value"]):
        return "not logged" if row["note_kind"] == Kind.NOT_LOGGED else "missing"
    low, high = row["low"], row["high"]
    return interval_text(low, high, plain_number(low, low, high), plain_number(high, low, high)) or "no interval"


def _add_label(
    fig: go.Figure, of: dict[Any, Any], pair: str, x: float, y: float, anchor: str, mode: Mode,
    *, in_a_row: bool = False,
) -> None:  # fmt: skip
    """Which part of the path it is, its total variation and the interval of that; below each other, or in a row."""
    row = of[pair, _TV]
    value = "" if np.isnan(row["value"]) else f"<b>{_value(row)}</b>"
    ends = f"<span style='font-size:11px'>{_ends(row)}</span>"
    fig.add_annotation(
        x=x, y=y, text=("  " if in_a_row else "<br>").join(filter(None, (PARTS[pair], value, ends))),
        showarrow=False, yanchor=anchor, font={"size": 13, "color": mode.text},
        bgcolor=theme.rgba(mode.surface, 0.8 if in_a_row else 0.0),
    )  # fmt: skip


def triangle(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """S and U stacked, and the distance of the new policy from the data: at most their sum, in the bounded form."""
    fig = base.figure(mode, y_title="total variation")
    update = Cause.UPDATE.key
    columns = summary.values[[STALENESS, update, PPO]]
    known = columns[np.isfinite(columns).all(axis=1)]
    both = base.reduce(known[STALENESS] + known[update])
    for name, series, colour, fill in (
        (label(STALENESS), known[STALENESS].loc[both.index], theme.CURRENT, "tozeroy"),
        ("Update on top", both, theme.NEW, "tonexty"),
    ):
        fig.add_scatter(
            x=series.index.to_numpy(np.int32),
            y=base.single(series),
            name=name,
            mode="lines" if len(series) > 1 else "lines+markers",
            line={"color": colour, "width": 1},
            fill=fill,
            fillcolor=theme.rgba(colour, 0.35),
            hovertemplate="%{y:.3g}",
        )
    base.add_line(fig, known[PPO], name=label(PPO), colour=_CLIPPED, width=2.2, metric=PPO)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    fig.update_yaxes(rangemode="tozero")
    return base.set_steps(fig, steps, summary.values.index)


def sampled_and_exact(
    summary: StepSummary, key: str, exact_key: str, mode: Mode, steps: tuple[int | None, int | None]
) -> go.Figure:
    """A sampled distance with its band, and the exact one as a dashed line."""
    fig = over_steps(summary, [key], mode, y_title="total variation", height=280, steps=steps)
    for trace in fig.data:
        if trace.name == label(key):
            trace.update(name="sampled", showlegend=True)
    exact = summary.values[exact_key]
    base.add_line(
        fig, exact.where(np.isfinite(exact)), name="exact", colour=mode.exact, dash="dash", width=1.6, number=".3g"
    )
    return fig


def standard_errors(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """How many standard errors the sampled distances lie from the exact ones."""
    fig = base.figure(mode, y_title="standard errors", height=260)
    for key, colour in (("s_k_exact_z", theme.CURRENT), ("u_k_exact_z", theme.NEW)):
        series = summary.values[key]
        if series.notna().any():
            finite = series.where(np.isfinite(series))
            base.add_line(fig, finite, name=label(key), colour=colour, number=".2g", metric=key)
    for value in (-3.0, 3.0):
        base.add_threshold(fig, value, f"{value:+g}", mode)
    fig.update_yaxes(zeroline=True)
    return base.set_steps(fig, steps, summary.values.index)


# The certificate's terms with the sign that they have in the bound.
_TERMS = (
    ("surrogate", 1, "L: surrogate", "#009E73"),
    ("update_penalty", -1, "−C₁U: update", theme.NEW),
    ("staleness_penalty", -1, "−C₂S: staleness", theme.CURRENT),
)
# Terms go from thousandths to hundreds of a reward: linear below this, logarithmic beyond.
_LINEAR = 0.01
_TICKS = np.array([-1000, -100, -10, -1, -0.1, -0.01, 0, 0.01, 0.1, 1, 10, 100, 1000])


def certificate_terms(terms: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """The terms with their signs and the bound they add up to, on an axis that is linear near 0 and logarithmic beyond.

    Args:
        terms: of `analysis.drift.certificate.Certificate`.
    """
    fig = base.figure(mode, y_title="reward (linear below 0.01)", height=360)
    low, high = 0.0, 0.0
    for key, sign, name, colour in (*_TERMS, ("improvement_bound", 1, "bound: their sum", mode.text)):
        value = terms[key].astype(float) * sign
        below, above = (_bent(terms[f"{key}_{end}"].astype(float) * sign) for end in ("low", "high"))
        base.add_band(fig, below, above, colour)
        shown = _bent(value.where(np.isfinite(value)))
        kept = base.reduce(shown)
        fig.add_scatter(
            x=kept.index.to_numpy(np.int32),
            y=base.single(kept),
            customdata=value.loc[kept.index].to_numpy(np.float32),
            name=name,
            mode="lines+markers" if len(kept) == 1 else "lines",
            line={"color": colour, "width": 2.4 if key == "improvement_bound" else 1.6},
            hovertemplate="%{customdata:.3g}",
        )
        base.add_infinite(fig, value, mode)
        known = shown.dropna()
        if len(known):
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    gap = terms["largest_gap"].astype(float).median()
    if np.isfinite(gap) and gap > 0:
        place = float(_bent(pd.Series([-gap])).iloc[0])
        base.add_threshold(fig, place, "−largest<br>difference<br>of returns", mode)
        fig.update_layout(margin={"r": 96})
        low = min(low, place)
    ticks = _bent(pd.Series(_TICKS, dtype=float)).to_numpy()
    inside = (ticks >= low - 1) & (ticks <= high + 1)
    fig.update_yaxes(
        tickvals=ticks[inside], ticktext=[f"{tick:g}" for tick in _TICKS[inside]], zeroline=True,
        zerolinecolor=mode.muted, range=[low - 0.6, high + 0.6],
    )  # fmt: skip
    return base.set_steps(fig, steps, terms.index)


def gains(found: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """The measured improvement on held-out prompts with its interval, and that of the batch; of `promises.gains`."""
    fig = base.figure(mode, y_title="reward", height=280)
    base.add_band(fig, found["gain_low"], found["gain_high"], theme.NEW)
    for key, name, colour in (("gain_in_sample", "in-sample", mode.muted), ("gain", "held out", theme.NEW)):
        base.add_line(fig, found[key].where(np.isfinite(found[key])), name=name, colour=colour)
    fig.update_yaxes(zeroline=True, zerolinecolor=mode.muted)
    return base.set_steps(fig, steps, found.index)


def _bent(values: "pd.Series[float]") -> "pd.Series[float]":
    """Linear near 0, logarithmic beyond."""
    return pd.Series(np.arcsinh(values.to_numpy() / _LINEAR), index=values.index)


def infeasible_share(found: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None]) -> go.Figure:
    """Share of states where no policy is near all versions, with its 95 % interval; `analysis.drift.feasibility`."""
    fig = base.figure(mode, y_title="share of states", height=260)
    share, low, high = (found[key].astype(float) for key in ("infeasible_share", "infeasible_low", "infeasible_high"))
    base.add_band(fig, low, high, theme.CURRENT)
    base.add_line(fig, share, name="infeasible states", colour=theme.CURRENT, legend=False, number=".1%")
    fig.update_yaxes(tickformat="~p", rangemode="tozero")
    return base.set_steps(fig, steps, found.index)
