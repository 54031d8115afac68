"""One value in place of many: constant columns, placeholders and bounds."""

from collections.abc import Sequence

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import capital, percent
from ratioscope.analysis.findings.setup import smoothing_of
from ratioscope.analysis.findings.words import named_part
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.evidence import LOG_PROBS, SURE, LogEvidence, steps_with
from ratioscope.analysis.linter.sample import SAMPLER
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.run_format import schema

# A column with one and the same value in fewer rows than this says nothing.
LEAST_ROWS = 20
# In more steps than this a constant column is the writer's.
LARGEST_CONSTANT_SHARE = 0.5
# A value in so many of the rows, and so many times as often as the next one, stands for missing ones.
_LEAST_PLACEHOLDER, _TIMES_NEXT = 0.05, 10
_A_RESPONSE = 1.5
# Who may have sampled or scored a response, by column.
RESPONSE_OWNERS = {"engine": "server", "rank": "rank", "adapter": "adapter", "environment": "environment"}
# Shares of the tokens of an owner with a placeholder from which, and up to which, it is all or none of theirs.
_ALL_OF_IT, _NONE_OF_IT = 0.99, 0.25
# A smallest value that so many rows have, while another column spreads there, is a bound.
LEAST_CLAMPED_SHARE, LARGEST_CLAMPED_SHARE, LEAST_SPREAD = 2e-3, 1e-2, 0.1
_MOSTLY_BELOW = 0.5
"""Share of the tokens at the bound that another column finds as unlikely."""
# What no ratio of sampler and policy is made of, and is wrong where it does not vary.
CONSTANT_BESIDE = ("logp_reference", "entropy")


@check(order=130, needs=ANY)
def constant_columns(evidence: LogEvidence) -> list[Finding]:
    """A log-probability, or the entropy, that is one and the same for every token of a step."""
    by_step = evidence.by_step[evidence.by_step["n_rows"] >= LEAST_ROWS]
    if by_step.empty:
        return not_checked(f"No step has {LEAST_ROWS} rows.")
    remarks = []
    varies = [column for column in LOG_PROBS if (by_step[f"min_{column}"] < by_step[f"max_{column}"]).any()]
    for column in (*LOG_PROBS, *CONSTANT_BESIDE):
        low, high = by_step[f"min_{column}"], by_step[f"max_{column}"]
        # A step of nothing but sure tokens, as after a collapse, has one value near 0.
        same = (low == high) & ((low < SURE) | ((column in CONSTANT_BESIDE) & ((low > -SURE) | (low == 0))))
        if column in CONSTANT_BESIDE and not varies:
            continue
        if same.any():
            steps = steps_with(same.astype(int))
            remarks.append(
                Finding(
                    f"{column} is {low[same].iloc[0]:.4g} for every token {evidence.in_steps(steps)}"
                    + (", while other columns vary." if varies else "."),
                    Severity.CRITICAL
                    if varies and column in LOG_PROBS and len(steps) > LARGEST_CONSTANT_SHARE * len(by_step)
                    else Severity.WARNING,
                    "Right only for a policy that is uniform over a fixed number of actions: otherwise a placeholder "
                    "was logged instead of the token's log-probability.",
                    (estimated("value", low[same].iloc[0]),),
                    steps,
                    (column,),
                )
            )
    for column in varies:
        remarks += filter(None, [_one_value(evidence, column) or _clamped(evidence, column)])
    each = f"each of the {len(by_step)} steps" if len(by_step) > 1 else "the one step with tokens"
    return remarks or passed(f"Every log-probability varies in {each}.")


def _one_value(evidence: LogEvidence, column: str) -> Finding | None:
    """One value in many rows of a column, where another column varies: it stands for values that were not there."""
    other = "logp_behavior" if column == "logp_current" else "logp_current"
    # Some responses tell which values are frequent; all of them are counted for these alone.
    frequent = evidence.frame(
        f"select {column} as value, count(*) / sum(count(*)) over () as share from examined "
        f"where isfinite({column}) and hash(step, seq_id) % {evidence.sampled} = 0 "
        f"group by {column} having {column} < {SURE} order by share desc, value limit 2"
    )
    if not len(frequent) or frequent["share"].iloc[0] < _LEAST_PLACEHOLDER / 2:
        return None
    values = ", ".join(f"{value!r}::float" for value in map(float, frequent["value"]))
    found = evidence.frame(
        f"select {column} as value, count(*) as n, stddev_pop({other}) as spread, "
        "count(distinct (step, seq_id)) as responses from examined "
        f"where {column} in ({values}) group by {column} order by n desc, value"
    )
    first, following = found.iloc[0], float(found["n"].iloc[1]) if len(found) > 1 else 0.0
    share = float(first["n"]) / evidence.n_rows
    if first["n"] < _A_RESPONSE * first["responses"]:
        return None  # the one end of a response that a shift leaves empty
    if share < _LEAST_PLACEHOLDER or first["n"] < _TIMES_NEXT * following or not first["spread"] > LEAST_SPREAD:
        return None
    return Finding(
        f"{column} is {first['value']:.4g} in {percent(share)} of the rows, where {other} varies: a placeholder for "
        "missing values.",
        Severity.CRITICAL,
        "Leave missing values empty: ratios of these tokens are those of the constant.",
        (estimated("share of the rows", share), estimated("value", float(first["value"]))),
        evidence.all_steps,
        (column,),
        evidence.rows_where(same := f"{column} = {float(first['value'])!r}::float"),
        wrong_rows=of_one_owner(evidence, same, column, f"{first['value']:.4g}")
        or LeftOut(f"those whose {column} is {first['value']:.4g}, a placeholder", same, values=True),
    )


def of_one_owner(evidence: LogEvidence, same: str, column: str, value: str) -> LeftOut | None:
    """The server, rank, adapter or environment all of whose tokens have a placeholder, and whose alone."""
    for name, title in RESPONSE_OWNERS.items():
        if not evidence.log.has(f"sequences.{name}"):
            continue
        of_level = evidence.frame(
            f"select {name}::varchar as level, avg(({same})::int) as share from examined "
            f"join (select distinct on (step, seq_id) step, seq_id, {name} from sequence) using (step, seq_id) "
            f"where isfinite({column}) group by all order by all"
        )
        alike = of_level["share"] > _ALL_OF_IT
        if alike.any() and (of_level["share"][~alike] < _NONE_OF_IT).all() and (~alike).any():
            levels = of_level["level"][alike].dropna().tolist()
            words = f"{named_part(title, levels)}, whose {column} is {value}, a placeholder"
            return LeftOut(words, *is_one_of(name, levels), values=True)
    return None


def is_one_of(column: str, levels: Sequence[str]) -> tuple[str, str]:
    """The condition that a column of the responses has one of some values, and the table that it is of."""
    quoted = ", ".join("'" + level.replace("'", "''") + "'" for level in levels)
    return f"{column}::varchar in ({quoted})", schema.SEQUENCES.name


def _unbounded(column: str) -> str:
    """What to do about a bound of a column; the manifest alone tells whether it is the sampler's own."""
    stated = "state smoothing in the manifest if the sampler has it, else " if column in SAMPLER else ""
    text = f"{stated}log the values as they are: ratios of these tokens are those of the bound."
    return capital(text)


def _clamped(evidence: LogEvidence, column: str) -> Finding | None:
    """A column whose smallest value many tokens have that differ in another column: what is less likely was cut off."""
    other = "logp_behavior" if column == "logp_current" else "logp_current"
    at_lowest = f"{column} = (select min({column}) from examined where isfinite({column}))"
    found = evidence.frame(
        f"select count(*) as n, stddev_pop({other}) as spread, min({column}) as lowest, "
        f"avg(({other} <= {column} + {LEAST_SPREAD})::int) as below from examined "
        f"where {at_lowest} and isfinite({other})"
    ).iloc[0]
    n = int(found["n"])
    # Smoothing gives every token that truncation left out one and the same probability.
    smoothed = column in SAMPLER and smoothing_of(evidence.run.manifest.sampler) > 0
    few = n < max(LEAST_ROWS, LEAST_CLAMPED_SHARE * evidence.n_rows)
    if few or smoothed or not found["spread"] > LEAST_SPREAD:
        return None
    # Beside a bound the other column is as unlikely; a value that stands for others is anything there.
    bound = float(found["below"]) > _MOSTLY_BELOW
    return Finding(
        f"{column} is never below {found['lowest']:.4g}, which {n:,} tokens have that differ in {other}"
        + (f", where {percent(found['below'])} of them are as unlikely: a bound." if bound else ": a stand-in."),
        Severity.CRITICAL if n > LARGEST_CLAMPED_SHARE * evidence.n_rows else Severity.WARNING,
        _unbounded(column)
        if bound
        else "Leave missing values empty: ratios of these tokens are those of the stand-in.",
        (estimated("tokens", n), estimated("smallest value", float(found["lowest"]))),
        evidence.all_steps,
        (column,),
        evidence.rows_where(at_lowest),
        wrong_rows=None
        if bound
        else LeftOut(
            f"those whose {column} is {found['lowest']:.4g}, a stand-in",
            f"{column} = {float(found['lowest'])!r}::float",
            values=True,
        ),
    )
