"""The three lights of a run, and the answers about it, each with one link to what shows it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.overview.lights import Light, LightState
from ratioscope.analysis.overview.verdict import CHANGE, SINCE, SURE, WHY, Verdict
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.blocks import PageSubject
from ratioscope.dashboard.components.rule_editor import QUERY
from ratioscope.dashboard.components.siblings import tried_rule
from ratioscope.dashboard.evidence import link_of
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session

_IN_SHORT = {SINCE: "When", WHY: "Why", CHANGE: "Change", SURE: "How sure"}
"""The questions as a page that is read at a glance has them; what happened is read first without one."""


def answers(subject: PageSubject, verdict: Verdict, tried: Callable[[], None]) -> None:
    """Question, answer and link below each other; what happened in bold.

    Args:
        tried: draws what siblings show of the remedy, below it.
    """
    pages, tokens = session().pages, subject.log.has_tokens
    links = [link_of(answer, subject.opened.run_id, has_tokens=tokens) for answer in verdict.answers]
    # How sure is said of the reason; below what to change stands what others have tried of it.
    for answer, link in sorted(zip(verdict.answers, links, strict=True), key=lambda each: each[0].question == CHANGE):
        first = answer is verdict.answers[0]  # what happened, whichever steps are chosen
        asked = "" if first else _IN_SHORT.get(answer.question, answer.question)
        if first and link is not None and link.page in {each.page for each in links[1:] if each is not None}:
            link = None
        if link is not None and link.page == "clipping" and (rule := tried_rule(subject.opened.run_id)):
            link = replace(link, query=link.query | {QUERY: str(rule)})
        with st.container(gap=None, key="happened" if first else None):
            if asked or link:
                with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
                    st.caption(asked, width="content")
                    if link is not None:
                        page = pages[link.page]
                        st.page_link(page, label=link.label or page.title, icon=page.icon, query_params=link.query)
            st.markdown(f"**{escape(answer.text)}**" if first else escape(answer.text))
        if answer.question == CHANGE:
            tried()


def lights_row(shown: Sequence[Light]) -> None:
    """A box for each light: state, and the sentence that it rests on."""
    for place, light in zip(st.columns(len(shown), gap="small", border=True), shown, strict=True):
        with place.container(gap=None):
            st.caption(light.name)
            colour = theme.SEVERITY_COLOUR[light.severity] if light.state is not LightState.UNKNOWN else "gray"
            word = f"**{capital(light.state.word)}**"
            st.markdown(f":{colour}[:material/{light.state.icon}:] {word}")
            st.markdown(escape(light.sentence))
