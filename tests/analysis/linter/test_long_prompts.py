"""Limits that long prompts run into are named; long prompts that are harder, or limits that cost nothing, are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Columns, Log, Shape, chances, compared, set_advantages, share, simulate, write
from tests.making.loops import in_one_loop

LIMIT = 64
Lengths = Callable[[Columns], Any]
Chance = Callable[[Log], Any]


def uncut(responses: Columns) -> Any:
    """Prompts of 24 to 79 tokens."""
    return 24 + (share(responses["prompt_id"], 81) * 56).astype(int)


def cut(responses: Columns) -> Any:
    return np.minimum(uncut(responses), LIMIT)


def in_two_templates(responses: Columns) -> Any:
    """A quarter has one length, far above that of all others."""
    return np.where(share(responses["prompt_id"], 82) < 0.25, 200, 24 + (uncut(responses) - 24) // 2)


def as_ever(log: Log) -> Any:
    return chances(log)


def never_at_the_limit(log: Log) -> Any:
    return np.where(log.responses["prompt_tokens"] == log.responses["prompt_tokens"].max(), 0.0, chances(log))


def harder_with_length(log: Log) -> Any:
    """Solved less and less often up to the limit."""
    return np.clip(0.9 - 0.016 * (log.responses["prompt_tokens"] - 24), 0.0, 1.0)


def found(folder: Path, lengths: Lengths, chance: Chance, **manifest: int) -> list[Finding]:
    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = lengths(responses)

    def reward(log: Log) -> Columns:
        return {"reward": (log.rng.random(len(log.responses["step"])) < chance(log)).astype(float)}

    log = simulate(Shape(81, groups=10, lag=0, steps=20, longest=24, shortest=6), setup=setup, reward=reward)
    log.manifest["task"] |= manifest
    return [each for each in asked(open_run(write(log, folder)), "selection") if each.of_cause]


def test_prompts_that_are_cut_are_named(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "run", cut, never_at_the_limit, max_prompt_tokens=LIMIT)
    assert one.of_cause == "cut_prompts_unsolved" and one.severity is Severity.WARNING
    assert "prompts have 64 tokens" in one.sentence and "they earn 0, those of" in one.why, one.why
    assert "max_prompt_tokens is 64" in one.why
    (unstated,) = found(tmp_path / "unstated", cut, never_at_the_limit, max_prompt_tokens=80)
    assert unstated.of_cause == one.of_cause and "manifest" not in unstated.why


NEAR_MISSES: dict[str, tuple[Lengths, Chance]] = {
    "the longest is one of many": (uncut, never_at_the_limit),
    "cut, and solved all the same": (cut, as_ever),
    "cut, and long ones are harder": (cut, harder_with_length),
    "a template of its own length": (in_two_templates, never_at_the_limit),
}


@in_one_loop("case", NEAR_MISSES)
def test_prompts_that_are_not_cut_are_not_named(tmp_path: Path, case: tuple[Lengths, Chance]) -> None:
    assert found(tmp_path / f"{case[0].__name__} {case[1].__name__}", *case) == []


def shared(folder: Path, limit: Callable[[Columns], Any], closing: float = 0.035, spread: int = 56) -> list[Finding]:
    """What is said where responses are cut at limits of their own, and cut ones earn nothing.

    Args:
        spread: by how much the lengths of prompts differ.
    """

    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = 20 + (share(responses["prompt_id"], 83) * spread).astype(int)

    log = simulate(Shape(83, lag=0, steps=20, longest=76, closing=closing), setup=setup)
    most = limit(log.responses)
    log.responses["truncated"] |= log.lengths() > most
    log.keep(log.tokens["position"] < most[log.row])
    log.responses["n_tokens"] = log.lengths()
    log.responses["finish_reason"] = np.where(log.responses["truncated"], "length", "stop").astype(object)
    log.responses["reward"] = np.where(log.responses["truncated"], 0.0, log.responses["reward"])
    set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))
    return [each for each in asked(open_run(write(log, folder)), "selection") if each.of_cause]


def test_a_limit_that_prompt_and_response_share_is_named(tmp_path: Path) -> None:
    (one,) = shared(tmp_path / "run", lambda responses: 96 - responses["prompt_tokens"])
    assert one.of_cause == "context_is_shared" and one.severity is Severity.WARNING
    assert "have 96 tokens together in 100%" in one.sentence and "prompts with most" in one.why, one.why
    (both,) = shared(tmp_path / "both", lambda responses: np.minimum(96 - responses["prompt_tokens"], 50))
    assert both.of_cause == one.of_cause and "have 96 tokens together in 100%" not in both.sentence


ROOM_ENOUGH = {
    "a limit of the response": (lambda responses: np.full(len(responses["step"]), 40), 0.035, 56),
    "prompts are nearly as long": (lambda responses: 64 - responses["prompt_tokens"], 0.035, 12),
    "hardly one comes to it": (lambda responses: 96 - responses["prompt_tokens"], 0.4, 56),
}


@in_one_loop("case", ROOM_ENOUGH)
def test_a_limit_that_leaves_room_is_not_named(tmp_path: Path, case: tuple[Any, float, int]) -> None:
    assert shared(tmp_path / f"{case[1]} {case[2]}", *case) == []
