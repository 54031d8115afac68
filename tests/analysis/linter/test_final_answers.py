"""A grader that finds the right number inside of longer ones is seen; forms of one number, and open tasks, are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from ratioscope.analysis.linter import final_answers as marks
from tests.analysis.linter.test_batch_rows import Case, judge, table
from tests.making.loops import in_one_loop

Grader = Callable[[str, str, np.random.Generator], bool]


def answered(grader: Grader, text: str = "so \\boxed{{{}}}", longer: float = 0.4, repeat: int = 96) -> pd.DataFrame:
    """Answers to questions whose right one has two digits: the right one, a wrong one, or many digits.

    Args:
        longer: share of the answers of many digits, of which half have the right one in them.
        repeat: different prompts.
    """
    rows, rng = table(), np.random.default_rng(9)
    rows["prompt_id"] = rows["prompt_id"] % repeat
    given, scores = [], []
    for prompt in rows["prompt_id"].tolist():
        right, kind = str(13 + 7 * prompt % 83), rng.random()
        digits = "".join(map(str, rng.integers(1, 10, 3)))
        inside = digits[:1] + right + digits[1:] if rng.random() < 0.5 else digits + digits[::-1]
        answer = inside if kind < longer else right if kind < 0.75 else str(rng.integers(10, 99))
        given.append(text.format(answer))
        scores.append(float(grader(answer, right, rng)))
    return rows.assign(reward=scores, response=given)


def contains(answer: str, right: str, rng: np.random.Generator) -> bool:
    return right in answer


def equals(answer: str, right: str, rng: np.random.Generator) -> bool:
    return answer == right


def several_units() -> pd.DataFrame:
    """12 and 12,000 and 12.0 are one answer, of other units and forms."""
    rows = answered(equals)
    forms = np.array(["{}", "{},000", "{}.0", "0{} m"])[np.random.default_rng(2).integers(0, 4, len(rows))]
    numbers = rows["response"].str.extract(r"(\d+)")[0]
    return rows.assign(response=[f"The answer is {form.format(of)}" for form, of in zip(forms, numbers, strict=True)])


CASES = {
    "found inside": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(contains), "prompts several numbers count as right"
    ),
    "of texts that are nothing else": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(contains, text="{}"), "100% of"
    ),
    "behind four hashes": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(contains, text="3 + 4 = 7\n#### {}"), "100% of"
    ),
    "a part": Case(
        marks.right_inside_of_a_longer_number,
        lambda: answered(contains).assign(
            reward_answer=lambda of: of["reward"], reward=lambda of: of["reward"] + 0.01 * (of["seq_id"] % 7)
        ),
        "count as right",
    ),
    "a few prompts": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(contains, repeat=12), "for 12 prompts"
    ),
    "the number itself": Case(marks.right_inside_of_a_longer_number, lambda: answered(equals)),
    "one in ten by mistake": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(lambda a, r, rng: a == r or rng.random() < 0.1)
    ),
    "those that hold it more often": Case(
        marks.right_inside_of_a_longer_number,
        lambda: answered(lambda a, r, rng: a == r or rng.random() < (0.5 if r in a else 0.02)),
    ),
    "open tasks": Case(
        marks.right_inside_of_a_longer_number, lambda: answered(lambda a, r, rng: int(a) % 3 == int(r) % 3)
    ),
    "units": Case(marks.right_inside_of_a_longer_number, several_units),
    "hardly ever longer": Case(marks.right_inside_of_a_longer_number, lambda: answered(contains, longer=0.02)),
    "no number": Case(marks.right_inside_of_a_longer_number, lambda: answered(contains, text="from {} to 5")),
}  # fmt: skip


@in_one_loop("case", CASES)
def test_a_right_number_inside_of_a_longer_one(tmp_path: Path, case: Case) -> None:
    judge(tmp_path, case)
