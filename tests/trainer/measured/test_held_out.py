"""Prompt groups that an update does not see: their rows are right, and the run is the same with them or without."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema
from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.settings import checks
from ratioscope.trainer.training.loop import configuration_to_resume
from tests.making.training import RESUMABLE, Recorded, same_tables, small, table, train
from tests.oracles.replay import task_of

HELD = ("held_out_groups=3", "learning_rate=0.01")


def split(folder: Path, name: str) -> tuple[pa.Table, pa.Table]:
    """The rows of the batches, and those that were held out."""
    listed = table(folder, "sequences")
    out = {(row["step"], row["seq_id"]) for row in listed.to_pylist() if row.get("dropped") == schema.HELD_OUT}
    rows = table(folder, name)
    keys = zip(rows["step"].to_pylist(), rows["seq_id"].to_pylist(), strict=True)
    mask = pa.array([key in out for key in keys])
    return rows.filter(pc.invert(mask)), rows.filter(mask)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    return train(small("sync_interval=3", "exact=true", *HELD), tmp_path_factory.mktemp("held") / "run")


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=adaptive_clip", "sync_interval=2", "minibatches=3"],
        ["algorithm=red_drop", "mixture=[1, 1]", "switch_probability=0.3", "window=1", "epsilon_stale=0.2"],
        ["algorithm=dapo", "sampler.dtype=int8", "updates=4"],
    ],
    ids=" ".join,
)
def test_the_run_is_the_same_with_them_or_without(overrides: list[str], tmp_path: Path) -> None:
    plain = train(small(*overrides, "learning_rate=0.01"), tmp_path / "plain")
    held = train(small(*overrides, *HELD), tmp_path / "held")
    for name in ("tokens", "sequences"):
        rows, expected = split(held.folder, name)[0], table(plain.folder, name)
        assert rows.select(expected.column_names).equals(expected)
        extra = set(rows.column_names) - set(expected.column_names)
        assert extra <= {"dropped"} and all(rows[column].null_count == len(rows) for column in extra)
    assert table(held.folder, "steps").equals(table(plain.folder, "steps"))
    assert all(
        torch.equal(one, other)
        for one, other in zip(
            held.policies[-1].state_dict().values(), plain.policies[-1].state_dict().values(), strict=True
        )
    )


def test_a_few_groups_of_other_prompts_are_logged_with_both_policies(run: Recorded) -> None:
    batch, held = split(run.folder, "sequences")
    tokens = split(run.folder, "tokens")[1]
    for step in range(run.config.updates):
        ours, theirs = (rows.filter(pc.equal(rows["step"], step)) for rows in (batch, held))
        assert len(theirs) == 3 * 4 and len(set(theirs["prompt"].to_pylist())) == 3
        assert not set(theirs["prompt"].to_pylist()) & set(ours["prompt"].to_pylist())
        assert not set(theirs["group_id"].to_pylist()) & set(ours["group_id"].to_pylist())
        assert theirs["seq_id"].to_pylist() == list(range(len(ours), len(ours) + 12))
        assert theirs["behavior_version_min"].unique() == ours["behavior_version_min"].unique()  # the same sampler
        for group in set(theirs["group_id"].to_pylist()):
            reward = np.array(theirs.filter(pc.equal(theirs["group_id"], group))["reward"])
            rows = tokens.filter(pc.and_(pc.equal(tokens["step"], step), pc.equal(tokens["group_id"], group)))
            first = rows.filter(pc.equal(rows["position"], 0))
            expected = (reward - reward.mean()) / np.sqrt(reward.var() + 1e-8)  # as the batch has it: GRPO
            np.testing.assert_allclose(first["advantage"], expected, atol=1e-5)
    assert len(tokens) == sum(held["n_tokens"].to_pylist())
    for column in ("clipped", "clip_side", "gate", "gradient_weight"):
        assert tokens[column].null_count == len(tokens)
    for column in ("logp_behavior", "logp_current", "logp_new", "entropy", "tv_current_behavior", "tv_new_current"):
        assert tokens[column].null_count == 0
    stale = tokens.filter(pc.greater(tokens["step"], tokens["behavior_version"]))
    assert not np.allclose(stale["logp_current"], stale["logp_behavior"])
    fresh = tokens.filter(pc.equal(tokens["step"], tokens["behavior_version"]))
    np.testing.assert_allclose(fresh["logp_current"], fresh["logp_behavior"], atol=1e-4)


def test_the_new_policy_of_a_step_is_the_current_one_of_the_next(run: Recorded) -> None:
    """logp_current and logp_new of one token, by the policies that were kept."""
    held = split(run.folder, "tokens")[1]
    sequence = held.filter(pc.and_(pc.equal(held["step"], 4), pc.equal(held["seq_id"], 24)))
    (response,) = (
        row for row in split(run.folder, "sequences")[1].to_pylist() if (row["step"], row["seq_id"]) == (4, 24)
    )
    prompt = torch.tensor([CharacterVocabulary(task_of(run).characters).encode(response["prompt"])])
    answer = torch.tensor([sequence["token_id"].to_pylist()])
    whole = torch.cat([prompt, answer], dim=1)
    for version, column in ((4, "logp_current"), (5, "logp_new")):
        with torch.no_grad():
            logits = run.policies[version](whole).logits[0, prompt.shape[1] - 1 : -1].log_softmax(dim=-1)
        expected = logits.gather(1, answer[0].unsqueeze(1)).squeeze(1)
        np.testing.assert_allclose(sequence[column], expected, atol=1e-4)


def test_a_stopped_run_goes_on_with_the_same_ones(tmp_path: Path) -> None:
    whole = train(small(*RESUMABLE, *HELD), tmp_path / "whole")
    folder, left = tmp_path / "run", iter([False] * 4)
    train(small(*RESUMABLE, *HELD), folder, should_stop=lambda: next(left, True))
    assert train(configuration_to_resume(folder, []), folder, resume=True).status == "finished"
    assert same_tables(folder, whole.folder)


@pytest.mark.usefixtures("forked")
def test_actors_hold_out_what_they_sampled_for_other_prompts(tmp_path: Path) -> None:
    run = train(small("actors=1", "updates=3", "held_out_groups=2", "exact=true", "top_k=4"), tmp_path / "run")
    batch, held = split(run.folder, "sequences")
    assert len(batch) == 3 * 6 * 4 and len(held) == 3 * 2 * 4
    for step in range(3):
        ours, theirs = (set(rows.filter(pc.equal(rows["step"], step))["prompt"].to_pylist()) for rows in (batch, held))
        assert theirs and not ours & theirs


def test_more_prompts_than_there_are_are_refused() -> None:
    with pytest.raises(RatioscopeError, match=r"held_out_groups=90\.$"):
        checks.check_settings(small("held_out_groups=90"))
