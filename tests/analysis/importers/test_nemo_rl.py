"""NeMo-RL: train_data_step files, imitated."""

import json
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import IMPORTERS, nemo_rl
from tests.making.foreign import imitated_nemo_rl
from tests.making.foreign.policy import Policy, Response
from tests.making.foreign.reading import column, steps_of


@pytest.fixture
def responses() -> list[Response]:
    return imitated_nemo_rl.batch(Policy(5), 1)


def test_every_column_is_that_of_the_run(tmp_path: Path, responses: list[Response]) -> None:
    imitated_nemo_rl.write(tmp_path, responses, 1)
    imitated_nemo_rl.write(tmp_path, responses, 2)
    assert [importer.name for importer in IMPORTERS if importer.describe(tmp_path)] == ["nemo-rl"]
    described = nemo_rl.describe(tmp_path)
    assert described is not None and described.steps == 2 and "logp_current" not in described.missing
    steps = steps_of(nemo_rl.IMPORTER, tmp_path)
    assert [step.number for step in steps] == [1, 2]
    step = steps[0]
    for place, one in enumerate(responses):
        np.testing.assert_array_equal(column(step, "logp_behavior", place), np.float32(one.sampled))
        np.testing.assert_array_equal(column(step, "logp_current", place), np.float32(one.trained))
        np.testing.assert_array_equal(column(step, "token_id", place), one.tokens)
        assert set(column(step, "advantage", place)) == {np.float32(one.advantage)}
    assert step.sequences["group_id"] == [0] * 4 + [1] * 4
    assert step.sequences["prompt"][0] == "words [12, 11, 12]" and step.sequences["response"][0].startswith("answer")
    assert [step.number for step in nemo_rl.read(tmp_path, Reading(growing=True))] == [1]


def test_columns_belong_to_their_own_token(tmp_path: Path, responses: list[Response]) -> None:
    """Trap 2: column i is of token i here; read as a prediction of the next token, every value moves by one."""
    file = imitated_nemo_rl.write(tmp_path, responses, 1)
    row = {key: value[0] for key, value in json.loads(file.read_text().splitlines()[0]).items() if key != "idx"}
    mask = np.array(row["token_loss_mask"], dtype=bool)
    naive = np.array(row["generation_logprobs"])[:-1][mask[1:]]
    right = column(steps_of(nemo_rl.IMPORTER, tmp_path)[0], "logp_behavior", 0)
    assert naive[0] == 0 and right[0] != 0
    assert np.abs(naive - right).max() > 0.5


def test_padding_and_prompt_are_no_tokens(tmp_path: Path, responses: list[Response]) -> None:
    """Traps 3 and 10: 0.0 stands at prompt and padding, and every value is in a list of its own."""
    file = imitated_nemo_rl.write(tmp_path, responses, 1)
    row = json.loads(file.read_text().splitlines()[0])
    assert len(row["generation_logprobs"]) == 1  # the naive length of the response
    values = np.array(row["generation_logprobs"][0])
    right = column(steps_of(nemo_rl.IMPORTER, tmp_path)[0], "logp_behavior", 0)
    assert len(right) == len(responses[0].tokens) < len(values)
    assert np.exp(values).mean() > np.exp(right).mean() + 0.2


def test_a_recomputation_that_was_left_out_is_missing(tmp_path: Path, responses: list[Response]) -> None:
    """Trap 4: prev_logprobs are 0 everywhere; taken as they are, every token was certain under the trainer."""
    imitated_nemo_rl.write(tmp_path, responses, 1, skip_recomputation=True)
    naive = float(np.mean([np.exp(0.0 - value) for one in responses for value in one.sampled]))
    assert naive > 2
    described = nemo_rl.describe(tmp_path)
    assert described is not None and "force_on_policy_ratio" in described.missing["logp_current"]
    (step,) = steps_of(nemo_rl.IMPORTER, tmp_path)
    assert step.tokens is not None and "logp_current" not in step.tokens and "logp_behavior" in step.tokens


def test_rewards_before_a_filter_are_not_those_of_the_batch(tmp_path: Path, responses: list[Response]) -> None:
    """Trap 10: with dynamic sampling `rewards` is another list, in another order."""
    unfiltered = [0.0] * 4 + [one.reward for one in responses[:4]]
    imitated_nemo_rl.write(tmp_path, responses, 1, unfiltered=unfiltered)
    (step,) = steps_of(nemo_rl.IMPORTER, tmp_path)
    assert step.sequences["reward"] == [one.reward for one in responses] != unfiltered
    advantages = [one.reward - 0.5 for one in responses]
    assert [column(step, "advantage", place)[0] for place in range(8)] == advantages
    assert [
        reward - np.mean(unfiltered[4 * (place // 4) :][:4]) for place, reward in enumerate(unfiltered)
    ] != advantages


def test_masked_responses_keep_their_values_and_say_so(tmp_path: Path, responses: list[Response]) -> None:
    """Trap 6."""
    imitated_nemo_rl.write(tmp_path, responses, 1, masked=(2,))
    (step,) = steps_of(nemo_rl.IMPORTER, tmp_path)
    assert set(column(step, "rejected", 2)) == {"sample mask 0"} and set(column(step, "rejected", 1)) == {None}
    assert len(column(step, "logp_behavior", 2)) == len(responses[2].tokens)


def test_a_short_list_is_named(tmp_path: Path, responses: list[Response]) -> None:
    file = imitated_nemo_rl.write(tmp_path, responses, 7)
    lines = file.read_text().splitlines()
    lines[3] = json.dumps(json.loads(lines[3]) | {"generation_logprobs": [[0.0, 0.0]]})
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ImportProblem, match=r"train_data_step7\.jsonl, line 4: \d+ tokens, and lists that are shorter"):
        list(nemo_rl.read(tmp_path, Reading()))
