"""Past versions of the policy, kept as long as the schedule may still sample from them."""

import torch
from torch import Tensor

from trainer.config import Schedule
from trainer.schedule import behavior_version

Weights = dict[str, Tensor]


class Snapshots:
    """Weights by policy version; version v is the policy before update v."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.weights: dict[int, Weights] = {}

    def keep(self, version: int, model: torch.nn.Module) -> None:
        """Store a copy of `model` if a batch from `version` on may need it, and forget what no batch needs any more."""
        # Versions asked for never decrease, and none is asked for more than one round of m + n updates later.
        horizon = version + self._schedule.sync_interval + self._schedule.sync_offset + 1
        wanted = {behavior_version(self._schedule, update) for update in range(version, horizon)}
        self.weights = {kept: weights for kept, weights in self.weights.items() if kept in wanted}
        if version in wanted:
            self.weights[version] = {name: value.clone() for name, value in model.state_dict().items()}
