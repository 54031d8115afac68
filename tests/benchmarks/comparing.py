"""The Compare page on twenty runs of a thousand steps: first drawing, drawing again, and changes of its controls."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import streamlit as st
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.roots import serve_from
from tests.benchmarks.timing import row, seconds
from tests.making.pages import checked, visit
from tests.making.runs import random_step, write_run

RUNS, SEEDS, STEPS = 20, 4, 1_000
METRICS = ("u_k", "entropy", "chi2_token", "reward", "ess_token")


def run() -> None:
    """Print server times of the page, against reading the cached summaries of its runs and nothing else."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["RATIOSCOPE_CACHE"] = str(Path(place) / "cache")
        root = Path(place) / "runs"
        for number in range(RUNS):
            rng = np.random.default_rng(number)
            steps = (random_step(rng, step, groups=2, responses=2, longest=6) for step in range(STEPS))
            fields = {"algorithm": {"name": f"algorithm-{number // SEEDS}"}, "seed": number % SEEDS}
            write_run(root / f"run-{number:02d}", steps, schedule={"sync_interval": 4}, **fields)
        serve_from([root])
        folders = sorted(root.iterdir())
        for folder in folders:
            summarise(open_run(folder))
        names = [folder.name for folder in folders]

        def read() -> None:
            for folder in folders:
                summarise(open_run(folder))

        def cold() -> None:
            st.cache_data.clear()
            st.cache_resource.clear()
            visit("compare", run=names)

        bare, against = seconds(read), "reading the summaries"
        row(f"first drawing, {RUNS} runs of {STEPS:,} steps", seconds(cold, 3), bare, against)
        row("the same page again", seconds(lambda: visit("compare", run=names)), bare, against)
        at = visit("compare", run=names)
        facets, metrics = ["nothing", "algorithm"] * 3, list(METRICS)
        facet, metric = _change(at, "facet", facets.pop), _change(at, "metric", metrics.pop)
        row("other panels", seconds(facet), bare, against)
        row("a metric not looked at before", seconds(metric, len(METRICS)), bare, against)


def _change(at: AppTest, key: str, following: Callable[[], str]) -> Callable[[], object]:
    """Set a select box to the next value and draw the page."""
    return lambda: checked(at.selectbox(key=key).set_value(following()).run(), "compare")
