"""A minus B: the curve of the difference, the ends, and the prompts that both saw."""

import math

import streamlit as st

from ratioscope.analysis.compare import Answer, Standing
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.formats import escape, number, plain, share
from ratioscope.dashboard.theme import Mode
from ratioscope.dashboard.views.compare import data
from ratioscope.dashboard.views.compare.controls import Measure
from ratioscope.errors import RatioscopeError

LEADER, RUNNER_UP = "the leader", "the runner-up"


def difference(groups: data.Groups, standing: Standing, measure: Measure, mode: Mode) -> None:
    """Two settings against each other; without a choice, the leader and the best of the others under its schedule."""
    st.markdown("##### A minus B")
    left, right = st.columns(2)
    chosen_a = left.selectbox("A", [LEADER, *groups.labels], key="a", bind="query-params")
    chosen_b = right.selectbox("B", [RUNNER_UP, *groups.labels], key="b", bind="query-params")
    a, b = _pair(groups, standing, chosen_a, chosen_b)
    if a is None or b is None or a == b:
        st.text("A and B are the same setting." if a is not None and a == b else "There is no second setting.")
        return
    st.text(f"A is {groups.labels[a]}.  B is {groups.labels[b]}.")
    table, answer = data.contrast(groups, a, b, standing, measure.window)
    _ends(answer, measure.metric)
    if len(table):
        by_step = measure.by == "step"
        steps = state.step_range() if by_step else (None, None)
        draw = step_chart if by_step else plain_chart
        draw(
            figures.difference(table, measure.metric, mode, by=measure.by, x=steps),
            key="difference",
            title=f"{CATALOGUE[measure.metric].title}: A minus B, with its 95 % interval over seeds",
            takeaway=f"{answer.sentence}.",
            data=table,
        )
        st.caption(_how(answer))
    else:
        st.text("At no place on this axis do both have a value.")
    _prompts(groups, a, b)


def _pair(groups: data.Groups, standing: Standing, a: str, b: str) -> tuple[int | None, int | None]:
    """Places of A and B among the settings; the leader and the runner-up are those of the ranking."""
    order = [int(place) for place in standing.ranking.index]

    def best_beside(other: int) -> int | None:
        rest = [place for place in order if place != other]
        under = [place for place in rest if groups.settings[place].schedule == groups.settings[other].schedule]
        return next(iter([*under, *rest]), None)

    if a != LEADER and b != RUNNER_UP:
        return groups.labels.index(a), groups.labels.index(b)
    if a != LEADER:
        return groups.labels.index(a), best_beside(groups.labels.index(a))
    if b != RUNNER_UP:
        return best_beside(groups.labels.index(b)), groups.labels.index(b)
    if standing.contests:
        return standing.contests[0].pairs[0]
    return order[0], best_beside(order[0])


def _ends(answer: Answer, metric: str) -> None:
    """The difference of the ends as numbers."""
    found = answer.difference
    low, high = found.interval
    interval = f"{number(metric, low)} to {number(metric, high)}" if math.isfinite(low) else "no interval"
    chance_low, chance_high = found.probability_interval
    seeds = f"{found.seeds[0]}" if found.seeds[0] == found.seeds[1] else f"{found.seeds[0]} and {found.seeds[1]}"
    tiles = (
        ("A − B at the end", number(metric, found.value), f"95 %: {interval}",
         "Mean of A's seeds minus mean of B's; t interval, of the seeds' differences where both share seeds."),
        ("P(A ends higher)", plain(found.probability),
         f"95 %: {plain(chance_low)} to {plain(chance_high)}" if math.isfinite(chance_low) else "no interval",
         "Probability that a run of A ends above a run of B; a tie counts one half. Interval from 4 seeds on."),
        ("Seeds", seeds, "paired by seed" if found.paired else "unpaired",
         "Runs of the same seed see the same prompts: with two shared seeds or more the difference is taken by seed."),
        ("Seeds needed", "–" if found.seeds_needed is None else f"{found.seeds_needed:,}",
         "at power 0.8" if found.seeds_needed is not None else "not known, or > 1,000",
         "Of each, to show a difference as large as the observed one, at the observed spread."),
    )  # fmt: skip
    for column, (label, value, beside, help_text) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(
            label, value, delta=beside, delta_color="off", delta_arrow="off", help=help_text, border=True,
            height="stretch",
        )  # fmt: skip
    st.text(f"{answer.sentence[:1].upper()}{answer.sentence[1:]}.")


def _how(answer: Answer) -> str:
    paired = (
        "Paired: at each place the difference is taken seed by seed, then averaged."
        if answer.difference.paired
        else "Unpaired: A and B share fewer than two seeds, so their means are subtracted (Welch)."
    )
    return f"{paired} The band is pointwise: of many places some leave out 0 by chance. The ends decide."


def _prompts(groups: data.Groups, a: int, b: int) -> None:
    """On demand, because it reads the sequences of all runs: the reward on the prompts that both saw."""
    asked = st.toggle(
        "Compare on the same prompts", key="prompts", bind="query-params",
        help="Training reward of A minus B on each prompt that runs of one seed saw at the same step.",
    )  # fmt: skip
    if not asked:
        return
    first, last = state.step_range()
    try:
        with st.spinner("Reading the rewards of both"):
            found = data.on_prompts(groups, a, b, first, last)
    except RatioscopeError as error:
        st.text(str(error))
        return
    if not found.pairs:
        st.text(f"The prompts cannot be compared: {found.reason}.")
        return
    low, high = found.interval
    interval = f" (95 %: {share(low)} to {share(high)})" if math.isfinite(low) else ""
    steps = "all steps" if first is None else f"steps {first} to {last}"
    st.markdown(
        f"Reward of A minus B on the same prompts: **{share(found.value)}**{interval}, over {found.pairs:,} pairs of "
        f"{found.prompts:,} prompts, {escape(steps)}."
    )
    st.caption("The interval is over prompts. It is about these runs: what other seeds would give, it does not know.")
