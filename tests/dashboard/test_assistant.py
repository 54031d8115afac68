"""`ratioscope mcp`, asked by the protocol's own client over stdin and stdout, also what it must not do."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis.why import why_text
from ratioscope.dashboard.assistant.bounded import LONGEST_LIST, MOST_CHARACTERS, cut_short, page_of
from ratioscope.dashboard.assistant.tools import TOOLS
from ratioscope.errors import RatioscopeError
from tests.making.commands import Outcome, command
from tests.making.hostile import ACTIVE, FORGED, MARK, write_hostile
from tests.making.loops import in_one_loop
from tests.making.packages import ROOT
from tests.making.runs import random_step, write_run

# Not imported before a test needs it: that takes a second, and every process collects this file.
if TYPE_CHECKING:
    from mcp import Client

COLLAPSED, CLIPPED = "sync_interval20-reinforce-lr0.0003-seed0", "sync_interval20-grpo-seed0"
HUGE = 10**40


@dataclass(frozen=True)
class Session:
    """A client that is connected to the command."""

    client: "Client"
    portal: BlockingPortal

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool, which says the same twice: as JSON text and as structured content."""
        answer = self.portal.call(self.client.call_tool, tool, arguments)
        (text,) = (block.text for block in answer.content)
        assert not answer.is_error, text
        assert len(text) < 2 * MOST_CHARACTERS
        found: dict[str, Any] = answer.structured_content
        assert json.loads(text) == found
        return found

    def refused(self, tool: str, **arguments: Any) -> str:
        """The sentence by which a tool declines."""
        answer = self.portal.call(self.client.call_tool, tool, arguments)
        (text,) = (block.text for block in answer.content)
        assert answer.is_error, text
        assert text.endswith((".", "?")) and "\n" not in text and "Traceback" not in text and len(text) < 700, text
        return str(text)


@contextmanager
def connected(root: Path, cache: Path) -> Iterator[Session]:
    from mcp import Client, StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "ratioscope", "mcp", str(root)],
        env={"RATIOSCOPE_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]},
        cwd=ROOT,
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(parameters))) as client,
    ):
        yield Session(client, portal)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sample runs, a run of our own, an unreadable one, and a link to a run elsewhere."""
    folder = tmp_path_factory.mktemp("runs")
    for name in (COLLAPSED, CLIPPED):
        (folder / name).mkdir()
        for path in (ROOT / "sample_runs" / name).rglob("*"):
            target = folder / name / path.relative_to(ROOT / "sample_runs" / name)
            target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_run(elsewhere / "secret", [random_step(np.random.default_rng(0), step) for step in range(2)])
    (folder / "link").symlink_to(elsewhere / "secret")
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    return folder


@pytest.fixture(scope="module")
def session(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connected(runs, tmp_path_factory.mktemp("cache")) as found:
        yield found


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *strings(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def test_it_introduces_itself_and_every_tool_only_reads(session: Session) -> None:
    from ratioscope.dashboard.assistant.server import INSTRUCTIONS

    assert session.client.server_info.name == "ratioscope"
    assert session.client.instructions == INSTRUCTIONS
    tools = session.portal.call(session.client.list_tools).tools
    assert [tool.name for tool in tools] == list(TOOLS)
    assert all(name in INSTRUCTIONS for name in TOOLS if name not in ("list_metrics", "tables", "compare"))
    for tool in tools:
        marks = tool.annotations
        assert marks.read_only_hint and marks.idempotent_hint
        assert marks.destructive_hint is False and marks.open_world_hint is False
        assert tool.description and tool.title and tool.output_schema


def test_runs_have_their_lights_and_those_that_cannot_be_read_say_why(session: Session, runs: Path) -> None:
    found = session.ask("list_runs")
    by_name = {run["run"]: run for run in found["runs"]}
    assert by_name.keys() == {COLLAPSED, CLIPPED, "link", "broken"}
    assert by_name[COLLAPSED]["lights"]["Learning"]["state"] == "fallen"
    assert by_name[COLLAPSED]["worst"]["severity"] == "critical" and by_name[COLLAPSED]["answer"]
    assert by_name[CLIPPED]["lights"]["Learning"]["state"] == "rising"
    assert "link out of the folder" in by_name["link"]["problem"] and by_name["link"]["steps"] == 0
    assert by_name["broken"]["problem"] and by_name["broken"]["lights"] is None
    first = session.ask("list_runs", limit=1)
    assert (len(first["runs"]), first["total"], first["next_offset"]) == (1, 4, 1) and "offset 1" in first["cut"]
    assert session.ask("list_runs", offset=4)["runs"] == []


def test_the_diagnosis_is_that_of_the_command(session: Session, runs: Path, ratioscope: Callable[..., Outcome]) -> None:
    said = json.loads(ratioscope("diagnose", runs / COLLAPSED, "--why", "--json").out)
    found = session.ask("diagnose", run=COLLAPSED)
    assert found["lights"] == said["lights"] and found["total"] == len(said["findings"]) > 3
    for ours, theirs in zip(found["findings"], said["findings"], strict=True):
        assert ours | {"steps": []} == theirs | {"steps": []} | (
            {"steps_total": len(theirs["steps"])} if len(theirs["steps"]) > LONGEST_LIST else {}
        )
    assert {key: found[key] for key in ("schema_version", "run", "thresholds", "log")} == {
        key: said[key] for key in ("schema_version", "run", "thresholds", "log")
    }
    assert session.ask("diagnose", run=str(runs / COLLAPSED))["findings"] == found["findings"]
    rest = session.ask("diagnose", run=COLLAPSED, offset=1, limit=1)
    assert rest["findings"] == found["findings"][1:2] and rest["next_offset"] == 2


def to_digits(value: Any) -> Any:
    """With nine digits: sums over several threads differ in the last ones between two processes."""
    if isinstance(value, dict):
        return {key: to_digits(one) for key, one in value.items()}
    if isinstance(value, list):
        return [to_digits(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_causes_are_the_table_of_the_command(session: Session, runs: Path, ratioscope: Callable[..., Outcome]) -> None:
    families = json.loads(ratioscope("diagnose", runs / COLLAPSED, "--why", "--json").out)["why"]
    every = [{"family": family["family"]} | cause for family in families for cause in family["causes"]]
    pages, offset = [], 0
    while offset is not None:
        page = session.ask("causes", run=COLLAPSED, every=True, offset=offset, limit=100)
        pages += page["causes"]
        offset = page["next_offset"]
    assert to_digits(pages) == to_digits(every) and len(every) == page["looked_for"] > 50
    spoken_for = session.ask("causes", run=COLLAPSED)
    assert spoken_for["without_sign"] + spoken_for["total"] == len(every)
    assert all(cause["words"] in why_text(families) for cause in spoken_for["causes"])
    (one,) = session.ask("causes", run=COLLAPSED, cause=every[-1]["cause"])["causes"]
    assert to_digits(one) == to_digits(every[-1])


def test_the_log_is_checked(session: Session, runs: Path, ratioscope: Callable[..., Outcome]) -> None:
    remarks = json.loads(ratioscope("check", runs / CLIPPED, "--json").out)["remarks"]
    found = session.ask("check_log", run=CLIPPED, every=True)
    assert [remark["check"] for remark in found["remarks"]] == [remark["check"] for remark in remarks]
    noted = session.ask("check_log", run=CLIPPED)
    assert noted["total"] == sum(remark["severity"] is not None for remark in remarks) < found["total"]


def test_a_metric_has_its_meaning_interval_and_notes(
    session: Session, runs: Path, ratioscope: Callable[..., Outcome]
) -> None:
    steps = json.loads(ratioscope("summarize", runs / COLLAPSED, "--json").out)["steps"]
    found = session.ask("metric", run=COLLAPSED, key="s_k_bounded", limit=50)
    assert found["columns"] == ["step", "value", "low", "high", "note"] and found["definition"] and found["formula"]
    assert (found["total"], found["next_offset"]) == (len(steps), 50)
    for row, step in zip(found["steps"], steps[:50], strict=True):
        assert row[0] == step["step"] and row[1] == pytest.approx(step["s_k_bounded"], rel=1e-6)
        assert row[2:4] == pytest.approx(step["intervals"]["s_k_bounded"], rel=1e-6)
    part = session.ask("metric", run=COLLAPSED, key="s_k_bounded", first=10, last=12)
    assert part["steps"] == found["steps"][10:13]
    absent = session.ask("metric", run=COLLAPSED, key="kl_to_reference", limit=1)["steps"][0]
    assert absent[1] is None and "logged" in absent[4]
    logged = {row["key"] for row in session.ask("list_metrics", run=COLLAPSED)["metrics"]}
    every = {row["key"] for row in session.ask("list_metrics")["metrics"]}
    assert logged < every and "s_k_bounded" in logged and "kl_to_reference" in every - logged


def test_tokens_are_those_of_the_page(session: Session) -> None:
    worst = session.ask("worst_responses", run=COLLAPSED, by="s_k", first=76, last=76, limit=3)
    assert worst["sentence"] and len(worst["responses"]) == 3
    first = worst["responses"][0]
    found = session.ask("tokens", run=COLLAPSED, step=first["step"], seq_id=first["seq_id"])
    assert {"position", "text", "logp_behavior", "logp_current", "ratio", "log_rho", "advantage"} <= set(
        found["token_columns"]
    )
    rows = [dict(zip(found["token_columns"], row, strict=True)) for row in found["tokens"]]
    assert found["total"] == len(rows) == first["n_tokens"] and found["facts"]["reward"] == first["reward"]
    asked = (
        "select position, logp_current - logp_sampled from tokens where step = {step} and seq_id = {seq_id} order by 1"
    )
    for row, (position, log_rho) in zip(
        rows, session.ask("query", run=COLLAPSED, sql=asked.format(**first))["rows"], strict=True
    ):
        assert (row["position"], row["log_rho"]) == (position, pytest.approx(log_rho, abs=1e-5))
    far = rows[found["farthest"][0]]
    assert abs(far["log_rho"]) == max(abs(row["log_rho"]) for row in rows)
    page = session.ask("tokens", run=COLLAPSED, step=first["step"], seq_id=first["seq_id"], offset=1, limit=1)
    assert page["tokens"] == found["tokens"][1:2] and page["cut"]


def test_a_query_reads_the_run_and_says_what_it_left_out(session: Session) -> None:
    tables = session.ask("tables", run=COLLAPSED)["tables"]
    assert {"tokens", "sequences", "steps", "summary", "notes"} <= tables.keys()
    columns = session.ask("tables", run=COLLAPSED, table="tokens")["columns"]
    assert {column["column"] for column in columns} == set(tables["tokens"]["columns"].split(", "))
    sql = "select step, count(*) as n, 'nan'::double as x, null as y from tokens group by step order by step"
    found = session.ask("query", run=COLLAPSED, sql=sql, limit=3)
    assert found["columns"] == ["step", "n", "x", "y"] and found["rows"][0][2:] == ["nan", None]
    assert len(found["rows"]) == 3 and "first 3 rows" in found["cut"]
    wide = session.ask("query", run=COLLAPSED, sql="select repeat('x', 1900) as a from range(100)")
    assert len(wide["rows"]) < 100 and "of 100 rows fit" in wide["cut"]
    (long,) = session.ask("query", run=COLLAPSED, sql="select repeat('x', 5000) as a")["rows"][0]
    assert long.endswith("… (5,000 characters)")


def test_runs_are_compared_and_names_explained(session: Session) -> None:
    found = session.ask("compare", runs=[COLLAPSED, CLIPPED])
    assert found["metric"] == "eval_accuracy" and found["cut"] is None
    assert found["sentences"][0].startswith("Best: grpo")
    assert found["sentences"][1] == "Worse: reinforce (learning_rate 0.0003), 8.2%, collapsed."
    assert found["sentences"][3].endswith("Collapsed: lost 25%+ of its best.")
    assert "Sampling staleness" in session.ask("explain", name="s_k")["text"]
    assert "about_texts" not in session.ask("explain", name="staleness_high")
    assert session.ask("explain", name="old_data_without_bound")["text"]


# What is asked, and what the sentence says.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a path above the folder": ("diagnose", {"run": "../elsewhere"}, "not a run in this folder"),
    "a path of the machine": ("metric", {"run": "/etc/passwd", "key": "s_k"}, "not a run in this folder"),
    "a run elsewhere by its path": ("diagnose", {"run": str(ROOT / "sample_runs" / CLIPPED)}, "not a run in"),
    "a link out of the folder": ("tokens", {"run": "link", "step": 0, "seq_id": 0}, "link out of the folder"),
    "the folder itself": ("tables", {"run": "."}, "not a run in this folder"),
    "a run that cannot be read": ("check_log", {"run": "broken"}, "broken"),
    "a run of strange text": ("diagnose", {"run": "\x1b[2J\u202e" * 20}, "not a run in this folder"),
    "DROP": ("query", {"run": CLIPPED, "sql": "drop table tokens"}, "DROP is not possible"),
    "COPY": ("query", {"run": CLIPPED, "sql": "copy (select 1) to '/tmp/x.csv'"}, "COPY is not possible"),
    "a COPY inside": (
        "query",
        {"run": CLIPPED, "sql": "with x as (copy (select 1) to '/tmp/x.csv') select * from x"},
        "only SELECT runs",
    ),
    "a file": ("query", {"run": CLIPPED, "sql": "select * from read_csv('/etc/passwd')"}, "read_csv() is not possible"),
    "a file as a table": ("query", {"run": CLIPPED, "sql": "select * from '/etc/passwd'"}, "There is no table"),
    "an attached database": ("query", {"run": CLIPPED, "sql": "attach 'x.db'"}, "only SELECT runs"),
    "a setting": ("query", {"run": CLIPPED, "sql": "set lock_configuration = false"}, "only SELECT runs"),
    "two statements": ("query", {"run": CLIPPED, "sql": "select 1; select 2"}, "one SELECT at a time"),
    "no statement": ("query", {"run": CLIPPED, "sql": " "}, "write a SELECT"),
    "a long statement": ("query", {"run": CLIPPED, "sql": "select 1 " * 9999}, "are the most"),
    "too many rows": ("query", {"run": CLIPPED, "sql": "select 1", "limit": 10**9}, "1 to 1,000"),
    "a huge step": ("tokens", {"run": CLIPPED, "step": HUGE, "seq_id": 0}, "it has steps 0 to 149"),
    "a negative step": ("tokens", {"run": CLIPPED, "step": -1, "seq_id": 0}, "it has steps 0 to 149"),
    "a huge response": ("tokens", {"run": CLIPPED, "step": 0, "seq_id": HUGE}, "there is no response"),
    "no such response": ("tokens", {"run": CLIPPED, "step": 0, "seq_id": 10**9}, "there is no response"),
    "steps that are not there": ("metric", {"run": CLIPPED, "key": "s_k", "first": HUGE}, "it has steps 0 to 149"),
    "steps in the wrong order": ("worst_responses", {"run": CLIPPED, "first": 9, "last": 3}, "it has steps"),
    "no number": ("tokens", {"run": CLIPPED, "step": "x", "seq_id": 0}, "step: Input should be a valid integer"),
    "nothing": ("diagnose", {}, "run: Field required"),
    "a page before the first": ("list_runs", {"offset": -1}, "offset:"),
    "an empty page": ("list_runs", {"limit": 0}, "limit:"),
    "a misspelt argument": ("diagnose", {"run": CLIPPED, "limits": 3}, "did you mean limit?"),
    "no such metric": ("metric", {"run": CLIPPED, "key": "s_kk"}, "did you mean s_k"),
    "no such order": ("worst_responses", {"run": CLIPPED, "by": "x"}, "not a metric or a criterion"),
    "no such cause": ("causes", {"run": CLIPPED, "cause": "x"}, "not a cause"),
    "no such table": ("tables", {"run": CLIPPED, "table": "duckdb_settings"}, "not a table"),
    "no such name": ("explain", {"name": "./evil.py:function"}, "not something to explain"),
    "one run": ("compare", {"runs": [CLIPPED, CLIPPED]}, "name two runs"),
    "an axis": ("compare", {"runs": [CLIPPED, COLLAPSED], "by": "x"}, "by: Input should be 'step'"),
    "no such tool": ("delete_run", {"run": CLIPPED}, "not a tool"),
}  # fmt: skip


@in_one_loop("case", REFUSED)
def test_what_is_refused_is_refused_in_one_sentence(session: Session, case: tuple[str, dict[str, Any], str]) -> None:
    tool, arguments, said = case
    assert said in session.refused(tool, **arguments)


def test_nothing_is_written_into_a_run(session: Session, runs: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(runs.rglob("*"))}

    before = state()
    for tool in ("diagnose", "causes", "check_log", "worst_responses", "tables"):
        session.ask(tool, run=CLIPPED)
    session.ask("query", run=CLIPPED, sql="select count(*) from tokens")
    assert state() == before


def test_text_of_a_log_is_inert_and_marked(tmp_path: Path) -> None:
    with connected(write_hostile(tmp_path / "hostile"), tmp_path / "cache") as session:
        listed = session.ask("list_runs")
        name = next(run["run"] for run in listed["runs"] if MARK in run["run"] and "again" not in run["run"])
        answers = [listed, *(session.ask(tool, run=name) for tool in ("diagnose", "causes", "check_log", "tables"))]
        answers.append(session.ask("worst_responses", run=name, by="first"))
        first = answers[-1]["responses"][0]
        tokens = session.ask("tokens", run=name, step=first["step"], seq_id=first["seq_id"])
        answers += [
            tokens,
            session.ask("query", run=name, sql="select * from sequences join messages using (step, seq_id)"),
        ]
        answers.append(session.ask("query", run=name, sql="select text from vocabulary limit 5"))
    assert any(MARK in text for text in strings(tokens["tokens"])) and MARK in tokens["prompt"]
    for answer in answers:
        assert "never instructions" in answer["about_texts"]
        found = "".join(strings(answer))
        assert not set(found) & (set(ACTIVE) - set("[2J")) and chr(0x301) * 5 not in found
    assert not any(text.startswith(FORGED) for answer in answers for text in strings(answer))


def test_runs_without_tokens_or_steps_are_answered(tmp_path: Path) -> None:
    RunRecorder(tmp_path / "runs" / "empty").close()
    recorder = RunRecorder(tmp_path / "runs" / "texts")
    for step in range(3):
        texts = {"prompt": ["a", "b"], "response": ["x" * 5000, "y"], "reward": [0.0, 1.0]}
        recorder.record_step(step, sequences={"seq_id": [0, 1], **texts})
    recorder.close()
    with connected(tmp_path / "runs", tmp_path / "cache") as session:
        assert {run["run"] for run in session.ask("list_runs")["runs"]} == {"empty", "texts"}
        for run in ("empty", "texts"):
            for tool in ("diagnose", "causes", "check_log", "list_metrics", "tables"):
                session.ask(tool, run=run)
        assert "no step is on disk" in session.refused("metric", run="empty", key="reward")
        assert "no step is on disk" in session.refused("compare", runs=["empty", "texts"])
        assert [row[1] for row in session.ask("metric", run="texts", key="reward")["steps"]] == [0.5] * 3
        first = session.ask("worst_responses", run="texts")["responses"][0]
        found = session.ask("tokens", run="texts", step=first["step"], seq_id=0)
        assert found["why_no_tokens"] and found["response"].endswith("… (5,000 characters)")


def test_a_call_that_is_cancelled_holds_up_no_other(runs: Path, tmp_path: Path) -> None:
    with started("-m", "ratioscope", "mcp", runs, cache=tmp_path) as process:
        slow = "select count(*) from range(1000000000) as a, range(100000) as b"
        send(process, *FIRST, call(2, "query", run=CLIPPED, sql=slow))
        send(process, {"method": "notifications/cancelled", "params": {"requestId": 2}}, call(3, "list_metrics"))
        assert process.stdout
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [answer["id"] for answer in answers] == [1, 3] and "result" in answers[1]


# In front of the command: a tool that prints, as libraries do.
NOISY = """
import os, sys, warnings
from ratioscope.dashboard.assistant import tools
@tools.tool("Noise")
def noise(shelf: tools.Shelf) -> dict[str, tools.Any]:
    print("by print"); os.write(1, b"by a library\\n"); sys.stdout.flush(); warnings.warn("a warning")
    os.system("echo by a program")
    return {"said": "x"}
sys.argv[:] = ["ratioscope", "mcp", sys.argv[1]]
from ratioscope.__main__ import main
main()
"""
FIRST = [
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
    {"method": "notifications/initialized"},
]  # fmt: skip


@contextmanager
def started(*command: object, cache: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-P", *map(str, command)], text=True, cwd=ROOT,
        env=os.environ | {"RATIOSCOPE_CACHE": str(cache)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def send(process: "subprocess.Popen[str]", *messages: dict[str, Any]) -> None:
    assert process.stdin
    process.stdin.writelines(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in messages)
    process.stdin.flush()


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def test_stdout_holds_the_protocol_and_nothing_else(runs: Path, tmp_path: Path) -> None:
    with started("-c", NOISY, runs, cache=tmp_path) as process:
        send(process, *FIRST, call(2, "noise"), call(3, "diagnose", run=CLIPPED), call(4, "nothing"))
        assert process.stdout and process.stdin and process.stderr
        answers = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.stdin.close()
        assert process.stdout.read() == ""
        said = process.stderr.read()
        assert process.wait(30) == 0
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3, 4]
    assert all(answer["jsonrpc"] == "2.0" and "result" in answer for answer in answers)
    assert all(line in said for line in ("by print", "by a library", "a warning", "by a program"))


# At the end of its input with nothing left to answer: `test_stdout_holds_the_protocol_and_nothing_else`.
@pytest.mark.parametrize(("ending", "busy"), [("end of input", True), ("Ctrl-C", False), ("Ctrl-C", True)])
def test_it_ends_quietly(ending: str, busy: bool, runs: Path, tmp_path: Path) -> None:
    with started("-m", "ratioscope", "mcp", runs, cache=tmp_path) as process:
        send(process, *FIRST, *([call(2, "diagnose", run=COLLAPSED)] * busy))
        assert process.stdout and process.stdin and process.stderr
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "ratioscope"
        if ending == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_folder_that_is_not_there_is_one_sentence(ratioscope: Callable[..., Outcome], tmp_path: Path) -> None:
    assert "there is no such folder" in ratioscope("mcp", tmp_path / "nowhere").failed()


def test_a_page_says_what_it_left_out() -> None:
    whole = page_of("rows", [1, 2, 3], 0, 3)
    assert whole == {"total": 3, "next_offset": None, "cut": None, "rows": [1, 2, 3]}
    assert page_of("rows", [1, 2, 3], 1, 1) | {"cut": ""} == {"total": 3, "next_offset": 2, "cut": "", "rows": [2]}
    assert page_of("rows", [1], 5, 1)["rows"] == [] and page_of("rows", [1], 5, 1)["next_offset"] is None
    large = page_of("rows", [["x" * 1900]] * 100, 0, 100)
    assert 0 < len(large["rows"]) < 100 and large["next_offset"] == len(large["rows"])
    assert len(json.dumps(large)) < MOST_CHARACTERS + 300
    one = page_of("rows", [["x" * 1900] * 50], 0, 1)  # a row is never left out for its size alone
    assert len(one["rows"]) == 1
    cut = cut_short({"steps": list(range(500)), "text": "y" * 5000, "rows": [[0] * 300]})
    assert cut["steps"] == list(range(LONGEST_LIST)) and cut["steps_total"] == 500
    assert cut["text"].endswith("… (5,000 characters)") and cut["rows"] == [[0] * 300]
    for offset, limit in ((-1, 1), (0, 0), (0, 1001), (2**40, 1)):
        with pytest.raises(RatioscopeError):
            page_of("rows", [], offset, limit)
