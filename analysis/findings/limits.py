"""The limits that a run is measured against: the catalogue's thresholds, moved by the nearest ratioscope.toml.

[thresholds]
epsilon = 0.1
epsilon_stale = 0.8

limits_of(run.folder).staleness     # 0.4: what staleness should stay below
"""

from dataclasses import dataclass, fields
from math import log1p
from pathlib import Path

from ratioscope.catalogue import THRESHOLDS
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.storage.clients import top
from ratioscope.storage.places import Remote
from ratioscope.toml_file import read_toml

FILE_NAME = "ratioscope.toml"
# Of the limits that are moved so many are named.
_MOST_NAMED = 4


def _default(name: str) -> float:
    return THRESHOLDS[name].value


@dataclass(frozen=True)
class Limits:
    """One field a row of `THRESHOLDS`, which says what it means and where it is from; defaults are the catalogue's."""

    epsilon: float = _default("epsilon")
    epsilon_stale: float = _default("epsilon_stale")
    version_window: float = _default("version_window")
    staleness_growth: float = _default("staleness_growth")
    kl: float = _default("kl")
    mean_ratio_low: float = _default("mean_ratio_low")
    mean_ratio_high: float = _default("mean_ratio_high")
    mean_ratio_z: float = _default("mean_ratio_z")
    mean_ratio_trifle: float = _default("mean_ratio_trifle")
    missing_mass: float = _default("missing_mass")
    mult_prob_error: float = _default("mult_prob_error")
    engine_to_update: float = _default("engine_to_update")
    dropped_share: float = _default("dropped_share")
    khat: float = _default("khat")
    tail_share: float = _default("tail_share")
    ess: float = _default("ess")
    chi2: float = _default("chi2")
    clip_saturated: float = _default("clip_saturated")
    zero_signal: float = _default("zero_signal")
    entropy_share: float = _default("entropy_share")
    reward_fall: float = _default("reward_fall")
    left_out: float = _default("left_out")
    step_share: float = _default("step_share")

    @property
    def reward_lost(self) -> float:
        """Share of its best level: so deep a fall is critical, and counts where evaluation accuracy holds."""
        return 2 * self.reward_fall

    @property
    def reward_lowered(self) -> float:
        """Share of its level: what ends lower by so much, beyond noise, without a fall, has declined."""
        return self.reward_fall / 2

    @property
    def update(self) -> float:
        """ε/2, total variation: how far an update with a clip of width ε may move the policy."""
        return self.epsilon / 2

    @property
    def staleness(self) -> float:
        """ε_stale/2, total variation: what staleness should stay below (S0 5.6); above it bias is large."""
        return self.epsilon_stale / 2

    @property
    def engine(self) -> float:
        """Total variation between the two engines at which `mult_prob_error` is reached."""
        return (self.mult_prob_error - 1) / 2

    @property
    def log_chi2(self) -> float:
        """log(1 + χ²): the limit of χ² as whole responses are measured."""
        return log1p(self.chi2)


def limits_of(folder: Path, named: Path | None = None) -> Limits:
    """Those of the file that is named, else of ratioscope.toml in the run's folder or in the nearest folder above it.

    Raises:
        RatioscopeError: that file cannot be used (`read_limits`).
    """
    file = named or _nearest(folder)
    return read_limits(file) if file else Limits()


def stamp(folder: Path) -> str:
    """Changes with the file that has the limits of what lies in a folder; "" where there is none, or it is a URL."""
    file = None if isinstance(folder, Remote) else _nearest(folder)
    return f"{file}:{file.stat().st_mtime_ns}" if file else ""


def moved_limits(folder: Path, limits: Limits) -> str:
    """Which file moves which limits of a run, where nobody named one, in one sentence; empty: none is moved."""
    defaults = Limits()
    changed = [each.name for each in fields(Limits) if getattr(limits, each.name) != getattr(defaults, each.name)]
    file = _nearest(folder)
    if not changed or file is None:
        return ""
    named = [f"{name} {getattr(limits, name):g} instead of {getattr(defaults, name):g}" for name in changed]
    more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    where = ", in the run's own folder," if _is_own(file, folder) else ""
    return f"The limits are not the defaults: {file}{where} sets {', '.join(named[:_MOST_NAMED] + more)}."


def refuse_own(folder: Path) -> None:
    """Raise a RatioscopeError where a run brings the limits that it is judged by."""
    file = _nearest(folder)
    if file is not None and _is_own(file, folder):
        raise RatioscopeError(f"{file}: a run may not bring its own limits here; name yours with --thresholds FILE.")


def _nearest(folder: Path) -> Path | None:
    """The ratioscope.toml in this folder or in the nearest one above it."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    if isinstance(folder, Remote):
        above = [where for where in above if len(str(where)) >= len(top(str(folder)))]
    return next((found for where in above if (found := where / FILE_NAME).is_file()), None)


def _is_own(file: Path, folder: Path) -> bool:
    return file.parent == folder.resolve()


def read_limits(file: Path) -> Limits:
    """The limits with those that the file names moved.

    Raises:
        RatioscopeError: it is not there, cannot be read, has another table or an unknown name, or a value is no number
            or outside of what a project may choose.
    """
    contents = read_toml(file)
    others = sorted(contents.keys() - {"thresholds"})
    if others:
        raise RatioscopeError(f"{file}: {others[0]!r} is not known here; thresholds belong in the table [thresholds].")
    table = contents.get("thresholds", {})
    if not isinstance(table, dict):
        raise RatioscopeError(f"{file}: 'thresholds' must be a table, [thresholds] with lines such as epsilon = 0.1.")
    return Limits(**{name: _checked(file, name, value) for name, value in table.items()})


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
