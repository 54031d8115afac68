"""What the engine's part does to the tokens of some steps: its size, what it clips, its variance, its bias.

found = measure(run, first, last)
found.tv, found.bias, found.skew_positive

Only tokens count on which it is known: recomputed, or sampled by the policy's own version (`tokens.sql`).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.setup import Setup, setup_of
from ratioscope.analysis.runs.database import filled, query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval, cluster_interval, cluster_intervals, sums
from ratioscope.catalogue import THRESHOLDS
from ratioscope.rules.parameters import Judged
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import as_finite


@dataclass(frozen=True)
class Measured:
    """Over the tokens on which the engine's part is known; NaN where a column that it takes is not logged."""

    n_tokens: int
    n_steps: int
    tv: float
    """Total variation in the bounded form: mean (1 - e^x)+, x the log-ratio of trainer and sampler."""
    mean_ratio: float
    equal: float
    """Share of tokens to which both engines give the very same log-probability."""
    chi2: float
    """Variance of the engine's ratio alone."""
    outside: float
    """Share of tokens that the engine's ratio alone puts beyond the bounds of the clip."""
    clipped: float
    by_engine: float
    """Share of the clipped tokens that the clip would have kept, were the engines the same."""
    bias: float
    """Σ A(e^x - 1) / Σ|A|: what the surrogate gains from the sampler's engine to the trainer's."""
    bias_interval: Interval
    noise: float
    """Σ|A(e^x - 1)| / Σ|A|: the part of the gradient's weight that is the difference of engines, signs aside."""
    gain: float
    """Σ A(ρ_new - ρ) / Σ|A|: what the update gains of the same surrogate."""
    skew_positive: float
    skew_negative: float
    """What denominators of the trainer's engine do to the correction -(r - 1)A of tokens with A > 0 and with A < 0, as
    a share of all correction by the sampler's: Σ m(C_train - C_sampler) / Σ m|C_sampler|."""
    by_step: pd.DataFrame
    """n, tv and the lower end of its interval by step."""


MEASURED_TOKENS = 200_000
"""Of a whole run the latest steps with so many tokens are looked at; of chosen steps all are."""


def measure_engine(run: Run, first: int | None = None, last: int | None = None) -> Measured | None:
    """None where no token has a known engine's part.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    bounds = clip_bounds(run, setup_of(run.manifest))
    low, high = bounds or (1 - THRESHOLDS["epsilon"].value, 1 + THRESHOLDS["epsilon"].value)
    with relations(run, first, last, tables=(schema.SEQUENCES, schema.TOKENS)) as connection:
        connection.execute(query("engine/tokens"))
        groups = connection.execute(filled("engine/sums", low=f"{low!r}", high=f"{high!r}")).df()
    return _of(groups, clip_is_known=bounds is not None) if len(groups) else None


def clip_bounds(run: Run, setup: Setup) -> tuple[float, float] | None:
    """The bounds of a clip on the ratio to the sampler; None where the manifest says no such clip."""
    if setup.gate is None or not setup.gate.stops or setup.gate.judged is not Judged.RATIO:
        return None
    found = (as_finite(run.manifest.parameters.get(name)) for name in ("epsilon_low", "epsilon_high"))
    numbers = [value for value in found if value is not None and 0 < value < 1e6]
    return (1 - numbers[0], 1 + numbers[1]) if len(numbers) == 2 else None


def _of(groups: pd.DataFrame, *, clip_is_known: bool) -> Measured:
    def part(name: str, over: str) -> float:
        return _share(groups[name].sum(min_count=1), groups[over].sum())

    n, shortfall = (groups[name].to_numpy(float) for name in ("n", "shortfall"))
    steps, starts = np.unique(groups["step"].to_numpy(dtype=np.int64), return_index=True)
    low, _ = cluster_intervals(shortfall, n, starts, lowest=0.0)
    of_step = sums(n, starts)
    by_step = pd.DataFrame({"n": of_step, "tv": sums(shortfall, starts) / of_step, "low": low}, index=steps)
    return Measured(
        n_tokens=int(n.sum()),
        n_steps=len(by_step),
        tv=part("shortfall", "n"),
        mean_ratio=1 + part("apart", "n"),
        equal=part("equal", "n"),
        chi2=part("square", "n"),
        outside=part("outside", "n"),
        clipped=part("clipped", "n"),
        by_engine=part("by_engine", "clipped") if clip_is_known else np.nan,
        bias=part("bias", "weight"),
        bias_interval=_interval(groups, "bias", "weight"),
        noise=part("noise", "weight"),
        gain=part("gain", "weight"),
        skew_positive=part("skew_positive", "correction"),
        skew_negative=part("skew_negative", "correction"),
        by_step=by_step,
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if np.isfinite(whole) and whole > 0 else np.nan


def _interval(groups: pd.DataFrame, name: str, over: str) -> Interval:
    numerator, denominator = (groups[column].to_numpy(float) for column in (name, over))
    used = denominator > 0
    return cluster_interval(numerator[used], denominator[used]) if used.sum() > 1 else NO_INTERVAL
