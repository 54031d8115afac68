"""Positive advantages that are set to 0 are named, of a group and of a teacher; their near misses are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter import credited
from tests.analysis.linter.credited import GROUPS, RESPONSES, Batch, N
from tests.analysis.linter.remarks import asked
from tests.analysis.linter.test_teacher import of_tokens
from tests.cases.world import Array, Log, Shape, log_softmax, set_advantages, simulate, write
from tests.making.loops import in_one_loop

# Of groups ------------------------------------------------------------------------------------------------------------


def none_positive(batch: Batch) -> None:
    batch.advantage = np.minimum(batch.advantage, 0.0)


def none_positive_by_the_mean(batch: Batch) -> None:
    above = batch.reward - batch.reward.reshape(GROUPS, RESPONSES).mean(axis=1).repeat(RESPONSES)
    batch.advantage = np.minimum(above, 0.0)


def none_positive_graded(batch: Batch) -> None:
    batch.reward = batch.reward + 0.3 * batch.rng.standard_normal(N)
    batch.advantage = np.minimum(credited.normalised(batch.reward, batch.group), 0.0)


def none_negative(batch: Batch) -> None:
    batch.advantage = np.maximum(batch.advantage, 0.0)


def above_the_best(batch: Batch) -> None:
    """Nothing is positive where the best reward of a group is the baseline."""
    best = batch.reward.reshape(GROUPS, RESPONSES).max(axis=1)
    batch.advantage = batch.reward - best.repeat(RESPONSES)


def failures_alone(batch: Batch) -> None:
    """Failures have -1 and successes are left out: learning from negative samples alone."""
    batch.advantage = np.where(batch.reward == 0, -1.0, 0.0)


def some_positive(batch: Batch) -> None:
    batch.advantage = np.where(batch.rng.random(N) < 0.9, np.minimum(batch.advantage, 0.0), batch.advantage)


GROUPED: dict[str, tuple[Callable[[Batch], None], str]] = {
    function.__name__: (function, cause)
    for function, cause in (
        (none_positive, "positive_lost"), (none_positive_by_the_mean, "positive_lost"),
        (none_positive_graded, "positive_lost"), (none_negative, "negative_lost"), (above_the_best, ""),
        (failures_alone, ""), (some_positive, ""), (credited.nothing, ""), (credited.alone_and_centred, ""),
    )
}  # fmt: skip


@in_one_loop("name", {name: name for name in GROUPED})
def test_one_sided_advantages_of_groups(tmp_path: Path, name: str) -> None:
    fault, cause = GROUPED[name]
    said = asked(open_run(credited.written(tmp_path / name, fault)), "credit")
    assert [each.of_cause for each in said if each.of_cause.endswith("_lost")] == ([cause] if cause else [])
    if cause == "positive_lost":
        (found,) = said
        assert found.severity is Severity.WARNING and "0 in 100% of" in found.sentence, found.sentence


# Of a teacher ---------------------------------------------------------------------------------------------------------

_TEACHER = np.array([0.25, -0.2, 0.2, -0.15])


def taught(folder: Path, advantage: Callable[[Log, Array], Array], columns: str = "all") -> list[Finding]:
    """What is said of a log with these advantages, of the teacher's log-ratios of tokens."""
    log = simulate(Shape(42, lag=0, steps=10, drift=0.012, trend=0.0))
    log.tokens["logp_teacher"] = of_tokens(log, log_softmax(log.policy.logits(_TEACHER, log.state)))
    log.manifest["algorithm"] |= {"name": "on_policy_distillation", "parts": {"advantage": "teacher_log_ratio"}}
    of = log.tokens["logp_teacher"] - log.tokens["logp_behavior"]
    log.responses["reward"] = np.bincount(log.row, of) / log.lengths()
    run = open_run(write(set_advantages(log, advantage(log, of)), folder, columns))
    return [each for each in asked(run, "credit") if each.of_cause]


def at_most(cap: float) -> Callable[[Log, Array], Array]:
    return lambda log, of: np.minimum(of, cap)


def to_the_policy(log: Log, of: Array) -> Array:
    return np.minimum(log.tokens["logp_teacher"] - log.tokens["logp_current"], 0.0)


def bounded_to_zero(log: Log, of: Array) -> Array:
    """By a coefficient, and bounded from below as well."""
    return 0.1 * np.clip(of, -3.0, 0.0)


def both_bounds(log: Log, of: Array) -> Array:
    return np.clip(of, -2.0, 2.0)


def rewarded(log: Log, of: Array) -> Array:
    """The teacher holds back, and the reward of failures does so, too: no term is the log-ratio alone."""
    wrong = log.rng.random(len(log.lengths())) < 0.5
    return np.minimum(np.minimum(of, 0.0) - wrong[log.row], 0.0) - 0.05


def one_for_all(log: Log, of: Array) -> Array:
    """One advantage a response, none of them positive."""
    mean = np.bincount(log.row, of) / log.lengths()
    return np.minimum(mean, 0.0)[log.row]


def some_raised(log: Log, of: Array) -> Array:
    return np.where(log.rng.random(len(of)) < 0.02, of, np.minimum(of, 0.0))


def none_lowered(log: Log, of: Array) -> Array:
    return np.maximum(of, 0.0)


ADVANTAGES: dict[str, tuple[Callable[[Log, Array], Array], bool]] = {
    "at most 0": (at_most(0.0), True),
    "to the policy": (to_the_policy, True),
    "with a coefficient": (bounded_to_zero, True),
    "unbounded": (at_most(np.inf), False),
    "at most 0.5": (at_most(0.5), False),
    "both bounds": (both_bounds, False),
    "rewarded": (rewarded, False),
    "one for all": (one_for_all, False),
    "some raised": (some_raised, False),
    "none lowered": (none_lowered, False),
}


@in_one_loop("name", {name: name for name in ADVANTAGES})
def test_a_teacher_that_raises_nothing(tmp_path: Path, name: str) -> None:
    advantage, named = ADVANTAGES[name]
    said = taught(tmp_path / name, advantage)
    assert ("teacher_raises_nothing" in [each.of_cause for each in said]) is named, said
    if named:
        (found,) = said
        assert found.severity is Severity.WARNING and len(found.sentence.split()) <= 25 and found.examples
        assert "that the teacher finds likelier, and never positive" in found.sentence


def test_rounded_values_are_compared_as_they_are(tmp_path: Path) -> None:
    for advantage, named in ((at_most(0.0), True), (at_most(np.inf), False)):
        found = taught(tmp_path / str(named), advantage, "prime-rl")
        assert ("teacher_raises_nothing" in [each.of_cause for each in found]) is named
