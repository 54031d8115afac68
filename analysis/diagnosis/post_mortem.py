"""After the fact: the last step of a run at which nothing critical had begun, and what the run was like there.

found = post_mortem(opened)              # None: the rules found nothing critical
found.last_stable, found.sentence
"""

from dataclasses import dataclass

from ratioscope.analysis.diagnosis.collapse import moved_before, reward_has_collapsed
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.rule import RULES, rule_words
from ratioscope.analysis.findings.change_points import FAMILY, find_shift
from ratioscope.analysis.findings.fall import fall_of
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.catalogue import CATALOGUE


@dataclass(frozen=True)
class Onset:
    """When a finding began, as far as the log shows."""

    finding: Finding
    stable: int | None
    """The last step that it had not touched yet; None: it holds from the first one on."""
    step: int
    """The first step that shows it."""
    by: str
    """The metric that shows it first."""
    how: str
    """What that metric did, in words that follow its name."""

    @property
    def words(self) -> str:
        name = rule_words(self.finding.rule)
        return f'{CATALOGUE[self.by].title} {self.how} (finding "{name}")'


@dataclass(frozen=True)
class PostMortem:
    """The critical findings by when they began, and the last step before the first of them."""

    onsets: tuple[Onset, ...]
    last: int
    """The last step on disk."""

    @property
    def first(self) -> Onset:
        return self.onsets[0]

    @property
    def last_stable(self) -> int | None:
        return self.first.stable

    @property
    def sentence(self) -> str:
        """Where the run was last as it should be, and what ended that."""
        if self.last_stable is None:
            return f"No step on disk is stable: {self.first.words}."
        return f"The last stable step is {self.last_stable}: {self.first.words}."


def post_mortem(opened: Opened) -> PostMortem | None:
    """Where the run was last stable; None where no finding about the training is critical."""
    critical = [each for each in opened.findings if each.severity is Severity.CRITICAL]
    grave = [each for each in critical if not RULES[each.rule].of_the_log]
    index = opened.summary.values.index
    if not grave or not len(index):
        return None
    evidence = RunEvidence(opened.summary, opened.run, opened.limits, opened.remarks)
    onsets = [_onset(evidence, finding) for finding in grave]
    onsets.sort(key=lambda onset: (-1 if onset.stable is None else onset.stable, onset.step))
    return PostMortem(tuple(onsets), int(index[-1]))


def _onset(evidence: RunEvidence, finding: Finding) -> Onset:
    """A fall began with what changed before it, any other finding with its metric's own sustained change."""
    index = evidence.values.index
    fall = fall_of(evidence.summary, evidence.limits) if finding.rule == reward_has_collapsed.name else None
    if fall is not None:
        moved = moved_before(evidence, fall)
        if moved.cause in CATALOGUE:
            return _changed(evidence, finding, moved.cause, moved.before[moved.cause].first)
        how = f"was at its best level up to there and is low in step {fall.found}"
        return Onset(finding, fall.still_good, fall.found, fall.metric, how)
    touched = min(finding.steps, default=int(index[0]))
    shift = find_shift(evidence.values[finding.metric], beside=evidence.values["version_lag"])
    if shift is not None and shift.p <= FAMILY and shift.first < touched:
        return _changed(evidence, finding, finding.metric, shift.first)
    return Onset(finding, _before(evidence, touched), touched, finding.metric, f"shows it first in step {touched}")


def _changed(evidence: RunEvidence, finding: Finding, key: str, step: int) -> Onset:
    return Onset(finding, _before(evidence, step), step, key, f"changed for good from step {step} on")


def _before(evidence: RunEvidence, step: int) -> int | None:
    """The last step on disk before another."""
    earlier = evidence.values.index[evidence.values.index < step]
    return int(earlier[-1]) if len(earlier) else None
