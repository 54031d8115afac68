"""Counting up, a response of 30 to 100 characters: prompt "02+3>76=", response "05 08 11 ... 74 77" and the end mark.

The first number is increased in steps until it is above the last one. The start knows how, and has a bad habit: where a
step carries, it sometimes leaves the tens as they were. That one slip makes a response wrong and long, so that wrong
responses are the long ones, and those with several slips are cut before they end.
"""

import random

from ratioscope.trainer.model.vocabulary import END

_STARTS, _STEPS, _ENDS = range(25), range(3, 6), range(75, 95)
# Coprime to the number of prompts, so that neighbouring ids are prompts that have little in common.
_STRIDE = 947


class Counting:
    """Every start, step and end once, shuffled; the first `evaluation_prompts` are held out.

    Args:
        evaluation_prompts: number of prompts held out from training.
        response_length: tokens after which a response is cut.
    """

    characters = "0123456789+>= "
    size = len(_STARTS) * len(_STEPS) * len(_ENDS)
    prompt_length = len("02+3>76=")
    shortest_answer = 3 * -(-(_ENDS[0] - _STARTS[-1]) // _STEPS[-1])
    longest_answer = 3 * -(-(_ENDS[-1] - _STARTS[0]) // _STEPS[0])
    """Tokens of the shortest and the longest right response, the end mark included."""
    lesson_length = 120

    def __init__(self, evaluation_prompts: int, response_length: int) -> None:
        self.response_length = response_length
        self.evaluation_ids = range(evaluation_prompts)

    def numbers(self, prompt_id: int) -> tuple[int, int, int]:
        """Start, step and end of a prompt."""
        rest, step = divmod(prompt_id * _STRIDE % self.size, len(_STEPS))
        start, end = divmod(rest, len(_ENDS))
        return _STARTS[start], _STEPS[step], _ENDS[end]

    def prompt(self, prompt_id: int) -> str:
        start, step, end = self.numbers(prompt_id)
        return f"{start:02d}+{step}>{end}="

    def answer(self, prompt_id: int) -> str:
        return self.lesson(prompt_id, random.Random(), right_share=1)

    def lesson(self, prompt_id: int, generator: random.Random, right_share: float) -> str:
        """A response in which that share of the carries is right."""
        number, step, end = self.numbers(prompt_id)
        written: list[str] = []
        # What is beyond is cut. Where no carry is right, a lesson has no end.
        while number < end and len(written) < self.lesson_length:
            carries = number % 10 + step >= 10
            forgotten = carries and right_share < 1 and generator.random() >= right_share
            number += step - 10 * forgotten
            written.append(f"{number:02d}")
        return " ".join(written)

    def is_lesson(self, prompt_id: int, text: str) -> bool:
        number, step, end = self.numbers(prompt_id)
        for word in text.split(" "):
            allowed = [number + step, number + step - 10] if number % 10 + step >= 10 else [number + step]
            following = next((each for each in allowed if f"{each:02d}" == word), None)
            if following is None or number >= end:
                return False
            number = following
        return number >= end

    def reward(self, prompt_id: int, response: str, *, ended: bool) -> float:
        """1 where every number is right and the end mark follows, 0 otherwise."""
        return float(ended and response.removesuffix(END) == self.answer(prompt_id))

    def draw(self, generator: random.Random, n: int) -> list[int]:
        """Ids of n distinct training prompts."""
        return generator.sample(range(len(self.evaluation_ids), self.size), n)
