"""Step summaries where people look: the same numbers, with their marks, in CSV, TensorBoard, trackio and W&B.

bridge = Bridge("runs/mine", wandb.log)      # inside a training loop: any function that takes a dictionary
bridge.send()                                # the steps that have come since
"""

from ratioscope.dashboard.bridge.sending import Bridge
from ratioscope.dashboard.bridge.targets import TARGETS

__all__ = ["TARGETS", "Bridge"]
