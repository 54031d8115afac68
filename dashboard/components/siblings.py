"""The runs that differ from the one in hand in one setting, or in the seed alone, with what became of them."""

from collections.abc import Mapping, Sequence
from math import inf

import streamlit as st

from ratioscope.analysis.compare.siblings import SEED, Sibling, short_settings, siblings
from ratioscope.analysis.overview.lights import LEARNING, NAMES, LightState
from ratioscope.analysis.overview.tried import Ended, tried
from ratioscope.analysis.runs.store import Listed
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.tile import ACROSS, small_multiple
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session
from ratioscope.dashboard.watching.headlines import Headline
from ratioscope.dashboard.watching.reader import server_reader

_MOST = 12
_COMPARE = ":material/stacked_line_chart:"
_GRACE, _PAUSE = 0.15, 2.0
"""Seconds that the page waits for their results, and until it looks again."""


class SiblingResults:
    """Those of a run that differ in a setting, with what the server knows of them.

    Attributes:
        changed: none where no run differs in one setting.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id, self._runs = run_id, state.runs()
        self.changed = [sibling for sibling in _of(run_id, self._runs) if sibling.what != SEED]
        self._asked = [self._runs[name] for name in (run_id, *(sibling.run_id for sibling in self.changed))]
        if self.changed:
            server_reader().ask(self._asked)
            server_reader().wait(_GRACE)

    def tried(self, cause: str) -> str:
        """What they show of the remedy of a cause, a sentence; "" while too little is read."""
        known = self._known()
        here, manifest = known.get(self.run_id), self._runs[self.run_id].manifest
        if not self.changed or here is None or here.level_end is None or manifest is None:
            return ""
        others = [
            (sibling, there, _end(headline))
            for sibling in self.changed
            if (headline := known.get(sibling.run_id)) and (there := self._runs[sibling.run_id].manifest)
            and _place(headline, here.level_metric) < inf
        ]  # fmt: skip
        return tried(cause, manifest, _end(here), others)

    def draw(self) -> None:
        """The best ones first: a tile each with its end and its course; nothing where there is none."""
        if not self.changed:
            return
        waiting = bool(server_reader().ask(self._asked))

        def row() -> None:
            left, known = server_reader().ask(self._asked), self._known()
            here = known.get(self.run_id, Headline())
            read = [sibling for sibling in self.changed if sibling.run_id in known]
            best = sorted(read, key=lambda sibling: _place(known[sibling.run_id], here.level_metric))[:ACROSS]
            self._head(_told(len(read), len(self.changed)))
            shown, names = [known[sibling.run_id] for sibling in best], short_settings(best)
            scale = _scale([here, *shown])
            with st.container(key="sibling-tiles"):
                for column, sibling, headline in zip(st.columns(ACROSS), best, shown, strict=False):
                    with column:
                        _tile(sibling, names[sibling.run_id], headline, here, scale)
            if waiting and not left:
                st.rerun()

        st.fragment(row, run_every=_PAUSE if waiting else None)()

    def _head(self, told: str) -> None:
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.caption(f"**One setting changed**{told}", width="content")
            every = {"run": [self.run_id, *(sibling.run_id for sibling in self.changed)]}
            st.page_link(session().pages["compare"], label="Compare", icon=_COMPARE, query_params=every)

    def _known(self) -> dict[str, Headline]:
        return {run.run_id: headline for run in self._asked if (headline := server_reader().get(run)) is not None}


def _end(headline: Headline) -> Ended:
    share = headline.level_metric in CATALOGUE and CATALOGUE[headline.level_metric].share
    return Ended(headline.level_end or 0.0, headline.level_noise, share)


def _place(headline: Headline, metric: str) -> float:
    """Before whom a run comes: the better its end is, in the metric of the run on the page; others are last."""
    if headline.level_end is None or metric not in ("", headline.level_metric):
        return inf
    return -headline.level_end


def _told(read: int, n: int) -> str:
    """The best are shown, of those that have been read."""
    if not read:
        return ": being read"
    return f"{f', {read} of {n} read so far' if read < n else ''} (grey: this run)"


def _scale(shown: Sequence[Headline]) -> tuple[float, float]:
    """The lowest and the highest value of all, from 0 where none is negative: one scale for a row."""
    values = [value for headline in shown for value in headline.level]
    return min([0.0, *values]), max([*values, 1e-12])


def _tile(sibling: Sibling, name: str, headline: Headline, here: Headline, scale: tuple[float, float]) -> None:
    with st.container(border=True, height="stretch", gap=None):
        overview, opened = session().pages["overview"], {"run": sibling.run_id}
        st.page_link(overview, label=escape(name), query_params=opened, help=escape(sibling.words))
        st.markdown(_result(headline) + (f" · {escape(sibling.algorithm)}" if sibling.algorithm else ""))
        if headline.level:
            beside = here.level if here.level_metric == headline.level_metric else ()
            steps = headline.last_step + 1, here.last_step + 1
            drawn = small_multiple(headline.level, beside, *scale, steps=steps, metric=headline.level_metric)
            st.image(drawn, width="stretch", alt="")


def _result(headline: Headline) -> str:
    """Its end, behind the sign of its first light."""
    if headline.level_end is None:
        return "no level"
    state = LightState[headline.lights[NAMES.index(LEARNING)][0]] if headline.lights else LightState.UNKNOWN
    return f":material/{state.icon}: **{escape(_end(headline).words)}**"


def sibling_runs(run_id: str, *, all_shown: bool = False) -> None:
    """All of them in a line each, to open on this page or to compare; nothing where there is none.

    Args:
        all_shown: whether `SiblingResults` are drawn on the page: nothing, too, where it has all of them.
    """
    found = _of(run_id, state.runs())
    if not found or (all_shown and len(found) <= ACROSS and all(sibling.what != SEED for sibling in found)):
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
