"""The questions of a run, one function `Subject -> Section` each, in their order; a page draws the same blocks.

A module has a function a block, which takes the reader's choice where there is one (the discount, the metric), and
`section`, which strings them together for the report.

To add one: write it in the module of its question and name it here; the command line, the Report page, notebooks and
the tests have it from then on.
"""

from collections.abc import Callable

from ratioscope.dashboard.sections import (
    clipping,
    drift,
    findings,
    frameworks,
    learning,
    linter,
    ratios,
    setting,
    staleness,
    tokens,
    variance,
)
from ratioscope.dashboard.sections.model import Section
from ratioscope.dashboard.sections.subject import Subject

SECTIONS: dict[str, Callable[[Subject], Section]] = {
    "setting": setting.section,
    "findings": findings.section,
    "learning": learning.section,
    "drift": drift.section,
    "ratios": ratios.section,
    "clipping": clipping.section,
    "variance": variance.section,
    "staleness": staleness.section,
    "tokens": tokens.section,
    "linter": linter.section,
    "frameworks": frameworks.section,
}

# A table of thirty rows for readers of another framework's log: others would page past it. A report has it when its run
# names the framework that wrote it, or when it is asked for.
ON_REQUEST = ("frameworks",)
