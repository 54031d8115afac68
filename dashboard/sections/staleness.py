"""How old is the data, and does age hurt?"""

from functools import partial

from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.staleness import age
from ratioscope.analysis.staleness import mixed_responses as segments
from ratioscope.analysis.summary.strata import stratify
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import staleness as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import estimate, share
from ratioscope.dashboard.sections.model import Block, Paragraph, Section, Table
from ratioscope.dashboard.sections.subject import Subject, chart, key_numbers, where
from ratioscope.errors import RatioscopeError
from ratioscope.notes import from_cells


def section(subject: Subject) -> Section:
    """Version lags over the steps, metrics by lag, versions inside responses."""
    opened, summary, steps = subject.opened, subject.summary, subject.steps
    lags = age.version_lags(opened.run)
    if steps[0] is not None and steps[1] is not None:
        lags = lags[lags["step"].between(steps[0], steps[1])]
    blocks: list[Block] = [
        key_numbers(subject, ("version_lag", "s_k", "s_k_version", "s_k_engine")),
        chart(subject.mode, "lags", "How old the tokens of each step are",
              partial(figures.lag_heat_map, lags, summary, steps=steps),
              age.how_old(lags), lags, ("version_lag",)),
    ]  # fmt: skip
    first, last = subject.window().steps
    answer = age.how_old(lags)
    try:
        strata = stratify(opened.run, "lag", first, last)
    except RatioscopeError as error:  # these steps hold no token
        blocks.append(Paragraph(str(error)))
    else:
        limit, key = opened.limits.staleness, staleness_metric(summary)
        answer = age.sentence(lags, strata, age.age_effect(strata, key), limit=limit)
        rows = strata.metric(key)
        title = f"{CATALOGUE[key].title} by version lag, {where(first, last)}"
        if rows["value"].notna().any():
            draw = partial(figures.by_lag, rows, key, CATALOGUE[key].unit,
                           limits=(Limit(limit, "ε<sub>stale</sub>/2"),))  # fmt: skip
            blocks.append(chart(subject.mode, "by-lag", title, draw, answer, rows, (key,)))
        total = rows["n_tokens"].iloc[-1]
        cells = tuple(
            (
                str(row["label"]),
                share(row["n_tokens"] / total if total else 0.0),
                estimate(key, row["value"], row["low"], row["high"], from_cells(row["note_kind"], row["note"])),
            )
            for row in rows.to_dict("records")
        )
        blocks.append(Table(title, ("Version lag", "Share of tokens", CATALOGUE[key].title), cells))
    inside = segments.switching(opened.run, *steps)
    blocks.append(Paragraph(segments.sentence(inside)))
    return Section("staleness", "Staleness", "How old is the data, and does age hurt?", answer, tuple(blocks))
