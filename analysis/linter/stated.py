"""Settings of a run as other programs name them, wherever in the manifest they stand."""

from collections.abc import Sequence
from typing import Any

from ratioscope.run_format.manifest import Manifest


def stated(manifest: Manifest, names: Sequence[str]) -> dict[str, Any]:
    """The settings of these names that the manifest has, in their order; a value of None is none."""
    places = (manifest.parameters, manifest.algorithm, manifest.task, manifest.sampler, manifest.schedule)
    found = {name: next((place[name] for place in places if name in place), None) for name in names}
    return {name: value for name, value in found.items() if value is not None}
