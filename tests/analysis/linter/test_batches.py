"""Batches, or prompts, that are taken again are named; those of several updates, or of several epochs, are not."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Columns, Shape, simulate, write
from tests.making.runs import plain_step, write_run

RESPONSES, LENGTH, GROUP = 16, 10, 4
N = RESPONSES * LENGTH


def remarks(folder: Path, batches: Sequence[int], *, moves: bool = True) -> list[Finding]:
    """What is said of a run whose steps have these batches.

    Args:
        moves: whether each step has a current policy of its own.
    """
    steps = []
    for number, batch in enumerate(batches):
        rng = np.random.default_rng([batch, 5])
        behavior = -rng.exponential(1.5, N) - 0.05
        token = rng.integers(0, 500, N).astype(np.int32)
        now = np.random.default_rng(number if moves else batch)
        current = np.minimum(behavior + 0.02 * now.standard_normal(N), -1e-3)
        sequence = np.arange(N) // LENGTH
        step = plain_step(behavior, current, number=number, sequence=sequence, group=sequence // GROUP, token_id=token)
        prompts = RESPONSES // GROUP
        steps.append(step.with_sequences(prompt_id=prompts * batch + np.arange(RESPONSES) // GROUP))
    return asked(open_run(write_run(folder, steps)), "selection")


def test_batches_that_are_taken_again_are_named(tmp_path: Path) -> None:
    (found,) = remarks(tmp_path / "run", [*range(12), 9, 10, 11, *range(12, 18)])
    assert found.of_cause == "batches_again" and "steps 12–14 are those of 9–11" in found.sentence, found.sentence


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(range(20), id="each once"),
        pytest.param([batch for batch in range(10) for _ in range(2)], id="two updates each"),
        pytest.param([3 * batch + part for batch in range(4) for _ in range(2) for part in range(3)], id="two passes"),
        pytest.param([*range(16), *range(3)], id="another epoch"),
    ],
)
def test_a_schedule_that_uses_batches_again_is_not_named(tmp_path: Path, batches: Sequence[int]) -> None:
    assert not any(each.of_cause for each in remarks(tmp_path / "run", batches))


def test_batches_that_were_logged_twice_are_not_learned_from_twice(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", [*range(12), 9, 10, 11, *range(12, 18)], moves=False)
    assert not any(each.of_cause for each in found)


def in_a_row(
    folder: Path, often: int, *, parts: bool = False, shuffled: bool = False, prompts: int = 0
) -> list[Finding]:
    """What is said of a run whose batches of prompts are answered anew in so many steps in a row.

    Args:
        parts: the responses were sampled at once, and each step learns from a part of them.
        shuffled: the steps come in another order.
        prompts: how many there are; 0: each batch has new ones.
    """
    steps, each = 24, 4

    def setup(responses: Columns) -> None:
        step = responses["step"]
        order = np.random.default_rng(3).permutation(steps) if shuffled else np.arange(steps)
        prompt = order[step] // often * each + responses["group_id"] % each
        responses["prompt_id"] = prompt % prompts if prompts else prompt
        if parts:
            responses["behavior_version_min"] = step // often * often

    log = simulate(Shape(87, steps=steps, groups=each, lag=0, longest=24), setup=setup)
    return [found for found in asked(open_run(write(log, folder)), "selection") if found.of_cause]


def test_prompts_that_come_again_in_the_next_steps_are_named(tmp_path: Path) -> None:
    for often, words in ((2, "come twice in a row"), (3, "come in 3 steps in a row")):
        (found,) = in_a_row(tmp_path / str(often), often)
        assert found.of_cause == "prompts_repeated" and found.severity is Severity.WARNING
        assert words in found.sentence and f"{96 // often} prompts in 24 steps" in found.sentence, found.sentence


def test_prompts_of_a_schedule_that_uses_or_visits_them_again_are_not_named(tmp_path: Path) -> None:
    assert in_a_row(tmp_path / "once", 1) == []
    assert in_a_row(tmp_path / "parts of what was sampled at once", 3, parts=True) == []
    assert in_a_row(tmp_path / "anywhere", 3, shuffled=True) == []
    assert in_a_row(tmp_path / "epochs", 1, prompts=32) == []
    assert in_a_row(tmp_path / "hardly ever new", 12) == []
