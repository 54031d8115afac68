"""A stated penalty that unfinished responses do not pay is seen; one that they pay, or may have paid, is not."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.linter.unpaid_penalty import stated_penalty_is_not_paid
from tests.analysis.linter.test_batch_rows import chance, look, table
from tests.making.loops import in_one_loop


class Stated(NamedTuple):
    rows: pd.DataFrame
    manifest: dict[str, Any]
    words: str = ""
    """In the clause where the mark is present."""


def scored(paid: float = 0.0, *, kind: str = "right", cut: float = 0.3, right_if_cut: float = 0.5) -> pd.DataFrame:
    """Responses of which some are cut off, which pay so much."""
    rows = table()
    truncated = chance(rows, cut, True, False, seed=4).astype(bool)
    score = rows["reward"].where(~truncated, chance(rows, right_if_cut, 1.0, 0.0, seed=5))
    if kind == "graded":
        score = pd.Series(np.random.default_rng(3).beta(2, 2, len(rows)).round(2), rows.index)
    if kind == "unbounded":
        score = pd.Series(2 * np.random.default_rng(3).standard_normal(len(rows)), rows.index)
    return rows.assign(reward=score - paid * truncated, truncated=truncated)


def stated(name: str = "missing_eos_penalty", value: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {"algorithm": {"name": "grpo", "parameters": {name: value} | more}}


def in_task(value: float) -> dict[str, Any]:
    return {"task": {"reward": {"truncation_penalty": value}}}


CASES = {
    "right or wrong": Stated(scored(), stated(), "missing_eos_penalty is 1, and 248 unfinished responses earn 0.5"),
    "of half a point": Stated(scored(), in_task(0.5), "truncation_penalty is 0.5"),
    "written as what is added": Stated(scored(), in_task(-0.5), "truncation_penalty is 0.5"),
    "graded": Stated(scored(kind="graded"), stated(value=2.0), "missing_eos_penalty is 2"),
    "none of the unfinished is right": Stated(scored(right_if_cut=0.0), stated(), "unfinished responses earn 0 on"),
    "known by the reason": Stated(
        scored().assign(finish_reason=lambda of: np.where(of.pop("truncated"), "length", "stop")), stated(), "is 1"
    ),
    "paid": Stated(scored(1.0), stated()),
    "paid, of half a point": Stated(scored(0.5), in_task(0.5)),
    "paid, graded": Stated(scored(2.0, kind="graded"), stated(value=2.0)),
    "paid by all that are wrong": Stated(scored(1.0, right_if_cut=0.0), stated()),
    "paid in part": Stated(scored(0.25), in_task(0.5)),
    "scores without a bound": Stated(scored(kind="unbounded"), stated()),
    "switched off": Stated(scored(), stated(value=0.0)),
    "none stated": Stated(scored(), stated(name="length_penalty")),
    "rewards of another unit": Stated(scored(kind="graded"), stated(whiten_rewards=True)),
    "few are cut off": Stated(scored(cut=0.03), stated()),
    "a part of its own": Stated(
        scored().assign(reward_end=lambda of: -1.0 * of["truncated"]), stated()
    ),
    "all are right": Stated(scored(1.0, right_if_cut=1.0).assign(reward=lambda of: 1.0 - of["truncated"]), stated()),
}  # fmt: skip


@in_one_loop("case", CASES)
def test_a_penalty_that_is_stated(tmp_path: Path, case: Stated) -> None:
    (seen,) = look(tmp_path, stated_penalty_is_not_paid, rows=case.rows, **case.manifest)
    assert seen.present is bool(case.words), (seen.reading.value, seen.reading.clause)
    assert case.words in seen.reading.clause


def test_a_penalty_that_advantages_have_is_paid(tmp_path: Path) -> None:
    rows = scored()
    for paid in (0.0, 1.0):
        reward = rows["reward"] - paid * rows["truncated"]
        own = reward - reward.groupby([rows["step"], rows["group_id"]]).transform("mean")
        tokens = rows[["step", "seq_id", "group_id"]].assign(position=0, token_id=5, advantage=own)
        (seen,) = look(tmp_path, stated_penalty_is_not_paid, rows=rows, tokens=tokens, **stated())
        assert seen.present is (paid == 0.0), (paid, seen.reading)
