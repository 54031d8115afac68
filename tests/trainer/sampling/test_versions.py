"""Several policy versions in one batch: mixtures, switches inside a response, and what is too old to train on."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from ratioscope.trainer.model.policy import build
from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.sampling.rollout import Rollout
from ratioscope.trainer.sampling.sample import Switch, Version, sample
from ratioscope.trainer.sampling.schedule import live_versions
from ratioscope.trainer.settings.config import Model
from tests.making.training import Recorded, small, table, train
from tests.oracles.replay import Run, greedy_rewards, recomputed_by_own_version, sequences_of, steps_of
from tests.trainer.conftest import RESTLESS

MIXED = ("mixture=[1, 2, 1]", "sync_interval=2", "learning_rate=0.01")
SEGMENTED = ("mixture=[0, 0, 1]", "switch_probability=0.4", "learning_rate=0.01", "prompts=20")
WINDOW = "outside the version window"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """Forty groups an update from three versions, two updates apart."""
    many = ("prompts=40", "samples_per_prompt=2", "updates=12")
    return train(small(*MIXED, *many), tmp_path_factory.mktemp("mixed") / "run")


@pytest.fixture(scope="module")
def segmented(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """Responses that begin two versions back and may go on with the newest."""
    return train(small(*SEGMENTED), tmp_path_factory.mktemp("segmented") / "run")


def test_a_mixture_holds_every_live_version_and_no_other(mixed: Recorded) -> None:
    for step, tokens in enumerate(steps_of(mixed.folder)):
        assert set(tokens["behavior_version"].tolist()) == set(live_versions(mixed.config.schedule, step))


def test_all_responses_to_a_prompt_come_from_one_version_of_a_mixture(mixed: Recorded) -> None:
    for step, tokens in enumerate(steps_of(mixed.folder)):
        pairs = set(zip(tokens["group_id"].tolist(), tokens["behavior_version"].tolist(), strict=True))
        assert len(pairs) == 40
        sequences = sequences_of(mixed.folder, step)
        assert sequences["behavior_version_min"].equals(sequences["behavior_version_max"])


def test_each_response_may_draw_its_own_version(tmp_path: Path) -> None:
    run = train(small(*MIXED, "mixture_unit=response", "prompts=10"), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        assert tokens["logp_behavior"] == pytest.approx(recomputed_by_own_version(run, step), abs=2e-5)
    last = sequences_of(run.folder, 7)
    assert last["behavior_version_min"].equals(last["behavior_version_max"])
    groups = torch.tensor(last["behavior_version_min"].to_numpy()).view(10, 4)
    assert (groups != groups[:, :1]).any(dim=1).float().mean() > 0.5
    assert set(groups.flatten().tolist()) == {2, 4, 6}
    prompts = torch.tensor(last["prompt_id"].to_numpy()).view(10, 4)
    assert torch.equal(prompts, prompts[:, :1].expand(-1, 4)) and len(prompts[:, 0].unique()) == 10


def test_a_greedy_baseline_is_of_the_version_that_sampled_each_response(tmp_path: Path) -> None:
    few = ("updates=6", "samples_per_prompt=1", "temperature=2")
    run = train(small("algorithm=remax", *MIXED, "mixture_unit=response", "prompts=12", *few), tmp_path / "run")
    for step in range(6):
        assert sequences_of(run.folder, step)["extra_greedy_reward"].to_pylist() == greedy_rewards(run, step)


def test_the_shares_of_a_mixture_follow_its_weights(mixed: Recorded) -> None:
    drawn: Counter[int] = Counter()
    warm = range(4, 12)
    for step in warm:
        newest = live_versions(mixed.config.schedule, step)[0]
        versions = sequences_of(mixed.folder, step)["behavior_version_min"].to_pylist()[::2]
        drawn.update((newest - version) // 2 for version in versions)
    n = 40 * len(warm)
    for place, share in enumerate((0.25, 0.5, 0.25)):
        assert abs(drawn[place] / n - share) < 4 * (share * (1 - share) / n) ** 0.5


def test_every_token_of_a_mixture_has_its_own_versions_log_prob(mixed: Recorded) -> None:
    for step, tokens in enumerate(steps_of(mixed.folder)):
        assert tokens["logp_behavior"] == pytest.approx(recomputed_by_own_version(mixed, step), abs=2e-5)


def test_a_response_never_goes_back_to_an_older_version(segmented: Recorded) -> None:
    switched = 0
    for step, tokens in enumerate(steps_of(segmented.folder)):
        newest, oldest = step, max(0, step - 2)
        assert set(tokens["behavior_version"].tolist()) <= {newest, oldest}
        same = tokens["seq_id"][1:] == tokens["seq_id"][:-1]
        grown = (tokens["behavior_version"][1:] - tokens["behavior_version"][:-1])[same]
        assert (grown >= 0).all()
        assert (tokens["behavior_version"][tokens["position"] == 0] == oldest).all()
        switched += int((grown > 0).sum())
    assert switched > 50


def test_each_side_of_a_switch_has_its_own_versions_log_prob_after_the_real_prefix(segmented: Recorded) -> None:
    for step, tokens in enumerate(steps_of(segmented.folder)):
        assert tokens["logp_behavior"] == pytest.approx(recomputed_by_own_version(segmented, step), abs=2e-5)


def test_sequences_say_their_oldest_and_newest_version(segmented: Recorded) -> None:
    for step, tokens in enumerate(steps_of(segmented.folder)):
        sequences = sequences_of(segmented.folder, step)
        for name, reduce in (("min", torch.amin), ("max", torch.amax)):
            expected = [
                int(reduce(tokens["behavior_version"][tokens["seq_id"] == row])) for row in range(len(sequences))
            ]
            assert sequences[f"behavior_version_{name}"].to_pylist() == expected


def switching_samples(segment_length: int, probability: float) -> Rollout:
    """Two thousand responses of twelve tokens, begun by version 3 and perhaps ended by version 7."""
    vocabulary = CharacterVocabulary("abc")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        old, new = (build(Model(hidden_size=8, intermediate_size=8, layers=1, heads=1), vocabulary, 20) for _ in "ab")
    return sample(
        Version(old, 3),
        torch.full((1, 2), 2),
        torch.ones(1, 2, dtype=torch.long),
        vocabulary,
        copies=2_000,
        length=12,
        generator=torch.Generator().manual_seed(0),
        switch=Switch(Version(new, 7), probability, segment_length),
    )


@pytest.mark.parametrize("segment_length", [1, 3, 5])
def test_switches_come_at_segment_ends_only_and_as_often_as_asked(segment_length: int) -> None:
    rollout = switching_samples(segment_length, 0.3)
    both = rollout.mask[:, 1:]
    changed = (rollout.version[:, 1:] != rollout.version[:, :-1]) & both
    places = torch.arange(1, 12)
    assert not changed[:, places % segment_length != 0].any()
    could = ((rollout.version[:, :-1] == 3) & both)[:, places % segment_length == 0]
    n = int(could.sum())
    assert abs(int(changed.sum()) / n - 0.3) < 4 * (0.3 * 0.7 / n) ** 0.5


def test_a_certain_switch_leaves_the_first_segment_to_the_old_version() -> None:
    rollout = switching_samples(4, 1.0)
    assert (rollout.version[:, :4] == 3).all()
    assert (rollout.version[:, 4:][rollout.mask[:, 4:]] == 7).all()


def test_responses_outside_the_window_are_listed_and_left_out(tmp_path: Path) -> None:
    run = train(small("mixture=[1, 1, 1]", "window=2", "learning_rate=0.01"), tmp_path / "run")
    counted = table(run.folder, "steps")["tokens_dropped_window"].to_pylist()
    seen = 0
    for step, tokens in enumerate(steps_of(run.folder)):
        rows = sequences_of(run.folder, step).to_pylist()
        for row in rows:
            assert row.get("dropped") == (WINDOW if row["behavior_version_min"] <= step - 2 else None)
        left_out = [row for row in rows if row.get("dropped")]
        assert set(tokens["seq_id"].tolist()) == {row["seq_id"] for row in rows if row not in left_out}
        assert (counted[step] or 0) == sum(row["n_tokens"] for row in left_out)
        assert len(tokens["seq_id"]) == sum(row["n_tokens"] for row in rows if row not in left_out)
        seen += len(left_out)
    assert 0 < seen < 8 * 24


def test_stale_tokens_are_counted_and_left_out_one_by_one(recorded: Run, tmp_path: Path) -> None:
    """The first update is on-policy, so both runs sample the same second batch."""
    everything = steps_of(recorded("grpo").folder)[1]
    run = train(small("algorithm=grpo", *RESTLESS, "epsilon_stale=0.1"), tmp_path / "run")
    counted = table(run.folder, "steps")["tokens_dropped_stale"].to_pylist()
    ratio = (everything["logp_current"].double() - everything["logp_behavior"].double()).exp()
    fresh = (ratio - 1).abs() <= 0.1
    found = steps_of(run.folder)[1]
    for name in ("seq_id", "position", "token_id", "logp_behavior", "logp_current"):
        assert torch.equal(found[name], everything[name][fresh])
    assert counted[:2] == [0, int((~fresh).sum())]
    assert counted[1] > 0
    for step, tokens in enumerate(steps_of(run.folder)):
        sampled = sum(sequences_of(run.folder, step)["n_tokens"].to_pylist())
        assert len(tokens["seq_id"]) + counted[step] == sampled


def test_a_batch_of_which_nothing_is_left_changes_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    run = train(small("algorithm=grpo", *RESTLESS, "epsilon_stale=1e-9", "updates=5"), tmp_path / "run")
    sizes = [len(tokens["seq_id"]) for tokens in steps_of(run.folder)]
    assert run.status == "finished"
    assert sizes[0] > 0 and sizes[1] == 0
    assert all(map(torch.equal, run.policies[1].parameters(), run.policies[2].parameters()))


def test_offline_every_response_is_the_initial_policys(tmp_path: Path, tiny_policy: LlamaForCausalLM) -> None:
    run = train(small("offline=true", "learning_rate=0.01"), tmp_path / "run")
    assert all(map(torch.equal, run.policies[0].parameters(), tiny_policy.parameters()))
    for step, tokens in enumerate(steps_of(run.folder)):
        assert not tokens["behavior_version"].any()
        assert tokens["logp_behavior"] == pytest.approx(recomputed_by_own_version(run, step), abs=2e-5)
