"""A baseline that is the reward of one response of the group is named; other baselines, and one by design, are not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter import credited
from tests.analysis.linter.credited import GROUPS, RESPONSES, Batch, Floats, N
from tests.analysis.linter.remarks import asked
from tests.making.loops import in_one_loop
from tests.making.runs import Step, write_run

PLACE = np.arange(N) % RESPONSES
GROUPED = {"name": "grpo", "parts": {"advantage": "group_mean"}}


def of_groups(batch: Batch) -> Floats:
    """(groups, responses)."""
    return batch.reward.reshape(GROUPS, RESPONSES)


def above(batch: Batch, baseline: Floats) -> None:
    """Rewards above one number for each group."""
    batch.advantage = (of_groups(batch) - baseline.reshape(GROUPS, 1)).ravel()


def graded(batch: Batch) -> None:
    score = np.clip(batch.reward + 0.3 * batch.rng.standard_normal(N), 0, 1)
    batch.reward = np.asarray(np.round(score, 2), dtype=np.float64)


def divided(batch: Batch) -> None:
    """By the deviation of the group."""
    deviation = of_groups(batch).std(axis=1, keepdims=True)
    batch.advantage = (batch.advantage.reshape(GROUPS, RESPONSES) / (deviation + 1e-4)).ravel()


def at(place: int) -> Callable[[Batch], None]:
    def fault(batch: Batch) -> None:
        above(batch, of_groups(batch)[:, place])

    return fault


def graded_first(batch: Batch) -> None:
    graded(batch)
    at(0)(batch)


def first_in_deviations(batch: Batch) -> None:
    at(0)(batch)
    divided(batch)


def first_of_rows_in_any_order(batch: Batch) -> None:
    """Groups are of three to eight responses."""
    at(0)(batch)
    batch.missing = batch.rng.integers(3, RESPONSES + 1, GROUPS)[np.arange(N) // RESPONSES] <= PLACE


FAULTS: dict[str, tuple[Callable[[Batch], None], str]] = {
    "first": (at(0), "above that of the first"),
    "third": (at(2), "above that of response 3"),
    "last": (at(-1), "above that of response 8"),
    "graded": (graded_first, "above that of the first"),
    "in deviations": (first_in_deviations, "above that of the first"),
    "groups of several sizes": (first_of_rows_in_any_order, "above that of the first"),
}


def by_others(batch: Batch) -> None:
    above(batch, of_groups(batch).mean(axis=1))
    batch.advantage *= RESPONSES / (RESPONSES - 1)


def above_the_median(batch: Batch) -> None:
    above(batch, np.median(of_groups(batch), axis=1))


def above_the_majority(batch: Batch) -> None:
    above(batch, (of_groups(batch).mean(axis=1) > 0.5).astype(float))


def above_the_best(batch: Batch) -> None:
    above(batch, of_groups(batch).max(axis=1))


def above_the_best_in_order(batch: Batch) -> None:
    """A group's responses are sorted, so that the best one is the first."""
    batch.reward = -np.sort(-of_groups(batch), axis=1).ravel()
    above_the_best(batch)


def above_the_worst_in_order(batch: Batch) -> None:
    batch.reward = -np.sort(-of_groups(batch), axis=1).ravel()
    above(batch, of_groups(batch).min(axis=1))


def first_not_learned(batch: Batch) -> None:
    """The first one has no advantage, and the others have the group's."""
    batch.advantage = np.where(PLACE == 0, 0.0, batch.advantage)


def first_outside_of_the_group(batch: Batch) -> None:
    """The others are compared with each other."""
    others = of_groups(batch)[:, 1:]
    above(batch, others.mean(axis=1))
    batch.advantage = np.where(PLACE == 0, 0.0, batch.advantage)


def any_place(batch: Batch) -> None:
    """Another response in each group."""
    chosen = batch.rng.integers(0, RESPONSES, GROUPS)
    above(batch, of_groups(batch)[np.arange(GROUPS), chosen])


def pairs(batch: Batch) -> None:
    """Groups of two: each of both is beside the other one."""
    at(0)(batch)
    batch.missing = PLACE > 1


def marked(column: str, one: Any, other: Any) -> Callable[[Batch], None]:
    """The first of each group is logged as a baseline by design."""

    def fault(batch: Batch) -> None:
        at(0)(batch)
        batch.columns = {column: np.where(PLACE == 0, one, other)}

    return fault


def marked_alone(batch: Batch) -> None:
    at(0)(batch)
    batch.columns = {"source": ["baseline" if place == 0 else None for place in PLACE]}


CONTROLS: dict[str, Callable[[Batch], None]] = {
    function.__name__: function
    for function in (by_others, above_the_median, above_the_majority, above_the_best, above_the_best_in_order,
                     above_the_worst_in_order, first_not_learned, first_outside_of_the_group, any_place, pairs,
                     marked_alone, credited.nothing, credited.shifted_alike)
} | {
    "source": marked("source", "greedy", "sampled"),
    "temperature": marked("temperature", 0.0, 1.0),
    "in_baseline": marked("in_baseline", True, False),
}  # fmt: skip


def said(folder: Path, fault: Callable[[Batch], None], algorithm: Any = None, seed: int = 0) -> list[Finding]:
    run = open_run(credited.written(folder, fault, seed=seed, algorithm=algorithm))
    return [each for each in asked(run, "credit") if each.of_cause == "one_response_as_baseline"]


@in_one_loop("name", {name: name for name in FAULTS})
def test_one_response_as_the_baseline_is_named(tmp_path: Path, name: str) -> None:
    fault, words = FAULTS[name]
    (found,) = asked(open_run(credited.written(tmp_path / name, fault)), "credit")
    assert found.of_cause == "one_response_as_baseline" and found.severity is Severity.WARNING, found.sentence
    assert words in found.sentence and len(found.sentence.split()) <= 25 and found.examples


@in_one_loop("name", {name: name for name in CONTROLS})
def test_another_baseline_is_not(tmp_path: Path, name: str) -> None:
    for seed, stated in enumerate((None, GROUPED)):
        assert said(tmp_path / f"{name} {seed}", CONTROLS[name], stated, seed) == []


def test_a_baseline_by_design_is_none_of_a_fault(tmp_path: Path) -> None:
    for number, algorithm in enumerate(({"name": "remax"}, {"name": "x", "parts": {"advantage": "greedy_baseline"}})):
        assert said(tmp_path / str(number), at(0), algorithm) == []
    (unknown,) = said(tmp_path / "unknown", at(0), {"name": "our_own"})
    assert unknown.severity is Severity.NOTICE


def test_the_likeliest_of_a_group_is_taken_for_a_baseline_by_design(tmp_path: Path) -> None:
    def steps(share: float) -> Iterator[Step]:
        for step in credited.batches(at(0)):
            columns = step.tokens
            sequence = np.asarray(columns["seq_id"])
            lucky: NDArray[np.bool_] = np.random.default_rng(step.number).random(GROUPS) < share
            greedy = (sequence % RESPONSES == 0) & lucky[sequence // RESPONSES]
            for name in ("logp_behavior", "logp_current"):
                columns[name] = np.where(greedy, -0.01, columns[name]).astype(np.float32)
            yield step

    for share, named in ((1.0, False), (0.2, True)):
        run = open_run(write_run(tmp_path / str(share), steps(share), algorithm=credited.GRPO))
        assert any(each.of_cause == "one_response_as_baseline" for each in asked(run, "credit")) is named
