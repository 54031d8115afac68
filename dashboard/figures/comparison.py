"""Runs side by side: the mean over seeds with the range of the seeds, one colour an algorithm."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.comparison import Setting
from dashboard import theme
from dashboard.figures import base
from dashboard.figures.series import SPARSE
from dashboard.formats import PERCENT
from dashboard.theme import Mode
from ratioscope.catalogue import CATALOGUE

DASHES = ("solid", "dash", "dot", "dashdot")


def overlay(
    settings: Sequence[Setting],
    metric: str,
    mode: Mode,
    *,
    smoothing: int = 1,
    steps: tuple[int | None, int | None] = (None, None),
    height: int = 420,
) -> go.Figure:
    """All settings in one chart."""
    fig = base.figure(mode, height=height, y_title=CATALOGUE[metric].title)
    _draw(fig, settings, metric, styles(settings), smoothing=smoothing, place={})
    _finish(fig, metric)
    return base.set_steps(fig, steps, _all_steps(settings))


def small_multiples(
    facets: dict[str, list[Setting]],
    metric: str,
    mode: Mode,
    *,
    smoothing: int = 1,
    steps: tuple[int | None, int | None] = (None, None),
    height: int = 380,
) -> go.Figure:
    """One panel a facet, on equal axes; the legend names each algorithm once."""
    fig = make_subplots(
        rows=1,
        cols=len(facets),
        shared_yaxes=True,
        subplot_titles=[base.plain(facet) for facet in facets],
        horizontal_spacing=0.03,
    )
    fig.update_layout(base.figure(mode, height=height).layout)
    fig.update_layout(margin={"t": 96}, hovermode="x", legend={"y": 1.14})
    all_settings = [setting for settings in facets.values() for setting in settings]
    style = styles(all_settings)
    named: set[str] = set()
    for column, settings in enumerate(facets.values(), start=1):
        _draw(fig, settings, metric, style, smoothing=smoothing, place={"row": 1, "col": column}, named=named)
    fig.update_xaxes(
        title={"text": "update k", "font": {"color": mode.muted, "size": 12}},
        showgrid=False,
        zeroline=False,
        tickfont={"color": mode.muted, "size": 12},
        linecolor=mode.grid,
    )
    fig.update_yaxes(gridcolor=mode.grid, tickfont={"color": mode.muted, "size": 12})
    fig.update_annotations(font={"size": 13, "color": mode.text})
    _finish(fig, metric)
    return base.set_steps(fig, steps, _all_steps(all_settings))


def styles(settings: Sequence[Setting]) -> dict[str, tuple[str, str]]:
    """Colour by algorithm, dash by variant of it: variant -> (colour, dash)."""
    variants: dict[str, dict[str, None]] = {}
    for setting in settings:
        variants.setdefault(setting.algorithm, {})[setting.variant] = None
    colours = theme.algorithm_colours(list(variants))
    return {
        variant: (colours[algorithm], DASHES[number % len(DASHES)])
        for algorithm, names in variants.items()
        for number, variant in enumerate(names)
    }


def _draw(
    fig: go.Figure,
    settings: Sequence[Setting],
    metric: str,
    style: dict[str, tuple[str, str]],
    *,
    smoothing: int,
    place: dict[str, int],
    named: set[str] | None = None,
) -> None:
    named = set() if named is None else named
    for setting in settings:
        name = setting.variant
        colour, dash = style[name]
        frame = setting.mean(metric).replace([np.inf, -np.inf], np.nan)
        if not len(frame):
            continue
        if smoothing > 1:
            frame = frame.rolling(smoothing, min_periods=1).mean()
        banded = frame.dropna(subset=["low", "high"])
        if len(banded):
            low, high = (base.reduce(banded[end], base.MOST_POINTS // 2) for end in ("low", "high"))
            fig.add_scatter(
                x=np.concatenate([high.index.to_numpy(np.int32), low.index.to_numpy(np.int32)[::-1]]),
                y=np.concatenate([high.to_numpy(np.float32), low.to_numpy(np.float32)[::-1]]),
                fill="toself",
                fillcolor=base.rgba(colour, 0.13),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
                legendgroup=name,
                **place,
            )
        mean = base.reduce(frame["mean"])
        fig.add_scatter(
            x=mean.index.to_numpy(np.int32),
            y=mean.to_numpy(np.float32),
            name=base.plain(name),
            legendgroup=name,
            showlegend=name not in named,
            mode="lines+markers" if metric in SPARSE else "lines",
            marker={"size": 4},
            line={"color": colour, "width": 2, "dash": dash},
            hovertemplate="%{y:" + (".1%" if metric in PERCENT else ".3g") + "}",
            **place,
        )
        named.add(name)


def _all_steps(settings: Sequence[Setting]) -> "pd.Index[int]":
    indices = [member.summary.values.index for setting in settings for member in setting.members]
    return pd.Index(sorted({int(end) for index in indices if len(index) for end in (index.min(), index.max())}))


def _finish(fig: go.Figure, metric: str) -> None:
    if metric in PERCENT:
        fig.update_yaxes(tickformat=".0%")
