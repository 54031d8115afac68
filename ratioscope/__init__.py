"""The floor that producers and readers of off-policy training logs share.

    from ratioscope import RunRecorder      # write a run from any trainer
    from ratioscope import open_run         # look at one: numbers, findings, figures, report
    from ratioscope import catalogue        # what every number means

`schema`, `manifest` and `recorder` need pyarrow and the standard library only; `ratios`, `gates`, `weights` and
`metrics` (the step's numbers inside a training loop) import torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ratioscope.errors import RatioscopeError, RunFormatError
from ratioscope.manifest import Manifest
from ratioscope.recorder import RunRecorder

if TYPE_CHECKING:
    from ratioscope.dashboard.notebook import OpenRun

__version__ = "0.5.0"

__all__ = ["Manifest", "RatioscopeError", "RunFormatError", "RunRecorder", "__version__", "open_run"]


def open_run(folder: str | Path, *, thresholds: str | Path | None = None) -> "OpenRun":
    """Open a run to look at it: its summary, findings, figures and report, in a notebook or a program.

    Args:
        thresholds: a TOML file; default: the nearest ratioscope.toml beside the run or above it.

    Raises:
        RatioscopeError: it cannot be read.
    """
    from ratioscope.dashboard import (
        notebook,  # the one way up from the floor, for those who look; recording never goes it
    )

    return notebook.open_run(folder, thresholds=thresholds)
