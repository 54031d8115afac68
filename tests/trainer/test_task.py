"""Addition: every pair once, a split that does not leak, and a reward for nothing but the right sum."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.trainer.model.vocabulary import END, CharacterVocabulary
from ratioscope.trainer.tasks.addition import Addition
from ratioscope.trainer.tasks.counting import Counting
from tests.making.training import QUICK

VOCABULARY = CharacterVocabulary(Addition.characters)
CHARACTERS = VOCABULARY.decode(range(VOCABULARY.size))

TASKS = st.builds(Addition, st.integers(1, 3), st.integers(1, 90))


@pytest.mark.parametrize("digits", [1, 2])
def test_prompts_are_every_pair_of_numbers_exactly_once(digits: int) -> None:
    task, limit = Addition(digits, 1), 10**digits
    pairs = [task.numbers(prompt_id) for prompt_id in range(task.size)]
    assert sorted(pairs) == [(first, second) for first in range(limit) for second in range(limit)]
    assert len({task.prompt(prompt_id) for prompt_id in range(task.size)}) == limit**2


@QUICK
@given(st.integers(3, 6), st.lists(st.integers(0, 10**12 - 1), min_size=2, max_size=50, unique=True))
def test_prompts_of_longer_numbers_are_distinct_too(digits: int, ids: list[int]) -> None:
    task = Addition(digits, 1)
    distinct = {prompt_id % task.size for prompt_id in ids}
    assert len({task.prompt(prompt_id) for prompt_id in distinct}) == len(distinct)


@QUICK
@given(TASKS, st.integers(0, 1_000), st.integers(1, 10))
def test_training_never_draws_a_held_out_prompt_nor_one_twice(task: Addition, seed: int, n: int) -> None:
    drawn = task.draw(random.Random(seed), n)
    assert len(set(drawn)) == n
    held_out = {task.prompt(prompt_id) for prompt_id in task.evaluation_ids}
    assert held_out.isdisjoint(task.prompt(prompt_id) for prompt_id in drawn)


def test_training_draws_every_prompt_that_is_not_held_out() -> None:
    task = Addition(1, 20)
    assert sorted(task.draw(random.Random(0), 80)) == [*range(20, 100)]


@QUICK
@given(TASKS, st.data())
def test_the_answer_is_the_sum_with_leading_zeros_and_fits_the_response(task: Addition, data: st.DataObject) -> None:
    prompt_id = data.draw(st.integers(0, task.size - 1))
    first, second = task.prompt(prompt_id).removesuffix("=").split("+")
    assert int(task.answer(prompt_id)) == int(first) + int(second)
    assert len(task.prompt(prompt_id)) == task.prompt_length
    assert len(task.answer(prompt_id) + END) == task.response_length
    assert task.reward(prompt_id, task.answer(prompt_id) + END, ended=True) == 1.0


@QUICK
@given(TASKS, st.data())
def test_any_other_response_earns_nothing(task: Addition, data: st.DataObject) -> None:
    prompt_id = data.draw(st.integers(0, task.size - 1))
    right = task.answer(prompt_id) + END
    other = data.draw(st.text(CHARACTERS, max_size=task.response_length).filter(lambda text: text != right))
    assert task.reward(prompt_id, other, ended=other.endswith(END)) == 0.0


@pytest.mark.parametrize("spoil", [str.strip, lambda right: right + END, lambda right: "0" + right, lambda right: ""])
def test_the_right_digits_in_the_wrong_form_earn_nothing(spoil: object) -> None:
    task = Addition(2, 10)
    assert callable(spoil)
    spoiled = spoil(task.answer(3) + END)
    assert task.reward(3, spoiled, ended=spoiled.endswith(END)) == 0.0


@QUICK
@given(st.text(CHARACTERS))
def test_text_survives_the_vocabulary(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert VOCABULARY.decode(ids) == text
    assert all(0 <= token < VOCABULARY.size for token in ids)


def test_only_the_end_mark_has_a_name() -> None:
    shown = [VOCABULARY.text_of(token) for token in range(VOCABULARY.size)]
    assert shown[VOCABULARY.end_id] == "<end>"
    assert [text for text in shown if len(text) > 1] == ["<end>"]
    assert len(set(shown)) == VOCABULARY.size


COUNTING = Counting(100, 100)


def test_counting_has_every_prompt_once_and_right_responses_that_fit() -> None:
    prompts = [COUNTING.prompt(prompt_id) for prompt_id in range(COUNTING.size)]
    assert len({*prompts}) == COUNTING.size == 1_500
    assert {len(prompt) for prompt in prompts} == {COUNTING.prompt_length}
    lengths = [len(COUNTING.answer(prompt_id) + END) for prompt_id in range(COUNTING.size)]
    assert (min(lengths), max(lengths)) == (COUNTING.shortest_answer, COUNTING.longest_answer)
    assert COUNTING.longest_answer <= COUNTING.response_length
    drawn = COUNTING.draw(random.Random(0), COUNTING.size - 100)
    assert sorted(drawn) == [*range(100, COUNTING.size)]
    assert {*"".join(prompts)} | {*"".join(map(COUNTING.answer, drawn))} <= {*COUNTING.characters}


@QUICK
@given(st.integers(0, COUNTING.size - 1), st.integers(0, 50))
def test_a_lesson_of_counting_is_wrong_where_a_carry_is_forgotten(prompt_id: int, seed: int) -> None:
    start, step, end = map(int, re.findall(r"\d+", COUNTING.prompt(prompt_id)))
    numbers = [*range(start + step, end + step, step)]
    right = " ".join(f"{number:02d}" for number in numbers)
    assert COUNTING.answer(prompt_id) == right and COUNTING.is_lesson(prompt_id, right)
    lesson = COUNTING.lesson(prompt_id, random.Random(seed), 0.8)
    assert COUNTING.is_lesson(prompt_id, lesson) and len(lesson) >= len(right)
    for text in (lesson, right):
        assert COUNTING.reward(prompt_id, text + END, ended=True) == float(text == right)
        assert COUNTING.reward(prompt_id, text, ended=False) == 0.0
        wrong = (text[:-3], text + " " + text[-2:], text[:-1] + "x", text.replace(" ", ""), "", text[3:])
        assert not any(COUNTING.is_lesson(prompt_id, each) for each in wrong)
    endless = COUNTING.lesson(prompt_id, random.Random(seed), 0.0)
    assert len(endless) > COUNTING.lesson_length and not COUNTING.is_lesson(prompt_id, endless)


def test_a_task_without_training_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match="100 prompts, 100 cannot be held out"):
        Addition(1, 100)
