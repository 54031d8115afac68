"""What every task offers: numbered prompts, and a program that scores a response."""

import random
from typing import Protocol, runtime_checkable


class Task(Protocol):
    """Prompts 0 .. size - 1; those of `evaluation_ids` are held out from training.

    A task that the built-in model can learn is a `TaughtTask`, too.
    """

    size: int
    evaluation_ids: range
    response_length: int
    """Most tokens of a response, the end mark included."""

    def prompt(self, prompt_id: int) -> str:
        """The prompt's text, without any chat template."""

    def answer(self, prompt_id: int) -> str:
        """A right response, without an end mark."""

    def reward(self, prompt_id: int, response: str, *, ended: bool) -> float:
        """Score in [0, 1] of a response's text; `ended` says whether the end mark was sampled."""

    def draw(self, generator: random.Random, n: int) -> list[int]:
        """Ids of n distinct training prompts."""


@runtime_checkable
class TaughtTask(Task, Protocol):
    """A task that the built-in model is taught before it is trained: rightly, and with a habit to be unlearned."""

    characters: str
    """What prompts and answers are written with."""
    prompt_length: int
    """Characters of the longest prompt."""
    lesson_length: int
    """Tokens after which a response is no lesson; independent of `response_length`, as every start is."""

    def lesson(self, prompt_id: int, generator: random.Random, right_share: float) -> str:
        """A response to imitate, without an end mark: right, or as the habit has it."""

    def is_lesson(self, prompt_id: int, text: str) -> bool:
        """Whether a response is one of those that are taught."""
