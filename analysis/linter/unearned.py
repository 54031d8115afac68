"""Marks of advantages that the reward of their own response does not explain.

They are another response's, have a term that the logged reward lacks, follow one side part of it, or are giant.
"""

from itertools import product
from math import inf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    FEWEST_RESPONSES,
    IN_GROUPS,
    SAME,
    SOME,
    WITH_ADVANTAGES,
    ZERO,
    equal_groups,
    explained_by,
    formulas_of,
    responses_with_advantage,
    rule_tolerance,
    scored_responses,
    whole_groups,
    within_group,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.runs.relations import quoted

_OF_SIZE = 0.5
"""R² of a part of the reward on the sizes of a response from which on it is one of them, and not the task."""
_MOST_OF_TOKENS, _WIDER = 0.6, 5.0
"""Of an environment with nearly all advantages: its share of the tokens at most, and how far its rewards spread."""


@mark(needs=IN_GROUPS, limit=0.8)
def advantage_unlike_the_reward(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the advantage does not go with the reward, in neither direction."""
    rows = scored_responses(evidence)
    rows = rows[rows["grouped"]]
    r, a = within_group(rows, "reward"), within_group(rows, "advantage")
    sums = pd.DataFrame({"ra": r * a, "rr": r * r, "aa": a * a}).groupby(rows["group"]).sum()
    sums = sums[(sums["rr"] > SAME) & (sums["aa"] > SAME)]
    if len(sums) < FEWEST_GROUPS:
        return None
    correlation = float((sums["ra"] / (sums["rr"] * sums["aa"]) ** 0.5).mean())
    clause = f"inside groups they do not follow the reward (correlation {correlation:.2f})"
    return MarkReading(1 - abs(correlation), clause, (), ("advantage", "reward"))


@mark(needs=IN_GROUPS, limit=0.8)
def advantage_of_another_row(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is that of another response of the step: one that the rewards give there, and not here."""
    rows = scored_responses(evidence)
    if evidence.spreads_groups or len(rows) < FEWEST_RESPONSES or not rows["grouped"].all():
        return None
    advantage = rows["advantage"].to_numpy()
    signal = np.abs(advantage) > ZERO
    if signal.sum() < FEWEST_RESPONSES:
        return None
    formulas, tolerance = formulas_of(rows), rule_tolerance(rows)
    explained = explained_by(rows, formulas)
    if max(explained) > 1 - SOME:
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


@mark(needs=IN_GROUPS, limit=0.7)
def advantage_of_the_neighbour(evidence: LogEvidence) -> MarkReading | None:
    """The advantage goes with the reward of the response one row before or after, of the step or of the rank."""
    rows = scored_responses(evidence)
    if len(rows) < FEWEST_RESPONSES or not rows["grouped"].all():
        return None
    expected = within_group(rows, "reward")
    keys = [["step"], ["step", "rank"]] if rows["rank"].notna().all() else [["step"]]
    found: dict[int, float] = {}
    for key, by in product(keys, (1, -1)):
        moved = expected.groupby([rows[name] for name in key]).shift(by)
        there = moved.notna() & (moved.std() > 0)
        found[by] = max(found.get(by, -1.0), float(moved[there].corr(rows["advantage"][there])))
    by, best = max(found.items(), key=lambda each: each[1])
    where = "before" if by > 0 else "after"
    return MarkReading(best, f"they follow the reward of the response one row {where} (correlation {best:.2f})")


@mark(needs=(*IN_GROUPS, ("logp_reference",)), limit=0.9)
def advantage_follows_kl(evidence: LogEvidence) -> MarkReading | None:
    """In groups of equal reward the advantage falls with the response's KL to the reference."""
    kl = evidence.frame(
        "select step, seq_id, -sum(coalesce(logp_current, logp_sampled)::double - logp_reference::double) as term "
        "from usable where isfinite(logp_reference) group by all"
    )
    return _hidden_term(evidence, kl, "the KL to the reference")


@mark(needs=(*IN_GROUPS, ("sequences.n_tokens", "position")), limit=0.9)
def advantage_follows_length(evidence: LogEvidence) -> MarkReading | None:
    """In groups of equal reward the advantage falls with the response's length."""
    rows = responses_with_advantage(evidence)
    return _hidden_term(evidence, rows[["step", "seq_id"]].assign(term=-rows["n_tokens"].astype(float)), "the length")


def _hidden_term(evidence: LogEvidence, terms: pd.DataFrame, words: str) -> MarkReading | None:
    groups = equal_groups(evidence)
    credited = groups.loc[groups["credited"], ["step", "group_id"]]
    if len(credited) < FEWEST_GROUPS:
        return None
    rows = whole_groups(evidence).merge(credited, on=["step", "group_id"]).merge(terms, on=["step", "seq_id"])
    a, x = within_group(rows, "advantage"), within_group(rows, "term")
    sums = pd.DataFrame({"ax": a * x, "aa": a * a, "xx": x * x}).groupby(rows["group"]).sum()
    sums = sums[(sums["aa"] > SAME**2) & (sums["xx"] > SAME**2)]
    if len(sums) < FEWEST_GROUPS:
        return None
    found = float((sums["ax"] / (sums["aa"] * sums["xx"]) ** 0.5).mean())
    return MarkReading(found, f"where rewards are equal they fall with {words} (correlation {-found:.2f})")


@mark(needs=IN_GROUPS, limit=0.5)
def advantage_from_a_side_part(evidence: LogEvidence) -> MarkReading | None:
    """Most of |A| comes from groups that differ in one secondary part of the reward alone, such as a length penalty."""
    columns = map(str, evidence.frame("select * from sequence limit 0").columns)
    names = [name for name in columns if name.startswith("reward_")]
    if len(names) < 2 or evidence.spreads_groups:
        return None
    values = ", ".join(f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(names))
    parts = scored_responses(evidence).merge(evidence.frame(f"select step, seq_id, {values} from sequence"))
    parts = parts[parts["grouped"]].dropna(subset=[f"part_{at}" for at in range(len(names))])
    if len(parts) < FEWEST_RESPONSES:
        return None
    of = [f"part_{at}" for at in range(len(names))]
    filled, reward = parts[of].to_numpy(dtype=float), parts["reward"].to_numpy(dtype=float)
    weights = np.linalg.lstsq(filled, reward, rcond=None)[0]
    if np.abs(filled @ weights - reward).max() > 1e-4 * (1 + np.abs(reward).max()):
        return None  # another rule made the reward
    by_group = parts.groupby(["step", "group_id"])
    spread = (by_group[of].max() - by_group[of].min()) * np.abs(weights)
    size = (parts["advantage"].abs() * parts["n_rows"]).groupby([parts["step"], parts["group_id"]]).sum()
    differs = spread.to_numpy() > SAME
    # A length or a number of calls is not what a task is about, however much it varies.
    spreads = (filled * weights).var(axis=0)
    task = np.where(_by_size(evidence, parts, filled) < _OF_SIZE, spreads, 0.0)
    main = int(np.argmax(task if task.any() else spreads))
    alone = {at: pd.Series(differs[:, at] & (differs.sum(axis=1) == 1), size.index) for at in range(len(names))}
    shares = {at: float(size[here].sum() / size.sum()) for at, here in alone.items() if at != main and size.sum() > 0}
    if not shares:
        return None
    at, share = max(shares.items(), key=lambda each: each[1])
    return MarkReading(
        share, f"{percent(share)} of |A| is of groups that differ in {names[at]} only",
        steps_with(alone[at].groupby("step").sum()), (names[at],),
    )  # fmt: skip


def _by_size(evidence: LogEvidence, rows: pd.DataFrame, parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the variance of each part that a line of the response's tokens, turns and tool calls explains."""
    of = rows[["step", "seq_id"]].merge(
        evidence.frame("select step, seq_id, n_tokens, n_turns, n_tool_calls from sequence"), on=["step", "seq_id"]
    )
    sizes = of[["n_tokens", "n_turns", "n_tool_calls"]].astype(float).dropna(axis=1)
    design = np.column_stack([np.ones(len(of)), sizes.to_numpy()])
    left = parts - design @ np.linalg.lstsq(design, parts, rcond=None)[0]
    spread = parts.var(axis=0)
    return np.where(spread > SAME**2, 1 - left.var(axis=0) / np.maximum(spread, SAME**2), 0.0)


@mark(needs=WITH_ADVANTAGES, limit=50.0)
def giant_advantage(evidence: LogEvidence) -> MarkReading | None:
    """One response's advantage is far larger than the usual ones."""
    rows = responses_with_advantage(evidence)
    rows = rows[rows["constant"] & (rows["advantage"].abs() > SAME)]
    if len(rows) < FEWEST_RESPONSES:
        return None
    size = rows["advantage"].abs()
    giants = rows[size > 50 * size.median()]
    value = float(size.max() / size.median())
    return MarkReading(
        value, f"the largest is {number(value)} × the median",
        steps_with(giants.groupby("step").size()), ("advantage",), first_of(giants),
    )  # fmt: skip


@mark(needs=(*WITH_ADVANTAGES, ("steps.grad_norm",)), limit=3.0)
def gradient_of_giant_advantage(evidence: LogEvidence) -> MarkReading | None:
    """The gradient's norm jumps in the steps with a far larger advantage."""
    there = evidence.steps["step"].isin(giant_advantage(evidence).reading.steps)
    norm = evidence.steps["grad_norm"]
    if not there.any() or not norm[~there].median() > 0:
        return None
    value = float(norm[there].max() / norm[~there].median())
    return MarkReading(value, f"grad_norm there is {number(value)} × its median")


@mark(needs=(*IN_GROUPS, ("sequences.environment",)), limit=0.8)
def one_environment_has_the_advantages(evidence: LogEvidence) -> MarkReading | None:
    """One environment with at most six tenths of the tokens has nearly all of Σ|A|, by rewards that spread over a far
    wider range; its share."""
    rows = scored_responses(evidence)
    names = evidence.frame("select step, seq_id, any_value(environment) as environment from sequence group by all")
    rows = rows.merge(names, on=["step", "seq_id"])
    rows = rows[rows["grouped"] & rows["environment"].notna()]
    rows = rows.assign(
        spread=within_group(rows, "reward").abs(),
        size=rows["advantage"].abs() * rows["n_rows"],
    )
    of = rows.groupby("environment").agg(
        spread=("spread", "mean"), size=("size", "sum"), n=("n_rows", "sum"), responses=("size", "count")
    )
    of = of[of["responses"] >= FEWEST_RESPONSES]
    if len(of) < 2 or not of["size"].sum() > 0:
        return None
    share, tokens = of["size"] / of["size"].sum(), of["n"] / of["n"].sum()
    name = str(share.idxmax())
    times = float(of["spread"][name] / of["spread"].drop(name).max())
    if tokens[name] > _MOST_OF_TOKENS or not _WIDER < times < inf:
        return MarkReading(0.0, "")
    return MarkReading(
        float(share[name]),
        f"{name} has {percent(float(tokens[name]))} of the tokens and {percent(float(share[name]))} of the advantages; "
        f"its rewards spread {number(times)} × as far as those of any other",
        (), ("advantage",), first_of(rows[rows["environment"] == name]), place=name,
    )  # fmt: skip
