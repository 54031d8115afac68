"""Verifiable tasks: prompts with answers that a program can check. One file a task."""

from ratioscope.trainer.settings.config import TaskChoice as Settings
from ratioscope.trainer.tasks.addition import Addition
from ratioscope.trainer.tasks.counting import Counting
from ratioscope.trainer.tasks.gym import GymTask
from ratioscope.trainer.tasks.task import Task


def make(settings: Settings) -> Task:
    """The task of a run.

    Raises:
        RatioscopeError: reasoning-gym refuses it.
    """
    if settings.name == "addition":
        return Addition(settings.digits, settings.evaluation_prompts)
    if settings.name == "counting":
        return Counting(settings.evaluation_prompts, settings.response_length)
    return GymTask(
        settings.name,
        size=settings.size,
        evaluation_prompts=settings.evaluation_prompts,
        response_length=settings.response_length,
        seed=settings.seed,
        options=settings.options,
    )
