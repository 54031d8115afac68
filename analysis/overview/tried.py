"""What a run's siblings show of its remedy: a setting that was tried, and how far the level came with it.

tried("old_data_without_bound", manifest, Ended(0.08, 0.02), runs)
# "A run with clip ring (rec_ring_nois) ended at 83%."
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from ratioscope.analysis.compare.siblings import SEED, Sibling, short_settings
from ratioscope.analysis.findings.numbers import rounded_level
from ratioscope.analysis.findings.setup import Setup, setup_of
from ratioscope.run_format.manifest import Manifest

_RATE = "optimiser.learning_rate"
_REMEDIES = {
    "old_data_without_bound": ("gate", "schedule"),
    "mask_stops_return": ("gate",),
    "data_too_old": ("schedule",),
    "update_too_large": (_RATE,),
    "learning_rate_step": (_RATE,),
}
"""The settings that the remedy of a cause changes."""


@dataclass(frozen=True)
class Ended:
    """Where a run ends in what it is for, the mean of its last values."""

    level: float
    noise: float
    """Half width of its 95% interval; 0: unknown."""
    share: bool = True

    @property
    def words(self) -> str:
        return rounded_level(self.level, share=self.share)

    def is_above(self, other: "Ended") -> bool:
        """Whether it is higher, beyond the noise of both."""
        return self.level - other.level > hypot(self.noise, other.noise)


def tried(cause: str, here: Manifest, end: Ended, others: Sequence[tuple[Sibling, Manifest, Ended]]) -> str:
    """The best sibling that has the remedy, or that it is no better; where none has it, a better one; "" for none.

    Args:
        cause: the likely one of the run's fall, a name of `cause.CAUSES`; "": none is known.
        others: its siblings in the same metric, each with its end.
    """
    setup = setup_of(here)
    changed = [other for other in others if other[0].what != SEED]
    remedies = [other for other in changed if _is_remedy(cause, other[0], setup, setup_of(other[1]))]
    looked = remedies or changed
    if not looked:
        return ""
    sibling, _, best = max(looked, key=lambda other: other[2].level)
    name = short_settings([other[0] for other in changed])[sibling.run_id]
    called = f"{name}{f' ({sibling.algorithm})' * bool(sibling.algorithm)}"
    if best.is_above(end):
        return (
            f"{'Another change helped: a' if cause and not remedies else 'A'} run with {called} ended at {best.words}."
        )
    return f"A run with {called} ended no better, at {best.words}." if remedies else ""


def _is_remedy(cause: str, sibling: Sibling, here: Setup, there: Setup) -> bool:
    if sibling.what not in _REMEDIES.get(cause, ()):
        return False
    if sibling.what == "gate":
        return there.stops is True
    if sibling.what == _RATE:
        return _number(sibling.there) < _number(sibling.here)
    if here.offline or there.offline:
        return here.offline
    return there.sync_offset == here.sync_offset and (there.sync_interval or 0) < (here.sync_interval or 0)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
