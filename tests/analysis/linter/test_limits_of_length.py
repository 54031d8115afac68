"""A length limit that is given again to resumed responses, or cut into turns, is named; its near misses are not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, write_run

N, LIMIT, STEPS = 64, 40, 12


@dataclass
class Batch:
    """The responses of a step."""

    rng: np.random.Generator
    number: int
    wanted: NDArray[np.int64]
    """Tokens that each would have."""
    switch: NDArray[np.int64]
    """Where another version goes on, if it is so long."""
    limit: NDArray[np.int64]
    turn: int = 0
    """Tokens of a turn; 0: no conversation."""
    one_token: NDArray[np.int64] = field(default_factory=lambda: np.zeros(N, dtype=np.int64))
    """Turns of one token behind the last whole one."""
    flagged: bool = True


Fault = Callable[[Batch], None]


def steps_of(fault: Fault, seed: int = 0) -> Iterator[Step]:
    rng = np.random.default_rng([seed, 8])
    for number in range(STEPS):
        switch = np.where(rng.random(N) < 0.5, rng.integers(5, 60, N), 1000)
        batch = Batch(rng, number, rng.geometric(0.03, N) + 2, switch, np.full(N, LIMIT))
        fault(batch)
        length = np.minimum(batch.wanted, batch.limit)
        if batch.turn:
            length = np.maximum(length // batch.turn, 1) * batch.turn + batch.one_token
        sequence = np.repeat(np.arange(N), length)
        position = np.concatenate([np.arange(n) for n in length])
        behavior = -rng.exponential(1.5, len(sequence)) - 0.05
        step = plain_step(
            behavior, behavior, number=number, sequence=sequence, group=sequence // 8,
            behavior_version=(number + 1 + (position >= batch.switch[sequence])).astype(np.int32),
        ).with_tokens(token_id=None)  # fmt: skip
        if batch.turn:
            whole = (length - batch.one_token)[sequence]
            turn = np.minimum(position, whole) // batch.turn + np.clip(position - whole, 0, None)
            step = step.with_tokens(turn=turn.astype(np.int16))
        step.scalars["policy_version"] = number + 2
        columns: dict[str, Any] = {
            "seq_id": np.arange(N), "group_id": np.arange(N) // 8, "n_tokens": length.astype(np.int32),
            "truncated": (batch.wanted > batch.limit) & batch.flagged,
            "behavior_version_min": np.full(N, number + 1, dtype=np.int32),
            "behavior_version_max": (number + 1 + (batch.switch < length)).astype(np.int32),
        }  # fmt: skip
        step.sequences.clear()
        step.sequences.update(columns)
        yield step


def causes(folder: Path, fault: Fault, seed: int = 0) -> dict[str, str]:
    run = open_run(write_run(folder, steps_of(fault, seed), algorithm={"name": "grpo"}))
    return {each.of_cause: each.sentence + each.why for each in asked(run, "selection") if each.severity}


def given_again(batch: Batch) -> None:
    """What goes on after an abort is cut a whole limit behind it."""
    resumed = (batch.switch < LIMIT) & (batch.switch < batch.wanted)
    batch.limit = np.where(resumed, batch.switch + LIMIT, LIMIT)


def nothing(batch: Batch) -> None:
    """Resumed responses get what is left."""


def raised(batch: Batch) -> None:
    """The limit is raised for all at half of the run."""
    batch.limit = np.full(N, LIMIT if batch.number < STEPS // 2 else 2 * LIMIT)


def raised_where_all_are_resumed(batch: Batch) -> None:
    """From then on there is no response of one version to compare with."""
    raised(batch)
    batch.switch = np.full(N, 3 if batch.number >= STEPS // 2 else 1000)


def no_limit(batch: Batch) -> None:
    batch.limit = np.full(N, 10_000)


def in_turns(batch: Batch) -> None:
    """A conversation that ends where the context is full."""
    batch.turn, batch.switch = 8, np.full(N, 1000)


def one_token_in_a_full_context(batch: Batch) -> None:
    in_turns(batch)
    batch.one_token, batch.flagged = np.where(batch.wanted > batch.limit, 5, 0), False


def one_token_and_flagged(batch: Batch) -> None:
    one_token_in_a_full_context(batch)
    batch.flagged = True


def short_answers(batch: Batch) -> None:
    """Turns of one token at the end of responses of any length."""
    in_turns(batch)
    batch.one_token, batch.flagged = np.where(batch.rng.random(N) < 0.3, 3, 0), False


def test_a_limit_that_is_given_again_is_named(tmp_path: Path) -> None:
    said = causes(tmp_path / "run", given_again)
    assert set(said) == {"budget_given_again"}
    assert "pass 40 tokens" in said["budget_given_again"] and "of the last version alone" in said["budget_given_again"]


def test_turns_of_one_token_in_a_full_context_are_named(tmp_path: Path) -> None:
    said = causes(tmp_path / "run", one_token_in_a_full_context)
    assert "(5 in the median)" in said["turns_in_a_full_context"]


NEAR_MISSES = (nothing, raised, raised_where_all_are_resumed, no_limit, in_turns, one_token_and_flagged, short_answers)


@in_one_loop("fault", {fault.__name__: fault for fault in NEAR_MISSES})
def test_a_near_miss_is_not_named(tmp_path: Path, fault: Fault) -> None:
    for seed in range(2):
        assert causes(tmp_path / f"{fault.__name__} {seed}", fault, seed) == {}
