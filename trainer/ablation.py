"""Grids of runs: a named study with the claims that it tests, or a preset with several values for some keys."""

import itertools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratioscope.errors import RatioscopeError
from trainer.config import TrainConfig
from trainer.settings import load

STUDIES = Path(__file__).parent / "studies"


@dataclass(frozen=True)
class Cell:
    """One run of a grid; in a study it belongs to a preset, a variant and a seed."""

    config: TrainConfig
    preset: str
    variant: str = ""


@dataclass(frozen=True)
class Grid:
    """Runs in the order in which they are trained, and what a study claims about them."""

    cells: list[Cell]
    claims: list[dict[str, Any]] = field(default_factory=list)


def study_names() -> list[str]:
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def plan(name: str, overrides: list[str]) -> Grid:
    """The runs of a grid.

    Args:
        name: a study (`figure3`), a preset or an algorithm.
        overrides: `key=value`, where `key=value1,value2` makes one run for each value.

    Raises:
        RatioscopeError: as `trainer.settings.load`, or two runs would have the same name.
    """
    path = STUDIES / f"{name}.toml"
    study = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    grid = [[f"{key}={value}" for value in values] for key, values in map(_split, overrides)]
    if study and any(key == "seed" for key, _ in map(_split, overrides)):
        study["seeds"] = [int(value) for key, values in map(_split, overrides) if key == "seed" for value in values]
        grid = [choices for choices in grid if not choices[0].startswith("seed=")]
    cells = [
        Cell(load(preset, [*fixed, *chosen]), preset, variant)
        for preset, variant, fixed in _bases(name, study)
        for chosen in itertools.product(*grid)
    ]
    names = [cell.config.run_name() for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise RatioscopeError(f"Two runs of this grid would be called {twice!r}; vary a setting that the name shows.")
    return Grid(cells, study.get("claims", []))


def _bases(name: str, study: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Preset, variant and fixed overrides: one for a preset, presets x variants x seeds for a study."""
    if not study:
        return [(name, "", [])]
    everywhere = study["presets"]
    return [
        (preset, variant, [*study.get("settings", []), *settings, f"seed={seed}"])
        for seed in study["seeds"]
        for variant, settings in study["variants"].items()
        for preset in study.get("presets_of", {}).get(variant, everywhere)
    ]


def _split(override: str) -> tuple[str, list[str]]:
    key, separator, values = override.partition("=")
    if not separator or not key or not values:
        raise RatioscopeError(f"{override!r} is not of the form key=value or key=value1,value2.")
    # A list, as of mixture, is one value.
    return key, [values] if values.startswith(("[", "{", '"')) else values.split(",")
