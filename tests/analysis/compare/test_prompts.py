"""A minus B prompt by prompt, where both runs saw the prompt."""

import gc
from dataclasses import replace
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
from scipy import stats

from ratioscope.analysis.compare.grouping import Member, grouped_settings
from ratioscope.analysis.compare.prompts import prompt_difference
from ratioscope.analysis.compare.reward_scale import reward_scale
from ratioscope.analysis.compare.standing import standing
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import random_step, write_run

NAN = float("nan")


def _prompt_run(folder: Path, seed: int, gain: float, *, prompts: int = 4, **fields: object) -> Path:
    steps = []
    for number in range(3):
        step = random_step(np.random.default_rng(number), number)
        group = step.sequences["group_id"]
        rng = np.random.default_rng(100 * seed + number)
        step.sequences["prompt_id"] = (group + number) % prompts
        step.sequences["reward"] = (rng.uniform(size=len(group)) + gain * (1 + group)).astype(np.float32)
        steps.append(step)
    steps[1].sequences["reward"][0] = NAN
    return write_run(folder, steps, seed=seed, **fields)


def test_prompts_are_compared_where_both_runs_saw_them(tmp_path: Path) -> None:
    a, b = (open_run(_prompt_run(tmp_path / name, seed, gain)) for name, seed, gain in (("a", 1, 0.3), ("b", 2, 0.0)))
    found = prompt_difference([(a, b)])
    means = [
        run.read("sequences").dropna(subset=["reward"]).groupby(["step", "prompt_id"])["reward"].mean().astype(float)
        for run in (a, b)
    ]
    gap = (means[0] - means[1]).dropna()
    by_prompt = gap.groupby("prompt_id").agg(["sum", "size"])
    assert found.value == pytest.approx(gap.mean(), abs=1e-6)
    assert (found.pairs, found.prompts) == (12, 4)
    residual = by_prompt["sum"] - gap.mean() * by_prompt["size"]
    half = stats.t.ppf(0.975, 3) * np.sqrt(4 / 3 * (residual**2).sum()) / len(gap)
    assert tuple(found.interval) == pytest.approx((gap.mean() - half, gap.mean() + half), abs=1e-6)
    mirrored = prompt_difference([(b, a)])
    assert (mirrored.value, *mirrored.interval) == pytest.approx(
        (-found.value, -found.interval.high, -found.interval.low)
    )
    some = prompt_difference([(a, b)], first=1, last=2)
    assert some.value == pytest.approx(gap[gap.index.get_level_values("step") >= 1].mean(), abs=1e-6)


def test_prompts_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    a = open_run(_prompt_run(tmp_path / "a", 1, 0.3))
    other_task = open_run(_prompt_run(tmp_path / "task", 1, 0.3, task={"name": "other"}))
    unlogged = open_run(write_run(tmp_path / "unlogged", [random_step(np.random.default_rng(0))]))
    for pairs, reason in (
        ([(a, other_task)], "different tasks"),
        ([(a, unlogged)], "unlogged logs no prompts"),
        ([], "no seed is in both settings"),
    ):
        found = prompt_difference(pairs)
        assert reason in found.reason
        assert np.isnan([found.value, *found.interval]).all()


def test_rewards_of_different_definitions_are_not_compared(tmp_path: Path) -> None:
    """Right and wrong as 0 and 1, as -1 and 1; the same with a single value; with other parts."""
    members = []
    for name, scale, parts in (("a", (0, 1), ()), ("b", (-1, 1), ()), ("c", (0,), ()), ("d", (0, 1), ("style",))):
        step = random_step(np.random.default_rng(0), 0, groups=4, responses=2)
        of = len(step.sequences["group_id"])
        step.sequences["reward"] = np.resize(np.array(scale, dtype=np.float32), of)
        step.sequences["prompt_id"] = step.sequences["group_id"]
        step.sequences.update({f"reward_{part}": step.sequences["reward"] for part in parts})
        run = open_run(write_run(tmp_path / name, [step], algorithm={"name": name}, seed=0))
        members.append(Member(name, run, summarise(run)))
    a, b, c, d = (reward_scale(member.run) for member in members)
    assert not a.fits(b) and a.fits(c) and a.fits(d)
    assert d.parts == {"style"} and not d.fits(replace(a, parts=frozenset({"length"})))
    assert "different rewards" in prompt_difference([(members[0].run, members[1].run)]).reason
    found = standing(grouped_settings(members[:3]), "reward")
    assert found.tasks == ("reward in {0, 1}", "reward in {-1, 1}", "reward in {0, 1}")
    assert [(each.a, each.b) for each in found.contrasts] == [(0, 2)]
    assert set(standing(grouped_settings(members[:3]), "response_length").tasks) == {""}


def test_what_is_remembered_of_a_reward_does_not_keep_the_run(tmp_path: Path) -> None:
    """Each state of a run that is written is another run, with all that was read of it."""
    run = open_run(_prompt_run(tmp_path / "run", 1, 0.0))
    first, gone = reward_scale(run), ref(run)
    del run
    gc.collect()
    assert gone() is None
    assert reward_scale(open_run(tmp_path / "run")) is first
