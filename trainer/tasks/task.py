"""What every task offers: numbered prompts, and a program that scores a response."""

import random
from typing import Protocol


class Task(Protocol):
    """Prompts 0 .. size - 1; those of `evaluation_ids` are held out from training.

    A task whose `characters` are not empty can be learned by the built-in model: it then also answers its prompts,
    for the supervised warm start.
    """

    characters: str
    """What prompts and answers are written with; empty where only a pretrained model will do."""
    size: int
    evaluation_ids: range
    prompt_length: int
    """Characters of the longest prompt, where `characters` are given."""
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
