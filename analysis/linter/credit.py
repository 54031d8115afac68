"""Whose advantages they are, which baseline they have, and which tokens they reach: marks and causes of wrong credit.

A token's advantage should be its own response's, against a baseline of its own prompt group, in every turn. Nothing of
this needs the manifest to name the kind of advantage: groups of equal reward have none, and which rows share a baseline
is what advantages are a straight line of the reward in.
"""

from itertools import product
from math import nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.keys import prompts, sequence_rows
from ratioscope.analysis.runs.relations import quoted

# Kinds of `algorithm.parts.advantage` that compare the responses of a group, and those of them that add up to 0.
CENTRED = ("group_mean", "group_normalised", "leave_one_out")
RELATIVE = (*CENTRED, "shifted", "pairwise")
_COMPARING = frozenset({"grpo", "dr_grpo", "dapo", "gspo", "gmpo", "cispo", "rloo"})
"""Algorithms that compare the responses of a group by their definition, where the manifest names no parts."""
_OTHERS = frozenset({"ppo", "a2c", "a3c", "reinforce", "reinforce_plus_plus", "vanilla_pg", "remax", "vapo"})
_SAME = 1e-5
_ZERO = 1e-3
"""Of the mean |A|: below it an advantage is 0 but for rounding."""
_SOME = 0.05
_OFF_LINE, _ADDED = 0.005, 0.01
"""Of the root mean square of A: what a line leaves unexplained, and what is more than rounding beside it."""
_NEAR = 0.02
"""Of an advantage: what small numbers in denominators make of it at most."""
_FEWEST_GROUPS = 8
_FEWEST = 20
"""Responses, below which nothing is said of a share of them."""

_ADVANTAGES: tuple[Need, ...] = (("advantage",), ("sequences.reward",))
_GROUPED: tuple[Need, ...] = (*_ADVANTAGES, GROUP)
_TURNS: tuple[Need, ...] = (("advantage",), ("turn",))


def responses_with_advantage(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each response that the loss has seen: its largest advantage, the range, and what it earned.

    Columns: step, seq_id, group_id, prompt_id, rank, reward, n_tokens, grouped, advantage, low, high, n_rows, constant,
    and group, the number of the prompt group and its step.
    """

    def made() -> pd.DataFrame:
        found = evidence.frame(
            """
            with of as (
                select step, seq_id, min(advantage)::double as low, max(advantage)::double as high,
                    arg_max(advantage, abs(advantage))::double as advantage, count(*) as n_rows
                from token where isfinite(advantage) group by step, seq_id
            )
            select of.*, s.group_id, s.prompt_id, s.rank, s.reward::double as reward, s.n_tokens, s.grouped
            from of join sequence as s using (step, seq_id) where s.dropped is null order by step, seq_id
            """
        )
        found["constant"] = found["high"] - found["low"] <= _SAME * (1 + found["advantage"].abs())
        found["group"] = found.groupby(["step", "group_id"]).ngroup()
        return found

    return evidence.once("responses with their advantages", made)


def _scored(evidence: LogEvidence) -> pd.DataFrame:
    """Those with a reward."""

    def made() -> pd.DataFrame:
        rows = responses_with_advantage(evidence)
        return rows[np.isfinite(rows["reward"])]

    return evidence.once("responses with their advantages and a reward", made)


def _whole(evidence: LogEvidence) -> pd.DataFrame:
    """Scored responses with one advantage each, of groups that are whole in their step."""

    def made() -> pd.DataFrame:
        rows = _scored(evidence)
        return rows.head(0) if evidence.spreads_groups else rows[rows["constant"] & rows["grouped"]]

    return evidence.once("responses of whole groups with their advantages", made)


def _equal_groups(evidence: LogEvidence) -> pd.DataFrame:
    """Groups of two responses or more that all earned the same: step, group_id, size, largest |A|, credited."""

    def made() -> pd.DataFrame:
        rows = _whole(evidence)
        of = rows.assign(size=rows["advantage"].abs()).groupby(["step", "group_id"], as_index=False)
        groups = of.agg(low=("reward", "min"), high=("reward", "max"), n=("reward", "size"), largest=("size", "max"))
        groups = groups[(groups["n"] > 1) & (groups["high"] - groups["low"] <= _SAME * (1 + groups["high"].abs()))]
        scale = float(rows["advantage"].abs().mean()) if len(rows) else nan
        return groups.assign(credited=groups["largest"] > _ZERO * scale)

    return evidence.once("groups of equal reward", made)


@mark(needs=_GROUPED, limit=0.1)
def advantage_of_equal_rewards(evidence: LogEvidence) -> MarkReading | None:
    """Groups whose responses all earned the same have an advantage other than 0."""
    groups = _equal_groups(evidence)
    if len(groups) < _FEWEST_GROUPS:
        return None
    credited = groups[groups["credited"]]
    return MarkReading(
        len(credited) / len(groups),
        f"{len(credited):,} of {len(groups):,} groups of equal reward have an advantage",
        steps_with(credited.groupby("step").size()),
        ("advantage",),
    )


@mark(needs=_GROUPED, limit=0.999)
def advantage_by_step(evidence: LogEvidence) -> MarkReading | None:
    """Within a step, whatever the group, the advantage is one straight line of the reward."""
    return _straight(_whole(evidence), ["step"], "the reward and the step alone give the advantage")


@mark(needs=(*_GROUPED, ("sequences.prompt_id",)), limit=0.999)
def advantage_by_prompt(evidence: LogEvidence) -> MarkReading | None:
    """Groups of one prompt have one straight line of the reward as their advantage."""
    rows = _whole(evidence)
    clause = "the reward and the prompt alone give the advantage, whichever of its groups"
    return _straight(rows[rows["prompt_id"].notna()], ["step", "prompt_id"], clause)


@mark(needs=_GROUPED, limit=0.999)
def advantage_by_place_in_group(evidence: LogEvidence) -> MarkReading | None:
    """The first responses of all groups are compared with each other, the second ones with each other, and so on."""
    rows = _whole(evidence)
    place = rows.groupby("group").cumcount()
    clause = "the reward and the place in the group give the advantage"
    return _straight(rows.assign(place=place), ["step", "place"], clause)


def _straight(rows: pd.DataFrame, keys: list[str], clause: str) -> MarkReading | None:
    """Share of the advantage's variance that a line of the reward for each cell explains; cells of several groups."""
    of = rows.groupby(keys)
    rows = rows[(of["group_id"].transform("nunique") > 1) & (of["group_id"].transform("size") > 3)]
    if len(rows) < _FEWEST:
        return None
    keyed = [rows[key] for key in keys]
    a, r = (rows[name] - rows[name].groupby(keyed).transform("mean") for name in ("advantage", "reward"))
    sums = pd.DataFrame({"ar": a * r, "rr": r * r, "aa": a * a}).groupby(keyed).sum()
    sums = sums[sums["rr"] > _SAME]
    total = float(sums["aa"].sum())
    if not total > 0:
        return None
    return MarkReading(float((sums["ar"] ** 2 / sums["rr"]).sum()) / total, clause, (), ("advantage",))


@mark(needs=_GROUPED, limit=0.5)
def advantage_moved_by_step(evidence: LogEvidence) -> MarkReading | None:
    """In each step the advantage is what the group's own rewards give, times one number, plus another one."""
    rows = _whole(evidence)
    rows = rows.assign(mean=rows["reward"].groupby(rows["group"]).transform("mean"))
    of_step = rows.groupby("step")["mean"]  # with one mean for all groups the step's baseline is the group's
    rows = rows[of_step.transform("max") - of_step.transform("min") > _SAME]
    scale = float((rows["advantage"] ** 2).mean() ** 0.5) if len(rows) >= _FEWEST else nan
    if not scale > 0:
        return None
    best = (0.0, 0.0)
    for own in _formulas(rows).values():
        of = rows[["step", "advantage"]].assign(own=own)
        level = of.groupby("step").transform("mean")
        a, x = of["advantage"] - level["advantage"], of["own"] - level["own"]
        sums = pd.DataFrame({"ax": a * x, "xx": x * x}).groupby(of["step"]).transform("sum")
        slope = sums["ax"] / sums["xx"].where(sums["xx"] > _SAME)
        added = level["advantage"] - slope * level["own"]
        added = (added - added.median()).abs()  # what is the same in every step is a baseline's shift (AsymRE)
        follows = slope * (sums["xx"] / of.groupby("step")["own"].transform("size")) ** 0.5 > _ADDED * scale
        if ((a - slope * x) ** 2)[follows].mean() < (_OFF_LINE * scale) ** 2:
            added = added.where(follows, 0.0)
            best = max(best, (float((added > _ADDED * scale).mean()), float(added.max())))
    share, largest = best
    return MarkReading(
        share, f"one number for each step, up to {number(largest)}, is added to what the group's own rewards give",
        steps_with(rows.groupby("step").size()), ("advantage",),
    )  # fmt: skip


@mark(needs=_GROUPED, limit=0.8)
def advantage_of_a_stride(evidence: LogEvidence) -> MarkReading | None:
    """As many responses in a row as most groups have share a baseline, whichever group they are of."""
    rows = _scored(evidence)
    if evidence.spreads_groups or len(rows) < _FEWEST or not rows["grouped"].all():
        return None
    size = int(rows.groupby("group").size().mode().max())
    place = rows.groupby("step").cumcount() // size
    shares = zip(
        _explained(rows, _formulas(rows)),
        _explained(rows, _formulas(rows.assign(group=rows["step"] * len(rows) + place))),
        strict=True,
    )
    own, of_blocks = max(shares, key=lambda each: each[1])
    if not own <= 1 - _SOME:
        return MarkReading(0.0, "")
    return MarkReading(
        (of_blocks - own) / (1 - own),
        f"blocks of {size} responses in a row give {percent(of_blocks)} of them, the groups give {percent(own)}",
        steps_with(rows.groupby("step").size()), ("advantage",),
    )  # fmt: skip


@mark(needs=_GROUPED, limit=0.9)
def advantage_of_another_kind(evidence: LogEvidence) -> MarkReading | None:
    """The group's rewards give the advantages by another rule than the one that the manifest names."""
    rows, stated = _whole(evidence), kind_of(evidence)
    differ = _of_group(rows, "reward").abs() > _SAME
    if stated not in _RULES.values() or differ.sum() < _FEWEST:
        return None
    advantage = rows["advantage"][differ]
    shares = {
        words: float(((advantage - values[differ]).abs() <= _NEAR * advantage.abs()).mean())
        for words, values in _formulas(rows).items()
    }
    by_stated = max(share for words, share in shares.items() if _RULES[words] == stated)
    best = max(shares, key=lambda words: shares[words])
    return MarkReading(
        shares[best] - by_stated,
        f"{percent(shares[best])} of them are {best}, {percent(by_stated)} are of the kind that it names ({stated})",
        steps_with(rows.groupby("step").size()), ("advantage",), first_of(rows[differ]),
    )  # fmt: skip


@mark(needs=(("advantage",), ("position",)), limit=0.9)
def advantage_discounted(evidence: LogEvidence) -> MarkReading | None:
    """A token has one and the same part of the advantage of the next one, in all responses."""
    if responses_with_advantage(evidence)["constant"].mean() > 0.5:
        return MarkReading(0.0, "")
    row = evidence.frame(
        """
        with of as (
            select step, seq_id, advantage::double / nullif(lead(advantage::double) over next, 0) as part
            from token where isfinite(advantage) window next as (partition by step, seq_id order by position)
        ), usual as (select median(part) as part, count(distinct (step, seq_id)) as n from of where part is not null)
        select any_value(usual.part) as part, any_value(usual.n) as n,
            avg((abs(of.part - usual.part) <= 0.1 * (1 - usual.part))::double) as share
        from of, usual where of.part is not null
        """
    ).iloc[0]
    if pd.isna(row["n"]) or row["n"] < _FEWEST:
        return None
    if not 0 < row["part"] < 1 - _ZERO / 10:
        return MarkReading(0.0, "")
    return MarkReading(
        float(row["share"]),
        f"in {percent(float(row['share']))} of the tokens it is {number(float(row['part']))} × that of the next token, "
        "so that it fades to the beginning of a response",
        evidence.all_steps, ("advantage",),
    )  # fmt: skip


@mark(needs=_ADVANTAGES, limit=0.98)
def advantage_is_the_reward(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is the reward itself."""
    rows = _scored(evidence)
    if (~rows["constant"]).mean() > _SOME:
        return MarkReading(0.0, "")
    same = (rows["advantage"] - rows["reward"]).abs() <= 1e-4 * (1 + rows["reward"].abs())
    earned = rows["reward"].abs() > _SAME  # of the others a mean of 0 is no reward
    if earned.sum() < _FEWEST:
        return None
    share = float(min(same.mean(), same[earned].mean()))
    return MarkReading(
        share, f"it equals the reward in {percent(share)} of the responses",
        steps_with(rows[same].groupby("step").size()), ("advantage",), first_of(rows[same]),
    )  # fmt: skip


@mark(needs=(GROUP, ("sequences.seq_id",)), limit=0.9)
def groups_of_one_response(evidence: LogEvidence) -> MarkReading | None:
    """Prompt groups have a single response."""
    sizes = evidence.frame("select step, group_id, count(*) as n from sequence where grouped group by all")
    if len(sizes) < _FEWEST:
        return None
    single = sizes["n"] == 1
    return MarkReading(
        float(single.mean()), f"{int(single.sum()):,} of {len(sizes):,} groups have one response",
        steps_with(sizes[single].groupby("step").size()), ("group_id",),
    )  # fmt: skip


@mark(needs=(("advantage",),), limit=0.999)
def advantage_is_zero(evidence: LogEvidence) -> MarkReading | None:
    """No response has an advantage."""
    rows = responses_with_advantage(evidence)
    zero = rows["advantage"] == 0
    return MarkReading(float(zero.mean()), "every advantage is 0", (), ("advantage",)) if len(rows) >= _FEWEST else None


@mark(needs=(), limit=0.5)
def another_kind_is_stated(evidence: LogEvidence) -> MarkReading | None:
    """The manifest names an advantage, or an algorithm, that does not compare the responses of a group."""
    return MarkReading(float(_compares(evidence) is False), "the manifest names another kind of advantage")


def kind_of(evidence: LogEvidence) -> str:
    """The kind of advantage that the manifest names; text of the log."""
    parts = evidence.run.manifest.algorithm.get("parts")
    return str(parts.get("advantage") or "") if isinstance(parts, dict) else ""


def _compares(evidence: LogEvidence) -> bool | None:
    """Whether the run says that advantages compare the responses of a group; None: it does not say."""
    kind, name = kind_of(evidence), str(evidence.run.manifest.algorithm.get("name") or "").lower()
    if kind:
        return kind in RELATIVE
    return True if name in _COMPARING else False if name in _OTHERS else None


# Of other responses ---------------------------------------------------------------------------------------------------


def _of_group(rows: pd.DataFrame, name: str) -> "pd.Series[float]":
    """A column less its mean in the group."""
    return rows[name] - rows[name].groupby(rows["group"]).transform("mean")


_RULES = {
    "the reward above the group's mean": "group_mean",
    "that in standard deviations of the group": "group_normalised",
    "that in sample standard deviations of the group": "group_normalised",
    "the reward above the mean of the others": "leave_one_out",
}
"""The kinds of `algorithm.parts.advantage`, by what they make of a group's rewards."""


def _formulas(rows: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """What the usual kinds make of the rewards of a group, (n_responses,) for each of the rules."""
    centred, n = _of_group(rows, "reward"), rows["reward"].groupby(rows["group"]).transform("size")
    population = (centred**2).groupby(rows["group"]).transform("mean") ** 0.5
    scales = (pd.Series(1.0, rows.index), population, population * (n / (n - 1).clip(lower=1)) ** 0.5, (n - 1) / n)
    return {
        words: np.where(scale > _SAME, centred / scale.clip(lower=_SAME), 0.0)
        for words, scale in zip(_RULES, scales, strict=True)
    }


def _tolerance(rows: pd.DataFrame) -> NDArray[np.float64]:
    """How far an advantage may be from what a rule gives."""
    return 5e-4 * (1 + np.abs(rows["advantage"].to_numpy()))


def _explained(rows: pd.DataFrame, formulas: dict[str, NDArray[np.float64]]) -> list[float]:
    """Share of the advantages other than 0 that each rule gives."""
    advantage = rows["advantage"].to_numpy()
    signal = np.abs(advantage) > _ZERO
    near = [np.abs(values - advantage) <= _tolerance(rows) for values in formulas.values()]
    return [float(each[signal].mean()) if signal.any() else nan for each in near]


@mark(needs=_GROUPED, limit=0.8)
def advantage_unlike_the_reward(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the advantage does not go with the reward, in neither direction."""
    rows = _scored(evidence)
    rows = rows[rows["grouped"]]
    r, a = _of_group(rows, "reward"), _of_group(rows, "advantage")
    sums = pd.DataFrame({"ra": r * a, "rr": r * r, "aa": a * a}).groupby(rows["group"]).sum()
    sums = sums[(sums["rr"] > _SAME) & (sums["aa"] > _SAME)]
    if len(sums) < _FEWEST_GROUPS:
        return None
    correlation = float((sums["ra"] / (sums["rr"] * sums["aa"]) ** 0.5).mean())
    clause = f"inside groups they do not follow the reward (correlation {correlation:.2f})"
    return MarkReading(1 - abs(correlation), clause, (), ("advantage", "reward"))


@mark(needs=_GROUPED, limit=0.8)
def advantage_of_another_row(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is that of another response of the step: one that the rewards give there, and not here."""
    rows = _scored(evidence)
    if evidence.spreads_groups or len(rows) < _FEWEST or not rows["grouped"].all():
        return None
    advantage = rows["advantage"].to_numpy()
    signal = np.abs(advantage) > _ZERO
    if signal.sum() < _FEWEST:
        return None
    formulas, tolerance = _formulas(rows), _tolerance(rows)
    explained = _explained(rows, formulas)
    if max(explained) > 1 - _SOME:
        return MarkReading(0.0, "")
    found = []
    for own, values in zip(explained, formulas.values(), strict=True):
        # How often a value hits one of the step's by chance: of values that are beside them.
        anywhere, by_chance = (
            float(_among(rows["step"].to_numpy(), values, advantage + beside, tolerance)[signal].mean())
            for beside in (0.0, 7e-3)
        )
        found.append((own, anywhere, by_chance))
    own, anywhere, by_chance = max(found)  # the kind that explains most of the advantages where they are
    return MarkReading(
        (anywhere - own) / (1 - own) - by_chance,
        f"{percent(own)} of them are what their own group's rewards give, {percent(anywhere)} what others' do",
        (), ("advantage",), first_of(rows[signal]),
    )  # fmt: skip


def _among(step: NDArray[np.int64], values: NDArray[np.float64], wanted: NDArray[np.float64],
           tolerance: NDArray[np.float64]) -> NDArray[np.bool_]:  # fmt: skip
    """Whether a wanted number is, but for a tolerance, one of the values of its step."""
    found = np.zeros(len(step), dtype=bool)
    by_step = np.argsort(step, kind="stable")
    for here in np.split(by_step, np.flatnonzero(np.diff(step[by_step])) + 1):
        known = np.sort(values[here])
        place = np.searchsorted(known, wanted[here] - tolerance[here])
        found[here] = (place < len(known)) & (known[place.clip(max=len(known) - 1)] <= (wanted[here] + tolerance[here]))
    return found


@mark(needs=_GROUPED, limit=0.7)
def advantage_of_the_neighbour(evidence: LogEvidence) -> MarkReading | None:
    """The advantage goes with the reward of the response one row before or after, of the step or of the rank."""
    rows = _scored(evidence)
    if len(rows) < _FEWEST or not rows["grouped"].all():
        return None
    expected = _of_group(rows, "reward")
    keys = [["step"], ["step", "rank"]] if rows["rank"].notna().all() else [["step"]]
    found: dict[int, float] = {}
    for key, by in product(keys, (1, -1)):
        moved = expected.groupby([rows[name] for name in key]).shift(by)
        there = moved.notna() & (moved.std() > 0)
        found[by] = max(found.get(by, -1.0), float(moved[there].corr(rows["advantage"][there])))
    by, best = max(found.items(), key=lambda each: each[1])
    where = "before" if by > 0 else "after"
    return MarkReading(best, f"they follow the reward of the response one row {where} (correlation {best:.2f})")


# Terms that the logged reward lacks -----------------------------------------------------------------------------------


@mark(needs=(*_GROUPED, ("logp_reference",)), limit=0.9)
def advantage_follows_kl(evidence: LogEvidence) -> MarkReading | None:
    """In groups of equal reward the advantage falls with the response's KL to the reference."""
    kl = evidence.frame(
        "select step, seq_id, -sum(coalesce(logp_current, logp_sampled)::double - logp_reference::double) as term "
        "from usable where isfinite(logp_reference) group by all"
    )
    return _hidden_term(evidence, kl, "the KL to the reference")


@mark(needs=(*_GROUPED, ("sequences.n_tokens", "position")), limit=0.9)
def advantage_follows_length(evidence: LogEvidence) -> MarkReading | None:
    """In groups of equal reward the advantage falls with the response's length."""
    rows = responses_with_advantage(evidence)
    return _hidden_term(evidence, rows[["step", "seq_id"]].assign(term=-rows["n_tokens"].astype(float)), "the length")


def _hidden_term(evidence: LogEvidence, terms: pd.DataFrame, words: str) -> MarkReading | None:
    groups = _equal_groups(evidence)
    credited = groups.loc[groups["credited"], ["step", "group_id"]]
    if len(credited) < _FEWEST_GROUPS:
        return None
    rows = _whole(evidence).merge(credited, on=["step", "group_id"]).merge(terms, on=["step", "seq_id"])
    a, x = _of_group(rows, "advantage"), _of_group(rows, "term")
    sums = pd.DataFrame({"ax": a * x, "aa": a * a, "xx": x * x}).groupby(rows["group"]).sum()
    sums = sums[(sums["aa"] > _SAME**2) & (sums["xx"] > _SAME**2)]
    if len(sums) < _FEWEST_GROUPS:
        return None
    found = float((sums["ax"] / (sums["aa"] * sums["xx"]) ** 0.5).mean())
    return MarkReading(found, f"where rewards are equal they fall with {words} (correlation {-found:.2f})")


@mark(needs=_GROUPED, limit=0.5)
def advantage_from_a_side_part(evidence: LogEvidence) -> MarkReading | None:
    """Most of |A| comes from groups that differ in one secondary part of the reward alone, such as a length penalty."""
    columns = map(str, evidence.frame("select * from sequence limit 0").columns)
    names = [name for name in columns if name.startswith("reward_")]
    if len(names) < 2 or evidence.spreads_groups:
        return None
    values = ", ".join(f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(names))
    parts = _scored(evidence).merge(evidence.frame(f"select step, seq_id, {values} from sequence"))
    parts = parts[parts["grouped"]].dropna(subset=[f"part_{at}" for at in range(len(names))])
    if len(parts) < _FEWEST:
        return None
    of = [f"part_{at}" for at in range(len(names))]
    filled, reward = parts[of].to_numpy(dtype=float), parts["reward"].to_numpy(dtype=float)
    weights = np.linalg.lstsq(filled, reward, rcond=None)[0]
    if np.abs(filled @ weights - reward).max() > 1e-4 * (1 + np.abs(reward).max()):
        return None  # another rule made the reward
    by_group = parts.groupby(["step", "group_id"])
    spread = (by_group[of].max() - by_group[of].min()) * np.abs(weights)
    size = (parts["advantage"].abs() * parts["n_rows"]).groupby([parts["step"], parts["group_id"]]).sum()
    differs = spread.to_numpy() > _SAME
    main = int(np.argmax((filled * weights).var(axis=0)))
    alone = {at: pd.Series(differs[:, at] & (differs.sum(axis=1) == 1), size.index) for at in range(len(names))}
    shares = {at: float(size[here].sum() / size.sum()) for at, here in alone.items() if at != main and size.sum() > 0}
    if not shares:
        return None
    at, share = max(shares.items(), key=lambda each: each[1])
    return MarkReading(
        share, f"{percent(share)} of |A| is of groups that differ in {names[at]} only",
        steps_with(alone[at].groupby("step").sum()), (names[at],),
    )  # fmt: skip


@mark(needs=_ADVANTAGES, limit=50.0)
def giant_advantage(evidence: LogEvidence) -> MarkReading | None:
    """One response's advantage is far larger than the usual ones."""
    rows = responses_with_advantage(evidence)
    rows = rows[rows["constant"] & (rows["advantage"].abs() > _SAME)]
    if len(rows) < _FEWEST:
        return None
    size = rows["advantage"].abs()
    giants = rows[size > 50 * size.median()]
    value = float(size.max() / size.median())
    return MarkReading(
        value, f"the largest is {number(value)} × the median",
        steps_with(giants.groupby("step").size()), ("advantage",), first_of(giants),
    )  # fmt: skip


@mark(needs=(*_ADVANTAGES, ("steps.grad_norm",)), limit=3.0)
def gradient_of_giant_advantage(evidence: LogEvidence) -> MarkReading | None:
    """The gradient's norm jumps in the steps with a far larger advantage."""
    there = evidence.steps["step"].isin(giant_advantage(evidence).reading.steps)
    norm = evidence.steps["grad_norm"]
    if not there.any() or not norm[~there].median() > 0:
        return None
    value = float(norm[there].max() / norm[~there].median())
    return MarkReading(value, f"grad_norm there is {number(value)} × its median")


# Turns ----------------------------------------------------------------------------------------------------------------


def _turns(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each turn of the responses with several: low, high, mean, n; `last`: its response's last one."""

    def made() -> pd.DataFrame:
        turns = evidence.frame(
            "select step, seq_id, turn, min(advantage)::double as low, max(advantage)::double as high, "
            "avg(advantage::double) as mean, count(*) as n from token "
            "where isfinite(advantage) and turn is not null group by all order by all"
        )
        of = turns.groupby(["step", "seq_id"])["turn"]
        turns["last"] = turns["turn"] == of.transform("max")
        return turns[of.transform("size") > 1].reset_index(drop=True)

    return evidence.once("turns of responses with several", made)


@mark(needs=_TURNS, limit=0.5)
def advantage_in_last_turn_only(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is 0 in all turns of a response but its last one."""
    turns = _turns(evidence)
    zero = (turns["low"] == 0) & (turns["high"] == 0)
    of = [turns["step"], turns["seq_id"]]
    before = (zero | turns["last"]).groupby(of).all()
    last = (~zero & turns["last"]).groupby(of).any()
    credited = (~zero).groupby(of).any()
    if credited.sum() < _FEWEST:
        return None
    found = (before & last)[credited]
    rows = found[found].reset_index()
    return MarkReading(
        float(found.mean()), f"{percent(found.mean())} of the responses of several turns have an advantage in the last "
        "turn only", steps_with(rows.groupby("step").size()), ("advantage", "turn"), first_of(rows),
    )  # fmt: skip


@mark(needs=_TURNS, limit=0.99)
def advantage_drifts_by_turn(evidence: LogEvidence) -> MarkReading | None:
    """The advantage changes from turn to turn by the same amounts in every response."""
    turns = _turns(evidence)
    if len(turns) < _FEWEST or not (turns["high"] - turns["low"] <= _SAME * (1 + turns["high"].abs())).all():
        return None
    first = turns.groupby(["step", "seq_id"])[["turn", "mean"]].transform("first")
    change = (turns["mean"] - first["mean"])[turns["turn"] > first["turn"]]
    keys = [turns["turn"][change.index], first["turn"][change.index]]
    within = change - change.groupby(keys).transform("mean")
    total = float((change**2).sum())
    if not total > (_ZERO * float(turns["mean"].abs().mean())) ** 2 * len(change):
        return MarkReading(0.0, "")
    amount = float(change.groupby(keys).mean().abs().max())
    return MarkReading(
        1 - float((within**2).sum()) / total,
        f"it moves by up to {number(amount)} between turns, alike in all responses", (), ("advantage", "turn"),
    )  # fmt: skip


@mark(needs=(("advantage",), ("position",)), limit=0.3)
def advantage_ends_early(evidence: LogEvidence) -> MarkReading | None:
    """A response's first tokens have one advantage, and several tokens up to its end have none."""
    rows = _ends(evidence)
    if len(rows) < _FEWEST:
        return None
    early = rows["first_zero"].notna() & (rows["first_zero"] > rows["last_credit"]) & (rows["n_zero"] > 1)
    early &= rows["high"] - rows["low"] <= _SAME * (1 + rows["high"].abs())
    found = rows[early]
    tokens = float(found["n_zero"].sum() / found["n"].sum()) if len(found) else 0.0
    return MarkReading(
        float(early.mean()),
        f"in {percent(early.mean())} of the responses the last tokens, {percent(tokens)} of them, have no advantage",
        steps_with(found.groupby("step").size()), ("advantage",), first_of(found),
    )  # fmt: skip


@mark(needs=_TURNS, limit=0.8)
def credit_as_long_as_last_turn(evidence: LogEvidence) -> MarkReading | None:
    """As many tokens at the beginning of a response have an advantage as its last turn has."""
    turns, rows = _turns(evidence), _ends(evidence)
    rows = rows.merge(turns.loc[turns["last"], ["step", "seq_id", "n"]].rename(columns={"n": "n_last"}))
    if len(rows) < _FEWEST:
        return None
    same = (rows["n"] - rows["n_zero"] == rows["n_last"]) & (rows["n_zero"] > 0)
    return MarkReading(float(same.mean()), "as many tokens at the beginning have one as the last turn has")


def _ends(evidence: LogEvidence) -> pd.DataFrame:
    """Responses with an advantage: where it is 0 first and other than 0 last, and its range where it is not 0."""
    return evidence.once(
        "where advantages end",
        lambda: evidence.frame(
            """
            select step, seq_id, count(*) as n, count(*) filter (advantage = 0) as n_zero,
                min(position) filter (advantage = 0) as first_zero,
                max(position) filter (advantage <> 0) as last_credit,
                min(advantage::double) filter (advantage <> 0) as low,
                max(advantage::double) filter (advantage <> 0) as high
            from token where isfinite(advantage) group by all having count(*) filter (advantage <> 0) > 0 order by all
            """
        ),
    )


# Causes ---------------------------------------------------------------------------------------------------------------

_STATED = (another_kind_is_stated,)

cause(
    "step_baseline", F.CREDIT, "Advantages have one baseline for the whole step, not one for each prompt group",
    requires=(advantage_of_equal_rewards, advantage_by_step), refutes=(advantage_is_the_reward, *_STATED),
    do="Take mean and deviation of rewards over the responses of one prompt.", explains=("advantages",),
    reports=("slime #1918", "slime #1414"),
)  # fmt: skip
cause(
    "prompt_baseline", F.CREDIT, "Advantages compare responses of two groups of one prompt",
    requires=(advantage_of_equal_rewards, advantage_by_prompt), refutes=(advantage_by_step, *_STATED),
    do="Key the baseline by the group, or log both groups under one group_id if they are meant to be one.",
    explains=("advantages",), reports=("NeMo-RL #3882", "miles #1325"),
)  # fmt: skip
cause(
    "batch_axis", F.CREDIT, "Advantages compare responses across groups: the baseline is over the wrong axis",
    requires=(advantage_of_equal_rewards, advantage_by_place_in_group),
    refutes=(advantage_by_step, advantage_by_prompt, *_STATED),
    do="Reshape rewards to (groups, responses) and take the baseline over responses.", explains=("advantages",),
)  # fmt: skip
cause(
    "whitened_again", F.CREDIT, "Advantages of all groups are moved together, as whitening them again does",
    requires=(advantage_moved_by_step,), refutes=(advantage_by_step, advantage_is_the_reward, *_STATED),
    do="Leave out the second whitening, or name the kind of advantage in algorithm.parts.",
    explains=("advantages",), reports=("gem #113", "reskill #12"),
)  # fmt: skip
cause(
    "fixed_stride", F.CREDIT, "Baselines are of blocks of a fixed size, which cut through groups",
    requires=(advantage_of_a_stride,), refutes=(advantage_by_step, advantage_is_the_reward, *_STATED),
    do="Key the baseline by the group of a response, not by its row.", explains=("advantages",),
    reports=("AReaL #1419",),
)  # fmt: skip
cause(
    "another_kind", F.CREDIT, "Advantages are of another kind than the manifest says",
    requires=(advantage_of_another_kind,),
    do="Compare the setting that divides by the group's deviation with algorithm.parts.advantage.",
    reports=("rllm #447",),
)  # fmt: skip
cause(
    "discounted", F.CREDIT, "Advantages are discounted token by token from the end of a response",
    requires=(advantage_discounted,), refutes=_STATED,
    do="Discount by 1, or name the kind of advantage in algorithm.parts.", explains=("advantages",),
    reports=("TorchRL #3679",),
)  # fmt: skip
cause(
    "bare_reward", F.CREDIT, "The advantage has no baseline", requires=(advantage_is_the_reward,),
    refutes=(groups_of_one_response, *_STATED), do="Subtract the mean reward of the prompt group.",
    explains=("advantages", "zero_signal"),
)  # fmt: skip
cause(
    "single_responses", F.CREDIT, "Each response is a prompt group of its own, so the advantage has no baseline",
    requires=(groups_of_one_response, advantage_is_the_reward), refutes=_STATED,
    do="Give all responses to one prompt the same group_id before advantages are computed.",
    explains=("advantages", "zero_signal"), reports=("rllm #776",),
)  # fmt: skip
cause(
    "single_responses_cancel", F.CREDIT, "Each response is a prompt group of its own, so its advantage is 0",
    requires=(groups_of_one_response, advantage_is_zero), refutes=_STATED,
    do="Give all responses to one prompt the same group_id before advantages are computed.",
    explains=("advantages", "zero_signal"),
)  # fmt: skip
cause(
    "advantages_of_other_responses", F.CREDIT, "Advantages belong to other responses than rewards do",
    requires=(advantage_unlike_the_reward, advantage_of_another_row), supports={advantage_of_the_neighbour: 0.5},
    refutes=_STATED, do="Reorder advantages, rewards and responses together where a batch is resampled or split.",
    severity=Severity.CRITICAL, explains=("advantages",), reports=("verl #7956",),
)  # fmt: skip
cause(
    "kl_in_advantage", F.CREDIT, "A KL penalty is in the advantage and not in the logged reward",
    requires=(advantage_of_equal_rewards, advantage_follows_kl), refutes=(advantage_by_step,),
    do="Log the reward with its penalty, or move the penalty into the loss.", severity=Severity.NOTICE,
    explains=("advantages",),
)  # fmt: skip
cause(
    "length_in_advantage", F.CREDIT, "A length term is in the advantage and not in the logged reward",
    requires=(advantage_of_equal_rewards, advantage_follows_length), refutes=(advantage_by_step, advantage_follows_kl),
    do="Log the reward with its length term, and the term as reward_length.", severity=Severity.NOTICE,
    explains=("advantages",),
)  # fmt: skip
cause(
    "side_part", F.CREDIT, "A secondary part of the reward drives learning where the task has no signal",
    requires=(advantage_from_a_side_part,),
    do="Apply the part only in groups whose task reward differs, or lower its weight.",
    reports=("NeMo-RL #2431", "OpenRLHF #1270"),
)  # fmt: skip
cause(
    "giant", F.CREDIT, "One advantage dominates an update", requires=(giant_advantage, gradient_of_giant_advantage),
    do="Look at the reward of the example row, and bound rewards or advantages.",
)  # fmt: skip
cause(
    "last_turn_only", F.CREDIT, "Credit does not reach the turns before the last one",
    requires=(advantage_in_last_turn_only,),
    do="Give the response's advantage to the sampled tokens of all its turns.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip
cause(
    "credit_ends_early", F.CREDIT, "Credit ends before the response does", requires=(advantage_ends_early,),
    supports={credit_as_long_as_last_turn: 1.0}, refutes=(advantage_of_another_row,),
    do="Build the mask of advantages over all tokens of the response, turns before the last one included.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip
cause(
    "credit_drifts", F.CREDIT, "The advantage depends on the turn, whatever the response earned",
    requires=(advantage_drifts_by_turn,), do="Add the reward of a response once, not once more for each turn.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip

_BASELINES = ("step_baseline", "prompt_baseline", "batch_axis", "whitened_again", "discounted", "bare_reward",
              "single_responses", "single_responses_cancel")  # fmt: skip


@check(order=225, needs=(("advantage",),))
def credit(evidence: LogEvidence) -> list[Finding]:
    """Which baseline advantages have, whose they are, and which tokens they reach."""
    other = evidence.problems(sequence_rows, prompts)
    if other:
        return not_checked(f"Groups are not what they seem: {', '.join(other)}.")
    found = findings_of(F.CREDIT, evidence, severity=lambda suspect: _severity(evidence, suspect))
    rows = responses_with_advantage(evidence)
    if not found and len(rows) < _FEWEST:
        return not_checked(f"Fewer than {_FEWEST} responses have an advantage.")
    return found or passed(f"The advantages of {len(rows):,} responses show no known fault of baseline, row or turn.")


def _severity(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A baseline of its own is a fault where the run says that the responses of a group are compared."""
    if suspect.cause.name in _BASELINES and not _compares(evidence):
        return Severity.NOTICE
    return suspect.cause.severity
