"""Tasks of reasoning-gym: prompts that stay what they are, held-out questions, and a reward for any response."""

import inspect
import math
import os
import random
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.tasks.gym import REFUSED, GymTask, check, task_names
from ratioscope.trainer.tasks.task import Task
from tests.making.training import QUICK

# Not imported before a test needs it: that takes a second, and every process collects this file.
pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="the extra [gym] is not installed")

ROOT = Path(__file__).parents[2]
DIGITS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
SOME = ("chain_sum", "basic_arithmetic", "letter_counting", "gcd", "spell_backward", "number_sorting", "mini_sudoku")


def gym(name: str = "chain_sum", *, size: int = 300, held_out: int = 20, seed: int = 0, **options: Any) -> GymTask:
    return GymTask(name, size=size, evaluation_prompts=held_out, response_length=8, seed=seed, options=options)


@cache
def sums() -> GymTask:
    return gym(**DIGITS)


@cache
def scored(name: str) -> GymTask:
    return gym(name, size=30, held_out=2)


def test_it_is_a_task_for_pretrained_models() -> None:
    task: Task = sums()
    assert task.response_length == 8
    assert (task.size, task.evaluation_ids) == (300, range(20))


@QUICK
@given(st.integers(0, 1_000), st.integers(1, 40))
def test_training_never_draws_a_held_out_question_nor_a_prompt_twice(seed: int, n: int) -> None:
    drawn = sums().draw(random.Random(seed), n)
    assert len(set(drawn)) == n
    assert all(20 <= prompt_id < 300 for prompt_id in drawn)
    # 200 questions under 300 numbers: some of the held-out ones come again.
    held_out = {sums().prompt(prompt_id) for prompt_id in sums().evaluation_ids}
    assert held_out.isdisjoint(sums().prompt(prompt_id) for prompt_id in drawn)


def test_training_draws_every_question_that_is_not_held_out() -> None:
    held_out = {sums().prompt(prompt_id) for prompt_id in sums().evaluation_ids}
    left = [prompt_id for prompt_id in range(20, 300) if sums().prompt(prompt_id) not in held_out]
    assert len(left) < 280
    assert sorted(sums().draw(random.Random(1), len(left))) == left
    with pytest.raises(RatioscopeError, match=rf"{len(left)} of 300 prompts are left for training, 280 are drawn"):
        sums().draw(random.Random(1), 280)


def test_the_same_seed_draws_the_same_prompts() -> None:
    assert sums().draw(random.Random(4), 12) == sums().draw(random.Random(4), 12)


@pytest.mark.parametrize("name", SOME)
def test_the_seed_decides_the_prompts(name: str) -> None:
    one, same, other = (gym(name, size=30, held_out=2, seed=seed) for seed in (5, 5, 2**62))
    prompts = [[task.prompt(prompt_id) for prompt_id in range(10)] for task in (one, same, other)]
    assert prompts[0] == prompts[1] != prompts[2]


def test_a_new_python_makes_the_same_prompts() -> None:
    """The file alone: its package would import torch."""
    names = tuple(name for name in SOME if name != "mini_sudoku")
    code = (
        "import runpy\n"
        f"GymTask = runpy.run_path({inspect.getfile(GymTask)!r})['GymTask']\n"
        "sizes = dict(size=30, evaluation_prompts=2, response_length=8, seed=0, options={})\n"
        f"print([GymTask(name, **sizes).prompt(3) for name in {names}])"
    )
    here = [gym(name, size=30, held_out=2).prompt(3) for name in names]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        there = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == repr(here)


@pytest.mark.parametrize("name", SOME)
def test_a_right_answer_earns_everything_bare_in_tags_or_on_the_last_line(name: str) -> None:
    task = scored(name)
    for prompt_id in range(5):
        right = task.answer(prompt_id)
        assert task.reward(prompt_id, f"I think.\n<answer>{right}</answer> So it is.", ended=True) == 1.0
        if "\n" not in right:
            for response in (right, f" {right} ", f"Let me see:\n\n{right}\n\n"):
                assert task.reward(prompt_id, response, ended=False) == 1.0


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("response", ["", "wrong", "<answer></answer>", "<answer>wrong</answer>"])
def test_a_wrong_answer_earns_less(name: str, response: str) -> None:
    task = scored(name)
    assert all(task.reward(prompt_id, response, ended=True) < 1.0 for prompt_id in range(5))


def test_the_last_tags_count_and_then_the_last_line() -> None:
    right, wrong = sums().answer(3), str(int(sums().answer(3)) + 1)
    assert sums().reward(3, f"<answer>{wrong}</answer><answer>{right}</answer>\n{wrong}", ended=True) == 1.0
    assert sums().reward(3, f"<answer>{right}</answer><answer>{wrong}</answer>\n{right}", ended=True) < 1.0
    assert sums().reward(3, f"{right}\n{wrong}", ended=True) < 1.0


ODD = [
    "\x00\ufffd\ud83d", "<answer>", "</answer><answer>", "<answer>" * 50, "NaN", "-inf", "1e999999", "[" * 5_000,
    "9" * 50_000, "\n" * 1_000, "[1, 'a', None]", '{"a": [}', "1/0", "exit()", "٣", "−5", "\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_any_response_has_a_reward(name: str) -> None:
    task = scored(name)
    for response in ODD:
        reward = task.reward(1, response, ended=False)
        assert math.isfinite(reward) and 0 <= reward <= 1


@QUICK
@given(st.text(max_size=60), st.integers(0, 29))
def test_any_text_has_a_reward(response: str, prompt_id: int) -> None:
    for task in map(scored, SOME):
        assert 0 <= task.reward(prompt_id, response, ended=True) <= 1


def test_no_task_that_can_be_chosen_runs_what_the_model_wrote() -> None:
    from reasoning_gym import factory

    assert len(task_names()) > 80
    assert set(task_names()).isdisjoint(REFUSED)
    # These evaluate their own text only: the expected answer, and a formula with a parser of their own.
    harmless = {"number_sorting", "propositional_logic"}
    for name in set(task_names()) - harmless:
        scorer = factory.DATASETS[name][0].score_answer
        source = inspect.getsource(sys.modules[scorer.__module__])
        in_scorer = inspect.getsource(scorer)
        assert " eval(" not in in_scorer and "parse_expr(" not in source and "sympify(" not in source, name


@pytest.mark.parametrize("name", ["n_queens", "countdown", "word_ladder", "rubiks_cube", "composite"])
def test_a_task_that_a_run_cannot_use_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(RatioscopeError, match=rf"^The task '{name}' of reasoning-gym cannot be used: its? .*\.$"):
        check(name, {})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chain_sums", {}, r"^reasoning-gym has no task 'chain_sums'; the nearest: chain_sum, .*\.$"),
        ("qqqq", {}, r"^reasoning-gym has no task 'qqqq'; there are: ab, acre, .*\.$"),
        ("chain_sum", {"max_term": 3}, r"^The task 'chain_sum' has no option 'max_term'; the nearest: max_terms.*\.$"),
        ("chain_sum", {"seed": 3}, r"has no option 'seed'; there are: min_terms, .*\.$"),
        ("chain_sum", {"max_terms": 0}, r"^The task 'chain_sum' does not take max_terms=0: max_terms must be >= .*\.$"),
        ("chain_sum", {"max_terms": "many"}, r"^The task 'chain_sum' does not take max_terms='many': .*\.$"),
        ("gcd", {"min_numbers": 1, "max_value": 9}, r"^The task 'gcd' does not take min_numbers=1, max_value=9: .*\.$"),
    ],
)
def test_a_slip_is_one_sentence(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RatioscopeError, match=message):
        check(name, options)
    with pytest.raises(RatioscopeError, match=message):
        GymTask(name, size=30, evaluation_prompts=2, response_length=8, seed=0, options=options)


def test_what_fits_passes_the_check() -> None:
    check("chain_sum", DIGITS)
    check("spell_backward", {})


def test_a_task_without_training_prompts_is_refused() -> None:
    with pytest.raises(RatioscopeError, match="of 20 prompts, 20 cannot be held out"):
        gym(size=20, held_out=20)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    for attempt in (task_names, lambda: check("chain_sum", {}), gym):
        with pytest.raises(RatioscopeError, match=r'^reasoning-gym cannot be imported .*"ratioscope\[gym\]"\.$'):
            attempt()
