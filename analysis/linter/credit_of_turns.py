"""Marks of the tokens and turns of a response that its advantage reaches, and where it changes."""

from math import inf

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.credited import (
    FEWEST_RESPONSES,
    IN_GROUPS,
    SAME,
    SOME,
    ZERO,
    explained_by,
    formulas_of,
    has_critic,
    responses_with_advantage,
    scored_responses,
    within_group,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.not_drawn import FAILED_REASON

_TURNS: tuple[Need, ...] = (("advantage",), ("turn",))
_TO_THE_END: tuple[Need, ...] = (
    ("advantage",), ("position",), ("sequences.reward",), ("sequences.n_tokens",),
    ("sequences.truncated", "sequences.finish_reason"),
)  # fmt: skip
_SURE = 3.0
"""Standard errors."""
_FEW = 1 / 8
"""Of the positions: where parts of responses begin. Advantages that are discounted or of tokens change at more."""
_MOST_NAMED = 3
_TOOL = "tool|function"
"""In reasons to finish: a tool has the last word. If it broke, that is a reason to learn nothing."""


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
    if credited.sum() < FEWEST_RESPONSES:
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
    if len(turns) < FEWEST_RESPONSES or not (turns["high"] - turns["low"] <= SAME * (1 + turns["high"].abs())).all():
        return None
    first = turns.groupby(["step", "seq_id"])[["turn", "mean"]].transform("first")
    change = (turns["mean"] - first["mean"])[turns["turn"] > first["turn"]]
    keys = [turns["turn"][change.index], first["turn"][change.index]]
    within = change - change.groupby(keys).transform("mean")
    total = float((change**2).sum())
    if not total > (ZERO * float(turns["mean"].abs().mean())) ** 2 * len(change):
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
    if len(rows) < FEWEST_RESPONSES:
        return None
    early = rows["first_zero"].notna() & (rows["first_zero"] > rows["last_credit"]) & (rows["n_zero"] > 1)
    early &= rows["high"] - rows["low"] <= SAME * (1 + rows["high"].abs())
    found = rows[early]
    tokens = float(found["n_zero"].sum() / found["n"].sum()) if len(found) else 0.0
    return MarkReading(
        float(early.mean()),
        f"in {percent(early.mean())} of the responses the last tokens, {percent(tokens)} of them, have no advantage",
        steps_with(found.groupby("step").size()), ("advantage",), first_of(found),
    )  # fmt: skip


@mark(needs=(*IN_GROUPS, ("sequences.finish_reason", "sequences.n_tool_calls")), limit=0.8)
def advantage_lost_behind_a_tool(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is 0 in responses that end with a tool's turn and not in the others, where rewards differ."""
    rows = scored_responses(evidence)
    rows = rows.head(0) if evidence.spreads_groups else rows[rows["grouped"]]
    rows = rows[within_group(rows, "reward").abs() > SAME]
    if len(rows) < 2 * FEWEST_RESPONSES:
        return None
    zero = rows["advantage"].abs() <= ZERO * float(rows["advantage"].abs().mean())
    if zero.sum() < FEWEST_RESPONSES:
        return MarkReading(0.0, "")
    rows = rows.assign(zero=zero).merge(_endings(evidence), on=["step", "seq_id"])
    best = MarkReading(0.0, "")
    for column in ("by_reason", "by_calls"):
        known = rows[rows[column].notna() & ~rows["cut_off"]]
        ends = known[column].astype(bool)
        if min(ends.sum(), (~ends).sum()) < FEWEST_RESPONSES:
            continue
        there, elsewhere = float(known["zero"][ends].mean()), float(known["zero"][~ends].mean())
        if there - elsewhere > best.value:
            found = known[ends & known["zero"]]
            best = MarkReading(
                there - elsewhere,
                f"it is 0 in {percent(there)} of {ends.sum():,}, in {percent(elsewhere)} of others",
                steps_with(found.groupby("step").size()), ("advantage",), first_of(found),
            )  # fmt: skip
    return best


@mark(needs=(*IN_GROUPS, ("sequences.finish_reason", "sequences.n_tool_calls")), limit=0.3)
def reward_lost_behind_a_tool(evidence: LogEvidence) -> MarkReading | None:
    """Advantages are what rewards give where those of responses that end with a tool's turn are taken as 0."""
    rows = scored_responses(evidence)
    rows = rows.head(0) if evidence.spreads_groups else rows[rows["grouped"]]
    if len(rows) < 2 * FEWEST_RESPONSES:
        return None
    own = max(explained_by(rows, formulas_of(rows)))
    if not own < 1 - SOME:
        return MarkReading(0.0, "")
    rows = rows.merge(_endings(evidence), on=["step", "seq_id"])
    best = MarkReading(0.0, "")
    for column in ("by_reason", "by_calls"):
        ends = rows[column].fillna(False).astype(bool) & ~rows["cut_off"]
        lost = ends & (rows["reward"].abs() > SAME)
        if min(lost.sum(), (~ends).sum()) < FEWEST_RESPONSES:
            continue
        without = max(explained_by(rows, formulas_of(rows.assign(reward=rows["reward"].where(~ends, 0.0)))))
        if without > 1 - SOME and without - own > best.value:
            best = MarkReading(
                without - own,
                f"{percent(without)} of the advantages are what rewards then give, {percent(own)} otherwise",
                steps_with(rows[lost].groupby("step").size()), ("advantage",), first_of(rows[lost]),
            )  # fmt: skip
    return best


def _endings(evidence: LogEvidence) -> pd.DataFrame:
    """Which responses a tool ended, by each column that tells: by_reason, by_calls; and which were cut off."""

    def made() -> pd.DataFrame:
        rows = evidence.frame(
            """
            select step, seq_id, lower(finish_reason) as reason, n_tool_calls::double as calls,
                n_turns::double as turns,
                coalesce(truncated, false) or coalesce(finish_reason = 'length', false) as cut_off
            from sequence
            """
        )
        reason = rows["reason"].astype(object)
        tool = reason.str.contains(_TOOL, na=False) & ~reason.str.contains(FAILED_REASON, na=False)
        # Who calls a tool in each message calls one in the last.
        counted = np.isfinite(rows["calls"]) & (rows["turns"] > 0)
        return rows.assign(
            by_reason=tool.astype(object).where(reason.notna()),
            by_calls=(rows["calls"] >= rows["turns"]).astype(object).where(counted),
        )

    return evidence.once("how responses end", made)


@mark(needs=(("advantage",), ("position",)), limit=0.9)
def advantage_changes_at_a_position(evidence: LogEvidence) -> MarkReading | None:
    """Inside of turns the advantage changes at the same few positions in all responses; share of its changes."""
    if responses_with_advantage(evidence)["constant"].mean() > 0.5:
        return MarkReading(0.0, "")
    of = evidence.frame(
        """
        with of as (
            select position, advantage::double as advantage, turn,
                lag(advantage::double) over before as earlier, lag(turn) over before as earlier_turn
            from token where isfinite(advantage) window before as (partition by step, seq_id order by position)
        )
        select position, count(*) as n, count(*) filter (abs(advantage - earlier) > 1e-5 * (1 + abs(earlier))) as moved
        from of where earlier is not null and turn is not distinct from earlier_turn group by all order by all
        """
    )
    of = of[of["n"] >= FEWEST_RESPONSES]
    if not len(of):
        return None
    found = of[of["moved"] > (1 - SOME) * of["n"]]
    if not len(found) or len(found) > _FEW * len(of):
        return MarkReading(0.0, "")
    at = listed([f"{position:,}" for position in found["position"].head(_MOST_NAMED)])
    also = f" and {len(found) - _MOST_NAMED:,} others" if len(found) > _MOST_NAMED else ""
    return MarkReading(
        float(found["moved"].sum() / of["moved"].sum()),
        f"in all responses they change at position {at}{also}",
        evidence.all_steps, ("advantage", "position"),
    )  # fmt: skip


@mark(needs=_TO_THE_END, limit=0.5)
def advantage_high_at_ends(evidence: LogEvidence) -> MarkReading | None:
    """Of a critic: finished responses of little reward end on a larger advantage than good ones have in their first
    half.

    A critic that foresees the reward on average gives the former a last advantage below 0, and the latter one above 0.
    """
    rows = _finished(evidence)
    if rows is None:
        return None
    steps = np.sort(rows["step"].unique())
    late = rows["step"] > steps[len(steps) // 2]
    found = []
    for part in (rows[late], rows[~late]):  # a critic is wrong before it has learned
        worse, better = part[part["worse"] & ~part["cut"]]["last"], part[part["better"]]["early"]
        if min(len(worse), len(better)) < FEWEST_RESPONSES:
            return None
        noise = (worse.var() / len(worse) + better.var() / len(better)) ** 0.5
        found.append(worse.mean() - better.mean() - _SURE * noise)
    worse, better = rows[rows["worse"] & ~rows["cut"]], rows[rows["better"]]
    return MarkReading(
        float(min(found)),
        f"worse ones {number(float(worse['last'].mean()), digits=2)} deviations above the mean, the first half of "
        f"better ones {number(float(better['early'].mean()), digits=2)}",
        steps_with(worse.groupby("step").size()), ("advantage",), first_of(worse),
    )  # fmt: skip


@mark(needs=_TO_THE_END, limit=0.7)
def cut_off_ends_lack_it(evidence: LogEvidence) -> MarkReading | None:
    """Responses that the length limit cut end without that advantage: nothing follows them; share of it that they
    lack."""
    if not advantage_high_at_ends(evidence).present or (rows := _finished(evidence)) is None:
        return None
    worse = rows[rows["worse"]]
    cut, ended = worse[worse["cut"]]["last"], worse[~worse["cut"]]["last"]
    if len(cut) < FEWEST_RESPONSES:
        return None
    noise = (cut.var() / len(cut) + ended.var() / len(ended)) ** 0.5
    lacking = float(ended.mean() - cut.mean())
    usual = float(ended.mean() - rows[rows["better"]]["early"].mean())
    return MarkReading(
        (lacking - _SURE * float(noise)) / usual,
        f"worse ones that the length limit cut end on {number(float(cut.mean()), digits=2)}",
    )  # fmt: skip


def _finished(evidence: LogEvidence) -> pd.DataFrame | None:
    """Of a critic's advantages, in deviations of their step: the last one of a response, and the mean of its first
    half; `worse` and `better` than its step's mean reward, and `cut` at the length limit. None: of no critic."""

    def made() -> pd.DataFrame | None:
        if not has_critic(evidence) or responses_with_advantage(evidence)["constant"].mean() > 0.5:
            return None
        rows = evidence.frame(
            """
            with of as (
                select step, avg(advantage::double) as mean, stddev_pop(advantage::double) as deviation
                from token where isfinite(advantage) group by step
            ), response as (
                select t.step, t.seq_id, arg_max(t.advantage::double, t.position) as last,
                    avg(t.advantage::double) filter (t.position < s.n_tokens / 2) as early,
                    any_value(s.reward::double) as reward, any_value(coalesce(s.truncated, false)
                        or coalesce(s.finish_reason = 'length', false)) as cut
                from token as t join sequence as s using (step, seq_id)
                where isfinite(t.advantage) and isfinite(s.reward) and s.dropped is null group by t.step, t.seq_id
            )
            select step, seq_id, reward, cut, (last - mean) / deviation as last, (early - mean) / deviation as early
            from response join of using (step) where deviation > 0 order by step, seq_id
            """
        )
        above = rows["reward"] - rows["reward"].groupby(rows["step"]).transform("mean")
        # Finishing may be worth something: those that earned more than what is cut off are not called worse.
        most = rows["reward"][rows["cut"]].mean() if rows["cut"].any() else inf
        return rows.assign(worse=(above < -SAME) & (rows["reward"] <= most + SAME), better=above > SAME)

    return evidence.once("ends of responses under a critic", made)


@mark(needs=_TURNS, limit=0.8)
def credit_as_long_as_last_turn(evidence: LogEvidence) -> MarkReading | None:
    """As many tokens at the beginning of a response have an advantage as its last turn has."""
    turns, rows = _turns(evidence), _ends(evidence)
    rows = rows.merge(turns.loc[turns["last"], ["step", "seq_id", "n"]].rename(columns={"n": "n_last"}))
    if len(rows) < FEWEST_RESPONSES:
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
