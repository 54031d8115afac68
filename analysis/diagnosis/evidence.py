"""What rules look at: the step summary, the run it came from where there is one, and the limits that hold for it.

Whatever needs the tokens is computed when a rule first asks for it, over the latest steps only: a live run is
diagnosed again whenever it has news.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ratioscope.analysis.engine.measured import MEASURED_TOKENS, measure_engine
from ratioscope.analysis.engine.verdict import EngineFacts, engine_by_step, engine_facts
from ratioscope.analysis.findings.evidence import Evidence
from ratioscope.analysis.findings.facts import (
    ROUNDING_TV,
    Cause,
    DriftLevel,
    Facts,
    facts_of,
    parts_by_step,
    steps_above,
)
from ratioscope.analysis.findings.finding import Finding, Number
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.regime import Regime, regime
from ratioscope.analysis.findings.setup import Setup
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.runs.window import window_of
from ratioscope.analysis.staleness.following import Following, Reference, decoding_distance, following, reference_of
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.what_if.held import measured_setup
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import SAMPLED
from ratioscope.run_format import schema

Series = pd.Series
StepTuple = tuple[int, ...]

LATEST = 20
"""How many of the last steps rules read the tokens of."""
_LEAST_STEPS = 3


@dataclass(frozen=True)
class RunEvidence(Evidence):
    """Everything that rules know of a run."""

    summary: StepSummary
    run: Run | None = None
    limits: Limits = Limits()
    remarks: Sequence[Finding] = ()
    """Of the linter."""

    @property
    def values(self) -> pd.DataFrame:
        return self.summary.values

    @property
    def is_live(self) -> bool:
        """Whether the run may still be stopped."""
        return self.run is not None and self.run.status == "running"

    @cached_property
    def setup(self) -> Setup:
        """What was run, as far as the manifest says it, and what the log shows of its gate."""
        return measured_setup(self.run)

    @property
    def sampled(self) -> str:
        """The column that ratios divide by."""
        return SAMPLED[0 if self.facts.engine_in_ratios else 1]

    @property
    def weighted(self) -> bool:
        """Whether the loss multiplies by an unbounded ratio; where the log does not say, it is assumed to."""
        return self.setup.weight is None or (self.setup.weight.unbounded and not self.setup.bounded)

    def above(self, metric: str, limit: float) -> "Series[float]":
        """The series where it exceeds the limit beyond its own noise."""
        return steps_above(self.summary, metric, limit)

    def below(self, metric: str, limit: float) -> "Series[float]":
        """The series where it is below the limit beyond its own noise, or can only be lower than it says."""
        values, high = self.values[metric], self.summary.high[metric]
        return values[(values < limit) & ((high < limit) | high.isna() | self.summary.unreliable(metric))]

    def linted(self, check: str) -> str:
        """What a check of the linter says of a problem, which explains what it would be taken for; "" for none."""
        return next((remark.sentence for remark in self.remarks if remark.rule == check and remark.is_problem), "")

    def often(self, steps: "Series[float]") -> bool:
        """Whether so many steps show it that chance cannot: three of them, and the share of all that is set."""
        return len(steps) >= self.least(len(self.values))

    def least(self, steps: int) -> float:
        """How many of so many steps have to show what single ones show by chance."""
        return max(_LEAST_STEPS, self.limits.step_share * steps)

    @property
    def first_of_latest(self) -> int:
        return max(self.summary.last_step - LATEST + 1, 0)

    @cached_property
    def facts(self) -> Facts:
        """What is so about the run, as its pages say it."""
        return facts_of(self.summary, self.limits)

    @cached_property
    def parts(self) -> "dict[Cause, Series[float]]":
        """The parts of the path by step."""
        return parts_by_step(self.values, fresh=self.facts.fresh, agrees=bool(self.facts.n_agreeing))

    @cached_property
    def engine(self) -> EngineFacts:
        """Whether the sampler's engine hurts. Tokens are read where it is more than rounding, or known on few steps."""
        tv, _ = engine_by_step(self.summary)
        measured, n_tokens = None, self.values["n_tokens"]
        if self.run is not None and len(n_tokens) and (len(tv) < _LEAST_STEPS or tv.mean() > ROUNDING_TV):
            log = self.log
            if log.has("logp_behavior") and (log.has_versions or log.has("logp_behavior_train")):
                measured = measure_engine(self.run, *window_of(self.run, n_tokens, (None, None), MEASURED_TOKENS).steps)
        return engine_facts(self.summary, self.facts, measured, self.setup)

    @cached_property
    def regime(self) -> Regime:
        """The run's place between bias and variance."""
        return regime(self.facts, self.setup)

    def over(self, level: DriftLevel) -> "Series[float]":
        """The series of a distance in the steps that are above its limit."""
        return self.values[level.key].loc[list(level.over)]

    @cached_property
    def following(self) -> list[Following]:
        """The distances before the update, against what their causes explain."""
        decoding = decoding_distance(self.run.manifest.sampler) if self.run else 0.0
        return following(self.summary, self.facts, decoding)

    @cached_property
    def reached(self) -> pd.DataFrame:
        """Ratios that go further in the direction of the advantage: the largest above 1 where A > 0, the smallest below
        1 where A < 0; of tokens without a logged advantage both. Columns: high, low (ratios), by step; empty without
        tokens."""
        if self.run is None:
            return pd.DataFrame(columns=["high", "low"])
        (found,) = by_block("reached", self.run, _reached)
        return found.set_index("step")

    @cached_property
    def reference(self) -> Reference | None:
        """Sampler and policy of the latest steps against the reference; None where it is not logged."""
        if self.run is None or not self.values["kl_to_reference"].tail(LATEST).notna().any():
            return None
        version = self.summary.steps.get("policy_version", pd.Series(dtype=float)).dropna()
        since = float(version.iloc[0]) if len(version) else float(self.values.index[0])
        return reference_of(self.run, self.first_of_latest, since)

    @cached_property
    def equal_rewards(self) -> pd.DataFrame | None:
        """Lowest and highest reward of every prompt group; None without a run, or where no reward is logged.

        Columns: step, group_id, lowest, highest, n (responses), cut (share of these at the length limit, if known).
        """
        if self.run is None:
            return None
        (found,) = by_block("rewards", self.run, _rewards)
        return found if len(found) else None

    def number(self, metric: str, step: int, which: str) -> Number:
        """A step's value as a finding quotes it; of a total variation that its tail has made impossible, bounded."""
        metric = self._possible(metric, float(self.values[metric].loc[step]))
        return Number(
            label=f"{CATALOGUE[metric].title}, {which} (step {step})",
            value=float(self.values[metric].loc[step]),
            low=float(self.summary.low[metric].loc[step]),
            high=float(self.summary.high[metric].loc[step]),
            note=self.summary.note(step, metric),
            key=metric,
        )

    def median(self, metric: str, steps: "pd.Index[int]") -> Number:
        """The median over the steps concerned; steps are not independent, so there is no interval."""
        metric = self._possible(metric, float(self.values[metric].loc[steps].median()))
        value = float(self.values[metric].loc[steps].median())
        return Number(f"{CATALOGUE[metric].title}, median of these steps", value, key=metric)

    def _possible(self, metric: str, value: float) -> str:
        bounded = f"{metric}_bounded"
        return bounded if value > 1 and bounded in self.values else metric

    def latest(self, metric: str) -> Number:
        """The last value there is."""
        return self.number(metric, step_of(self.values[metric].last_valid_index()), "latest")


def _reached(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.TOKENS,)) as connection:
        found = connection.execute(
            """
            select step, exp(max(log_rho) filter (coalesce(advantage > 0, true))) as high,
                exp(min(log_rho) filter (coalesce(advantage < 0, true))) as low
            from usable group by step order by step
            """
        ).df()
    return (found,)


def _rewards(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            """
            select step, group_id, min(reward)::double as lowest, max(reward)::double as highest, count(*) as n,
                avg(coalesce(truncated, finish_reason = 'length')::int) as cut
            from sequence where reward is not null and isfinite(reward) and dropped is null
            group by all order by all
            """
        ).df()
    return (found,)


def share_text(steps: "Series[float]", evidence: RunEvidence) -> str:
    """How many of how many steps, for sentences."""
    return f"in {len(steps)} of {len(evidence.values)} steps"


def steps_of(series: "Series[float]") -> StepTuple:
    return tuple(int(step) for step in series.index)


def step_of(label: object) -> int:
    """A label of the step index; pandas types it as anything hashable."""
    assert isinstance(label, int | np.integer), label
    return int(label)
