"""A minus B: the curve of the difference, the ends, and the prompts that both saw."""

from functools import partial

import streamlit as st

from ratioscope.analysis.compare import in_these_runs, with_other_seeds
from ratioscope.dashboard.components.blocks import draw, draw_computed
from ratioscope.dashboard.sections.compare import pair
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.inert import one_line

LEADER, RUNNER_UP = "the leader", "the runner-up"


def draw_difference(comparison: Comparison) -> None:
    """Two settings against each other; without a choice, the leader and the best of the others under its schedule."""
    st.markdown("## A minus B")
    named = comparison.labels
    left, right = st.columns(2)
    chosen_a = left.selectbox("A", [LEADER, *named], key="a", bind="query-params")
    chosen_b = right.selectbox("B", [RUNNER_UP, *named], key="b", bind="query-params")
    a, b = _pair(comparison, chosen_a, chosen_b)
    if a is None or b is None or a == b:
        st.text("A and B are the same setting." if a is not None and a == b else "There is no second setting.")
        return
    st.text(one_line(f"A is {named[a]}.  B is {named[b]}."))
    contrast = comparison.standing.contrast(a, b)
    st.text(one_line(f"{in_these_runs(contrast)}. {with_other_seeds(contrast)}."))
    draw(*pair.pair_difference(comparison, a, b))
    # On demand, because it reads the sequences of all runs of both.
    asked = st.toggle(
        "Compare on the same prompts", key="prompts", bind="query-params",
        help="Training reward of A minus B on each prompt that runs with the same seed saw at the same step.",
    )  # fmt: skip
    if asked:
        draw_computed(partial(pair.on_prompts, comparison, a, b), height=60)


def _pair(comparison: Comparison, a: str, b: str) -> tuple[int | None, int | None]:
    """Places of A and B among the settings; the leader and the runner-up are those of the ranking."""
    settings, named = comparison.settings, comparison.labels
    order = [row.place for row in comparison.standing.rows]

    def best_beside(other: int) -> int | None:
        rest = [place for place in order if place != other]
        under = [place for place in rest if settings[place].schedule == settings[other].schedule]
        return next(iter([*under, *rest]), None)

    if a != LEADER and b != RUNNER_UP:
        return named.index(a), named.index(b)
    if a != LEADER:
        return named.index(a), best_beside(named.index(a))
    if b != RUNNER_UP:
        return best_beside(named.index(b)), named.index(b)
    return order[0], best_beside(order[0])
