"""A page's metrics as another framework would have logged them: folded away, open where the URL names one."""

from collections.abc import Collection

import pandas as pd
import streamlit as st

from ratioscope.analysis.findings.words import some
from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.naming import written_by
from ratioscope.analysis.frameworks.translation import Translation
from ratioscope.analysis.frameworks.writing import agreement_sentence
from ratioscope.dashboard.components.blocks import computed, draw, say
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.sections import frameworks
from ratioscope.dashboard.sections.model import cell_text
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import NO_STEP, Subject

_PARAMETER = "framework"


def as_reported(page: Page, subject: Subject) -> None:
    """A page's metrics under the names of the frameworks: whether theirs are the same numbers, and why not."""
    if not (page.reported and subject.log.has_tokens):
        return
    named = st.query_params.get(_PARAMETER, "") in map(_title, DIALECTS)
    with fold("as-reported", frameworks.PAGE.title, some(map(_title, DIALECTS), most=3), opened=named) as door:
        if door.open:
            _content(subject, page.reported)


def _content(subject: Subject, metrics: Collection[str]) -> None:
    names = list(DIALECTS)
    usual = written_by(subject.opened.run.manifest) or names[0]
    chosen = st.segmented_control(
        "Framework", names, default=usual, required=True, key=_PARAMETER, bind="query-params", format_func=_title
    )
    if not len(subject.summary.values):
        say(NO_STEP)
        return
    found = computed(lambda: frameworks.translated(subject, chosen), height=400)
    if found is not None:
        say(agreement_sentence(found))
        _numbers(subject, found, metrics)
        draw(frameworks.never(found))


def _numbers(subject: Subject, found: Translation, metrics: Collection[str]) -> None:
    """The table of the page's metrics, and the chosen row over the steps."""
    lines, table = frameworks.near(found, metrics), frameworks.table(subject, found, metrics)
    st.markdown(f"## {table.title}: select a row to plot it over the steps")
    if not lines:
        say(f"{found.dialect.framework.title} logs nothing close to the metrics of this page.")
        return
    chosen = st.dataframe(
        pd.DataFrame([tuple(map(cell_text, row)) for row in table.rows], columns=list(table.head)),
        hide_index=True,
        key="as-reported-rows",
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": [0]}},
        height=whole_rows(len(table.rows), 10),
        column_config={table.head[-1]: st.column_config.TextColumn(width="large")},
        alt=table.title,
    )
    for row in chosen["selection"]["rows"]:
        if row < len(lines):
            draw(frameworks.series(subject, lines[row]), caption="below")
    say(table.note)


def _title(framework: str) -> str:
    return DIALECTS[framework].framework.title
