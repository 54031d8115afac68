"""What a log does not say: of each page's questions those that are open, with the reason, in one sentence."""

from collections.abc import Mapping

from ratioscope.analysis.findings.logged import QUESTIONS
from ratioscope.analysis.findings.words import listed
from ratioscope.dashboard.sections.subject import Subject

ASKED: Mapping[str, tuple[str, ...]] = {
    "overview": ("reward", "staleness", "update", "clipping", "entropy"),
    "learning": ("learning", "entropy"),
    "drift": ("staleness", "update", "new"),
    "ratios": ("weights",),
    "clipping": ("clipping", "signal", "what_if"),
    "variance": ("weights",),
    "staleness": ("age", "staleness"),
    "tokens": ("tokens", "attribution"),
    "frameworks": ("tokens",),
}
"""By page, or section of the report: the questions of `QUESTIONS` that it is about."""

_ALSO = {"drift": ("engine",), "staleness": ("engine",)}
"""What a page can say besides; where it cannot, its answer says so."""


def not_said(subject: Subject, page: str) -> str:
    """Which of a page's questions the log leaves open, and why, in one sentence; "" where it leaves none."""
    log = subject.log
    reasons: dict[str, list[str]] = {}
    for question in ASKED.get(page, ()):
        if absent := log.absent(question):
            need = next(need for need in QUESTIONS[question].needs if set(need) <= set(absent))
            reasons.setdefault(log.why(*need), []).append(QUESTIONS[question].words)
    if not reasons:
        return ""
    told = "; ".join(f"{listed(words)}, because {reason}" for reason, words in reasons.items())
    return f"This log does not say {told}."


def is_empty(subject: Subject, page: str) -> bool:
    """Whether the log leaves all of a page's questions open."""
    return page in ASKED and all(subject.log.absent(question) for question in (*ASKED[page], *_ALSO.get(page, ())))
