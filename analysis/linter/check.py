"""A check is declared where it is computed, once: what it needs of a log, its place among the others, and its page.

@check(order=260, needs=(*ENGINE, *STATES), page="ratios")
def temperature(evidence: LogEvidence) -> list[Finding]: ...

CHECKS["temperature"].lacking(log)     # "token_id is not logged." or ""
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ratioscope.analysis.findings.declared import DeclaredFinding, put
from ratioscope.analysis.findings.finding import Finding, not_checked
from ratioscope.analysis.findings.logged import GROUP, QUESTIONS, Logged, Need
from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.sample import COLUMNS

Look = Callable[[LogEvidence], list[Finding]]

AGE, RATIO = QUESTIONS["age"].needs, QUESTIONS["staleness"].needs
ENGINE_COLUMNS: tuple[Need, ...] = (("logp_behavior",), ("logp_behavior_train", "logp_current"))
STATES: tuple[Need, ...] = (("token_id",), GROUP)
TOKENS: tuple[Need, ...] = (("position",),)
ANY: tuple[Need, ...] = (COLUMNS,)


@dataclass(frozen=True, eq=False)
class Check(DeclaredFinding):
    """What there is to know of a check but what it finds."""

    needs: tuple[Need, ...] = TOKENS
    """Columns, of each of which it needs one: without them it says so and looks at nothing."""
    compares: bool = False
    """Whether it holds log-probabilities against each other, so that it needs two of them."""
    of_the_run: bool = False
    """Whether what it finds is so of the run, whose log may be as true as any."""

    def __call__(self, evidence: LogEvidence) -> list[Finding]:
        """One where it passes or cannot look, one for each thing that it finds."""
        missing = self.lacking(evidence.log)
        if not missing and self.looks_at_tokens and not evidence.n_rows:
            missing = "There are no tokens in these steps."
        found = not_checked(missing) if missing else self.function(evidence)
        return [replace(each, rule=self.name) for each in found]

    def lacking(self, log: Logged) -> str:
        """Why it has nothing to look at, a sentence; "" where it has."""
        for need in self.needs:
            if not log.meets(need):
                why = "no log-probability is logged" if need == COLUMNS and log.has_tokens else log.why(*need)
                return f"{capital(why)}." if why.startswith("no ") else f"{why}."
        if self.compares and sum(map(log.has, COLUMNS)) < 2:
            return "Fewer than two log-probability columns are logged: there is nothing to hold them against."
        return ""

    @property
    def looks_at_tokens(self) -> bool:
        """Whether it says nothing about texts alone."""
        return any(all("." not in name for name in need) for need in self.needs if need != GROUP)


CHECKS: dict[str, Check] = {}
"""By name; causes before their consequences."""


def check(
    *,
    order: int,
    needs: tuple[Need, ...] = TOKENS,
    page: str = "",
    compares: bool = False,
    of_the_run: bool = False,
) -> Callable[[Look], Check]:
    """The declaration of the check below, by the function's name; the arguments are the fields of `Check`."""
    return lambda function: put(Check(function.__name__, function, order, page, needs, compares, of_the_run), CHECKS)
