"""Batches, or prompts, that are taken again are named; those of several updates, or of several epochs, are not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.analysis.linter.test_batch_rows import table
from tests.cases.world import Columns, Shape, simulate, write
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, write_run

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


BEGUN = {"data_begin_anew": Severity.WARNING, "data_come_again": Severity.NOTICE}
PERIOD = list(range(10))


class Order(NamedTuple):
    """Batches of prompts by step, and what is said of them."""

    batches: Sequence[int]
    cause: str = ""
    words: str = ""
    prompts: int | None = None
    """How many the manifest states."""
    each: int = 8
    """Prompts of a batch."""
    same_answers: bool = False
    """Whether a batch has the same responses each time."""
    pause: float | None = 0.0
    """Hours before step 10; None: no time is logged."""
    logged_every: int = 1


ORDERS = {
    "begun anew, of more": Order(
        [*PERIOD, *PERIOD], "data_begin_anew", "steps 10–19 have the prompts of steps 0–9, in order.", 2000
    ),
    "behind a pause": Order(
        [*PERIOD, *PERIOD], "data_begin_anew", "in order; a pause of 2 hours is before them.", 2000, pause=2.0
    ),
    "without a clock": Order([*PERIOD, *PERIOD], "data_begin_anew", "of steps 0–9, in order.", 2000, pause=None),
    "of as many": Order([*PERIOD, *PERIOD], "data_come_again", "steps 10–19 have the prompts of steps 0–9", 80),
    "of nearly as many": Order([*PERIOD, *PERIOD], "data_come_again", "as in unshuffled epochs", 84),
    "of unknown number": Order([*PERIOD, *PERIOD], "data_come_again", "A restart lost its place"),
    "the first few": Order([*PERIOD, 0, 1, 2], "data_come_again", "steps 10–12 have the prompts of steps 0–2"),
    "new ones follow": Order([*range(5), *range(13)], "data_begin_anew", "steps 5–9 have the prompts of steps 0–4"),
    "each serves two updates": Order(
        [batch for batch in [*range(5), *range(5)] for _ in range(2)], "data_begin_anew",
        "steps 10–19 have the prompts of steps 0–9", 2000,
    ),
    "again and again, of more": Order(4 * PERIOD[:4], "data_begin_anew", "steps 4–7 have the prompts of steps 0", 500),
    "every second step is logged": Order([*PERIOD, *PERIOD], "data_come_again", prompts=2000, logged_every=2),
    "two alone": Order([*PERIOD, 0, 1]),
    "another one between": Order([*PERIOD, 0, 1, 11, 3, 4, 5]),
    "in another order": Order([*PERIOD, 1, 0, 2, 4, 3, 5, 6, 8, 7, 9]),
    "three epochs": Order(3 * PERIOD),
    "few prompts": Order(10 * [0, 1]),
    "one batch": Order(20 * [0]),
    "one prompt a step": Order([*PERIOD, *PERIOD], prompts=2000, each=1),
    "came before": Order([0, 1, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4], prompts=2000),
    "learned from twice": Order([*PERIOD, *PERIOD], prompts=2000, same_answers=True),
    "blocks that come twice": Order([*range(4), *range(4), *range(4, 8), *range(4, 8)], prompts=2000),
    "all new": Order(range(20), prompts=2000),
}  # fmt: skip


@in_one_loop("order", ORDERS)
def test_prompts_that_begin_anew(tmp_path: Path, order: Order) -> None:
    run = open_run(ordered(tmp_path / str(len([*tmp_path.iterdir()])), order))
    found = {each.of_cause: each for each in asked(run, "selection")}
    assert {*found} & {*BEGUN} == {order.cause} - {""}, found
    if order.cause:
        said = found[order.cause]
        assert order.words in said.sentence and said.severity is BEGUN[order.cause], said.sentence
        assert ("pause" in said.sentence) == bool(order.pause)


def test_one_prompt_that_is_not_logged_says_nothing(tmp_path: Path) -> None:
    run = open_run(ordered(tmp_path / "run", ORDERS["begun anew, of more"], unknown=3))
    assert not {each.of_cause for each in asked(run, "selection")} & {*BEGUN}


def ordered(folder: Path, order: Order, unknown: int = -1) -> Path:
    """A run of responses alone whose steps have these batches.

    Args:
        unknown: the step in which one prompt is not logged.
    """
    rows = table(steps=len(order.batches), groups=order.each, responses=4)
    start, steps = datetime(2026, 1, 5, tzinfo=UTC), []
    for number, (_, of) in enumerate(rows.groupby("step")):
        batch = order.batches[number]
        answer = 10**6 * (batch if order.same_answers else number) + of["seq_id"].to_numpy()
        prompt: list[Any] = (order.each * batch + of["group_id"]).tolist()
        if number == unknown:
            prompt[-4:] = [None] * 4
        ended = start + timedelta(minutes=6 * number, hours=(order.pause or 0.0) * (number >= 10))
        columns: Columns = {name: of[name].to_numpy() for name in ("seq_id", "group_id", "reward")}
        columns |= {"prompt_id": prompt, "response": [f"the answer to this is {each}" for each in answer.tolist()]}
        steps.append(
            Step(number * order.logged_every, {}, columns, {"wall_time": None if order.pause is None else ended})
        )
    task = {} if order.prompts is None else {"prompts": order.prompts}
    with RunRecorder(folder, flush_seconds=float("inf"), task=task) as recorder:
        for step in steps:
            recorder.record_step(step.number, sequences=step.sequences, scalars=step.scalars)
    return folder


def sets(
    size: int,
    rises: tuple[float, float] = (0.65, 0.0),
    *,
    other: int = 10_000,
    share: int = 4,
    evaluation: float | None = None,
) -> dict[str, Any]:
    """Two data sets, of which one has so many prompts and so many of the eight groups of a step.

    Args:
        rises: by how much the reward of this one and of the other one grows.
        other: prompts of the other one.
        evaluation: by how much the accuracy grows; None: it is not logged.
    """
    rows = table(steps=24, responses=4)
    mine, rng = rows["group_id"] < share, np.random.default_rng(8)
    each = rows["step"] * 8 + rows["group_id"]
    done = rows["step"] / 23
    rate = np.where(mine, 0.3 + rises[0] * done, 0.3 + rises[1] * done)
    rows = rows.assign(
        environment=np.where(mine, "puzzles", "web"),
        prompt_id=np.where(mine, each % size, 50_000 + each % other),
        reward=(rng.random(len(rows)) < rate).astype(float),
    )
    steps = []
    for number, of in rows.groupby("step"):
        columns = {str(name): list(of[name]) for name in of.columns.drop("step")}
        accuracy = None if evaluation is None else 0.4 + evaluation * int(str(number)) / 23
        steps.append(Step(int(str(number)), {}, columns, {} if accuracy is None else {"eval_accuracy": accuracy}))
    return {"steps": steps}


OFTEN = {"few_prompts_by_heart": Severity.WARNING, "few_prompts_over_and_over": Severity.NOTICE}
SETS = {
    "by heart": (sets(12), "few_prompts_by_heart"),
    "by heart, evaluated": (sets(12, evaluation=0.02), "few_prompts_by_heart"),
    "a small part of a step": (sets(8, share=2), "few_prompts_by_heart"),
    "it carries over": (sets(12, (0.65, 0.4)), "few_prompts_over_and_over"),
    "an evaluation rises": (sets(12, evaluation=0.3), "few_prompts_over_and_over"),
    "nothing is learned": (sets(12, (0.05, 0.0)), "few_prompts_over_and_over"),
    "one group of eight": (sets(2, share=1), ""),
    "as many as there are groups": (sets(400), ""),
    "few of either": (sets(12, other=16), ""),
    "one set": (sets(12, share=8), ""),
}


@in_one_loop("name", {name: name for name in SETS})
def test_few_prompts_of_a_mixture(tmp_path: Path, name: str) -> None:
    (how, cause), folder = SETS[name], tmp_path / str(len([*tmp_path.iterdir()]))
    with RunRecorder(folder, flush_seconds=float("inf")) as recorder:
        for step in how["steps"]:
            recorder.record_step(step.number, sequences=step.sequences, scalars=step.scalars)
    found = {each.of_cause: each for each in asked(open_run(folder), "selection")}
    assert {*found} & {*OFTEN} == {cause} - {""}, found
    if cause:
        said = found[cause]
        assert said.severity is OFTEN[cause] and "prompts of puzzles are" in said.sentence, said.sentence
        assert ("that of web goes from" in said.why) == (cause == "few_prompts_by_heart"), said.why
        assert ("the evaluation from 0.4" in said.why) == (name == "by heart, evaluated"), said.why
