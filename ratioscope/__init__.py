"""The floor that producers and readers of off-policy training logs share.

    from ratioscope import RunRecorder      # write a run from any trainer
    from ratioscope import catalogue        # what every number means

`schema`, `manifest` and `recorder` need pyarrow and the standard library only; `ratios`, `gates`, `weights` and
`metrics` (the step's numbers inside a training loop) import torch.
"""

from ratioscope.errors import RatioscopeError, RunFormatError
from ratioscope.manifest import Manifest
from ratioscope.recorder import RunRecorder

__version__ = "0.4.0"

__all__ = ["Manifest", "RatioscopeError", "RunFormatError", "RunRecorder", "__version__"]
