"""Finds out the headlines of all runs in the background, from the start of the server: cheapest first, several at once.

The work is done by processes at low priority, so that pages stay quick, and kept on disk for the next server. Pages
ask what is known; nothing here waits for a run.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.limits import stamp
from ratioscope.analysis.runs.store import Listed, discover
from ratioscope.dashboard.watching.headlines import Headline, found, read_headline
from ratioscope.dashboard.watching.worker import by_processes
from ratioscope.errors import RatioscopeError
from ratioscope.storage.places import scan

# Seconds: a live run is not read again before its headline is so old, and so many times what reading it took; after
# which a run that could not be read is tried again; between two looks for new runs, at least.
_LIVE_REST, _LIVE_TIMES, _PROBLEM_REST, _PAUSE = 8.0, 6.0, 60.0, 4.0
# A process takes a second to start: fewer runs than this are read by the thread itself.
_FEW = 3
_MOST_PROCESSES = 4


@dataclass(frozen=True)
class _Known:
    news: str
    headline: Headline | None
    """None: not on disk, and not worked out so far."""
    when: float
    took: float = 0.0
    """Seconds, to work it out."""

    @property
    def old(self) -> bool:
        """Whether it may be worked out again, of a live run."""
        return time.monotonic() - self.when > max(_LIVE_REST, _LIVE_TIMES * self.took)

    @property
    def failed(self) -> bool:
        """Whether it could not be worked out, and what was in the way may be gone."""
        return bool(self.headline and self.headline.problem) and time.monotonic() - self.when > _PROBLEM_REST


class Reader:
    """The headlines that this server knows, and who finds out more; shared by all sessions.

    Args:
        processes: how many work at once; 0: the thread does it alone.
    """

    def __init__(self, processes: int = 0) -> None:
        self.processes = processes
        self.first: frozenset[Path] = frozenset()
        """Folders of runs that are read before all others."""
        self.version = 0
        """Grows with every headline that is new."""
        self._known: dict[Path, _Known] = {}
        self._waiting: deque[Path] = deque()
        """Folders of runs that are to be read, in their order."""
        self._alarms: dict[Path, int] = {}
        self._lock, self._idle = Lock(), Event()
        self._idle.set()

    def follow(self, places: Callable[[], Sequence[Path]]) -> None:
        """Read what lies in these folders, now and whenever something is new, for as long as the server lives."""
        Thread(target=self._follow, args=(places,), name="runs", daemon=True).start()

    def get(self, run: Listed) -> Headline | None:
        """The headline as far as it is known; of a live run perhaps a moment old. None while nothing is known."""
        if run.problem or _not_begun(run):
            return Headline(problem=run.problem)
        known = self._known.get(run.folder)
        return known.headline if known else None

    def of(self, folder: Path) -> Headline | None:
        """The headline of the run in a folder, if it is known."""
        known = self._known.get(folder)
        return known.headline if known else None

    def alarm(self, folder: Path) -> int | None:
        """The last step on disk when the run in this folder was found critical; only of one that was live then."""
        return self._alarms.get(folder)

    def sound(self, folder: Path, step: int) -> None:
        """Note that a live run was found critical at this step; the first time counts."""
        self._alarms.setdefault(folder, step)

    def ask(self, runs: Sequence[Listed], *, at_once: bool = False) -> int:
        """Have these read; returns how many are still to be read.

        Args:
            at_once: before all others that wait: somebody looks at a page that shows them.
        """
        with self._lock:
            wanted = list(self._wanted(runs))
            if wanted and self._idle.is_set():
                self._idle.clear()
                Thread(target=self._read, args=(wanted,), name="headlines", daemon=True).start()
            elif at_once:
                asked = {run.folder for run, _ in wanted}
                self._waiting = deque(sorted(self._waiting, key=lambda folder: folder not in asked))
        return len(wanted)

    def wait(self, seconds: float) -> None:
        """Give the thread a moment: what is on disk or small is there at once."""
        self._idle.wait(seconds)

    def _follow(self, places: Callable[[], Sequence[Path]]) -> None:
        while True:
            begun = time.monotonic()
            with suppress(OSError, RatioscopeError):
                self.ask(discover(places()))
            time.sleep(max(_PAUSE, 10 * (time.monotonic() - begun)))

    def _wanted(self, runs: Sequence[Listed]) -> Iterator[tuple[Listed, str]]:
        limits: dict[Path, str] = {}  # of runs that lie side by side, looked for once
        for run in runs:
            if run.problem or _not_begun(run):
                continue
            beside = run.folder.parent
            if beside not in limits:
                limits[beside] = _limits(beside)
            known, news = self._known.get(run.folder), f"{_news(run)} {limits[beside]}"
            if (
                known is None
                or known.headline is None
                or known.failed
                or (known.news != news and (not _is_live(run) or known.old))
            ):
                yield run, news

    def _read(self, wanted: list[tuple[Listed, str]]) -> None:
        try:
            left = [(run, news) for run, news in wanted if not self._note(run, news, _kept(run.folder))]
            left.sort(
                key=lambda each: (each[0].folder not in self.first, not _is_live(each[0]), _bytes(each[0].folder))
            )
            of = {str(run.folder): (run, news) for run, news in left}
            begun = time.monotonic()
            with self._lock:
                self._waiting = deque(run.folder for run, _ in left)
            for folder, worked_out in self._work_out(len(left)):
                if not (worked_out.problem and _is_gone(folder)):  # it may come back, as a link does
                    self._note(*of[str(folder)], worked_out, time.monotonic() - begun)
                begun = time.monotonic()
        finally:
            self._idle.set()

    def _work_out(self, number: int) -> Iterator[tuple[Path, Headline]]:
        if not self.processes or number < _FEW:
            return ((folder, found(folder)) for folder in iter(self._take, None))
        return by_processes(self._take, number, self.processes)

    def _take(self) -> Path | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _note(self, run: Listed, news: str, known: Headline | None, took: float = 0.0) -> bool:
        """Keep what was found; whether that is a headline."""
        if known is None and run.folder in self._known:
            return False
        before = self._known.get(run.folder)
        self._known[run.folder] = _Known(news, known, time.monotonic(), took)
        self.version += before is None or before.headline != known
        if known and known.severity == Severity.CRITICAL and _is_live(run):
            self.sound(run.folder, known.last_step)
        return known is not None


@cache
def server_reader() -> Reader:
    """The reader of this process."""
    return Reader()


def processes() -> int:
    """How many may read at once: all cores, at a priority that leaves them to pages."""
    return min(_MOST_PROCESSES, os.cpu_count() or 1)


def _kept(folder: Path) -> Headline | None:
    with suppress(Exception):  # said when it is worked out
        return read_headline(folder, compute=False)
    return None


def _is_gone(folder: Path) -> bool:
    with suppress(OSError, RatioscopeError):  # a storage that is away has not lost it
        return not folder.exists()
    return False


def _bytes(folder: Path) -> int:
    """What reading a run costs, roughly."""
    with suppress(OSError):
        return sum(child.size for child in scan(folder / "tokens", sizes=True))
    return 0


def _is_live(run: Listed) -> bool:
    return run.status == "running"


def _not_begun(run: Listed) -> bool:
    """No step, of a run that may still write one; of one that has ended this is a finding."""
    return not run.steps and _is_live(run)


def _limits(folder: Path) -> str:
    with suppress(OSError):
        return stamp(folder)
    return ""


def _news(run: Listed) -> str:
    """Changes whenever the headline may; costs no look at the disk."""
    manifest = run.manifest
    return f"{run.steps} {manifest.run_id} {manifest.created} {run.status}" if manifest else ""
