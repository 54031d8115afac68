"""Real asynchrony: two processes that sample while the learner trains.

Actors import torch for seconds. One run has them as they are; where what matters comes later, they are forked.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratioscope import Manifest, RatioscopeError
from ratioscope.trainer.training.loop import Trainer, UpdateProgress
from tests.making.training import Recorded, small, table, train
from tests.oracles.replay import greedy_rewards, recomputed_by_own_version, sequences_of, steps_of

ACTORS = ("actors=2", "learning_rate=0.003")
UPDATES = 20


@pytest.fixture(scope="module", autouse=True)
def one_thread_an_actor() -> Iterator[None]:
    """Actors are processes of their own, and read the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """A run whose actors leave unlikely tokens out, so that the training engine has something to say, too.

    A terminal sends Ctrl-C to every process, to actors that have hardly begun, too: they leave it to the learner.
    """
    config = small(*ACTORS, "algorithm=remax", f"updates={UPDATES}", "top_p=0.95")
    return train(config, tmp_path_factory.mktemp("actors") / "run", on_start=interrupt_actors)


def interrupt_actors() -> None:
    actors = multiprocessing.active_children()
    assert len(actors) == 2
    for actor in actors:
        assert actor.pid is not None
        os.kill(actor.pid, signal.SIGINT)


def test_a_run_whose_actors_got_ctrl_c_trains_to_its_end_and_leaves_no_process_behind(asynchronous: Recorded) -> None:
    assert asynchronous.status == "finished"
    assert Manifest.read(asynchronous.folder).status == "finished"
    assert table(asynchronous.folder, "steps")["step"].to_pylist() == [*range(UPDATES)]
    assert multiprocessing.active_children() == []


def test_versions_are_from_the_past_and_grow(asynchronous: Recorded) -> None:
    lags, newest = [], []
    for step, tokens in enumerate(steps_of(asynchronous.folder)):
        version = tokens["behavior_version"]
        assert 0 <= int(version.min()) <= int(version.max()) <= step
        lags += (step - version).tolist()
        newest.append(int(version.max()))
        sequences = sequences_of(asynchronous.folder, step)
        assert sequences["behavior_version_min"].equals(sequences["behavior_version_max"])
        of_groups = sequences["behavior_version_min"].to_pylist()
        assert all(of_groups[row] == of_groups[row // 4 * 4] for row in range(len(of_groups)))
    assert newest[-1] > 0
    assert max(lags) > 0


def test_log_probs_of_actors_are_those_of_the_versions_that_they_name(asynchronous: Recorded) -> None:
    for step, tokens in enumerate(steps_of(asynchronous.folder)):
        expected = recomputed_by_own_version(asynchronous, step)
        assert tokens["logp_behavior_train"] == pytest.approx(expected, abs=1e-4)
        # What is left of a state has at least 95 % of the mass, so that no log-prob grows by more than -log 0.95.
        grown = tokens["logp_behavior"] - expected
        assert grown.min() >= -1e-4 and grown.max() <= 0.0514
        assert {"tv_current_behavior", "tv_version_spread"} <= set(tokens)


def test_greedy_baselines_of_actors_are_those_of_the_versions_that_they_name(asynchronous: Recorded) -> None:
    for step in range(0, UPDATES, 5):
        logged = sequences_of(asynchronous.folder, step)["extra_greedy_reward"].to_pylist()
        assert logged == greedy_rewards(asynchronous, step)


def test_actors_answer_different_prompts(asynchronous: Recorded) -> None:
    """Two actors with the same dice would fill every batch with pairs."""
    pairs = 0
    for step in range(UPDATES):
        prompts = sequences_of(asynchronous.folder, step)["prompt_id"].to_pylist()[::4]
        pairs += len(prompts) - len(set(prompts))
    assert pairs < UPDATES


@pytest.mark.usefixtures("forked")
def test_actors_outlive_ctrl_c_and_one_that_is_killed_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    trainer = Trainer(small(*ACTORS, "updates=100000", "pace=0.02"), tmp_path / "run")
    actors = multiprocessing.active_children()
    interrupt_actors()

    def kill(progress: UpdateProgress) -> None:
        if progress.update == 2:
            assert all(actor.is_alive() for actor in actors)
            assert actors[0].pid is not None
            os.kill(actors[0].pid, signal.SIGKILL)
        assert progress.update < 60, "nobody noticed"

    with pytest.raises(RatioscopeError, match=r"^Actor \d has ended with exit code -9; the run stops\.$"):
        trainer.run(kill)
    manifest = Manifest.read(tmp_path / "run")
    assert manifest.status == "failed"
    assert "has ended with exit code -9" in manifest.status_reason
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("forked")
def test_what_goes_wrong_inside_an_actor_is_told_by_the_learner(tmp_path: Path) -> None:
    """More prompts than there are: what the checks of a configuration would have refused."""
    config = small(*ACTORS, "actors=1")
    config = config.model_copy(update={"sampler": config.sampler.model_copy(update={"prompts": 1_000})})
    trainer = Trainer(config, tmp_path / "run")
    with pytest.raises(RatioscopeError, match=r"^Actor \d has failed: ValueError: Sample larger than population"):
        trainer.run(lambda progress: None)
    assert Manifest.read(tmp_path / "run").status == "failed"
    assert multiprocessing.active_children() == []
