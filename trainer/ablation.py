"""Grids of runs: a named study, or a preset with several values for some keys."""

import itertools
import tomllib
from pathlib import Path

from ratioscope.errors import RatioscopeError
from trainer.config import TrainConfig
from trainer.settings import load

STUDIES = Path(__file__).parent / "studies"


def study_names() -> list[str]:
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def plan(name: str, overrides: list[str]) -> list[TrainConfig]:
    """The configurations of a grid, in the order in which they are trained.

    Args:
        name: a study (`figure3`) or a preset.
        overrides: `key=value`, where `key=value1,value2` makes one run for each value.

    Raises:
        RatioscopeError: as `trainer.settings.load`, or two runs would have the same name.
    """
    grid = [[f"{key}={value}" for value in values.split(",")] for key, values in map(_split, overrides)]
    configs = []
    for preset, fixed in _base(name):
        configs += [load(preset, [*fixed, *chosen]) for chosen in itertools.product(*grid)]
    names = [config.run_name() for config in configs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise RatioscopeError(f"Two runs of this grid would be called {twice!r}; vary a setting that the name shows.")
    return configs


def _base(name: str) -> list[tuple[str, list[str]]]:
    """Presets with fixed overrides: one for a preset, variants times seeds for a study."""
    path = STUDIES / f"{name}.toml"
    if not path.exists():
        return [(name, [])]
    study = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        (preset, [*variant, f"seed={seed}"])
        for preset in study["presets"]
        for variant in study["variants"]
        for seed in study.get("seeds", {}).get(preset, [0])
    ]


def _split(override: str) -> tuple[str, str]:
    key, separator, values = override.partition("=")
    if not separator or not key or not values:
        raise RatioscopeError(f"{override!r} is not of the form key=value or key=value1,value2.")
    return key, values
