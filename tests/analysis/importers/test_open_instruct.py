"""open-instruct: rollouts, imitated."""

import json
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import IMPORTERS, open_instruct
from tests.making.foreign.imitated_nemo_rl import batch
from tests.making.foreign.imitated_open_instruct import TOOL, record, write
from tests.making.foreign.policy import Policy, Response
from tests.making.foreign.reading import column, steps_of


@pytest.fixture
def runs() -> list[list[Response]]:
    policy = Policy(9)
    return [batch(policy, step) for step in (1, 2, 3)]


def test_every_column_is_that_of_the_run(tmp_path: Path, runs: list[list[Response]]) -> None:
    records = [[record(step, place, one) for place, one in enumerate(run)] for step, run in enumerate(runs, start=1)]
    write(tmp_path, [records[0] + records[1][:4], records[1][4:] + records[2]])
    assert [importer.name for importer in IMPORTERS if importer.describe(tmp_path)] == ["open-instruct"]
    described = open_instruct.describe(tmp_path)
    assert described is not None and described.manifest["name"] == "tiny" and described.version == "e6c3044"
    assert {"logp_current", "behavior_version"} <= described.missing.keys()
    steps = steps_of(open_instruct.IMPORTER, tmp_path)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, run in zip(steps, runs, strict=True):
        assert step.sequences["group_id"] == [0] * 4 + [1] * 4
        assert step.sequences["prompt_tokens"] == [len(one.prompt) for one in run]
        for place, one in enumerate(run):
            np.testing.assert_array_equal(column(step, "logp_behavior", place), np.float32(one.sampled))
            assert set(column(step, "advantage", place)) == {np.float32(one.advantage)}
    assert [step.number for step in open_instruct.read(tmp_path, Reading(growing=True))] == [1]


def test_lines_of_neighbouring_steps_change_places(tmp_path: Path, runs: list[list[Response]]) -> None:
    """Two threads write: step 2 begins before step 1 ends."""
    records = [[record(step, place, one) for place, one in enumerate(run)] for step, run in enumerate(runs, start=1)]
    write(tmp_path, [records[0][:5] + records[1][:3] + records[0][5:] + records[1][3:] + records[2]])
    steps = steps_of(open_instruct.IMPORTER, tmp_path)
    assert [(step.number, len(step.sequences["seq_id"])) for step in steps] == [(1, 8), (2, 8), (3, 8)]


def test_what_a_tool_returned_is_no_token(tmp_path: Path, runs: list[list[Response]]) -> None:
    """Trap 3: it stands among the response's tokens with log-probability 0.0, and no mask says so."""
    write(tmp_path, [[record(1, place, one, tool=place == 0) for place, one in enumerate(runs[0])]])
    line = json.loads((tmp_path / "tiny_rollouts_000000.jsonl").read_text().splitlines()[0])
    (step,) = steps_of(open_instruct.IMPORTER, tmp_path)
    right = column(step, "logp_behavior", 0)
    np.testing.assert_array_equal(right, np.float32(runs[0][0].sampled))
    assert not set(TOOL) & set(column(step, "token_id", 0)) and set(TOOL) <= set(line["response_tokens"])
    assert np.exp(line["logprobs"]).mean() > np.exp(right).mean() + 0.1
    assert step.sequences["n_tokens"][0] == len(runs[0][0].tokens) == len(line["response_tokens"]) - len(TOOL)


def test_a_token_that_nobody_sampled_is_none(tmp_path: Path, runs: list[list[Response]]) -> None:
    rows = [record(1, place, one) for place, one in enumerate(runs[0])]
    rows[0] |= {"response_tokens": [2], "logprobs": [float("nan")]}
    write(tmp_path, [rows])
    (step,) = steps_of(open_instruct.IMPORTER, tmp_path)
    assert step.sequences["n_tokens"][0] == 0 and not len(column(step, "token_id", 0))


def test_bad_lines_are_named(tmp_path: Path, runs: list[list[Response]]) -> None:
    rows = [record(1, place, one) for place, one in enumerate(runs[0])]
    rows[2]["logprobs"] = [0.0]
    write(tmp_path, [rows])
    with pytest.raises(ImportProblem, match=r"rollouts_000000\.jsonl, line 3: \d+ response_tokens and 1 logprobs"):
        list(open_instruct.read(tmp_path, Reading()))
