"""A training reward that fell with a change of the sampling temperature, where accuracy may hold: said before it has
lost as much as prompts can take."""

from math import sqrt

import pandas as pd

from ratioscope.analysis.diagnosis.around import CLEAR, fall_seen, noise_of_one
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.fallen_temperature import ChangedTemperature, reward_with_temperature
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.course import level_trend
from ratioscope.analysis.findings.fall import finite_values, level_of, noise_of_mean
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import level, number


@rule(
    "reward_with_temperature", order=116, page="overview", group=None,
    words="fall of the reward with the temperature", cause=False,
)  # fmt: skip
def reward_fell_with_temperature(evidence: RunEvidence) -> Finding | None:
    """The training reward fell, at once and by the share that counts as a fall, where the temperature was changed.

    Prompts move a reward, which has to lose more beside an accuracy that holds; a setting that was changed tells why.
    """
    changed = reward_with_temperature(evidence)
    if changed is None or fall_seen(evidence) is not None:
        return None
    limit = changed.before - evidence.limits.reward_fall * abs(changed.before)
    if not changed.after < limit:
        return None
    trend = level_trend(evidence.summary)
    rises = trend is not None and trend.metric == "eval_accuracy" and trend.clear == "rose"
    before, after = number(changed.before, digits=2), number(changed.after, digits=2)
    told = (
        f"{before} is the mean of steps {changed.first}–{changed.step - 1}, {after} that of steps {changed.low[0]}–"
        f"{changed.low[-1]}.",
        _entropy(evidence, changed), _accuracy(evidence, changed),
    )  # fmt: skip
    return Finding(
        severity=Severity.NOTICE if rises else Severity.WARNING,
        sentence=f"Training reward fell {before} → {after} in step {changed.step}, where {changed.words}.",
        metric="reward",
        steps=changed.low,
        numbers=(
            Number("training reward before", changed.before), Number("training reward since", changed.after),
            Number("temperature before", changed.was), Number("temperature since", changed.now),
        ),
        why=" ".join(filter(None, told)),
        do=f"Take the temperature back to {number(changed.was)}, if it was not to change; if it was, compare rewards "
        f"from step {changed.step} on with each other alone.",
        source="chosen here",
        limit=limit,
    )  # fmt: skip


def _entropy(evidence: RunEvidence, changed: ChangedTemperature) -> str:
    """What entropy did in the same step, beyond its noise; a sentence, or none."""
    entropy = finite_values(evidence.summary, "entropy")
    before, after = entropy.loc[changed.first : changed.step - 1], entropy.reindex(changed.low).dropna()
    few = min(len(before), len(after))
    if few < 2:
        return ""
    moved = float(after.mean() - before.mean())
    noise = noise_of_one(pd.concat([before, after]), few)
    if not abs(moved) > CLEAR * noise * sqrt(1 / len(before) + 1 / len(after)):
        return ""
    verb = "rose" if moved > 0 else "fell"
    return f"Entropy {verb} from {number(float(before.mean()), digits=2)} to {number(float(after.mean()), digits=2)}."


def _accuracy(evidence: RunEvidence, changed: ChangedTemperature) -> str:
    """Whether evaluation accuracy fell, too, beyond its noise; a sentence, or none."""
    accuracy = level_of(evidence.summary, "eval_accuracy", 1)
    before, after = accuracy.loc[changed.first : changed.step - 1], accuracy.reindex(changed.low).dropna()
    if min(len(before), len(after)) < 2:
        return ""
    noise = noise_of_mean(evidence.summary, "eval_accuracy") * sqrt(1 / len(before) + 1 / len(after))
    ends = " to ".join(level(float(each.mean()), share=True) for each in (before, after))
    if float(after.mean()) < float(before.mean()) - noise:
        return f"Evaluation accuracy fell from {ends}, too."
    return f"Evaluation accuracy shows no such fall: {ends}."
