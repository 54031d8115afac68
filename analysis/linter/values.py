"""Are the values possible: not a number, infinite, above zero."""

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, passed
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.evidence import LOG_PROBS, LogEvidence, steps_with

# From this share of rows on, moments describe a selection (`docs/metrics.md`, bad numbers).
LARGEST_INVALID_SHARE = 1e-3
# What no ratio of sampler and policy is made of.
BESIDE = ("logp_behavior_train", "logp_reference", "entropy")

_CAUSES = {
    "nan": ("NaN or missing", LOG_PROBS),
    "infinite": ("infinite (no legitimate ratio of 0)", LOG_PROBS),
    "positive": ("above zero", LOG_PROBS),
    "advantage": ("not finite", ("advantage",)),
}

_MEND = {
    "nan": "find where the forward pass or the writer loses them",
    "infinite": "subtract and normalise logits in float32",
    "positive": "normalise logits in float32",
    "advantage": "look at the rewards and deviations that it is made of",
}


@check(order=110, needs=ANY, page="ratios")
def invalid_values(evidence: LogEvidence) -> list[Finding]:
    """Rows that no moment can use, by cause, and those with a legitimate ratio of 0."""
    by_step = evidence.by_step
    remarks = []
    for cause, (words, columns) in _CAUSES.items():
        count = evidence.total(cause)
        if not count:
            continue
        steps = steps_with(by_step[cause])
        share = (by_step[cause] / by_step["n_rows"]).max()
        blamed = tuple(column for column in columns if evidence.total(f"bad_{column}")) or columns
        remarks.append(
            Finding(
                f"{' or '.join(blamed)} is {words} in {count:,} of {evidence.n_rows:,} rows, "
                f"{evidence.in_steps(steps)}; up to {percent(share)} of a step's rows.",
                severity_of(evidence, count),
                f"These rows are left out of every mean, which biases it: {_MEND[cause]}.",
                (estimated("rows", count), estimated("largest share of a step's rows", share)),
                steps,
                blamed,
                evidence.examples(cause),
            )
        )
    for column in BESIDE:
        count = evidence.total(f"bad_{column}")
        if count:
            steps = steps_with(by_step[f"bad_{column}"])
            remarks.append(
                Finding(
                    f"{column} is NaN, infinite or impossible in {count:,} of {evidence.n_rows:,} rows, "
                    f"{evidence.in_steps(steps)}.",
                    Severity.WARNING,
                    "What is made of this column leaves these rows out or is undefined: fix the writer.",
                    (estimated("rows", count),),
                    steps,
                    (column,),
                )
            )
    zeros = evidence.total("ratio_zero")
    if zeros:
        steps = steps_with(by_step["ratio_zero"])
        remarks.append(
            Finding(
                f"{zeros:,} tokens have probability 0 under the current or the new policy (log-probability -inf), "
                f"{evidence.in_steps(steps)}; their ratio is 0 and they count as such.",
                Severity.NOTICE,
                "Expected where the trainer masks tokens; otherwise look for an overflow in its logits.",
                (estimated("tokens with ratio 0", zeros),),
                steps,
                ("logp_current", "logp_new"),
                evidence.examples("ratio_zero"),
            )
        )
    return remarks or passed(
        f"All {evidence.n_rows:,} rows have finite log-probabilities of at most 0"
        + (" and a finite advantage." if evidence.log.has_advantages else "; advantage is not logged."),
    )


def severity_of(evidence: LogEvidence, count: int) -> Severity:
    """One bad step in a hundred is flagged; a log is broken when as much is wrong with all of it."""
    return Severity.CRITICAL if count > LARGEST_INVALID_SHARE * evidence.n_rows else Severity.WARNING
