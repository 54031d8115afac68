"""A run in Python: its numbers as data frames, its findings, its figures, its report. See `ratioscope.open_run`."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.overview.lights import lights_of
from ratioscope.analysis.runs.store import Run
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import series
from ratioscope.dashboard.report.build import full_pages, run_report, subject_of
from ratioscope.dashboard.report.figures import in_dark
from ratioscope.dashboard.report.target import check_target
from ratioscope.dashboard.report.write import write
from ratioscope.dashboard.sections.model import Chart, Report
from ratioscope.errors import RatioscopeError, unknown


class OpenRun:
    """One run in the state in which it was opened."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def __repr__(self) -> str:
        return f"<run {self.name!r}: {len(self.summary):,} steps, {self.run.status}, {len(self.findings)} findings>"

    @property
    def name(self) -> str:
        """The name in the manifest."""
        return self.run.manifest.name

    @property
    def run(self) -> Run:
        """The files and the manifest, as functions of `analysis` take them."""
        return self._opened.run

    @property
    def summary(self) -> pd.DataFrame:
        """Every metric (columns, keys of the catalogue) at every step (index); NaN is undefined."""
        return self._opened.summary.values

    @property
    def findings(self) -> list[Finding]:
        """What `ratioscope diagnose` finds, worst first."""
        return self._opened.findings

    @property
    def lights(self) -> dict[str, str]:
        """Learning, Off-policy and Log, each in a word; `verdict` says more."""
        return {light.name: light.state.word for light in lights_of(self._opened)}

    def metric(self, key: str) -> pd.DataFrame:
        """A metric over the steps: value, low and high of its 95 % interval, and the text of its note.

        Raises:
            RatioscopeError: there is no such metric.
        """
        return self._opened.summary.metric(key)

    @property
    def verdict(self) -> str:
        """The three lights, what happened, since when, why, what to change and how sure that is, a line each."""
        return "\n".join(f"{question} {sentence}" for question, sentence in subject_of(self._opened).verdict.pairs)

    @property
    def figures(self) -> dict[str, str]:
        """The names of the figures that `figure` draws, each with its caption."""
        return {key: chart.takeaway for key, chart in self._charts.items()}

    def figure(self, name: str, *, dark: bool = False) -> go.Figure:
        """One of `figures`.

        Raises:
            RatioscopeError: there is no such figure.
        """
        figure = json.loads(self._chart(name).figure)
        return go.Figure(in_dark(figure) if dark else figure)

    def data(self, name: str) -> pd.DataFrame:
        """The numbers behind one of `figures`.

        Raises:
            RatioscopeError: there is no such figure.
        """
        return self._chart(name).data

    def plot(self, *keys: str, dark: bool = False) -> go.Figure:
        """Metrics of one unit over the steps, with their intervals.

        Raises:
            RatioscopeError: there is no such metric, or none is named.
        """
        for key in keys:
            if key not in CATALOGUE:
                raise unknown("a metric", key, CATALOGUE)
        if not keys:
            raise RatioscopeError("Name the metrics to plot, e.g. run.plot('s_k_bounded', 'u_k').")
        mode = theme.DARK if dark else theme.LIGHT
        return series.over_steps(self._opened.summary, list(keys), mode, y_title=CATALOGUE[keys[0]].unit)

    def report(
        self,
        path: str | Path,
        *,
        pages: Sequence[str] | None = None,
        steps: tuple[int | None, int | None] = (None, None),
        full: bool = False,
    ) -> Path:
        """Write the report as .html, .pdf, .md or .json; see `ratioscope report --help`. Without `pages` it is the
        short form, or the `full` one.

        Raises:
            RatioscopeError: it cannot be written there, a page is unknown, or no step lies in the range.
        """
        path = Path(path)
        check_target(path)
        write(run_report(self._opened, pages=self._all_pages if full else pages, steps=steps), path)
        return path

    @cached_property
    def _report(self) -> Report:
        return run_report(self._opened, pages=self._all_pages)

    @property
    def _all_pages(self) -> tuple[str, ...]:
        return full_pages([self._opened])

    @cached_property
    def _charts(self) -> dict[str, Chart]:
        return {chart.key: chart for chart in self._report.charts}

    def _chart(self, name: str) -> Chart:
        if name not in self._charts:
            raise unknown("a figure", name, self._charts)
        return self._charts[name]


def open_run(folder: str | Path, *, thresholds: str | Path | None = None) -> OpenRun:
    """Open a run; a live one in its present state.

    Args:
        thresholds: a TOML file; default: the nearest ratioscope.toml beside the run or above it.

    Raises:
        RatioscopeError: it cannot be read.
    """
    return OpenRun(open_folder(folder, thresholds=Path(thresholds) if thresholds else None))
