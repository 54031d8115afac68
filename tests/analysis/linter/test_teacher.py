"""A teacher that reads other ids is named; one that disagrees is said to, and a sharper one is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Array, Log, Shape, log_softmax, simulate, write

_TEACHER = np.array([0.25, -0.2, 0.2, -0.15])


def taught(folder: Path, values: Callable[[Log, Array], Array]) -> list[Finding]:
    """What is said of a log whose teacher has these values, of its own log-probabilities (n_tokens, vocabulary)."""
    log = simulate(Shape(41, lag=0, steps=12, drift=0.01, trend=0.0))
    log.tokens["logp_teacher"] = values(log, log_softmax(log.policy.logits(_TEACHER, log.state)))
    return [each for each in asked(open_run(write(log, folder)), "credit") if each.of_cause.startswith("teacher")]


def of_tokens(log: Log, teacher: Array) -> Array:
    return teacher[np.arange(len(log.row)), log.tokens["token_id"]]


def sharper(log: Log, teacher: Array) -> Array:
    return of_tokens(log, log_softmax(2.5 * teacher))


def of_a_random_model(log: Log, teacher: Array) -> Array:
    return of_tokens(log, np.full_like(teacher, -np.log(teacher.shape[1])))


def of_other_ids(log: Log, teacher: Array) -> Array:
    ids = np.arange(teacher.shape[1])
    ids[6:] = np.roll(ids[6:], 5)
    return teacher[np.arange(len(log.row)), ids[log.tokens["token_id"]]]


def of_the_next_token(log: Log, teacher: Array) -> Array:
    return teacher[np.arange(len(log.row)), np.roll(log.tokens["token_id"], -1)]


def once_collapsed(log: Log, teacher: Array) -> Array:
    """The policy comes to say with certainty what the teacher would not."""
    return np.where(log.tokens["step"] < 6, of_tokens(log, teacher), of_other_ids(log, teacher))


@pytest.mark.parametrize(
    ("values", "cause"),
    [(of_other_ids, "teacher_of_other_ids"), (of_the_next_token, "teacher_disagrees"), (of_tokens, ""), (sharper, ""),
     (of_a_random_model, ""), (once_collapsed, "")],
)  # fmt: skip
def test_a_teacher_that_reads_other_ids_is_named(
    tmp_path: Path, values: Callable[[Log, Array], Array], cause: str
) -> None:
    found = taught(tmp_path / "run", values)
    assert [each.of_cause for each in found] == ([cause] if cause else [])
    assert not cause or ("token ids" in found[0].why) == (cause == "teacher_of_other_ids")


@pytest.mark.parametrize("teacher", [True, False])
def test_a_distillation_of_single_responses_needs_no_advantage(teacher: bool, tmp_path: Path) -> None:
    log = simulate(Shape(95, steps=6, groups=40, responses=1))
    log.tokens["advantage"] = np.zeros(len(log.row))
    if teacher:
        log.tokens["logp_teacher"] = of_tokens(log, log_softmax(log.policy.logits(_TEACHER, log.state)))
    found = asked(open_run(write(log, tmp_path / "run")), "credit")
    assert ("single_responses_cancel" in {each.of_cause for each in found}) is not teacher
