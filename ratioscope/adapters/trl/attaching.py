"""Which recorder a trainer of TRL's gets, or why none can record it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratioscope.adapters.trl.asynchronous import AsyncRecorder
from ratioscope.adapters.trl.known import is_asynchronous, not_recorded
from ratioscope.adapters.trl.recorder import GRPORecorder, attached
from ratioscope.errors import RatioscopeError


def record(
    trainer: Any,
    folder: str | Path,
    *,
    new: bool | int = False,
    resume: bool = False,
    name: str = "",
    task: Mapping[str, Any] | None = None,
    notes: str = "",
    tags: tuple[str, ...] = (),
    quiet: bool = False,
) -> GRPORecorder:
    """Record the next `trainer.train()` into a run folder.

    Args:
        trainer: a `trl.GRPOTrainer`, a `trl.RLOOTrainer` or a `trl.experimental.async_grpo.AsyncGRPOTrainer`, or a
            subclass that keeps its methods. Of several processes each calls this, and records its own share of every
            batch into the same folder.
        folder: where the run goes.
        new: score the batch again after the optimizer's step (`logp_new`): at every step, or at every n-th one. Each
            time costs a forward pass over the step's batch.
        resume: go on with the run that is in `folder`, if there is one: for jobs that are started again with
            `trainer.train(resume_from_checkpoint=True)`. Steps that are on disk already are not written again.
        name: of the run; the folder's name without one.
        task: what the manifest says of the task, over what is read from the trainer.
        notes: free text for the manifest.
        tags: words to find the run by.
        quiet: do not print what recording cost when the training ends.

    Raises:
        RatioscopeError: the trainer's loss is not made as those of TRL's GRPO and RLOO trainers are, or the folder
            holds a run and `resume` is false.
    """
    kind = AsyncRecorder if is_asynchronous(trainer) else GRPORecorder
    if kind is GRPORecorder and (reason := not_recorded(trainer)):
        raise RatioscopeError(reason)
    fields = {"name": name, "notes": notes, "tags": list(tags)}
    return attached(kind, trainer, folder, new=int(new), resume=resume, task=task, fields=fields, quiet=quiet)
