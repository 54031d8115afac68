"""Settings of a run as other programs name them, wherever in the manifest they stand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ratioscope.run_format.manifest import Manifest

_OF_RESPONSES = {"gspo": "geometric", "gspo_token": "geometric"}
"""What ratios are of, by the name of an algorithm that is defined by it."""
_LEVELS = {"sequence": "geometric", "sequence_token": "geometric", "token": "token", **_OF_RESPONSES}
"""The same by the value of a setting: what TRL calls a sequence's ratio is the mean of the tokens' logarithms."""


def stated(manifest: Manifest, names: Sequence[str]) -> dict[str, Any]:
    """The settings of these names that the manifest has, in their order; a value of None is none."""
    places = _places(manifest)
    found = {name: next((place[name] for place in places if name in place), None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def every_setting(manifest: Manifest) -> list[tuple[str, Any]]:
    """All settings with their names in lower case, those of what they are in before their own: "overlong.buffer"."""
    return [each for place in _places(manifest) for each in settings_in(place)]


def settings_in(part: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    """The settings in a part of the manifest, by such names."""
    for key, value in part.items():
        path = f"{inside}{key}".lower()
        if isinstance(value, Mapping):
            yield from settings_in(value, f"{path}.")
        else:
            yield path, value


def _places(manifest: Manifest) -> tuple[Mapping[str, Any], ...]:
    return manifest.parameters, manifest.algorithm, manifest.task, manifest.sampler, manifest.schedule


def ratio_level(manifest: Manifest) -> str:
    """What the loss's ratio is of: token, sequence (the product) or geometric; token where the manifest says nothing.

    By the part that names it, else by the setting of another program, else by the algorithm.
    """
    if "level" in manifest.parts:
        return str(manifest.parts["level"])
    for value in stated(manifest, ("importance_sampling_level", "loss_mode")).values():
        if (known := _LEVELS.get(str(value))) is not None:
            return known
    return _OF_RESPONSES.get(manifest.algorithm_name.lower(), "token")
