"""Whether the log is what it claims to be: what a broken one says of its run is said of the damage."""

from dataclasses import replace

from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Severity


@rule("log_broken", order=50, page="linter", group=None, words="broken log", of_the_log=True, cause=False)
def log_is_broken(evidence: RunEvidence) -> Finding | None:
    """A critical remark of the linter: the numbers are not those of the run."""
    broken = [remark for remark in evidence.remarks if remark.is_broken]
    if not broken:
        return None
    first, others = broken[0], len({remark.rule for remark in broken}) - 1
    more = f" {others} more check{'s' * (others > 1)} found the log broken, too." if others else ""
    return Finding(
        severity=Severity.CRITICAL,
        sentence=f"The log is broken: {first.sentence}",
        metric="ratio_mean",
        steps=first.steps or tuple(int(step) for step in evidence.values.index),
        numbers=first.numbers,
        why="The linter holds the tables against each other and against what must be so of any log; "
        f"what they contradict cannot be measured.{more}",
        do=first.do,
        source=f"ratioscope check: {first.rule.replace('_', ' ')}",
        limit=1.0,
        begins_unseen=first.begins_unseen,
    )


def held_back(broken: Finding, others: int) -> Finding:
    """The finding, which says how many were not shown beside it."""
    if not others:
        return broken
    said = "1 other finding is" if others == 1 else f"{others} other findings are"
    return replace(broken, why=f"{broken.why} {said} held back until it is mended: they would be about the damage.")
