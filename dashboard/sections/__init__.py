"""The questions of a run, one function `Subject -> Section` each, in their order; a page draws the same blocks.

A module has a function a block, which takes the reader's choice where there is one (the discount, the metric), and
`section`, which strings them together for the report.

To add one: write it in the module of its question and name it here; the command line, the Report page, notebooks and
the tests have it from then on.
"""

from collections.abc import Callable
from dataclasses import replace

from ratioscope.dashboard.sections import (
    clipping,
    drift,
    engine,
    findings,
    frameworks,
    learning,
    linter,
    overview,
    ratios,
    setting,
    staleness,
    tokens,
    variance,
)
from ratioscope.dashboard.sections.absent import is_empty, not_said
from ratioscope.dashboard.sections.model import Block, Chart, Paragraph, Section, has_content
from ratioscope.dashboard.sections.subject import Subject, flat

SECTIONS: dict[str, Callable[[Subject], Section]] = {
    "overview": overview.section,
    "findings": findings.section,
    "learning": learning.section,
    "drift": drift.section,
    "engine": engine.section,
    "ratios": ratios.section,
    "clipping": clipping.section,
    "variance": variance.section,
    "staleness": staleness.section,
    "tokens": tokens.section,
    "linter": linter.section,
    "setting": setting.section,
    "frameworks": frameworks.section,
}


def written(name: str, subject: Subject) -> Section:
    """A section of the report: below its answer what is not logged, and only that where nothing is."""
    section, unsaid = SECTIONS[name](subject), not_said(subject, name)
    if is_empty(subject, name) and name != "tokens":  # texts can be read without any log-probability
        return replace(section, answer=unsaid, blocks=())
    blocks = tuple(_in_words(block) for block in section.blocks if has_content(block))
    if not section.answer:
        return replace(section, answer=unsaid, blocks=blocks)
    said = (Paragraph(unsaid, small=True),) if unsaid and unsaid not in section.answer else ()
    return replace(section, blocks=said + blocks)


def _in_words(block: Block) -> Block:
    """A chart whose lines are all flat is a sentence."""
    says = flat(block) if isinstance(block, Chart) else ""
    return Paragraph(says, small=True) if says else block


# What a report has unless it is asked for more: with the verdict, few pages of paper.
SHORT = ("overview", "findings")
# A table of thirty rows for readers of another framework's log: others would page past it. A report has it when its run
# names the framework that wrote it, or when it is asked for.
ON_REQUEST = ("frameworks",)
