"""Runs: which runs are there, and which need attention."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import streamlit as st

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.overview.inventory import inventory
from ratioscope.analysis.runs.store import Listed, discover
from ratioscope.dashboard import state, theme
from ratioscope.dashboard.annotations import (
    LONGEST_NOTE,
    annotation_of,
    read_annotations,
    split_tags,
    write_annotation,
)
from ratioscope.dashboard.components.foreign_runs import foreign_runs
from ratioscope.dashboard.components.frame import answer, no_runs, page_head, status_words
from ratioscope.dashboard.components.leave import leave_for
from ratioscope.dashboard.components.run_list import (
    NO_STEP_YET,
    ORDERS,
    RunLine,
    choosable,
    group_order,
    group_table,
    groupings,
    line,
    run_table,
)
from ratioscope.dashboard.components.view_tools import saved_view_links, view_tools
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.keys import SHORTCUTS
from ratioscope.dashboard.load import server_load
from ratioscope.dashboard.roots import shelves
from ratioscope.dashboard.sections import PAGES
from ratioscope.dashboard.session import drawing, rested, session
from ratioscope.dashboard.watching.reader import server_reader
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe
from ratioscope.storage.places import place, scan

# Seconds: between two looks while rewards and findings come in, and while nothing does; and how long a page waits for
# what can be had at once.
READING_PAUSE, IDLE_PAUSE, GRACE = 1.0, 4.0, 0.15
# Runs that a phone shows above the table.
_AT_A_GLANCE = 6
# Of a long list the pause is so many times what it takes to draw: the cores are for reading.
_REST = 8

_TEACHING = """
from ratioscope import RunRecorder  # in your trainer

with RunRecorder("runs/mine", algorithm={"name": "grpo"}) as recorder:
    recorder.record_step(step, tokens=tokens, sequences=sequences, scalars={"loss": loss})
"""


def render() -> None:
    """The page."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        page_head(PAGES["runs"])
        view_tools()
    known = list(state.runs().values())
    foreign_runs(imported=False)
    if not known:
        foreign_runs(imported=True)
        no_runs()
        st.caption("Every folder with a run.json is a run; it is listed here as soon as it appears.")
        st.code(_TEACHING.strip(), language="python")
        return
    drawing()
    server_reader().ask(known)
    server_reader().wait(GRACE)
    version, begun = server_reader().version, time.monotonic()
    _list(known, state.chosen_ids())
    foreign_runs(imported=True)
    left = server_reader().ask(known)
    session().follows = True
    pause = max(READING_PAUSE if left else IDLE_PAUSE, _REST * (time.monotonic() - begun))
    st.fragment(_watcher(known, version), run_every=pause)()


def _watcher(known: list[Listed], version: int) -> Callable[[], None]:
    """Draws the page again when there is news.

    While there is none, a tick looks at the times of folders and at the manifests of live runs, and opens no table.
    """
    reader, live, places = server_reader(), [run for run in known if _may_grow(run)], _places(known)
    drawn: list[tuple[int, ...]] = []

    def watch() -> None:
        reader.ask(known)
        if not drawn:  # the page has just been drawn, of a list that may be some seconds old
            drawn.append(_stamp(live, places))
            if any("://" not in str(run.folder) and not run.folder.exists() for run in known):
                state.listed_runs.clear()
                st.rerun()
        elif not (rested() and server_load.has_spare(session().drawn)):
            return
        elif _stamp(live, places) != drawn[0]:
            state.listed_runs.clear()
            st.rerun()
        if reader.version != version:
            st.rerun()

    return watch


def _may_grow(run: Listed) -> bool:
    return run.status in ("running", "stalled")


def _places(known: Sequence[Listed]) -> list[str]:
    """The folders whose time of change tells that a run came, went, ended or was resumed."""
    served = {str(root) for root in shelves()}
    places = set(served)
    for run in known:
        folder = str(run.folder)
        # A live one's folder changes with every sign of life; one by URL costs a listing.
        if not _may_grow(run) and "://" not in folder:
            places.add(folder)
        while folder not in served and folder != (above := os.path.dirname(folder)):  # noqa: PTH120 - a thousand Paths are slow
            folder = above
            places.add(folder)
    return sorted(places)


def _stamp(live: Sequence[Listed], places: Sequence[str]) -> tuple[int, ...]:
    """Changes when a run comes, goes, ends, resumes or grows; a sign of life is no news."""
    states = [(now.steps, status_words(now)) for run in live for now in [_as_it_is(run)]]
    return (*map(hash, states), *map(_changed, places))


def _as_it_is(run: Listed) -> Listed:
    """A line of the list, read again; the old one where the folder has gone."""
    return next(iter(discover([run.folder])), run)


def _changed(place_name: str) -> int:
    try:
        if "://" in place_name:  # elsewhere folders have no time
            return hash(tuple(child.name for child in scan(place(place_name))))
        return os.stat(place_name).st_mtime_ns  # noqa: PTH116 - as above
    except (OSError, RatioscopeError):
        return 0


@st.fragment
def _list(known: list[Listed], ticked: list[str]) -> None:
    """Answer, filters, table and the actions on a row.

    Args:
        ticked: the runs of the address when the page was drawn; the links of the menu have these.
    """
    if state.chosen_ids() != ticked:
        st.rerun()
    reader = server_reader()
    annotations = read_annotations(run.folder for run in known)
    lines = [line(run, reader.get(run), annotations.get(run.folder)) for run in known]
    answer(_inventory(lines))
    saved_view_links()
    left = reader.ask(known)
    narrow = st.container(key="runs-narrow", gap=None)
    shown, filtered, columns, by = _filter(lines)
    with narrow:
        _at_a_glance(shown)
    if filtered:
        st.caption(f"Shown: {_inventory(shown)}" if shown else "No run matches these filters.")
    actions = st.container(horizontal=True, vertical_alignment="center")
    if shown:
        if by:
            group_table(shown, by)
        chosen = _table(shown, lines, ticked, columns, by)
        with actions:
            _actions(chosen, len({one.run.run_id for one in chosen} - {one.run.run_id for one in shown}))
        _still_reading(left)
        if len(chosen) == 1:
            _about(chosen[0])
    _problems(lines)


def _at_a_glance(shown: Sequence[RunLine]) -> None:
    """On a narrow screen, which has no room for so many columns: the first runs, each with its worst finding."""
    for one in shown[:_AT_A_GLANCE]:
        icon = theme.SEVERITY_ICON.get(Severity(one.headline.severity)) if one.headline else None
        st.page_link(
            session().pages["overview"], label=f"{escape(one_line(one.run.run_id))} · **{escape(one.finding)}**",
            icon=icon, query_params={"run": one.run.run_id},
        )  # fmt: skip


def _inventory(lines: list[RunLine]) -> str:
    readable = [one for one in lines if not one.problem and one.finding != NO_STEP_YET]
    worst = [one.headline.worst for one in readable if one.headline]
    return inventory([one.status for one in lines], worst, unread=len(readable) - len(worst))


def _filter(lines: list[RunLine]) -> tuple[list[RunLine], bool, list[str], str | None]:
    """The lines to show in their order, whether that is a selection, the chosen columns, by what runs are grouped."""
    bar = st.container(key="runs-filters", horizontal=True, vertical_alignment="bottom", gap="small")
    words = bar.text_input(
        "Search",
        placeholder="name, task, tag, note, finding",
        key="q",
        bind="query-params",
        icon=":material/search:",
        width=200,
    )

    def choose(label: str, key: str, options: Iterable[str]) -> list[str]:
        known = [option for option in dict.fromkeys(options) if option]
        return bar.multiselect(
            label, known, key=key, bind="query-params", placeholder="all", disabled=not known, width=118
        )

    severities = choose("Severity", "severity", [severity.word for severity in reversed(Severity) if severity])
    rules = choose("Finding", "finding", sorted({one.rule for one in lines}))
    states = choose("Status", "status", sorted({one.status for one in lines}))
    algorithms = choose("Algorithm", "algorithm", sorted({one.algorithm for one in lines}))
    tags = choose("Tag", "tag", sorted({text for one in lines for text in one.tags}))
    by = bar.selectbox("Order", list(ORDERS), key="order", bind="query-params", width=132)
    possible = groupings(lines)
    with bar.popover("Table", icon=":material/view_column:", type="tertiary"):
        columns = st.multiselect(
            "Columns", choosable(possible), key="columns", bind="query-params", placeholder="the usual ones",
            filter_mode="contains", help="Settings have their values; metrics, their last one.",
        )  # fmt: skip
        group = st.selectbox("Group by", possible, None, key="groupby", bind="query-params", placeholder="nothing")
        groups = st.multiselect(
            "Groups", sorted({one.grouped_by(group) for one in lines}) if group else [], key="groups-shown",
            bind="query-params", placeholder="all", disabled=not group,
        )  # fmt: skip

    def fits(one: RunLine) -> bool:
        return (
            (not severities or one.severity in severities)
            and (not rules or one.rule in rules)
            and (not states or one.status in states)
            and (not groups or one.grouped_by(group or "") in groups)
            and (not algorithms or one.algorithm in algorithms)
            and (not tags or bool(set(tags) & set(one.tags)))
            and all(word in one.text for word in words.lower().split())
        )

    shown = [one for one in lines if fits(one)]
    rank = ORDERS[by]
    if rank is not None:
        shown.sort(key=rank)
    if group:
        shown.sort(key=lambda one: group_order(one.grouped_by(group)))
    return shown, bool(words.strip() or severities or rules or states or algorithms or tags or groups), columns, group


def _table(
    shown: list[RunLine], lines: list[RunLine], ticked: list[str], columns: list[str], by: str | None
) -> list[RunLine]:
    """The table; a tick belongs to a run, so it stays when the rows are others or in another order.

    Returns:
        All runs that are ticked, also those that the filters leave out.
    """
    ids = [one.run.run_id for one in shown]
    hidden = [one for one in lines if one.run.run_id in {*ticked} - {*ids}]
    rows = [row for row, run_id in enumerate(ids) if run_id in ticked]
    kind = "runs-table-" + hashlib.sha256("\n".join(ids).encode()).hexdigest()[:12]
    key = f"{kind}-{session().tables}"
    if key in st.session_state and sorted(st.session_state[key]["selection"]["rows"]) != rows:
        session().tables += 1  # the address has other runs, by Back or a link: another table, ticked anew
        key = f"{kind}-{session().tables}"

    def choose() -> None:
        now = sorted(st.session_state[key]["selection"]["rows"])
        state.choose([*(ids[row] for row in now), *(one.run.run_id for one in hidden)])

    run_table(shown, columns, by, key=key, chosen=rows, on_choice=choose, open_key="open-run", mode=state.mode())
    clicked = st.session_state.get("open-run")
    if clicked is not None and clicked["row"] < len(ids):
        _go("overview", [ids[clicked["row"]]])
    return [*(shown[row] for row in rows), *hidden]


def _actions(chosen: list[RunLine], hidden: int) -> None:
    ids = [one.run.run_id for one in chosen]
    if st.button("Open", disabled=len(ids) != 1, icon=":material/open_in_new:", shortcut=SHORTCUTS["open"].press):
        _go("overview", ids)
    if st.button(
        "Compare", disabled=len(ids) < 2, icon=":material/stacked_line_chart:", shortcut=SHORTCUTS["compare"].press
    ):
        _go("compare", ids)
    says = {0: "Select one row to open or annotate a run, several to compare them.", 1: "1 run selected"}
    beyond = f", {hidden} of them not shown" if hidden else ""
    st.caption(says.get(len(ids), f"{len(ids)} runs selected") + (f"{beyond}." if ids else ""), width="content")
    if hidden:
        st.button("Untick all", type="tertiary", on_click=state.choose, args=([],))


def _go(page: str, ids: list[str]) -> None:
    leave_for(page, {"run": ids})


def _still_reading(left: int) -> None:
    if left:
        st.caption(f"Reading rewards and findings, {left:,} run{'s' * (left > 1)} to go.")


def _about(one: RunLine) -> None:
    """What the selected run's manifest and the user say about the run."""
    manifest = one.run.manifest
    with st.container(border=True):
        theirs, mine = st.columns(2, gap="large")
        with theirs:
            st.markdown("## From the run")
            st.text(one_line(one.run.run_id))
            for text in (
                (manifest.status_reason, ", ".join(map(str, manifest.tags)), manifest.notes) if manifest else ()
            ):
                if text.strip():
                    st.text(safe(text))
            if one.headline and one.headline.sentence:
                st.markdown(f"**{one.finding.capitalize()}.** {escape(one.headline.sentence)}")
        with mine, st.form("note", border=False):
            st.markdown("## Your tags and note")
            place = hashlib.sha256(str(one.run.folder).encode("utf-8", "replace")).hexdigest()[:12]
            own = one.annotation
            tags = st.text_input(
                "Tags", ", ".join(own.tags), key=f"tags-{place}", placeholder="separated by commas", max_chars=400
            )
            text = st.text_area("Note", own.text, key=f"note-{place}", height=100, max_chars=LONGEST_NOTE)
            saved = st.form_submit_button("Save", icon=":material/save:")
            kept = "Saved" if own.tags or own.text else "Kept"
            st.caption(f"{kept} in your own files; nothing is written into the run.")
        if saved:
            _save(one.run, split_tags(tags), text)


def _save(run: Listed, tags: tuple[str, ...], text: str) -> None:
    try:
        # Read again: notes on steps may have come since the list was drawn.
        write_annotation(run.folder, replace(annotation_of(run.folder), tags=tags, text=text))
    except OSError as error:
        st.error("The note could not be saved.", icon=":material/error:")
        st.text(safe(error))
        return
    st.rerun()


def _problems(lines: list[RunLine], most: int = 20) -> None:
    """Why runs cannot be read, run by run."""
    problems = [one.problem for one in lines if one.problem]
    if not problems:
        return
    n = len(problems)
    what = "A folder looks like a run but cannot" if n == 1 else f"{n} folders look like runs but cannot"
    st.warning(f"{what} be read.", icon=":material/warning:")
    with st.expander("Why", expanded=n <= 3):
        for problem in problems[:most]:
            st.text(safe(problem))
        if n > most:
            st.caption(f"And {n - most} more; search for “cannot be read”.")
