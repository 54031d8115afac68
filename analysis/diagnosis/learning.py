"""Whether there is anything left to learn from: zero-signal groups and entropy (S4 5.4.2, S3 B.3)."""

from math import isnan

from ratioscope.analysis.diagnosis.evidence import Evidence, share_text, step_of, steps_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import percent

_WINDOW = 10
"""Steps over which shares of a few groups are averaged, all there are in a shorter run: one step's have too coarse a
grain."""
_FEWEST = 5


def groups_have_no_signal(evidence: Evidence) -> Finding | None:
    """Most prompt groups have the same reward for every response, on average over ten steps."""
    window = max(_FEWEST, min(_WINDOW, len(evidence.values) - 2))  # three of these are what `often` asks for
    metric, limit = "zero_advantage_group_fraction", evidence.limits.zero_signal
    smooth = evidence.values[metric].rolling(window).mean()
    steps = smooth[smooth > limit]
    if not evidence.often(steps):
        return None
    reward = evidence.values["reward"].loc[steps.index].mean()
    before = evidence.values["reward"].head(_WINDOW).mean()
    if isnan(reward) or isnan(before):
        why, do = "The reward is not logged: the prompts may be too easy, or nearly every response wrong.", _EITHER
    else:
        why = f"The mean reward is {reward:.2g} there against {before:.2g} at the start: "
        why += "the prompts have become too easy." if reward > before else "nearly every response is wrong."
        do = _TOO_EASY if reward > before else _TOO_HARD
    return Finding(
        rule="zero_signal",
        severity=Severity.WARNING,
        sentence=(
            f"Over {window} steps up to {percent(smooth.max())} of the prompt groups had zero signal, every response "
            f"with the same reward; more than {percent(limit)} {share_text(steps, evidence)}."
        ),
        metric=metric,
        steps=steps_of(steps),
        numbers=(
            Number("mean of these steps", float(evidence.values[metric].loc[steps.index].mean())),
            evidence.median("effective_token_fraction", steps.index),
            evidence.latest(metric),
        ),
        why=why,
        do=do,
        source="S4 5.4.2 (DAPO)",
        limit=limit,
    )


_TOO_EASY = "Harder prompts, or dynamic sampling, which samples again until a group has a signal."
_TOO_HARD = (
    "Easier prompts, a less sparse reward, or more responses per prompt; first check whether the policy collapsed."
)
_EITHER = "Log the reward, which tells these apart. Dynamic sampling samples again until a group has a signal."


def entropy_has_collapsed(evidence: Evidence) -> Finding | None:
    """Entropy below a share of what it was at the start, and still so at the end."""
    entropy = evidence.values["entropy"].dropna()
    if len(entropy) < 2 * _WINDOW:
        return None
    start = float(entropy.head(_WINDOW).median())
    limit = evidence.limits.entropy_share * start
    smooth = entropy.rolling(_WINDOW, min_periods=1).median()
    low = entropy[smooth < limit]
    if not len(low) or smooth.iloc[-1] >= limit:
        return None
    first = step_of(low.index[0])
    level = evidence.values["reward"]
    gain = level.tail(_WINDOW).mean() - level.head(_WINDOW).mean()
    better = gain > 0
    return Finding(
        rule="entropy_collapse",
        severity=Severity.NOTICE if better else Severity.WARNING,
        sentence=f"Entropy has fallen from {start:.2g} to {smooth.iloc[-1]:.2g} nats, below "
        f"{percent(evidence.limits.entropy_share)} of its start since step {first}.",
        metric="entropy",
        steps=steps_of(low),
        numbers=(Number("median of the first ten steps", start), evidence.latest("entropy")),
        why=(
            "The policy has become nearly deterministic while its reward rose: it cannot learn what it no longer "
            "samples."
        )
        if better
        else f"The policy has become nearly deterministic{'' if isnan(gain) else ' without a better reward'}: it "
        "repeats itself and no longer explores.",
        do=(
            "If learning stalls: raise the upper clip bound (clip-higher), add an entropy bonus or a KL penalty, or "
            "raise the temperature and log the log-probs at that temperature."
        ),
        source="S4 5.4.2 (DAPO, decoupled clip); S3 B.3",
        limit=limit,
    )
