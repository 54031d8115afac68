"""The sampler's settings that a run's manifest states and that make the engine mismatch, with what to set them to.

for each in blamed_settings(manifest, Like.TRUNCATION, "verl"):
    each.stated, each.remedy                # "top_p 0.95", "actor_rollout_ref.rollout.top_p=1 (0.95 now)"
"""

from dataclasses import dataclass

from ratioscope.analysis.findings.setup import ENGINE_DEFAULTS, TRUNCATION, unusual_settings
from ratioscope.analysis.frameworks.remedies import Like, remedies, set_to_usual
from ratioscope.run_format.manifest import Manifest

FORMAT = "dtype"
_MAKES = {Like.TEMPERATURE: ("temperature",), Like.TRUNCATION: tuple(TRUNCATION)}


@dataclass(frozen=True)
class Blamed:
    """A setting of the sampler that is not the trainer's."""

    key: str
    now: float | str
    setting: str
    """The assignment that removes it, in the words of the run's framework."""

    @property
    def stated(self) -> str:
        return f"{self.key} {self.now}"

    @property
    def remedy(self) -> str:
        return f"{self.setting} ({self.now if f'{self.key}=' in self.setting else self.stated} now)"


def blamed_settings(manifest: Manifest, like: Like, framework: str) -> tuple[Blamed, ...]:
    """Settings that are stated and show: those that make what the mismatch is like, and another number format."""
    if like is Like.NOTHING:
        return ()
    trainers = manifest.model.get(FORMAT)
    usual = {**ENGINE_DEFAULTS, FORMAT: trainers if isinstance(trainers, str) else ENGINE_DEFAULTS[FORMAT]}
    stated = unusual_settings(manifest.sampler, {key: usual[key] for key in (*_MAKES.get(like, ()), FORMAT)})
    removing = next((one.setting for one in remedies(framework, like) if one.against is like), "")
    return tuple(
        Blamed(key, now, set_to_usual(framework, key) or (key != FORMAT and removing) or f"{key}={usual[key]}")
        for key, now in stated.items()
    )
