"""The tasks of reasoning-gym, each with its own scorer; the package is an extra, imported when it is needed.

A response's answer is what stands between its last <answer> tags, otherwise its last line that is not empty.
"""

import difflib
import math
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from ratioscope.errors import RatioscopeError, first_line

INSTALL = 'pip install "ratioscope[gym]"'

_RUNS_RESPONSES = "its scorer runs the response as a Python expression"
_FORGETS = "it makes other prompts from the same seed when Python starts again"
REFUSED = {
    **dict.fromkeys(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"), _RUNS_RESPONSES),
    **dict.fromkeys(("countdown", "polynomial_multiplication", "puzzle24"), _RUNS_RESPONSES),
    **dict.fromkeys(("intermediate_integration", "simple_integration"), _RUNS_RESPONSES),
    **dict.fromkeys(("isomorphic_strings", "ransom_note", "word_ladder"), _FORGETS),
    "complex_arithmetic": "its scorer gives the answer NaN the full reward",
    "rubiks_cube": "its scorer can take minutes over a few digits",
    "composite": "it mixes other tasks, of which some run responses",
}
"""What reasoning-gym has and a run cannot use, and why."""


class GymTask:
    """Prompts 0 .. size - 1 of a dataset; the first `evaluation_prompts` are held out.

    Raises:
        RatioscopeError: as `check`, or nothing would be left for training.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int,
        evaluation_prompts: int,
        response_length: int,
        seed: int,
        options: Mapping[str, Any],
    ) -> None:
        if evaluation_prompts >= size:
            raise RatioscopeError(f"{name}: of {size} prompts, {evaluation_prompts} cannot be held out.")
        self.name, self.size, self.response_length = name, size, response_length
        self.evaluation_ids = range(evaluation_prompts)
        dataset = _create(name, options, size=size, seed=seed)
        self._score: Callable[[str, dict[str, Any]], Any] = dataset.score_answer
        # Puzzles take long to make, and a prompt is asked for once a response.
        self._entry: Callable[[int], dict[str, Any]] = lru_cache(maxsize=4096)(dataset.__getitem__)
        self._tagged: Callable[[str], str | None] = _package().utils.extract_answer
        self._held_out = {self.prompt(prompt_id) for prompt_id in self.evaluation_ids}

    def prompt(self, prompt_id: int) -> str:
        return str(self._entry(prompt_id)["question"])

    def answer(self, prompt_id: int) -> str:
        """A right response; empty for the few tasks that only know how to check one."""
        answer = self._entry(prompt_id)["answer"]
        return "" if answer is None else str(answer)

    def reward(self, prompt_id: int, response: str, *, ended: bool) -> float:
        """The scorer's word on the answer in `response`; 0 where the scorer fails.

        Many scorers give a part of the reward for an answer that merely contains the right one.
        """
        answer = self._tagged(response)
        if answer is None:
            answer = next((line.strip() for line in reversed(response.splitlines()) if line.strip()), "")
        try:
            score = float(self._score(answer, self._entry(prompt_id)))
        except Exception:  # noqa: BLE001 - a scorer parses what a model wrote, which can be anything
            return 0.0
        return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0

    def draw(self, generator: random.Random, n: int) -> list[int]:
        """Ids of n distinct training prompts, none of which asks what a held-out one asks.

        Raises:
            RatioscopeError: there are not as many.
        """
        first = len(self.evaluation_ids)
        drawn: list[int] = []
        seen: set[int] = set()
        while len(drawn) < n:
            if len(seen) == self.size - first:
                raise RatioscopeError(
                    f"{self.name}: {len(drawn)} of {self.size} prompts are left for training, {n} are drawn; "
                    f"questions repeat, and {len(self._held_out)} are held out."
                )
            prompt_id = generator.randrange(first, self.size)
            if prompt_id not in seen:
                seen.add(prompt_id)
                # Small tasks ask the same again under another number.
                if self.prompt(prompt_id) not in self._held_out:
                    drawn.append(prompt_id)
        return drawn


def check(name: str, options: Mapping[str, Any]) -> None:
    """Whether there is such a task and it takes such options.

    Raises:
        RatioscopeError: reasoning-gym is not installed, has no such task, or refuses the options.
    """
    _create(name, options, size=1, seed=0)


def task_names() -> list[str]:
    """Every task that a run can use.

    Raises:
        RatioscopeError: reasoning-gym is not installed.
    """
    return sorted(_package().factory.DATASETS.keys() - REFUSED.keys())


def _package() -> ModuleType:
    try:
        return import_module("reasoning_gym")
    except ImportError as error:
        raise RatioscopeError(f"reasoning-gym cannot be imported ({error}): {INSTALL}.") from None


def _create(name: str, options: Mapping[str, Any], *, size: int, seed: int) -> Any:
    """The dataset, after its first prompt was made: some options only show then that they do not fit."""
    names = task_names()
    if name in REFUSED:
        raise RatioscopeError(f"The task {name!r} of reasoning-gym cannot be used: {REFUSED[name]}.")
    if name not in names:
        raise RatioscopeError(f"reasoning-gym has no task {name!r}; {_nearest(name, names)}.")
    package = _package()
    known = [field for field in package.factory.DATASETS[name][1].__dataclass_fields__ if field not in ("size", "seed")]
    for option in options:
        if option not in known:
            raise RatioscopeError(f"The task {name!r} has no option {option!r}; {_nearest(option, known)}.")
    try:
        # Some datasets draw with numpy, whose seeds have 32 bits.
        dataset = package.create_dataset(name, size=size, seed=seed % 2**31, **options)
        dataset[0]
    except Exception as error:  # noqa: BLE001 - datasets assert, and fail in their own ways
        reason = first_line(error)
        given = ", ".join(f"{option}={value!r}" for option, value in options.items()) or "no options"
        raise RatioscopeError(f"The task {name!r} does not take {given}: {reason}.") from None
    return dataset


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    return f"the nearest: {', '.join(near)}" if near else f"there are: {', '.join(names)}"
