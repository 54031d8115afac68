"""The runs that differ from the one in hand in one setting, or in the seed alone, with what became of them."""

from collections.abc import Container, Mapping, Sequence
from math import inf

import streamlit as st

from ratioscope.analysis.compare.configuration import configuration_of
from ratioscope.analysis.compare.siblings import SEED, Sibling, short_settings, siblings
from ratioscope.analysis.findings.numbers import rounded_level
from ratioscope.analysis.overview.lights import LEARNING, NAMES, LightState
from ratioscope.analysis.runs.store import Listed, open_run
from ratioscope.analysis.what_if import Rule, own_rule
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.tile import small_multiple
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session
from ratioscope.dashboard.watching.headlines import Headline
from ratioscope.dashboard.watching.reader import server_reader
from ratioscope.errors import RatioscopeError

_MOST, _MOST_BESIDE = 12, 4
"""In the list of all; beside what to change."""
_COMPARE = ":material/stacked_line_chart:"
_DRAWN = 110
"""Pixels."""
_GRACE, _PAUSE = 0.15, 2.0
"""Seconds that the page waits for their results, and until it looks again."""


def sibling_results(run_id: str) -> None:
    """The runs in which one setting differs, the best ones first: a line each with its end and its course; nothing
    where there is none."""
    changed, asked = _asked(run_id, _of(run_id, state.runs()))
    if not changed:
        return
    reader, others = server_reader(), _in_several_settings(run_id, {sibling.run_id for sibling in changed})
    waiting = bool(reader.ask(asked))

    def lines() -> None:
        left = reader.ask(asked, at_once=True)
        known = {run.run_id: headline for run in asked if (headline := reader.get(run)) is not None}
        here = known.get(run_id, Headline())
        read = [sibling for sibling in changed if sibling.run_id in known]
        best = sorted(read, key=lambda sibling: _place(known[sibling.run_id], here.level_metric))[:_MOST_BESIDE]
        _head([run.run_id for run in asked], _told(len(read), len(changed)), _explained(here) + others)
        names, scale = short_settings(best), _scale([here, *(known[sibling.run_id] for sibling in best)])
        with st.container(key="sibling-lines", gap="xxsmall"):
            for sibling in best:
                _line(sibling, names[sibling.run_id], known[sibling.run_id], here, scale)
        if waiting and not left:
            st.rerun()

    st.fragment(lines, run_every=_PAUSE if waiting else None)()


def tried_rule(run_id: str) -> Rule | None:
    """Of the siblings that changed the clip alone, and end better, the rule of the one that ends best."""
    _, asked = _asked(run_id, [each for each in _of(run_id, state.runs()) if each.what == "gate"])
    known = {run.run_id: headline for run in asked if (headline := server_reader().get(run)) is not None}
    here = known.pop(run_id, Headline())
    ends = {name: _place(headline, here.level_metric) for name, headline in known.items()}
    best = min(ends, key=ends.__getitem__, default=run_id)
    if ends.get(best, inf) >= _place(here, here.level_metric):
        return None
    try:
        return own_rule(open_run(state.runs()[best].folder)).rule
    except RatioscopeError:  # it has just gone
        return None


def _asked(run_id: str, found: Sequence[Sibling]) -> tuple[list[Sibling], list[Listed]]:
    """Those of them in which a setting differs; the run and these, which are being read."""
    runs = state.runs()
    changed = [sibling for sibling in found if sibling.what != SEED]
    asked = [runs[name] for name in (run_id, *(sibling.run_id for sibling in changed))] if changed else []
    if server_reader().ask(asked, at_once=True):
        server_reader().wait(_GRACE)
    return changed, asked


def _in_several_settings(run_id: str, changed: Container[str]) -> str:
    """How many runs of the same task are not compared, because more than one of their settings differs."""
    manifests = {name: run.manifest for name, run in state.runs().items() if run.manifest and name not in changed}
    here = manifests.pop(run_id)
    own = configuration_of(here)
    n = sum(each.task == here.task and configuration_of(each) != own for each in manifests.values())
    more = f"{n} more run{'s' * (n != 1)} of this task differ{'s' * (n == 1)}"
    return f" {more} in several settings, the seed included." if n else ""


def _head(compared: Sequence[str], told: str, explained: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.caption(f"Tried{told}", width="content", help=explained)
        st.page_link(session().pages["compare"], label="Compare", icon=_COMPARE, query_params={"run": list(compared)})


def _place(headline: Headline, metric: str) -> float:
    """Before whom a run comes: the better its end is, in the metric of the run on the page; others are last."""
    if headline.level_end is None or metric not in ("", headline.level_metric):
        return inf
    return -headline.level_end


def _told(read: int, n: int) -> str:
    """The best are shown, of those that have been read; beside the line of this run."""
    if read < n:
        return f": {read} of {n} runs read so far"
    return ": final means (grey: this run)"


def _explained(here: Headline) -> str:
    """What a final mean is, beside the last value, which other sentences of the page end with."""
    said = "One run, of the same seed, each. A final mean is of the last tenth of the values, at least five."
    if here.level_end is None:
        return said
    metric = CATALOGUE[here.level_metric]
    last = escape(rounded_level(here.metrics[metric.key], share=metric.share))
    return f"{metric.label}. {said} This run's is {_end(here)}; its last value is {last}."


def _scale(shown: Sequence[Headline]) -> tuple[float, float]:
    """The lowest and the highest value of all, from 0 where none is negative: one scale for a row."""
    values = [value for headline in shown for value in headline.level]
    return min([0.0, *values]), max([*values, 1e-12])


def _line(sibling: Sibling, name: str, headline: Headline, here: Headline, scale: tuple[float, float]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        overview, opened = session().pages["overview"], {"run": sibling.run_id}
        called = f"{name} ({sibling.algorithm})" if sibling.algorithm else name
        st.page_link(overview, label=escape(called), query_params=opened, help=escape(sibling.words), width="stretch")
        st.markdown(_result(headline), width="content")
        if headline.level:
            beside = here.level if here.level_metric == headline.level_metric else ()
            steps = headline.last_step + 1, here.last_step + 1
            drawn = small_multiple(headline.level, beside, *scale, steps=steps, metric=headline.level_metric)
            st.image(drawn, width=_DRAWN, alt="")


def _result(headline: Headline) -> str:
    """Its end, behind the sign of its first light; how well it is known is a question of the comparison."""
    if headline.level_end is None:
        return "no level"
    state = LightState[headline.lights[NAMES.index(LEARNING)][0]] if headline.lights else LightState.UNKNOWN
    return f":material/{state.icon}: **{_end(headline)}**"


def _end(headline: Headline) -> str:
    """The mean of the last values of a run, as text for Markdown; empty where it is not known."""
    if headline.level_end is None:
        return ""
    share = headline.level_metric in CATALOGUE and CATALOGUE[headline.level_metric].share
    return escape(rounded_level(headline.level_end, share=share))


def sibling_runs(run_id: str, *, all_shown: bool = False) -> None:
    """All of them in a line each, to open on this page or to compare; nothing where there is none.

    Args:
        all_shown: whether `sibling_results` are on the page: nothing, too, where it has all of them.
    """
    found = _of(run_id, state.runs())
    if not found or (all_shown and len(found) <= _MOST_BESIDE and all(sibling.what != SEED for sibling in found)):
        return
    with fold("siblings", "Runs that differ in one setting", _words(found)) as door:
        if not door.open:
            return
        for number, sibling in enumerate(found[:_MOST]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"sibling-{number}"):
                headline = server_reader().of(state.runs()[sibling.run_id].folder)
                st.markdown(f"{escape(sibling.words)}{f': {_result(headline)}' if headline else ''}", width="stretch")
                pages = session().pages
                st.page_link(pages["overview"], label=escape(sibling.run_id), query_params={"run": sibling.run_id})
                both = {"run": [run_id, sibling.run_id]}
                st.page_link(pages["compare"], label="Compare", icon=_COMPARE, query_params=both)
        if len(found) > _MOST:
            st.caption(f"{len(found) - _MOST} more differ in one setting.")


def _of(run_id: str, runs: Mapping[str, Listed]) -> tuple[Sibling, ...]:
    manifests = {name: run.manifest for name, run in runs.items() if run.manifest}
    return siblings(run_id, manifests) if run_id in manifests else ()


def _words(found: Sequence[Sibling]) -> str:
    seeds = sum(sibling.what == SEED for sibling in found)
    others = len(found) - seeds
    parts = [f"{others} in a setting"] * bool(others) + [f"{seeds} in the seed"] * bool(seeds)
    return ", ".join(parts)
