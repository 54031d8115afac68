"""The verl plugin: records a training of verl without a line in its code.

    RATIOSCOPE_RUN=runs/mine python -m verl.trainer.main_ppo ...

verl loads what is registered as `verl.plugins` when it is imported. Without RATIOSCOPE_RUN nothing is done. With it,
the trainer's methods are wrapped as soon as the module of the trainer is imported, which the process does that trains.

| variable | |
|---|---|
| RATIOSCOPE_RUN | folder of the run |
| RATIOSCOPE_NEW | score the batch again after every n-th update (`logp_new`), a forward pass each time; 0: never |
| RATIOSCOPE_TEXTS | 0: no texts of prompts and responses |

Read against verl 0.9.1: verl/trainer/ppo/v1/trainer_base.py, verl/trainer/ppo/ray_trainer.py, verl/workers/utils,
verl/trainer/ppo/rollout_corr_helper.py, verl/trainer/config and verl/workers/config.
Read against agentlightning 1.0.2: agentlightning/verl/trainer.py, a fork's trainer with a `fit` of its own.
"""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Modules of verl, and the function of `hooks` that wraps what is in them.
TRAINERS = {"verl.trainer.ppo.v1.trainer_base": "wrap_trainer", "verl.trainer.ppo.ray_trainer": "wrap_old_trainer"}

_LOG = logging.getLogger("ratioscope")


class _Watch(MetaPathFinder):
    """Wraps the trainers when their modules are imported: importing them here would cost every worker seconds."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in TRAINERS or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            setattr(spec.loader, "exec_module", _then_wrapped(spec.loader.exec_module))  # noqa: B010 (typed as a method)
        return spec


def _then_wrapped(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        _wrap(module)

    return exec_module


def _wrap(module: ModuleType) -> None:
    """Wrap what is in a module of verl; where another version has other names, the training goes on unrecorded."""
    try:
        hooks = importlib.import_module("ratioscope.adapters.verl.hooks")
        getattr(hooks, TRAINERS[module.__name__])(module)
    except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
        _LOG.warning("ratioscope does not record: it cannot wrap %s, the training goes on: %s", module.__name__, error)


def watch() -> None:
    """Wrap verl's trainers, now or when they are imported."""
    for name in TRAINERS:
        if name in sys.modules:
            _wrap(sys.modules[name])
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


if os.environ.get("RATIOSCOPE_RUN"):
    watch()
