"""The moment at which a live run was found critical, as a line below its head."""

import streamlit as st

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.store import Listed
from ratioscope.dashboard import theme
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.watching.reader import server_reader


def alarm(listed: Listed, opened: Opened, *, brief: bool) -> None:
    """Say when this server said so first, and unless it is to be brief what is wrong.

    Nothing is said of a run that was over by then, or that is critical no longer.
    """
    worst = opened.findings[0] if opened.findings else None
    if worst is None or worst.severity < Severity.CRITICAL:
        return
    if opened.run.status == "running":
        server_reader().sound(listed.folder, opened.summary.last_step)
    step = server_reader().alarm(listed.folder)
    if step is not None:
        icon = theme.SEVERITY_ICON[Severity.CRITICAL]
        # In the words of now: what it said then was of the steps until then, and "the last" is another one.
        what = "" if brief else f" {escape(worst.sentence)}"
        st.error(f"**First found critical at step {step}.**{what}", icon=icon)
