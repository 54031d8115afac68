"""Are the responses those that were sampled, each once: repeated ones, padding and prompts among them, missing ones."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import ANY, STATES, check
from ratioscope.analysis.linter.decoding import GREEDY, GREEDY_IN_SOME_STEPS, servers_draw_the_same
from ratioscope.analysis.linter.evidence import ROW_FAULTS, LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.sample import COLUMNS, Sample
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.verdict import ranges
from ratioscope.analysis.linter.zeros import zero_filled
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.run_format import schema

# Responses below this probability hardly come twice; so many pairs beyond so many times what chance allows.
UNLIKELY, LEAST_REPEATED, TIMES_CHANCE = 0.02, 5, 5.0
FEWEST_GROUPS, NEARLY_ALL = 8, 0.98
# Share of the groups (or steps) that are smaller than the others.
SHARE_SMALLER = 0.05
_USUAL = 0.5
_FEWEST_ROWS = 20
# Where all of so many first tokens are equal in a group, it is no prompt that the mask let through.
_FIRST_TOKENS = 8
_PADDED = 0.2
# What tells one unlikely response from another, with its log-probability to three decimals.
_SAME = ["step", "n", "path", "logp"]
_MOST_COPIES = 10_000
# Responses of one token that the sampler is certain of and another column is not; and of all responses of one token.
_FEWEST_SINGLE, _NEARLY_ALL_SINGLE = 20, 0.9


@check(order=90, needs=(("token_id",), *ANY))
def repeated(evidence: LogEvidence) -> list[Finding]:
    """Responses that are there several times under other numbers, and are too unlikely for that in every column; and
    steps that hold another one's rows."""
    sample = evidence.sample
    rows = sample.rows
    if not len(rows):
        return not_checked("No token is logged.")
    if again := _again(evidence):
        return [again]
    if all(each(evidence).present for each in GREEDY):
        return not_checked("The sampler takes the likeliest token each time: equal responses need not be copies.")
    if all(each(evidence).present for each in GREEDY_IN_SOME_STEPS):
        return not_checked("In some steps the likeliest token is taken: equal responses need not be copies.")
    if servers_draw_the_same(evidence).present:
        return not_checked("Servers draw the same responses: equal ones need not be copies.")
    other = evidence.problems(response_mask, zero_filled, constant_columns)
    if other:
        return not_checked(f"Probabilities are not those of the tokens: {', '.join(other)}.")
    token = rows["token_id"].to_numpy(dtype=np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # Whichever column is right, it is no likelier than this; NaN is a column that is not logged.
    shared = of_another_branch(evidence)
    logp = _of_responses(sample, np.zeros(len(rows), dtype=np.bool_))
    own = _of_responses(sample, shared) if shared.any() else logp
    keys = rows[["step", "seq_id", "group_id"]]
    whole = keys.assign(path=sample.path + token)
    whole = whole.groupby(sample.response, sort=False).last().assign(n=np.bincount(sample.response), logp=logp, own=own)
    if np.isfinite(sample.sampled).any():  # what no sampler drew, an expert's answer say, may well be there twice
        whole = whole[pd.Series(np.isfinite(sample.sampled)).groupby(sample.response).all().loc[whole.index]]
    unlikely = whole[(whole["own"] < np.log(UNLIKELY)) & np.isfinite(whole["own"]) & np.isfinite(whole["logp"])]
    # Another prompt's equal answer has another probability.
    same = unlikely.assign(logp=unlikely["logp"].round(3)).groupby(_SAME)["step"].transform("size")
    # Without groups all responses of a step may answer one prompt.
    alike = ["step", "group_id"] if evidence.log.has_groups else ["step"]
    others = whole.groupby(alike)["n"].transform("size")[unlikely.index] - 1
    copies, chance = float((same - 1).sum()) / 2, float((np.exp(unlikely["own"]) * others).sum()) / 2
    numbers = (
        estimated("pairs of equal unlikely responses", copies),
        estimated("at most as many by chance", chance),
        estimated("unlikely responses", len(unlikely)),
    )
    by_chance = LEAST_REPEATED + TIMES_CHANCE * chance
    if copies < by_chance:
        return passed(f"Of {len(unlikely):,} unlikely responses hardly one is there twice.", *numbers)
    found = unlikely[same > 1]
    if evidence.log.has_groups:
        found = found[~_replayed(whole)[found.index]]
    if (same[found.index] - 1).sum() / 2 < by_chance:
        return passed(
            "What is there twice are prompt groups of an earlier step, as a replay buffer has them.", *numbers
        )
    steps = steps_with(found.groupby("step").size())
    return [
        Finding(
            f"{len(found):,} of {len(unlikely):,} responses that should be rare (probability below "
            f"{UNLIKELY:g}) are there "
            f"several times under other numbers, {evidence.in_steps(steps)}: that is no chance.",
            Severity.CRITICAL,
            f"{_whose_copies(evidence, found)} Repeated responses count twice, and intervals are too narrow.",
            numbers,
            steps,
            ("seq_id",),
            first_of(found),
            wrong_rows=_copies(evidence, found[found.assign(logp=found["logp"].round(3)).duplicated(_SAME)]),
        )
    ]


def _replayed(whole: pd.DataFrame) -> "pd.Series[bool]":
    """Of each response, whether its prompt group was there, with all of its responses, in an earlier step."""
    members = whole.groupby(["step", "group_id"])["path"].transform("sum")
    return whole["step"] > whole["step"].groupby(members).transform("min")


def _of_responses(sample: Sample, without: NDArray[np.bool_]) -> "pd.Series[float]":
    """The log-probability of each response without some rows, by the column that gives it the largest."""
    kept = (pd.Series(np.where(without, np.nan, sample.column(name))) for name in COLUMNS)
    return pd.concat([each.groupby(sample.response).sum(min_count=1) for each in kept], axis=1).max(axis=1)


def of_another_branch(evidence: LogEvidence) -> NDArray[np.bool_]:
    """The rows that a branch of a tree has in common with another one, where they were drawn once, (n_rows,).

    They are rejected for a reason of their own, that of the first tokens of responses which are learned from later on.
    """
    rows = evidence.sample.rows
    if not evidence.log.has("rejected"):
        return np.zeros(len(rows), dtype=np.bool_)
    shared = evidence.frame(
        """
        with of as (
            select step, seq_id, rejected, count(*) as n, max(position) as last from token
            where rejected <> '' group by all
        ),
        whole as (select step, seq_id, count(*) as n from token group by all),
        reason as (
            select rejected from of join whole using (step, seq_id) group by rejected
            having bool_and(of.last + 1 = of.n) and bool_or(of.n < whole.n) and avg(of.n) >= 4
        )
        select step, seq_id, position from token where rejected in (select rejected from reason)
        """
    )
    keys = ["step", "seq_id", "position"]
    return np.asarray(pd.MultiIndex.from_frame(rows[keys]).isin(pd.MultiIndex.from_frame(shared[keys])))


def _copies(evidence: LogEvidence, copies: pd.DataFrame) -> LeftOut | None:
    """The later ones of equal responses; None where a part of the responses was looked at."""
    if evidence.sampled > 1 or len(copies) > _MOST_COPIES:
        return None
    of_step = copies.groupby("step")["seq_id"].agg(list)
    where = " or ".join(f"step = {step} and seq_id in ({', '.join(map(str, ids))})" for step, ids in of_step.items())
    return LeftOut(f"{len(copies):,} responses that are there already under another number", where, whole=True)


def _whose_copies(evidence: LogEvidence, found: pd.DataFrame) -> str:
    """Where to look for copies, by the ranks that they are of."""
    if not evidence.log.has("sequences.rank"):
        return "Log the rank of each response, which tells whether ranks sample or log the same."
    ranks = evidence.frame("select distinct on (step, seq_id) step, seq_id, rank from sequence")
    of = found.merge(ranks, on=["step", "seq_id"]).groupby(["step", "n", "path"])["rank"].nunique()
    if (of > 1).mean() > _USUAL:
        return "Copies are of different ranks: seed each rank on its own, and log each response on one."
    return "Copies are of one rank: write each response once."


def rows_of_steps(evidence: LogEvidence) -> pd.DataFrame:
    """What tells the rows of one step from those of another: n, and sums of hashes over them, in the order of steps.

    `sampled` is of what the sampler returned, and knows no number of a response; `current` of the policy's own pass.
    """
    return evidence.once(
        "rows of steps",
        lambda: evidence.frame(
            """
            select step, count(*) as n, sum(hash(seq_id, position, token_id)) as tokens,
                sum(hash(seq_id, position, logp_behavior, logp_current)) as logps,
                sum(hash(position, token_id, logp_behavior)) as sampled,
                sum(hash(position, token_id, logp_current)) as current,
                stddev_pop(logp_current) as spread, stddev_pop(logp_behavior) as sampled_spread
            from token group by step order by step
            """
        ),
    )


def _again(evidence: LogEvidence) -> Finding | None:
    """Steps whose rows are those of an earlier step: the same tokens under the same policy.

    A batch that is used for several updates has another current policy in each.
    """
    sums = rows_of_steps(evidence)
    sums = sums[(sums["n"] >= _FEWEST_ROWS) & (sums["spread"] > 0)]
    same = sums[sums.duplicated(["n", "tokens", "logps"])]
    if same.empty:
        return None
    steps = tuple(int(step) for step in same["step"])
    return Finding(
        f"The rows of an earlier step are there again, with the same log-probabilities of the current policy, "
        f"{evidence.in_steps(steps)}: batches were logged twice.",
        Severity.CRITICAL,
        "Write each batch once, with the step that it was used in.",
        (estimated("steps", len(steps)),),
        steps,
        ("step",),
        wrong_rows=LeftOut(
            f"step{'s' * (len(steps) > 1)} {ranges(steps)}, with the rows of an earlier one",
            f"step in ({', '.join(map(str, steps))})",
            whole=True,
        ),
    )


@mark(needs=(("token_id",), ("logp_behavior",), ("sequences.reward",)), limit=_NEARLY_ALL_SINGLE)
def single_tokens_not_sampled(evidence: LogEvidence) -> MarkReading | None:
    """Responses of one token are all the same one, of which logp_behavior is certain and another column is not.

    Share of the responses of one token.
    """
    zeros = [each for each in evidence.remarks(zero_filled) if each.is_problem]
    if evidence.total("zero_logp_behavior") < _FEWEST_SINGLE or not zeros:
        return MarkReading(0.0, "")
    rows = evidence.frame(
        f"""
        with single as (
            select step, seq_id, min(token_id) as token_id, min(logp_behavior) = 0 as certain,
                bool_or({ROW_FAULTS["zero_logp_behavior"]}) as doubted
            from examined group by step, seq_id having count(*) = 1
        ),
        of as (select distinct on (step, seq_id) step, seq_id, reward::double as reward, environment from sequence)
        select of.*, token_id, coalesce(certain, false) as certain, doubted, token_id is not null as is_single
        from of left join single using (step, seq_id) order by step, seq_id
        """
    )
    single, others = rows[rows["is_single"]], rows[~rows["is_single"]]
    found = single[single["certain"]]
    if found["doubted"].fillna(False).sum() < _FEWEST_SINGLE:
        return MarkReading(0.0, "")
    token = found["token_id"].mode().iloc[0]
    found = found[found["token_id"] == token]
    where = found["environment"].dropna().unique()
    place = f" of {where[0]!r}" if len(where) == 1 and rows["environment"].nunique() > 1 else ""
    earned, usual = (number(float(each["reward"].mean())) for each in (found, others))
    return MarkReading(
        len(found) / len(single),
        f"{len(found):,} responses{place} are token {token:.0f} alone, with logp_behavior exactly 0, and earn {earned} "
        f"where others earn {usual}",
        steps_with(found.groupby("step").size()), ("n_tokens", "token_id"), first_of(found),
        wrong_rows=next((each.wrong_rows for each in zeros if each.columns == ("logp_behavior",)), None),
    )  # fmt: skip


@check(order=70, needs=(*STATES, ("logp_behavior",)))
def response_mask(evidence: LogEvidence) -> list[Finding]:
    """The first tokens differ between responses as often as logp_behavior says: they are not the prompt's."""
    sample = evidence.sample
    rows = sample.rows
    first = rows[(rows["position"] == 0) & np.isfinite(rows["logp_behavior"].astype(float))]
    groups = first.groupby(["step", "group_id"])
    size, tokens = groups.size(), groups["token_id"].nunique()
    # All the others draw the first one's token.
    chance = np.exp(groups["logp_behavior"].first().astype(float) * (size - 1))
    many = size > 3
    if many.sum() < FEWEST_GROUPS:
        return not_checked(f"Fewer than {FEWEST_GROUPS} groups have four responses.")
    equal, expected = float((tokens[many] == 1).mean()), float(chance[many].mean())
    numbers = (estimated("share of groups with one first token", equal), estimated("by logp_behavior", expected))
    if equal < NEARLY_ALL or expected > _USUAL:
        return passed(
            f"All responses begin alike in {percent(equal)} of the groups ({percent(expected)} expected).",
            *numbers,
        )
    same = rows[rows["position"] < _FIRST_TOKENS].groupby(["step", "group_id", "position"])["token_id"].nunique()
    if float((same == 1).mean()) > NEARLY_ALL and (same.index.get_level_values("position") == _FIRST_TOKENS - 1).any():
        one = rows["token_id"].nunique() == 1
        return [
            Finding(
                f"In {percent(equal)} of the groups all responses are one and the same, where logp_behavior says "
                f"{percent(expected)} of their first tokens alone: "
                + (
                    "token_id is the same in every row, so it was not logged."
                    if one
                    else "they were not drawn one by one with logp_behavior."
                ),
                Severity.CRITICAL,
                "Log the ids of the sampled tokens."
                if one
                else "Sample at a temperature above 0 with a seed for each response, and log what it draws with.",
                numbers,
                evidence.all_steps,
                ("token_id",) if one else ("logp_behavior",),
            )
        ]
    return [
        Finding(
            f"In {percent(equal)} of the groups all responses begin with one and the same token, where "
            f"logp_behavior says {percent(expected)}. These tokens were not drawn by the sampler.",
            Severity.CRITICAL,
            "Apply the response mask before logging: rows are the tokens that the sampler drew.",
            numbers,
            evidence.all_steps,
            ("token_id", "position"),
        )
    ]


@check(order=80, needs=(("token_id",),))
def padding(evidence: LogEvidence) -> list[Finding]:
    """Tokens behind the end of the responses."""
    rows = evidence.sample.rows
    of = rows.groupby(evidence.sample.response)
    last = of["token_id"].transform("last")
    # The run of equal tokens at the end of each response.
    other = (rows["token_id"] != last).to_numpy()
    place = of.cumcount().to_numpy()
    size = of["step"].transform("size").to_numpy()
    behind = pd.Series(np.where(other, place, -1)).groupby(evidence.sample.response).max().to_numpy()
    first = of[["step"]].first()
    n = pd.Series(size).groupby(evidence.sample.response).first().to_numpy()
    tail = n - 1 - behind
    longest = pd.Series(n).groupby(first["step"].to_numpy()).transform("max").to_numpy()
    full, several = n == longest, tail > 1
    share = float((full & several).mean())
    numbers = (estimated("share of the responses that end in a repeated token, at full length", share),)
    if full.all() and share > _PADDED and np.unique(tail[several]).size + (~several).any() > 1:
        return [
            Finding(
                f"All responses of a step have the same number of rows, and {percent(share)} end in one token that is "
                "repeated up to that length. Padding was logged as response tokens.",
                Severity.CRITICAL,
                "Apply the response mask before logging: rows end with the token that ends the response.",
                numbers,
                evidence.all_steps,
                ("n_tokens", "token_id"),
            )
        ]
    return passed("Responses do not end in a repeated token at one and the same length.", *numbers)


@check(order=100, needs=(GROUP,))
def sizes(evidence: LogEvidence) -> list[Finding]:
    """Steps with fewer groups, and groups with fewer responses, than the others or than the manifest says."""
    responses = evidence.responses
    if responses.empty:
        return not_checked("The sequences table has no rows in this range.")
    if (evidence.steps[[*schema.DROPPED]].fillna(0).to_numpy() > 0).any():
        return not_checked("Tokens were dropped and counted: groups may be smaller for it.")
    if evidence.spreads_groups:
        return not_checked("The responses of a group are spread over several updates: a step has a part of them.")
    groups = responses.groupby(["step", "group_id"]).size()
    per_step = groups.groupby("step").size()
    sampler = evidence.run.manifest.sampler
    remarks = []
    for counts, key, words in (
        (groups, "samples_per_prompt", "groups have fewer responses"),
        (per_step, "prompts", "steps have fewer prompt groups"),
    ):
        stated = int(sampler[key]) if isinstance(sampler.get(key), int) else 0
        usual = int(counts.mode().iloc[-1])
        said = stated > 1
        size = stated if said else usual
        fewer = counts[counts < size]
        if len(fewer) <= SHARE_SMALLER * len(counts) or not (said or (counts == usual).mean() > _USUAL):
            continue
        steps = tuple(sorted({int(step) for step in fewer.index.get_level_values("step")}))
        missing = size * len(fewer) - int(fewer.sum())
        remarks.append(
            Finding(
                f"{len(fewer):,} of {len(counts):,} {words} than the {size} "
                + ("that the manifest states" if said else "of the others")
                + f", {evidence.in_steps(steps)}; {missing:,} are missing, and no count of dropped ones explains it.",
                Severity.WARNING if said else Severity.NOTICE,
                "Log every response that was sampled, and say in dropped why one was left out: means over "
                "what is left are "
                "those of the survivors.",
                (estimated("missing", missing),),
                steps,
                ("sequences",),
            )
        )
    alike = per_step.nunique() == groups.nunique() == 1
    count, size = int(per_step.mode().iloc[-1]), int(groups.mode().iloc[-1])
    whose = "Every step has" if alike else "Most steps have" if len(per_step) > 1 else "The step has"
    return remarks or passed(
        f"{whose} {count} group{'s' * (count != 1)} of {size} response{'s' * (size != 1)}.",
    )
