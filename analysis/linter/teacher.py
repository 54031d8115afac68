"""Marks of a teacher: does it find possible what the sampler is sure of, which ids does it not, and what is made of it.

Those of its log-probabilities look at the first quarter of the steps: a policy that has collapsed is sure of what no
teacher would say.
"""

import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.credited import SOME
from ratioscope.analysis.linter.evidence import LogEvidence, steps_with

_SURE, _IMPOSSIBLE = -0.1, -7.0
"""Log-probabilities: of a token that the sampler hardly doubts, and of one in a thousand."""
_FEWEST, _FEWEST_OF_ID = 200, 10
"""Sure tokens: of all ids, and of one whose share is known."""
_HARDLY, _NEARLY_ALL = 0.1, 0.8
"""Share of an id's sure tokens that the teacher finds impossible, where it reads the id as the policy does, or not."""
_FEWEST_IDS = 3
"""Ids of either kind."""
_LEAST, _PART, _NEAR = 0.01, (0.1, 1.0), 0.01
"""Nats between teacher and policy: those of a token that is compared, and those by which the factor is found; and of an
advantage, what is rounding."""


def _sure_tokens(evidence: LogEvidence) -> pd.DataFrame:
    """One row an id: n tokens that the sampler is sure of, and how many of them the teacher finds impossible."""
    return evidence.once(
        "sure tokens by the teacher",
        lambda: evidence.frame(
            f"""
            with ends as (select min(step) as first, max(step) as last from token where isfinite(logp_teacher))
            select token_id, count(*) as n, count(*) filter (logp_teacher < {_IMPOSSIBLE}) as impossible
            from token, ends where isfinite(logp_teacher) and logp_sampled > {_SURE}
                and step <= first + (last - first) / 4
            group by token_id
            """
        ),
    )


@mark(needs=(("logp_teacher",), ("logp_behavior", "logp_behavior_train")), limit=0.2)
def teacher_finds_sure_tokens_impossible(evidence: LogEvidence) -> MarkReading | None:
    """The teacher gives tokens that the sampler is sure of less than one in a thousand; share of them."""
    of = _sure_tokens(evidence)
    n = int(of["n"].sum())
    if n < _FEWEST:
        return None
    share = float(of["impossible"].sum() / n)
    clause = f"of the tokens that the sampler is sure of, {percent(share)} have less than 0.001 by the teacher"
    return MarkReading(share, clause, evidence.all_steps, ("logp_teacher",))


@mark(needs=(("logp_teacher",), ("logp_behavior", "logp_behavior_train"), ("token_id",)), limit=0.9)
def impossible_by_token_id(evidence: LogEvidence) -> MarkReading | None:
    """Whether the teacher finds a sure token impossible depends on its id: of some ids nearly all are, of others hardly
    one; share of the sure tokens that have such an id."""
    of = _sure_tokens(evidence)
    of = of[of["n"] >= _FEWEST_OF_ID]
    if of["n"].sum() < _FEWEST:
        return None
    share = of["impossible"] / of["n"]
    wrong, right = share >= _NEARLY_ALL, share <= _HARDLY
    if min(wrong.sum(), right.sum()) < _FEWEST_IDS:
        return MarkReading(0.0, "")
    return MarkReading(
        float(of["n"][wrong | right].sum() / of["n"].sum()),
        f"of {wrong.sum():,} token ids nearly all are impossible to the teacher, of {right.sum():,} others hardly one",
        evidence.all_steps, ("logp_teacher", "token_id"),
    )  # fmt: skip


@mark(needs=(("logp_teacher",), ("advantage",), ("logp_behavior", "logp_behavior_train", "logp_current")), limit=0.99)
def likelier_by_the_teacher_without_advantage(evidence: LogEvidence) -> MarkReading | None:
    """Of tokens that the teacher finds likelier than the policy, the share whose advantage is 0, while no advantage is
    positive and that of the others is the teacher's log-ratio."""
    found = [
        each
        for policy in ("logp_sampled", "logp_current")
        if policy == "logp_sampled" or evidence.log.has(policy)
        if (each := _likelier_without(evidence, policy)) is not None
    ]
    return max(found, key=lambda each: each.value, default=None)


def _likelier_without(evidence: LogEvidence, policy: str) -> MarkReading | None:
    """The reading with the log-ratio to one column; None for fewer than a few tokens."""
    least = max(_LEAST, 2 * evidence.rounding)
    low, high = _PART
    of = f"""
        with of as (
            select step, seq_id, position, advantage::double as a, logp_teacher::double - {policy}::double as apart
            from usable where isfinite(advantage) and isfinite(logp_teacher) and isfinite({policy})
                and coalesce(rejected, '') = ''
        ), factor as (
            select sum(a * apart) / sum(apart * apart) as slope from of where apart between -{high} and -{low}
        )
    """
    counts = evidence.frame(
        f"""
        {of}
        select step, count(*) filter (a > 0) as positive, count(*) filter (apart > {least}) as likelier,
            count(*) filter (apart > {least} and a = 0) as without, count(*) filter (apart < -{least}) as others,
            count(*) filter (
                apart < -{least}
                and abs(a - slope * apart) <= slope * greatest(-{_NEAR} * apart, {_LEAST / 10 + evidence.rounding})
            ) as fitting
        from of, factor group by step order by step
        """
    ).set_index("step")
    total = counts.sum()
    if min(total["likelier"], total["others"]) < _FEWEST:
        return None
    if total["positive"] or total["fitting"] < (1 - SOME) * total["others"]:
        return MarkReading(0.0, "")
    share = float(total["without"] / total["likelier"])
    return MarkReading(
        share,
        f"the advantage is 0 in {percent(share)} of {int(total['likelier']):,} tokens that the teacher finds likelier, "
        "and never positive",
        steps_with(counts["without"]), ("advantage",),
        evidence.rows_where(f"invalid is null and advantage = 0 and logp_teacher::double - {policy} > {least}"),
    )  # fmt: skip
