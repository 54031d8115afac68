"""Marks of rows that a batch has and should not have, or lacks: an evaluation's, an earlier step's, an environment's.

They are read off the responses table, and but for one need no token.
"""

from math import log10
from sys import float_info

import numpy as np
import pandas as pd
from scipy.special import pdtrc

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import FEWEST_OF_EITHER
from ratioscope.analysis.linter.verdict import ranges

_FEWEST_ALONE, _FEWEST_STEPS, _NEARLY_ALL = 8, 3, 0.8
"""Prompts with one response each in a step, steps that have the same, and the share of these that each is in."""
ASKED = "coalesce(prompt_id, case when prompt is not null then hash(prompt)::hugeint end)"
"""SQL of the prompt that a response answers."""
_SHORTEST = 20
"""Signs of a text that is no answer of a word, which many give."""
_MOST_WITHIN, _OWN_TEXTS = 0.2, 0.5
"""Share of the responses that are there twice in their own step, and texts a prompt: few texts come again by chance."""
_LONGEST_GAP, _MOST_ABSENT = 4, 1 / 3
"""Steps in a row without an environment, and the share of the steps: more are a schedule."""
_PARTS, _FEWEST_GROUPS, _CLEARLY, _BREAK = 4, 24, 6.0, 2.0
"""Parts of a step by the number of the response, groups of one part, standard errors over groups, and how much more the
last part falls than those before are apart: else rewards go down all along."""
_FEWEST_PROMPTS, _LATE, _RARE = 5, 0.25, 0.1
"""Prompts that one text answers, the share of the steps that are looked at, the last and the first ones, and its share
of the responses in the first."""
_UNCERTAIN, _RUN = -0.01, 6
"""Log-probability: of tokens above it the values say nothing; and tokens in a row: few alone come again by chance."""
_OPEN, _FEWEST_SHARED = -0.1, 20
"""Log-probability of a token that is not certain, and tokens that several servers drew in one state."""
_APART, _MOST_UNLIKE = 0.05, 0.2
"""Nats between log-probabilities of one token in one state, and share of those of the other servers that are so far."""
_STILL, _TIMES_USUAL = 3, 2
"""Steps in which a server has responses and no new version; times the longest stretch of that kind before, of any."""


@mark(needs=(GROUP, ("sequences.prompt_id",)), limit=0.5)
def groups_mix_prompts(evidence: LogEvidence) -> MarkReading | None:
    """Groups hold responses to several prompts; share of the groups."""
    groups = evidence.frame(
        "select step, min(seq_id) as seq_id, count(distinct prompt_id) as prompts from sequence "
        "where group_id is not null and prompt_id is not null group by step, group_id having count(*) > 1"
    )
    groups = groups[groups.groupby("step")["step"].transform("size") > 1]  # one of a step is a baseline of its own kind
    if len(groups) < _FEWEST_ALONE:
        return None
    mixed = groups[groups["prompts"] > 1].sort_values(["step", "seq_id"])
    return MarkReading(
        len(mixed) / len(groups), f"{len(mixed):,} of {len(groups):,} groups have responses to several prompts, up to "
        f"{int(groups['prompts'].max())}", steps_with(mixed.groupby("step").size()), ("group_id", "prompt_id"),
        first_of(mixed),
    )  # fmt: skip


@mark(needs=(("advantage",), GROUP), limit=0.9)
def advantages_balance_in_groups(evidence: LogEvidence) -> MarkReading | None:
    """The advantages of the responses of a group add up to 0, so that they are compared; share of the groups."""
    groups = evidence.frame(
        """
        with response as (select step, group_id, seq_id, avg(advantage::double) as a from token group by all)
        select sum(a) as total, sum(abs(a)) as size from response where a is not null
        group by step, group_id having count(*) > 1 and sum(abs(a)) > 0
        """
    )
    if len(groups) < _FEWEST_ALONE:
        return None
    even = float((groups["total"].abs() < 1e-3 * groups["size"]).mean())
    return MarkReading(even, f"in {percent(even)} of them the advantages add up to 0", (), ("advantage",))


@mark(needs=(GROUP, ("sequences.prompt_id",)), limit=0.8)
def same_prompts_alone(evidence: LogEvidence) -> MarkReading | None:
    """In some steps the same prompts come again with one response each, and all others have several; share of them."""
    rows = evidence.frame(
        "select step, any_value(prompt_id) as prompt_id, min(seq_id) as seq_id, count(*) as n from sequence "
        "where group_id is not null and prompt_id is not null and dropped is null group by step, group_id"
    )
    alone, others = rows[rows["n"] == 1], rows[rows["n"] > 1]
    n_steps = rows["step"].nunique()
    of_step = alone.groupby("step").size()
    steps = of_step.index[of_step >= _FEWEST_ALONE]
    if not len(others) or n_steps < 2 * _FEWEST_STEPS:
        return None
    alone = alone[alone["step"].isin(steps)]
    if not _FEWEST_STEPS <= len(steps) <= n_steps / 2:
        return MarkReading(0.0, "")
    returning = alone.groupby("prompt_id")["step"].transform("nunique") >= _NEARLY_ALL * len(steps)
    share = float((returning & ~alone["prompt_id"].isin(others["prompt_id"])).mean())
    return MarkReading(
        share, f"in steps {ranges(steps)} the same {number(float(of_step[steps].median()))} prompts come again with "
        f"one response each, where others have {number(float(others['n'].median()))}",
        tuple(map(int, steps)), ("prompt_id",), first_of(alone.sort_values(["step", "seq_id"])),
    )  # fmt: skip


@mark(needs=(("sequences.response",), ("sequences.prompt_id", "sequences.prompt")), limit=0.5)
def texts_of_an_earlier_step(evidence: LogEvidence) -> MarkReading | None:
    """Responses to prompts that come again are those of an earlier step, word for word; share of them. Those of one
    version are the same response, learned from again."""
    rows = evidence.frame(
        f"""
        with of as (
            select step, seq_id, {ASKED} as asked, hash(response) as text,
                coalesce(behavior_version_min, behavior_version_max) as version
            from sequence where length(response) >= {_SHORTEST} and dropped is null
        )
        select step, seq_id, asked, text, asked is not null and min(step) over (partition by asked) < step as again,
            min(step) over (partition by asked, text) < step
                and coalesce(version <> min_by(version, step) over (partition by asked, text), true) as told,
            count(*) over (partition by step, asked, text) > 1 as twice
        from of
        """
    )
    again = rows[rows["again"]]
    if len(again) < FEWEST_OF_EITHER:
        return None
    few_texts = again["text"].nunique() < _OWN_TEXTS * again["asked"].nunique()  # yes and no, say
    if rows["twice"].mean() > _MOST_WITHIN or few_texts:
        return MarkReading(0.0, "")
    told = again[again["told"]].sort_values(["step", "seq_id"])
    share = len(told) / len(again)
    return MarkReading(
        share, f"{percent(share)} of {len(again):,} responses to prompts that come again are those of an earlier step, "
        "word for word", steps_with(told.groupby("step").size()), ("response",), first_of(told),
    )  # fmt: skip


@mark(needs=(("sequences.response",), ("sequences.prompt_id", "sequences.prompt")), limit=0.5)
def one_text_for_all(evidence: LogEvidence) -> MarkReading | None:
    """One text is the response to many prompts in the last steps; share of the responses there."""
    steps = evidence.frame("select distinct step from sequence order by step")["step"].to_numpy()
    late = steps[int((1 - _LATE) * len(steps)) :]
    if len(steps) < 2 * _FEWEST_STEPS:
        return None
    early = steps[int(np.ceil(_LATE * len(steps)))]
    texts = evidence.frame(
        f"""
        select hash(response) as text, count(*) as n, min(step) as step, arg_min(seq_id, step) as seq_id,
            count(*) filter (step >= {int(late[0])}) as late, count(*) filter (step < {int(early)}) as early,
            count(distinct {ASKED}) as prompts
        from sequence where length(response) >= {_SHORTEST} group by all order by late desc, text limit 1
        """
    )
    counts = evidence.frame(
        f"select count(*) filter (step >= {int(late[0])}) as late, count(*) filter (step < {int(early)}) as early "
        "from sequence"
    ).iloc[0]
    total = int(counts["late"])
    if total < FEWEST_OF_EITHER or not len(texts):
        return None
    first = texts.iloc[0]
    if first["prompts"] < _FEWEST_PROMPTS or first["early"] > _RARE * counts["early"]:  # of a few answers one is usual
        return MarkReading(0.0, "")
    share = float(first["late"]) / total
    return MarkReading(
        share, f"one text answers {int(first['prompts'])} prompts, first in step {int(first['step'])}, and "
        f"{percent(share)} of all since step {int(late[0])}", tuple(map(int, late)), ("response",),
    )  # fmt: skip


@mark(needs=(("sequences.environment",), GROUP), limit=6.0)
def environment_is_missing(evidence: LogEvidence) -> MarkReading | None:
    """An environment has no group in some steps between others that have some; -log10 of the chance of that."""
    groups = evidence.frame(
        "select distinct step, group_id, environment from sequence where environment is not null order by step"
    )
    counts = groups.groupby(["step", "environment"]).size().unstack(fill_value=0)
    if len(counts) < 2 * _FEWEST_STEPS or counts.shape[1] < 2:
        return None
    best, of_step = MarkReading(0.0, ""), counts.sum(axis=1).to_numpy()
    if (counts > 0).sum(axis=1).median() < 2:  # a step has one environment
        return best
    for name in counts:
        there = (counts[name] > 0).to_numpy()
        place, inside = np.arange(len(there)), np.flatnonzero(there)
        gone = ~there & (place > inside[0]) & (place < inside[-1])
        longest = pd.Series(gone).groupby(np.cumsum(there)).sum().max()
        begins = np.flatnonzero(gone & np.roll(there, 1))
        regular = len(begins) > 2 and len({*np.diff(begins)}) == 1  # as on a schedule
        if not gone.any() or longest > _LONGEST_GAP or gone.mean() > _MOST_ABSENT or regular:
            continue
        share = float(counts[name][there].sum() / of_step[there].sum())
        # Of draws that are independent so many steps have none by chance, as a Poisson variable.
        expected = float(((1 - share) ** of_step[inside[0] : inside[-1] + 1]).sum())
        unlikely = -log10(max(float(pdtrc(gone.sum() - 1, expected)), float_info.min))
        if unlikely > best.value:
            steps = tuple(int(step) for step in counts.index[gone])
            best = MarkReading(
                unlikely, f"{name}, {percent(share)} of the groups else, is not there in steps {ranges(steps)}",
                steps, ("environment",),
            )  # fmt: skip
    return best


@mark(needs=(("sequences.reward",), GROUP), limit=0.5)
def last_of_a_step_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """The last quarter of each step's responses earns less than the quarters before, which are alike, whatever the
    environment; share of what the others earn above the lowest reward."""
    rows = evidence.frame(
        """
        select step, group_id, min(seq_id) as seq_id, avg(reward)::double as reward, any_value(environment) as kind,
            avg(percent_rank) as place
        from (select *, percent_rank() over (partition by step order by seq_id) as percent_rank from sequence)
        where isfinite(reward) and dropped is null and group_id is not null
            and not coalesce(truncated, finish_reason = 'length', false) group by step, group_id
        """
    )
    lowest = evidence.frame("select min(reward)::double as least from sequence where isfinite(reward)")["least"]
    part = (rows["place"] * _PARTS).clip(upper=_PARTS - 1).astype(int)
    if len(rows) < _PARTS * _FEWEST_GROUPS or part.value_counts().min() < _FEWEST_GROUPS:
        return None
    kinds = rows["kind"].fillna("")
    means = rows["reward"].groupby([kinds, part]).agg(["mean", "var", "size"])
    last = means[means.index.get_level_values(1) == _PARTS - 1].droplevel(1)
    rest = rows[part < _PARTS - 1].groupby(kinds[part < _PARTS - 1])["reward"].agg(["mean", "var", "size"])
    both = last.index[last["size"] >= 2].intersection(rest.index[rest["size"] >= 2])
    weights = last.loc[both, "size"] / last["size"].sum()
    if weights.sum() < 0.5:
        return MarkReading(0.0, "")
    apart = float((weights * (rest.loc[both, "mean"] - last.loc[both, "mean"])).sum())
    error = float((weights**2 * sum(of.loc[both, "var"] / of.loc[both, "size"] for of in (rest, last))).sum()) ** 0.5
    earned = float((weights * rest.loc[both, "mean"]).sum()) - float(lowest.iloc[0]) * float(weights.sum())
    each = rows.groupby(part)["reward"].mean()
    before = each[: _PARTS - 1]
    breaks = before.iloc[-1] - each[_PARTS - 1] > _BREAK * (before.max() - before.min())
    if not apart > _CLEARLY * error or not earned > 0 or not breaks:
        return MarkReading(0.0, "")
    late = rows[part == _PARTS - 1].sort_values(["step", "seq_id"])
    return MarkReading(
        apart / earned,
        f"the last quarter of the responses of a step earns {number(float(each[_PARTS - 1]), digits=2)}, the first "
        f"three {number(float(rows['reward'][part < _PARTS - 1].mean()), digits=2)}",
        steps_with(late.groupby("step").size()), ("reward",), first_of(late),
    )  # fmt: skip


@mark(
    needs=(("sequences.engine",), ("sequences.behavior_version_max", "sequences.behavior_version_min")),
    limit=_STILL,
)
def server_keeps_its_version(evidence: LogEvidence) -> MarkReading | None:
    """One server has no new version to the end, while the others have many; how many they have had."""
    rows = evidence.frame(
        """
        select step, engine, max(coalesce(behavior_version_max, behavior_version_min)) as version, min(seq_id) as seq_id
        from sequence where engine is not null group by step, engine having version is not null order by step
        """
    )
    if rows["engine"].nunique() < 2 or rows["step"].nunique() < 2 * _FEWEST_STEPS:
        return None
    stretches = {
        str(name): of.groupby(of["version"].cummax().rename("newest"))["step"].agg(["first", "last", "size"])
        for name, of in rows.groupby("engine")
    }
    usual = max((size for of in stretches.values() for size in of["size"].iloc[:-1]), default=0)
    best, last = MarkReading(0.0, ""), rows["step"].max()
    for name, own in stretches.items():
        still = own.iloc[-1]
        others = rows[(rows["engine"] != name) & (rows["step"] >= still["first"])].groupby("engine")["version"]
        moved = float((others.max() - others.min()).min()) if others.ngroups else 0.0
        clear = still["size"] > max(_STILL, _TIMES_USUAL * usual) and still["last"] == last and len(own) > 1
        if clear and moved > best.value:
            first = rows[(rows["engine"] == name) & (rows["step"] >= still["first"])]
            best = MarkReading(
                moved,
                f"{name} samples from version {int(own.index[-1])} from step {int(still['first'])} to the end, and the "
                f"others went on to {int(others.max().min())}",
                tuple(map(int, first["step"])), ("behavior_version_min",), first_of(first), place=name,
            )  # fmt: skip
    return best


@mark(
    needs=(("token_id",), ("position",), ("logp_behavior",), ("sequences.engine",), GROUP),
    limit=0.5,
)  # fmt: skip
def server_draws_otherwise(evidence: LogEvidence) -> MarkReading | None:
    """One server gives first tokens of a prompt other log-probabilities than the others, which agree, with the same
    weights; share of such tokens."""
    rows = evidence.frame(
        f"""
        select t.step, s.group_id, t.token_id, s.engine, min(t.seq_id) as seq_id,
            coalesce(t.behavior_version, s.behavior_version_min, -1) as version, median(logp_behavior::double) as logp
        from token as t join sequence as s using (step, seq_id)
        where position = 0 and engine is not null and s.group_id is not null and isfinite(logp_behavior)
            and hash(t.step, t.group_id) % {evidence.sampled} = 0
        group by all
        """
    )
    of = rows.groupby(["step", "group_id", "token_id", "version"])
    rows = rows[(of["engine"].transform("nunique") > 1) & (of["logp"].transform("min") < _OPEN)]
    best = MarkReading(0.0, "")
    known = 0
    for name in rows["engine"].unique():
        own, others = rows["engine"] == name, rows["engine"] != name
        key = ["step", "group_id", "token_id", "version"]
        beside = rows[others].groupby(key)["logp"].agg(["median", "min", "max", "size"])
        both = rows[own].join(beside, on=key, how="inner")
        shared = beside[beside["size"] > 1]
        if min(len(both), len(shared)) < _FEWEST_SHARED:
            continue
        known += 1
        differ = both[(both["logp"] - both["median"]).abs() > _APART]
        share, unlike = len(differ) / len(both), float((shared["max"] - shared["min"] > _APART).mean())
        if share > best.value and unlike <= _MOST_UNLIKE:
            best = MarkReading(
                share, f"{name} gives {percent(share)} of the first tokens that others drew, too, another "
                f"log-probability than these, of which {percent(1 - unlike)} agree",
                steps_with(differ.groupby("step").size()), ("logp_behavior",), first_of(differ), place=str(name),
            )  # fmt: skip
    return best if known else None


@mark(needs=(("token_id",), ("logp_behavior",)), limit=0.2)
def tokens_come_again(evidence: LogEvidence) -> MarkReading | None:
    """Runs of tokens stand in their response a second time, with the same log-probabilities to the last digit; share of
    the runs with an uncertain token."""
    if evidence.run.manifest.log_probability_decimals is not None:
        return None  # equal values say nothing
    rows = evidence.frame(
        f"""
        with row as (
            select step, seq_id, position, logp_behavior, hash(token_id, logp_behavior) as pair
            from token where hash(step, group_id) % {evidence.sampled} = 0
        ),
        run as (
            select step, seq_id, min(logp_behavior) over few as least, count(*) over few as size,
                string_agg(pair::varchar, ' ') over few as pairs
            from row window few as (
                partition by step, seq_id order by position rows between {_RUN - 1} preceding and current row)
        )
        select step, seq_id, count(*) as n, count(*) - count(distinct pairs) as again
        from run where size = {_RUN} and least < {_UNCERTAIN} group by step, seq_id order by step, seq_id
        """
    )
    if rows["n"].sum() < _FEWEST_STEPS * FEWEST_OF_EITHER:
        return None
    share = float(rows["again"].sum() / rows["n"].sum())
    some = rows[rows["again"] > 0]
    return MarkReading(
        share, f"{percent(share)} of the runs of {_RUN} tokens stand in their own response again, with the same values",
        steps_with(some.groupby("step").size()), ("token_id",), first_of(some),
    )  # fmt: skip


cause(
    "baseline_over_prompts", F.SELECTION, "Responses to several prompts are one group, with one baseline",
    requires=(groups_mix_prompts, advantages_balance_in_groups),
    do="Repeat each prompt as often as a group has responses, one after the other, and not the list of prompts.",
    explains=("prompts",), reports=("prime-rl #600",),
)  # fmt: skip
cause(
    "evaluation_rows", F.SELECTION, "Rows of an evaluation are among those that are learned from",
    requires=(same_prompts_alone,),
    do="Leave them out of the batch; where they were, say so in dropped.", explains=("sizes",), reports=("TRL #7059",),
)  # fmt: skip
cause(
    "responses_from_a_cache", F.SELECTION, "Prompts that come again get the responses of an earlier step",
    requires=(texts_of_an_earlier_step,), refutes=(one_text_for_all,),
    do="Switch off the cache of client or server while sampling, or put the step into its key.",
    reports=("dspy #1857",),
)  # fmt: skip
cause(
    "one_text_for_all", F.SELECTION, "Most responses are one and the same text, whatever the prompt",
    requires=(one_text_for_all,),
    do="Go back to before that text, and look what it earns: a policy gives up where giving up costs least.",
    severity=Severity.NOTICE,  # the log is as true as any
)  # fmt: skip
cause(
    "environment_missing", F.SELECTION, "The responses of an environment are missing in some steps",
    requires=(environment_is_missing,),
    do="Look what went before these steps, such as a restart: what takes longest is lost first. Sample it again.",
    reports=("NeMo-RL #3599", "OpenRLHF #1322"),
)  # fmt: skip
cause(
    "last_of_a_step", F.SELECTION, "The last responses of each step earn less than those before them",
    requires=(last_of_a_step_earn_less,),
    do="Look what runs out within a step: sandboxes, connections, calls to a judge; and whether rows are sorted.",
    reports=("uni-agent #47", "verl #3478"),
)  # fmt: skip
cause(
    "server_without_weights", F.SELECTION, "One server gets no new weights any more",
    requires=(server_keeps_its_version,),
    do="Look at that server's last update of weights, and send them again; its responses grow older with each step.",
    reports=("miles #1444",),
)  # fmt: skip
cause(
    "server_draws_otherwise", F.SELECTION, "One server samples otherwise than the others",
    requires=(server_draws_otherwise,),
    do="Compare its settings and weights with those of the others: a server may have defaults of its own.",
    explains=("own_token",), reports=("NeMo-RL #3130", "NeMo-Gym #2190"),
)  # fmt: skip
cause(
    "text_begins_again", F.SELECTION, "Responses hold their own beginning several times",
    requires=(tokens_come_again,),
    do="A stream that sends the whole text each time is read as one of pieces: keep what is new in each.",
    reports=("slime #2272",),
)  # fmt: skip
