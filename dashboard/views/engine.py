"""What to set against an engine mismatch, on the Engine page: settings as one copies them."""

import streamlit as st

from ratioscope.analysis.frameworks.remedies import title_of
from ratioscope.dashboard.components.blocks import say
from ratioscope.dashboard.sections import engine
from ratioscope.dashboard.sections.subject import Subject


def remedy(subject: Subject) -> None:
    """In the run's own framework."""
    _advice(subject, engine.own_framework(subject))


def others(subject: Subject) -> None:
    """In another framework, which is chosen."""
    found = engine.frameworks(subject)
    chosen = st.selectbox("Framework", found, format_func=title_of, key="framework", bind="query-params", width=340)
    _advice(subject, chosen)


def _advice(subject: Subject, framework: str) -> None:
    for one in engine.advice(subject, framework):
        say(f"{one.purpose.value}: {one.effect}.")
        st.code(one.setting, language=None, wrap_lines=True)
