"""Labels of versions that are one token off: of the whole column, or of the place where the policy changes; and
responses of several versions where the manifest rules them out."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, write_run

N, LENGTH = 48, 24


def steps_of(fault: str) -> Iterator[Step]:
    """Responses that an old version began, .2 nats off, and a newer one ended, .04 nats off."""
    rng = np.random.default_rng(8)
    for number in range(8, 16):
        sequence, position = np.repeat(np.arange(N), LENGTH), np.tile(np.arange(LENGTH), N)
        change = rng.integers(6, 18, N)[sequence]
        old: NDArray[np.bool_] = position < change
        behavior = -rng.exponential(1.0, len(sequence)) - 0.3
        current = np.minimum(behavior + np.where(old, 0.2, 0.04) * rng.standard_normal(len(sequence)), -1e-3)
        labelled = {"change late": position < change + 1, "change early": position < change - 1}.get(fault, old)
        version = number - 1 - 2 * labelled - 3 * (sequence % 2)
        if fault in ("column late", "column early"):
            version = np.roll(version, 1 if fault == "column late" else -1)
        yield plain_step(
            behavior, current, number=number, sequence=sequence, group=sequence // 8,
            behavior_version=version.astype(np.int32),
        ).with_tokens(token_id=None)  # fmt: skip


def said(folder: Path, fault: str) -> list[str]:
    run = open_run(write_run(folder / fault, steps_of(fault)))
    return [remark.sentence for remark in asked(run, "versions") if remark.severity]


@pytest.mark.parametrize("fault", ["column late", "column early", "change late", "change early"])
def test_labels_that_are_one_token_off_are_named(tmp_path: Path, fault: str) -> None:
    (sentence,) = said(tmp_path, fault)
    assert f"one token {fault.split()[1]}" in sentence
    assert ("the response" in sentence) == fault.startswith("column"), sentence


@pytest.mark.parametrize(("apart", "said_so"), [(0.05, True), (0.3, False)])
def test_a_counter_that_begins_again_is_told_from_data_that_came_late(
    apart: float, said_so: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)

    def step(number: int) -> Step:
        late = number in (9, 10)
        behavior = -rng.exponential(1.0, 240) - 0.3
        moved = (apart if late else 0.05) * rng.standard_normal(240)
        return plain_step(
            behavior, np.minimum(behavior + moved, -1e-3), number=number, group=np.arange(240) // 8,
            behavior_version=np.full(240, number - (9 if late else 1), dtype=np.int32),
        )  # fmt: skip

    run = open_run(write_run(tmp_path / "run", [step(number) for number in range(1, 16)]))
    assert any("goes back" in each.sentence for each in asked(run, "versions")) is said_so


def test_true_labels_are_not(tmp_path: Path) -> None:
    assert said(tmp_path, "none") == []


@pytest.mark.parametrize(("version", "rises"), [(lambda number: 4 * number, True), (lambda number: number + 2, False)])
def test_versions_that_count_something_else_are_told_from_those_ahead(
    version: Callable[[int], int], rises: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(9)
    steps = [
        plain_step(
            values := -rng.exponential(1.0, 200) - 0.1, values, number=number,
            behavior_version=np.full(200, version(number), dtype=np.int32),
        )
        for number in range(8)
    ]  # fmt: skip
    (found,) = (each for each in asked(open_run(write_run(tmp_path / "run", steps)), "versions") if each.severity)
    assert "newer than the policy" in found.sentence
    assert ("Versions rise by 4 an update: they count something else." in found.sentence) is rises


class Schedule(NamedTuple):
    """What the manifest says of the schedule, and which responses go on under the next version."""

    stated: Mapping[str, Any]
    said: bool = False
    resumed: float = 0.5
    """Share of the responses."""
    edge: int = 12
    """Position from which on they do."""
    turn: int = 0
    """Tokens of a turn; 0: turns are not logged."""
    n_turns: int | None = None
    by_token: bool = True
    bounds: tuple[bool, bool] = (True, True)
    """Whether the oldest and the newest version of a response are logged."""
    responses: int = N


OFF: dict[str, Any] = {"kind": "async", "partial_rollout": False}
SCHEDULES = {
    "off": Schedule(OFF, True),
    "off, by response": Schedule(OFF, True, by_token=False),
    "off, inside of turns": Schedule(OFF, True, turn=8, n_turns=3),
    "off, by turn": Schedule(OFF, turn=12, n_turns=2),
    "off, in turns that are not logged": Schedule(OFF, n_turns=2),
    "off, in turns, by response": Schedule(OFF, by_token=False, n_turns=2),
    "off, the oldest is not logged": Schedule(OFF, by_token=False, bounds=(False, True)),
    "off, no version is logged": Schedule(OFF, by_token=False, bounds=(False, False)),
    "off, few": Schedule(OFF, resumed=0.03),
    "off, of few responses": Schedule(OFF, responses=4),
    "off, the last token alone": Schedule(OFF, edge=LENGTH - 1),
    "off, and nobody does": Schedule(OFF, resumed=0.0),
    "off, weights are sent meanwhile": Schedule(OFF | {"in_flight_weight_updates": True}),
    "on": Schedule(OFF | {"partial_rollout": True}),
    "null": Schedule(OFF | {"partial_rollout": None}),
    "not stated": Schedule({"kind": "async"}),
}


def scheduled(schedule: Schedule) -> Iterator[Step]:
    rng, n = np.random.default_rng(3), schedule.responses
    for number in range(2, 10):
        sequence, position = np.repeat(np.arange(n), LENGTH), np.tile(np.arange(LENGTH), n)
        goes_on = rng.random(n) < schedule.resumed
        version = (number - 2 + (goes_on[sequence] & (position >= schedule.edge))).astype(np.int32)
        values = -rng.exponential(1.0, len(sequence)) - 0.1
        turn = (position // schedule.turn).astype(np.int16) if schedule.turn else None
        step = plain_step(values, values, number=number, sequence=sequence, group=sequence // 4).with_tokens(
            logp_current=None, turn=turn, behavior_version=version if schedule.by_token else None
        )
        bounds = zip(("min", "max"), schedule.bounds, (number - 2 + 0 * goes_on, number - 2 + goes_on), strict=True)
        columns = {f"behavior_version_{name}": of.astype(np.int32) for name, there, of in bounds if there}
        if schedule.n_turns is not None:
            columns["n_turns"] = np.full(n, schedule.n_turns, np.int32)
        yield step.with_sequences(**columns)


@in_one_loop("schedule", SCHEDULES)
def test_who_goes_on_under_other_weights_unasked(tmp_path: Path, schedule: Schedule) -> None:
    folder = tmp_path / str(len([*tmp_path.iterdir()]))
    run = open_run(write_run(folder, scheduled(schedule), schedule=schedule.stated))
    found = [each for each in asked(run, "selection") if each.of_cause == "resumed_unasked"]
    assert len(found) == schedule.said
    for each in found:
        assert each.is_problem and "schedule.partial_rollout is false" in each.sentence
        assert "% of them have tokens of several versions" in each.sentence
