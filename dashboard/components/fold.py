"""A part of a page that is one line until it is opened: its title and what it says; open or not is in the URL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from ratioscope.dashboard.formats import escape

if TYPE_CHECKING:
    from streamlit.elements.lib.mutable_expander_container import ExpanderContainer


def fold(
    key: str, title: str, says: str = "",
    *, opened: bool = False, metrics: Sequence[str] = (), icon: str | None = None
) -> "ExpanderContainer":  # fmt: skip
    """The part; its content is drawn only where it is open:

        with fold("path", "The path, edge by edge", drift.path_in_words(subject)) as door:
            if door.open:
                ...

    Args:
        key: names it in the URL; short, unique on the page.
        says: its takeaway in a few words, so that most readers need not open it; plain text.
        opened: whether it is open where the URL does not say.
        metrics: of the charts inside; a link to a finding's evidence that is one of them opens it.
    """
    label = f"**{escape(title)}**" + (f" · {escape(says)}" if says else "")
    opened = opened or st.query_params.get("show", "") in metrics
    return st.expander(label, expanded=opened, key=key, icon=icon, bind="query-params")
