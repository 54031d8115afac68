"""What other programs wrote in the folders of the dashboard: what it is, and a button that imports it."""

import hashlib

import streamlit as st

from ratioscope.dashboard.foreign import Foreign, Imports, foreign_below
from ratioscope.dashboard.roots import roots
from ratioscope.inert import safe

# More sources than these are counted, not shown.
_MOST_SHOWN = 20


@st.cache_resource(show_spinner=False)
def _imports() -> Imports:
    return Imports()


@st.cache_resource(ttl=10, show_spinner=False)
def _foreign(served: tuple[str, ...]) -> list[Foreign]:
    return foreign_below(roots())


def foreign_runs(*, imported: bool) -> None:
    """The sources below the folders that have been imported, or those that have not; nothing where there are none."""
    listed = _foreign(tuple(map(str, roots())))
    found = [each for each in listed if bool(each.state) == imported]
    for each in found[:_MOST_SHOWN]:
        with st.container(border=True):
            _source(each)
    if len(found) > _MOST_SHOWN:
        st.caption(f"And {len(found) - _MOST_SHOWN} more runs of other programs.")


def _source(foreign: Foreign) -> None:
    description, title = foreign.found.description, foreign.found.importer.title
    runs = _imports().runs(foreign)
    state = "running" if runs else foreign.state
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge("another program's run", icon=":material/move_to_inbox:", color="blue")
        count = f", {description.steps:,} step{'s' * (description.steps != 1)}" if description.steps else ""
        _text(f"{title} in {description.path}{count}")
        if description.unpickles:
            pass  # the sentence below says which command does it
        elif state in ("running", "stalled"):
            done = "Imported" if foreign.state else "Being imported"
            _text(f"{done} as {foreign.folder.name}, and followed while it grows.")
        else:
            key = hashlib.sha256(str(foreign.folder).encode("utf-8", "replace")).hexdigest()[:12]
            label = "Bring up to date and follow" if state else "Import and follow"
            if st.button(label, key=f"import-{key}", icon=":material/download:"):
                _imports().start(foreign)
                st.rerun()
    if description.unpickles:
        _text(
            f"{description.unpickles.rstrip('.')}. Only for files that you trust: "
            f"ratioscope import {description.path} --format {foreign.found.importer.name} --allow-pickle"
        )
    if problem := _imports().problem(foreign):
        st.error("It could not be imported.", icon=":material/error:")
        _text(problem)
    if description.missing or description.assumed:
        with st.expander("What is missing, and what is taken for granted"):
            by_reason: dict[str, list[str]] = {}
            for column, why in description.missing.items():
                by_reason.setdefault(why, []).append(column)
            for why, columns in by_reason.items():
                _text(f"Missing {', '.join(columns)}: {why.rstrip('.')}.")
            for sentence in description.assumed:
                _text(f"Assumed: {sentence.rstrip('.')}.")
    if not state and not description.unpickles:
        st.caption("The run is written to your cache folder; nothing is written here.")


def _text(text: str) -> None:
    """Paths are anybody's, and what a source says of itself is, too."""
    st.text(safe(text))
