"""What the pages share: the roots, the runs, the chosen ones, the step range; the URL is the view."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple, Self
from weakref import ref

import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.findings.limits import Limits, limits_of
from ratioscope.analysis.runs.store import Listed, discover, run_signature
from ratioscope.analysis.runs.window import Window, window_of
from ratioscope.analysis.summary.summary import Summariser
from ratioscope.dashboard import theme
from ratioscope.dashboard.load import NEVER, both_clocks, server_load
from ratioscope.dashboard.roots import shelves
from ratioscope.dashboard.session import session
from ratioscope.dashboard.theme import Mode
from ratioscope.errors import RatioscopeError

# Seconds: a list of runs is listed again when it is older.
_LISTED = 3.0
# Seconds: a state of a live run that is so old is good enough for who has seen an older one, or none.
_FRESH = 10.0


class _Lists:
    """All runs below some folders, listed again when the list is a few seconds old.

    A list of thousands takes a second or more: it is kept for ten times what it took, so that few pages wait for one.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: list[Listed] = []
        self._places: tuple[str, ...] = ()
        self._until = 0.0

    def __call__(self, places: tuple[str, ...]) -> list[Listed]:
        with self._lock:
            if self._places != places or time.monotonic() > self._until:
                begun = time.monotonic()
                self._runs, self._places = discover(places), places
                self._until = time.monotonic() + max(_LISTED, 10 * (time.monotonic() - begun))
            return self._runs

    def clear(self) -> None:
        """Have the next one list again."""
        self._until = 0.0


listed_runs = _Lists()


def runs() -> dict[str, Listed]:
    """Runs by id. An id from the URL is looked up here and never joined into a path."""
    return {run.run_id: run for run in listed_runs(tuple(map(str, shelves())))}


class DrawnState(NamedTuple):
    """Which state of a run a page shows. What goes on while the page stays open holds this, and not the state: of a
    live run each viewer would otherwise keep one of tens of megabytes."""

    run_id: str
    folder: Path
    limits: Limits
    signature: str
    last_step: int
    logged: datetime | None
    """When its last step was; None: the log has no times."""

    @classmethod
    def of(cls, opened: Opened) -> Self:
        summary, run = opened.summary, opened.run
        times = summary.steps.get("wall_time")
        logged = times.iloc[-1].to_pydatetime().astimezone(UTC) if times is not None and len(times) else None
        return cls(opened.run_id, run.folder, opened.limits, run.signature, summary.last_step, logged)


def lent(opened: Opened) -> Callable[[], Opened]:
    """What a part of a page that is drawn again by itself takes the page's state from, in place of keeping it; where
    another state has come since, the whole page is drawn again, with that one."""
    drawn = ref(opened)

    def still() -> Opened:
        found = drawn()
        if found is None:
            st.rerun()
        return found

    return still


class _Shared:
    """A run as all sessions see it. Of one that is written, each would otherwise ask for a state of its own, and with
    some viewers the server would do nothing but summarise and judge."""

    def __init__(self, run_id: str, folder: str, limits: Limits) -> None:
        self._what = run_id, folder, limits
        self._summariser, self._lock = Summariser(), Lock()
        self._opened: Opened | None = None
        self._when = NEVER

    def get(self, seen: str) -> Opened:
        """The present state; of a live run the latest that was read, to who has not seen it, while it is fresh, and to
        everybody while the next one is being read.

        Args:
            seen: the signature of the state that the session had before.
        """
        before = self._opened
        if before is not None and before.run.status == "running":
            fresh = both_clocks().clock - self._when.clock < _FRESH
            if (fresh and before.run.signature != seen) or self._lock.locked():
                return before
        with self._lock:
            known = self._opened
            # What was read while this one waited is new enough for it.
            if known is None or (known is before and self._is_due(known)):
                known = self._read()
            return known

    def has_news(self, shown: str) -> bool:
        """Whether who sees the state of this signature could have another one. Where there is one to be read, it is
        read beside, which takes seconds: a page that is followed does not wait for it."""
        known = self._opened
        if known is None or known.run.signature != shown:
            return True
        if self._is_due(known) and self._lock.acquire(blocking=False):
            Thread(target=self._read_beside, name="reading", daemon=True).start()
        return False

    def _is_due(self, known: Opened) -> bool:
        """Whether there is a later state to be read, at everybody's pace."""
        return server_load.has_spare(self._when) and run_signature(known.run.folder) != known.run.signature

    def _read(self) -> Opened:
        run_id, folder, limits = self._what
        begun = both_clocks()
        self._opened = open_folder(folder, run_id=run_id, limits=limits, summariser=self._summariser)
        self._when = begun
        return self._opened

    def _read_beside(self) -> None:
        """Read with the lock that was taken for it; why it cannot be read is said on the page, which reads again."""
        before = self._opened
        try:
            with suppress(RatioscopeError):
                self._read()
        finally:
            if self._opened is before:
                self._opened = None
            self._lock.release()


@st.cache_resource(max_entries=60, show_spinner=False)
def _shared(run_id: str, folder: str, limits: Limits) -> _Shared:
    return _Shared(run_id, folder, limits)


def open_listed(listed: Listed) -> Opened:
    """The run in its present state, or of a live one in one of the last seconds; computed once for all sessions.

    Raises:
        RatioscopeError: it cannot be read, or its ratioscope.toml cannot be used.
    """
    if listed.problem:
        raise RatioscopeError(listed.problem)
    folder, seen = str(listed.folder), session().seen
    opened = _shared(listed.run_id, folder, limits_of(listed.folder)).get(seen.get(folder, ""))
    seen[folder] = opened.run.signature
    return opened


def has_news(drawn: DrawnState) -> bool:
    """Whether `open_listed` would give another state than this one."""
    return _shared(drawn.run_id, str(drawn.folder), drawn.limits).has_news(drawn.signature)


def chosen_ids() -> list[str]:
    """The runs in the URL that exist, in its order."""
    known = runs()
    return [run_id for run_id in st.query_params.get_all("run") if run_id in known]


def choose(run_ids: list[str]) -> None:
    """Put runs into the URL; the step range of the previous run is dropped."""
    st.query_params.update({"run": run_ids, **_NO_RANGE})


def url_number(key: str) -> int | None:
    """A whole number from the URL; None where it is not one."""
    text = st.query_params.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 12 else None


def step_range() -> tuple[int | None, int | None]:
    """The brushed step range of the URL, or (None, None)."""
    try:
        first, last = int(st.query_params["from"]), int(st.query_params["to"])
    except (KeyError, ValueError):
        return None, None
    return (first, last) if 0 <= first <= last else (None, None)


def window(opened: Opened, tokens: int = 500_000) -> Window:
    """The steps that a page looks at token by token: the brushed ones, else the latest that hold about so many tokens.

    Pages say which steps these are; a brush over all of them asks for all.
    """
    return window_of(opened.run, opened.summary.values["n_tokens"], step_range(), tokens)


# At once, because each change of the URL is an entry in the browser's history.
_NO_RANGE: dict[str, list[str]] = {"from": [], "to": []}


def set_range(first: int, last: int) -> None:
    st.query_params.update({"from": str(first), "to": str(last)})


def clear_range() -> None:
    """Show all steps; the way back to the chosen ones is `left_range`."""
    first, last = step_range()
    if first is not None and last is not None:
        session().left_range = st.query_params.get_all("run"), (first, last)
    st.query_params.update(_NO_RANGE)


def left_range() -> tuple[int, int] | None:
    """The steps of these runs that were chosen before all were asked for; None: of others, or none."""
    left = session().left_range
    return left[1] if left and left[0] == st.query_params.get_all("run") else None


SMOOTHING = (1, 5, 10, 20, 50)


def lines() -> tuple[int, bool]:
    """How lines over the steps are drawn: the running mean's width in steps, and whether the axis is logarithmic."""
    widths = {str(width): width for width in SMOOTHING}
    return widths.get(st.query_params.get("mean", ""), 1), st.query_params.get("logy") == "true"


def open_step(step: int, metric: str = "") -> None:
    """Ask for what made a metric's number in a step; the page shows it (`step_dialog`).

    Args:
        metric: of the catalogue, that of the clicked curve; "": none in particular.
    """
    session().clicked_step, session().clicked_metric = step, metric


def mode() -> Mode:
    """Light or dark, as the browser shows it."""
    return theme.MODES.get(st.context.theme.type or "light", theme.LIGHT)
