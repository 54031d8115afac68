"""A scorer that does not look at some responses is seen; one that looks, and finds little in them, is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.linter import scored_by_kind as marks
from tests.analysis.linter.test_batch_rows import Case, chance, judge, table
from tests.making.loops import in_one_loop


def of_length(rate: Callable[[Any], Any], **how: Any) -> pd.DataFrame:
    """Responses that succeed by their length, 500 in the middle."""
    rows = table()
    length = np.exp(np.random.default_rng(0).normal(6.2, 0.6, len(rows))).astype(int) + 1
    return rows.assign(n_tokens=length, reward=chance(rows, rate(length), 1.0, 0.0)).assign(**how)


def unread(length: Any) -> Any:
    return np.where(length > 800, 0.0, 0.5)


def graded() -> pd.DataFrame:
    """Responses with a score of two decimals, of one turn or two."""
    rows, rng = table(16), np.random.default_rng(3)
    return rows.assign(reward=rng.beta(2, 2, len(rows)).round(2), n_turns=rng.integers(1, 3, len(rows)))


def of_two_turns(change: Callable[[Any], Any], levels: int = 100) -> pd.DataFrame:
    """The score of responses of two turns is another one."""
    rows = graded()
    reward = rows["reward"].mask(rows["n_turns"] == 2, change(rows["reward"]))
    return rows.assign(reward=(reward * levels).round() / levels)


def with_sign(earns: float, groups: int = 8, share: float = 0.2, responses: int = 8) -> pd.DataFrame:
    """In some groups some responses are written in another way, and earn so often what others do."""
    rows = table(groups=64 // responses, responses=responses)
    there = (rows["group_id"] < groups) & (chance(rows, share, 1, 0, seed=4) == 1)
    reward = np.where(there, chance(rows, earns, rows["reward"], 0.0, seed=5), rows["reward"])
    return rows.assign(reward=reward, response=np.where(there, "it is $5$", "the answer is 5"))


def in_forms(
    earns: float, *, common: str = "so \\boxed{5}", rare: str = "#### 5", share: Any = 0.9, by: str = "seq_id"
) -> pd.DataFrame:
    """Answers in two forms, of which the common one earns so often what others do; the rare one is read."""
    rows = table(groups=8)
    drawn = np.random.default_rng(6).random(10**4)[rows["step"] * 64 + rows[by]]
    boxed = drawn < (share(rows["step"]) if callable(share) else share)
    reward = np.where(boxed, chance(rows, earns, rows["reward"], 0.0, seed=5), rows["reward"])
    return rows.assign(reward=reward, response=np.where(boxed, common, rare), environment="sums")


def in_lines(
    form: float = 0.0,
    *,
    share: Any = 0.6,
    by: str = "seq_id",
    several: str = "as 2 + 3\nso 5",
    one: str = "as 2 + 3, so 5",
    whole: bool = False,
    since: int = 99,
) -> pd.DataFrame:
    """Texts of several lines, which earn a part of the reward so often, and those of one line, which mostly do."""
    rows = table()
    drawn = np.random.default_rng(6).random(10**4)[rows["step"] * 64 + rows[by]]
    broken = drawn < np.where(rows["step"] < since, share, 0.03)
    formed = chance(rows, np.where(broken, form, 0.9), 1.0, 0.0, seed=5)
    rows = rows.assign(response=np.where(broken, several, one))
    if whole:
        return rows.assign(reward=formed)
    return rows.assign(reward_answer=rows["reward"], reward_form=formed, reward=rows["reward"] + formed)


def of_two_kinds() -> pd.DataFrame:
    """Boxes are read in every second environment, and in the other one they are not."""
    rows = in_forms(0.0)
    read = rows["group_id"] % 2 == 0
    reward = chance(rows, np.where(read, 0.6, 0.0), 1.0, rows["reward"])
    return rows.assign(environment=np.where(read, "algebra", "sums"), reward=reward)


def in_place(since: int, share: float, value: float = 0.5) -> pd.DataFrame:
    """From a step on one value is in place of so many scores."""
    rows = graded()
    return rows.assign(reward=chance(rows, np.where(rows["step"] >= since, share, 0.0), value, rows["reward"]))


def penalised() -> pd.DataFrame:
    """0 is what most wrong answers earn, and some less, for their length."""
    rows = graded()
    right = chance(rows, 0.4, rows["reward"], 0.0)
    return rows.assign(reward=right - np.where(rows["n_turns"] == 2, (0.3 * rows["reward"]).round(2), 0.0))


CASES = {
    "unread": Case(
        marks.least_beyond_a_length,
        lambda: of_length(unread, response=lambda of: [2 * n * "x" for n in of["n_tokens"]]),
        "of more than 1,600 characters, and for 56%",
    ),
    "unread, of texts alone": Case(
        marks.least_beyond_a_length,
        lambda: of_length(unread, response=lambda of: [2 * n * "x" for n in of["n_tokens"]], n_tokens=None),
        "of more than 1,600 characters",
    ),
    "an unread part": Case(
        marks.least_beyond_a_length,
        lambda: of_length(unread).assign(reward_task=lambda of: of["reward"], reward_form=0.1, reward=1.0),
        "reward_task is 0 for all",
    ),
    "gradual": Case(marks.least_beyond_a_length, lambda: of_length(lambda of: (0.8 - of / 1500).clip(0))),
    "harder": Case(marks.least_beyond_a_length, lambda: of_length(lambda of: 0.6 / (1 + np.exp((of - 700) / 80)))),
    "soft": Case(
        marks.least_beyond_a_length,
        lambda: of_length(lambda of: 0.6, reward=lambda of: of["reward"] - ((of["n_tokens"] - 500) / 300).clip(0, 1)),
    ),
    "cut off": Case(marks.least_beyond_a_length, lambda: of_length(unread, truncated=lambda of: of["n_tokens"] > 800)),
    "a cap": Case(
        marks.capped_for_some, lambda: of_two_turns(lambda of: of.clip(upper=0.4)), "of two turns is never above 0.4"
    ),
    "few levels": Case(marks.capped_for_some, lambda: of_two_turns(lambda of: of.clip(upper=0.4), levels=5)),
    "earn less": Case(marks.capped_for_some, lambda: of_two_turns(lambda of: 0.4 * of)),
    "unread sign": Case(marks.sign_never_earns, lambda: with_sign(0.0), "responses with $ in them earns more than 0"),
    "read at times": Case(marks.sign_never_earns, lambda: with_sign(0.1)),
    "hard prompts": Case(marks.sign_never_earns, lambda: with_sign(0.0, groups=1, share=1.0)),
    "groups of one": Case(marks.sign_never_earns, lambda: with_sign(0.0, groups=64, responses=1)),
    "unread form": Case(
        marks.answer_form_never_earns, lambda: in_forms(0.0),
        "responses of sums with \\boxed{} earns more than 0, and of 76 with #### ",
    ),
    "unread in one environment": Case(
        marks.answer_form_never_earns, of_two_kinds, "responses of sums with \\boxed{} earns more than 0"
    ),
    "unread tags": Case(
        marks.answer_form_never_earns,
        lambda: in_forms(0.0, common="<answer>5</answer>", rare="**Answer:** \\boxed{5}"), "with <answer> earns",
    ),
    "of no environment": Case(
        marks.answer_form_never_earns, lambda: in_forms(0.0).assign(environment=None), "responses with \\boxed{} earns"
    ),
    "form read at times": Case(marks.answer_form_never_earns, lambda: in_forms(0.05)),
    "a form of hard prompts": Case(marks.answer_form_never_earns, lambda: in_forms(0.0, share=0.5, by="group_id")),
    "a form that is rare": Case(marks.answer_form_never_earns, lambda: in_forms(0.0, share=0.1)),
    "a form that is left": Case(
        marks.answer_form_never_earns, lambda: in_forms(0.0, share=lambda step: np.where(step < 5, 0.7, 0.05))
    ),
    "no other form": Case(marks.answer_form_never_earns, lambda: in_forms(0.0, rare="it is 5")),
    "a heading": Case(marks.answer_form_never_earns, lambda: in_forms(0.0, rare="#### Step 2\n\nit is 5")),
    "too few others": Case(marks.answer_form_never_earns, lambda: in_forms(0.0, share=0.993)),
    "lines": Case(
        marks.several_lines_never_earn, in_lines, "reward_form is 0 for all 453 texts of several lines, and more for 91"
    ),
    "lines, of the whole": Case(
        marks.several_lines_never_earn, lambda: in_lines(whole=True), "reward is 0 for all 453 texts"
    ),
    "lines that are left, of a part": Case(
        marks.several_lines_never_earn, lambda: in_lines(share=0.9, since=5), "reward_form is 0"
    ),
    "lines inside of tags": Case(
        marks.several_lines_never_earn,
        lambda: in_lines(several="<think>2\n3</think>\n<a>5</a>", one="<think>2 3</think>\n<a>5</a>"),
        "453 texts with line breaks inside of tags",
    ),
    "lines read at times": Case(marks.several_lines_never_earn, lambda: in_lines(0.03)),
    "lines of hard prompts": Case(
        marks.several_lines_never_earn, lambda: in_lines(share=0.3, by="group_id", whole=True)
    ),
    "lines that are left": Case(
        marks.several_lines_never_earn, lambda: in_lines(share=0.9, since=5, whole=True)
    ),
    "long lines": Case(marks.several_lines_never_earn, lambda: in_lines(several="as 2 + 3, which is known,\nso 5")),
    "lines at the end": Case(marks.several_lines_never_earn, lambda: in_lines(several="so it is 5\n\n")),
    "one line is asked for": Case(
        marks.several_lines_never_earn, lambda: in_lines().assign(prompt="What is 2 + 3? Answer on a single line.")
    ),
    "several turns": Case(
        marks.several_lines_never_earn,
        lambda: in_lines().assign(n_turns=lambda of: 1 + of["response"].str.contains("\n").astype(int)),
    ),
    "lines at the limit": Case(
        marks.several_lines_never_earn,
        lambda: in_lines().assign(truncated=lambda of: of["response"].str.contains("\n")),
    ),
    "a constant": Case(marks.one_value_since_a_step, lambda: in_place(7, 0.2), "responses from step 7 on"),
    "a part of few steps": Case(
        marks.one_value_since_a_step,
        lambda: graded().assign(
            reward_task=lambda of: of["reward"], reward_judge=lambda of: of["reward"].where(of["step"] < 5)
        ),
    ),
    "from the start": Case(marks.one_value_since_a_step, lambda: in_place(0, 0.3)),
    "the most there is": Case(marks.one_value_since_a_step, lambda: in_place(7, 0.3, value=1.0)),
    "a penalty": Case(marks.one_value_since_a_step, penalised),
    "rounded since": Case(
        marks.one_value_since_a_step,
        lambda: graded().assign(reward=lambda of: of["reward"].where(of["step"] < 7, of["reward"].round(1))),
    ),
}  # fmt: skip


@in_one_loop("case", CASES)
def test_what_is_not_looked_at(tmp_path: Path, case: Case) -> None:
    judge(tmp_path, case)
