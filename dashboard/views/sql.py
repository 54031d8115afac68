"""SQL: anything else?"""

import io
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.sql import LONGEST_QUERY, Documented, QueryError, QueryLimits, QueryResult, ask, documented
from ratioscope.analysis.sql.examples import ExampleQuery, example_queries
from ratioscope.analysis.sql.tables import extent
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart
from ratioscope.dashboard.components.frame import answer, run_page
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.figures.sql import MARKS, query_figure, undrawn
from ratioscope.dashboard.formats import count
from ratioscope.dashboard.sections import PAGES
from ratioscope.dashboard.session import Asked, session
from ratioscope.inert import safe

_NONE = "–"


def render() -> None:
    """The page."""
    opened = run_page(PAGES["sql"])
    if opened is None:
        return
    tables = documented(opened.run, opened.summary)
    answer(extent(opened.summary, tables))
    _choose_example(opened, tables)
    editor, schema = st.columns([5, 4], gap="medium")
    with editor:
        sql = _editor()
    with schema:
        _schema(tables)
    if not sql.strip():
        return
    kept = _outcome(opened, sql)
    if kept is None:
        st.info("The query was stopped. Press Run to start it again.", icon=":material/stop_circle:")
    elif isinstance(kept.outcome, QueryError):
        st.error("The query has no result.", icon=":material/error:")
        st.text(safe(kept.outcome))
    else:
        _result(opened, kept.outcome, kept.last_step)


def _choose_example(opened: Opened, tables: Sequence[Documented]) -> None:
    offered = {example.question: example for example in example_queries(tables)}
    steps, chosen = state.window(opened).steps, state.step_range()[0] is not None
    whole = bool(steps[0] <= opened.summary.values.index[0])

    def take() -> None:
        example = offered.get(st.session_state["example"] or "")
        if example is not None:
            st.session_state["sql"] = _text(example, *steps, chosen=chosen, whole=whole)
            _forget()
            _draw_as(example)

    st.pills("Questions to start from", list(offered), key="example", on_change=take)


def _text(example: ExampleQuery, first: int, last: int, *, chosen: bool, whole: bool) -> str:
    """The query for the chosen steps; without a condition where none are chosen, unless all of them would take long.

    Args:
        whole: whether these are all steps of the run.
    """
    text, condition = example.text(first, last), f"where step between {first} and {last}"
    if chosen or condition not in text:
        return text
    if not whole:
        return f"-- The latest steps of a long log: delete the condition for all.\n{text}"
    return text.replace(f"{condition} and", "where").replace(f"{condition}\n", "")


def _draw_as(example: ExampleQuery) -> None:
    drawn = example.drawn
    st.session_state["show"] = "Chart" if drawn else "Table"
    if drawn:
        for key, value in (
            ("chartmark", drawn.mark),
            ("chartx", drawn.x),
            ("charty", drawn.y),
            ("chartcolour", drawn.colour or _NONE),
            ("chartlogx", False),
            ("chartlogy", drawn.logarithmic),
        ):
            st.session_state[key] = value


def _editor() -> str:
    """The text that was last run; what is typed counts from Run or Ctrl+Enter on.

    A link brings its query along and it runs at once: it can only read this run, and its time, memory and size are
    bounded, so that opening a view costs no more than opening any other page.
    """
    with st.form("sql-editor", border=False):
        st.text_area(
            "Query",
            key="sql",
            bind="query-params",
            height=230,
            max_chars=LONGEST_QUERY,
            placeholder="select step, avg(exp(log_rho)) as mean_ratio\nfrom tokens\ngroup by step\norder by step",
        )
        limits = QueryLimits()
        with st.container(horizontal=True, vertical_alignment="center"):
            st.form_submit_button(
                "Run", type="primary", icon=":material/play_arrow:", on_click=_forget, help="Ctrl+Enter"
            )
            st.caption(
                f"One SELECT, read-only: at most {limits.seconds:g} s, {limits.memory // 2**30} GB of memory and "
                f"{limits.rows:,} rows. Select steps in the query; the step range of other pages does not apply."
            )
    return str(st.session_state["sql"] or "")


def _forget() -> None:
    here = session()
    here.sql = here.stopped_query = None


def _outcome(opened: Opened, sql: str) -> Asked | None:
    """The result for this run and query, computed when it is not there yet; None after Stop."""
    asked = (str(opened.run.folder), sql)
    here = session()
    kept = here.sql
    if kept is not None and kept.of == asked:
        return kept
    if here.stopped_query == asked:
        return None
    slot = st.empty()
    with slot.container(horizontal=True, vertical_alignment="center"):
        st.button("Stop", icon=":material/stop:", key="sql-stop", on_click=_stop, args=(asked,))
        elapsed = st.empty()
    limits = QueryLimits()

    def tick(seconds: float) -> None:
        # Streamlit ends the script here when the reader has gone on, and that ends the query.
        elapsed.caption(f"Running: {seconds:.0f} s of at most {limits.seconds:g} s")

    tick(0.0)
    outcome: QueryResult | QueryError
    try:
        outcome = ask(opened.run, opened.summary, sql, limits, tick)
    except QueryError as error:
        outcome = error
    slot.empty()
    kept = Asked(asked, opened.summary.last_step, outcome)
    here.sql = kept
    return kept


def _stop(asked: tuple[str, str]) -> None:
    session().stopped_query = asked


def _schema(tables: Sequence[Documented]) -> None:
    with st.expander("Tables and columns", icon=":material/schema:", expanded=False):
        names = [table.name for table in tables]
        chosen = st.segmented_control("Table", names, default=names[0], required=True, key="table")
        table = next((table for table in tables if table.name == chosen), tables[0])
        st.caption(f"One row: {table.grain}.")
        frame = pd.DataFrame(
            [
                (
                    column.name,
                    column.meaning,
                    column.unit,
                    str(column.type),
                    "" if column.name in table.logged else "null",
                )
                for column in table.columns
            ],
            columns=["Column", "Meaning", "Unit", "Type", "Here"],
        )
        st.dataframe(
            frame,
            hide_index=True,
            height=whole_rows(len(frame), 7),
            column_config={
                "Column": st.column_config.TextColumn(width=150),
                "Meaning": st.column_config.TextColumn(width=360),
                "Here": st.column_config.TextColumn(help="null: this run does not log it"),
            },
            alt=f"Columns of the table {table.name} with meaning, unit and type",
        )


def _result(opened: Opened, found: QueryResult, steps: int) -> None:
    table = found.table
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"**{table.num_rows:,} row{'s' * (table.num_rows != 1)}, {table.num_columns} column"
            f"{'s' * (table.num_columns != 1)}, {found.seconds:.2f} s**"
            + (f" on the steps up to {steps}" if opened.run.status == "running" else ""),
            width="content",
        )
        views = ["Table", "Chart"]
        show = st.radio(
            "Show",
            views,
            key="show",
            bind="query-params",
            horizontal=True,
            label_visibility="collapsed",
            width="content",
        )
        _downloads(table)
    if found.cut:
        st.warning(found.cut, icon=":material/content_cut:")
    if not table.num_rows:
        st.info("The query returns no rows.", icon=":material/filter_alt_off:")
        return
    if show == "Chart":
        _chart(table)
    else:
        _table(table)


def _downloads(table: pa.Table) -> None:
    with st.container(horizontal=True, width="content"):
        st.download_button(
            "CSV",
            lambda: _csv(table),
            "query.csv",
            "text/csv",
            on_click="ignore",
            key="sql-csv",
            icon=":material/download:",
        )
        st.download_button(
            "Parquet",
            lambda: _parquet(table),
            "query.parquet",
            "application/vnd.apache.parquet",
            on_click="ignore",
            key="sql-parquet",
            icon=":material/download:",
        )


def _csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out)
    return out.getvalue()


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _table(table: pa.Table) -> None:
    # Four digits are shown; the downloads have all of them. NaN, infinity and null stay three different things.
    digits = {
        name: st.column_config.NumberColumn(format="%.4g")
        for name in table.column_names
        if pa.types.is_floating(table[name].type)
    }
    st.dataframe(
        table,
        hide_index=True,
        height=whole_rows(table.num_rows, 12),
        column_config=digits,
        alt=f"Result of the query, {table.num_rows:,} rows",
    )


def _chart(table: pa.Table) -> None:
    frame = table.to_pandas()
    numeric = [
        name
        for name in table.column_names
        if pa.types.is_floating(table[name].type) or pa.types.is_integer(table[name].type)
    ]
    if not numeric:
        st.info("A chart needs a numeric column.", icon=":material/bar_chart:")
        return
    names = table.column_names
    columns = st.columns([2, 2, 2, 2, 2])
    mark = columns[0].selectbox("Chart", MARKS, key="chartmark", bind="query-params")
    x = columns[1].selectbox("x", names, key="chartx", bind="query-params")
    y = columns[2].selectbox("y", sorted(numeric, key=lambda name: name == x), key="charty", bind="query-params")
    colour = columns[3].selectbox("Colour", [_NONE, *names], key="chartcolour", bind="query-params")
    with columns[4]:
        log_x = st.toggle("log x", key="chartlogx", bind="query-params")
        log_y = st.toggle("log y", key="chartlogy", bind="query-params")
    logarithmic = (log_x and x in numeric, log_y)
    plain_chart(
        query_figure(
            frame, state.mode(), mark=mark, x=x, y=y, colour="" if colour == _NONE else colour, logarithmic=logarithmic
        ),
        key="query",
        title="Result",
        takeaway=f"Chart of {count(len(frame))} rows of the query's result.",
        data=frame,
    )
    lost = undrawn(frame, x, y, logarithmic)
    if lost:
        st.caption(f"{lost:,} rows are not drawn: null, NaN, or not positive on a logarithmic axis.")
