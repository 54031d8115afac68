"""What the list shows of a run besides its manifest: tokens, reward, worst finding.

Finding out may take seconds a run, so it happens in one thread of the server, and only while somebody looks at the
list. What was found is kept on disk: the next server reads a few hundred bytes a run and opens
no table.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.limits import limits_of
from ratioscope.analysis.runs.store import Listed, signature
from ratioscope.cache import entry_of
from ratioscope.dashboard.figures.base import reduce
from ratioscope.errors import RatioscopeError

REWARD_POINTS = 40

# Seconds: the thread goes on for so long after it was last asked; a live run is not read again before it is so old.
_ATTENTION, _LIVE_REST = 2.5, 30.0


@dataclass(frozen=True)
class Headline:
    """What a line of the list shows; a run without steps has an empty one."""

    tokens: int = 0
    reward: tuple[float, ...] = ()
    """Mean reward by step, at most REWARD_POINTS of them, the extremes kept."""
    last_reward: float | None = None
    """Mean of the last five steps that have one."""
    severity: int = 0
    """Of the worst finding; 0: the rules found nothing."""
    rule: str = ""
    sentence: str = ""
    """That finding in words, Markdown."""
    problem: str = ""
    """Why the run's tables cannot be read; empty when they can."""

    @property
    def worst(self) -> tuple[Severity | None, str]:
        return (Severity(self.severity) if self.severity else None, self.rule)


def headline(folder: Path, *, compute: bool = True) -> Headline | None:
    """The headline of a run, from disk where it is known there; None when it is not and may not be computed."""
    try:
        limits = limits_of(folder)
        kept = entry_of("headlines", __name__, str(folder.resolve()), signature(folder), repr(limits))
        contents = kept.get()
        if contents is not None:
            fields = json.loads(contents)
            return Headline(**fields | {"reward": tuple(fields["reward"])})
        if not compute:
            return None
        opened = open_folder(folder, limits=limits)
    except RatioscopeError as error:
        return Headline(problem=str(error))
    findings, values = opened.findings, opened.summary.values
    reward = values["reward"].replace([np.inf, -np.inf], np.nan).dropna()
    found = Headline(
        tokens=int(values["n_tokens"].sum()),
        reward=tuple(float(f"{value:.4g}") for value in reduce(reward, REWARD_POINTS)),
        last_reward=float(reward.tail(5).mean()) if len(reward) else None,
        severity=int(findings[0].severity) if findings else 0,
        rule=findings[0].rule if findings else "",
        sentence=findings[0].sentence if findings else "",
    )
    if opened.run.status != "running":
        kept.put(json.dumps(asdict(found)).encode())
    return found


@dataclass(frozen=True)
class _Known:
    news: str
    headline: Headline | None
    """None: not on disk, and not asked for so far."""
    when: float


class Reader:
    """The headlines that this server knows, and the thread that finds out more; shared by all sessions."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headlines")
        self._reading: Future[None] | None = None
        self._until = 0.0
        self.version = 0
        """Grows with every headline that is new."""

    def get(self, run: Listed) -> Headline | None:
        """The headline as far as it is known; of a live run perhaps a moment old. None while nothing is known."""
        if run.problem or _not_begun(run):
            return Headline(problem=run.problem)
        known = self._known.get(run.folder)
        return known.headline if known else None

    def ask(self, runs: Sequence[Listed], *, compute: int) -> int:
        """Have these read in order; returns how many are still to be read.

        Args:
            compute: so many of the first are computed where they are not on disk.
        """
        wanted = list(self._wanted(runs, compute))
        self._until = time.monotonic() + _ATTENTION
        if wanted and (self._reading is None or self._reading.done()):
            self._reading = self._thread.submit(self._read, wanted)
        return len(wanted)

    def wait(self, seconds: float) -> None:
        """Give the thread a moment: what is on disk or small is there at once."""
        if self._reading is not None:
            wait([self._reading], timeout=seconds)

    def _wanted(self, runs: Sequence[Listed], compute: int) -> Iterator[tuple[Listed, str, bool]]:
        now = time.monotonic()
        for place, run in enumerate(runs):
            if run.problem or _not_begun(run):
                continue
            known, news, may_compute = self._known.get(run.folder), _news(run), place < compute
            if known is None:
                yield run, news, may_compute
            elif known.news != news:
                if run.manifest is None or run.manifest.status != "running" or now - known.when > _LIVE_REST:
                    yield run, news, may_compute
            elif known.headline is None and may_compute:
                yield run, news, True

    def _read(self, wanted: list[tuple[Listed, str, bool]]) -> None:
        for run, news, may_compute in wanted:
            try:
                found = headline(run.folder, compute=may_compute)
            except (
                Exception
            ) as error:  # whatever is wrong with one run, the others are read, and it is not read for ever
                found = Headline(problem=f"{run.folder}: cannot be read ({type(error).__name__}).")
            before = self._known.get(run.folder)
            if found is None and before is not None:
                found = before.headline
            self._known[run.folder] = _Known(news, found, time.monotonic())
            self.version += 1
            if time.monotonic() > self._until:
                return


def _not_begun(run: Listed) -> bool:
    """No step, of a run that may still write one; of one that has ended this is a finding."""
    return not run.steps and run.manifest is not None and run.manifest.live_status() == "running"


def _news(run: Listed) -> str:
    """Changes whenever the headline may; costs no look at the disk."""
    manifest = run.manifest
    return f"{run.steps} {manifest.run_id} {manifest.created} {manifest.live_status()}" if manifest else ""
