"""The thresholds that hold for a run: the catalogue's, moved by the nearest ratioscope.toml.

[thresholds]
epsilon = 0.1
epsilon_stale = 0.8
"""

import tomllib
from pathlib import Path

from ratioscope.catalogue import THRESHOLDS
from ratioscope.errors import RatioscopeError, unknown

FILE_NAME = "ratioscope.toml"


def default_thresholds() -> dict[str, float]:
    """The catalogue's thresholds by name."""
    return {name: threshold.value for name, threshold in THRESHOLDS.items()}


def thresholds_of(folder: Path) -> dict[str, float]:
    """All thresholds by name, from ratioscope.toml in the run's folder or in the nearest folder above it.

    Raises:
        RatioscopeError: that file cannot be used (`read_thresholds`).
    """
    folder = folder.resolve()
    file = next((found for place in (folder, *folder.parents) if (found := place / FILE_NAME).is_file()), None)
    return read_thresholds(file) if file else default_thresholds()


def read_thresholds(file: Path) -> dict[str, float]:
    """All thresholds by name, with those that the file names moved.

    Raises:
        RatioscopeError: it is not there, cannot be read, has another table or an unknown name, or a value is no number
            or outside of what a project may choose.
    """
    try:
        contents = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RatioscopeError(f"{file}: there is no such file.") from None
    except (OSError, ValueError) as error:
        raise RatioscopeError(f"{file}: cannot be read as TOML ({error}).") from None
    others = sorted(contents.keys() - {"thresholds"})
    if others:
        raise RatioscopeError(f"{file}: {others[0]!r} means nothing here; thresholds stand in the table [thresholds].")
    table = contents.get("thresholds", {})
    if not isinstance(table, dict):
        raise RatioscopeError(f"{file}: 'thresholds' must be a table, [thresholds] with lines such as epsilon = 0.1.")
    return default_thresholds() | {name: _checked(file, name, value) for name, value in table.items()}


def _checked(file: Path, name: str, value: object) -> float:
    threshold = THRESHOLDS.get(name)
    if threshold is None:
        raise RatioscopeError(f"{file}: {unknown('a threshold', name, THRESHOLDS)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RatioscopeError(f"{file}: {name} is {value!r}, it must be a number.")
    if not threshold.lowest <= value <= threshold.highest:
        raise RatioscopeError(
            f"{file}: {name} is {value:g}, it must lie between {threshold.lowest:g} and {threshold.highest:g}."
        )
    return float(value)
