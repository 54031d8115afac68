"""Why a run does not learn, without a fall: the marks, and the causes that they speak for."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.around import fall_seen
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.engine.measured import clip_bounds
from ratioscope.analysis.findings.cause import Family, cause, findings_of
from ratioscope.analysis.findings.course import level_trend
from ratioscope.analysis.findings.fall import finite_values, own_noise
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import level, number, percent
from ratioscope.analysis.runs.relations import relations
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import as_finite

_FEWEST = 3
_CLEAR, _RISES = 4.0, 3.0
"""Standard errors between the means of the first and the last values."""
_LITTLE = 0.25
"""Of the configured learning rate: below it a warm-up has hardly begun."""


def _learning_rate(evidence: RunEvidence) -> "pd.Series[float]":
    table = evidence.summary.steps
    return table["learning_rate"].astype(float).dropna() if "learning_rate" in table else evidence.values["reward"][:0]


@mark(needs=(("steps.learning_rate",),), limit=0.1)
def learning_rate_is_zero(evidence: RunEvidence) -> MarkReading | None:
    """The learning rate is 0 in several steps, not only where a warm-up begins or a schedule ends; share of them."""
    rate = _learning_rate(evidence)
    zero = rate.index[rate == 0]
    if len(rate) < _FEWEST:
        return None
    if len(zero) < _FEWEST:
        return MarkReading(0.0, "")
    steps = tuple(int(step) for step in zero)
    place = (
        f"in steps {steps[0]} to {steps[-1]}" if len(steps) == steps[-1] - steps[0] + 1 else f"in {len(steps)} steps"
    )
    return MarkReading(len(zero) / len(rate), f"{place} nothing moves the weights", steps, ("steps.learning_rate",))


@mark(needs=(("steps.learning_rate",),), limit=0.5)
def warm_up_takes_the_run(evidence: RunEvidence) -> MarkReading | None:
    """The learning rate rises in all steps and stays below the configured one; steps until there, of those planned.

    Of a run that does not say how many are planned all steps count, once it is finished.
    """
    manifest, rate = (evidence.run.manifest if evidence.run else None), _learning_rate(evidence)
    configured = as_finite(manifest.optimiser.get("learning_rate")) if manifest else None
    if manifest is None or configured is None or len(rate) < 4 * _FEWEST:
        return None
    planned = manifest.planned_updates or (len(rate) if manifest.status == "finished" else 0)
    if not planned:
        return None
    moves, last, step = np.diff(rate), float(rate.iloc[-1]), int(rate.index[-1])
    if not ((moves > 0).all() and last < _LITTLE * configured):
        return MarkReading(0.0, "")
    reached = step + (configured - last) / float(np.median(moves))
    of = f" of {planned:,}" if reached <= planned else f", behind the {planned:,} of the run"
    clause = f"at step {step} the learning rate is {percent(last / configured)} of its setting, which it reaches "
    clause += f"at step {reached:.0f}{of}"
    return MarkReading(reached / planned, clause, tuple(map(int, rate.index)), ("steps.learning_rate",))


@mark(needs=(("sequences.reward",), ("steps.eval_accuracy",)), limit=_CLEAR)
def reward_rises_alone(evidence: RunEvidence) -> MarkReading | None:
    """The training reward rises and evaluation accuracy does not go a quarter of the way; standard errors between."""
    reward, accuracy = (finite_values(evidence.summary, key) for key in ("reward", "eval_accuracy"))
    if fall_seen(evidence) is not None or min(len(reward), len(accuracy)) < 4 * _FEWEST:
        return None
    moved, error, said = [], [], []
    for key, values in (("reward", reward), ("eval_accuracy", accuracy)):
        few = len(values) // 4
        first, last = values.head(few), values.tail(few)
        half = float(((evidence.summary.high[key] - evidence.summary.low[key]) / 2).median())
        noise = float(np.nanmax([half / 1.96 if half > 0 else 0.0, np.nan_to_num(own_noise(values))]))
        moved.append(float(last.mean() - first.mean()))
        error.append(noise * sqrt(2 / few))
        said.append((float(first.mean()), float(last.mean())))
    (gain, of_evaluation), (e_reward, e_evaluation) = moved, error
    # What is clear is that they part, which `apart` says.
    if not (gain > _RISES * e_reward and gain > _LEAST_GAIN and of_evaluation < gain / 4):
        return MarkReading(0.0, "")
    apart = (gain - of_evaluation) / float(np.hypot(e_reward, e_evaluation) or np.nan)
    (before, after), (share_before, share_after) = said
    clause = f"the training reward rose from {number(before)} to {number(after)}, and evaluation accuracy did not "
    clause += f"follow ({level(share_before, share=True)}, then {level(share_after, share=True)})"
    return MarkReading(apart, clause, tuple(int(step) for step in accuracy.tail(len(accuracy) // 4).index),
                       ("sequences.reward", "steps.eval_accuracy"))  # fmt: skip


@mark(needs=(("sequences.reward",), ("sequences.environment",)), limit=_CLEAR)
def reward_rises_in_one_environment(evidence: RunEvidence) -> MarkReading | None:
    """From the first quarter of the steps to the last the reward rises in one environment, and not half as much in any
    other; in standard errors of responses."""
    if evidence.run is None:
        return None
    steps = evidence.values.index
    few = len(steps) // 4
    if few < _FEWEST:
        return None
    with relations(evidence.run, tables=(schema.SEQUENCES,)) as connection:
        rows = connection.execute(
            """
            select environment, step > $first as late, count(*) as n, avg(reward) as reward,
                var_samp(reward) / count(*) as variance, avg(n_tokens) as length
            from sequence
            where isfinite(reward) and environment is not null and (step <= $first or step >= $last)
            group by all
            """,
            {"first": int(steps[few - 1]), "last": int(steps[-few])},
        ).df()
    if rows["late"].nunique() < 2:
        return None
    sides = rows.pivot(index="environment", columns="late").dropna()
    if len(sides) < 2:
        return None
    before, after = (sides.xs(side, axis=1, level=1) for side in (False, True))
    gain = after["reward"] - before["reward"]
    most, others = gain.idxmax(), gain.drop(gain.idxmax())
    z = float(gain[most] / sqrt(before["variance"][most] + after["variance"][most]))
    clause = f"the reward of {most} rose from {number(float(before['reward'][most]), digits=2)} to "
    clause += f"{number(float(after['reward'][most]), digits=2)}, its responses went from "
    clause += f"{before['length'][most]:.0f} to {after['length'][most]:.0f} tokens"
    return MarkReading(z if others.max() < gain[most] / 2 else 0.0, clause, (), ("sequences.environment",))


@mark(needs=(("sequences.prompt_id",),), limit=0.5)
def prompts_come_again(evidence: RunEvidence) -> MarkReading | None:
    """In the last quarter of the steps the prompts are ones that came in earlier steps; share of the responses."""
    if evidence.run is None:
        return None
    with relations(evidence.run, tables=(schema.SEQUENCES,)) as connection:
        rows = connection.execute(
            """
            select step, count(*) as n, count(*) filter (step > first) as again
            from (select step, min(step) over (partition by prompt_id) as first from sequence
                  where prompt_id is not null)
            group by step order by step
            """
        ).df()
    if len(rows) < 4 * _FEWEST:
        return None
    last, begin = rows.tail(len(rows) // 4), rows.loc[rows["again"] > rows["n"] / 2, "step"]
    share = float(last["again"].sum() / last["n"].sum())
    clause = f"{percent(share)} of the last responses are of prompts that came before"
    return MarkReading(
        share, f"{clause}, from step {begin.min()} on" if len(begin) else clause, (), ("sequences.prompt_id",)
    )


@mark(needs=(("steps.grad_norm",),), limit=10.0)
def gradients_are_cut_short(evidence: RunEvidence) -> MarkReading | None:
    """Nearly every gradient is many times as long as the norm to which it is cut, and the level stays; the median.

    An optimiser that divides by its own scale, as Adam does, undoes a cut until gradients are as small as its epsilon.
    """
    largest = as_finite(evidence.run.manifest.optimiser.get("max_grad_norm")) if evidence.run else None
    table, trend = evidence.summary.steps, level_trend(evidence.summary)
    if largest is None or not largest > 0 or trend is None:
        return None
    norms = table["grad_norm"].astype(float).dropna()
    cut = norms[norms > largest]
    if len(norms) < 4 * _FEWEST or trend.clear or len(cut) < _NEARLY_ALL * len(norms):
        return MarkReading(0.0, "") if len(norms) >= 4 * _FEWEST else None
    times = float(norms.median()) / largest
    clause = f"max_grad_norm is {number(float(largest))}, and the gradient norm is {number(float(norms.median()))} "
    clause += f"(median), {number(times, digits=2)} × as much: it is clipped in {len(cut)} of {len(norms)} steps"
    return MarkReading(times, clause, tuple(int(step) for step in cut.index), ("steps.grad_norm",))


@mark(needs=(("clipped",),), limit=0.1)
def narrow_clip_takes_much(evidence: RunEvidence) -> MarkReading | None:
    """A clip of single tokens within 2 % of 1 stops many tokens, and the level does not rise; share, the median.

    Bounds as narrow are meant for the ratios of whole responses.
    """
    bounds = clip_bounds(evidence.run, evidence.setup) if evidence.run else None
    trend, share = level_trend(evidence.summary), float(evidence.values["clip_fraction"].median())
    if bounds is None or evidence.setup.level != "token" or trend is None:
        return None
    widest = max(1 - bounds[0], bounds[1] - 1)
    if widest > _NARROW or trend.clear == "rose":
        return MarkReading(0.0, "")
    clause = f"tokens are clipped from {number(widest)} beyond 1 on, {percent(share)} of them (median)"
    return MarkReading(share, clause, (), ("clipped",))


_NARROW = 0.02
"""Of the ratio; a tenth of what is usual for tokens."""
_NEARLY_ALL = 0.9
_LEAST_GAIN = 0.1
"""Of a training reward whose evaluation is asked for as well."""

cause(
    "learning_rate_zero", Family.STALL, "The learning rate is 0", requires=(learning_rate_is_zero,),
    do="Look at the learning rate's schedule: warm-up, number of steps, end.", source="S0 5.2",
)  # fmt: skip
cause(
    "warm_up_too_long", Family.STALL, "Most of the run is warm-up", requires=(warm_up_takes_the_run,),
    do="Shorten the warm-up, and look whether its length counts optimiser steps as the schedule does.",
    reports=("Search-R1 #28", "axolotl #2897"),
)  # fmt: skip
cause(
    "gradients_cut_short", Family.STALL, "Every gradient is clipped far below its norm, and nothing is learned",
    requires=(gradients_are_cut_short,),
    do="Raise max_grad_norm above the usual gradient norm, so that it stops outliers alone.",
    reports=("verifiers #82",),
)  # fmt: skip
cause(
    "clip_too_narrow", Family.STALL, "The clip is far narrower than is usual for tokens, and nothing is learned",
    requires=(narrow_clip_takes_much,),
    do="Widen the clip: for single tokens 0.2 is usual; bounds below 0.01 are meant for whole responses (GSPO).",
    source="GSPO (arXiv 2507.18071), 5.1",
)  # fmt: skip
cause(
    "reward_without_evaluation", Family.STALL, "What the training reward pays for does not show in the evaluation",
    requires=(reward_rises_alone,), supports={reward_rises_in_one_environment: 1.0},
    do="Read responses with a high reward, and score them as the evaluation does.", reports=("OpenRLHF #1263",),
)  # fmt: skip

cause(
    "known_prompts", Family.STALL, "The reward of known prompts rises alone",
    requires=(reward_rises_alone, prompts_come_again),
    do="Take more prompts and fewer epochs; after a restart, look whether the data began again from the first one.",
    reports=("EasyR1 #57", "OpenRLHF #1103"),
)  # fmt: skip


@rule("not_learning", order=255, page="overview", group=None, words="no learning", cause=False)
def run_does_not_learn(evidence: RunEvidence) -> Finding | None:
    """A cause of the family STALL stands: nothing moves the policy, or not towards what is evaluated."""
    found = findings_of(Family.STALL, evidence)
    if not found:
        return None
    return replace(found[0], metric="reward")
