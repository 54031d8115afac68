"""The thresholds that hold for a run: the catalogue's, moved by the nearest ratioscope.toml.

[thresholds]
epsilon = 0.1
epsilon_stale = 0.8
"""

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from analysis.diagnosis.evidence import default_thresholds
from ratioscope.catalogue import THRESHOLDS
from ratioscope.errors import RatioscopeError

FILE_NAME = "ratioscope.toml"


def thresholds_of(folder: Path, roots: Sequence[Path]) -> dict[str, float]:
    """All thresholds by name, from ratioscope.toml in the run's folder or in the nearest folder above it.

    Args:
        folder: the run's.
        roots: of projects; the search ends at the one that holds the run, and in the run's folder when none does.

    Raises:
        RatioscopeError: that file cannot be used (`read_thresholds`).
    """
    folder = folder.resolve()
    above = [place for place in folder.parents if any(place.is_relative_to(root.resolve()) for root in roots)]
    file = next((found for place in (folder, *above) if (found := place / FILE_NAME).is_file()), None)
    return read_thresholds(file) if file else default_thresholds()


def read_thresholds(file: Path) -> dict[str, float]:
    """All thresholds by name, with those that the file names moved.

    Raises:
        RatioscopeError: it cannot be read, has another table or an unknown name, or a value is no number or outside of
            what a project may choose.
    """
    try:
        contents = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RatioscopeError(f"{file}: cannot be read as TOML ({error}).") from None
    unknown = sorted(contents.keys() - {"thresholds"})
    if unknown:
        raise RatioscopeError(f"{file}: {unknown[0]!r} means nothing here; thresholds stand in the table [thresholds].")
    table = contents.get("thresholds", {})
    if not isinstance(table, dict):
        raise RatioscopeError(f"{file}: 'thresholds' must be a table, [thresholds] with lines such as epsilon = 0.1.")
    return default_thresholds() | {name: _checked(file, name, value) for name, value in table.items()}


def _checked(file: Path, name: str, value: object) -> float:
    threshold = THRESHOLDS.get(name)
    if threshold is None:
        near = get_close_matches(name, THRESHOLDS, n=1, cutoff=0.5)
        hint = f"the nearest one is {near[0]}." if near else "see ratioscope explain thresholds."
        raise RatioscopeError(f"{file}: there is no threshold called {name!r}; {hint}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RatioscopeError(f"{file}: {name} is {value!r}, it must be a number.")
    if not threshold.lowest <= value <= threshold.highest:
        raise RatioscopeError(
            f"{file}: {name} is {value:g}, it must lie between {threshold.lowest:g} and {threshold.highest:g}."
        )
    return float(value)
