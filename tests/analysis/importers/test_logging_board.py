"""ROLL's and RLLoggingBoard's JSON lines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import logging_board
from ratioscope.errors import RatioscopeError
from tests.making.foreign import imitated_lines, truth
from tests.making.foreign.reading import assert_tokens, column, steps_of


@pytest.fixture
def known() -> list[list[truth.Known]]:
    return truth.run()


def test_domains_of_a_step_are_one_step(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    steps = steps_of(logging_board.IMPORTER, imitated_lines.roll(tmp_path / "board", known))
    assert [step.number for step in steps] == [0, 1, 2]
    for step, responses in zip(steps, known, strict=True):
        for place, one in enumerate(responses):
            for name, values in (("logp_current", one.current), ("logp_reference", one.reference)):
                np.testing.assert_array_equal(column(step, name, place).astype(np.float32), one.sampled(values))
        assert step.tokens is not None and not {"logp_behavior", "token_id"} & step.tokens.keys()
        assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]


def test_padding_and_tools_are_no_tokens(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Traps 1 and 3: lists go on over the padding, with 0.0, which reads as certainty."""
    folder = imitated_lines.roll(tmp_path / "board", known[:1])
    first = json.loads((folder / "data_20260101_000000_000.jsonl").read_text().splitlines()[1])
    naive, right = np.array(first["logprobs"]), column(steps_of(logging_board.IMPORTER, folder)[0], "logp_current", 1)
    assert len(naive) > len(right) == len(known[0][1].ids)
    assert np.exp(naive).mean() > np.exp(right).mean() and not (right == 0).any()


def test_rewards_of_roll_are_processed(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_lines.roll(tmp_path / "board", known)
    found = logging_board.IMPORTER.describe(folder)
    assert found is not None and found.framework == "ROLL" and "reward_processed" in found.missing["reward"]
    sequences = steps_of(logging_board.IMPORTER, folder)[0].sequences
    assert "reward" not in sequences and sequences["reward_processed"] == [one.advantage for one in known[0]]


def test_a_reference_that_is_a_copy_is_none(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Without a reference model ROLL copies the policy's log-probabilities: a KL of exactly 0 that nobody measured."""
    step = steps_of(logging_board.IMPORTER, imitated_lines.roll(tmp_path / "board", known, reference=False))[0]
    assert step.tokens is not None and "logp_reference" not in step.tokens and "logp_current" in step.tokens


def test_ranks_with_all_steps_each(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_lines.logging_board(tmp_path / "board", known)
    steps = steps_of(logging_board.IMPORTER, folder)
    assert [step.number for step in steps] == [0, 1, 2]
    for step, responses in zip(steps, known, strict=True):
        in_files = [*responses[0::2], *responses[1::2]]
        in_files.remove(responses[0])
        assert_tokens(step, in_files, logp_current="current")
        assert step.sequences["reward"] == [one.reward for one in in_files]
    assert [step.number for step in logging_board.IMPORTER.read(folder, Reading(after=0))] == [1, 2]
    assert [step.number for step in logging_board.IMPORTER.read(folder, Reading(growing=True))] == [0, 1]


def test_text_and_rewards_alone(tmp_path: Path) -> None:
    """As in the samples that RLLoggingBoard comes with."""
    row = {"prompt": "p", "response": "r", "reward": 0.5, "step": 3, "ref_response": "s", "ref_reward": 0.1}
    (tmp_path / "data.jsonl").write_text(json.dumps(row) + "\n")
    (step,) = steps_of(logging_board.IMPORTER, tmp_path)
    assert step.number == 3 and step.tokens is None and step.sequences["reward"] == [0.5]

    found = logging_board.IMPORTER.describe(tmp_path)
    assert found is not None and found.assumed == ("Responses of a step that have the same prompt are a group.",)
    why = {found.missing[name] for name in ("logp_behavior", "logp_current", "token_id", "advantage")}
    assert why == {"the files have text and rewards alone, no tokens"}


def test_what_is_missing_is_told_from_the_keys_that_are_there(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_lines.logging_board(tmp_path / "board", known)
    found = logging_board.IMPORTER.describe(folder)
    assert found is not None and found.missing["advantage"] == "the files have no advantages"
    assert found.missing["entropy"] == "the files have no old_log_probs2_entropy"
    of_roll = logging_board.IMPORTER.describe(imitated_lines.roll(tmp_path / "roll", known))
    assert of_roll is not None and of_roll.missing["advantage"] == "the files have rewards a token, no advantages"
    (tmp_path / "data.jsonl").write_text(json.dumps(TEXT | {"response_tokens": ["r"]}) + "\n")
    bare = logging_board.IMPORTER.describe(tmp_path)
    assert bare is not None and bare.missing["logp_behavior"] == "the files have no log-probabilities of the policy"
    assert bare.missing["logp_current"] == "the files have no logprobs" and len(bare.assumed) == 1


TEXT = {"prompt": "p", "response": "r", "reward": 0.5, "step": 3}


@pytest.mark.parametrize(
    "own",
    [
        {"token_ids": [1], "logprobs": [-0.1], "trainer_logprobs": [-0.2], "advantage": -1.0},
        {"logprobs": [-0.1]},
        {"advantage": -1.0},
        {"policy_version": 3},
        {"response_tokens": [1], "logprobs": [-0.1]},
        {"response_tokens": ["r"], "logprobs": [-0.1], "token_ids": [1]},
        {"response_tokens": ["r"], "logprobs": [-0.1], "advantage": -1.0},
        {"response_tokens": ["r"], "logprobs": [-0.1], "weight_version": 3},
    ],
)
def test_a_log_of_somebodys_own_is_not_taken_for_it(tmp_path: Path, own: dict[str, Any]) -> None:
    (tmp_path / "samples.jsonl").write_text(json.dumps(TEXT | own) + "\n")
    assert logging_board.IMPORTER.describe(tmp_path) is None
    with pytest.raises(RatioscopeError, match=r"none of the known formats is here .*--template"):
        the_source(tmp_path)


def test_bad_lines_are_said_with_their_number(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    file = imitated_lines.logging_board(tmp_path / "board", known) / "rank0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[1]["ref_logprobs"].pop()
    length = len(rows[1]["logprobs"])
    rows[-1]["step"] = 0
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 2, "pro')
    with pytest.raises(ImportProblem, match=r"rank0\.jsonl, line 2: the response cannot be read: "):
        list(logging_board.IMPORTER.read(file.parent, Reading()))
    reading = Reading(skip_bad=True)
    steps = list(logging_board.IMPORTER.read(file.parent, reading))
    assert [len(step.sequences["seq_id"]) for step in steps] == [4, 5, 4]
    assert [problem.partition("jsonl, ")[2] for problem in reading.problems] == [
        f"line 2: the response cannot be read: {length - 1} of logp_reference for {length} tokens.",
        "line 6: step 0 comes after step 2.",
        "line 7: the file ends within this line.",
    ]
