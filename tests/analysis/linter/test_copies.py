"""A policy that no update moves is told from columns that are copies, where the sampler's values or prompts tell."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.runs import plain_step, write_run

N = 600


def remarks(
    folder: Path,
    check: str,
    moved: float,
    *,
    copied: bool = False,
    rate: float = 1e-6,
    lag: bool = True,
    of_another: bool = False,
) -> list[Finding]:
    """Of a log in which each update moves the policy so far, and columns may be copies of one.

    Args:
        of_another: logp_current is of a model that stands still, and the trainer's other columns are not logged.
    """
    rng = np.random.default_rng(0)
    steps = []
    # The tokens of a sequence are first tokens of prompts that come again in each step.
    token, walk = -rng.exponential(1.0, N) - 0.1, np.cumsum(moved * rng.standard_normal((9, N)), axis=0)
    for number in range(8):
        version = np.where(np.arange(N) % 2 & (number > 0) & lag, number - 1, number)
        trainer = np.minimum(token + walk[version, np.arange(N)], -1e-2)
        current = np.minimum(token + walk[number], -1e-2)
        behavior = np.minimum(trainer + 0.01 * rng.standard_normal(N), -1e-3)
        new = current if copied else np.minimum(token + walk[number + 1], -1e-2)
        step = plain_step(
            behavior, current, new, number=number, logp_behavior_train=current if copied else trainer,
            behavior_version=version.astype(np.int32), advantage=np.where(np.arange(N) % 3, 1.0, -1.0),
            gradient_weight=np.where(np.arange(N) % 3, 1.0, -1.0) / N,
        )  # fmt: skip
        if of_another:
            step.tokens["logp_current"] = np.minimum(token, -1e-2).astype(np.float32)
            del step.tokens["logp_new"], step.tokens["logp_behavior_train"]
            step.sequences["prompt_id"] = np.arange(N)
        step.scalars.update(grad_norm=0.5, learning_rate=rate)
        steps.append(step)
    return asked(open_run(write_run(folder, steps)), check)


def test_a_policy_that_no_update_moves_is_no_copy(tmp_path: Path) -> None:
    (found,) = remarks(tmp_path / "still", "applied_loss", 0.0)
    assert found.of_cause == "updates_without_effect" and "the policy does not move" in found.sentence
    assert not any(each.is_problem for each in remarks(tmp_path / "log", "copied_columns", 0.0))


@pytest.mark.parametrize(("moved", "named"), [(0.0, True), (0.05, False)], ids=["still", "of another model"])
def test_without_the_new_policy_the_sampler_tells_whether_the_policy_moves(
    moved: float, named: bool, tmp_path: Path
) -> None:
    found = remarks(tmp_path / "run", "applied_loss", moved, of_another=True)
    assert any(each.of_cause == "updates_without_effect" for each in found) is named


@pytest.mark.parametrize("rate", [1e-6, 0.0])
def test_a_policy_that_moves_or_has_no_learning_rate_is_not_named(tmp_path: Path, rate: float) -> None:
    found = remarks(tmp_path / "run", "applied_loss", 0.05 if rate else 0.0, rate=rate)
    assert [each.of_cause for each in found if each.of_cause == "updates_without_effect"] == []


def test_copies_of_a_policy_that_moves_are_copies(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", "copied_columns", 0.05, copied=True)
    assert any("copy" in each.sentence and each.is_problem for each in found)
    assert not any("no update moves" in each.sentence for each in found)


def test_where_nothing_tells_both_are_said(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", "copied_columns", 0.0, copied=True, lag=False)
    assert any("logp_new" in each.sentence and "or no update moves the policy" in each.sentence for each in found)
