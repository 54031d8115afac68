"""Whether the log is what it claims to be, and which findings rest on what is broken in it.

A finding is held back where a column that it needs is broken in most of its steps; the others are judged. The log is
broken where that holds of most of what rules need.
"""

from collections.abc import Sequence
from dataclasses import replace

from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed, reward_was_set_back
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.rule import RULES, FindingRule, rule
from ratioscope.analysis.findings.fall import fall_of, setback_of
from ratioscope.analysis.findings.finding import Finding, Severity, estimated
from ratioscope.analysis.findings.logged import QUESTIONS, Need
from ratioscope.analysis.findings.words import judged_without, listed
from ratioscope.analysis.linter.values import invalid_values

_MOST = 0.5
_ELSEWHERE = "staleness"
"""What rules without a group ask."""
_OUTCOMES = "learning"
_OF_THE_LOG = "linter"
"""The page of rules about the log itself."""
_CAUSE_UNKNOWN = "The columns that would tell the cause are broken in this log."


class Damage:
    """What is broken in a log, as far as rules need it."""

    def __init__(self, evidence: RunEvidence) -> None:
        self.remarks = [remark for remark in evidence.remarks if remark.is_broken]
        self._log = evidence.log if evidence.run is not None else None
        self._n_steps = max(len(evidence.values), 1)
        self._steps: dict[str, set[int]] = {}
        every = {int(step) for step in evidence.values.index}
        unusable, rows = evidence.values["n_invalid"], evidence.values["n_tokens"] + evidence.values["n_invalid"]
        mostly = {int(step) for step in evidence.values.index[(unusable > _MOST * rows).to_numpy()]}
        for remark in self.remarks:
            steps = set(remark.steps) or every
            # Rows with such values are left out of every number: what remains is that of the others.
            steps = steps & mostly if remark.rule == invalid_values.name else steps
            for column in remark.columns:
                self._steps.setdefault(column.rpartition(".")[2], set()).update(steps)

    @property
    def columns(self) -> list[str]:
        """Those that are broken, in the order in which the linter names them."""
        return list(self._steps)

    @property
    def reach(self) -> float:
        """Share of what rules need that is broken: over the rules and the steps."""
        asked = [each for each in RULES.values() if _rests_on_columns(each) and self._is_asked(each)]
        return sum(len(self._broken(each)) for each in asked) / (max(len(asked), 1) * self._n_steps)

    @property
    def is_most(self) -> bool:
        return self.reach > _MOST

    def touches(self, finding: Finding) -> bool:
        """Whether it rests on what is broken."""
        declared = RULES[finding.rule]
        if not _rests_on_columns(declared):
            return False
        broken, steps = self._broken(declared), set(finding.steps)
        return len(broken & steps) > _MOST * len(steps) if steps else len(broken) > _MOST * self._n_steps

    def _is_asked(self, declared: FindingRule) -> bool:
        return self._log is None or all(map(self._log.meets, _needs(declared)))

    def _broken(self, declared: FindingRule) -> set[int]:
        """The steps in which a column that a rule needs is broken."""
        return set[int]().union(*(self._steps.get(self._used(need), set()) for need in _needs(declared)))

    def _used(self, need: Need) -> str:
        """Of the columns of which it needs one, the first that is logged."""
        names = [name for name in need if self._log is None or self._log.has(name)] or [need[0]]
        return names[0].rpartition(".")[2]


def _rests_on_columns(declared: FindingRule) -> bool:
    return not declared.absence and declared.page != _OF_THE_LOG


def _needs(declared: FindingRule) -> tuple[Need, ...]:
    question = declared.group.question if declared.group else _OUTCOMES if declared.outcome else _ELSEWHERE
    return QUESTIONS[question].needs


@rule("log_broken", order=50, page="linter", group=None, words="broken log", of_the_log=True, cause=False)
def log_is_broken(evidence: RunEvidence) -> Finding | None:
    """Critical remarks of the linter concern most of what rules need: the numbers are not those of the run."""
    return _finding(evidence, Severity.CRITICAL, "The log is broken") if Damage(evidence).is_most else None


@rule("log_broken_in_part", order=52, page="linter", group=None, words="partly broken log", cause=False)
def log_is_broken_in_part(evidence: RunEvidence) -> Finding | None:
    """A critical remark of the linter concerns a part of what rules need, and the rest is judged."""
    damage = Damage(evidence)
    if damage.is_most or not damage.remarks:
        return None
    broken = {column for remark in evidence.remarks if remark.is_broken for column in remark.columns}
    # What the loss learned from may itself be wrong, and be logged as it was.
    of_credit = broken <= {"advantage", "reward", "group_id"}
    what = "Advantages are wrong, in the log or in the loss" if of_credit else "The log is broken in part"
    return _finding(evidence, Severity.WARNING, what)


@rule("rows_left_out", order=54, page="linter", group=None, words="rows left out", cause=False)
def rows_are_left_out(evidence: RunEvidence) -> Finding | None:
    """The linter found rows that are wrong, and the run is judged without them."""
    wrong = [remark for remark in evidence.remarks if remark.wrong_rows is not None]
    wrong.sort(key=lambda remark: not remark.of_cause)  # a known cause says most
    parts = list(dict.fromkeys(remark.wrong_rows for remark in wrong if remark.wrong_rows is not None))
    if not 0 < sum(part.share for part in parts) < evidence.limits.left_out:
        return None
    return Finding(
        severity=Severity.WARNING,
        sentence=judged_without(parts),
        metric="ratio_mean",
        steps=wrong[0].steps or tuple(int(step) for step in evidence.values.index),
        numbers=tuple(estimated(f"share of the tokens, {part.words}", part.share) for part in parts),
        why=f"{wrong[0].sentence} Among the other rows this check finds nothing of the kind.",
        do=f"{wrong[0].do} To judge all rows, set left_out = 0 in ratioscope.toml.",
        source=f"ratioscope check: {wrong[0].rule.replace('_', ' ')}",
        limit=evidence.limits.left_out,
        begins_unseen=wrong[0].begins_unseen,
    )


def _finding(evidence: RunEvidence, severity: Severity, what: str) -> Finding:
    broken = [remark for remark in evidence.remarks if remark.is_broken]
    first, others = broken[0], len({remark.rule for remark in broken}) - 1
    more = f" {others} more check{'s' * (others > 1)} found the log broken, too." if others else ""
    return Finding(
        severity=severity,
        sentence=f"{what}: {first.sentence}",
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


def undamaged(findings: Sequence[Finding], evidence: RunEvidence) -> list[Finding]:
    """The findings without those that rest on what is broken; that about the log says how many these are."""
    damage = Damage(evidence)
    if not damage.remarks:
        return list(findings)
    kept = [finding for finding in findings if not damage.touches(finding)]
    others = len(findings) - len(kept)
    about = (log_is_broken.name, log_is_broken_in_part.name)
    return [_held_back(each, others, damage) if each.rule in about else each for each in kept]


def _held_back(broken: Finding, others: int, damage: Damage) -> Finding:
    """The finding, which says how many were not shown beside it."""
    rest = "" if damage.is_most else " What does not rest on the broken columns is judged."
    if not others:
        return replace(broken, why=f"{broken.why}{rest}")
    said = "1 other finding is" if others == 1 else f"{others} other findings are"
    held = f"{said} held back until {listed(damage.columns)} {'is' if len(damage.columns) == 1 else 'are'} mended"
    return replace(broken, why=f"{broken.why} {held}: they would be about the damage.{rest}")


def without_cause(finding: Finding, evidence: RunEvidence) -> Finding:
    """A fall without the metrics that changed before it, where most of these are made of what is broken."""
    find = {reward_has_collapsed.name: fall_of, reward_was_set_back.name: setback_of}.get(finding.rule)
    fall = find(evidence.summary, evidence.limits) if find else None
    if fall is None or not Damage(evidence).is_most:
        return finding
    return replace(
        finding, sentence=f"{fall.words}.", why=_CAUSE_UNKNOWN, do="Mend the log first, then look for the cause.",
        cause="", sure="", unexplained=True,
    )  # fmt: skip
