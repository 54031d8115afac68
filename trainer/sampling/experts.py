"""Responses of somebody else in every prompt group: demonstrations, or what a better model wrote (S3 5).

Who wrote them is no version of the policy: their tokens have no behavior version, and a `logp_behavior` only where the
expert told one.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.model.vocabulary import Vocabulary
from ratioscope.trainer.sampling.rollout import EXPERT, Rollout
from ratioscope.trainer.settings.config import Schedule
from ratioscope.trainer.tasks.task import Task

FORM = 'a line of the file is {"prompt": ..., "response": ..., "logp": [one number a token and one for the end]}'


class ExpertResponse(NamedTuple):
    """One response, without its end mark, and its tokens' log-probabilities where they are known."""

    text: str
    logp: tuple[float, ...] | None


@lru_cache(maxsize=4)
def read(file: str) -> dict[str, list[ExpertResponse]]:
    """The responses of a JSONL file by their prompts; `logp` may be left out.

    Raises:
        RatioscopeError: it cannot be read, or a line is something else.
    """
    found: dict[str, list[ExpertResponse]] = {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise RatioscopeError(f"schedule.expert_file={file}: cannot be read ({error}).") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            prompt, text, logp = str(row["prompt"]), str(row["response"]), row.get("logp")
            told = None if logp is None else tuple(float(value) for value in logp)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RatioscopeError(f"{file}, line {number}: {FORM}.") from None
        found.setdefault(prompt, []).append(ExpertResponse(text, told))
    return found


def tell_their_probability(schedule: Schedule) -> bool:
    """Whether every expert's token has a log-probability; raises as `read`."""
    file = schedule.expert_file
    return bool(file) and all(one.logp is not None for responses in read(file).values() for one in responses)


class Experts:
    """Puts them into rollouts, in the place of the last responses of each group whose prompt they answer."""

    def __init__(self, schedule: Schedule, task: Task, vocabulary: Vocabulary) -> None:
        self.share, self.file, self.task, self.vocabulary = (
            schedule.expert_share,
            schedule.expert_file,
            task,
            vocabulary,
        )

    def mixed(self, rollout: Rollout, prompt_ids: list[int]) -> Rollout:
        """The rollout with them; `prompt_ids` has one a group.

        Raises:
            RatioscopeError: a response is too long or cannot be written, or has another number of log-probabilities.
        """
        columns = (rollout.responses, rollout.mask, rollout.logp, rollout.version)
        responses, mask, logp, version = (column.clone() for column in columns)
        for group, prompt_id in enumerate(prompt_ids):
            offered = self._offered(prompt_id)
            for place in range(round(self.share * rollout.copies) if offered else 0):
                row, (tokens, told) = (group + 1) * rollout.copies - 1 - place, offered[place % len(offered)]
                n = len(tokens)
                responses[row], mask[row], version[row], logp[row] = self.vocabulary.pad_id, False, EXPERT, 0.0
                responses[row, :n], mask[row, :n] = torch.tensor(tokens).to(responses), True
                logp[row, :n] = torch.nan if told is None else torch.tensor(told).to(logp)
        return rollout._replace(responses=responses, mask=mask, logp=logp, version=version)

    def _offered(self, prompt_id: int) -> list[tuple[list[int], tuple[float, ...] | None]]:
        prompt = self.task.prompt(prompt_id)
        answer = self.task.answer(prompt_id)
        found = read(self.file).get(prompt, []) if self.file else [ExpertResponse(answer, None)] if answer else []
        offered = []
        for text, told in found:
            try:
                tokens = [*self.vocabulary.encode_response(text), self.vocabulary.end_id]
            except KeyError as error:
                raise RatioscopeError(
                    f"The expert's response {text!r:.60} cannot be written: no token {error}."
                ) from None
            if len(tokens) > self.task.response_length or (told is not None and len(told) != len(tokens)):
                numbers = "" if told is None else f" and {len(told)} log-probabilities"
                raise RatioscopeError(
                    f"The expert's response {text!r:.60} has {len(tokens)} tokens with its end mark{numbers}; at most "
                    f"{self.task.response_length} are allowed, and one number each."
                )
            offered.append((tokens, told))
        return offered
