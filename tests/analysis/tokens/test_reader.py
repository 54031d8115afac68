"""A sequence to read: ratios, what the gate did, the tokens that stand out, the same prompt in another run."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.tokens.reader import extremes, read_sequence, same_prompt_in
from ratioscope.errors import RatioscopeError
from tests.making.runs import Step, plain_step, write_run


def _run(folder: Path, step: Step, **sequences: object) -> Run:
    step.sequences.update(sequences)
    return open_run(write_run(folder, [step], vocabulary=lambda token: f"t{token}", task={"name": "sums"}))


def test_ratios_and_verdicts_of_every_token(tmp_path: Path) -> None:
    step = plain_step(
        [-1.0, -1.0, -1.0, -1.0, -1.0], [-1.0, -2.0, -0.5, -1.0, -1.0], [-1.0, -2.5, -0.5, -1.0, -1.0],
        sequence=[0, 0, 0, 0, 0], clip_side=np.array([0, -1, 1, 0, 0], np.int8),
        clipped=np.array([False, True, True, True, False]), gate=np.array([1, 0, 0, 0, 0.5], np.float32),
    )  # fmt: skip
    read = read_sequence(_run(tmp_path / "run", step, prompt=["2+2="], dropped=[None]), 0, 0)
    assert read.tokens["verdict"].tolist() == ["kept", "below", "above", "clipped", "partly"]
    np.testing.assert_allclose(read.tokens["ratio"], np.exp([0, -1, 0.5, 0, 0]))
    np.testing.assert_allclose(read.tokens["log_update"], [0, -0.5, 0, 0, 0])
    np.testing.assert_allclose(read.tokens["log_distance"], [0, 1, 0.5, 0, 0])
    assert read.logged["prompt"] == "2+2="
    assert "dropped" not in read.logged
    assert read.whole["log_w"] == pytest.approx(-0.5)


def test_without_columns_of_the_gate_nothing_is_said_about_it(tmp_path: Path) -> None:
    read = read_sequence(_run(tmp_path / "run", plain_step([-1.0], [-1.0])), 0, 0)
    assert read.tokens["verdict"].tolist() == ["not logged"]
    assert read.tokens["log_update"].isna().all()


def test_a_sequence_that_the_loss_left_out_has_no_tokens(tmp_path: Path) -> None:
    step = plain_step([-1.0, -1.0], [-1.0, -1.0])
    kept = step.rows(np.array([0]), np.array([0, 1]))
    read = read_sequence(_run(tmp_path / "run", kept, dropped=[None, "stale"]), 0, 1)
    assert len(read.tokens) == 0
    assert read.logged["dropped"] == "stale"


def test_an_unknown_sequence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match="no response 9 in step 0"):
        read_sequence(_run(tmp_path / "run", plain_step([-1.0], [-1.0])), 0, 9)


def test_what_stands_out_is_ranked_by_size_and_nan_is_not_in_it() -> None:
    values = pd.Series([0.1, -3.0, math.nan, math.inf, 2.0, -0.2])
    assert extremes(values, 0.2) == [3, 1, 4]
    assert extremes(pd.Series([math.nan]), 0) == []


def test_the_same_prompt_is_found_by_its_text_and_without_one_by_its_id(tmp_path: Path) -> None:
    here = _run(tmp_path / "here", plain_step([-1.0], [-1.0]), prompt=["2+2="], prompt_id=[5])
    both = plain_step([-1.0, -2.0], [-1.0, -2.0])
    texts = _run(tmp_path / "texts", both, prompt=["2+2=", "another"], prompt_id=[7, 5])
    found = same_prompt_in(here, texts, {"prompt": "2+2=", "prompt_id": 5}, 0)
    assert found.frame["seq_id"].tolist() == [0]
    ids = _run(tmp_path / "ids", plain_step([-1.0, -2.0], [-1.0, -2.0]), prompt_id=[7, 5])
    assert same_prompt_in(here, ids, {"prompt": "2+2=", "prompt_id": 5}, 0).frame["seq_id"].tolist() == [1]


def test_why_the_prompt_is_nowhere_else(tmp_path: Path) -> None:
    here = _run(tmp_path / "here", plain_step([-1.0], [-1.0]), prompt=["2+2="])
    bare = _run(tmp_path / "bare", plain_step([-1.0], [-1.0]))
    assert "this run logs neither" in same_prompt_in(bare, here, {}, 0).reason
    assert "that run logs neither" in same_prompt_in(here, bare, {"prompt": "2+2="}, 0).reason
    assert "no response to this prompt" in same_prompt_in(here, here, {"prompt": "3+3="}, 0).reason


def test_an_id_means_nothing_in_another_task(tmp_path: Path) -> None:
    here = _run(tmp_path / "here", plain_step([-1.0], [-1.0]), prompt_id=[5])
    step = plain_step([-1.0], [-1.0])
    step.sequences["prompt_id"] = [5]
    other = open_run(write_run(tmp_path / "other", [step], task={"name": "proofs"}))
    assert len(same_prompt_in(here, here, {"prompt_id": 5}, 0).frame) == 1
    assert same_prompt_in(here, other, {"prompt_id": 5}, 0).reason == "that run has no response to this prompt"
