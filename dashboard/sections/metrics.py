"""What else is logged? A user's own choice of numbers by step: over the steps, and one over another."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import islice

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import metrics as figures
from ratioscope.dashboard.formats import metric_label, metric_value, plain_number
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.page import Beside, Choice, Page, Part
from ratioscope.dashboard.sections.subject import Subject, chart, over_steps_chart
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line

USUAL = ("reward", "s_k_bounded", "u_k", "clip_fraction", "ess_token", "entropy")
"""Where nothing is chosen, as far as they are logged."""
MOST_MATCHES = 12
"""Charts of what matches an expression."""


def choices(summary: StepSummary) -> dict[str, str]:
    """What can be chosen, label -> key: metrics with a value, then columns of the trainer's own steps table.

    A column that is a metric already, or that holds no finite number, is none.
    """
    known = [key for key in sorted(CATALOGUE, key=_order) if summary.values[key].notna().any()]
    own = [str(name) for name in summary.steps if name not in CATALOGUE and _has_numbers(summary.steps[name])]
    return {metric_label(key): key for key in known} | {f"column {one_line(name)}": name for name in own}


@cache
def _order(key: str) -> tuple[int, str]:
    return CATALOGUE[key].order, CATALOGUE[key].title


def _has_numbers(column: "pd.Series[float]") -> bool:
    return pd.api.types.is_numeric_dtype(column) and bool(np.isfinite(column.to_numpy(float, na_value=np.nan)).any())


def values_of(summary: StepSummary, key: str) -> "pd.Series[float]":
    """A metric or a column by step."""
    if key in CATALOGUE:
        return summary.values[key]
    return summary.steps[key].astype(float).reindex(summary.values.index)


def matching(options: Mapping[str, str], pattern: str) -> dict[str, str]:
    """Of label -> key those whose label or key has a match of a regular expression, in any case.

    Raises:
        RatioscopeError: it is none.
    """
    try:  # RE2: in proportion to the text, whatever the expression
        found = (
            pc.match_substring_regex(pa.array(list(of), pa.string()), pattern, ignore_case=True)
            for of in (options, options.values())
        )
        fits = pc.or_(*found).to_pylist()
    except pa.ArrowInvalid as error:
        why = str(error).removeprefix("Invalid regular expression: ").removesuffix(f": {pattern}")
        raise RatioscopeError(f"“{pattern}” is not a regular expression: {why}.") from None
    return {label: key for (label, key), fit in zip(options.items(), fits, strict=True) if fit}


def answer(subject: Subject, pattern: str, chosen: Mapping[str, str]) -> str:
    """How much there is to choose from, and how much of it is shown."""
    there = _offered(subject)
    if pattern:
        try:
            n = len(matching(there, pattern))
        except RatioscopeError as error:
            return one_line(error)
        less = f"; the first {MOST_MATCHES} are drawn" if n > MOST_MATCHES else ""
        return f"{n} of {len(there)} metrics and columns match “{one_line(pattern)}”{less}."
    own = sum(key not in CATALOGUE for key in there.values())
    columns = f" and {own} column{'s' * (own != 1)} of the steps table" if own else ""
    metrics = f"{len(there) - own} metric{'s' * (len(there) - own != 1)}{columns}"
    verb, pinned = "has" if metrics == "1 metric" else "have", len(chosen)
    return f"{metrics} {verb} a value in this run; {pinned} {'is' if pinned == 1 else 'are'} pinned here."


def pinned(subject: Subject, chosen: Mapping[str, str]) -> list[Chart]:
    """A chart over the steps for each, label -> key; metrics with their intervals."""
    found = []
    for place, (label, key) in enumerate(chosen.items()):
        said = _extremes(key, values_of(subject.summary, key))
        if key in CATALOGUE:
            metric = CATALOGUE[key]
            drawn = over_steps_chart(
                subject, [key], key=f"pin-{key}", title=metric.title, takeaway=said, unit=metric.unit, height=210
            )
            found.append(replace(drawn, symbol=metric.symbol))
        else:
            values = values_of(subject.shown, key)
            draw = partial(figures.column_over_steps, values, steps=subject.steps)
            found.append(chart(subject.mode, f"pin-{place}", label, draw, said, values.to_frame(key), by_step=True))
    return found


def against(subject: Subject, x: tuple[str, str], y: tuple[str, str]) -> Chart:
    """One number over another, a point a step, coloured by the step; each is a label and a key."""
    summary = subject.summary
    frame = pd.DataFrame({"x": values_of(summary, x[1]), "y": values_of(summary, y[1])}).dropna()
    draw = partial(figures.against, frame, x_title=x[0], y_title=y[0])
    data = frame.set_axis([x[1], y[1] if y[1] != x[1] else f"{y[1]} (y)"], axis=1)
    return chart(subject.mode, "against", f"{y[0]} against {x[0]}", draw, _together(frame), data)


def _together(frame: pd.DataFrame) -> str:
    """How the two go together, as a description: steps of one run are no independent sample."""
    ranks = frame.rank()
    if len(frame) < 3 or (ranks.std() == 0).any():
        steps = "1 step has" if len(frame) == 1 else f"{len(frame)} steps have"
        return f"{steps} both; too few that differ for a correlation."
    rank = float(np.corrcoef(ranks["x"], ranks["y"])[0, 1])
    return f"Rank correlation {rank:.2f} over {len(frame)} steps, which depend on each other: a description, no test."


def _extremes(key: str, values: "pd.Series[float]") -> str:
    known = values.dropna()
    if not len(known):
        return "No value in these steps."
    low, high = int(known.argmin()), int(known.argmax())

    def text(place: int) -> str:
        value = float(known.iloc[place])
        return metric_value(key, value) if key in CATALOGUE else plain_number(value)

    return f"Lowest {text(low)} in step {known.index[low]}, highest {text(high)} in step {known.index[high]}."


def usual(options: Mapping[str, str]) -> Sequence[str]:
    """Labels of `USUAL`."""
    return [label for label, key in options.items() if key in USUAL]


def _wanted(subject: Subject, pattern: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """What matches, or else what is pinned; nothing where the answer says that it is no expression."""
    with suppress(RatioscopeError):
        return dict(islice(matching(_offered(subject), pattern).items(), MOST_MATCHES)) if pattern else dict(chosen)
    return {}


def _offered(subject: Subject) -> dict[str, str]:
    return choices(subject.opened.summary)


def _chosen(subject: Subject, _: str, __: Mapping[str, str], over: str, shown: str) -> list[Chart]:
    labels = {key: label for label, key in _offered(subject).items()}
    return [against(subject, (labels[over], over), (labels[shown], shown))]


def _first(place: int, options: Mapping[str, str], _: str, pinned: Mapping[str, str]) -> str:
    """The first or the second of what is pinned, or else of all."""
    labels = list(options)
    return [*list(pinned or options)[:2], *labels][place]


PAGE = Page(
    "metrics", "Metrics", "Which numbers do I want to watch?", 102, ":material/dashboard_customize:",
    choices=[
        Choice("match", "Matching", {}, "text", help="Shows these in place of the pinned ones; in any case.", width=320,
               hint="expression: clip|^kl"),
        Choice("pin", "Pinned", _offered, "several", usual, help="Kept in the link.", hint="metric or column"),
    ],
    answer=answer,
    main=lambda subject, *chosen: [Beside(pinned(subject, _wanted(subject, *chosen)), across=3)],
    parts=[
        Part(
            "", "", _chosen,
            when=lambda subject, *_: len(_offered(subject)) > 1,
            choices=[
                Choice("x", "Over", _offered, "search", partial(_first, 1)),
                Choice("y", "Shown", _offered, "search", partial(_first, 0)),
            ],
            caption="below",
        ),
    ],
)  # fmt: skip
