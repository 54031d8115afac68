"""Runs that differ from one in a single setting, or in the seed alone: known from their manifests.

siblings("mine", {"mine": manifest, "other": other})
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratioscope.analysis.compare.changed_component import (
    PARAMETERS,
    changed_component,
    configured_in,
    differing_settings,
)
from ratioscope.analysis.compare.grouping import schedule_words
from ratioscope.run_format.manifest import Manifest

SEED, SCHEDULE = "seed", "schedule"


@dataclass(frozen=True)
class Sibling:
    """A run that differs in one thing."""

    run_id: str
    what: str
    """The setting; text as in the logs."""
    here: str
    there: str
    algorithm: str = ""
    """The name of its algorithm, where a part of that is what differs."""

    @property
    def words(self) -> str:
        """The setting, from what, to what."""
        return f"{self.what}: {self.here} → {self.there}"


def siblings(run_id: str, manifests: Mapping[str, Manifest]) -> tuple[Sibling, ...]:
    """The other runs that differ from one in one setting, then those that differ in the seed alone.

    A setting is a part of the algorithm with its parameters, a parameter (both sides of a bound are one), the schedule,
    or another key of the configuration. Where a setting differs, the seeds are the same. Runs of two programs, and runs
    of which no algorithm is known, are not known to be alike in the rest.
    """
    here = manifests[run_id]
    program = here.source.get("framework")
    if not here.algorithm:
        return ()
    flat = configured_in(here)
    found = [
        sibling
        for other, manifest in manifests.items()
        if other != run_id
        and manifest.source.get("framework") == program
        and (sibling := _sibling(other, here, flat, manifest)) is not None
    ]
    return tuple(sorted(found, key=lambda sibling: (sibling.what == SEED, sibling.what, sibling.there)))


def short_settings(found: Sequence[Sibling]) -> dict[str, str]:
    """By run what is another there: "clip ring" (people know a loss's gate as its clip), "learning_rate 0.0001",
    "sync_interval = 4".

    Parameters in brackets are left out where all of these runs are told apart without them.
    """
    whole = {each.run_id: f"{_name(each)} {each.there}".strip() for each in found}
    bare = {run_id: name.partition(" (")[0] for run_id, name in whole.items()}
    return {run_id: name if list(bare.values()).count(name) == 1 else whole[run_id] for run_id, name in bare.items()}


def _name(sibling: Sibling) -> str:
    if sibling.what == SCHEDULE:  # its words name what they are of
        return ""
    return "clip" if sibling.what == "gate" else sibling.what.rpartition(".")[2]


def _sibling(run_id: str, here: Manifest, flat: Mapping[str, str], there: Manifest) -> Sibling | None:
    other = configured_in(there)
    keys = differing_settings(flat, other)
    if here.seed != there.seed or not keys:
        if keys or None in (here.seed, there.seed) or here.seed == there.seed:
            return None
        return Sibling(run_id, SEED, str(here.seed), str(there.seed))
    if all(key.startswith("schedule.") for key in keys):
        return Sibling(run_id, SCHEDULE, *(schedule_words(run.schedule, run.sampler) for run in (here, there)))
    change, back = changed_component(flat, other), changed_component(other, flat)
    if change is not None:
        before, after = change.before, change.after
    elif back is not None:
        change, before, after = back, back.after, back.before
    else:
        return None
    of_part = keys if change.kind == "part" else []
    name = there.algorithm_name if of_part else ""
    return Sibling(
        run_id, ", ".join(change.names), ", ".join(before) + _own(flat, other, of_part),
        ", ".join(after) + _own(other, flat, of_part), name if name != here.algorithm_name else "",
    )  # fmt: skip


def _own(here: Mapping[str, str], there: Mapping[str, str], keys: Sequence[str]) -> str:
    """The parameters that come and go with a part, in brackets: two clips differ in their bounds."""
    values = [here[key] for key in keys if key.startswith(PARAMETERS) and key in here and key not in there]
    return f" ({', '.join(values)})" if values else ""
