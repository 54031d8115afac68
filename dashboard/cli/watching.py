"""`ratioscope watch`: the rules of `diagnose` on live runs, each finding said once, until no run is live any more."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.analysis.findings.limits import Limits
from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import (
    Quiet,
    RefuseRunLimits,
    SeverityName,
    Thresholds,
    app,
    check_is_folder,
    examples,
)
from ratioscope.dashboard.terminal import complain, working
from ratioscope.ending import PROBLEMS_FOUND, USAGE_ERROR
from ratioscope.errors import RatioscopeError
from ratioscope.storage.places import place

if TYPE_CHECKING:
    from ratioscope.analysis.findings.finding import Finding, Severity
    from ratioscope.analysis.runs.store import Listed
    from ratioscope.analysis.summary.summary import Summariser
    from ratioscope.dashboard.watching.alerts import Listener

# How often what did not arrive is tried again once every run has ended.
_LAST_TRIES = 3


@app.command(
    epilog=examples(
        "watch sample_runs/sync_interval20-reinforce-lr0.0003-seed0",
        "watch runs --every 30 --file alerts.jsonl",
        "watch runs --severity critical --webhook https://chat.example.org/hooks/training",
    )
)
def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_ROOT",
            help="Folders or URLs of runs or with runs in them; runs that appear there later are watched, too.",
            parser=place,
            autocompletion=completion.folders,
            show_default=False,
        ),
    ],
    severity: Annotated[SeverityName, typer.Option(help="Lowest severity that is reported.")] = "warning",
    fail_on: Annotated[
        SeverityName, typer.Option(help="Exit code 1 when a finding of this severity or worse occurred.")
    ] = "warning",
    file: Annotated[Path | None, typer.Option(help="Append each alert to this file, one JSON object per line.")] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="RATIOSCOPE_WEBHOOK", help="POST each alert as JSON to this http or https URL."
        ),
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Time between two checks.", min=0.05)] = 10.0,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait this long for a run that is live.", min=0.0)
    ] = 0.0,
    thresholds: Thresholds = None,
    refuse_run_limits: RefuseRunLimits = False,
    quiet: Quiet = False,
) -> None:
    """Report findings of live runs when they appear.

    It ends by itself when no run is live any more.

    A finding is reported once for a run, and again only when its severity rises, also over restarts of this command. A
    run that is not live is judged once. A log to be used with care is named on stderr and counts as a warning. An alert
    in a file or at a webhook is an object: text (all in one line), time, run, rule, severity, sentence, metric, limit,
    steps (first and last), why, do, source, page, lights (state by name).
    """
    from ratioscope.analysis.findings.finding import Severity
    from ratioscope.analysis.findings.limits import read_limits
    from ratioscope.dashboard.watching.alerts import LinesFile, Listener, Terminal, Webhook

    for folder in runs:
        if not wait:  # else it may be made by the run that is waited for
            check_is_folder(folder)
    listeners: list[Listener] = [Terminal()]
    if file:
        listeners.append(LinesFile(file))
    if webhook:
        listeners.append(Webhook(webhook))
    limits = read_limits(thresholds) if thresholds else None
    watcher = Watcher(runs, listeners, Severity[severity.upper()], limits, refuse_run_limits=refuse_run_limits)
    last_tries, until = _LAST_TRIES, time.monotonic() + wait
    with working("Reading", quiet):
        watcher.judge()
    known = watcher.known(listeners[0])
    if known and not quiet:
        reported = f"{known} finding{'s' * (known > 1)} of these runs"
        complain(f"An earlier watch has reported {reported}; ratioscope diagnose RUN prints them.")
    while True:
        watcher.deliver()
        if watcher.live:
            until = 0.0  # the run that was waited for is there
        elif watcher.unfinished and last_tries:
            last_tries -= 1
        elif time.monotonic() >= until:
            break
        with working(f"Watching {len(watcher.runs)} run{'s' * (len(watcher.runs) != 1)}, {watcher.live} live", quiet):
            time.sleep(every)
            watcher.judge()
    if not watcher.runs:
        raise RatioscopeError(f"{runs[0]}: there is no run in this folder; --wait SECONDS waits for one.")
    if watcher.undelivered:
        complain("Some alerts were not delivered; the next watch on these runs sends them.")
    if watcher.worst and watcher.worst >= Severity[fail_on.upper()]:
        raise typer.Exit(PROBLEMS_FOUND)
    if watcher.unjudged:  # a gate that could not run does not pass
        raise typer.Exit(USAGE_ERROR)


@dataclass
class Watched:
    """One run between two looks."""

    live: bool = True
    state: object = None
    """What was judged: the run's signature and its limits."""
    key: str = ""
    alerts: list[tuple["Finding", Mapping[str, object]]] = field(default_factory=list)
    """The findings at the last look, and what an alert says of each."""
    summariser: "Summariser | None" = None
    problem: str = ""
    remarks: Sequence[str] = ()
    """What is to be said of it beside its findings."""


class Watcher:
    """Looks at runs again and again; only those that have news are read.

    Args:
        places: folders of runs, or with runs in them.
        listeners: where alerts go.
        severity: the lowest severity that is reported to them.
        limits: for all runs; without them those of ratioscope.toml beside or above each run.
        refuse_run_limits: a run with a ratioscope.toml in its own folder is not judged.
    """

    def __init__(
        self,
        places: Sequence[Path],
        listeners: "Sequence[Listener]",
        severity: "Severity",
        limits: Limits | None = None,
        *,
        refuse_run_limits: bool = False,
    ) -> None:
        from ratioscope.dashboard.watching.alerts import Memory

        self.runs: dict[Path, Watched] = {}
        self.worst: Severity | None = None
        self.undelivered = False
        self._places, self._listeners, self._severity, self._limits = places, listeners, severity, limits
        self._refuse_run_limits = refuse_run_limits
        self._memory: Memory = Memory()
        self._problems: list[str] = []
        self._said: set[str] = set()
        self._first_look = True

    @property
    def live(self) -> int:
        """How many runs are live; one whose writer is silent may come back and counts."""
        return sum(watched.live for watched in self.runs.values())

    @property
    def unjudged(self) -> bool:
        """Whether a run could not be read when it was last looked at."""
        return any(watched.problem for watched in self.runs.values())

    @property
    def unfinished(self) -> bool:
        """Whether another look might bring what this one could not."""
        return self.undelivered or self.unjudged

    def judge(self) -> None:
        """Read the runs that have news.

        Raises:
            RatioscopeError: at the first look, a folder that was named is a run that cannot be read, or the thresholds
                of a run cannot be; later such things are kept for `deliver` to say.
        """
        from ratioscope.analysis.runs.store import discover

        listed = discover(self._places)
        self._problems = []
        for gone in self.runs.keys() - {entry.folder for entry in listed}:
            del self.runs[gone]
        for entry in listed:
            if entry.problem:
                if self._first_look and entry.folder in self._places:
                    raise RatioscopeError(entry.problem)
                self._problems.append(f"{entry.problem} The run is left out.")
                self.runs[entry.folder] = Watched(live=False, problem=entry.problem)
            else:
                self._look_at(entry, self.runs.setdefault(entry.folder, Watched()))
        self._first_look = False

    def _look_at(self, entry: "Listed", watched: Watched) -> None:
        from ratioscope.analysis.findings.limits import limits_of, refuse_own
        from ratioscope.analysis.runs.store import run_signature

        watched.live = entry.status in ("running", "stalled")
        try:
            # Before anything is read: what is written in between is news at the next look.
            state_of_files = run_signature(entry.folder)
            if self._refuse_run_limits and self._limits is None:
                refuse_own(entry.folder)
            limits = limits_of(entry.folder) if self._limits is None else self._limits
            if watched.state != (state_of_files, limits):
                self._read(entry.folder, watched, limits)
                watched.state = (state_of_files, limits)
            watched.problem = ""
        except RatioscopeError as error:
            if self._first_look:
                raise
            watched.problem = str(error)
            self._problems.append(str(error))
        self._problems += watched.remarks

    def _read(self, folder: Path, watched: Watched, limits: Limits) -> None:
        from ratioscope.analysis.diagnosis.opened import open_folder
        from ratioscope.analysis.diagnosis.rule import RULES
        from ratioscope.analysis.findings.news import alert_json, run_key
        from ratioscope.analysis.linter.verdict import log_verdict
        from ratioscope.analysis.overview.lights import lights_of
        from ratioscope.analysis.summary.summary import Summariser

        summariser = watched.summariser or Summariser()
        opened = open_folder(folder, limits=limits, summariser=summariser)
        run, findings = opened.run, opened.findings
        said = list(run.problems)
        if self._limits is None and opened.moved_limits:
            said.append(f"{folder}: {opened.moved_limits}")
        if opened.problems:
            said.append(f"{folder}: {log_verdict(opened.remarks)}")
        watched.remarks = said
        watched.summariser = summariser if watched.live else None  # what it keeps is for the files that are to come
        watched.key = run_key(run)
        shown = lights_of(opened)
        states = {"lights": {light.name: light.state.word for light in shown}}
        watched.alerts = [(each, alert_json(run, each) | {"page": RULES[each.rule].page} | states) for each in findings]
        severities = [finding.severity for finding in findings]
        severities += [light.severity for light in shown]
        self.worst = max([*severities, self.worst] if self.worst else severities, default=None)

    def known(self, listener: "Listener") -> int:
        """How many of the findings were reported to this listener before; they are not repeated."""
        from ratioscope.analysis.findings.news import news

        pairs = [
            ([finding for finding, _ in run.alerts], self._memory.reported(listener, run.key))
            for run in self.runs.values()
        ]
        return sum(
            len(news(findings, {}, self._severity)) - len(news(findings, reported, self._severity))
            for findings, reported in pairs
        )

    def deliver(self) -> None:
        """Tell every listener what is news to it; what does not arrive is news again at the next look."""
        problems = list(self._problems)
        failed = [self._deliver_to(listener, problems) for listener in self._listeners]
        self.undelivered = any(failed)
        for problem in problems:
            if problem not in self._said:
                complain(problem)
        self._said = set(problems)

    def _deliver_to(self, listener: "Listener", problems: list[str]) -> bool:
        """Whether something was left undelivered."""
        from ratioscope.analysis.findings.news import news, reported_after
        from ratioscope.dashboard.watching.alerts import UndeliveredError

        for watched in self.runs.values():
            reported = self._memory.reported(listener, watched.key)
            alerts = {finding.rule: alert for finding, alert in watched.alerts}
            for finding in news([finding for finding, _ in watched.alerts], reported, self._severity):
                try:
                    listener.deliver(alerts[finding.rule])
                except UndeliveredError as error:
                    problems.append(str(error))
                    return True  # the next alert would fail likewise
                reported = reported_after(reported, finding)
                self._memory.keep(listener, watched.key, reported)
        return False
