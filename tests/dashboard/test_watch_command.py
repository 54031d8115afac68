"""`ratioscope watch`: live runs that grow, a webhook that fails, restarts, Ctrl-C, and names that must stay inert."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis import opened
from ratioscope.analysis.findings.finding import Severity
from ratioscope.dashboard.cli.watching import Watcher
from ratioscope.dashboard.watching.alerts import Terminal
from ratioscope.inert import one_line
from ratioscope.storage.cache import cache_folder
from tests.making.commands import Outcome, command
from tests.making.runs import Step, stale_step, write_run

Ratioscope = Callable[..., Outcome]
PATIENCE = 60.0
QUICK = ("--every", "0.05", "--quiet")


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ratioscope:
    """ratioscope("watch", folder) -> what the console command did; nothing was told before."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


@dataclass
class Receiver:
    """A web server that answers POSTs with the given codes, then with 200; what it took is in `taken`."""

    answers: list[int] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    visits: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.visits.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code = state.answers.pop(0) if state.answers else 200
            if code == 200:
                state.taken.append(body)
            else:
                state.refused += 1
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            state.visits.append(self.path)

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}/secret-path"
        yield state
        server.shutdown()


def stale_steps(first: int, count: int, staleness: float) -> list[Step]:
    """Steps with S_k = `staleness`: a warning from 0.2 on, critical from 0.4 on."""
    return [stale_step(number, staleness) for number in range(first, first + count)]


def record(recorder: RunRecorder, steps: list[Step]) -> None:
    for step in steps:
        recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    recorder.flush()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def of_staleness(file: Path | Receiver) -> list[tuple[str, str]]:
    """Run and severity of each alert on staleness that arrived in a file, or at the web server."""
    if isinstance(file, Receiver):
        alerts = list(file.taken)
    else:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        alerts = [json.loads(line) for line in lines]
    return [(alert["run"], alert["severity"]) for alert in alerts if alert["rule"] == "staleness_high"]


def test_a_growing_run_is_reported_once_a_severity_to_everybody_also_over_a_restart(
    ratioscope: Ratioscope, tmp_path: Path, receiver: Receiver
) -> None:
    root, file = tmp_path / "runs", tmp_path / "alerts.jsonl"
    receiver.answers = [500]

    def grow(recorder: RunRecorder) -> None:
        with recorder:
            wait_for(lambda: ("live", "warning") in of_staleness(receiver))
            record(recorder, stale_steps(4, 6, 0.49))
            write_run(root / "late", stale_steps(0, 4, 0.25))
            wait_for(lambda: {("live", "critical"), ("late", "warning")} <= set(of_staleness(receiver)))

    recorder = RunRecorder(root / "live", flush_seconds=0.0)
    record(recorder, stale_steps(0, 4, 0.25))
    grower = threading.Thread(target=grow, args=(recorder,), daemon=True)
    grower.start()
    watch = ("watch", root, *QUICK, "--file", file, "--webhook", receiver.url)
    outcome = ratioscope(*watch)
    grower.join(PATIENCE)

    assert outcome.code == 1
    assert of_staleness(file).count(("live", "warning")) == 1
    assert sorted(of_staleness(file)) == [("late", "warning"), ("live", "critical"), ("live", "warning")]
    written = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    without_time = [{key: alert[key] for key in alert.keys() - {"time"}} for alert in written]
    taken = [{key: alert[key] for key in alert.keys() - {"time"}} for alert in receiver.taken]
    assert sorted(taken, key=json.dumps) == sorted(without_time, key=json.dumps) and receiver.refused == 1
    assert len(outcome.out.splitlines()) == len(written)
    for line, alert in zip(outcome.out.splitlines(), written, strict=True):
        assert line == f"{alert['severity']:<9} {alert['run']}: {alert['sentence']}"
        assert alert["text"].startswith(f"ratioscope: {alert['severity']} in {alert['run']}: ")
    first = next(alert for alert in written if alert["rule"] == "staleness_high")
    assert (first["metric"], first["limit"], first["steps"]) == ("s_k_bounded", 0.2, [0, 3])
    assert outcome.err == (
        "ratioscope: The webhook at 127.0.0.1 answered 500; the alert is sent again at the next check.\n"
    )

    again = ratioscope("watch", root, "--file", file, "--webhook", receiver.url)
    assert (again.code, again.out) == (1, "")
    assert "An earlier watch has reported" in again.err
    assert len(receiver.taken) == len(written) == len(file.read_text(encoding="utf-8").splitlines())
    kept = [path.read_text(encoding="utf-8") for path in cache_folder("alerts").iterdir()]
    assert not any("127.0.0.1" in text for text in kept)

    file.unlink()  # a new file was told nothing
    assert ratioscope(*watch, "--severity", "critical").code == 1
    assert of_staleness(file) == [("live", "critical")]


def test_ctrl_c_ends_it_with_130_and_what_was_said_is_not_said_again(ratioscope: Ratioscope, tmp_path: Path) -> None:
    file, ended = tmp_path / "alerts.jsonl", threading.Event()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # an event loop of an earlier test may have had its own

    def press() -> None:
        wait_for(lambda: bool(of_staleness(file)))
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        while not ended.wait(5):  # as a person would
            os.kill(os.getpid(), signal.SIGINT)

    with RunRecorder(tmp_path / "runs" / "live", flush_seconds=0.0) as recorder:
        record(recorder, stale_steps(0, 4, 0.25))
        threading.Thread(target=press, daemon=True).start()
        outcome = ratioscope("watch", tmp_path / "runs", *QUICK, "--file", file)
        ended.set()
    assert (outcome.code, outcome.err) == (130, "")
    assert "Staleness" in outcome.out
    assert ratioscope("watch", tmp_path / "runs", *QUICK).out == ""


def test_a_webhook_that_redirects_gets_nothing_elsewhere_and_stops_nothing(
    ratioscope: Ratioscope, tmp_path: Path, receiver: Receiver
) -> None:
    run = write_run(tmp_path / "ended", stale_steps(0, 4, 0.25))
    receiver.answers = [302] * 10
    outcome = ratioscope("watch", run, *QUICK, "--webhook", receiver.url)
    assert outcome.code == 1 and "Staleness" in outcome.out
    assert set(receiver.visits) == {"/secret-path"} and not receiver.taken
    first, last = outcome.err.splitlines()
    assert "answered 302, and redirects are not followed" in first and "secret" not in outcome.err
    assert last.endswith("the next watch on these runs sends them.")
    receiver.answers = []
    assert ratioscope("watch", run, *QUICK, "--webhook", receiver.url).out == ""
    assert len(receiver.taken) == len(outcome.out.splitlines())


@pytest.mark.parametrize(
    ("severity", "fail_on", "staleness", "code", "said"),
    [
        ("warning", "warning", 0.02, 0, False),
        ("warning", "critical", 0.25, 0, True),
        ("critical", "warning", 0.25, 1, False),
    ],
)
def test_what_is_said_and_the_exit_code_follow_their_severities(
    ratioscope: Ratioscope, tmp_path: Path, severity: str, fail_on: str, staleness: float, code: int, said: bool
) -> None:
    run = write_run(tmp_path / "ended", stale_steps(0, 4, staleness))
    outcome = ratioscope("watch", run, *QUICK, "--severity", severity, "--fail-on", fail_on)
    assert (outcome.code, "Staleness" in outcome.out, outcome.err) == (code, said, "")


def test_limits_of_the_project_hold(ratioscope: Ratioscope, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ended", stale_steps(0, 4, 0.25))
    (tmp_path / "ratioscope.toml").write_text("[thresholds]\nepsilon_stale = 0.9\n", encoding="utf-8")
    assert "Staleness" not in ratioscope("watch", run, *QUICK).out
    (tmp_path / "ratioscope.toml").write_text("[thresholds\n", encoding="utf-8")
    assert "cannot be read as TOML" in ratioscope("watch", run, *QUICK).failed()


def test_a_live_run_is_read_again_when_it_has_news_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    reads: list[Path] = []
    original = opened.open_run
    monkeypatch.setattr(opened, "open_run", lambda folder: reads.append(folder) or original(folder))
    root = tmp_path / "runs"
    write_run(root / "ended", stale_steps(0, 2, 0.02))
    with RunRecorder(root / "live", flush_seconds=0.0) as recorder:
        record(recorder, stale_steps(0, 2, 0.02))
        watcher = Watcher([root], [Terminal()], Severity.WARNING)
        for _ in range(3):
            watcher.judge()
        assert sorted(reads) == [root / "ended", root / "live"] and watcher.live == 1
        record(recorder, stale_steps(2, 1, 0.02))
        watcher.judge()
        assert reads[2:] == [root / "live"]
        (root / "ended" / "run.json").write_text("{", encoding="utf-8")
        watcher.judge()
        assert watcher.live == 1
        assert watcher.unjudged  # a gate that could not run does not pass
    watcher.judge()
    assert watcher.live == 0


def test_what_holds_at_every_look_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said again whenever a look without news had come between."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "runs"
    (root / "live" / "tokens").mkdir(parents=True)
    (root / "live" / "tokens" / "odd.parquet").write_bytes(b"")
    with RunRecorder(root / "live", flush_seconds=0.0) as recorder:
        watcher = Watcher([root], [Terminal()], Severity.CRITICAL)
        for number in range(6):
            if number % 2 == 0:
                record(recorder, stale_steps(number, 1, 0.02))
            watcher.judge()
            watcher.deliver()
    said = capsys.readouterr().err.splitlines()
    assert any("odd.parquet: left out" in line for line in said) and len(set(said)) == len(said)


def test_a_run_that_is_waited_for_is_watched(ratioscope: Ratioscope, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "later"
    folder.parent.mkdir()
    written = write_run(tmp_path / "later", stale_steps(0, 4, 0.25))

    def begin() -> None:
        time.sleep(0.2)
        written.rename(folder)

    threading.Thread(target=begin, daemon=True).start()
    assert "Staleness" in ratioscope("watch", tmp_path / "runs", *QUICK, "--wait", "1").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{folder}",), "there is no run in this folder; --wait SECONDS waits for one"),
        (("{folder}/nowhere",), "there is no such folder"),
        (("{torn}",), "cannot be read as JSON"),
        (("{folder}", "--webhook", "ftp://example.org"), "--webhook must be a URL"),
        (("{folder}", "--webhook", "http:///path"), "--webhook must be a URL"),
        (("{folder}", "--webhook", "http://example.org/a b"), "--webhook must be a URL"),
        (("{folder}", "--webhook", "http://example.org:99999/"), "--webhook must be a URL"),
        (("{folder}", "--file", "{folder}/no/folder.jsonl"), "there is no such folder"),
        (("{folder}", "--thresholds", "{folder}/none.toml"), "there is no such file"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ratioscope: Ratioscope, gallery: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    filled = [argument.format(folder=tmp_path, torn=gallery / "torn") for argument in arguments]
    assert reason in ratioscope("watch", *filled, *QUICK).failed()


def test_a_name_cannot_redraw_the_terminal_or_call_people_in_a_chat(
    ratioscope: Ratioscope, tmp_path: Path, receiver: Receiver
) -> None:
    name = "\x1b[2J\x1b]0;owned\x07\u202e<!channel> [link](http://evil.example)\ncritical  other: lie"
    run = write_run(tmp_path / "ended", stale_steps(0, 4, 0.25), name=name)
    outcome = ratioscope("watch", run, *QUICK, "--webhook", receiver.url)
    assert outcome.out.count("\n") == len(receiver.taken) > 0
    assert all(sign == "\n" or sign.isprintable() for sign in outcome.out + outcome.err)
    for alert in receiver.taken:
        assert alert["run"] == one_line(name) and "\n" not in alert["text"]
        assert not set("<>[]!\x1b\u202e") & set(alert["text"].partition(": Staleness")[0])
