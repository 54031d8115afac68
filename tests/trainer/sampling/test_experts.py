"""Responses of an expert beside the policy's own: where they are, what is known of them, and what learns from them."""

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
import torch

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.addition import Addition
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import Recorded, same_tables, small, table, train
from tests.oracles.replay import recomputed, replayed_gradient, steps_of

SHARE = ("expert_share=0.5", "learning_rate=0.003", "updates=4")


def tokens_of_experts(run: Recorded) -> torch.Tensor:
    """Whether each row of the tokens table is one of an expert's; two of four are, the last ones."""
    return torch.tensor(table(run.folder, "tokens")["seq_id"].to_numpy() % 4 >= 2)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """Right answers of the task, whose log-probabilities nobody knows."""
    return train(small("algorithm=reinforce", *SHARE), tmp_path_factory.mktemp("experts") / "run")


def test_half_of_every_group_is_the_experts_and_right(answered: Recorded) -> None:
    sequences = table(answered.folder, "sequences").to_pydict()
    task = Addition(1, 20)
    for row, source in enumerate(sequences["source"]):
        assert source == ("policy" if row % 4 < 2 else "expert")
        if source == "expert":
            assert sequences["response"][row].strip() == task.answer(sequences["prompt_id"][row])
            assert sequences["reward"][row] == 1.0 and sequences["finish_reason"][row] == "stop"
            assert sequences["behavior_version_min"][row] is sequences["behavior_version_max"][row] is None


def test_what_is_not_known_of_the_expert_is_null_and_all_else_is_logged(answered: Recorded) -> None:
    tokens, expert = table(answered.folder, "tokens"), tokens_of_experts(answered)
    for name in ("logp_behavior", "behavior_version", "tv_current_behavior", "chi2_current_behavior"):
        assert torch.equal(torch.tensor(pc.is_null(tokens[name]).to_numpy()), expert)
    assert all(tokens[name].null_count == 0 for name in ("logp_current", "logp_new", "gradient_weight", "advantage"))
    for step, found in enumerate(steps_of(answered.folder)):
        assert found["logp_current"] == pytest.approx(recomputed(answered, step, step), abs=2e-5)
    assert pc.all(pc.is_finite(table(answered.folder, "steps")["loss"])).as_py()


def test_the_experts_rewards_count_in_the_groups_mean_and_its_tokens_as_all_others(answered: Recorded) -> None:
    """REINFORCE's coefficient is the advantage over the number of tokens, whoever wrote them (S3 eq. 1)."""
    rewards = torch.tensor(table(answered.folder, "sequences")["reward"].to_numpy()).view(4, 6, 4)
    centred = (rewards - rewards.mean(dim=2, keepdim=True)).flatten(start_dim=1)
    for step, found in enumerate(steps_of(answered.folder)):
        assert found["advantage"] == pytest.approx(centred[step][found["seq_id"]], abs=1e-6)
        assert found["gradient_weight"] == pytest.approx(found["advantage"] / len(found["advantage"]), abs=1e-7)


def demonstrations(folder: Path, **changed: object) -> Path:
    """A file of right answers with made-up log-probabilities."""
    task = Addition(1, 20)
    rows = [
        {"prompt": task.prompt(i), "response": task.answer(i), "logp": [-0.1, -0.2, -0.3]} | changed
        for i in range(task.size)
    ]
    path = folder / "expert.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def with_file(folder: Path, *overrides: str, **changed: object) -> TrainConfig:
    return small(*SHARE, f"expert_file={demonstrations(folder, **changed)}", *overrides)


def test_an_expert_that_tells_its_log_probabilities_goes_with_ratios(tmp_path: Path) -> None:
    run = train(with_file(tmp_path, "algorithm=grpo"), tmp_path / "run")
    expert = tokens_of_experts(run)
    tokens = table(run.folder, "tokens")
    told = torch.tensor(tokens["logp_behavior"].to_numpy())[expert]
    place = torch.tensor(tokens["position"].to_numpy())[expert]
    assert torch.allclose(told, -0.1 * (place + 1))
    for step, found in enumerate(steps_of(run.folder)):
        assert found["gradient_weight"] == pytest.approx(replayed_gradient(run, step), abs=1e-6)


def test_a_stopped_run_with_an_expert_goes_on(answered: Recorded, tmp_path: Path) -> None:
    stops = iter([False, True])
    train(answered.config, tmp_path / "run", should_stop=lambda: next(stops))
    train(answered.config, tmp_path / "run", resume=True)
    assert same_tables(tmp_path / "run", answered.folder)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"logp": [-1.0]}, r"has 3 tokens with its end mark and 1 log-probabilities"),
        ({"response": "123456", "logp": None}, r"has 7 tokens with its end mark; at most 3 are allowed"),
        ({"response": "x", "logp": None}, r"'x' cannot be written: no token 'x'\.$"),
    ],
)
def test_a_response_that_does_not_fit_is_one_sentence(
    tmp_path: Path, changed: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RatioscopeError, match=sentence):
        Trainer(with_file(tmp_path, "algorithm=reinforce", **changed), tmp_path / "run").run(lambda progress: None)


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "1+1="}', encoding="utf-8")
    with pytest.raises(RatioscopeError, match=r"bad\.jsonl, line 1: a line of the file is "):
        small(*SHARE, "algorithm=grpo", f"expert_file={bad}")
    with pytest.raises(RatioscopeError, match=r"^schedule.expert_file=.*none\.jsonl: cannot be read"):
        small(*SHARE, "algorithm=grpo", f"expert_file={tmp_path}/none.jsonl")
