"""Runs to report, and their reports; made once, because every test only reads them."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.dashboard.report.build import comparison_report, full_pages, run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.sections.model import Report
from tests.dashboard.report.reading import Page, read
from tests.making.runs import random_step, write_run

SAMPLES = Path(__file__).parents[3] / "sample_runs"


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A run of twelve steps with every column."""
    rng = np.random.default_rng(0)
    steps = [random_step(rng, number, spread=0.05 + 0.1 * (number % 4)) for number in range(12)]
    folder = write_run(tmp_path_factory.mktemp("runs") / "whole", steps, algorithm={"name": "grpo"}, seed=3)
    return open_folder(folder)


@pytest.fixture(scope="session")
def report(opened: Opened) -> Report:
    """With every page."""
    return run_report(opened, pages=full_pages([opened]))


@pytest.fixture(scope="session")
def page(report: Report) -> Page:
    return read(html(report))


@pytest.fixture(scope="session")
def pair() -> Report:
    """Of two sample runs."""
    runs = [open_folder(SAMPLES / f"sync_interval20-{name}-lr0.0003-seed0") for name in ("grpo", "reinforce")]
    return comparison_report(runs, pages=["findings", "learning"])
