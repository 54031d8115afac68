"""Figures of the data's age: lags over the steps, metrics by lag, filters by their value, versions in responses."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import is_share
from ratioscope.dashboard.theme import Mode
from ratioscope.notes import Kind

MOST_COLUMNS, MOST_ROWS = 400, 60


def lag_heat_map(
    lags: pd.DataFrame, summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)
) -> go.Figure:
    """Step by version lag; colour is the share of the step's tokens.

    Args:
        lags: of `analysis.staleness.versions.sampled_by`; more steps or lags than fit are put together.
    """
    fig = base.figure(mode, height=280, y_title="version lag, updates")
    known = lags.dropna()
    if not len(known):
        return fig
    wide = int(np.ceil((known["step"].max() - known["step"].min() + 1) / MOST_COLUMNS))
    tall = int(np.ceil((known["lag"].max() - known["lag"].min() + 1) / MOST_ROWS))
    # Counted in cells: a lag of 2^60, which a wrong version gives, has no neighbour among the numbers of a computer.
    column, row = ((known[name] // size).to_numpy(int) for name, size in (("step", wide), ("lag", tall)))
    x, y = (wide * np.arange(column.min(), column.max() + 1), tall * np.arange(row.min(), row.max() + 1))
    counts = np.zeros((len(y), len(x)))
    np.add.at(counts, (row - row.min(), column - column.min()), known["tokens"].to_numpy())
    with np.errstate(invalid="ignore"):
        share = counts / counts.sum(axis=0)
    fig.add_heatmap(
        x=(x + (wide - 1) / 2).astype(np.float32),
        y=(y + (tall - 1) / 2).astype(np.float32),
        z=np.where(share > 0, share, np.nan).astype(np.float32),
        hovertemplate="step %{x}, lag %{y}: %{z:.1%} of the tokens<extra></extra>",
        colorscale=list(zip((0, 0.5, 1), mode.share, strict=True)),
        zmin=0,
        zmax=1,
        colorbar={
            "title": {"text": "tokens", "font": {"size": 11, "color": mode.muted}},
            "tickformat": ".0%",
            "nticks": 5,
            "tickfont": {"color": mode.muted, "size": 11},
            "thickness": 10,
            "outlinewidth": 0,
        },
    )
    fig.update_yaxes(showgrid=False, zeroline=False, dtick=1 if len(y) <= 10 else None)
    fig.update_layout(hovermode="closest")
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)


def one_lag_a_step(
    lags: pd.DataFrame, summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)
) -> go.Figure:
    """Age over the steps where all tokens of a step are of one age: a line, no map."""
    fig = base.figure(mode, height=280, y_title="version lag, updates")
    base.add_line(fig, lags.set_index("step")["lag"], name="version lag", colour=mode.behavior, legend=False)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    fig.update_yaxes(rangemode="tozero")
    return base.set_steps(fig, steps, summary.values.index)


def by_lag(rows: pd.DataFrame, key: str, title: str, mode: Mode, limits: tuple[Limit, ...] = ()) -> go.Figure:
    """A metric by lag as bars with 95 % intervals; open circles where it is unreliable.

    Args:
        rows: of `analysis.summary.strata.Strata.metric`.
        key: of the metric.
        title: of the y axis.
    """
    fig = base.figure(mode, height=280, x_title="version lag, updates", y_title=title)
    rows = rows.assign(label=rows["label"].str.removeprefix("lag "))
    shown = rows[np.isfinite(rows["value"])]
    fig.add_bar(
        x=shown["label"],
        y=shown["value"].to_numpy(np.float32),
        marker={"color": np.where(shown["label"] == "all", mode.behavior, theme.metric_colour(key))},
        error_y={
            "type": "data",
            "array": (shown["high"] - shown["value"]).to_numpy(np.float32),
            "arrayminus": (shown["value"] - shown["low"]).to_numpy(np.float32),
            "color": mode.text,
            "thickness": 1.2,
            "width": 4,
        },
        customdata=np.stack([shown["n_tokens"], shown["note"]], axis=-1),
        hovertemplate="lag %{x}: %{y:.3g}, %{customdata[0]:,} tokens<br>%{customdata[1]}<extra></extra>",
        showlegend=False,
    )
    doubtful = shown[shown["note_kind"] == Kind.UNRELIABLE]
    if len(doubtful):
        fig.add_scatter(
            x=doubtful["label"],
            y=doubtful["value"].to_numpy(np.float32),
            name="unreliable",
            mode="markers",
            marker={"symbol": "circle-open", "size": 9, "color": mode.text, "line": {"width": 1.5}},
            hoverinfo="skip",
        )
    for limit in limits:
        if shown["value"].max() > limit.value / 3:  # a limit far off would press the bars flat
            base.add_threshold(fig, limit.value, limit.words(percent=is_share(key)), mode)
    fig.update_xaxes(type="category", categoryorder="array", categoryarray=list(rows["label"]))
    if is_share(key):
        fig.update_yaxes(tickformat="~p", rangemode="tozero")
    return fig.update_layout(hovermode="closest", dragmode="zoom", bargap=0.35)


def filter_curve(
    curve: pd.DataFrame,
    column: str,
    mode: Mode,
    *,
    x_title: str,
    y_title: str,
    chosen: float,
    applied: float | None = None,
    top: float | None = None,
) -> go.Figure:
    """What a filter does, over its parameter: the chosen value as a dotted line, the applied one as a dashed line.

    Args:
        curve: of `analysis.staleness.filters.curve`.
        column: "dropped" or "staleness"; of the latter the value without any filter is drawn beside it.
        top: of the y axis, so that two filters can be compared.
    """
    fig = base.figure(mode, height=230, x_title=x_title, y_title=y_title)
    colour = theme.NEW if column == "dropped" else theme.CURRENT
    x = curve.index.to_numpy(np.float32)
    known = curve[[f"{column}_low", f"{column}_high"]].notna().all(axis=1).to_numpy()
    if known.any():
        low, high = (curve[f"{column}_{end}"].to_numpy(np.float32)[known] for end in ("low", "high"))
        fig.add_scatter(
            x=np.concatenate([x[known], x[known][::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=theme.rgba(colour, 0.15),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
    number = ".1%" if column == "dropped" else ".3g"
    fig.add_scatter(
        x=x,
        y=curve[column].to_numpy(np.float32),
        mode="lines+markers",
        name=y_title,
        line={"color": colour, "width": 1.8},
        marker={"size": 5},
        showlegend=False,
        hovertemplate="%{y:" + number + "}",
    )
    doubtful = curve["unreliable"].str.split(", ").map(lambda keys: column in keys).to_numpy()
    if doubtful.any():
        fig.add_scatter(
            x=x[doubtful],
            y=curve[column].to_numpy(np.float32)[doubtful],
            name="unreliable",
            mode="markers",
            marker={"symbol": "circle-open", "size": 9, "color": mode.muted, "line": {"width": 1.5}},
            hoverinfo="skip",
        )
    if column == "staleness" and np.isfinite(curve["staleness_raw"].iloc[-1]):
        base.add_threshold(fig, float(curve["staleness_raw"].iloc[-1]), "unfiltered", mode)
    fig.add_vline(x=chosen, line={"color": mode.text, "width": 1.2, "dash": "dot"})
    fig.add_annotation(x=chosen, y=1, yref="paper", text=f"{chosen:g}", showarrow=False, yanchor="bottom")
    if applied is not None:
        fig.add_vline(x=applied, line={"color": theme.NEW, "width": 1.2, "dash": "dash"})
        fig.add_annotation(x=applied, y=1, yref="paper", text="applied", showarrow=False, yanchor="bottom", yshift=12)
    if curve.index.name == "max_lag" and curve.index.max() <= 10:
        fig.update_xaxes(dtick=1)
    if column == "dropped":
        fig.update_yaxes(tickformat="~p", range=[-0.02, 1.02])
    else:
        fig.update_yaxes(range=[0, top] if top else None, rangemode="tozero")
    return fig.update_layout(dragmode="zoom")


def switching_share(found: pd.DataFrame, mode: Mode, steps: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Share of responses with tokens of several versions, by step, with its 95 % band.

    Args:
        found: responses of `analysis.staleness.versions.sampled_by`.
    """
    fig = base.figure(mode, height=260, y_title="share of responses")
    inside = ~found["share"].isin([0.0, 1.0])
    base.add_band(fig, found["low"].where(inside), found["high"].where(inside), theme.CURRENT)
    base.add_line(fig, found["share"], name="of several versions", colour=theme.CURRENT, number=".1%", legend=False)
    fig.update_yaxes(tickformat="~p", rangemode="tozero")
    return base.set_steps(fig, steps, found.index)


def by_position(rows: pd.DataFrame, mode: Mode) -> go.Figure:
    """Staleness by position in the response: of one version, and of several; 95 % intervals as bars.

    Args:
        rows: of `analysis.staleness.mixed_responses.by_position`.
    """
    fig = base.figure(mode, height=260, x_title="position in the response", y_title="total variation")
    for several, name, colour, symbol in (
        (False, "one version", mode.behavior, "circle"),
        (True, "several versions", theme.CURRENT, "diamond"),
    ):
        part = rows[rows["several"] == several]
        if not len(part):
            continue
        doubtful = part["note_kind"] == Kind.UNRELIABLE
        fig.add_scatter(
            x=part["label"],
            y=part["value"].to_numpy(np.float32),
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 1.6},
            marker={"symbol": np.where(doubtful, f"{symbol}-open", symbol), "size": 8},
            error_y={
                "type": "data",
                "array": (part["high"] - part["value"]).to_numpy(np.float32),
                "arrayminus": (part["value"] - part["low"]).to_numpy(np.float32),
                "thickness": 1.2,
                "width": 3,
            },
            hovertemplate="%{y:.3g}",
        )
    order = rows.sort_values("first")["label"].drop_duplicates()
    fig.update_xaxes(type="category", categoryorder="array", categoryarray=list(order))
    fig.update_yaxes(rangemode="tozero")
    return fig.update_layout(dragmode="zoom")
