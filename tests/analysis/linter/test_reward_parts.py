"""A length penalty that begins before the first token is named; one that begins near the limit is not, nor a cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratioscope import RunRecorder
from ratioscope.analysis.linter import reward_parts as marks
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.analysis.linter.test_batch_rows import Case, judge, table
from tests.making.loops import in_one_loop


def punished(lost: Callable[["pd.Series[float]"], "pd.Series[float]"], decimals: int = 9) -> pd.DataFrame:
    """Responses of 40 to 1000 tokens, whose reward is the answer and what their length costs."""
    rows = table()
    length = pd.Series(np.random.default_rng(3).integers(40, 1001, len(rows)), rows.index)
    cost = lost(length.astype(float)).round(decimals)
    right = rows["reward"]
    return rows.assign(n_tokens=length, reward_answer=right, reward_overlong=cost, reward=right + cost)


def buffer(of: int, limit: int = 1000, most: float = 1.0) -> Callable[["pd.Series[float]"], "pd.Series[float]"]:
    """DAPO's penalty: from the buffer's first token on it grows to the most that it may be at the limit."""
    return lambda length: -most * ((length - (limit - of)) / of).clip(0, 1)


def with_failures(share: float) -> pd.DataFrame:
    """Some responses are not punished, as they have failed."""
    rows = punished(buffer(1500))
    spared = np.random.default_rng(5).random(len(rows)) < share
    return rows.assign(reward_overlong=rows["reward_overlong"].mask(spared, 0.0))


def noisy() -> pd.DataFrame:
    return punished(lambda length: -length / 1000 - 0.1 - 0.05 * np.random.default_rng(1).random(len(length)))


CASES = {
    "above the limit": Case(
        marks.penalty_of_every_length, lambda: punished(buffer(1500)),
        "reward_overlong is below 0 even for the shortest responses: -0.361 at 41 tokens, -1 at 1,000; "
        "this line would reach 0 at -500 tokens", 1 / 3,
    ),
    "of few decimals": Case(
        marks.penalty_of_every_length, lambda: punished(buffer(1500), decimals=3), "would reach 0 at -500 tokens"
    ),
    "capped before the longest": Case(
        marks.penalty_of_every_length, lambda: punished(buffer(1500, limit=900, most=0.5)), "-0.5 at 1,000"
    ),
    "alone": Case(
        marks.penalty_of_every_length, lambda: punished(buffer(1500)).drop(columns="reward_answer"), "-500 tokens"
    ),
    "some have failed": Case(marks.penalty_of_every_length, lambda: with_failures(0.01), "-500 tokens"),
    "near the limit": Case(marks.penalty_of_every_length, lambda: punished(buffer(200))),
    "before the shortest": Case(marks.penalty_of_every_length, lambda: punished(buffer(980))),
    "as long as the limit": Case(marks.penalty_of_every_length, lambda: punished(buffer(1000))),
    "a cost of each token": Case(marks.penalty_of_every_length, lambda: punished(lambda of: -0.001 * of)),
    "and of the end token": Case(marks.penalty_of_every_length, lambda: punished(lambda of: -0.001 * (of + 1))),
    "a bonus for short ones": Case(marks.penalty_of_every_length, lambda: punished(lambda of: 1 - of / 1000)),
    "for many alone": Case(marks.penalty_of_every_length, lambda: with_failures(0.2)),
    "a constant": Case(marks.penalty_of_every_length, lambda: punished(lambda of: 0 * of - 0.1)),
    "two levels": Case(marks.penalty_of_every_length, lambda: punished(lambda of: -0.1 - 0.2 * (of > 500))),
    "a curve": Case(marks.penalty_of_every_length, lambda: punished(lambda of: -0.1 - (of / 1000) ** 2)),
    "more than the length": Case(marks.penalty_of_every_length, noisy),
    "longer is better": Case(marks.penalty_of_every_length, lambda: punished(lambda of: of / 1500 - 1)),
    "nothing is known": Case(
        marks.penalty_of_every_length, lambda: punished(buffer(1500)).assign(reward_overlong=np.nan)
    ),
    "infinite": Case(marks.penalty_of_every_length, lambda: punished(buffer(1500)).assign(reward_overlong=-np.inf)),
}  # fmt: skip


@in_one_loop("case", CASES)
def test_a_penalty_of_every_length(tmp_path: Path, case: Case) -> None:
    judge(tmp_path, case)


def test_what_is_configured_is_said(tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "": {"task": {}},
        "; the manifest has a buffer of 1,500 and a limit of 1,000": {
            "task": {"overlong": {"max_response_length": 1000, "buffer": 1500, "penalty_factor": 1.0}}
        },
        "; the manifest has a buffer of 1,500": {"task": {"overlong_buffer": {"enable": True, "len": 1500}}},
        "; the manifest has a limit of 1,000": {"sampler": {"max_tokens": 1000}, "task": {"max_prompt_length": 512}},
    }
    rows = punished(buffer(1500))
    for number, (words, how) in enumerate(settings.items()):
        with RunRecorder(tmp_path / str(number), flush_seconds=float("inf"), **how) as recorder:
            for step, of in rows.groupby("step"):
                columns = {str(name): of[name].to_numpy() for name in of.columns.drop("step")}
                recorder.record_step(int(str(step)), sequences=columns)
        found = asked(open_run(tmp_path / str(number)), "credit")
        (said,) = (each for each in found if each.of_cause == "penalty_of_every_length")
        assert said.sentence.endswith(f"would reach 0 at -500 tokens{words}."), said.sentence
