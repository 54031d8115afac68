"""One setting minus the baseline: the curve of the difference, the ends, and the prompts that both saw."""

from functools import partial

import streamlit as st

from ratioscope.analysis.compare.sentences import in_these_runs, with_other_seeds
from ratioscope.dashboard.components.blocks import draw, draw_computed
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections.compare import pair
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.inert import one_line


def draw_difference(comparison: Comparison, base: int) -> None:
    """A setting against the baseline; without a choice the best of the others under the baseline's schedule."""
    named, settings = comparison.labels, comparison.settings
    order = [*(row.place for row in comparison.standing.rows), *range(len(settings))]
    others = [place for place in dict.fromkeys(order) if place != base]
    others.sort(key=lambda place: settings[place].schedule != settings[base].schedule)
    st.markdown(f"## One setting minus {escape(named[base])}")
    chosen = st.selectbox("Setting", [named[place] for place in others], key="a", bind="query-params")
    place = named.index(chosen)
    contrast = comparison.standing.contrast(place, base)
    st.text(one_line(f"{in_these_runs(contrast)}. {with_other_seeds(contrast)}."))
    draw(*pair.pair_difference(comparison, place, base))
    # On demand, because it reads the sequences of all runs of both.
    asked = st.toggle(
        "Compare on the same prompts", key="prompts", bind="query-params",
        help="Difference of the training reward on each prompt that runs with the same seed saw at the same step.",
    )  # fmt: skip
    if asked:
        draw_computed(partial(pair.on_prompts, comparison, place, base), height=60)
