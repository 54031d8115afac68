"""A pool of prompts that outcomes empty is seen; one that is filled again, is large, or is simply small, is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ratioscope import RunRecorder
from ratioscope.analysis.linter.prompt_pool import fewer_prompts_over_time, solved_alike_and_never_again
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.analysis.linter.test_batch_rows import look
from tests.making.loops import in_one_loop

GROUPS, RESPONSES = 10, 4
Aside = Callable[[float], bool]


def both(mean: float) -> bool:
    return mean in (0.0, 1.0)


class Pool(NamedTuple):
    size: int = 150
    aside: Aside = both
    """Whether a prompt with this mean reward is set aside."""
    for_steps: int = 10**6
    steps: int = 40
    late: int = 0
    """Steps after which an outcome is known."""
    in_epochs: bool = False
    easy: float = 0.35
    hard: float = 0.35
    """Shares of the prompts that nearly all and hardly any responses solve."""
    schedule: bool = False
    """Whether prompts grow fewer by a schedule, whatever is solved."""

    def rows(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        kind = rng.random(self.size)
        ability = np.where(kind < self.easy, 0.98, np.where(kind < self.easy + self.hard, 0.02, 0.5))
        back = np.zeros(self.size, dtype=int)
        known: list[tuple[int, list[int]]] = []
        order: list[int] = []
        found: list[dict[str, Any]] = []
        for step in range(self.steps):
            while known and known[0][0] <= step:
                for prompt in known.pop(0)[1]:
                    back[prompt] = step + self.for_steps
            pool = np.flatnonzero(back <= step)
            if not len(pool):
                break
            if self.schedule:
                pool = pool[: max(GROUPS, int(self.size * (1 - step / self.steps)))]
            if self.in_epochs:
                if len(order) < GROUPS:
                    order = rng.permutation(self.size).tolist()
                chosen, order = order[:GROUPS], order[GROUPS:]
            else:
                chosen = rng.choice(pool, GROUPS, replace=len(pool) < GROUPS).tolist()
            out = []
            for group, prompt in enumerate(chosen):
                right = (rng.random(RESPONSES) < ability[prompt]).astype(float)
                if self.aside(float(right.mean())):
                    out.append(prompt)
                found += [
                    {
                        "step": step,
                        "seq_id": group * RESPONSES + at,
                        "group_id": group,
                        "prompt_id": prompt,
                        "reward": r,
                    }
                    for at, r in enumerate(right.tolist())
                ]
            known.append((step + 1 + self.late, out))
        return pd.DataFrame(found)


CASES = {
    "both kinds": (Pool(), "whose responses all scored alike"),
    "what is solved": (Pool(aside=lambda mean: mean == 1.0, easy=0.75, hard=0.15), "all scored the highest"),
    "nearly all right, too": (Pool(aside=lambda mean: not 0.2 < mean < 0.7), "all scored alike"),
    "known two steps later": (Pool(late=2), "all scored alike"),
    "a few are solved": (Pool(aside=lambda mean: mean == 1.0, easy=0.2, steps=60), ""),
    "back after six steps": (Pool(for_steps=6), ""),
    "nothing is set aside": (Pool(aside=lambda mean: False), ""),
    "a small pool": (Pool(15, aside=lambda mean: False), ""),
    "epochs": (Pool(aside=lambda mean: False, in_epochs=True), ""),
    "a large pool": (Pool(5000), ""),
    "fewer by a schedule": (Pool(aside=lambda mean: False, schedule=True), ""),
}  # fmt: skip


@in_one_loop("name", {name: name for name in CASES})
def test_a_pool_that_runs_dry(tmp_path: Path, name: str) -> None:
    pool, words = CASES[name]
    folder = tmp_path / str(len([*tmp_path.iterdir()]))
    with RunRecorder(folder, flush_seconds=float("inf")) as recorder:
        for step, of in pool.rows().groupby("step"):
            recorder.record_step(int(str(step)), sequences={str(one): of[one].to_numpy() for one in of.columns[1:]})
    found = [each for each in asked(open_run(folder), "selection") if each.of_cause == "pool_runs_dry"]
    assert len(found) == bool(words), (name, found)
    assert all(words in each.sentence and "different prompts in" in each.why for each in found), found


def test_each_sign_is_absent_where_the_other_one_is_alone(tmp_path: Path) -> None:
    for pool, signs in (
        (Pool(5000), (False, False)), (Pool(aside=lambda mean: False, schedule=True), (False, True)),
        (Pool(600, steps=90), (True, False)),
    ):  # fmt: skip
        seen = look(tmp_path, solved_alike_and_never_again, fewer_prompts_over_time, rows=pool.rows())
        assert tuple(each.present for each in seen) == signs, [each.reading for each in seen]
