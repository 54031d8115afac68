"""What goes wrong when other programs' logs are read: placeholders, copies without an age, rounding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ratioscope.analysis.linter import Finding, Outcome
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.runs import Step, random_step, write_run

_OTHERS = ("logp_behavior_train", "logp_new", "logp_reference", "entropy")


def of(folder: Path, change: Callable[[Step], Step], check: str, **manifest: object) -> list[Finding]:
    steps = [random_step(np.random.default_rng(k), k, groups=12, responses=4, longest=20) for k in range(2)]
    return asked(open_run(write_run(folder, map(change, steps), **manifest)), check)


def test_responses_of_nothing_but_probability_1_are_placeholders(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        logp = np.where(np.isin(step.tokens["seq_id"], range(10)), 0, step.tokens["logp_behavior"])
        alone = dict.fromkeys((*_OTHERS, "logp_current"))
        return step.with_tokens(**alone | {"logp_behavior": logp.astype(np.float32)})

    (remark,) = of(tmp_path / "run", change, "zero_filled")
    assert remark.is_broken and remark.columns == ("logp_behavior",) and "placeholder" in remark.sentence
    assert {example.seq_id for example in remark.examples} <= set(range(10))


def test_old_that_is_the_sampler_to_the_last_digit_is_a_copy_where_no_age_explains_it(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        return step.with_tokens(
            **dict.fromkeys((*_OTHERS, "behavior_version")), logp_current=step.tokens["logp_behavior"]
        )

    (remark,) = of(tmp_path / "run", change, "copied_columns")
    assert remark.is_problem and remark.columns == ("logp_behavior", "logp_current")


def test_rounding_that_the_source_states_is_neither_a_copy_nor_an_engine(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        behavior = step.tokens["logp_behavior"]
        noise = 1e-4 * np.random.default_rng(0).standard_normal(len(behavior))
        columns = {"logp_behavior": behavior, "logp_current": np.minimum(behavior + noise, 0)}
        rounded = {name: np.round(values, 2).astype(np.float32) for name, values in columns.items()}
        fresh = np.full(len(behavior), step.number, np.int32)
        return step.with_tokens(**dict.fromkeys(_OTHERS), **rounded, behavior_version=fresh)

    for check, outcome in (("on_policy_ratio", Outcome.PASSED), ("copied_columns", Outcome.NOT_CHECKED)):
        (remark,) = of(tmp_path / check, change, check, log_probability_decimals=2)
        assert remark.outcome is outcome and "2 decimals" in remark.sentence
