"""The command palette: pages, runs, findings, metrics and steps in one list (Ctrl-K), and the keys of the app (`?`).

The pages are in the browser from the start. The rest is asked for when the palette is opened, as a fragment: a list of
thousands of runs does not travel with every page.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.dashboard import state
from ratioscope.dashboard.annotations import annotation_of
from ratioscope.dashboard.components.menu import CARRIED
from ratioscope.dashboard.components.view_tools import openable_views
from ratioscope.dashboard.evidence import steps_query
from ratioscope.dashboard.keys import SHORTCUTS
from ratioscope.dashboard.sections import metrics
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line

_MOST_RUNS = 3_000
"""The newest ones."""
_KEY = "palette"

Entry = tuple[str, str, str, str, Mapping[str, str | list[str]] | None]
"""Group, words, what stands beside them, page; and its query, None: the runs and the steps that are chosen."""

_HTML = """
<dialog class="go" aria-label="Go to">
  <input type="text" role="combobox" aria-expanded="true" aria-controls="entries" aria-autocomplete="list"
    aria-label="Page, run, view, finding, metric or step" placeholder="Page, run, view, finding, metric, or step 120"
    autocomplete="off" autocapitalize="off" spellcheck="false">
  <div class="list" id="entries" role="listbox" aria-label="Where to"></div>
  <p class="more" aria-live="polite"></p>
</dialog>
<dialog class="keys" aria-label="Keys"><h2>Keys</h2><div class="all"></div>
  <button type="button">Close</button></dialog>
"""
_FOLDER = Path(__file__).parent
_component = st.components.v2.component(
    "ratioscope.palette",
    html=_HTML,
    css=(_FOLDER / "palette.css").read_text(encoding="utf-8"),
    js=(_FOLDER / "palette.js").read_text(encoding="utf-8"),
)
_button = st.components.v2.component(
    "ratioscope.palette_button",
    html='<button type="button"><span>Go to…</span><kbd></kbd></button>',
    css=(_FOLDER / "palette_button.css").read_text(encoding="utf-8"),
    js="""
    export default ({ parentElement }) => {
      parentElement.querySelector("kbd").textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ K" : "Ctrl K"
      parentElement.querySelector("button").onclick = () => document.dispatchEvent(new Event("ratioscope-palette"))
    }
    """,
)


def palette_button() -> None:
    """What opens it without a keyboard."""
    _button(key="palette-button")


@st.fragment
def palette(pages: Mapping[str, Page], shown: str) -> None:
    """The palette of a page, closed.

    Args:
        pages: of the menu, by name.
        shown: the name of the page; a run is opened on it, if it is one of a run.
    """

    def ask() -> None:
        session().asks_palette = True

    here = session()
    asked, here.asks_palette = here.asks_palette, False
    own = [("Pages", page.title, page.question, name, None) for name, page in pages.items()]
    data: dict[str, Any] = {"pages": own, "first": next(iter(pages)), "carried": list(CARRIED)}
    data["keys"] = [[key.where, key.press, key.does] for key in SHORTCUTS.values()]
    data["rest"] = _rest(pages, shown) if asked else None
    if asked:  # an answer that is equal to the last one would not reach the browser
        here.palette_answers += 1
    data["answer"] = here.palette_answers
    with st.container(key=_KEY):
        _component(key=f"{_KEY}-list", data=data, on_asked_change=ask)


def _rest(pages: Mapping[str, Page], shown: str) -> dict[str, Any]:
    """All but the pages, the run on the screen and its last step; "" and -1 where none is open."""
    known = state.runs()
    run_id = next(iter(state.chosen_ids() or ([] if "run" in st.query_params else known)), "")
    opened = None
    if run_id and session().read == run_id:
        with suppress(RatioscopeError):  # the page says so
            opened = state.open_listed(known[run_id])
    entries = [*_of_run(opened)] if opened else []
    listed = list(known.items())[:_MOST_RUNS]
    entries += [("Views", view.name, pages[view.page].title, view.page, dict(view.query)) for view in openable_views()]
    page = shown if pages[shown].group == pages["overview"].group else "overview"
    for name, run in listed:
        algorithm = run.manifest.algorithm_name if run.manifest else "cannot be read"
        entries.append(("Runs", one_line(name), one_line(algorithm), page, {"run": name}))
    last = opened.summary.last_step if opened else -1
    return {
        "entries": entries, "run": run_id if opened else "", "last": last, "unlisted": len(known) - len(listed),
    }  # fmt: skip


def _of_run(opened: Opened) -> Iterator[Entry]:
    for finding in opened.findings:
        page = RULES[finding.rule].page
        yield "Findings", one_line(finding.sentence), "", page, steps_query(finding, opened.run_id)
    for step, text in annotation_of(opened.run.folder).pins:
        yield "Notes", text, f"step {step}", "tokens", {"run": opened.run_id, "step": str(step), "where": "this step"}
    options = metrics.choices(opened.summary)
    pinned = st.query_params.get_all("pin") or metrics.usual(options)  # what it is added to
    carried = {key: value for key in CARRIED if (value := st.query_params.get(key))} | {"run": opened.run_id}
    for label in options:
        pins = [label, *(each for each in pinned if each != label)]
        yield "Metrics", label, "", "metrics", carried | {"pin": pins}
