"""The moment at which a live run was found critical, as a line below its head."""

import streamlit as st

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.store import Listed
from ratioscope.dashboard import theme
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.watching.reader import Alarm, server_reader


def alarm(listed: Listed, opened: Opened) -> None:
    """Say when this server said so first; nothing of a run that was over by then, or that is critical no longer."""
    worst = opened.findings[0] if opened.findings else None
    if worst is None or worst.severity < Severity.CRITICAL:
        return
    if opened.run.status == "running":
        server_reader().sound(listed.folder, Alarm(opened.summary.last_step, worst.rule, worst.sentence))
    sounded = server_reader().alarm(listed.folder)
    if sounded is not None:
        icon = theme.SEVERITY_ICON[Severity.CRITICAL]
        st.error(f"**Critical, said at step {sounded.step}.** {escape(sounded.sentence)}", icon=icon)
