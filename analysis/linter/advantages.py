"""Advantages against rewards, and rewards and losses that are no numbers.

Where advantages compare the responses of a group (GRPO and its kin), the better response has the larger one, they are
the same for all tokens of a response, and most kinds add up to 0 in a group: if they do not although they follow the
rewards, responses are missing.
"""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.finding import Finding, Number, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.credit import credit
from ratioscope.analysis.linter.credited import CENTRED, RELATIVE, kind_of
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.keys import prompts, sequence_rows
from ratioscope.analysis.linter.members import small_groups_are_off_centre
from ratioscope.analysis.linter.reward_parts import SAME_SUM
from ratioscope.analysis.runs.relations import quoted
from ratioscope.analysis.runs.scalars import flags_of_scalars, unusable

FEWEST_GROUPS = 8
# Correlation of advantages and rewards inside groups: 1 where they follow them, 0 for those of other responses.
FOLLOWS, FLIPPED = 0.5, -0.5
_UNRELATED, _NEARLY_ALL = 0.2, 0.9
_SAME = 1e-5
# Of rewards that are weighted sums of their parts, a part: so many say that they are.
FEWEST_RESPONSES = 4
_OFF_CENTRE = 1e-3
_SOME, _MOST_OFF = 0.02, 0.05
_WHOLE = 0.1
"""How far a number of responses that is worked out may be from a whole one."""


@check(order=240, needs=())
def rewards(evidence: LogEvidence) -> list[Finding]:
    """Rewards, losses and gradients that are no finite numbers, parts of rewards that were counted as 0 for want of a
    number, and a run without a usable token."""
    remarks = []
    responses, scored = evidence.responses, evidence.log.has_rewards
    failed = responses["reward"].isna() & responses["failure"].notna()
    unscored = ~np.isfinite(responses["reward"].astype(float)) & responses["dropped"].isna() & ~failed
    bad = responses[unscored] if scored else responses.head(0)
    if len(bad):
        steps = steps_with(bad.groupby("step").size())
        verb = "is" if len(bad) == 1 else "are"
        remarks.append(
            Finding(
                f"{len(bad):,} of {len(responses):,} rewards {verb} NaN, infinite or missing, "
                f"{evidence.in_steps(steps)}.",
                Severity.WARNING,
                "Give a response that cannot be scored a reward of its own, and find out why it cannot.",
                (estimated("responses", len(bad)),),
                steps,
                ("reward",),
                first_of(bad),
            )
        )
    remarks += _parts_counted_as_zero(evidence)
    scalars = flags_of_scalars(evidence.run, ("loss", "grad_norm")).reindex(evidence.steps["step"])
    for column in map(str, scalars):
        bad_at = unusable(scalars[column])
        steps = tuple(int(step) for step in bad_at.index[bad_at])
        if steps:
            remarks.append(
                Finding(
                    f"{column} is NaN, infinite or missing {evidence.in_steps(steps)}"
                    + (", up to the end: the run may have diverged." if bad_at.iloc[-1] else "."),
                    Severity.WARNING,
                    "Look at the step before the first one: its learning rate, its largest ratio, its gradient norm.",
                    (estimated("steps", len(steps)),),
                    steps,
                    (column,),
                )
            )
    accuracy = evidence.steps[["step", "eval_accuracy"]].dropna()
    beyond = accuracy[(accuracy["eval_accuracy"] < 0) | (accuracy["eval_accuracy"] > 1)]
    if len(beyond):
        remarks.append(
            Finding(
                f"eval_accuracy is no share: it is up to {beyond['eval_accuracy'].abs().max():.3g}, "
                f"{evidence.in_steps(tuple(beyond['step'].astype(int)))}.",
                Severity.NOTICE,
                "Log it between 0 and 1, not in percent; a score of another kind is an extra_ column.",
                (estimated("steps", len(beyond)),),
                tuple(int(step) for step in beyond["step"]),
                ("eval_accuracy",),
            )
        )
    if evidence.n_rows and not evidence.total("n_usable"):
        remarks.append(
            Finding(
                f"None of {evidence.n_rows:,} tokens can be used.", Severity.CRITICAL,
                "See the reasons: invalid values.", (estimated("tokens", 0),), evidence.all_steps,
                ("logp_behavior", "logp_current", "advantage"),
            )
        )  # fmt: skip
    if remarks:
        return remarks
    if responses.empty:
        return not_checked("The sequences table has no rows in this range.")
    if not scored:
        return not_checked(f"{evidence.log.why('sequences.reward')}.")
    finite = int(responses["reward"].notna().sum())
    kinds = responses.loc[failed, "failure"].value_counts()
    without = listed([f"{count:,} {kind}" for kind, count in kinds.items()])
    also = f" Failed without a reward: {without}." if len(kinds) else ""
    return passed(f"All {finite:,} rewards are finite, and so is what is logged of losses and gradients.{also}")


def _parts_counted_as_zero(evidence: LogEvidence) -> list[Finding]:
    """A part that some responses of a group lack, where the logged reward is the weighted sum with a 0 in its place:
    what could not be scored is then compared with what was."""
    columns = map(str, evidence.frame("select * from sequence limit 0").columns)
    names = [name for name in columns if name.startswith("reward_")]
    values = ", ".join(f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(names))
    if not names:
        return []
    rows = evidence.frame(
        f"select step, seq_id, group_id, reward::double as reward, {values} from sequence "
        "where isfinite(reward) and dropped is null and grouped order by step, seq_id"
    )
    parts = rows.filter(like="part_").to_numpy(dtype=float, na_value=np.nan)
    there = np.isfinite(parts)
    if there.all() or len(rows) < FEWEST_RESPONSES * len(names):
        return []
    filled, reward = np.where(there, parts, 0.0), rows["reward"].to_numpy(dtype=float)
    weights = np.linalg.lstsq(filled, reward, rcond=None)[0]
    if np.abs(filled @ weights - reward).max() > SAME_SUM * (1 + np.abs(reward).max()):
        return []  # another rule made the reward: what it did with the missing ones is not known
    groups = [rows["step"], rows["group_id"]]
    worst = rows["reward"] == rows["reward"].groupby(groups).transform("min")
    remarks = []
    for at, name in enumerate(names):
        known = pd.Series(there[:, at])
        beside = ~known & known.groupby(groups).transform("any")
        if not beside.any() or abs(weights[at]) < SAME_SUM:
            continue
        steps = steps_with(rows[beside].groupby("step").size())
        remarks.append(
            Finding(
                f"{int(beside.sum()):,} of {len(rows):,} responses have no {name}, others of their group have one: it "
                f"counts as 0 in their reward, {evidence.in_steps(steps)}.",
                Severity.WARNING,
                "Give a response that cannot be scored a reward of its own, or score no response of its prompt.",
                (
                    estimated("responses", int(beside.sum())),
                    estimated("share of them with the lowest reward of their group", float(worst[beside].mean())),
                ),
                steps,
                (name,),
                first_of(rows[beside]),
            )
        )
    return remarks


@check(order=230, needs=(("advantage",), ("sequences.reward",), GROUP))
def advantages(evidence: LogEvidence) -> list[Finding]:
    """The better response of a group has the larger advantage, one for all of its tokens, and groups add up to 0."""
    kind = kind_of(evidence)
    other = evidence.problems(sequence_rows, prompts)
    if other:
        return not_checked(f"Groups are not what they seem: {', '.join(other)}.")
    if any("advantages" in CAUSES[each.of_cause].explains for each in evidence.remarks(credit) if each.of_cause):
        return not_checked("Credit names what is wrong with the advantages.")
    tokens = evidence.sample.rows
    tokens = tokens[np.isfinite(tokens["advantage"].astype(float))]
    of = tokens.groupby(["step", "seq_id"])["advantage"].agg(["mean", "min", "max"]).astype(float)
    responses = evidence.responses.merge(of, left_on=["step", "seq_id"], right_index=True)
    responses = responses[np.isfinite(responses["reward"].astype(float))]
    relative = kind in RELATIVE
    constant = responses["max"] - responses["min"] <= _SAME * (1 + responses["mean"].abs())
    if (relative or not kind) and (shift := _of_the_neighbour(tokens, responses[~constant])) > _NEARLY_ALL:
        return [_found(evidence, responses[~constant],
                       f"The advantage differs at one end of {percent(shift)} of the responses whose tokens differ, "
                       "and is one and the same on all others. It is shifted by one row.",
                       Severity.CRITICAL, (estimated("share of these responses", shift),))]  # fmt: skip
    if relative and (~constant).mean() > _SOME:
        return [_found(evidence, responses[~constant],
                       f"The advantage differs between the tokens of {percent((~constant).mean())} of the responses, "
                       f"where its kind ({kind}) gives a response one. Something of each token is in it, or it is of "
                       "other rows.",
                       Severity.CRITICAL, (estimated("share of the responses", (~constant).mean()),))]  # fmt: skip
    responses = responses.assign(reward=responses["reward"].astype(float))
    keys = [responses["step"], responses["group_id"]]
    r = responses["reward"] - responses["reward"].groupby(keys).transform("mean")
    a = responses["mean"] - responses["mean"].groupby(keys).transform("mean")
    sums = pd.DataFrame({"ra": r * a, "rr": r * r, "aa": a * a}).groupby(keys).sum()
    signal = sums[sums["rr"] > _SAME]
    if len(signal) < FEWEST_GROUPS:
        return not_checked(f"Fewer than {FEWEST_GROUPS} groups have responses of different reward.")
    correlation = signal["ra"] / (signal["rr"] * signal["aa"]) ** 0.5
    follows = float(correlation.fillna(0.0).mean())
    numbers = (estimated("correlation with the rewards inside groups", follows), estimated("groups", len(signal)))
    if follows < FLIPPED:
        return [_found(evidence, responses,
                       "The advantage has the wrong sign: inside a group the better response has the smaller one "
                       f"(correlation {follows:.2f}).", Severity.CRITICAL, numbers)]  # fmt: skip
    if not relative and (below := _best_below_second(responses)) > _NEARLY_ALL:
        return [_found(evidence, responses,
                       f"The best response has a smaller advantage than the second best one in {percent(below)} of the "
                       "groups with one best response. The loss moves away from it.",
                       Severity.WARNING, (*numbers, estimated("share of these groups", below)))]  # fmt: skip
    if kind and not relative:
        return not_checked(f"The advantage is of a kind ({_plain(kind)}) that rewards alone do not give.")
    if relative and not signal["aa"].max() > 0:
        return [_found(evidence, responses,
                       "The advantage is one and the same inside every group although rewards differ in "
                       f"{len(signal):,} "
                       f"groups, where its kind ({kind}) tells them apart.", Severity.CRITICAL, numbers)]  # fmt: skip
    if relative and follows < FOLLOWS:
        return [_found(evidence, responses,
                       "The advantage does not follow the rewards "
                       f"(correlation {follows:.2f} inside {len(signal):,} groups, where its kind, {kind}, gives about "
                       "1). It is of other responses, or group_id or reward is.",
                       Severity.CRITICAL, numbers, ("advantage", "reward", "group_id"))]  # fmt: skip
    if not kind and abs(follows) < _UNRELATED and _is_centred(responses[constant]) > _NEARLY_ALL:
        return [_found(evidence, responses,
                       "The advantages add up to 0 inside groups, so they compare their responses, and do not follow "
                       f"the rewards (correlation {follows:.2f} inside {len(signal):,} groups). They are of other "
                       "responses, or made of another reward than the logged one.",
                       Severity.WARNING, numbers, ("advantage", "reward", "group_id"))]  # fmt: skip
    compared = kind in CENTRED or (
        not kind and (small_groups_are_off_centre(evidence).present or _of_larger_groups(responses[constant]))
    )
    off = _off_centre(evidence, responses) if compared else None
    if off is None and not kind and (~constant).mean() <= _SOME:
        off = _of_another_reward(responses[constant], Severity.NOTICE)
    if off is not None:
        return [off]
    if not relative and abs(follows) < _UNRELATED:
        return not_checked(f"The advantage does not follow the rewards inside groups ({follows:.2f}), "
                                 "and the manifest does not say of which kind it is.")  # fmt: skip
    return passed(f"Inside groups the advantage follows the reward (correlation {follows:.2f}).", *numbers)


def _of_the_neighbour(tokens: pd.DataFrame, differing: pd.DataFrame) -> float:
    """Of the responses whose tokens differ in advantage: the share where only the first or only the last one does.

    0 for fewer than a few responses of at least three tokens.
    """
    if len(differing) < FEWEST_GROUPS:
        return 0.0
    of = tokens.merge(differing[["step", "seq_id"]], on=["step", "seq_id"]).sort_values(["step", "seq_id", "position"])
    key = [of["step"], of["seq_id"]]
    of = of[of.groupby(key)["position"].transform("size") > 2]
    key = [of["step"], of["seq_id"]]
    first, last = of.groupby(key).cumcount() > 0, of.groupby(key).cumcount(ascending=False) > 0
    shares = []
    for inner in (first, last):
        spread = of[inner].groupby(["step", "seq_id"])["advantage"].agg(["min", "max"]).astype(float)
        shares.append(float((spread["max"] - spread["min"] <= _SAME * (1 + spread["max"].abs())).mean()))
    return max(shares) if of.groupby(key).ngroups >= FEWEST_GROUPS else 0.0


def _best_below_second(responses: pd.DataFrame) -> float:
    """Share of the groups with one best response whose advantage is smaller than that of the second best one.

    0 for a few groups: without a relation it is one half.
    """
    rows = responses.sort_values(["step", "group_id", "reward"], ascending=[True, True, False])
    best, second = (rows.groupby(["step", "group_id"]).nth(place) for place in (0, 1))
    pairs = best.merge(second, on=["step", "group_id"], suffixes=("", "_second"))
    pairs = pairs[pairs["reward"] - pairs["reward_second"] > _SAME]
    below = pairs["mean"] < pairs["mean_second"] - _SAME
    return float(below.mean()) if len(pairs) >= 4 * FEWEST_GROUPS else 0.0


def _is_centred(responses: pd.DataFrame) -> float:
    """Share of the groups with an advantage that add up to 0, of those with three responses at least."""
    by_group = responses.assign(large=responses["mean"].abs()).groupby(["step", "group_id"])
    groups = by_group.agg(mean=("mean", "mean"), size=("mean", "size"), largest=("large", "max"))
    groups = groups[(groups["size"] > 2) & (groups["largest"] > _OFF_CENTRE)]
    centred = groups["mean"].abs() <= _OFF_CENTRE * groups["largest"]
    return float(centred.mean()) if len(groups) >= FEWEST_GROUPS else 0.0


def _of_larger_groups(responses: pd.DataFrame) -> bool:
    """Whether rewards of two values, with their advantages, say in nearly all groups that the same number of responses
    was compared, which is more than there are.

    Of shares m of the better value, the sample deviation of n rewards is the root of m (1 - m) n / (n - 1).
    """
    low, high = responses["reward"].min(), responses["reward"].max()
    if not responses["reward"].isin([low, high]).all() or not high > low:
        return False
    of = responses.groupby(["step", "group_id", "reward"])["mean"].mean().unstack()
    of = of.assign(size=responses.groupby(["step", "group_id"]).size()).dropna()
    if len(of) < FEWEST_GROUPS:
        return False
    deviation = 1 / (of[high] - of[low])
    share = -of[low] * deviation
    with np.errstate(all="ignore"):
        times = deviation**2 / (share * (1 - share))
        n = times / (times - 1)
    usual = n.round().median()
    told = (n - usual).abs().le(_WHOLE) & (share * n - (share * n).round()).abs().le(_WHOLE) & (usual > of["size"])
    return bool(told.mean() > _NEARLY_ALL)


def _off_centre(evidence: LogEvidence, responses: pd.DataFrame) -> Finding | None:
    """Groups whose advantages follow the rewards and do not add up to 0: some of their responses are not here."""
    every = evidence.responses.groupby(["step", "group_id"]).size()
    by_group = responses.assign(large=responses["mean"].abs()).groupby(["step", "group_id"])
    groups = by_group.agg(mean=("mean", "mean"), size=("mean", "size"), largest=("large", "max"))
    whole = groups[(groups["size"] == every.reindex(groups.index)) & (groups["largest"] > _OFF_CENTRE)]
    off = whole[whole["mean"].abs() > _OFF_CENTRE * (1 + whole["largest"])]
    dropped = evidence.responses["dropped"].notna().any()
    if dropped or evidence.spreads_groups or len(whole) < FEWEST_GROUPS or len(off) <= _MOST_OFF * len(whole):
        return None
    if (other := _of_another_reward(responses, Severity.WARNING)) is not None:
        return other
    says = "Responses of these groups are missing from the log, and what is left is a selection."
    if whole["size"].nunique() == 1:
        size = int(whole["size"].iloc[0])
        says = f"Each group has {size}: responses of each are missing, or something is added to its advantages."
    return Finding(
        f"The advantages of {len(off):,} of {len(whole):,} groups follow the rewards and do not add up to 0, where "
        f"{'their kind makes them' if kind_of(evidence) else 'those of whole groups do'}. {says}",
        Severity.WARNING,
        "Log every response that was sampled; of those that the loss left out, say why in the column dropped.",
        (estimated("groups", len(off)), estimated("largest mean of a group", float(off["mean"].abs().max()))),
        steps_with(off.groupby("step").size()),
        ("sequences",),
    )


def _of_another_reward(responses: pd.DataFrame, severity: Severity) -> Finding | None:
    """Groups in which responses of equal reward have different advantages, whatever their kind makes of rewards."""
    of = responses.groupby(["step", "group_id", "reward"])["mean"].agg(["min", "max", "size"])
    of = of[of["size"] > 1]
    differ = of["max"] - of["min"] > _OFF_CENTRE * (1 + of[["min", "max"]].abs().max(axis=1))
    groups, n_groups = of[differ].groupby(["step", "group_id"]).size(), of.groupby(["step", "group_id"]).ngroups
    if len(groups) < FEWEST_GROUPS or differ.mean() <= _MOST_OFF:
        return None
    return Finding(
        f"In {len(groups):,} of {n_groups:,} groups responses of equal reward have different advantages. They were "
        "computed from another group_id or reward.",
        severity,
        "Log the group and the reward that advantages are computed from.",
        (estimated("groups", len(groups)), estimated("share of the sets of equal reward", float(differ.mean()))),
        steps_with(groups.groupby("step").size()),
        ("group_id", "reward"),
    )


def _found(evidence: LogEvidence, responses: pd.DataFrame, said: str, severity: Severity, numbers: tuple[Number, ...],
           columns: tuple[str, ...] = ("advantage",)) -> Finding:  # fmt: skip
    return Finding(
        said,
        severity,
        "Compare reward, group_id and advantage of the example rows: a group is one prompt, and a token "
        "has the advantage "
        "of its own response.",
        numbers,
        steps_with(responses.groupby("step").size()),
        columns,
        first_of(responses),
    )


def _plain(text: str) -> str:
    return text if text.replace("_", "").isalnum() and len(text) < 40 else "another one"
