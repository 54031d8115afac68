"""What a page shows in place of what raised an error: ours alone, without the error's text and without links."""

import streamlit as st

from ratioscope.dashboard.formats import escape
from ratioscope.storage.failures import StorageError


def error_box(error: Exception, what: str = "A part of this page") -> bool:
    """Draw it. True: Streamlit need not draw its own, which links to other sites.

    Args:
        what: cannot be drawn, the subject of the sentence.
    """
    if isinstance(error, StorageError):
        st.error(escape(str(error)), icon=":material/cloud_off:")
    else:
        st.error(
            f"{what} cannot be drawn because of an error in ratioscope ({type(error).__name__}). The terminal "
            "of the server has the details; the other pages go on.",
            icon=":material/error:",
        )
    return True
