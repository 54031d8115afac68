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

    label: str
    algorithm: str
    members: tuple[Member, ...]

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
    """Group runs that differ in their seed only, labelled by what tells the groups apart."""
    members = list(members)
    flat = {member.run_id: configuration(member.run) for member in members}
    different = differing_keys(flat.values())
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        groups.setdefault(tuple(str(flat[member.run_id].get(key, "-")) for key in different), []).append(member)
    result = []
    for values, group in groups.items():
        algorithm = str(group[0].run.manifest.algorithm.get("name", "unknown"))
        # An algorithm's name already implies its parts; what is left tells settings of one algorithm apart.
        rest = [
            f"{key.rpartition('.')[2]} {value}"
            for key, value in zip(different, values, strict=True)
            if not key.startswith(("algorithm.name", "algorithm.parts")) and _splits(key, algorithm, members, flat)
        ]
        result.append(Setting(", ".join([algorithm, *rest]), algorithm, tuple(group)))
    return sorted(result, key=lambda setting: setting.label)


def _splits(key: str, algorithm: str, members: list[Member], flat: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether runs of this algorithm differ in `key`."""
    same = [flat[m.run_id].get(key) for m in members if m.run.manifest.algorithm.get("name") == algorithm]
    return len({str(value) for value in same}) > 1


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
