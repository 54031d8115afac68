"""What was set in a run, and which keys differ between runs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ratioscope.run_format.manifest import Manifest

UNSET = "-"
# What a part is called when it does nothing: a change takes it away.
ABSENT = frozenset({"none", "all", "equal", UNSET})
# Two sides of one bound are one component: epsilon_low and epsilon_high.
BOUND_SIDE = re.compile(r"_(low|high|positive|negative)$")


def configuration_of(manifest: Manifest) -> dict[str, Any]:
    """What was set, flat: {"schedule.sync_interval": 20, ...}; the seed is not part of it."""
    sections = {
        "algorithm": manifest.algorithm,
        "schedule": manifest.schedule,
        "sampler": manifest.sampler,
        "optimiser": manifest.optimiser,
        "model": manifest.model,
        "task": manifest.task,
    }
    return dict(flatten_settings(sections)) | {"updates": manifest.planned_updates}


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The leaves of nested mappings, by their keys joined with dots."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing_keys(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys that do not have one and the same value everywhere, in order of appearance."""
    configurations = list(configurations)
    keys = dict.fromkeys(key for flat in configurations for key in flat)
    return [key for key in keys if len({str(flat.get(key)) for flat in configurations}) > 1]
