"""The commands that train: a grid that goes on where it stopped, and a run that survives Ctrl-C."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ratioscope import Manifest
from ratioscope.analysis.runs.store import open_run
from ratioscope.dashboard.cli import INTERRUPTED
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.settings.table import presets
from tests.making.commands import command

TINY = (
    "hidden_size=32", "intermediate_size=64", "layers=1", "heads=2", "warm_start.max_steps=0", "digits=1",
    "evaluation_prompts=16", "prompts=4", "samples_per_prompt=4",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """A policy this small gains nothing from a second thread, and waits for it on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # for the commands in processes of their own
        yield
    torch.set_num_threads(before)


def _modified(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_a_grid_trains_every_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ("ablate", "on_policy", "algorithm=grpo,reinforce", "seed=0,1", "updates=2", *TINY)
    arguments = (*grid, "--root", tmp_path, "--quiet")
    names = [f"on_policy-{algorithm}-seed{seed}" for algorithm in ("grpo", "reinforce") for seed in (0, 1)]

    printed = command(monkeypatch, capsys, *arguments).succeeded().splitlines()
    assert printed[:4] == [f"{number}/4 {tmp_path / name}" for number, name in enumerate(names, start=1)]
    assert printed[4] == f"Compare them with: ratioscope dashboard {tmp_path}"
    runs = [open_run(tmp_path / name) for name in names]
    assert [(run.status, run.last_step) for run in runs] == [("finished", 1)] * 4
    assert [run.manifest.seed for run in runs] == [0, 1, 0, 1]

    before = _modified(tmp_path)
    printed = command(monkeypatch, capsys, *arguments).succeeded().splitlines()
    assert [line.endswith(": already finished") for line in printed[:4]] == [True] * 4
    assert _modified(tmp_path) == before


def test_a_grid_trains_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("updates=2", *TINY, "--root", tmp_path, "--quiet")
    command(monkeypatch, capsys, "ablate", "on_policy", "seed=1", *common).succeeded()
    before = _modified(tmp_path)
    printed = command(monkeypatch, capsys, "ablate", "on_policy", "seed=0,1", *common).succeeded().splitlines()
    assert [line.endswith(": already finished") for line in printed[:2]] == [False, True]
    assert before.items() <= _modified(tmp_path).items()


def test_a_run_that_was_interrupted_is_resumed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    trainer = subprocess.Popen(
        [sys.executable, "-P", "-m", "ratioscope", "train", "sync_interval", *TINY,
         "updates=100000", "pace=0.05",
         "--folder", str(folder), "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not list(folder.glob("steps/*.parquet")):
            assert trainer.poll() is None, trainer.communicate()
            time.sleep(0.05)
        trainer.send_signal(signal.SIGINT)
        printed, errors = trainer.communicate(timeout=120)
    finally:
        trainer.kill()
    assert (trainer.returncode, errors) == (INTERRUPTED, "")
    assert printed == f"Interrupted; resume with: ratioscope train --resume {folder}\n"
    interrupted = open_run(folder)
    assert interrupted.status == "interrupted"
    assert interrupted.manifest.status_reason == "stopped by the user"

    updates = interrupted.last_step + 4
    resume = ("train", "--resume", folder, f"updates={updates}", "pace=0", "--quiet")
    said = command(monkeypatch, capsys, *resume).succeeded().splitlines()
    assert said[0] == f"Finished: {folder}" and "Learning: " in said[1] and f"ratioscope diagnose {folder}" in said[2]
    finished = open_run(folder)
    assert finished.status == "finished"
    assert finished.read("steps", ["step"])["step"].tolist() == list(range(updates))
    assert finished.manifest.run_id == interrupted.manifest.run_id


def test_a_resumed_run_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    command(monkeypatch, capsys, "train", "on_policy", "updates=1", *TINY, "--folder", folder, "--quiet").succeeded()
    sentence = command(monkeypatch, capsys, "train", "--resume", folder, "learning_rate=1.0").failed()
    assert "cannot change" in sentence
    assert Manifest.read(folder).status == "finished"


def test_without_a_preset_train_says_which_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(monkeypatch, capsys, "train").succeeded()
    assert all(f"  {name} " in said for name in presets())
    assert f"{len(ALGORITHMS)} algorithms" in said
    assert command(monkeypatch, capsys, "train", "--resume").code == 2
