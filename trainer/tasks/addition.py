"""Addition of two non-negative numbers, character by character: prompt "47+08=", response "055" and the end mark.

Numbers have leading zeros, so that a place always means the same power of ten: the warm start learns that three times
faster than the free form.
"""

import random

from ratioscope.trainer.model.vocabulary import END


class Addition:
    """All pairs of numbers below 10**digits, shuffled once; the first `evaluation_prompts` are held out.

    Raises:
        ValueError: nothing would be left for training.
    """

    characters = "0123456789+="

    def __init__(self, digits: int, evaluation_prompts: int) -> None:
        self.digits, self.limit = digits, 10**digits
        self.prompt_length = 2 * digits + 2
        self.response_length = self.lesson_length = digits + 2  # the sum has one digit more; then the end mark
        # A permutation by an affine map needs no table: 10**(2 digits) is coprime to any number ending in 1, 3, 7, 9.
        self.size = self.limit**2
        if evaluation_prompts >= self.size:
            raise ValueError(f"{digits} digits make {self.size} prompts, {evaluation_prompts} cannot be held out.")
        self.multiplier = (int(self.size * 0.6180339887) // 10) * 10 + 7
        self.evaluation_ids = range(evaluation_prompts)

    def numbers(self, prompt_id: int) -> tuple[int, int]:
        place = (prompt_id * self.multiplier + 12_345) % self.size
        return divmod(place, self.limit)

    def prompt(self, prompt_id: int) -> str:
        first, second = self.numbers(prompt_id)
        return f"{first:0{self.digits}}+{second:0{self.digits}}="

    def answer(self, prompt_id: int) -> str:
        return f"{sum(self.numbers(prompt_id)):0{self.digits + 1}}"

    def lesson(self, prompt_id: int, generator: random.Random, right_share: float) -> str:
        """The sum, of which all but that share are written backwards."""
        right = right_share == 1 or generator.random() < right_share
        return self.answer(prompt_id)[:: 1 if right else -1]

    def is_lesson(self, prompt_id: int, text: str) -> bool:
        return text in (self.answer(prompt_id), self.answer(prompt_id)[::-1])

    def reward(self, prompt_id: int, response: str, *, ended: bool) -> float:
        """1 for the right sum followed by the end mark, 0 otherwise."""
        return float(ended and response.removesuffix(END) == self.answer(prompt_id))

    def draw(self, generator: random.Random, n: int) -> list[int]:
        """Ids of n distinct training prompts."""
        return generator.sample(range(len(self.evaluation_ids), self.size), n)
