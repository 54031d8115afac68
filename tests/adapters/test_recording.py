"""What all recorders share: an error ends the recording alone, a resumed training goes on, the cost is printed."""

import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ratioscope.adapters.recording import Recording, closing
from ratioscope.run_format.manifest import Manifest


def write(recording: Recording, step: int, *, resumed: bool = False, **more: Any) -> None:
    recording.cost.step_began()
    recording.write(
        step,
        tokens={"seq_id": [0], "position": [0], "logp_behavior": [-1.0], "token_id": [5]},
        sequences={"seq_id": [0], "reward": [1.0], **more},
        scalars={"policy_version": step},
        manifest=lambda: {"name": "mine", "vocabulary": str, "missing": {"logp_new": "It is not scored."}},
        resumed=resumed,
    )
    recording.cost.step_ended()


def steps(folder: Path) -> list[int]:
    return sorted(
        step for path in (folder / "steps").glob("*.parquet") for step in pq.read_table(path)["step"].to_pylist()
    )


def test_a_run_is_opened_with_its_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording(tmp_path / "run", "test recorder", new=2)
    assert not (tmp_path / "run").exists()
    due = []
    for step in range(4):
        due.append(recording.scores_now)
        write(recording, step)
    recording.close()
    recording.close("failed")  # the first call counts
    manifest = Manifest.read(tmp_path / "run")
    assert (manifest.name, manifest.status, manifest.producer["name"]) == ("mine", "finished", "test recorder")
    assert due == [True, False, True, False] and steps(tmp_path / "run") == [0, 1, 2, 3]
    assert "4 steps recorded" in capsys.readouterr().out and not recording.live


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [(ValueError("no"), "failed", "ValueError: no"), (KeyboardInterrupt(), "interrupted", "stopped by the user")],
)
def test_what_became_of_the_training(tmp_path: Path, error: BaseException, status: str, reason: str) -> None:
    recording = Recording(tmp_path / "run", "test recorder", quiet=True)

    def train() -> None:
        write(recording, 0)
        raise error

    with pytest.raises(type(error)):
        closing(recording, train)
    manifest = Manifest.read(tmp_path / "run")
    assert (manifest.status, manifest.status_reason) == (status, reason)


def test_a_resumed_training_goes_on_with_its_run(tmp_path: Path) -> None:
    for first in (0, 2):
        recording = Recording(tmp_path / "run", "test recorder", quiet=True)
        for step in range(first, first + 3):  # step 2 is trained twice, from the checkpoint before it
            write(recording, step, resumed=first > 0)
        recording.close()
        assert recording.failure == ""
    assert steps(tmp_path / "run") == [0, 1, 2, 3, 4]


def test_a_run_that_is_there_is_not_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        recording = Recording(tmp_path / "run", "test recorder", quiet=True)
        with caplog.at_level(logging.WARNING, logger="ratioscope"):
            write(recording, 0)
            write(recording, 1)
        recording.close()
    assert "already holds a run" in recording.failure and len(caplog.records) == 1
    assert Manifest.read(tmp_path / "run").status == "finished" and steps(tmp_path / "run") == [0, 1]


def test_columns_that_do_not_fit_end_the_recording_and_the_run_says_so(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run", "test recorder", quiet=True)
    write(recording, 0)
    write(recording, 1, group_id=[1, 2])
    assert "differ in length" in recording.failure and not recording.live
    assert recording.attempt(lambda: 1) is None and recording.score(lambda: 1) is None
    recording.close()
