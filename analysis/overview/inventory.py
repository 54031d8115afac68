"""The answer of the list of runs: how many there are, how many live, how many are sick."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.findings.finding import Severity

# What is worth a word besides being live, in the order in which it is said.
_TROUBLE = ("stalled", "failed", "cannot be read")

Worst = tuple[Severity | None, str]
"""Severity and rule of a run's worst finding; (None, "") where its rules found nothing."""


def inventory(statuses: Sequence[str], worst: Iterable[Worst], *, unread: int = 0) -> str:
    """What is there, what is alive, what is sick?

    Args:
        statuses: one word a run: live, stalled, finished, interrupted, failed, or cannot be read.
        worst: of those runs whose findings are known.
        unread: how many runs have steps and findings that are not known.
    """
    n, known = len(statuses), list(worst)
    text = f"{n:,} run{'s' * (n != 1)}, {_how_many_live(statuses)}"
    text += "".join(f", {statuses.count(word)} {word}" for word in _TROUBLE if word in statuses)
    if not known:
        return f"{text}."
    if not unread:
        return f"{text}; {_findings(known)}."
    read = f"{len(known):,} of {len(known) + unread:,} read so far"
    sick = any(severity in (Severity.CRITICAL, Severity.WARNING) for severity, _ in known)
    # That none is critical is not known before all are read.
    return f"{text}; {read}, of these {_findings(known, partly=True)}." if sick else f"{text}; {read}."


def _how_many_live(statuses: Sequence[str]) -> str:
    live = statuses.count("live")
    if live == len(statuses):
        return "live" if live == 1 else "all live"
    return f"{live} of them live" if live else "not live" if len(statuses) == 1 else "none live"


def _findings(worst: list[Worst], *, partly: bool = False) -> str:
    critical = Counter(rule for severity, rule in worst if severity is Severity.CRITICAL)
    warnings = Counter(rule for severity, rule in worst if severity is Severity.WARNING)
    if critical:
        text = f"{_have(critical.total())} a critical finding ({_most_often(critical)})"
        return text + (f" and {warnings.total()} a warning" if warnings else "")
    if warnings:
        text = f"{_have(warnings.total())} a warning ({_most_often(warnings)})"
        return text if partly else f"none has a critical finding, {text}"
    return "none has a critical finding or a warning"


def _have(n: int) -> str:
    return f"{n} {'has' if n == 1 else 'have'}"


def _most_often(rules: "Counter[str]") -> str:
    ((rule, times),) = rules.most_common(1)
    if len(rules) == 1:
        return rule_words(rule)
    return f"most often {rule_words(rule)}, {times} times" if times > 1 else f"{rule_words(rule)} and others"
