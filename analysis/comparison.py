"""Ablations: runs side by side, seeds of one setting together, and what differs between the settings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.store import Run
from analysis.summary import StepSummary

# How many of the last logged values make "the end of the run": one value under a sawtooth schedule says little.
LAST_VALUES = 5


@dataclass(frozen=True)
class Member:
    """One run of a comparison."""

    run_id: str
    run: Run
    summary: StepSummary


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but the seed."""

    algorithm: str
    variant: str
    """Algorithm, with the parameters that tell it from other settings of the same algorithm."""
    schedule: str
    """Where the off-policyness comes from, in words."""
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        return f"{self.variant}, {self.schedule}"

    def series(self, metric: str) -> pd.DataFrame:
        """One column a run, aligned by step; NaN where a run has no value."""
        return pd.DataFrame({member.run_id: member.summary.values[metric] for member in self.members})

    def mean(self, metric: str) -> pd.DataFrame:
        """mean, low and high over the seeds by step; low and high are NaN with a single seed.

        The band is the smallest and the largest seed: with two or three seeds an interval would be a fiction.
        """
        frame = self.series(metric)
        several = frame.notna().sum(axis=1) > 1
        return pd.DataFrame(
            {
                "mean": frame.mean(axis=1),
                "low": frame.min(axis=1).where(several),
                "high": frame.max(axis=1).where(several),
            }
        ).dropna(subset=["mean"])

    def end(self, metric: str) -> tuple[float, float, float]:
        """Mean over the seeds of each run's last values, with a 95 % t interval over seeds (NaN with one seed)."""
        last = [float(series.dropna().iloc[-LAST_VALUES:].mean()) for _, series in self.series(metric).items()]
        values = np.asarray([value for value in last if np.isfinite(value)])
        if not len(values):
            return float("nan"), float("nan"), float("nan")
        mean = float(values.mean())
        if len(values) < 2:
            return mean, float("nan"), float("nan")
        half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
        return mean, mean - half, mean + half


def settings(members: Iterable[Member]) -> list[Setting]:
    """Group runs that differ in their seed only; fresh data first, as S3 figure 3 orders its columns."""
    members = list(members)
    flat = {member.run_id: configuration(member.run) for member in members}
    different = differing_keys(flat.values())
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        groups.setdefault(tuple(str(flat[member.run_id].get(key, "-")) for key in different), []).append(member)
    result = []
    for group in groups.values():
        manifest = group[0].run.manifest
        algorithm = str(manifest.algorithm.get("name", "unknown"))
        same = [flat[member.run_id] for member in members if member.run.manifest.algorithm.get("name") == algorithm]
        variant = algorithm + _in_brackets(flat[group[0].run_id], differing_keys(same))
        result.append(Setting(algorithm, variant, schedule_words(manifest.schedule), tuple(group)))
    return sorted(result, key=lambda setting: (_age(setting), setting.variant))


def _in_brackets(flat: Mapping[str, Any], different: list[str]) -> str:
    """What tells a setting from others of its algorithm: parameters by value, as S3 writes them, the rest by name."""
    parameters = [str(flat.get(key, "-")) for key in different if key.startswith("algorithm.parameters.")]
    rest = [
        f"{key.rpartition('.')[2]} {flat.get(key, '-')}"
        for key in different
        if not key.startswith(("algorithm.", "schedule."))
    ]
    return f" ({', '.join([*parameters, *rest])})" if parameters or rest else ""


def schedule_words(schedule: Mapping[str, Any]) -> str:
    """A schedule as a panel's title."""
    if schedule.get("offline"):
        return "offline"
    usual: dict[str, float | None] = {"sync_interval": 1, "sync_offset": 0, "switch_probability": 0.0, "actors": 0}
    usual |= {"epsilon_stale": None, "window": None}
    parts = [f"{key} = {schedule[key]}" for key, value in usual.items() if schedule.get(key, value) != value]
    if schedule.get("mixture"):
        parts.append(f"mixture of {len(schedule['mixture'])} versions")
    return ", ".join(parts) or ("on-policy" if schedule else "schedule not stated")


def _age(setting: Setting) -> tuple[bool, float, float]:
    schedule = setting.members[0].run.manifest.schedule
    offset, interval = (schedule.get(key) for key in ("sync_offset", "sync_interval"))
    return (
        bool(schedule.get("offline")),
        float(offset) if isinstance(offset, int) else 0.0,
        float(interval) if isinstance(interval, int) else 1.0,
    )


def configuration(run: Run) -> dict[str, Any]:
    """What was set, flat: {"schedule.sync_interval": 20, ...}; the seed is not part of it."""
    manifest = run.manifest
    sections = {
        "algorithm": manifest.algorithm,
        "schedule": manifest.schedule,
        "sampler": manifest.sampler,
        "optimiser": manifest.optimiser,
        "model": manifest.model,
        "task": manifest.task,
    }
    return dict(_flatten(sections)) | {"updates": manifest.planned_updates}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing_keys(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys that do not have one and the same value everywhere, in order of appearance."""
    configurations = list(configurations)
    keys = dict.fromkeys(key for flat in configurations for key in flat)
    return [key for key in keys if len({str(flat.get(key)) for flat in configurations}) > 1]


def differences(members: Iterable[Member]) -> pd.DataFrame:
    """One row a differing key, one column a run; "-" where a run does not set it."""
    flat = {member.run_id: configuration(member.run) for member in members}
    keys = differing_keys(flat.values())
    return pd.DataFrame(
        {run_id: [str(values.get(key, "-")) for key in keys] for run_id, values in flat.items()}, index=pd.Index(keys)
    )
