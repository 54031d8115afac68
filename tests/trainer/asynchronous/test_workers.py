"""A3C: two processes that apply their gradients to shared weights, rebuilt from the log alone.

Workers import torch for seconds; these are forked. What starts processes is the same as for actors, and tested there.
"""

import copy
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ratioscope import Manifest
from ratioscope.trainer.training.loop import Trainer, configuration_to_resume
from ratioscope.trainer.training.update import adamw
from tests.making.training import Recorded, fork_processes, small, table
from tests.oracles.replay import distributions, recomputed, recomputed_by_own_version, steps_of, with_gradient

WORKERS = ("algorithm=reinforce", "workers=2", "learning_rate=0.003")
UPDATES = 30


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    """Workers that need not import anything."""
    with pytest.MonkeyPatch.context() as patch:
        fork_processes(patch)
        yield


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """A run that evaluates every update, so that its policies are known; Ctrl-C reaches its workers, too."""
    config = small(*WORKERS, f"updates={UPDATES}", "evaluate_every=1", "exact=true")
    trainer = Trainer(config, tmp_path_factory.mktemp("workers") / "run")
    policies = [copy.deepcopy(trainer.initial)]

    def report(progress: object) -> None:
        if len(policies) == 1:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid or 0, signal.SIGINT)
        assert trainer.workers is not None
        policies.append(copy.deepcopy(trainer.workers._model))

    return Recorded(trainer.folder, config, trainer.run(report), policies)


def test_every_update_is_there_once_and_says_which_versions_it_is_of(asynchronous: Recorded) -> None:
    assert asynchronous.status == "finished" and multiprocessing.active_children() == []
    steps = table(asynchronous.folder, "steps").to_pydict()
    assert steps["step"] == steps["policy_version"] == [*range(UPDATES)]
    assert {*steps["extra_worker"]} == {0, 1}
    assert max(steps["extra_gradient_staleness"]) > 0 == min(steps["extra_gradient_staleness"])
    for step, tokens in enumerate(steps_of(asynchronous.folder)):
        sampled = steps["extra_version_sampled"][step]
        assert (tokens["behavior_version"] == sampled).all()
        assert step - sampled == steps["extra_gradient_staleness"][step] >= 0


def test_log_probs_are_those_of_the_versions_sampled_differentiated_applied_to_and_made(asynchronous: Recorded) -> None:
    for step, tokens in enumerate(steps_of(asynchronous.folder)):
        sampled = recomputed_by_own_version(asynchronous, step)
        assert tokens["logp_behavior"] == pytest.approx(sampled, abs=1e-4)
        assert tokens["logp_gate"] == pytest.approx(sampled, abs=1e-4)
        assert tokens["logp_current"] == pytest.approx(recomputed(asynchronous, step, step), abs=1e-4)
        assert tokens["logp_new"] == pytest.approx(recomputed(asynchronous, step, step + 1), abs=1e-4)
        old, now = (distributions(asynchronous, step, asynchronous.policies[v]).exp() for v in (step, step + 1))
        assert tokens["tv_new_current"] == pytest.approx((now - old).abs().sum(dim=1) / 2, abs=1e-4)


def test_each_version_is_the_one_before_it_moved_along_a_stale_gradient(asynchronous: Recorded) -> None:
    """The course of the weights from the logged coefficients, with one AdamW for all workers."""
    moving = list(copy.deepcopy(asynchronous.policies[0]).requires_grad_(True).parameters())
    optimiser = adamw(moving, asynchronous.config.optimiser)
    for step, tokens in enumerate(steps_of(asynchronous.folder)):
        stale = copy.deepcopy(asynchronous.policies[int(tokens["behavior_version"][0])]).requires_grad_(True)
        found = with_gradient(asynchronous, step, stale).gather(1, tokens["token_id"].long().unsqueeze(1)).squeeze(1)
        (-(tokens["gradient_weight"] * found).sum()).backward()
        torch.nn.utils.clip_grad_norm_(stale.parameters(), asynchronous.config.optimiser.max_grad_norm)
        for weight, of_stale in zip(moving, stale.parameters(), strict=True):
            weight.grad = of_stale.grad
        optimiser.step()
        expected = asynchronous.policies[step + 1].parameters()
        assert all(torch.allclose(one, other, atol=2e-4) for one, other in zip(moving, expected, strict=True)), step


def test_a_stopped_run_goes_on_and_one_that_was_torn_away_sets_aside_what_is_not_behind_its_checkpoint(
    tmp_path: Path,
) -> None:
    """With a critic, whose weights and moments are shared, too."""
    config = small("algorithm=a3c", "workers=2", "updates=14", "checkpoint_every=4")
    seen: list[int] = []

    def tear() -> bool:
        if seen[-1] >= 6:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        Trainer(config, tmp_path / "run").run(lambda progress: seen.append(progress.update), tear)
    assert Manifest.read(tmp_path / "run").status == "interrupted" and multiprocessing.active_children() == []
    again = Trainer(configuration_to_resume(tmp_path / "run", []), tmp_path / "run", resume=True)
    start = again.next_update
    assert 4 <= start <= 7 and again.recorder.last_step == start - 1
    assert again.run(lambda progress: seen.append(progress.update), lambda: seen[-1] >= 9) == "interrupted"
    stopped = seen[-1] + 1
    assert table(tmp_path / "run", "steps")["step"].to_pylist() == [*range(stopped)]
    last = Trainer(configuration_to_resume(tmp_path / "run", []), tmp_path / "run", resume=True)
    assert last.next_update == stopped
    assert last.run(lambda progress: None) == "finished"
    assert table(tmp_path / "run", "steps")["step"].to_pylist() == [*range(14)]
    aside = sorted(path.name for path in tmp_path.glob("run/set_aside/*/steps/*"))
    assert bool(aside) == (start < 7)
    assert multiprocessing.active_children() == []
