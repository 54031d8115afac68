"""The floor that producers and readers of off-policy training logs share.

    from ratioscope import RunRecorder      # write a run from any trainer
    from ratioscope import open_run         # look at one: numbers, findings, figures, report
    from ratioscope import catalogue        # what every number means

`run_format` and `recorder` need pyarrow and the standard library only; `rules` and `metrics` (the step's numbers
inside a training loop) import torch; `open_run` needs `pip install
"ratioscope[dashboard]"`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ratioscope.errors import MissingPackageError, RatioscopeError, RunFormatError
from ratioscope.extras import needing

if TYPE_CHECKING:
    from ratioscope.dashboard.notebook import open_run as open_run
    from ratioscope.recorder import RunRecorder as RunRecorder
    from ratioscope.run_format.manifest import Manifest as Manifest
    from ratioscope.stopping import stop_on_critical as stop_on_critical

    __version__: str

__all__ = [
    "Manifest",
    "MissingPackageError",
    "RatioscopeError",
    "RunFormatError",
    "RunRecorder",
    "__version__",
    "stop_on_critical",
]


# Imported when they are asked for: pyarrow takes its time, in which a command could not be interrupted.
_LAZY = {"Manifest": "run_format.manifest", "RunRecorder": "recorder", "stop_on_critical": "stopping"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"ratioscope.{_LAZY[name]}"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("ratioscope")
    # The dashboard imports this package, and a program that records runs must not import the dashboard.
    if name == "open_run":
        with needing("ratioscope.open_run", "ratioscope[dashboard]"):
            from ratioscope.dashboard.notebook import open_run
        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
