"""The questions that a report over one run answers, one function `Subject -> Section` each, in their order.

To add one: write it in the module of its question and name it here; the command line, the Report page, notebooks and
the tests have it from then on.
"""

from collections.abc import Callable

from dashboard.report.model import Section
from dashboard.report.sections.clipping import clipping
from dashboard.report.sections.drift import drift
from dashboard.report.sections.findings import findings
from dashboard.report.sections.learning import learning
from dashboard.report.sections.linter import linter
from dashboard.report.sections.ratios import ratios
from dashboard.report.sections.setting import setting
from dashboard.report.sections.staleness import staleness
from dashboard.report.sections.tokens import tokens
from dashboard.report.sections.variance import variance
from dashboard.report.subject import Subject

SECTIONS: dict[str, Callable[[Subject], Section]] = {
    "setting": setting,
    "findings": findings,
    "learning": learning,
    "drift": drift,
    "ratios": ratios,
    "clipping": clipping,
    "variance": variance,
    "staleness": staleness,
    "tokens": tokens,
    "linter": linter,
}
