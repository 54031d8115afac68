"""Grids of runs: a named study with the claims that it tests, or a preset with several values for some keys."""

import itertools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import load_settings

STUDIES = Path(__file__).parent / "studies"


@dataclass(frozen=True)
class GridCell:
    """One run of a grid; in a study it belongs to a preset, a variant and a seed."""

    config: TrainConfig
    preset: str
    variant: str = ""


@dataclass(frozen=True)
class Grid:
    """Runs in the order in which they are trained, and what a study claims about them."""

    cells: list[GridCell]
    claims: list[dict[str, Any]] = field(default_factory=list)


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
        study["seeds"] = [value for key, values in map(_split, overrides) if key == "seed" for value in values]
        grid = [choices for choices in grid if not choices[0].startswith("seed=")]
    made = [
        (load_settings(preset, [*fixed, *chosen]), preset, variant, chosen)
        for preset, variant, fixed in _bases(name, study)
        for chosen in itertools.product(*grid)
    ]
    names = [config.run_name() for config, *_ in made]
    if len(set(names)) < len(names):  # what varies is not in the name: put it there
        varying = [len(values) > 1 for values in grid]
        made = [
            (_named(config, itertools.compress(chosen, varying)), preset, variant, chosen)
            for config, preset, variant, chosen in made
        ]
        names = [config.run_name() for config, *_ in made]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise RatioscopeError(f"Two runs of this grid would be called {twice!r}; give each value once.")
    return Grid([GridCell(config, preset, variant) for config, preset, variant, _ in made], study.get("claims", []))


def sample_run(name: str) -> TrainConfig:
    """The settings that a sample run was trained with; raises a RatioscopeError where none has that name."""
    configs = {cell.config.run_name(): cell.config for cell in plan("samples", []).cells}
    if name not in configs:
        raise RatioscopeError(f"There is no sample run {name!r} to train; there are: {', '.join(sorted(configs))}.")
    return configs[name]


def _named(config: TrainConfig, chosen: Iterable[str]) -> TrainConfig:
    """A configuration with more of its settings in its name: `..-minibatches2-seed0`."""
    pairs = [choice.partition("=") for choice in chosen]
    words = [key.rpartition(".")[2] + value for key, _, value in pairs]
    words = [word for word in words if not word.startswith(("seed", "algorithm"))]
    head, _, seed = config.run_name().rpartition("-seed")
    return config.model_copy(update={"name": "-".join([head, *words, f"seed{seed}"])})


def _bases(name: str, study: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Preset, variant and fixed overrides: one for a preset, presets x variants x seeds for each block of a study."""
    if not study:
        return [(name, "", [])]
    return [
        (preset, variant, [*block.get("settings", []), *settings, f"seed={seed}"])
        for block in study.get("blocks", [study])
        for seed in study.get("seeds") or block["seeds"]
        for variant, settings in block["variants"].items()
        for preset in block.get("presets_of", {}).get(variant, block["presets"])
    ]


def _split(override: str) -> tuple[str, list[str]]:
    key, separator, values = override.partition("=")
    if not separator or not key or not values:
        raise RatioscopeError(f"{override!r} is not of the form key=value or key=value1,value2.")
    # A list, as of mixture, is one value.
    return key, [values] if values.startswith(("[", "{", '"')) else values.split(",")
