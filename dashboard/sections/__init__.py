"""The questions that a report over one run answers, one function `Subject -> Section` each, in their order.

To add one: write it in the module of its question and name it here; the command line, the Report page, notebooks and
the tests have it from then on.
"""

from collections.abc import Callable

from ratioscope.dashboard.sections.clipping import clipping
from ratioscope.dashboard.sections.drift import drift
from ratioscope.dashboard.sections.findings import findings
from ratioscope.dashboard.sections.learning import learning
from ratioscope.dashboard.sections.linter import linter
from ratioscope.dashboard.sections.model import Section
from ratioscope.dashboard.sections.ratios import ratios
from ratioscope.dashboard.sections.setting import setting
from ratioscope.dashboard.sections.staleness import staleness
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.sections.tokens import tokens
from ratioscope.dashboard.sections.variance import variance

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
