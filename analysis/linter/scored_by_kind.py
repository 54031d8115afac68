"""Marks of a scorer that does not look at some responses: beyond a length, with a sign, form or line break in them, or
of one kind.

They are read off rewards and texts, and need no token.
"""

from collections.abc import Iterator
from math import log10

import numpy as np
import pandas as pd
from scipy.special import gammaln

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.watched import reward_parts
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import FEWEST_OF_EITHER
from ratioscope.analysis.linter.reward_parts import parts_of_responses

_FEWEST_ROWS = 200
_LEAST_TAIL = 0.03
"""Share of the responses that lies beyond a length."""
_BESIDE, _MOST_BESIDE, _AS_MUCH = 100, 0.6, 0.6
"""Responses just below the length; the share of them that may score the least, too; and how much those next to it earn
of what all of them do."""
_FEWEST_LENGTHS = 5
_GRADED, _FEWEST_OF_KIND = 10, 60
"""Different values of a score that is graded, and responses of a kind."""
_FEWEST_ABOVE, _FEWEST_BELOW = 0.25, 6
"""Share of the others that earn more than a cap, and values at and below it: what has a few is graded by levels."""
_LEAST_EARNING = 0.2
_SIGNS = "$\\{`*#<[(=|%,/"
"""What answers are set apart or written with."""
_FORMS = {"\\": "\\boxed{}", "#": "####", "<": "<answer>"}
"""Forms in which answers are given, by the sign that they begin with; what begins with another one is "Answer:"."""
_FORM = r"(?s)^.*(\\(?:boxed|fbox)\s*\{|####[^\n]*\s*$|</?answer>|(?i:answer)[^\w\n<>]{0,4}:)"
"""Of the end of a text: where the last form begins. Four hashes before other lines are a heading."""
_END = 400
"""Characters at the end of a text, in which answers stand."""
_FEWEST_OF_FORM, _FEWEST_OF_OTHERS, _LEAST_OF_FORM = 20, 8, 0.2
"""Responses of the form that never earns and of the others, and its share: of all, and late, when one was learned."""
_BROKEN = {
    r"contains(text, e'\n')": "of several lines",
    r"case when contains(text, '</') and contains(text, e'\n') "
    r"then contains(regexp_replace(text, '</?\w+>\s*(</?\w+>|$)', '', 'g'), e'\n') end":
        "with line breaks inside of tags",
}  # fmt: skip
"""Kinds of texts that a pattern whose dot matches no line break does not match, in SQL: those inside of tags alone,
where it allows blanks between them."""
_ONE_LINE = r"(?i)\b(one|single|same)[- ]line\b|\b(no|without|avoid) (any )?(new ?lines?|line[- ]?breaks?)\b"
"""In a prompt that asks for one line."""
_LONGEST_EARNING = 0.9
"""Quantile of the length of the others that earn: beyond it a text may earn nothing for its length."""
_LEAST_SPIKE, _TIMES_NEXT, _TIMES_BEFORE = 0.08, 4.0, 2.5
"""Share of one value inside of the range; times the share of the next one, and times what it was before."""
_AT_ONCE = 0.6
"""Of the change of a share: what comes between two steps and the next two, and in the same environments."""
_FEWEST_STEPS = 3


def columns_of_scores(evidence: LogEvidence) -> Iterator[tuple[str, str]]:
    """Names in the frame, and in the log, of the reward and its parts."""
    yield "reward", "reward"
    yield from ((f"part_{at}", name) for at, name in enumerate(reward_parts(evidence.run)))


def scored_with_parts(evidence: LogEvidence) -> pd.DataFrame:
    """The responses with a reward, with their parts, lengths and kinds."""

    def made() -> pd.DataFrame:
        more = evidence.frame(
            "select step, seq_id, length(response)::double as signs, n_tokens::double as length, "
            "coalesce(truncated, finish_reason = 'length', false) as truncated, finish_reason from sequence"
        )
        rows = parts_of_responses(evidence).merge(more, on=["step", "seq_id"])
        return rows[np.isfinite(rows["reward"])]

    return evidence.once("scored responses", made)


@mark(needs=(("sequences.reward",), ("sequences.response", "sequences.n_tokens")), limit=9.0)
def least_beyond_a_length(evidence: LogEvidence) -> MarkReading | None:
    """All responses beyond some length score the least, and those just below it do not; -log10 of the chance."""
    rows = scored_with_parts(evidence)
    unit, words = ("signs", "characters") if rows["signs"].notna().all() else ("length", "tokens")
    rows = rows[np.isfinite(rows[unit]) & ~rows["ended_badly"] & ~rows["truncated"]]
    rows = rows.sort_values([unit, "step", "seq_id"])
    if len(rows) < _FEWEST_ROWS:
        return None
    best = MarkReading(0.0, "")
    for column, name in columns_of_scores(evidence):
        of = rows[np.isfinite(rows[column])]
        if not len(of) or of[column].nunique() < 2:
            continue
        least = of[column].min()
        # A prompt that nobody solves has long responses as well.
        solved = of.assign(scores=of[column] > least).groupby(["step", "group_id"], dropna=False)["scores"]
        of = of[solved.transform("any") | of["group_id"].isna()]
        scores = (of[column] > least).to_numpy()
        if len(of) < _FEWEST_ROWS:
            continue
        last = int(scores.nonzero()[0][-1])
        limit = float(of[unit].iloc[last])
        tail = of[of[unit] > limit]
        beside = 1 - float(scores[max(last + 1 - _BESIDE, 0) : last + 1].mean())
        if len(tail) < max(FEWEST_OF_EITHER, _LEAST_TAIL * len(of)) or beside > _MOST_BESIDE:
            continue
        if tail["length"].notna().all() and tail["length"].nunique() < _FEWEST_LENGTHS:  # they end at a limit
            continue
        above = of[column].iloc[: last + 1] - least
        if above.tail(_BESIDE // 4).mean() < _AS_MUCH * above.tail(_BESIDE).mean():  # gradually less
            continue
        unlikely = -len(tail) * log10(max(beside, 1e-2))
        if unlikely > best.value:
            best = MarkReading(
                unlikely,
                f"{name} is {number(float(least))} for all {len(tail):,} responses of more than {number(limit)} "
                f"{words}, and for {percent(beside)} of those just below",
                steps_with(tail.groupby("step").size()), (name,), first_of(tail),
            )  # fmt: skip
    return best


def _kinds(rows: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[bool]"]]:
    """What is said of some responses, and which they are."""
    for turns in (1, 2):
        yield f"of {'one turn' if turns == 1 else 'two turns'}", rows["n_turns"] == turns
    for reason in rows["finish_reason"].dropna().unique():
        yield f"that end by {reason}", rows["finish_reason"] == reason


@mark(needs=(("sequences.reward",), ("sequences.n_turns", "sequences.finish_reason")), limit=0.4)
def capped_for_some(evidence: LogEvidence) -> MarkReading | None:
    """Most responses of one kind have the same score, which none of them exceeds and many others do; share of them."""
    rows = scored_with_parts(evidence)
    if len(rows) < _FEWEST_ROWS:
        return None
    best = MarkReading(0.0, "")
    for column, name in columns_of_scores(evidence):
        of = rows[np.isfinite(rows[column]) & ~rows["truncated"] & ~rows["ended_badly"]]
        of = of.assign(score=of[column].round(6))
        if of["score"].nunique() < _GRADED:
            continue
        for words, which in _kinds(of):
            own, others = of[which], of[~which]
            if min(len(own), len(others)) < _FEWEST_OF_KIND or own["score"].nunique() < _FEWEST_BELOW:
                continue
            cap = own["score"].max()
            share, above = float((own["score"] == cap).mean()), float((others["score"] > cap).mean())
            if above >= _FEWEST_ABOVE and share > best.value:
                best = MarkReading(
                    share,
                    f"{name} of responses {words} is never above {number(float(cap))}, where {percent(share)} of them "
                    f"stand; {percent(above)} of the others are above",
                    steps_with(own.groupby("step").size()), (name,), first_of(own[own["score"] == cap]),
                )  # fmt: skip
    return best


@mark(needs=(("sequences.reward",), ("sequences.response",)), limit=9.0)
def sign_never_earns(evidence: LogEvidence) -> MarkReading | None:
    """No response with some sign in its text earns anything, and of others many do, in groups of both; -log10 of the
    chance."""
    has_each = ", ".join(f"contains(response, '{sign}') as has_{at}" for at, sign in enumerate(_SIGNS))
    rows = evidence.frame(
        f"select step, seq_id, coalesce(group_id, seq_id) as group_id, reward::double as reward, {has_each} "
        "from sequence where isfinite(reward) and response is not null and dropped is null and failure is null "
        "and not coalesce(truncated, finish_reason = 'length', false) order by step, seq_id"
    )
    if len(rows) < _FEWEST_ROWS or rows["reward"].nunique() < 2:
        return None
    earns, best = rows["reward"] > rows["reward"].min(), MarkReading(0.0, "")
    for at, sign in enumerate(_SIGNS):
        has = rows[f"has_{at}"].astype(bool)
        if min(has.sum(), (~has).sum()) < FEWEST_OF_EITHER or earns[has].any():
            continue
        both = has.groupby([rows["step"], rows["group_id"]]).transform("nunique") > 1
        rate = float(earns[both & ~has].mean()) if (both & ~has).any() else 0.0
        unlikely = -int((both & has).sum()) * log10(1 - min(rate, 0.99))
        if rate >= _LEAST_EARNING and unlikely > best.value:
            with_it = rows[has]
            best = MarkReading(
                unlikely,
                f"none of {int(has.sum()):,} responses with {sign} in them earns more than "
                f"{number(float(rows['reward'].min()))}, and of the others in their groups {percent(rate)} do",
                steps_with(with_it.groupby("step").size()), ("reward",), first_of(with_it),
            )  # fmt: skip
    return best


@mark(needs=(("sequences.reward",), ("sequences.response",)), limit=4.0)
def answer_form_never_earns(evidence: LogEvidence) -> MarkReading | None:
    """In one environment no answer of one form earns more than another of it, and in the same groups those of other
    forms do; -log10 of the chance."""
    rows = evidence.frame(
        f"""
        select step, seq_id, coalesce(group_id, seq_id) as group_id, coalesce(environment, '') as environment,
            reward::double as reward, regexp_extract(right(response, {_END}), '{_FORM}', 1) as sign
        from sequence where isfinite(reward) and response is not null and dropped is null and failure is null
            and not coalesce(truncated, finish_reason = 'length', false) order by step, seq_id
        """
    )
    rows = rows[rows["sign"] != ""]
    if len(rows) < _FEWEST_OF_FORM + _FEWEST_OF_OTHERS:
        return None
    rows = rows.assign(form=rows["sign"].str[0].map(_FORMS).fillna("Answer:"))
    best = MarkReading(0.0, "")
    for name in map(str, rows["environment"].unique()):
        of = rows[rows["environment"] == name]
        for form in of["form"].unique():
            own = of["form"] == form
            value, most = _all_below(of, own), of["reward"][own].max()
            share = min(own.mean(), own.tail(len(own) // 2).mean())
            if min(own.sum() / _FEWEST_OF_FORM, (~own).sum() / _FEWEST_OF_OTHERS) < 1 or share < _LEAST_OF_FORM:
                continue
            rate = float((of["reward"][~own] > most).mean())
            if rate >= _LEAST_EARNING and value > best.value:
                found, others = of[own], sorted(of["form"][~own].unique())
                best = MarkReading(
                    value,
                    f"none of {len(found):,} responses{f' of {name}' if name else ''} with {form} earns more than "
                    f"{number(float(most))}, and of {len(of) - len(found):,} with {' or '.join(others)} "
                    f"{percent(rate)} do",
                    steps_with(found.groupby("step").size()), ("reward",), first_of(found), place=name,
                )  # fmt: skip
    return best


@mark(needs=(("sequences.reward",), ("sequences.response",)), limit=9.0)
def several_lines_never_earn(evidence: LogEvidence) -> MarkReading | None:
    """No text of several lines earns anything of a score, and in the same groups those of one line do, up to the same
    length; -log10 of the chance."""
    best = MarkReading(0.0, "")
    for broken, words in _BROKEN.items():
        found = evidence.frame(
            f"""
            with of as (
                select step, seq_id, prompt, trim(response, e' \\t\\r\\n') as text from sequence
                where response is not null and coalesce(n_turns, 1) = 1
            )
            select step, seq_id, coalesce({broken}, false) as own from of
            where not regexp_matches(coalesce(prompt, ''), '{_ONE_LINE}')
            """
        )
        if (n_own := int(found["own"].sum())) < _FEWEST_OF_KIND:
            break  # the next kind is a part of this one
        if len(found) - n_own < _FEWEST_OF_OTHERS:
            continue
        rows = scored_with_parts(evidence).merge(found, on=["step", "seq_id"])
        rows = rows[~rows["truncated"] & ~rows["ended_badly"]].sort_values(["step", "seq_id"])
        rows = rows.assign(group_id=rows["group_id"].fillna(rows["seq_id"]))
        for column, name in columns_of_scores(evidence):
            of = rows[np.isfinite(rows[column])]
            value, rate = _never_earn(of.assign(reward=of[column]), whole=column == "reward")
            if value > best.value:
                of = of[of["own"]]
                best = MarkReading(
                    value,
                    f"{name} is {number(float(of[column].iloc[0]))} for all {len(of):,} texts {words}, and more for "
                    f"{percent(rate)} of the others",
                    steps_with(of.groupby("step").size()), (name,), first_of(of),
                )  # fmt: skip
        if best.value > 0:
            break
    return best


def _never_earn(rows: pd.DataFrame, *, whole: bool) -> tuple[float, float]:
    """-log10 of the chance that no response of a kind earns anything, and the share of the others that do; 0: these are
    few, or some do."""
    own = rows["own"]
    if min(own.sum() / _FEWEST_OF_KIND, (~own).sum() / _FEWEST_OF_OTHERS) < 1 or rows["reward"][own].nunique() > 1:
        return 0.0, 0.0
    earn = rows["reward"] > rows["reward"][own].max()
    rate = float(earn[~own].mean())
    # What earns nothing at all is left in time; a part of the reward may hold nobody back.
    late = float(own.tail(len(own) // 2).mean()) if whole else 1.0
    if rate < _LEAST_EARNING or min(float(own.mean()), late) < _LEAST_OF_FORM:
        return 0.0, rate
    short = rows["signs"] <= rows["signs"][earn].quantile(_LONGEST_EARNING)
    return _all_below(rows[short], own[short]), rate


def _all_below(rows: pd.DataFrame, own: "pd.Series[bool]") -> float:
    """-log10 of the chance that those that earn more than the least are all others, if in each group any may be.

    0 where not all of these earn the same.
    """
    if rows["reward"][own].nunique() != 1:
        return 0.0
    of = rows.assign(own=own, earns=rows["reward"] > rows["reward"][own].max())
    groups = of.groupby(["step", "group_id"]).agg(size=("own", "size"), own=("own", "sum"), earn=("earns", "sum"))
    size, n_own, n_earn = groups.astype(float).to_numpy().T
    others = size - n_own
    ways = gammaln(others + 1) - gammaln(others - n_earn + 1) - gammaln(size + 1) + gammaln(size - n_earn + 1)
    return float(-ways.sum() / np.log(10))


@mark(needs=(("sequences.reward",),), limit=_TIMES_NEXT)
def one_value_since_a_step(evidence: LogEvidence) -> MarkReading | None:
    """From one step on one score inside of the range is given to many responses, and before to few; times the score
    that is next in number."""
    rows = scored_with_parts(evidence)
    if len(rows) < _FEWEST_ROWS or rows["step"].nunique() < 2 * _FEWEST_STEPS:
        return None
    best = MarkReading(0.0, "")
    for column, name in columns_of_scores(evidence):  # a part may be logged in fewer steps
        of = rows[np.isfinite(rows[column])].assign(score=rows[column].round(6))
        inside = of[(of["score"] > of["score"].min()) & (of["score"] < of["score"].max())]
        counts = inside["score"].value_counts()
        if len(of) < _FEWEST_ROWS or len(counts) < _GRADED or of["step"].nunique() < 2 * _FEWEST_STEPS:
            continue
        value = counts.index[0]
        by_step = (of["score"] == value).groupby(of["step"]).agg(["sum", "size"])
        steps, sums = by_step.index.to_numpy(), by_step.cumsum().to_numpy(float)
        n, total = len(steps), sums[-1]
        at = np.arange(_FEWEST_STEPS - 1, n - _FEWEST_STEPS)
        before, after = sums[at, 0] / sums[at, 1], (total[0] - sums[at, 0]) / (total[1] - sums[at, 1])
        place = int((after - before).argmax())
        since, share, was = int(steps[at[place] + 1]), float(after[place]), float(before[place])
        near = by_step.iloc[max(at[place] - 1, 0) : at[place] + 3]
        ends = [float(each["sum"].sum() / each["size"].sum()) for each in (near.iloc[:2], near.iloc[2:])]
        late = of[of["step"] >= since]
        others = late.loc[(late["score"] != value) & late["score"].isin(counts.index), "score"].value_counts()
        times = share * len(late) / float(others.iloc[0]) if len(others) else 0.0
        pooled = total[0] / total[1]
        error = np.sqrt(pooled * (1 - pooled) * (1 / len(late) + 1 / (len(of) - len(late))))
        clear = share - was > 6 * error and share >= max(_LEAST_SPIKE, _TIMES_BEFORE * was)
        at_once = ends[1] - ends[0] > _AT_ONCE * (share - was) and _in_each(of, value, since) > _AT_ONCE * (share - was)
        if clear and at_once and times > best.value:
            best = MarkReading(
                times,
                f"{name} is exactly {number(float(value))} in {percent(share)} of the responses from step {since} on, "
                f"in {percent(was)} before",
                steps_with(late[late["score"] == value].groupby("step").size()), (name,),
                first_of(late[late["score"] == value]),
            )  # fmt: skip
    return best


def _in_each(rows: pd.DataFrame, value: float, since: int) -> float:
    """By how much more often a score is given from a step on, at the mixture of environments since then."""
    late = rows["step"] >= since
    shares = (rows["score"] == value).groupby([rows["environment"].fillna(""), late]).agg(["mean", "size"]).unstack()
    both = shares.dropna()
    moved = both["mean"][True] - both["mean"][False]
    return float((moved * both["size"][True]).sum() / both["size"][True].sum()) if len(both) else 0.0
