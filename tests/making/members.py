"""Runs of a comparison without files: curves as plain numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import COUNTS, StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format.manifest import Manifest


def member(
    curve: Sequence[float] | Mapping[int, float],
    seed: int | None = 0,
    *,
    algorithm: str = "grpo",
    parts: Mapping[str, str] | None = None,
    name: str = "",
    metric: str = "eval_accuracy",
    tokens: float = 100.0,
    seconds: Sequence[float] | None = None,
    **manifest_fields: Any,
) -> Member:
    """A run whose metric follows the curve: values of the steps 0, 1, ..., or by step.

    Args:
        tokens: of every step.
        seconds: when each step ended; None: not logged.
    """
    known = dict(curve) if isinstance(curve, Mapping) else dict(enumerate(curve))
    index = pd.Index(list(known), name="step", dtype="int64")
    unlogged: dict[str, Any] = dict.fromkeys(COUNTS, 0.0) | dict.fromkeys(CATALOGUE, np.nan)
    values = pd.DataFrame(unlogged | {"n_tokens": tokens, metric: list(known.values())}, index=index)
    steps = pd.DataFrame(index=index)
    if seconds is not None:
        steps["wall_time"] = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.asarray(seconds), unit="s")
    nothing = pd.DataFrame({"step": [], "bin": [], "tokens": []})
    name = name or f"{algorithm}-seed{seed}"
    described = {"name": algorithm, "parts": dict(parts or {})}
    manifest = Manifest(name=name, seed=seed, algorithm=described, **manifest_fields)
    run = Run(Path(name), manifest, {}, status=manifest.live_status())
    return Member(name, run, StepSummary(values, values, values, {}, nothing, steps))


def setting(algorithm: str, ends: Mapping[int, float] | Sequence[float], **more: Any) -> Setting:
    """A setting whose runs are flat at these numbers, by seed."""
    by_seed = dict(ends) if isinstance(ends, Mapping) else dict(enumerate(ends))
    members = [member([end] * 8, seed, algorithm=algorithm, **more) for seed, end in by_seed.items()]
    return Setting(algorithm, algorithm, "on-policy", tuple(members))
