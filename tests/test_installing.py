"""The small installation records and reads, and says what it lacks; the working folder is never imported from."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import ratioscope
from ratioscope.dashboard import cli
from tests.browser.processes import await_server, free_port
from tests.making.foreign import imitated_lines, truth
from tests.making.packages import ROOT, build_wheel
from tests.making.runs import random_step, write_run

PROGRAM = ROOT / "tests" / "making" / "record_and_read.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED, EXTRAS = PROJECT["dependencies"], PROJECT["optional-dependencies"]
TENSORS = 'Computing with tensors (metrics, gates, weights) needs the package torch: pip install "torch".'
# In front of a program: nothing can be imported but what recording needs.
BLOCKED = """
import sys
class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        ours = top.startswith("_sysconfigdata") or top in {"numpy", "pyarrow", "ratioscope"}
        if top not in sys.stdlib_module_names and not ours:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked)
"""
# What pip writes for the console command.
SCRIPT = "import sys\nfrom ratioscope.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
TINY = (
    "updates=1", "hidden_size=32", "intermediate_size=64", "layers=1", "heads=2", "warm_start.max_steps=0", "digits=1",
    "evaluation_prompts=4", "prompts=2", "samples_per_prompt=2",
)  # fmt: skip

# In a repository of somebody else.
FOLDERS = ("analysis/__init__", "dashboard/__init__", "trainer/__init__", "tests/__init__", "state", "theme", "report")
# What the commands import.
MODULES = ("ratioscope/__init__", "typer", "streamlit", "torch", "duckdb", "numbers", "socket", "pickle", "selectors")
QUERY = """
import sys
from pathlib import Path
from ratioscope.analysis import sql
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
run = open_run(Path(sys.argv[1]))
print(sql.ask(run, summarise(run), "SELECT 1 AS one").table.to_pydict())
"""


def run(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_the_core_records_and_reads_where_nothing_else_can_be_imported(tmp_path: Path) -> None:
    program = f"{BLOCKED}\nimport runpy\nsys.argv[:] = ['x', {str(tmp_path / 'run')!r}]\n"
    program += f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    found = run(sys.executable, "-c", program, cwd=ROOT)
    assert (found.returncode, found.stderr) == (0, "")
    opening, tensors = found.stdout.splitlines()
    assert re.fullmatch(r'ratioscope.open_run needs the package \w+: pip install "ratioscope\[dashboard]"\.', opening)
    assert tensors == TENSORS


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("typer", (), "dashboard"),
        ("typer", ("train", "on_policy"), "trainer"),
        ("torch", ("train", "on_policy"), "trainer"),
        ("typer", ("demo",), "all"),
        ("streamlit", ("dashboard", "sample_runs"), "dashboard"),
        ("duckdb", ("summarize", "sample_runs/mismatch-grpo-seed0"), "dashboard"),
        ("mcp", ("mcp", "sample_runs"), "mcp"),
    ],
)
def test_a_command_whose_extra_is_missing_says_the_line_to_type(
    tmp_path: Path, missing: str, arguments: tuple[str, ...], extra: str
) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; sys.argv[:] = ['ratioscope', *{arguments}]\n"
    program += "from ratioscope.__main__ import main; main()"
    found = run(sys.executable, "-c", program, cwd=ROOT, env=os.environ | {"RATIOSCOPE_CACHE": str(tmp_path)})
    command = " ".join(("ratioscope", *arguments[:1]))
    assert found.stderr == f'ratioscope: {command} needs the package {missing}: pip install "ratioscope[{extra}]".\n'
    assert found.returncode == 2


# What a program of one's own imports besides the commands, by extra.
OF_EXTRA = {
    "": (),
    "dashboard": ("dashboard.cli", "dashboard.launcher", "dashboard.app", "dashboard.notebook"),
    "trainer": ("dashboard.cli", "trainer.training.loop", "trainer.settings.ablation"),
}


# What stands in README in the place of something of the reader's own, and what does not end by itself.
OF_THE_READER = {
    "outputs/my-run": "outputs",
    "sample_runs/sync_interval20-reinforce-lr0.0003-seed0": "runs/mine",
    "wandb": "csv",
    "--webhook URL": "--quiet",
    "mine.html": "mine.json",
}
SERVERS = {"dashboard", "mcp"}
# In front of a program: these packages are not found, not even by those who only look whether they are there.
ABSENT = """
import sys
class Without:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in LACKING else self.finder.find_spec(name, *more)
    def __getattr__(self, name): return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
EVERY_COMMAND = """
import json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
for name in MODULES:
    import_module(f"ratioscope.{name}")
# torch is half of a command's start, and most commands have no use for it.
assert EXTRA == "trainer" or "torch" not in sys.modules
from ratioscope.__main__ import _command
told = {}
for line in json.loads(sys.argv[1]):
    sys.argv[:], out, err, code = line.split(), StringIO(), StringIO(), 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            _command()
    except SystemExit as ending:
        code = ending.code or 0
    told[line] = (code, err.getvalue())
print(json.dumps(told))
"""


def brought_by(lines: Sequence[str]) -> set[str]:
    """The packages that pip installs for requirements, with those that they require."""
    found, left = set[str](), [Requirement(line) for line in lines]
    while left:
        one = left.pop()
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            with suppress(PackageNotFoundError):
                left += map(Requirement, requires(name) or [])
    return found


def commands_of_readme() -> list[str]:
    """As they stand there and in the guide, on a run and a source that are there."""
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in ("README.md", "docs/guide.md"))
    found = dict.fromkeys(re.findall(r"^(ratioscope [^#\n]+?) *(?:#.*)?$", text, re.MULTILINE))
    known = typer.main.get_command(cli.app).commands.keys() - SERVERS
    lines = [line for line in found if line.split()[1] in known]
    for theirs, ours in OF_THE_READER.items():
        lines = [line.replace(theirs, ours) for line in lines]
    return [f"{line} {' '.join(TINY)} --quiet" if line.split()[1] == "train" else line for line in lines]


@pytest.mark.parametrize("extra", OF_EXTRA)
def test_every_command_of_readme_runs_with_its_extra_or_names_the_one_that_it_needs(extra: str, tmp_path: Path) -> None:
    steps = [random_step(np.random.default_rng(0), step) for step in range(3)]
    for name, algorithm in (("mine", "grpo"), ("other", "reinforce")):
        write_run(tmp_path / "runs" / name, steps, algorithm={"name": algorithm})
    imitated_lines.verl(tmp_path / "outputs", truth.run())
    there = brought_by([*REQUIRED, *EXTRAS.get(extra, [])])
    distributions = {name: {*map(canonicalize_name, of)} for name, of in packages_distributions().items()}
    # What one of those brings in turn, other packages of this environment find installed and count on.
    others = {canonicalize_name(Requirement(line).name) for name in ("dashboard", "trainer") for line in EXTRAS[name]}
    others -= there
    lacking = {name for name, of in distributions.items() if of & others}
    program = ABSENT.replace("LACKING", str(lacking))
    program += EVERY_COMMAND.replace("MODULES", str(OF_EXTRA[extra])).replace("EXTRA", repr(extra))
    commands = commands_of_readme()
    assert {line.split()[1] for line in commands} >= {"import", "report", "diagnose", "explain", "train", "watch"}
    environment = os.environ | {"RATIOSCOPE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    ended = run(sys.executable, "-P", "-c", program, json.dumps(commands), cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr
    for line, (code, said) in json.loads(ended.stdout).items():
        wanted = "trainer" if line.split()[1] == "train" else "dashboard"
        if extra == wanted or code != 2:  # some need less than their extra
            assert code in (0, 1), (line, said)
        else:
            assert said.endswith(f'pip install "ratioscope[{wanted}]".\n'), (line, code, said)


def test_the_bare_command_says_its_version_and_what_it_is_for(tmp_path: Path) -> None:
    for word, said in (("--version", f"ratioscope {ratioscope.__version__}\n"), ("--help", "Usage: ratioscope ")):
        program = f"{BLOCKED}\nsys.argv[:] = ['ratioscope', {word!r}]\nfrom ratioscope.__main__ import main; main()"
        found = run(sys.executable, "-c", program, cwd=ROOT)
        assert (found.returncode, found.stderr) == (0, "") and found.stdout.startswith(said)


def test_a_shell_may_have_closed_what_a_command_prints_to(tmp_path: Path, recorded: Path) -> None:
    for closed in ("2>&- <&-", ">&- 2>&-"):
        line = f'"{sys.executable}" -m ratioscope ls "{recorded.parent}" {closed}'
        found = run("sh", "-c", line, cwd=ROOT, env=os.environ | {"RATIOSCOPE_CACHE": str(tmp_path)})
        assert (found.returncode, found.stderr) == (0, ""), closed
        assert ("one " in found.stdout) == (not closed.startswith(">"))


def pip(python: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """pip of this environment at work on another one."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return run(sys.executable, "-m", "pip", "--quiet", "--python", python, *arguments, env=environment)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel and what it requires, no extra; its python."""
    folder = tmp_path_factory.mktemp("small")
    venv.create(folder / "environment", symlinks=True)
    python = folder / "environment" / "bin" / "python"
    installed = pip(python, "install", "--no-compile", "--no-deps", "--no-index", build_wheel(ROOT, folder))
    assert installed.returncode == 0, installed.stderr
    required = pip(python, "install", "--no-compile", "--constraint", ROOT / "constraints.txt", "numpy", "pyarrow")
    if required.returncode:
        pytest.skip(f"pip cannot install numpy and pyarrow here: {required.stderr.strip().splitlines()[-1]}")
    return python


def test_an_installation_without_extras_records_reads_and_says_what_it_lacks(small: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    checked = pip(small, "check")
    assert checked.returncode == 0, checked.stdout
    found = run(small, "-P", PROGRAM, tmp_path / "run", cwd=tmp_path, env=environment)
    assert (found.returncode, found.stderr) == (0, "")
    opening, tensors = found.stdout.splitlines()
    assert re.fullmatch(r'ratioscope.open_run needs the package \w+: pip install "ratioscope\[dashboard]"\.', opening)
    assert tensors == TENSORS
    asked = run(small.with_name("ratioscope"), "train", "on_policy", cwd=tmp_path, env=environment)
    assert asked.stderr == 'ratioscope: ratioscope train needs the package typer: pip install "ratioscope[trainer]".\n'
    assert (asked.returncode, asked.stdout) == (2, "")


@dataclass(frozen=True)
class Hostile:
    """A working folder full of modules that must not be imported, and how commands run in it."""

    folder: Path
    script: Path
    environment: dict[str, str]

    def ratioscope(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        ended = run(sys.executable, self.script, *arguments, cwd=self.folder, env=self.environment)
        assert ended.returncode in (0, 1) and "Traceback" not in ended.stderr, (arguments, ended.stderr)
        return ended


@contextmanager
def hostile_folder(place: Path, names: Sequence[str], **environment: str) -> Iterator[Hostile]:
    """Modules of these names in a folder below `place`; afterwards, none of them has been imported."""
    folder, marker, script = place / "hostile", place / "imported", place / "bin" / "ratioscope"
    for name in names:
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(marker)!r}, 'a').write(__file__)\nraise SystemExit('imported ' + __file__)\n")
    script.parent.mkdir()
    script.write_text(SCRIPT)
    kept = {"RATIOSCOPE_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    yield Hostile(folder, script, os.environ | kept | environment)
    assert not marker.exists(), marker.read_text()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "one", [random_step(np.random.default_rng(0), step) for step in range(3)])


def test_no_command_imports_what_lies_in_the_working_folder(tmp_path: Path, recorded: Path) -> None:
    with hostile_folder(tmp_path, [*FOLDERS, *MODULES]) as hostile:
        hostile.ratioscope("report", recorded, "-o", "report.html", "--pages", "findings")
        hostile.ratioscope("train", "asynchronous", "actors=1", *TINY, "--folder", tmp_path / "trained", "--quiet")
        asked = run(sys.executable, "-P", "-c", QUERY, recorded, cwd=hostile.folder, env=hostile.environment)
        assert asked.stdout == "{'one': [1]}\n", asked.stderr


def test_python_dash_m_imports_no_command_line_from_the_working_folder(tmp_path: Path, recorded: Path) -> None:
    with hostile_folder(tmp_path, [*FOLDERS, "typer"], PYTHONPATH=str(ROOT)) as hostile:
        command = [sys.executable, "-m", "ratioscope", "ls", recorded.parent]
        ended = run(*command, cwd=hostile.folder, env=hostile.environment)
        assert ended.returncode == 0 and "one " in ended.stdout, ended.stderr


def test_a_repository_with_folders_of_these_names_may_be_on_the_import_path(tmp_path: Path, recorded: Path) -> None:
    with hostile_folder(tmp_path, FOLDERS, PYTHONPATH=f".{os.pathsep}{ROOT}") as hostile:
        hostile.ratioscope("check", recorded)
        hostile.ratioscope("explain", "grpo")


def test_a_server_draws_a_page_and_imports_nothing_from_the_working_folder(tmp_path: Path, recorded: Path) -> None:
    port, output = free_port(), tmp_path / "output.txt"
    with hostile_folder(tmp_path, [*FOLDERS, *MODULES]) as hostile, output.open("wb") as printed:
        command = [sys.executable, hostile.script, "dashboard", recorded.parent, "--port", str(port)]
        options = {"cwd": hostile.folder, "env": hostile.environment, "stdout": printed, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, **options) as server:  # type: ignore[call-overload]
            try:
                await_server(f"http://127.0.0.1:{port}", server, output)
                assert "can its log be trusted?" in page(port, "overview", "run=one")
            finally:
                server.terminate()


def page(port: int, name: str, query: str) -> str:
    """What the server sends to a browser that opens a page, as text."""
    ask, told = BackMsg(), []
    ask.rerun_script.query_string, ask.rerun_script.page_name = query, name
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    with connect(address, subprotocols=[Subprotocol("streamlit")], max_size=None) as browser:
        browser.send(ask.SerializeToString())
        while True:
            message = ForwardMsg.FromString(browser.recv(timeout=60, decode=False))
            told.append(str(message))
            if message.WhichOneof("type") == "script_finished":
                return "\n".join(told)


def test_the_folder_that_streamlit_puts_on_the_import_path_holds_one_script() -> None:
    folder = ROOT / "dashboard" / "entry"
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["ratioscope_app.py"]
    assert '"entry" / "ratioscope_app.py"' in (ROOT / "dashboard" / "launcher.py").read_text(encoding="utf-8")


def test_garbage_is_collected_as_usual_once_a_command_has_imported() -> None:
    program = """
import gc
from ratioscope.__main__ import _collect_later
usual = gc.get_threshold()
_collect_later()
few = [[] for _ in range(100_000)]
assert gc.get_threshold() != usual and len(gc.callbacks) == 1
many = [[] for _ in range(600_000)]
assert gc.get_threshold() == usual and not gc.callbacks
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
