"""`stop_on_critical` as a callback of transformers' Trainer, and so of TRL's."""

from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Guard(Protocol):
    """`ratioscope.stopping.StopOnCritical`."""

    def step(self) -> bool:
        """Whether to stop, after an update."""

    def close(self) -> None:
        """Wait for what is under way."""


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """Asks the guard after each update; all ranks stop at the same one."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> TrainerControl:
        stop = self.guard.step() if state.is_world_process_zero else False
        if _agreed(stop, args):
            control.should_training_stop = True
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> TrainerControl:
        if state.is_world_process_zero:
            self.guard.close()
        return control


def _agreed(stop: bool, args: TrainingArguments) -> bool:
    """What the main rank says: a rank that goes on alone waits for the others for ever."""
    import torch
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return stop
    said = torch.tensor([int(stop)], device=args.device)
    distributed.broadcast(said, src=0)
    return bool(said.item())
