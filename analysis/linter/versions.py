"""The version that sampled each token: newer than its policy, off by one, going back, at the wrong token, missing; and
of responses that have several although the manifest rules it out."""

from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.finding import Finding, Severity, estimated, passed
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import AGE, check
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import FEWEST_OF_EITHER

# Tokens that one version of the weights produced agree to this share when two columns mean the same version.
EQUAL_SHARE = 0.99
FEWEST_TOKENS = 100
# Steps, and share of them, that say how fast versions rise.
_FEW_STEPS, _MOST_STEPS = 4, 0.8


@check(order=40, needs=AGE, page="staleness")
def versions(evidence: LogEvidence) -> list[Finding]:
    """Tokens from a policy that did not exist yet, and version numbers that are off by one."""
    by_step, remarks = evidence.by_step, []
    future, newest = evidence.total("future"), int(by_step["min_version_lag"].min())
    if future:
        rate = _versions_an_update(evidence)
        remarks.append(
            Finding(
                f"{future:,} tokens were sampled by a version newer than the policy at the start of their update, "
                f"{evidence.in_steps(steps_with(by_step['future']))}; the newest is {-newest} ahead."
                + (f" Versions rise by {rate} an update: they count something else." if rate else ""),
                Severity.CRITICAL,
                "Count versions as the steps table does: policy_version is the version before the update, and "
                "the sampler's weights cannot be newer.",
                (estimated("tokens", future),),
                steps_with(by_step["future"]),
                ("behavior_version", "policy_version"),
                evidence.examples("future"),
            )
        )
    remarks += _backwards(evidence) + _unlabelled(evidence)
    if _change_in_responses(evidence):
        remarks += _one_token_off(evidence) or _changes_off(evidence)
    one_behind, equal = evidence.total("n_one_behind"), evidence.total("n_one_behind_equal")
    if one_behind >= FEWEST_TOKENS and newest == 1 and not evidence.rounding and equal > EQUAL_SHARE * one_behind:
        remarks.append(
            Finding(
                f"No token has its update's own version, and the {one_behind:,} tokens that are one version old have "
                "the current policy's log-probabilities. The version numbers are off by one.",
                Severity.WARNING,
                "Log the version before the update as policy_version, and number the sampler's weights the same way.",
                (estimated("share of equal tokens one version back", equal / one_behind),),
                steps_with(by_step["n_one_behind_equal"]),
                ("behavior_version", "policy_version"),
                evidence.rows_where("version_lag = 1 and uncertain and abs(log_rho) <= 1e-5"),
            )
        )
    return remarks or passed(f"No token is newer than its update; the newest are {newest} versions old.")


def _versions_an_update(evidence: LogEvidence) -> int:
    """By how much the newest version rises with each update, where that is one number above 1 in most steps; else 0."""
    policy = evidence.steps.set_index("step")["policy_version"].astype(float)
    newest = (policy - evidence.by_step["min_version_lag"]).dropna()
    moved = newest.diff() / policy.reindex(newest.index).diff()
    rate = float(moved.median()) if len(newest) > _FEW_STEPS else 0.0
    alike = (moved.dropna() == rate).mean() if rate >= 2 and rate.is_integer() else 0.0
    return int(rate) if alike > _MOST_STEPS else 0


def _unlabelled(evidence: LogEvidence) -> list[Finding]:
    """Tokens without a version beside others that have one: their age is unknown, not 0."""
    missing = evidence.total("n_unlabelled")
    share = missing / evidence.n_rows
    if not 0 < share < 1 or share < _FEW_UNLABELLED:
        return []
    steps = steps_with(evidence.by_step["n_unlabelled"])
    of = evidence.by_step.loc[[*steps]]
    # A run begins with data that none of its versions sampled; that some of a step have none is the writer's fault.
    at_first = steps == evidence.all_steps[: len(steps)] and bool((of["n_unlabelled"] == of["n_rows"]).all())
    return [
        Finding(
            f"behavior_version is missing in {percent(share)} of the tokens, {evidence.in_steps(steps)}: their age is "
            "unknown, not 0.",
            Severity.WARNING if share > _MANY_UNLABELLED and not at_first else Severity.NOTICE,
            "Log the version with each token when it is sampled; ages and the engine's part leave these tokens out.",
            (estimated("share of the tokens", share),),
            steps,
            ("behavior_version",),
            evidence.rows_where("behavior_version is null"),
        )
    ]


def _change_in_responses(evidence: LogEvidence) -> bool:
    """Whether a response may have several versions; where all rows are looked at it is known."""
    sample = evidence.sample
    version, own = sample.column("behavior_version"), sample.response[1:] == sample.response[:-1]
    return evidence.sampled > 1 or bool((own & (version[1:] != version[:-1]) & np.isfinite(version[1:])).any())


def _one_token_off(evidence: LogEvidence) -> list[Finding]:
    """First tokens (or last ones) with the version of the response in the row before (or after), not of their own."""
    of = evidence.frame(
        """
        with response as (
            select step, seq_id, arg_min(behavior_version, position, 2) as head,
                arg_max(behavior_version, position, 2) as tail
            from token where behavior_version is not null group by step, seq_id having count(*) > 1
        ),
        beside as (
            select step, head[1] as first, head[2] as second, tail[1] as last, tail[2] as next_to_last,
                lag(tail[1]) over run as before, lead(head[1]) over run as after
            from response window run as (partition by step order by seq_id)
        )
        select step, count(*) as n, count(*) filter (first <> second) as late,
            count(*) filter (first <> second and first = before) as others_late,
            count(*) filter (last <> next_to_last) as early,
            count(*) filter (last <> next_to_last and last = after) as others_early
        from beside where before is not null and after is not null group by step order by step
        """
    ).set_index("step")
    found = []
    for words, token, beside in (("late", "first", "before"), ("early", "last", "after")):
        n, apart, others = (int(of[name].sum()) for name in ("n", words, f"others_{words}"))
        if apart < FEWEST_SHIFTED or apart < _LEAST_SHIFTED * n or others < _NEARLY_ALL * apart:
            continue
        found.append(
            Finding(
                f"behavior_version is one token {words}: the {token} token of {percent(apart / n)} of the responses "
                f"has the version of the response {beside} it.",
                Severity.WARNING,
                _SHIFT_VERSIONS,
                (estimated("responses", apart),),
                steps_with(of[words]),
                ("behavior_version",),
            )
        )
    return found


def _changes_off(evidence: LogEvidence) -> list[Finding]:
    """Inside of responses the distance from the policy changes one token before, or behind, the label."""
    if not evidence.log.has("logp_current"):
        return []
    of = evidence.frame(
        f"""
        with several as (
            select step, seq_id from token where behavior_version is not null group by all
            having min(behavior_version) < max(behavior_version)
        ),
        rows as (
            select step, seq_id, position, least(abs(log_rho), 1) as distance,
                behavior_version <> lag(behavior_version) over response as changes
            from usable semi join several using (step, seq_id)
            window response as (partition by step, seq_id order by position)
        ),
        once as (
            select step, seq_id, min(position) as edge from rows where changes group by all having count(*) = 1
        )
        select position - edge as place, count(*) as n, avg(distance) as mean, var_samp(distance) / count(*) as square
        from rows join once using (step, seq_id)
        where position between edge - {_AROUND} - 1 and edge + {_AROUND} and isfinite(distance) group by all
        """
    ).set_index("place")
    if not {-1, 0} <= {*of.index} or of["n"].min() < FEWEST_CHANGES:
        return []
    for words, edge, own, beyond in (
        ("late", -1, of.loc[: -2], of.loc[1:]), ("early", 0, of.loc[1:], of.loc[: -2]),
    ):  # fmt: skip
        if not len(own) or not len(beyond):
            continue
        at, error = float(of["mean"][edge]), float(of["square"][edge])
        (inside, e_in), (outside, e_out) = (
            (float(part["mean"].mean()), float(part["square"].mean()) / len(part)) for part in (own, beyond)
        )
        # The token at the edge differs from its own side as clearly as the other side does, and not from that.
        gap = outside - inside
        if (
            abs(gap) > _CLEARLY * sqrt(e_in + e_out)
            and (at - inside) / gap > _MOSTLY
            and abs(at - inside) > _CLEARLY * sqrt(error + e_in)
        ):
            n = int(of["n"][edge])
            return [
                Finding(
                    f"behavior_version changes one token {words}. The token {'before' if words == 'late' else 'after'} "
                    f"the change is {number(at)} nats from the policy, as are those on the other side "
                    f"({number(outside)}), not those on its own ({number(inside)}).",
                    Severity.WARNING,
                    _SHIFT_VERSIONS,
                    (estimated("responses with one change", n),),
                    evidence.all_steps,
                    ("behavior_version",),
                )
            ]
    return []


_SHIFT_VERSIONS = "Shift the versions by one position: a token has the version of the weights that drew it."
# Responses with one change of the version, tokens around it, standard errors, and share of the gap.
FEWEST_CHANGES, _AROUND, _CLEARLY, _MOSTLY = 100, 4, 5.0, 0.75

# Responses whose outermost token has another version than the next one, and of how many that is their neighbour's.
FEWEST_SHIFTED, _LEAST_SHIFTED, _NEARLY_ALL = 20, 0.1, 0.95


def _backwards(evidence: LogEvidence) -> list[Finding]:
    """Versions of the policy, or the newest ones of the sampler, that are older than those of an earlier step."""
    remarks, steps = [], evidence.steps.dropna(subset=["policy_version"]).drop_duplicates("step")
    newest = (steps.set_index("step")["policy_version"] - evidence.by_step["min_version_lag"]).dropna()
    for column, of, severity in (
        ("policy_version", steps.set_index("step")["policy_version"], Severity.CRITICAL),
        ("behavior_version", newest, Severity.WARNING),
    ):
        if evidence.total("future"):
            continue
        usual = evidence.by_step["max_version_lag"].expanding().median().shift(fill_value=0).reindex(of.index).clip(1)
        back = of.index[of.cummax() - of > _BACK_BY[column] * usual]
        if len(back) and not (column == "behavior_version" and _are_older(evidence, back)):
            where = tuple(int(step) for step in back)
            remarks.append(
                Finding(
                    f"{column} goes back: {evidence.in_steps(where)} it is older than in a step before"
                    + ("." if column == "policy_version" else ", by more than the data are old."),
                    severity,
                    "Count updates of the weights on and on, also after a restart: ages are wrong otherwise.",
                    (estimated("steps", len(where)),),
                    where,
                    (column,),
                )
            )
    return remarks


def _are_older(evidence: LogEvidence, back: "pd.Index[int]") -> bool:
    """Whether what was sampled in these steps is as far from the policy as its versions say: it came late."""
    apart = evidence.frame(
        "select step, avg(abs(logp_current - logp_behavior)) as apart from usable group by step"
    ).set_index("step")["apart"]
    late = apart.index.isin(back)
    return bool(apart[late].median() > _FARTHER * apart[~late].median())


_FARTHER = 2.0
"""Times the distance of the other steps."""

# Shares of tokens without a version, from which on it is said, and changes what ages mean.
_FEW_UNLABELLED, _MANY_UNLABELLED = 0.001, 0.05
# Schedules that mix versions may sample an older one next.
_BACK_BY = {"policy_version": 0.0, "behavior_version": 2.0}


@mark(needs=(("behavior_version", "sequences.behavior_version_max"),), limit=0.05)
def several_versions_unasked(evidence: LogEvidence) -> MarkReading | None:
    """The manifest says that no response goes on under other weights, and some have several versions inside of a turn;
    share of the responses.

    Weights that are sent while the sampler writes change versions, too: where the manifest says so, nothing is wrong.
    """
    schedule = evidence.run.manifest.schedule
    if schedule.get("partial_rollout") is not False or any(
        stated and "flight" in key for key, stated in schedule.items()
    ):
        return MarkReading(0.0, "")
    by_token = evidence.log.has("behavior_version")
    rows = evidence.frame(_OF_TOKENS if by_token else _OF_RESPONSES)
    n, several = (int(rows[name].sum()) for name in ("n", "several"))
    if n < FEWEST_OF_EITHER:
        return None
    # Labels that are one token off give the end of a response the version of its neighbour.
    if several < _FEWEST_SEVERAL or rows["clear"].sum() < _MOST_CLEAR * several:
        return MarkReading(0.0, "")
    found = rows[rows["several"] > 0]
    return MarkReading(
        several / n, f"{percent(several / n)} of them have tokens of several versions", tuple(map(int, found["step"])),
        ("behavior_version" if by_token else "behavior_version_max",), first_of(found),
    )  # fmt: skip


_FEWEST_SEVERAL, _MOST_CLEAR = 20, 0.5
"""Responses with several versions, and the share of them that must have two tokens of each."""
_OF_TOKENS = """
with one_turn as (select step, seq_id from sequence group by step, seq_id having max(coalesce(n_turns, 1)) = 1),
of as (
    select step, seq_id, turn, behavior_version, count(*) as n from token where behavior_version is not null
    group by step, seq_id, turn, behavior_version
),
of_turn as (
    select step, seq_id, turn, count(*) > 1 as several, count(*) > 1 and min(n) > 1 as clear from of
    group by step, seq_id, turn
),
response as (
    select step, seq_id, bool_or(several) as several, bool_or(clear) as clear from of_turn
    group by step, seq_id having count(turn) > 0 or (step, seq_id) in (select (step, seq_id) from one_turn)
)
select step, count(*) as n, count(*) filter (several) as several, count(*) filter (clear) as clear,
    min(seq_id) filter (several) as seq_id
from response group by step order by step
"""
_OF_RESPONSES = """
select step, count(*) as n, count(*) filter (behavior_version_min < behavior_version_max) as several,
    count(*) filter (behavior_version_min < behavior_version_max) as clear,
    min(seq_id) filter (behavior_version_min < behavior_version_max) as seq_id
from sequence
where behavior_version_min is not null and behavior_version_max is not null and coalesce(n_turns, 1) = 1
group by step order by step
"""
"""Whether a version changes inside of a turn is not known of responses of several turns whose tokens have none."""

cause(
    "resumed_unasked", Family.SELECTION,
    "Responses go on under other weights although schedule.partial_rollout is false",
    requires=(several_versions_unasked,),
    do="Let responses end, or drop those that are aborted, before weights are sent; if they may go on, state "
    "partial_rollout true.",
    reports=("slime #2092",),
)  # fmt: skip
