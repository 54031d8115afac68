"""Stops a training run when the diagnosis of what it has recorded so far finds something critical.

    guard = ratioscope.stop_on_critical(recorder, every=20)
    for step in range(updates):
        ...
        recorder.record_step(step, ...)
        if guard.step():
            break
    guard.close()

The diagnosis is another process (`ratioscope diagnose`, which needs ratioscope[dashboard]) at low priority and without
a GPU, one at a time; so long as it runs, and for a multiple of that time afterwards, no other one is started. It sees
what is on disk. It cannot fail the training: what goes wrong with it is said once, on stderr.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, Protocol

from ratioscope.errors import RatioscopeError

# Findings about the log: they say that the training cannot be judged, which is no reason to end it.
OF_THE_LOG = frozenset({"nothing_to_judge", "log_broken"})
_MOST_SECONDS = 600.0


class Recorder(Protocol):
    """What writes a run into a folder."""

    @property
    def folder(self) -> Path:
        """Of the run."""


class StopOnCritical:
    """See `stop_on_critical`."""

    def __init__(
        self, folder: Path, every: int, report: Path, share: float, rules: Collection[str] | None = None
    ) -> None:
        self.stop = False
        """Whether a critical finding was made; it stays so."""
        self.sentence = ""
        """That finding, with what to do."""
        self.finding: dict[str, Any] = {}
        """As `ratioscope diagnose --json` has it."""
        self.report = report
        """The post-mortem report, which is there once `close` has returned."""
        self.checks, self.seconds = 0, 0.0
        """Diagnoses that were made, and how long other processes have worked on them."""
        self._folder, self._every, self._share, self._rules = folder, every, share, rules
        self._steps, self._due = 0, 0.0
        self._begun = time.monotonic()
        self._check: _Process | None = None
        self._report: _Process | None = None
        self._complained = False

    def step(self) -> bool:
        """Call it after each update; it does not wait for anything. Whether to stop."""
        self._steps += 1
        self._look()
        if not self.stop and not self._check and self._steps >= self._every and time.monotonic() >= self._due:
            self._steps = 0
            self._check = self._start("diagnose", str(self._folder), "--json", "--quiet")
        return self.stop

    def close(self, seconds: float = 120.0) -> None:
        """Wait for a diagnosis that is under way, then for the report, and say what all of it has cost.

        Args:
            seconds: no longer than this for each of them.
        """
        if self._check:
            self._check.wait(seconds)
            self._look()
            self._drop()
        if self._report and not self._report.wait(seconds):
            self._say(f"the post-mortem is still being written to {self.report}.")
        elif self._report and self._report.code:
            self._complain(self._report)
        self._report = None
        if self.checks:
            self._say(self.cost)
            self.checks = 0

    @property
    def cost(self) -> str:
        """In one sentence."""
        share = self.seconds / max(time.monotonic() - self._begun, 1e-9)
        many = f"{self.checks} diagnos{'es' if self.checks != 1 else 'is'}"
        return f"{many} took {self.seconds:.1f} s of other processes, {share:.1%} of the time since the start."

    def callback(self) -> Any:
        """A `transformers.TrainerCallback`, for TRL as well: `step` after each update, and `close` at the end.

        Of several ranks, which all need it, the main one diagnoses, and all stop at the same update.
        """
        from ratioscope.adapters.stopping import StopCallback

        return StopCallback(self)

    def _look(self) -> None:
        """Take the result of a diagnosis that has ended."""
        check = self._check
        if check is None:
            return
        if not check.done:
            if check.seconds > _MOST_SECONDS:
                check.kill()
                self._complain(check)
                self._drop()
            return
        self.checks, self.seconds, self._check = self.checks + 1, self.seconds + check.seconds, None
        self._due = time.monotonic() + check.seconds * (1 / self._share - 1)
        try:
            findings = json.loads(check.output)["findings"]
            grave = [each for each in findings if each["severity"] == "critical" and self._stops(each["rule"])]
            if grave:
                self._stop(grave[0])
        except (ValueError, TypeError, KeyError):
            self._complain(check)

    def _stops(self, rule: str) -> bool:
        return rule in self._rules if self._rules is not None else rule not in OF_THE_LOG

    def _stop(self, finding: dict[str, Any]) -> None:
        self.finding, self.sentence = finding, _plain(f"{finding['sentence']} {finding['do']}")
        self.stop = True
        self._say(f"critical: {self.sentence} The training is asked to stop; the post-mortem will be {self.report}.")
        self._report = self._start("report", str(self._folder), "--post-mortem", "-o", str(self.report), "--quiet")

    def _start(self, *words: str) -> "_Process | None":
        try:
            return _Process(words)
        except OSError as error:
            self._say(f"no diagnosis is made: {error}.")
            self._due = float("inf")
            return None

    def _drop(self) -> None:
        if self._check:
            self._check.kill()
            self._check, self._due = None, time.monotonic() + _MOST_SECONDS

    def _complain(self, process: "_Process") -> None:
        if not self._complained:
            said = _plain(process.errors.strip().rpartition("\n")[2]) or f"exit code {process.code}"
            self._say(f"a diagnosis failed ({said}); the training goes on.")
        self._complained = True

    def _say(self, sentence: str) -> None:
        print(f"ratioscope: {sentence}", file=sys.stderr, flush=True)


def stop_on_critical(
    run: Recorder | str | Path,
    *,
    every: int = 20,
    report: str | Path | None = None,
    share: float = 0.05,
    rules: Collection[str] | None = None,
) -> StopOnCritical:
    """A guard that says when to stop, and writes a report around the last stable step then.

    Args:
        run: what records the run, or the run's folder.
        every: so many updates lie between two diagnoses at least.
        report: .html, .pdf, .md or .json, not in the run; default: <folder>-post-mortem.html, beside it.
        share: of the time of a long run that diagnoses take: after one of 5 s the next begins 95 s later at 0.05.
        rules: the only findings that stop it, by their names (docs/metrics.md); None: all about the training.

    Raises:
        RatioscopeError: a value is out of its range, or the report cannot be written there.
    """
    folder = Path(run) if isinstance(run, str | Path) else run.folder
    if every < 1 or not 0 < share <= 1:
        raise RatioscopeError(f"stop_on_critical: every={every} must be from 1, share={share:g} above 0 and up to 1.")
    place = folder.with_name(f"{folder.resolve().name}-post-mortem.html") if report is None else Path(report)
    if place.suffix.lower() not in (".html", ".pdf", ".md", ".json"):
        raise RatioscopeError(f"{place}: the name of a report must end in .html, .pdf, .md or .json.")
    if report is not None and not place.absolute().parent.is_dir():
        raise RatioscopeError(f"{place.parent}: there is no such folder.")
    if folder.resolve() in place.resolve().parents:
        raise RatioscopeError(f"{place}: lies inside the run, and runs are never written to; choose another place.")
    return StopOnCritical(folder, every, place, share, rules)


class _Process:
    """A command of ratioscope in another process, which lives on when this one ends."""

    def __init__(self, words: tuple[str, ...]) -> None:
        politely = [nice, "-n", "10"] if (nice := shutil.which("nice")) else []
        quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  # a full pipe would block
        self._process = subprocess.Popen(
            [*politely, sys.executable, "-P", "-m", "ratioscope", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=os.environ | quiet,
            start_new_session=True,  # Ctrl-C is for the training
        )
        self._begun, self._ended = time.monotonic(), 0.0

    @property
    def done(self) -> bool:
        if self._process.poll() is None:
            return False
        self._ended = self._ended or time.monotonic()
        return True

    @property
    def seconds(self) -> float:
        return (self._ended or time.monotonic()) - self._begun

    @property
    def code(self) -> int | None:
        return self._process.returncode

    @property
    def output(self) -> str:
        return _read(self._out)

    @property
    def errors(self) -> str:
        return _read(self._err)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return self.done

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _plain(text: str) -> str:
    """One line without control characters: a finding may quote the log."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))
