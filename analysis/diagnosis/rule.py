"""A rule is declared where it is computed, once: everybody else iterates over the registry.

@rule("update_large", order=170, page="drift", group=Group.UPDATE, another_rule=True)
def update_is_large(evidence: RunEvidence) -> Finding | None: ...

RULES["update_large"](evidence)      # the finding, which bears the rule's name
rule_words("update_large")           # "large update"
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import isnan

from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.findings.declared import DeclaredFinding, put
from ratioscope.analysis.findings.finding import Finding

Look = Callable[[RunEvidence], Finding | None]


@dataclass(frozen=True, eq=False)
class FindingRule(DeclaredFinding):
    """What there is to know of a rule but its finding."""

    group: Group | None
    """Which kind of trouble it looks for: nothing calls that fine while it speaks."""
    words: str = ""
    """It as people say it; "": its name."""
    explains: frozenset[str] = frozenset()
    """Rules whose findings it is the cause of: their remedies would be the wrong ones, so they are not shown."""
    outcome: bool = False
    """Whether it finds what a run is for to be lost, if for a time: what happened, whatever is graver as its cause."""
    absence: bool = False
    """Whether it finds that something is not there, which is said beside a broken log as well."""
    of_the_log: bool = False
    """Whether it finds that the log cannot be judged: nothing else is called fine, and no training is stopped."""
    cause: bool = True
    """Whether a fall of the reward may come from what it finds."""
    of_the_sampler: bool = False
    """Whether it finds that the sampler is not what it is taken for, which decides about the engine in these steps."""
    another_rule: bool = False
    """Whether its remedy may be another gate or weight, which the what-if on Clipping tries on the run's own tokens."""

    def __call__(self, evidence: RunEvidence) -> Finding | None:
        """What it finds, without the numbers that are not logged."""
        finding: Finding | None = self.function(evidence)
        if finding is None:
            return None
        known = tuple(number for number in finding.numbers if not isnan(number.value))
        return replace(finding, rule=self.name, numbers=known)


RULES: dict[str, FindingRule] = {}
"""By name; causes before their consequences, a fall of what the run is for before the measures that may explain it."""


def rule(
    name: str, *, order: int, page: str, group: Group | None, words: str = "", explains: Iterable[str] = (),
    outcome: bool = False, absence: bool = False, of_the_log: bool = False, cause: bool = True,
    of_the_sampler: bool = False, another_rule: bool = False,
) -> Callable[[Look], FindingRule]:  # fmt: skip
    """The declaration of the rule below; the arguments are the fields of `FindingRule`."""
    others = frozenset(explains)
    facts = (order, page, group, words, others, outcome, absence, of_the_log, cause, of_the_sampler, another_rule)
    return lambda function: put(FindingRule(name, function, *facts), RULES)


def rule_words(name: str) -> str:
    """A rule as people say it."""
    known = RULES.get(name)
    return known.words if known and known.words else name.replace("_", " ")
