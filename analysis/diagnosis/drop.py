"""A fall that has begun, said at once: later values tell whether it stays, and a run can be stopped before; and one of
a part of the reward, beside an accuracy that holds."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.diagnosis.around import CLEAR, fall_seen, noise_of_one
from ratioscope.analysis.diagnosis.collapse import causes_in_words, metric_of, remedy_of, signs_of
from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.cause import Family, rivals
from ratioscope.analysis.findings.course import level_trend
from ratioscope.analysis.findings.drop import Drop, as_fall, drop_of, reward_drop_of
from ratioscope.analysis.findings.fall import fall_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import capital, half_width, level, number, percent
from ratioscope.analysis.findings.watched import finite_parts, reward_parts
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format import schema

_MOST = 0.7
"""Of what the reward lost: a part that lost so much of it is named."""
_FIT = 0.99
"""R² of the reward on its parts from which they make it up."""


@rule("reward_drop", order=108, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_is_dropping(evidence: RunEvidence) -> Finding | None:
    """The level is below its best by the share that counts as a fall, and no fall that lasts is made out yet."""
    drop, fall = drop_of(evidence.summary, evidence.limits), fall_seen(evidence)
    if drop is None or not drop.is_low or fall is None or fall_of(evidence.summary, evidence.limits) is not None:
        return None
    if fall.fell_again and not evidence.is_live:  # it is the last of several, and said with them
        return None
    title, share = CATALOGUE[drop.metric].title, CATALOGUE[drop.metric].share
    words = drop.words
    if evidence.is_live and not drop.lasting:
        sentence = f"Dropping now: {words}."
    else:
        sentence = f"{capital(drop.fell)}, {'and still low' if evidence.is_live else 'where the run ends'}."
    noise = f", and each value is {half_width(drop.noise, share=share)}" if drop.noise else ""
    back = f"step {drop.good_step}"
    causes = rivals(Family.FALL, evidence)
    origin = f"{causes_in_words(causes)} " if causes else ""
    do = f"Consider stopping, and go back to {back}." if evidence.is_live else f"Go back to {back}."
    if causes:
        do = f"{do} {remedy_of(evidence, causes[0][0])}"
    return Finding(
        severity=Severity.WARNING,
        sentence=sentence,
        metric=drop.metric,
        steps=drop.steps,
        numbers=(
            Number(f"{title}, best before", drop.best),
            Number(f"{title}, before the drop (step {drop.good_step})", drop.good),
            Number(f"{title}, lowest since (step {drop.lowest_step})", drop.lowest),
            evidence.latest(drop.metric),
        ),
        cause=metric_of(causes[0][0]) if causes else "",
        of_cause=causes[0][0].cause.name if causes else "",
        sure=signs_of(evidence, causes) if causes else "",
        why=f"{origin}{drop.n_low} of {len(drop.steps)} values since step {drop.steps[0]} are below "
        f"{level(drop.limit, share=share)}, where a fall from {level(drop.best, share=share)} begins{noise}.",
        do=do,
        source="S3 figures 3 and 9; S1 3",
        limit=drop.limit,
    )


@rule("reward_part_drop", order=113, page="overview", group=None, words="drop of a part of the reward", cause=False)
def reward_part_has_dropped(evidence: RunEvidence) -> Finding | None:
    """The training reward is low by the share that counts as a fall, and one of its parts has lost most of that.

    A reward that moves with its prompts moves in all of its parts: beside an accuracy that holds it has to lose more.
    """
    drop = reward_drop_of(evidence.summary, evidence.limits.reward_fall)
    if evidence.run is None or drop is None or not (drop.is_low and drop.lasting) or fall_seen(evidence) is not None:
        return None
    best = as_fall(evidence.summary, drop).best_step
    lost = _lost_by_part(evidence.run, drop, best)
    if lost is None:
        return None
    name = str(lost["lost"].drop("reward").idxmax())
    share = float(lost["lost"][name] / lost["lost"]["reward"])
    if not (share > _MOST and lost["lost"][name] > CLEAR * lost["error"][name]):
        return None
    before, after = ({key: number(float(value), digits=2) for key, value in lost[when].items()}
                     for when in ("before", "after"))  # fmt: skip
    others = [f"{key} went from {before[key]} to {after[key]}" for key in lost.index if key not in (name, "reward")]
    trend = level_trend(evidence.summary)
    evaluated = trend is not None and trend.metric == "eval_accuracy"
    told = " Evaluation accuracy shows no such fall." if evaluated else ""
    low = evidence.values["reward"].loc[list(drop.steps)]
    return Finding(
        severity=Severity.NOTICE if trend is not None and evaluated and trend.clear == "rose" else Severity.WARNING,
        sentence=f"Training reward fell {before['reward']} → {after['reward']} after step {best}: {name} fell "
        f"{before[name]} → {after[name]}.",
        metric="reward",
        steps=steps_of(low),
        numbers=(Number("training reward, best before", drop.best), evidence.latest("reward")),
        why=f"{name} makes up {percent(min(share, 1.0))} of the loss; {'; '.join(others)}.{told}",
        do=f"Compare responses of steps {best} and {drop.last_step} by what {name} scores.",
        source="S3 figures 3 and 9; S1 3",
        limit=drop.limit,
    )


def weights_of_parts(rows: pd.DataFrame, names: Sequence[str]) -> NDArray[np.float64] | None:
    """The weights with which parts make up the reward of responses; None where they do not. A missing part counts 0."""
    centred = rows[[*names]].fillna(0.0)
    centred -= centred.mean()
    reward = rows["reward"] - rows["reward"].mean()
    weights, *_ = np.linalg.lstsq(centred.to_numpy(), reward.to_numpy(), rcond=None)
    return None if float((reward - centred @ weights).var()) > (1 - _FIT) * float(reward.var()) else weights


def _lost_by_part(run: Run, drop: Drop, best: int) -> pd.DataFrame | None:
    """Of the reward and each of its parts, with its weight: mean up to the best level and since the drop, the
    difference, and its error; at the mixture of environments since the drop.

    None where the parts do not make up the reward, or where the mixture made most of the drop.
    """
    names = reward_parts(run)
    if not names:
        return None
    with relations(run, tables=(schema.SEQUENCES,)) as connection:
        rows = connection.execute(
            f"select step, coalesce(environment, '') as environment, reward::double as reward, {finite_parts(names)} "
            "from sequence where isfinite(reward) and dropped is null order by step"
        ).df()
    rows[[*names]] = rows[[*names]].fillna(0.0)  # a part that is not of this response
    if (weights := weights_of_parts(rows, names)) is None:
        return None
    rows[[*names]] *= weights
    keys = ["reward", *names]
    well = rows[(rows["step"] > best - drop.window) & (rows["step"] <= best)]
    low = rows[rows["step"].isin(drop.steps)]
    of = low["environment"].value_counts(normalize=True)
    before, after = (each.groupby("environment")[keys].mean().reindex(of.index) for each in (well, low))
    if before.isna().any(axis=None):  # an environment that is new
        return None
    found = pd.DataFrame({"before": of @ before, "after": of @ after})
    found["lost"] = found["before"] - found["after"]
    if found["lost"]["reward"] < (float(well["reward"].mean()) - float(low["reward"].mean())) / 2:
        return None
    steps = rows.groupby("step")[keys].mean()
    spread = pd.Series({key: noise_of_one(steps[key], drop.window) for key in keys})
    return found.assign(error=spread * sqrt(1 / drop.window + 1 / len(drop.steps)))
