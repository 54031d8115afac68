"""Folders of synthetic runs for the pages."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from ratioscope import Manifest, RunRecorder
from ratioscope.dashboard.load import server_load
from ratioscope.dashboard.roots import serve_from
from tests.making.pages import visit
from tests.making.runs import Step, random_step, write_run

SCHEDULE = {"sync_interval": 4, "sync_offset": 0, "offline": False}


def make_steps(n: int) -> list[Step]:
    """The first n steps of a run with every column; a sawtooth of staleness."""
    rng = np.random.default_rng(0)
    return [random_step(rng, number, spread=0.05 + 0.1 * (number % 4)) for number in range(n)]


@pytest.fixture(scope="session", autouse=True)
def one_scan_of_installed_packages() -> Iterator[None]:
    """Streamlit's test harness looks through the metadata of every installed package at each run of a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True)
def no_other_viewers() -> None:
    """Those of the tests before would be waited for."""
    server_load._followers.clear()


_expander = streamlit.expander


@pytest.fixture(scope="session", autouse=True)
def every_fold_is_open() -> Iterator[None]:
    """Tests look at all of a page; those of what is folded ask for `folded`."""

    def opened(*args: Any, **options: Any) -> Any:
        return _expander(*args, **options | {"expanded": True})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamlit, "expander", opened)
        yield


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages as they open."""
    monkeypatch.setattr(streamlit, "expander", _expander)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the app serves."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")  # is taken back after the test
    serve_from([tmp_path])
    return tmp_path


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each kind that a log can be, for tests that only look; the newest is `finished`."""
    folder = tmp_path_factory.mktemp("gallery")
    steps = make_steps(12)
    (folder / "empty").mkdir()
    Manifest(name="empty", status="interrupted").write(folder / "empty")
    write_run(folder / "one-step", steps[:1])
    unlogged = ("logp_new", "clip_side", "clipped", "gate", "entropy")
    lean = [step.with_tokens(**dict.fromkeys(unlogged)) for step in steps[:6]]
    write_run(folder / "lean", lean)
    write_run(folder / "broken", lean, flush_seconds=0)
    torn = sorted((folder / "broken" / "tokens").iterdir())[2]
    torn.write_bytes(torn.read_bytes()[:100])
    write_run(folder / "newer", steps[:1])
    manifest = Manifest.read(folder / "newer")
    manifest.schema_version = "7.0"
    manifest.write(folder / "newer")
    (folder / "torn").mkdir()
    (folder / "torn" / "run.json").write_text('{"name": "to')
    write_run(folder / "finished", steps, algorithm={"name": "grpo"}, schedule=SCHEDULE, seed=3)
    return folder


@pytest.fixture
def look(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """look(page, run) -> the page on that run of the gallery, rendered once a session; do not click on it."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])

    def open_once(page: str, *runs: str) -> AppTest:
        if (page, runs) not in _SEEN:
            _SEEN[page, runs] = visit(page, run=list(runs)) if runs else visit(page)
        return _SEEN[page, runs]

    return open_once


_SEEN: dict[tuple[str, tuple[str, ...]], AppTest] = {}


@pytest.fixture
def live(root: Path) -> Iterator[RunRecorder]:
    """A run that this process is still writing, with five steps on disk."""
    recorder = RunRecorder(root / "live-run", flush_seconds=0.0, algorithm={"name": "grpo"}, schedule=SCHEDULE, seed=3)
    with recorder:
        for step in make_steps(5):
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()
        yield recorder
