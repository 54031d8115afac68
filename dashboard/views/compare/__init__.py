"""Compare: is the difference real?"""

import time
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from ratioscope.analysis.compare.chosen_metric import missing_reason
from ratioscope.analysis.compare.grouping import Member
from ratioscope.analysis.compare.wording import MORE_SEEDS
from ratioscope.analysis.runs.store import Listed, run_signature
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import draw
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import (
    POLL_SECONDS,
    chosen_steps,
    how_to_read,
    no_runs,
    page_head,
    still_there,
)
from ratioscope.dashboard.components.view_tools import view_tools
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.load import server_load
from ratioscope.dashboard.sections import PAGES
from ratioscope.dashboard.sections.compare import baseline, tables
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.dots import dots, left_out
from ratioscope.dashboard.session import drawing, rested, session
from ratioscope.dashboard.views.compare import controls, data
from ratioscope.dashboard.views.compare.choosing import MOST_RUNS, choose_runs, other_seeds
from ratioscope.dashboard.views.compare.difference import draw_difference
from ratioscope.dashboard.views.compare.panels import panels
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line

_PATIENCE = 0.3  # seconds of reading before the page says that it reads

_HOW_TO_READ = r"""
**Setting.** Runs that differ only in their seed. Each line is a setting; its band is over its seeds, at each point
by itself: a bootstrap from 4 seeds on, lowest to highest seed with 2 or 3, none with one.

**The end** of a run is the mean of its last tenth of logged values, at least five, up to the point that every run
reaches, at the same steps in all runs: so neither a longer run nor a lucky last evaluation has an advantage. Over
tokens and time, runs are interpolated between their logged values.

**Do these runs differ?** An accuracy $p$ on $n$ evaluation prompts has the variance $p(1-p)/n$ at most; $n$ is the
manifest's `task.evaluation_prompts`. The prompts come back at every evaluation, so the mean of several is not taken to
be better known than one; what they swing by more than that is added. The interval of the difference is made of
Wilson's of both sides (Newcombe 1998). Other metrics take the intervals over the prompt groups of their steps.

**Would other seeds repeat it?** Yes, where the 95% t interval over seeds leaves out 0:
$\overline{d} \pm t_{0.975}\, s_d / \sqrt{n}$ over the $n$ shared seeds, else Welch's interval. The noise of an
evaluation knows nothing of this.

**Several settings**: all pairs are judged together, so that the chance of a single false difference stays within
5% (Holm 1979). Over seeds, where every setting has three or more; else by the evaluation prompts of these runs, where
besides the interval of the pair, with its swing, has to leave out 0, and other seeds may say otherwise. *Worse* is a
setting that differs from the best; of settings that share a letter none differs from another. A bar is the 95% interval
of the difference from the best, drawn from there: of a worse setting it does not reach the solid line. *Tied* is
a setting whose bar does not reach the dotted line, 5 points from the best (of a metric that is no share, 10%).
*Undecided* are the others. Bars hold for each pair by itself: of many, one that misses the solid line may still be
undecided. The axis is at most four times as wide as those need that may be the best: a mark at its edge is a setting
that is worse and ends beyond it.

**Collapsed** is a setting of which a run fell below its best by the share that is named, and by more than noise, and
did not come back: the rule of the finding, over the whole run.

**The baseline** of differences is the best setting, until another is chosen.

**Probability of improvement**. $P(X > Y) + \tfrac12 P(X = Y)$ for a run $X$ of A and a run $Y$ of B (Agarwal et al.,
2021); from four seeds of each on.

**IQM**, the interquartile mean, is the mean of the middle half of the seeds: one broken seed does not move it. With
fewer than four seeds it is not shown.
"""


def render() -> None:
    """The page."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        page_head(PAGES["compare"])
        view_tools()
    session().clicked_step = None  # a step of which run?
    session().along = None  # its figures know their axis
    known = state.runs()
    if not known:
        no_runs()
        return
    chosen = st.container(horizontal=True, vertical_alignment="bottom")
    with chosen:
        ids = choose_runs(known)
    still_there([known[run_id] for run_id in ids])
    drawing()
    members = _read([known[run_id] for run_id in ids])
    if not members:
        return
    _follow([known[member.run_id] for member in members], members)
    opening = st.container()
    with chosen:
        measure, look_of = controls.controls()
    comparison, absent = data.comparison(members, measure)
    comparison = data.by_a_metric_that_is_there(comparison)
    for reason in absent.values():
        _left_out(reason)
    if not comparison.settings:
        return
    with chosen:
        look = look_of(comparison.settings)
    with opening:
        _answer(comparison, other_seeds(known, ids))
        _dots(comparison, look)
    if len(comparison.standing.without) == len(comparison.settings):
        reason = missing_reason(comparison.settings, comparison.measure.metric) or "it is not logged"
        st.info(f"No run has it: {escape(reason)}.", icon=":material/help:")
    else:
        _difference(comparison, look)
    _settings(comparison, members)
    how_to_read(_HOW_TO_READ)


def _dots(comparison: Comparison, look: Look) -> None:
    """Where each setting ends; of many the best, and all of them on demand."""
    if not comparison.standing.rows:
        return
    draw(dots(comparison, look))
    if more := left_out(comparison):
        with fold("all", f"{more} more settings") as door:
            if door.open:
                most = len(comparison.standing.rows) + len(comparison.standing.groups)
                draw(dots(comparison, look, most=most, key="dots-all"))


def _difference(comparison: Comparison, look: Look) -> None:
    """The curves, and on demand the numbers behind the dots: what few ask for is folded."""
    if comparison.measure.by == "step":
        with st.container(horizontal=True, vertical_alignment="center"):
            chosen_steps()
    panels(comparison, look)
    pairs = len(comparison.standing.contrasts)
    says = f"{len(comparison.settings)} settings, {pairs} pairs judged together (Holm)" if pairs > 1 else ""
    with fold("ranking", "Ranking and differences", says) as door:
        if door.open:
            _numbers(comparison, look)


def _numbers(comparison: Comparison, look: Look) -> None:
    """The ranking with letters and differences to the baseline, and any two settings."""
    base = controls.baseline(comparison)
    draw(tables.ranking(comparison, baseline.compared_with(comparison, base)))
    if len(comparison.settings) > 2:
        draw(*baseline.along(comparison, base, look))
    if len(comparison.settings) > 1:
        draw_difference(comparison, base)


def _answer(comparison: data.PageComparison, more_seeds: Sequence[str]) -> None:
    """Who leads; once what so few seeds cannot tell, and what the words are.

    Args:
        more_seeds: runs that differ from the chosen ones in their seed alone.
    """
    words = comparison.words
    one_each = len(words.sentences) == len(comparison.standing.ranked)
    first, *others = map(escape, words.sentences)
    st.markdown("  \n".join(map(_leader, words.sentences) if one_each else [f"**{first}**", *others]))
    # In place of the advice to run more seeds stands the button.
    caveat = words.caveat.replace(f"; {MORE_SEEDS}", "") if more_seeds else words.caveat
    with st.container(horizontal=True, vertical_alignment="center"):
        if caveat:
            st.markdown(escape(caveat), width="content")
        if more_seeds:
            ids = [run_id for run_id in state.chosen_ids() if run_id not in more_seeds]
            st.button(
                f"Add {_seeds(len(more_seeds))}", key="more-seeds", icon=":material/add:",
                on_click=state.choose, args=([*ids, *more_seeds][:MOST_RUNS],), type="tertiary",
            )  # fmt: skip
    if told := " ".join(filter(None, (words.terms, words.collapsed, comparison.instead))):
        st.caption(escape(told))


def _leader(sentence: str) -> str:
    """With who leads in bold, and not who is undecided or worse."""
    first, *others = map(escape, sentence.split("; "))
    return "; ".join([f"**{first}**", *others])


def _seeds(number: int) -> str:
    return "a run of another seed" if number == 1 else f"{number} runs of other seeds"


def _settings(comparison: Comparison, members: Sequence[Member]) -> None:
    """How the algorithms and the runs differ."""
    with fold("settings", "Settings", baseline.differing_from_baseline(comparison)) as door:
        if door.open:
            draw(*tables.parts(comparison.settings), *tables.other_settings(members))


def _read(listed: list[Listed]) -> list[Member]:
    members = []
    reading, started = st.empty(), time.monotonic()
    for place, run in enumerate(listed):
        if time.monotonic() - started > _PATIENCE:
            reading.progress(place / len(listed), text=f"Reading run {place + 1} of {len(listed)}")
        try:
            member = data.member(run)
        except RatioscopeError as error:
            _left_out(str(error))
            continue
        if len(member.summary.values):
            members.append(member)
        else:
            _left_out(f"{run.run_id}: no step is on disk.")
    reading.empty()
    return members


def _left_out(reason: str) -> None:
    st.warning("A run was left out.", icon=":material/warning:")
    st.text(one_line(reason))


def _follow(listed: list[Listed], members: list[Member]) -> None:
    """Draw again when a live run has news; finished runs are not polled."""
    live = [
        (run.folder, member.run.signature, member.summary.last_step)
        for run, member in zip(listed, members, strict=True)
        if run.status in ("running", "stalled")
    ]
    if not live:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(f"{len(live)} of {len(members)} live", icon=":material/sensors:", color="green")
        follow = st.toggle("Follow", value=True, key="follow-runs", help="Show new steps as they arrive.")
        session().follows = follow
        _poll(live, follow=follow)


@st.fragment(run_every=POLL_SECONDS)
def _poll(live: Sequence[tuple[Path, str, int]], *, follow: bool) -> None:
    """Where each live run is, which state of it is shown, and up to which step."""
    turn = follow and rested() and server_load.has_spare(session().drawn)
    if turn and any(run_signature(folder) != shown for folder, shown, _ in live):
        st.rerun()
    steps = [last_step for *_, last_step in live]
    st.text(f"data up to step {min(steps)}" + (f" to {max(steps)}" if max(steps) > min(steps) else ""))
