"""The tables of the Compare page: ranking, the best against the others, parts of the algorithms, settings, findings."""

import math
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare import Member, Standing, components, differences
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.formats import is_share, number, share
from ratioscope.dashboard.theme import Mode
from ratioscope.dashboard.views.compare import data
from ratioscope.errors import RatioscopeError


def ranking(standing: Standing) -> None:
    """The settings, best first, and under each schedule the best against the others."""
    metric = standing.metric
    st.markdown(f"##### Ranking: {CATALOGUE[metric].title} at the end")
    rows = [_ranked(row, metric) for row in standing.ranking.to_dict(orient="records")]
    scale = "%.1f %%" if is_share(metric) else "%.3g"
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "Setting": st.column_config.TextColumn(width="medium"),
            "Seeds": st.column_config.NumberColumn(help="Seeds with a value.", width="small"),
            "Mean": st.column_config.NumberColumn(format=scale, help="Over the seeds."),
            "95 % over seeds": st.column_config.TextColumn(help="t interval of the mean."),
            "IQM": st.column_config.NumberColumn(format=scale, help="Mean of the middle half of the seeds."),
            "Band of the IQM": st.column_config.TextColumn(help="Bootstrap from 4 seeds on, else lowest to highest."),
            "Best": st.column_config.ProgressColumn(
                format="%.0f %%", min_value=0, max_value=100,
                help="Probability that no other setting has a better mean; empty with one seed.",
            ),
        },
        alt=f"Settings ranked by {CATALOGUE[metric].title} at the end of the runs",
    )  # fmt: skip
    st.caption(standing.where)
    against_the_best(standing)
    _over_schedules(standing)


def against_the_best(standing: Standing) -> None:
    """One row for each setting but the best of its schedule; a single answer stands at the head of the page already."""
    answers = [(contest.schedule, answer) for contest in standing.contests for answer in contest.answers]
    if len(answers) < 2:
        return
    metric = standing.metric
    rows = []
    for schedule, answer in answers:
        found, (low, high) = answer.difference, answer.difference.interval
        rows.append(
            {
                "Schedule": schedule or "all",
                "Best": answer.a,
                "Other": answer.b,
                "Difference": number(metric, found.value),
                "95 %": f"{number(metric, low)} to {number(metric, high)}" if math.isfinite(low) else "none",
                "Improvement": share(answer.probability_of_improvement),
                "Verdict": {"a": "the best is better", "b": "the other is better", None: "cannot tell"}[answer.better],
                "Why, or what to do": answer.reason,
            }
        )
    st.markdown("##### The best of each schedule against the others")
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "Improvement": st.column_config.TextColumn(
                help="Probability that a run of the best ends better than a run of the other."
            ),
            "Difference": st.column_config.TextColumn(help="Mean of the best minus mean of the other."),
            "95 %": st.column_config.TextColumn(help="t interval over seeds, paired where both share seeds."),
            "Verdict": st.column_config.TextColumn(help="Better where the interval leaves out 0."),
        },
        alt="The best setting of each schedule against each of the others",
    )
    st.caption(standing.caveat)


def _over_schedules(standing: Standing) -> None:
    table, metric = standing.over_schedules, standing.metric
    if not len(table):
        return
    rows = [
        {
            "Variant": name,
            "Runs": int(row["seeds"]),
            "Mean": number(metric, row["mean"]),
            "95 %": _interval(metric, row["mean_low"], row["mean_high"]),
            "IQM": number(metric, row["iqm"]),
            "95 % of the IQM": _interval(metric, row["iqm_low"], row["iqm_high"]),
        }
        for name, row in table.iterrows()
    ]
    st.markdown("##### Over all schedules")
    st.dataframe(pd.DataFrame(rows), hide_index=True, alt="Variants that ran under every schedule, all runs pooled")
    st.caption(
        "Variants that ran under every chosen schedule, their runs pooled. Intervals resample seeds inside each "
        "schedule; a schedule with one seed leaves none."
    )


def algorithms(groups: data.Groups, mode: Mode) -> None:
    """The parts of the algorithms side by side; what differs is marked, and alone unless all is asked for."""
    first = {setting.variant: setting for setting in reversed(groups.settings)}
    variants = list(dict.fromkeys(setting.variant for setting in groups.settings))
    table = components([first[variant] for variant in variants])
    table.columns = pd.Index(variants)
    if not len(table) or len(variants) < 2:
        return
    differs = pd.Series([len(set(row)) > 1 for row in table.to_numpy()], index=table.index)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown("##### Parts of the algorithms", width="content")
        whole = st.toggle("Also what is alike", key="parts", bind="query-params")
    if not whole:
        table = table[differs.to_numpy()]
        if not len(table):
            st.text("The algorithms have the same parts and parameters.")
            return
        st.dataframe(table, alt="Components in which the algorithms differ", height="content")
        return
    table.insert(0, "differs", ["yes" if here else "" for here in differs])
    table = table.reset_index()  # a name may come twice, as a part and as a parameter
    marked = table.style.apply(
        lambda row: [f"background-color: {mode.grid}" if row["differs"] else "" for _ in row], axis=1
    )
    st.dataframe(
        marked, hide_index=True, height="content", alt="Components of the algorithms; rows that differ are marked"
    )


def configurations(members: list[Member]) -> None:
    """What was set differently, run by run."""
    st.markdown("##### What differs between the runs")
    table = differences(members)
    if len(table):
        st.dataframe(table, alt="Settings in which the runs differ", height="content")
    else:
        st.text("Nothing but the seed, or nothing at all.")


def sick_runs(members: list[Member]) -> None:
    """Findings by run and rule; only when they are asked for, because the rules read every token."""
    with st.expander("Findings by run", icon=":material/monitor_heart:", key="sick", on_change="rerun") as expander:
        if not expander.open:
            return
        known, rows, silent = state.runs(), {}, []
        progress = st.empty()
        for place, member in enumerate(members):
            progress.progress(place / len(members), text=f"Run {place + 1} of {len(members)}")
            try:
                found = data.findings(known[member.run_id])
            except (RatioscopeError, KeyError) as error:
                st.text(f"{member.run_id}: {error}")
                continue
            if found:
                rows[member.run_id] = found
            else:
                silent.append(member.run_id)
        progress.empty()
        if rows:
            table = pd.DataFrame.from_dict(rows, orient="index").fillna("")
            st.dataframe(table, alt="Severity of the findings of each rule in each run")
        if silent:
            st.text(f"Without a finding: {', '.join(silent)}.")


def _ranked(row: dict[Any, Any], metric: str) -> dict[str, Any]:
    factor = 100 if is_share(metric) else 1
    return {
        "Setting": row["setting"],
        "Schedule": row["schedule"],
        "Seeds": row["seeds"],
        "Mean": row["mean"] * factor,
        "95 % over seeds": _interval(metric, row["low"], row["high"]) if row["seeds"] > 1 else "one seed",
        "IQM": row["iqm"] * factor,
        "Band of the IQM": _interval(metric, row["iqm_low"], row["iqm_high"]),
        "Best": 100 * row["best"],
    }


def _interval(metric: str, low: float, high: float) -> str:
    return f"{number(metric, low)} to {number(metric, high)}" if math.isfinite(low) else "none"
