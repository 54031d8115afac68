"""What reads the runs of a server beside its pages: the order, the processes, what is kept, what is looked at again."""

import subprocess
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from ratioscope import Manifest, RunRecorder
from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.runs.store import discover
from ratioscope.dashboard.watching import headlines, worker
from ratioscope.dashboard.watching import reader as reading
from ratioscope.dashboard.watching.headlines import Headline, read_headline
from ratioscope.dashboard.watching.reader import Reader
from ratioscope.run_format.manifest import now
from tests.analysis.linter import credited
from tests.dashboard.conftest import make_steps
from tests.making.runs import write_run


@pytest.fixture
def fresh(root: Path) -> Path:
    write_run(root / "mine", make_steps(2), algorithm={"name": "grpo"})
    write_run(root / "other", make_steps(2))
    return root


def test_a_headline_is_kept_on_disk_until_the_run_changes(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_headline(fresh / "mine", compute=False) is None
    found = read_headline(fresh / "mine")
    monkeypatch.setattr(headlines, "open_folder", _refuse)
    assert found == read_headline(fresh / "mine", compute=False)
    (fresh / "ratioscope.toml").write_text("[thresholds]\nepsilon = 0.02\n")
    assert read_headline(fresh / "mine", compute=False) is None
    (fresh / "ratioscope.toml").write_text("[thresholds\n")
    broken = read_headline(fresh / "mine")
    assert broken is not None
    assert "cannot be read as TOML" in broken.problem


def test_a_cause_that_a_check_found_in_the_run_is_its_finding(root: Path) -> None:
    found = read_headline(credited.written(root / "run", credited.alone_and_centred))
    assert found is not None and found.severity == Severity.WARNING and found.rule == "single_responses_cancel"
    assert found.sentence == found.answer and "prompt group of its own" in found.sentence


def _refuse(folder: Path, **_: object) -> Opened:
    raise AssertionError("opened")


def test_a_run_that_cannot_be_read_keeps_the_others_from_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open_folder

    def odd(folder: Path, **options: Any) -> Opened:
        if folder.name == "mine":
            raise ValueError("a bug")
        return real(folder, **options)

    monkeypatch.setattr(headlines, "open_folder", odd)
    reader, listed = Reader(), discover([fresh])
    assert reader.ask(listed) == 2
    while reader.ask(listed):
        reader.wait(60)
    known = {run.run_id: reader.get(run) or Headline() for run in listed}
    assert "ValueError" in known["mine"].problem
    assert known["other"].tokens > 0


def test_a_run_that_goes_while_it_waits_and_comes_back_is_read(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute it was called unreadable, and a page that showed it did not look again."""
    elsewhere, begun, goes_on = fresh / "mine moved", Event(), Event()

    def found(folder: Path) -> Headline:
        begun.set()
        assert goes_on.wait(60)
        return headlines.found(folder)

    monkeypatch.setattr(reading, "found", found)
    reader, listed = Reader(), discover([fresh])
    (mine,) = (run for run in listed if run.run_id == "mine")
    assert reader.ask([mine]) == 1
    assert begun.wait(60)
    mine.folder.rename(elsewhere)
    goes_on.set()
    reader.wait(60)
    elsewhere.rename(mine.folder)
    assert reader.get(mine) is None
    assert reader.ask([mine]) == 1
    reader.wait(60)
    known = reader.get(mine)
    assert known is not None and not known.problem and known.tokens


def test_a_folder_that_cannot_be_asked_for_keeps_the_others_from_nothing(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below a folder that may not be entered, or in a storage that is away."""
    real = Path.exists

    def found(folder: Path) -> Headline:
        return Headline(problem="away") if folder.name == "mine" else Headline(tokens=1)

    def exists(folder: Path) -> bool:
        if folder.name == "mine":
            raise PermissionError(folder)
        return real(folder)

    monkeypatch.setattr(reading, "found", found)
    reader, listed = Reader(), discover([fresh])
    monkeypatch.setattr(Path, "exists", exists)
    reader.ask(listed)
    reader.wait(60)
    known = {run.run_id: reader.get(run) for run in listed}
    assert known == {"mine": Headline(problem="away"), "other": Headline(tokens=1)}


def test_processes_read_the_same_as_the_thread(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(fresh / "third", make_steps(2))
    reader, listed = Reader(processes=2), discover([fresh])
    while reader.ask(listed):
        reader.wait(60)
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(fresh.parent / "another cache"))
    assert {run.run_id: reader.get(run) for run in listed} == {run.run_id: read_headline(run.folder) for run in listed}


def test_runs_that_a_page_shows_are_read_before_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a run that has fallen, those that differ in one setting waited for all the others of a new server."""
    for name in "abcd":
        write_run(tmp_path / name, make_steps(1))
    begun, goes_on, order = Event(), Event(), list[str]()

    def found(folder: Path) -> Headline:
        order.append(folder.name)
        begun.set()
        assert goes_on.wait(60)
        return Headline(tokens=1)

    monkeypatch.setattr(reading, "found", found)
    reader, listed = Reader(), discover([tmp_path])
    assert reader.ask(listed) == 4
    assert begun.wait(60)
    last = [run for run in listed if run.run_id not in order][-1]
    assert reader.ask([last], at_once=True) == 1
    goes_on.set()
    while reader.ask(listed):
        reader.wait(60)
    assert order[1] == last.folder.name
    assert sorted(order) == list("abcd")


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_run_over_which_a_process_ended_is_given_to_one_more(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    started, begin = [], worker._start

    def start() -> "subprocess.Popen[str]":
        started.append(process := begin())
        if len(started) <= deaths:
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(worker, "_start", start)
    ((_, found),) = worker.by_processes(iter([fresh / "mine", None]).__next__, 1, 1)
    assert len(started) == 2
    assert found == read_headline(fresh / "mine") or (deaths == 2 and "ended the process that did" in found.problem)


@pytest.mark.parametrize(("takes", "rests"), [(0.5, 8.0), (3.0, 18.0)])
def test_a_live_run_that_takes_long_is_read_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, rests: float
) -> None:
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)

    def found(folder: Path) -> Headline:
        clock.now += takes
        return Headline(tokens=1)

    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "found", found)
    reader, (first, second) = Reader(), make_steps(2)
    with RunRecorder(tmp_path / "live", flush_seconds=0.0) as recorder:
        recorder.record_step(0, tokens=first.tokens, sequences=first.sequences, scalars=first.scalars)
        recorder.flush()
        assert reader.ask(discover([tmp_path])) == 1
        reader.wait(60)
        recorder.record_step(1, tokens=second.tokens, sequences=second.sequences, scalars=second.scalars)
        recorder.flush()
        for past, wanted in ((rests - 0.1, 0), (0.2, 1)):
            clock.now += past
            assert len(list(reader._wanted(discover([tmp_path])))) == wanted


def test_the_first_time_that_a_live_run_was_critical_is_kept(tmp_path: Path) -> None:
    reader = Reader()
    assert reader.alarm(tmp_path) is None
    for step in (61, 70):
        reader.sound(tmp_path, step)
    assert reader.alarm(tmp_path) == 61


def test_no_alarm_for_a_run_that_died_long_ago(tmp_path: Path) -> None:
    for name, heartbeat in (("dead", "2020-01-01T00:00:00+00:00"), ("live", now())):
        manifest = Manifest.read(write_run(tmp_path / name, make_steps(1)))
        manifest.status, manifest.heartbeat = "running", heartbeat
        manifest.write(tmp_path / name)
    reader = Reader()
    for run in discover([tmp_path]):
        reader._note(run, "", Headline(severity=Severity.CRITICAL, rule="log_broken"))
    assert [name for name in ("dead", "live") if reader.alarm(tmp_path / name)] == ["live"]


def test_limits_and_what_was_in_the_way_are_looked_at_again(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, clock = Reader(), SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "found", lambda folder: Headline(problem="the storage did not answer"))
    listed = [run for run in discover([fresh]) if run.run_id == "mine"]
    reader.ask(listed)
    reader.wait(60)
    for past, wanted in ((59.0, 0), (2.0, 1)):
        clock.now += past
        assert len(list(reader._wanted(listed))) == wanted
    monkeypatch.setattr(reading, "found", lambda folder: Headline(tokens=1))
    reader.ask(listed)
    reader.wait(60)
    assert not list(reader._wanted(listed))
    (fresh / "ratioscope.toml").write_text("[thresholds]\nepsilon = 0.02\n")
    assert len(list(reader._wanted(listed))) == 1
