"""Whether there is anything left to learn from: zero-signal groups and entropy (S4 5.4.2, S3 B.3)."""

from math import isnan

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.around import fall_seen
from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.catalogue import CATALOGUE

_WINDOW = 10
"""Steps over which shares of a few groups are averaged, half of a shorter run: those of one step have too coarse a
grain."""
_FEWEST = 5


@rule("zero_signal", order=250, page="clipping", group=Group.SIGNAL, words="groups without a signal", cause=False)
def groups_have_no_signal(evidence: RunEvidence) -> Finding | None:
    """Most prompt groups have no advantage other than 0, on average over ten steps; a notice where all are right.

    Responses that are each a group of their own are no groups.
    """
    n = len(evidence.values)
    window = max(_FEWEST, min(_WINDOW, max(_FEWEST + 1, n // 2), n - 2))  # three of these are what `often` asks for
    metric, limit = "zero_advantage_group_fraction", evidence.limits.zero_signal
    of_step, by_rewards = evidence.values[metric], False
    if of_step.isna().all() and (equal := _share_of_equal(evidence)) is not None:
        of_step, by_rewards = equal, True
    smooth = of_step.rolling(window).mean()
    if not evidence.often(smooth[smooth > limit]):
        return None
    # What is averaged says whether it lasts; single steps are counted by their own share.
    steps = of_step[of_step > limit]
    if evidence.equal_rewards is not None and (evidence.equal_rewards["n"] == 1).mean() > _CLEARLY:
        return None  # nothing is compared: `credit` names that
    why, do, too_easy = _whose_fault(evidence, steps)
    return Finding(
        severity=Severity.NOTICE if too_easy else Severity.WARNING,  # a run that has learned its task is not ill
        sentence=f"Up to {percent(smooth.max())} of the prompt groups "
        + ("have one reward for all responses" if by_rewards else "gave no gradient: every advantage was 0")
        + f" (mean of {window} steps).",
        metric="reward" if by_rewards else metric,
        steps=steps_of(steps),
        numbers=(
            Number("mean of these steps", float(steps.mean())),
            evidence.median("effective_token_fraction", steps.index),
            evidence.latest("reward" if by_rewards else metric),
        ),
        why=why,
        do=do,
        source="S4 5.4.2 (DAPO)",
        limit=limit,
    )


def _share_of_equal(evidence: RunEvidence) -> "pd.Series[float] | None":
    """Where no advantage is logged: the share of each step's groups whose responses all earned the same."""
    rewards = evidence.equal_rewards
    if rewards is None or not (several := rewards[rewards["n"] > 1])["n"].any():
        return None
    equal = (several["lowest"] == several["highest"]).astype(float)
    return equal.groupby(several["step"]).mean().reindex(evidence.values.index)


_TOO_HARD = "Take easier prompts, or more responses per prompt."
_FEWEST_GROUPS = 10
_CLEARLY = 0.7
"""Of the groups without a signal: so many have the same cause."""
_HALF, _SOME = 0.5, 0.1
"""Shares of the groups of a step with two rewards at least, and of groups with another reward than the usual one."""


def _whose_fault(evidence: RunEvidence, steps: "pd.Series[float]") -> tuple[str, str, bool]:
    """Why there is no signal, what to do, and whether the task is learned: by the rewards of the groups without one."""
    rewards, setup = evidence.equal_rewards, evidence.setup
    # Of a data set nothing is sampled again, and who samples again already has no more of it to gain.
    samples_again = not setup.offline and setup.selection != "mixed_groups"
    again = " Dynamic sampling samples again until a group has a signal." if samples_again else ""
    if rewards is None:
        return (
            "Rewards are not logged, so whether responses of a group earn the same is unknown.",
            f"Log the reward of each response.{again}",
            False,
        )
    found = rewards[rewards["step"].isin(steps.index)]
    groups, equal = len(found), found[found["lowest"] == found["highest"]]
    if len(equal) < evidence.limits.zero_signal / 2 * groups:
        return (
            f"The rewards differ in {percent(1 - len(equal) / groups)} of the groups of these steps, so equal rewards "
            "do not explain advantages of 0.",
            "Compare the logged advantages with the rewards of their groups.",
            False,
        )
    best, least = rewards["highest"].max(), rewards["lowest"].min()
    easy, hard = (equal["lowest"] >= best).mean(), (equal["highest"] <= least).mean()
    shares = f"Of the groups with equal rewards {percent(easy)} have the highest reward and {percent(hard)} the lowest"
    if best == least or len(equal) < _FEWEST_GROUPS:
        same = f"Every response of these groups has the same reward ({number(float(equal['lowest'].mean()))})."
        return same, again.strip() or "Look at which responses earn another reward.", False
    if _one_reward_a_step(found):
        return (
            "All responses of a step have one reward, which changes from step to step: it is not one of each response.",
            "Look at what the reward function returns, and for whom: one value a response is needed.",
            False,
        )
    if (since := _one_reward_a_group_since(rewards)) is not None:
        return (
            f"From step {since} on each group has one reward, high or low; before, rewards differ within most groups.",
            f"Look at what the reward function returns since step {since}: one value a response is needed, not one a "
            "prompt.",
            False,
        )
    if easy > _CLEARLY:
        return f"{shares}: these prompts are too easy now.", f"Take harder prompts.{again}", True
    if hard > _CLEARLY:
        fall = fall_seen(evidence)
        if fall is not None and (steps.index >= fall.found).mean() > _CLEARLY:
            return f"{shares}, nearly all since the fall at step {fall.found}.", "Undo the fall first.", False
        if (cut := float(equal["cut"].mean())) > _CLEARLY:
            said = f"{shares}; {percent(cut)} of the responses of all these groups are cut off at the length limit."
            return said, "Raise the length limit first: what is cut off earns least, however easy its prompt is.", False
        return f"{shares}: these prompts are too hard.", _TOO_HARD, False
    return f"{shares}: some prompts are too easy, others too hard.", f"Take prompts in between.{again}", False


def _one_reward_a_group_since(groups: pd.DataFrame) -> int | None:
    """The step from which on the responses of every group have one reward, of several, where at once before most groups
    have two."""
    differ = (groups["lowest"] < groups["highest"]).groupby(groups["step"]).mean()
    before = differ.loc[: differ.index[differ > 0].max()] if differ.any() else differ.head(0)
    since = groups[~groups["step"].isin(before.index)]
    if len(before) < _FEWEST or since["step"].nunique() < _FEWEST or len(since) < 2 * _FEWEST_GROUPS:
        return None
    sudden = before.tail(_FEWEST).min() >= _HALF
    several = since["lowest"].value_counts(normalize=True).max() <= 1 - _SOME
    return int(since["step"].min()) if sudden and several else None


def _one_reward_a_step(groups: pd.DataFrame) -> bool:
    """Whether no step has two rewards, in more groups beside each step's first than chance would do that to."""
    ends = groups.groupby("step").agg(lowest=("lowest", "min"), highest=("highest", "max"))
    return bool((ends["lowest"] == ends["highest"]).all()) and len(groups) - len(ends) >= _FEWEST_GROUPS


@rule("entropy_collapse", order=260, page="overview", group=Group.ENTROPY, cause=False)
def entropy_has_collapsed(evidence: RunEvidence) -> Finding | None:
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
    gain, noise = _gain(evidence.values["reward"])
    better = gain > noise
    return Finding(
        severity=Severity.NOTICE if better else Severity.WARNING,
        sentence=f"Entropy fell {start:.2g} → {smooth.iloc[-1]:.2g} nats, below "
        f"{percent(evidence.limits.entropy_share)} of its start since step {first}.",
        metric="entropy",
        steps=steps_of(low),
        numbers=(Number("median of the first ten steps", start), evidence.latest("entropy")),
        why=(
            "The policy has become more deterministic while its reward rose: it cannot learn what it no longer samples."
        )
        if better
        else f"The policy has become more deterministic{'' if isnan(gain) else ' without a better reward'}: "
        "it explores less.",
        do="If learning stalls: "
        + ("raise the upper clip bound (clip-higher), or " if evidence.setup.has_upper_bound else "")
        + "add an entropy bonus or a KL penalty."
        + ("" if evidence.setup.offline else " Or raise the temperature, and log the log-probs at that temperature."),
        source="S4 5.4.2 (DAPO, decoupled clip); S3 B.3",
        limit=limit,
    )


_FAR = 2.0
"""Nats per token from the reference that no healthy run comes to: 0.7 is the most of those that learn their task."""
_GROWN = 1.5


@rule("far_from_reference", order=265, page="overview", group=None, words="far from the reference", cause=False)
def policy_is_far_from_reference(evidence: RunEvidence) -> Finding | None:
    """KL to the reference, or to the initial policy, is large and grows, while staleness stays below its limit.

    Where something fell, the finding of the fall says it.
    """
    if fall_seen(evidence) is not None:
        return None
    known = (evidence.values[key].dropna() for key in ("kl_to_reference", "kl_to_initial"))
    kl = next((series for series in known if len(series) >= 2 * _WINDOW), None)
    level = evidence.facts.staleness
    if kl is None or not level.n_known or level.over:
        return None
    reached, middle = float(kl.tail(_FEWEST).median()), float(kl.iloc[len(kl) // 3 : -len(kl) // 3].median())
    if reached < _FAR or reached < _GROWN * middle:
        return None
    unseen = not evidence.values["eval_accuracy"].notna().any()
    return Finding(
        severity=Severity.NOTICE,
        sentence=f"{CATALOGUE[str(kl.name)].label} grew to {number(reached, digits=2)} nats per token, while staleness "
        f"is {number(level.mean, digits=2)}.",
        metric=str(kl.name),
        steps=steps_of(kl[kl > _FAR]),
        numbers=(evidence.latest(str(kl.name)),),
        why="Ratios compare the policy with its sampler, and cannot show how far both have gone from the reference. "
        + (
            "Evaluation is not logged, so over-optimisation of the reward is open."
            if unseen
            else "Evaluation accuracy has not fallen so far."
        ),
        do=("Log eval_accuracy. " if unseen else "")
        + "Read responses for what the reward pays for; raise the KL penalty if they got worse.",
        source="LightRFT #53",
        limit=_FAR,
    )


def _gain(reward: "pd.Series[float]") -> tuple[float, float]:
    """By how much the last rewards are above the first ones, and two standard errors of that; NaN: not logged."""
    first, last = reward.dropna().head(_WINDOW), reward.dropna().tail(_WINDOW)
    if len(first) < 2:
        return float("nan"), float("nan")
    return float(last.mean() - first.mean()), 2 * float(np.sqrt((first.var() + last.var()) / len(first)))
