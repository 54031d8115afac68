"""Linter: can this log be trusted?"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.finding import Finding, Number, Outcome, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import interval_text
from ratioscope.analysis.linter import CHECKS, lint
from ratioscope.analysis.linter.columns import declared_columns, impossible_values
from ratioscope.analysis.linter.verdict import log_verdict, ranges
from ratioscope.analysis.runs.window import Window
from ratioscope.dashboard import state, theme
from ratioscope.dashboard.components.blocks import draw, page_subject
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.formats import escape, plain_number
from ratioscope.dashboard.sections import linter
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe

MOST_KEPT = 32

_BADGE: dict[Severity, Literal["blue", "orange", "red"]] = {
    Severity.NOTICE: "blue",
    Severity.WARNING: "orange",
    Severity.CRITICAL: "red",
}


@dataclass(frozen=True)
class _Checked:
    """The remarks of the checks on some steps of a run in some state."""

    signature: str
    first: int
    last: int
    remarks: tuple[Finding, ...]
    impossible: pd.DataFrame


_Scope = tuple[str, str, Limits]


@st.cache_resource(max_entries=1, show_spinner=False)
def _kept() -> dict[_Scope, _Checked]:
    """The latest check of each run, choice of steps and set of limits; shared by all sessions."""
    return {}


@st.cache_data(max_entries=32, show_spinner=False)
def _impossible(window: Window) -> pd.DataFrame:
    return impossible_values(window.run(), *window.steps)


def render() -> None:
    """The page."""
    opened = run_page(linter.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    said, place = st.container(), st.container()
    with said:
        slot = st.empty()
        slot.skeleton(height=48)
    with place:
        metric_row(opened, linter.PAGE.tiles)
    body = st.container()
    if floor := linter.noise_floor(subject):
        with fold("floor", "Noise floor", "staleness against two passes of one model") as door:
            if door.open:
                draw(*floor)
    _schema(subject)
    how_to_read(linter.PAGE.explained(opened.limits))
    with body:
        whole = _wants_everything(opened)
        # The checks come last: everything else of the page is there while they run, and a click elsewhere ends them.
        try:
            checked = _check(opened, whole=whole)
        except RatioscopeError as error:
            slot.error("The checks did not finish.", icon=":material/error:")
            st.text(safe(error))
            return
        _remarks(opened, checked)
    with slot:
        answer(log_verdict(checked.remarks))


def _wants_everything(opened: Opened) -> bool:
    """Whether to check all steps, where the run was judged by its latest only."""
    index, latest = opened.summary.values.index, opened.checked
    if state.step_range()[0] is not None or latest.first <= index[0]:
        return False
    return st.toggle(
        "Check the whole log",
        key="wholelog",
        bind="query-params",
        help=f"Off: the latest steps, {latest.first} to {latest.last}. All {len(index)} steps take longer.",
    )


def _check(opened: Opened, *, whole: bool) -> _Checked:
    """The remarks that the run was judged by; of other steps kept ones, or made now with a bar that shows how far.

    The whole of a live run is checked again on a click.
    """
    brushed, index = state.step_range()[0] is not None, opened.summary.values.index
    if not (brushed or whole):
        first, last = opened.checked.steps
        st.caption(_checked_steps(first, last))
        return _Checked(opened.run.signature, first, last, tuple(opened.remarks), _impossible(opened.checked))
    first, last = (int(index[0]), int(index[-1])) if whole else state.window(opened).steps
    scope = (str(opened.run.folder), "whole" if whole else f"{first} to {last}", opened.limits)
    found = _kept().get(scope)
    has_news = found is not None and found.signature != opened.run.signature
    if found is None or (has_news and (opened.run.status != "running" or _again(opened, found))):
        found = _run_checks(opened, first, last, everything=whole)
        kept = _kept()
        kept.pop(scope, None)
        kept[scope] = found
        for old in list(kept)[:-MOST_KEPT]:
            kept.pop(old, None)
    st.caption(_checked_steps(found.first, found.last))
    return found


def _checked_steps(first: int, last: int) -> str:
    return f"Step {first} was checked." if first == last else f"Steps {first} to {last} were checked."


def _again(opened: Opened, found: _Checked) -> bool:
    """Whether a live run's new steps are to be checked now."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(f"The run has gone from step {found.last} to {opened.summary.last_step} since this check.")
        return st.button("Check again", key="check-again", icon=":material/refresh:")


def _run_checks(opened: Opened, first: int, last: int, *, everything: bool) -> _Checked:
    bar = st.empty()

    def progress(done: int, of: int) -> None:
        bar.progress(done / (of + 1), text=f"Checking steps {first} to {last}: {done} of {of}")

    run = opened.run
    # Steps that only one table has may lie before the first or behind the last step with tokens.
    remarks = lint(run, None if everything else first, None if everything else last, progress, opened.limits)
    impossible = impossible_values(run, first, last)
    bar.empty()
    return _Checked(run.signature, first, last, tuple(remarks), impossible)


def _remarks(opened: Opened, checked: _Checked) -> None:
    found = [remark for remark in checked.remarks if remark.outcome is Outcome.FOUND]
    problems, notices = ([each for each in found if each.is_problem is problem] for problem in (True, False))
    for number, remark in enumerate(problems):
        _card(remark, opened, number)
    if notices:
        with fold("notices", f"{len(notices)} notice{'s' * (len(notices) > 1)}", _named(notices)) as door:
            if door.open:
                for number, remark in enumerate(notices, len(problems)):
                    _card(remark, opened, number)
    if impossible := linter.impossible(checked.impossible):
        with fold("values", "Values that are not finite", "by column and cause") as door:
            if door.open:
                draw(*impossible)
    unknown = [remark for remark in checked.remarks if remark.outcome is Outcome.NOT_CHECKED]
    passed = [remark for remark in checked.remarks if remark.outcome is Outcome.PASSED]
    not_run = f"could not run: {_named(unknown)}" if unknown else ""
    with fold("checks", f"{len(passed)} of {len(CHECKS)} checks passed", not_run) as door:
        if door.open:
            draw(*(linter.listed(some, seen) for some, seen in ((unknown, "Why not"), (passed, "Measured")) if some))
            st.caption("The same on the command line:")
            st.code(one_line(f"ratioscope check {shlex.quote(str(opened.run.folder))}"), language="shell")


def _named(remarks: Sequence[Finding]) -> str:
    return ", ".join(linter.title(rule).lower() for rule in dict.fromkeys(remark.rule for remark in remarks))


def _card(remark: Finding, opened: Opened, number: int) -> None:
    """One remark: what was found, its severity, where, what to do, and rows that show it."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(remark.severity.word, icon=theme.SEVERITY_ICON[remark.severity], color=_BADGE[remark.severity])
            st.caption(linter.title(remark.rule))
        st.markdown(f"**{escape(remark.sentence)}**")
        if remark.numbers:
            st.caption(escape(" · ".join(map(_quote, remark.numbers))))
        st.markdown(f"**Do** — {escape(remark.do)}")
        left, right = st.columns([3, 2], gap="medium")
        with left:
            if remark.columns:
                st.text(f"Columns: {', '.join(remark.columns)}")
            if remark.steps:
                st.text(f"Steps: {ranges(remark.steps)}")
                _show_steps(remark, opened)
            _show_examples(remark, opened)
        if remark.examples:
            with right:
                _examples(remark, number)


def _show_steps(remark: Finding, opened: Opened) -> None:
    if not (page := CHECKS[remark.rule].page):
        return
    st.page_link(
        session().pages[page],
        label="Show these steps",
        icon=":material/arrow_forward:",
        query_params={"run": opened.run_id, "from": str(min(remark.steps)), "to": str(max(remark.steps))},
    )


def _examples(remark: Finding, number: int) -> None:
    st.dataframe(
        pd.DataFrame(remark.examples, columns=["step", "seq_id", "position"]),
        hide_index=True,
        key=f"examples-{number}",
        height=whole_rows(len(remark.examples), 8),
        column_config={
            "step": st.column_config.NumberColumn("Step", format="%d"),
            "seq_id": st.column_config.NumberColumn("Response", help="seq_id", format="%d"),
            "position": st.column_config.NumberColumn("Position", help="Of the token; empty: the whole response"),
        },
        alt="Rows of the log that show it",
    )


def _show_examples(remark: Finding, opened: Opened) -> None:
    """Links to the responses that the example rows are of."""
    shown = {(example.step, example.seq_id): example.position for example in reversed(remark.examples)}
    for (step, response), position in reversed(shown.items()):
        query = {"run": opened.run_id, "step": str(step), "seq": str(response)}
        st.page_link(
            session().pages["tokens"],
            label=f"Response {response} of step {step}",
            icon=":material/match_word:",
            query_params=query if position is None else query | {"token": str(position)},
        )


def _quote(number: Number) -> str:
    whole = number.value >= 1000 and float(number.value).is_integer()
    ends = number.low, number.high
    text = f"{number.label}: {number.value:,.0f}" if whole else f"{number.label}: {plain_number(number.value, *ends)}"
    if interval := interval_text(*ends, *(plain_number(end, *ends) for end in ends)):
        return f"{text} (95%: {interval})"
    return f"{text} ({number.note})" if number.note else text


def _schema(subject: Subject) -> None:
    found = subject.compute(declared_columns)
    absent = found[~found["required"] & ~(found["logged"] > 0)]
    tokens = found[found["table"] == "tokens"]
    counts = (
        f"{int((tokens['logged'] > 0).sum())} of {len(tokens)} token columns have values; "
        f"{len(absent)} optional columns of all tables have none."
    )
    with fold("schema", "What is logged, and what is missing", counts) as door:
        if not door.open:
            return
        draw(*linter.undefined(subject))
        st.markdown("## All columns of the run format")
        st.dataframe(
            found,
            hide_index=True,
            height=whole_rows(len(found), 12),
            column_config={
                "table": st.column_config.TextColumn("Table", width="small"),
                "column": st.column_config.TextColumn("Column"),
                "required": st.column_config.CheckboxColumn("Required", width="small"),
                "logged": st.column_config.ProgressColumn(
                    "Logged", help="Share of rows with a value; empty: no rows", format="percent", max_value=1
                ),
                "unit": st.column_config.TextColumn("Unit", width="small"),
                "meaning": st.column_config.TextColumn("Meaning", width="large"),
            },
            alt="All columns with the share of rows that have a value",
        )
