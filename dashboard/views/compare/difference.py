"""A minus B: the curve of the difference, the ends, and the prompts that both saw."""

import math
from functools import partial

import streamlit as st

from ratioscope.analysis.compare import ComparisonAnswer
from ratioscope.dashboard.components.blocks import draw, draw_computed
from ratioscope.dashboard.formats import plain_number
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
    _ends(pair.contrast(comparison, a, b)[1], comparison.measure.metric)
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
    settings, named, standing = comparison.settings, comparison.labels, comparison.standing
    order = [int(place) for place in standing.ranking.index]

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
    if standing.contests:
        return standing.contests[0].pairs[0]
    return order[0], best_beside(order[0])


def _ends(answer: ComparisonAnswer, metric: str) -> None:
    """The difference of the ends as numbers."""
    found, here = answer.difference, answer.runs
    seeds = f"{found.seeds[0]}" if found.seeds[0] == found.seeds[1] else f"{found.seeds[0]} and {found.seeds[1]}"
    tiles = [
        ("A − B in these runs", *_estimate(metric, here.value, here.interval),
         f"Mean over A's runs minus mean over B's, with the noise of {here.basis}."),
        ("A − B over seeds", *_estimate(metric, found.value, found.interval),
         "Mean over A's seeds minus mean over B's; t interval, paired where both share seeds."),
        ("Seeds", seeds, "paired by seed" if found.paired else "unpaired",
         "Runs with the same seed see the same prompts: with two or more shared seeds, differences are paired."),
    ]  # fmt: skip
    if min(found.seeds) > 1:
        tiles.append(
            ("A ends higher in", f"{found.wins[0]} of {found.wins[2]}",
             "pairs of seeds" if found.paired else "pairs of runs", "Counted; a tie is no win.")
        )  # fmt: skip
    if not math.isnan(found.probability):
        chance = found.probability_interval
        tiles.append(
            ("P(A ends higher)", plain_number(found.probability, *chance),
             f"95%: {' to '.join(plain_number(end, *chance) for end in chance)}",
             "Probability that a run of A ends above a run of B; a tie counts one half. From 4 seeds on.")
        )  # fmt: skip
    if found.seeds_needed is not None:
        about, least, most = found.seeds_needed
        tiles.append(
            ("Seeds needed", f"{about:,}", f"{least:,} to {'more than 1,000' if most is None else f'{most:,}'}",
             "Per setting, to find a difference as large as the observed one with power 0.8; the range is that of the "
             "spread, known from so few seeds.")
        )  # fmt: skip
    for column, (label, value, beside, help_text) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(
            label, value, delta=beside, delta_color="off", delta_arrow="off", help=help_text, border=True,
            height="stretch",
        )  # fmt: skip
    st.text(one_line(f"{answer.sentence}."))


def _estimate(metric: str, value: float, interval: tuple[float, float]) -> tuple[str, str]:
    within = pair.between(metric, *interval)
    return pair.difference_words(metric, value, *interval), f"95%: {within}" if within else "no interval"
