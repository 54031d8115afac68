"""Can a log be trusted: the remarks of all checks in one sentence, and steps as ranges."""

from collections.abc import Iterable, Sequence

from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.finding import Finding, Outcome, Severity
from ratioscope.analysis.linter.check import CHECKS

# More stretches of steps than these are counted instead.
MOST_RANGES = 12


def log_headline(remarks: Sequence[Finding]) -> str:
    """Whether a log can be trusted; where that is unknown, how many checks could not run."""
    if problems := doubts(remarks):
        grave = any(problem.severity is Severity.CRITICAL for problem in problems)
        return "This log cannot be trusted as it is." if grave else "Use this log with care."
    if mostly_unknown(remarks):
        return f"Whether this log can be trusted is unknown: {counted_outcomes(remarks)}."
    return "No check found a problem in this log."


def log_verdict(remarks: Sequence[Finding]) -> str:
    """The headline, and what is broken first; the text may quote the log."""
    problems = doubts(remarks)
    more = f"And {len(problems) - 1} more." if len(problems) > 1 else ""
    return " ".join(filter(None, (log_headline(remarks), *(problem.sentence for problem in problems[:1]), more)))


def doubts(remarks: Iterable[Finding]) -> list[Finding]:
    """The problems because of which a log may not be true; a true one says what is wrong in its run."""
    return [remark for remark in remarks if remark.is_problem and not _is_of_the_run(remark)]


def causes_in_the_run(remarks: Iterable[Finding], findings: Iterable[Finding]) -> list[Finding]:
    """The causes that checks found of a true log, which no rule says."""
    told = {finding.rule for finding in findings}
    problems = (remark for remark in remarks if remark.is_problem and remark.of_cause and remark.rule not in told)
    return [remark for remark in problems if _is_of_the_run(remark) and remark.wrong_rows is None]


def _is_of_the_run(remark: Finding) -> bool:
    known = CAUSES.get(remark.of_cause)
    return CHECKS[remark.rule].of_the_run or (known is not None and known.of_the_run)


def counted_outcomes(remarks: Iterable[Finding]) -> str:
    """How the checks ended; the counts add up to all of them."""
    remarks = list(remarks)
    ends = list(outcomes(remarks).values())
    passed, found, unknown = (ends.count(end) for end in (Outcome.PASSED, Outcome.FOUND, Outcome.NOT_CHECKED))
    problems = len({remark.rule for remark in doubts(remarks)})
    of_run = len({remark.rule for remark in remarks if remark.is_problem}) - problems
    counts = f"{passed} of {len(ends)} checks passed"
    for n, what in (
        (problems, "found a problem"),
        (of_run, "found what is wrong in the run"),
        (found - problems - of_run, "notices" if found - problems - of_run > 1 else "notice"),
        (unknown, "could not run"),
    ):
        counts += f", {n} {what}" * bool(n)
    return counts


def mostly_unknown(remarks: Iterable[Finding]) -> bool:
    """Whether more than half of the checks could not run."""
    ends = list(outcomes(remarks).values())
    return 2 * ends.count(Outcome.NOT_CHECKED) > len(ends)


def nothing_checked(remarks: Iterable[Finding]) -> bool:
    """Whether no check of what tokens say could run, as on a log without one."""
    return all(end is Outcome.NOT_CHECKED for check, end in outcomes(remarks).items() if CHECKS[check].looks_at_tokens)


def outcomes(remarks: Iterable[Finding]) -> dict[str, Outcome]:
    """How each check ended."""
    return {remark.rule: remark.outcome for remark in remarks}


def ranges(steps: Iterable[int]) -> str:
    """Steps as "3, 5–9, 12"; what is beyond `MOST_RANGES` stretches is counted."""
    stretches: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if stretches and step == stretches[-1][1] + 1:
            stretches[-1] = (stretches[-1][0], step)
        else:
            stretches.append((step, step))
    texts = [f"{first}" if first == last else f"{first}–{last}" for first, last in stretches]
    if len(texts) <= MOST_RANGES:
        return ", ".join(texts)
    left = sum(last - first + 1 for first, last in stretches[MOST_RANGES:])
    return f"{', '.join(texts[:MOST_RANGES])} and {left} more"
