"""What a batch is made of: prompts that ranks share, or steps in a row, and responses that were there before."""

from math import sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.batch_rows import ASKED
from ratioscope.analysis.linter.evidence import LogEvidence, first_of
from ratioscope.analysis.linter.responses import rows_of_steps
from ratioscope.analysis.linter.verdict import ranges
from ratioscope.run_format.manifest import as_finite
from ratioscope.run_format.schema import HELD_OUT

_FEWEST_STEPS = 5
_FEWEST_PROMPTS = 2
"""Of a step, below which ranks that share them may well share a group; in the run there are so many times as many."""
_FEWEST_BLOCKS = 4
"""Times as many steps as prompts stay, below which they are not said to come and go."""
_FEW, _USUAL = 0.05, 0.5
"""Share of the responses that may be there before; and of the prompts that newer weights must answer later."""
_VERSIONS: Need = ("behavior_version", "sequences.behavior_version_max")
_FEWEST_ROWS, _SEVERAL, _MOST_AGAIN = 20, 8, 1 / 4
"""Tokens of a step, steps of a run, and the share of them that may be there again where that is not its schedule."""
_FEWEST_AGAIN, _FEWEST_OF_A_STEP = 3, 4
"""Batches that have the prompts of the first ones in their order, and prompts of a batch."""
_MOST_SEEN = 0.8
"""Share of the stated prompts above which the data may have been at their end."""
_TIMES_USUAL, _LEAST_PAUSE = 5, 60.0
"""Times the usual time between steps, and seconds."""
_OFTEN, _HARDLY, _LEAST_SHARE = 5, 2.0, 0.2
"""How often each prompt of one environment comes, and of the others at most; the share of the responses that it has."""
_PART, _FEWEST_GROUPS = 3, 12
"""Of the steps the first and the last of so many parts are compared; groups of an environment in either."""
_FAR, _CARRIED, _CLEARLY = 0.2, 0.25, 4.0
"""A rise, of the range of the rewards; the part of it by which nothing else rises beyond noise; standard errors."""


@mark(needs=(("sequences.rank",), ("sequences.prompt_id",), GROUP), limit=0.5)
def ranks_share_prompts(evidence: LogEvidence) -> MarkReading | None:
    """Within a step every rank has the same prompts, each in groups of its own, and other steps have others."""
    groups = evidence.frame(
        """
        select step, group_id, any_value(rank) as rank, any_value(prompt_id) as prompt_id,
            count(distinct rank) as ranks
        from sequence where rank is not null and prompt_id is not null group by step, group_id
        """
    )
    if groups["rank"].nunique() < 2 or groups["ranks"].max() > 1:  # responses of a group are shared out
        return None
    of = groups.groupby("step")
    steps = pd.DataFrame({"ranks": of["rank"].nunique(), "groups": of.size(), "prompts": of["prompt_id"].nunique()})
    pairs = groups.drop_duplicates(["step", "rank", "prompt_id"]).groupby("step").size()
    steps = steps[steps["ranks"] > 1]
    usual = steps["prompts"].median()
    if len(steps) < _FEWEST_STEPS or groups["prompt_id"].nunique() < _FEWEST_PROMPTS * usual:
        return None
    # Each prompt on each rank.
    same = (pairs[steps.index] == steps["ranks"] * steps["prompts"]) & (steps["prompts"] >= _FEWEST_PROMPTS)
    shared = steps[same]
    if not len(shared):
        return MarkReading(0.0, "")
    n_prompts, n_groups, n_ranks = shared[["prompts", "groups", "ranks"]].median()
    return MarkReading(
        len(shared) / len(steps),
        f"in {len(shared):,} of {len(steps):,} steps all {n_ranks:.0f} ranks have one set of {n_prompts:.0f}, for "
        f"{n_groups:.0f} groups",
        tuple(map(int, shared.index)),
        ("prompt_id", "rank"),
    )


@mark(needs=(("token_id",), ("position",), ("logp_behavior",)), limit=0.0)
def steps_taken_again(evidence: LogEvidence) -> MarkReading | None:
    """Once in the run, steps in a row have the very responses of earlier ones, which another policy learns from.

    Batches that serve several updates come again throughout a run; another epoch over fixed data goes on to its end.
    """
    steps = rows_of_steps(evidence)
    steps = steps[(steps["n"] >= _FEWEST_ROWS) & (steps["sampled_spread"] > 0)].reset_index(drop=True)
    if len(steps) < _SEVERAL:
        return None
    record = ["n", "sampled"]
    again = steps[steps.duplicated(record)]
    if not 0 < len(again) <= _MOST_AGAIN * len(steps):
        return MarkReading(0.0, "")
    place = pd.Series(steps.index, steps.index).groupby([steps[name] for name in record]).transform("min")
    source = place[again.index]
    distance = again.index - source
    one_stretch = again.index[-1] - again.index[0] == len(again) - 1 and distance.nunique() == 1 and distance.min() > 1
    to_the_end = again.index[-1] == len(steps) - 1
    computed = again["spread"] > 0
    logged_twice = computed & (again["current"] == steps["current"][source].to_numpy())
    if not one_stretch or to_the_end or logged_twice.any():
        return MarkReading(0.0, "")
    now, before = (tuple(map(int, of)) for of in (again["step"], steps["step"][source]))
    return MarkReading(
        len(again) / len(steps),
        f"the responses of step{'s' * (len(now) > 1)} {ranges(now)} are those of {ranges(before)}, to the last token",
        now,
        ("step",),
    )


@mark(needs=(("sequences.prompt_id",), GROUP, ("token_id", "logp_behavior"), _VERSIONS), limit=0.9)
def prompts_stay_for_steps(evidence: LogEvidence) -> MarkReading | None:
    """Prompts come in the same few steps in a row, with new responses in each, and never again; share of the prompts.

    A batch that serves several updates has the same responses in them, or a part of each group; all were sampled at
    once. In another epoch prompts come again in another order.
    """
    if evidence.spreads_groups:
        return MarkReading(0.0, "")
    rows = evidence.frame("select distinct step, prompt_id from sequence where prompt_id is not null")
    numbers = {step: at for at, step in enumerate(sorted(rows["step"].unique()))}
    of = rows["step"].map(numbers).groupby(rows["prompt_id"]).agg(["min", "max", "size"])
    inside = of[(of["min"] > 0) & (of["max"] < len(numbers) - 1)]
    if len(inside) < _FEWEST_PROMPTS * _SEVERAL:
        return None
    often = int(inside["size"].mode().iloc[0])
    in_a_row = inside[(inside["size"] == often) & (inside["max"] - inside["min"] == often - 1)]
    share = len(in_a_row) / len(inside)
    if often < 2 or often * _FEWEST_BLOCKS > len(numbers) or share <= _USUAL:
        return MarkReading(0.0, "")
    found = _as_sampled(evidence)
    found = found[found["prompt_id"].isin(in_a_row.index)]
    later = found[found["prompt_id"].duplicated()]
    # What was sampled at once, and learned from in parts, has one version in all of its steps.
    newer = (found.groupby("prompt_id")["version"].nunique() > 1).mean()
    if later.empty or later["known_before"].mean() > _FEW or newer < _USUAL:
        return MarkReading(0.0, "")
    times = "twice" if often == 2 else f"in {often} steps"
    return MarkReading(
        share,
        f"{percent(share)} of the prompts come {times} in a row and never again, each time with new responses: "
        f"{len(of):,} prompts in {len(numbers):,} steps",
        tuple(sorted({int(step) for step in later["step"]})), ("prompt_id",),
    )  # fmt: skip


def _as_sampled(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt of a step: step, prompt_id, version (the latest that sampled it), known_before (the share of its
    responses that an earlier step has, to the last token)."""
    return evidence.frame(
        """
        with of as (
            select step, seq_id, sum(hash(position, token_id, logp_behavior)) as path, max(behavior_version) as version
            from token group by step, seq_id
        ),
        response as (
            select s.step, s.prompt_id, coalesce(s.behavior_version_max, of.version) as version, of.path
            from sequence as s join of using (step, seq_id) where s.prompt_id is not null
        ),
        known as (select *, min(step) over (partition by prompt_id, path) < step as before from response)
        select step, prompt_id, max(version) as version, avg(before::int) as known_before
        from known group by step, prompt_id order by step, prompt_id
        """
    )


class _Beginning(NamedTuple):
    """Where batches have the prompts of the first ones, one by one."""

    first: pd.DataFrame
    """One row a step of the first ones: step, seq_id (the first)."""
    again: pd.DataFrame
    """The same of those that have their prompts."""
    n_before: int | None
    """Prompts of all steps before; None: some steps are not logged."""
    regular: bool
    """Whether the same prompts come once more at the same distance, to the end or for as many steps."""
    followed: bool
    """Whether batches follow of prompts that no step had, so many that they would be there again by a schedule."""


def _beginning(evidence: LogEvidence) -> _Beginning | None:
    """The first place from which on prompts are those of the first batches, and the responses are not; None: nowhere.

    They came once before; a batch that serves several updates in a row is one.
    """

    def made() -> _Beginning | None:
        steps = evidence.frame(
            f"""
            with asked as (
                select step, {ASKED} as prompt, min(seq_id) as seq_id,
                    sum(hash(response, n_tokens, case when response is null and n_tokens is null then reward end))
                        as path
                from sequence where dropped is distinct from '{HELD_OUT}' group by all
            ),
            placed as (select *, min(step) over (partition by prompt) = step as is_new from asked)
            select step, min(seq_id) as seq_id, count(prompt) as n, count(*) - count(prompt) as unknown,
                sum(hash(prompt)) as prompts, sum(hash(prompt, path)) as responses, count(*) filter (is_new) as n_new
            from placed group by step order by step
            """
        )
        if len(steps) < 2 * _FEWEST_AGAIN or steps["unknown"].any():
            return None
        batch = (steps["prompts"] != steps["prompts"].shift()).cumsum() - 1
        batches = steps.groupby(batch).first()
        prompts = batches["prompts"].tolist()
        since = next((at for at in range(_FEWEST_AGAIN, len(prompts)) if prompts[at] == prompts[0]), len(prompts))
        length = min(since, len(prompts) - since)
        before, again = batches[:since], batches[since : since + length]
        if length < _FEWEST_AGAIN or prompts[:length] != prompts[since : since + length]:
            return None
        each_once = (before["n_new"] == before["n"]).all() and (before["n"] >= _FEWEST_OF_A_STEP).all()
        alike = float((before["responses"][:length].to_numpy() == again["responses"].to_numpy()).mean())
        next_ones = prompts[2 * since :]
        by_schedule = next_ones[:1] != prompts[:1] and _come_again(next_ones, since)
        if not each_once or alike > _FEW or by_schedule:
            return None
        later = batches[since + length :]
        of_before = steps["step"][batch < since]
        return _Beginning(
            steps[batch < length], steps[(batch >= since) & (batch < since + length)],
            int(before["n"].sum()) if (of_before.diff().dropna() == 1).all() else None,
            _come_again(prompts[since:], since),
            len(later) >= since + _FEWEST_AGAIN and bool((later["n_new"] == later["n"])[:_FEWEST_AGAIN].all()),
        )  # fmt: skip

    return evidence.once("where prompts are those of the first batches", made)


def _come_again(prompts: list[float], distance: int) -> bool:
    """Whether the first batches come again at this distance, as far as the list goes."""
    both = min(distance, len(prompts) - distance)
    return both >= _FEWEST_AGAIN and prompts[:both] == prompts[distance : distance + both]


def _stated_beyond(evidence: LogEvidence, found: _Beginning) -> float:
    """How many prompts the manifest states, where clearly more than came before; else 0."""
    stated = as_finite(evidence.run.manifest.task.get("prompts")) or 0.0
    return stated if found.n_before is not None and found.n_before <= _MOST_SEEN * stated else 0.0


def _pause_before(evidence: LogEvidence, step: int) -> str:
    """The pause before a step, a clause of its own, where it is the longest and many times the usual time; else ""."""
    ends = evidence.steps.drop_duplicates("step").set_index("step")["wall_time"]
    between = pd.to_datetime(ends, utc=True).diff().dt.total_seconds()  # it may not be logged
    usual = float(between.drop(step, errors="ignore").median())
    took = float(between.get(step, 0.0))
    pause = took - usual
    if not took > _TIMES_USUAL * usual or took < between.max() or pause < _LEAST_PAUSE:
        return ""
    words = f"{number(pause / 3600, digits=2)} hours" if pause >= 3600 else f"{number(pause / 60, digits=2)} minutes"
    return f"; a pause of {words} is before them"


@mark(needs=(("sequences.prompt_id", "sequences.prompt"),), limit=0.0)
def prompts_begin_anew(evidence: LogEvidence) -> MarkReading | None:
    """Batches have the prompts of the first ones, one by one, with new responses; how many steps.

    Where they come a third time at the same distance these are epochs without shuffling, unless more are stated.
    """
    found = _beginning(evidence)
    if found is None or (found.regular and not _stated_beyond(evidence, found)):
        return MarkReading(0.0, "")
    steps = tuple(map(int, found.again["step"]))
    return MarkReading(
        len(steps), f"steps {ranges(steps)} have the prompts of steps {ranges(map(int, found.first['step']))}, in order"
        f"{_pause_before(evidence, steps[0])}", steps, ("prompt_id",), first_of(found.again),
    )  # fmt: skip


@mark(needs=(("sequences.prompt_id", "sequences.prompt"),), limit=0.0)
def prompts_were_left(evidence: LogEvidence) -> MarkReading | None:
    """Prompts were left when those of the first batches came again: the manifest states more, or new ones follow; 1
    where it is so."""
    found = _beginning(evidence)
    if found is None:
        return MarkReading(0.0, "")
    if stated := _stated_beyond(evidence, found):
        return MarkReading(1.0, f"the manifest states {stated:,.0f} prompts, and {found.n_before:,} came before that")
    return MarkReading(float(found.followed), "behind them follow prompts that no step had before")


def _asked(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt group of a step: step, seq_id (the first), environment, asked, n, reward (mean)."""
    return evidence.once(
        "prompts of environments as they were asked",
        lambda: evidence.frame(
            f"""
            with of as (
                select *, {ASKED} as asked from sequence
                where environment is not null and dropped is distinct from '{HELD_OUT}'
            )
            select step, environment, asked, min(seq_id) as seq_id, count(*) as n,
                avg(reward::double) filter (isfinite(reward)) as reward
            from of where asked is not null group by step, environment, asked, coalesce(group_id, asked)
            order by step, seq_id
            """
        ),
    )


@mark(needs=(("sequences.environment",), ("sequences.prompt_id", "sequences.prompt")), limit=4.0)
def few_prompts_of_an_environment(evidence: LogEvidence) -> MarkReading | None:
    """The prompts of one environment, a good part of the responses, come over and over, and those of the others hardly
    twice; how many times as often."""
    rows = _asked(evidence)
    of = rows.groupby("environment").agg(times=("n", "size"), n=("n", "sum"), prompts=("asked", "nunique"))
    if len(of) < 2 or rows["step"].nunique() < _FEWEST_STEPS:
        return None
    often = of["times"] / of["prompts"]
    name = str(often.idxmax())
    rest = of.drop(index=name).sum()
    times, other = float(often[name]), float(rest["times"] / rest["prompts"])
    share = float(of["n"][name] / of["n"].sum())
    if times < _OFTEN or other > _HARDLY or share < _LEAST_SHARE:
        return MarkReading(0.0, "")
    own = rows[rows["environment"] == name]
    at_once = int(own.groupby(["step", "asked"]).size().max())
    within = f" (up to {at_once} times in a step)" if at_once > 1 else ""
    return MarkReading(
        times / other,
        f"{int(of['prompts'][name]):,} prompts of {name} are {percent(share)} of the responses; each came "
        f"{number(times)} times on average{within}, those of others {number(other)}",
        tuple(map(int, own["step"].unique())), ("prompt_id", "environment"),
        first_of(own[own.duplicated("asked")]), place=name,
    )  # fmt: skip


@mark(needs=(("sequences.environment",), ("sequences.reward",)), limit=_CLEARLY)
def they_alone_earn_more(evidence: LogEvidence) -> MarkReading | None:
    """The reward of the environment whose prompts come over and over rises far, and neither that of others nor the
    evaluation does; standard errors of the difference."""
    name = few_prompts_of_an_environment(evidence).reading.place
    rows = _asked(evidence).dropna(subset=["reward"])
    if not name or not len(rows):
        return None
    ends = _ends(rows["step"])
    rises = {str(kind): _rise(of["reward"], of["step"], ends) for kind, of in rows.groupby("environment")}
    own = rises.pop(name, None)
    known = {kind: rise for kind, rise in rises.items() if rise is not None}
    if own is None or not known:
        return None
    other = max(known, key=lambda each: known[each].size)
    spread = float(np.ptp(evidence.frame("select reward::double as r from sequence where isfinite(reward)")["r"]))
    carried = [known[other].size - known[other].error]
    words = f"its reward rises from {own.words}, that of {other} goes from {known[other].words}"
    accuracy = evidence.steps[["step", "eval_accuracy"]].dropna() if "eval_accuracy" in evidence.steps else None
    if accuracy is not None and len(accuracy) >= 2 * _PART:
        judged = _rise(accuracy["eval_accuracy"], accuracy["step"], _ends(accuracy["step"]), fewest=2)
        if judged is not None:
            carried.append((judged.size - judged.error) * spread)
            words += f", the evaluation from {judged.words}"
    if own.size < _FAR * spread or max(carried) > _CARRIED * own.size:
        return MarkReading(0.0, "")
    error = sqrt(own.error**2 + known[other].error ** 2)
    late = rows[(rows["environment"] == name) & (rows["step"] >= ends[1])]
    return MarkReading(
        min((own.size - known[other].size) / max(error, 1e-9), 1e3), words, (), ("reward",), first_of(late)
    )


class _Rise(NamedTuple):
    """A mean in the first part of the steps and in the last one."""

    before: float
    after: float
    error: float

    @property
    def size(self) -> float:
        return self.after - self.before

    @property
    def words(self) -> str:
        return f"{number(self.before, digits=2)} to {number(self.after, digits=2)}"


def _ends(steps: "pd.Series[int]") -> tuple[int, int]:
    """The last step of the first part, and the first one of the last."""
    every = np.sort(steps.unique())
    n = max(len(every) // _PART, 1)
    return int(every[n - 1]), int(every[-n])


def _rise(
    values: "pd.Series[float]", steps: "pd.Series[int]", ends: tuple[int, int], fewest: int = _FEWEST_GROUPS
) -> _Rise | None:
    first, last = values[steps <= ends[0]], values[steps >= ends[1]]
    if min(len(first), len(last)) < fewest:
        return None
    error = sqrt(float(first.var()) / len(first) + float(last.var()) / len(last))
    return _Rise(float(first.mean()), float(last.mean()), error)


cause(
    "loader_not_sharded", Family.SELECTION, "Every rank reads the same prompts",
    requires=(ranks_share_prompts,),
    do="Shard the data loader by rank, with a distributed sampler or a seed for each rank.",
    reports=("unsloth-zoo #832", "verifiers #112", "verifiers #135"), columns=("prompt_id",),
)  # fmt: skip
cause(
    "batches_again", Family.SELECTION, "Batches that were learned from are taken again",
    requires=(steps_taken_again,),
    do="Keep the place in the data and in the queue of rollouts in the checkpoint, and restore it at a restart.",
    reports=("marin #1833",), columns=("step",),
)  # fmt: skip
cause(
    "prompts_repeated", Family.SELECTION, "Prompts come again in the next steps, as where a loader repeats its batches",
    requires=(prompts_stay_for_steps,),
    do="Let each step take new prompts from the loader: look for a sampler that repeats batches, or a step that does "
    "not advance it.",
    reports=("TRL #4531", "TRL #4271"), columns=("prompt_id",),
)  # fmt: skip
cause(
    "data_begin_anew", Family.SELECTION, "The data begin anew before their end",
    requires=(prompts_begin_anew, prompts_were_left),
    do="Keep the place of the loader, or of the queue, in the checkpoint, and restore it when the run is resumed.",
    reports=("TRL #5911",), columns=("prompt_id",),
)  # fmt: skip
cause(
    "data_come_again", Family.SELECTION,
    "A restart lost its place, or data come again by design, as in unshuffled epochs",
    requires=(prompts_begin_anew,), refutes=(prompts_were_left,),
    do="State task.prompts in the manifest to tell which. Restore the loader's place at a restart; shuffle each epoch.",
    severity=Severity.NOTICE, reports=("TRL #5911",), columns=("prompt_id",),
)  # fmt: skip
_MIX = "Mix data sets by how many prompts they have, or bound how often one prompt may come."
cause(
    "few_prompts_by_heart", Family.SELECTION,
    "Few prompts come over and over, and what is learned on them does not carry over",
    requires=(few_prompts_of_an_environment, they_alone_earn_more),
    do=f"{_MIX} Evaluate on prompts that are not trained on.",
    reports=("SkyRL #1990",), columns=("prompt_id",),
)  # fmt: skip
cause(
    "few_prompts_over_and_over", Family.SELECTION,
    "Prompts of one environment come far more often than those of the others",
    requires=(few_prompts_of_an_environment,), refutes=(they_alone_earn_more,),
    do=f"{_MIX} Compare its reward with an evaluation on other prompts.",
    severity=Severity.NOTICE, reports=("SkyRL #1990",), columns=("prompt_id",),
)  # fmt: skip
