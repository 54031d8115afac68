"""Runs of an ablation, and settings: runs that differ in nothing but the seed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from ratioscope.analysis.compare.configuration import ABSENT, BOUND_SIDE, UNSET, configuration_of, differing_keys
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.setup import unusual
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE, ENTRIES
from ratioscope.errors import RatioscopeError, unknown

# How many of the last logged values make "the end of the run": one value under a sawtooth schedule says little.
LAST_VALUES = 5
# Where there are few, the end is one in so many of them, the last ones.
_SHORT = 3
SCHEDULE_UNKNOWN = "schedule not stated"
# Sections of a configuration beside algorithm, schedule and task.
_BESIDES = ("optimiser.", "sampler.", "model.")


@dataclass(frozen=True)
class Member:
    """One run of a comparison."""

    run_id: str
    run: Run
    summary: StepSummary
    limits: Limits = Limits()
    """That a collapse is judged by."""

    @property
    def unit(self) -> str:
        """What is repeated: the seed; a run that does not say its seed stands for itself.

        Two runs of one setting with one seed are one repetition, not two, so the unit is what counts and what is
        resampled.
        """
        seed = self.run.manifest.seed
        return f"run {self.run_id}" if seed is None else f"seed {seed}"


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but the seed."""

    algorithm: str
    variant: str
    """Algorithm, with the parameters that tell it from other settings of the same algorithm, and what else differs."""
    schedule: str
    """Where the off-policyness comes from, in words."""
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        return f"{self.variant}, {self.schedule}"

    def by_seed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """This setting's columns of a frame with one column a run, as one column a seed; runs of one seed averaged.

        Columns are sorted: what is computed from them does not depend on the order in which runs were found.
        """
        units = {member.run_id: member.unit for member in self.members if member.run_id in frame.columns}
        renamed = frame[list(units)].rename(columns=units)
        if renamed.columns.is_unique:
            return renamed.sort_index(axis=1)
        return renamed.T.groupby(level=0).mean().T


def check_metric(metric: str) -> None:
    """Refuse what runs cannot be compared by.

    Raises:
        RatioscopeError: there is no such metric, or it is none of the step summary.
    """
    if metric in CATALOGUE:
        return
    if metric in ENTRIES:
        raise RatioscopeError(f"{metric} has no series over steps, so that runs cannot be compared by it.")
    raise unknown("a metric", metric, CATALOGUE)


def end_count(n: int) -> int:
    """Of how many of a run's n values its end is the mean: enough that the choice of the last one decides nothing, and
    not so many that a short run's end is its whole."""
    return max(1, min(LAST_VALUES, round(n / _SHORT)), n // 10)


def end_value(series: "pd.Series[float]", count: int | None = None) -> float:
    """The mean of the last logged values, `end_count` of them unless it is said; NaN where there are none."""
    values = series.dropna()
    return float(values.iloc[-(count or end_count(len(values))) :].mean())


def grouped_settings(members: Iterable[Member]) -> list[Setting]:
    """Group runs that differ in their seed only; fresh data first, as S3 figure 3 orders its columns."""
    members = list(members)
    flat = {member.run_id: configuration_of(member.run.manifest) for member in members}
    different = differing_keys(flat.values())
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        groups.setdefault(tuple(str(flat[member.run_id].get(key, UNSET)) for key in different), []).append(member)
    usual = _usual([flat[group[0].run_id] for group in groups.values()])
    result = []
    for group in groups.values():
        manifest, own = group[0].run.manifest, flat[group[0].run_id]
        algorithm = manifest.algorithm_name or "unknown"
        same = [each.run for each in members if each.run.manifest.algorithm_name == algorithm]
        named = [*_telling(same, [*usual]), *(key for key in usual if str(own[key]) != usual[key])]
        variant = algorithm + _in_brackets(own, dict.fromkeys(named))
        result.append(Setting(algorithm, variant, schedule_words(manifest.schedule, manifest.sampler), tuple(group)))
    return sorted(result, key=lambda setting: (_age(setting), setting.variant))


def differing_besides(settings: Sequence[Setting], rivals: Iterable[Sequence[Setting]]) -> list[str]:
    """What rivals differ in besides algorithm and schedule, "learning_rate (0.0001 unless named)": which is best is no
    question of these two alone. What a log does not state does not differ.
    """
    usual, found = _usual([configuration_of(setting.members[0].run.manifest) for setting in settings]), dict[str, str]()
    for each in rivals:
        flat = [configuration_of(setting.members[0].run.manifest) for setting in each]
        for key in differing_keys(flat):
            values = {str(known[key]) for known in flat if key in known}
            if key.startswith(_BESIDES) and len(values) > 1:
                found[key] = key.rpartition(".")[2] + (f" ({usual[key]} unless named)" if usual.get(key) else "")
    return list(found.values())


def _usual(flat: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Of the optimiser's keys that differ between settings the value that more than half of them have, which needs no
    name; "" where there is none."""
    found = {}
    for key in differing_keys(flat):
        values = [str(each.get(key, UNSET)) for each in flat]
        if key.startswith("optimiser.") and ABSENT.isdisjoint(values):
            value, times = Counter(values).most_common(1)[0]
            found[key] = value if 2 * times > len(values) else ""
    return found


def _telling(runs: Sequence[Run], named: Sequence[str]) -> list[str]:
    """The differing parameters of an algorithm, and of the other keys as few as tell all its settings apart.

    Args:
        named: keys that are named, or need no name.
    """
    same = [configuration_of(run.manifest) for run in runs]
    keys = [key for key in differing_keys(same) if not key.startswith("schedule.")]
    telling = [key for key in keys if key.startswith("algorithm.parameters.")]
    told = [
        (schedule_words(run.manifest.schedule, run.manifest.sampler),
         *(str(flat.get(key, UNSET)) for key in (*telling, *named)))
        for run, flat in zip(runs, same, strict=True)
    ]  # fmt: skip
    # What one log does not state, because it is older, tells two settings apart only where nothing else does.
    for key in sorted(
        set(keys) - set(telling), key=lambda key: ({str(f.get(key, UNSET)) for f in same} <= ABSENT, keys.index(key))
    ):
        finer = [(*known, str(flat.get(key, UNSET))) for known, flat in zip(told, same, strict=True)]
        if len(set(finer)) > len(set(told)):
            told = finer
            telling.append(key)
    return telling


def _in_brackets(flat: Mapping[str, Any], telling: Iterable[str]) -> str:
    """What tells a setting from others of its algorithm, by name; both sides of a bound are one: epsilon 0.6/2.0."""
    bounds: dict[str, list[str]] = {}
    for key in telling:
        bounds.setdefault(BOUND_SIDE.sub("", key), []).append(key)
    words = [
        f"{(bound if len(keys) > 1 else keys[0]).rpartition('.')[2]} "
        f"{'/'.join(dict.fromkeys(str(flat.get(key, UNSET)) for key in keys))}"
        for bound, keys in bounds.items()
    ]
    return f" ({', '.join(words)})" if words else ""


def schedule_words(schedule: Mapping[str, Any], sampler: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A schedule as a panel's title.

    Args:
        sampler: its settings; what makes it another policy with the same weights is named beside "on-policy".
    """
    if schedule.get("offline"):
        return "offline"
    schedule = {key: value for key, value in schedule.items() if value is not None}
    usual: dict[str, float | None] = {"sync_interval": 1, "sync_offset": 0, "switch_probability": 0.0, "actors": 0}
    usual |= {"segment_length": 1, "epsilon_stale": None, "window": None}
    parts = [f"{key} = {schedule[key]}" for key, value in usual.items() if schedule.get(key, value) != value]
    if isinstance(mixture := schedule.get("mixture"), list) and mixture:
        parts.append(f"mixture of {len(mixture)} versions")
    # Other programs' manifests may say something of a schedule without saying when samplers get new weights.
    if parts or not usual.keys() & schedule.keys():
        return ", ".join(parts) or SCHEDULE_UNKNOWN
    other = unusual(sampler)
    return f"on-policy (sampler: {other})" if other else "on-policy"


def _age(setting: Setting) -> tuple[bool, float, float]:
    schedule = setting.members[0].run.manifest.schedule
    offset, interval = (schedule.get(key) for key in ("sync_offset", "sync_interval"))
    return (
        bool(schedule.get("offline")),
        float(offset) if isinstance(offset, int) else 0.0,
        float(interval) if isinstance(interval, int) else 1.0,
    )
