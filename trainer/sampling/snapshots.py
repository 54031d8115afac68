"""Past versions of the policy, kept in the CPU's memory as long as the schedule may still sample from them."""

from transformers import PreTrainedModel

from ratioscope.trainer.model import adapters
from ratioscope.trainer.sampling.engine import Weights
from ratioscope.trainer.sampling.schedule import live_versions
from ratioscope.trainer.settings.config import Schedule


class Snapshots:
    """Weights by policy version; version v is the policy before update v."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.weights: dict[int, Weights] = {}

    def keep(self, version: int, model: PreTrainedModel) -> None:
        """Store a copy of `model` if a batch from `version` on may need it, and forget what no batch needs any more."""
        schedule = self._schedule
        # No version is asked for more than one round of m + n updates, and the mixture's reach, later.
        reach = schedule.sync_interval * max(1, len(schedule.mixture)) + schedule.sync_offset + 1
        wanted = {old for update in range(version, version + reach) for old in live_versions(schedule, update)}
        self.weights = {kept: weights for kept, weights in self.weights.items() if kept in wanted}
        if version in wanted:
            self.weights[version] = kept_weights(model)


def kept_weights(model: PreTrainedModel) -> Weights:
    """A copy of what makes its version that takes no memory of its device."""
    return {name: value.to("cpu", copy=True) for name, value in adapters.version_of(model).items()}
