"""What help and documentation show: every example is a command that exists, the quick ones really run."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import cli
from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.bench import benchmark_names
from ratioscope.dashboard.sections import SECTIONS
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from ratioscope.trainer.settings.ablation import STUDIES
from ratioscope.trainer.settings.table import presets
from tests.benchmarks.__main__ import BENCHMARKS, LONG
from tests.making.commands import Outcome, command

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(cli.app).commands
# These read runs and end by themselves.
QUICK = ("ls", "explain", "summarize", "check", "diagnose", "compare", "translate", "watch", "partials")
# The keys that programs rely on; a list is looked into.
KEYS = {
    "ls": {"run", "name", "status", "algorithm", "steps", "created", "source", "problem"},
    "summarize": {"schema_version", "run", "steps"},
    "diagnose": {
        "schema_version",
        "run",
        "thresholds",
        "thresholds_moved",
        "log",
        "left_out",
        "populations",
        "lights",
        "not_seen",
        "findings",
    },
    "check": {"schema_version", "run", "thresholds_moved", "remarks"},
    "translate": {"schema_version", "run", "steps", "first", "frameworks"},
    "compare": {
        *("schema_version", "metric", "by", "until", "ranking", "judged_by", "answers", "instead", "prompts"),
        *("sentences", "pairs", "collapsed", "components", "differences"),
    },
}


@dataclass(frozen=True)
class Example:
    """A command line from a text, and the exit code that the text says."""

    where: str
    words: tuple[str, ...]
    code: int | None = None

    @property
    def is_quick(self) -> bool:
        """Whether it reads no more than two sample runs, or lists them."""
        if self.words[0] in ("ls", "explain", "translate"):
            return True
        runs = [word for word in self.words[1:] if word.partition("/")[0] in ("runs", "sample_runs")]
        return self.words[0] in QUICK and all(run.startswith("sample_runs/") for run in runs)


def parse(where: str, line: str) -> Example:
    """`ratioscope ...` up to the shell's own signs and the comment, which may say `# exit code N`."""
    words = shlex.split(line, comments=True)[1:]
    ends = [place for place, word in enumerate(words) if word in (">", "&", "|", "||", "&&")]
    code = re.search(r"# exit code (\d+)", line)
    return Example(where, tuple(words[: min(ends, default=None)]), int(code[1]) if code else None)


def of_help() -> list[Example]:
    found = [(name, line) for name, shown in COMMANDS.items() for line in (shown.epilog or "").splitlines()]
    return [parse(f"{name} --help", line.removeprefix("Example: ")) for name, line in found if "Example: " in line]


def of_page() -> list[Example]:
    text = (ROOT / "docs" / "continuous_integration.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    return [parse("continuous_integration.md", line) for block in blocks for line in block.splitlines()]


def of_workflow() -> list[Example]:
    workflow = yaml.safe_load((ROOT / "docs" / "workflow.yml").read_text(encoding="utf-8"))
    lines = [line for step in workflow["jobs"]["run"]["steps"] for line in step.get("run", "").splitlines()]
    return [parse("workflow.yml", line) for line in lines if line.startswith("ratioscope ")]


EXAMPLES = [*of_help(), *of_page(), *of_workflow()]
TO_RUN = list({example.words: example for example in EXAMPLES if example.is_quick}.values())


def shown(example: Example) -> str:
    return " ".join(example.words)


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """ratioscope("ls", folder) -> what the console command did, with the checkout as its folder."""
    monkeypatch.chdir(ROOT)
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


def test_there_are_examples_of_every_command() -> None:
    assert {example.where for example in of_help()} == {f"{name} --help" for name in COMMANDS}
    assert {example.words[0] for example in of_help()} == set(COMMANDS)
    assert {"check", "diagnose", "report", "watch"} <= {example.words[0] for example in of_page()}
    assert {"check", "diagnose", "report", "watch", "train"} <= {example.words[0] for example in of_workflow()}


@pytest.mark.parametrize("example", EXAMPLES, ids=shown)
def test_every_example_is_a_command_with_options_that_exist(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[dict[str, Any]] = []
    app = typer.main.get_command(cli.app)
    for one in app.commands.values():
        monkeypatch.setattr(one, "callback", lambda **values: called.append(values))
    app.main(list(example.words), prog_name="ratioscope", standalone_mode=False)
    assert len(called) == 1


@pytest.mark.parametrize("example", TO_RUN, ids=shown)
def test_a_quick_example_does_what_its_text_says(ratioscope: Callable[..., Outcome], example: Example) -> None:
    outcome = ratioscope(*example.words)
    assert outcome.code in ((0, 1) if example.code is None else (example.code,)), outcome.err
    if outcome.code == 2:
        outcome.failed()
        return
    assert not outcome.err and outcome.out.strip()
    if "--json" in example.words:
        contents = json.loads(outcome.out)
        for found in contents if isinstance(contents, list) else [contents]:
            assert found.keys() == KEYS[example.words[0]]


def test_every_json_is_among_the_examples_that_run() -> None:
    assert {example.words[0] for example in TO_RUN if "--json" in example.words} == set(KEYS)


def test_values_that_a_shell_completes_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {*ALGORITHMS, *ALIASES}
    assert set(completion.algorithm_names()) == names
    assert set(completion.presets("")) == {*presets(), *names}
    assert set(completion.grids("")) == {*(path.stem for path in STUDIES.glob("*.toml")), *presets(), *names}
    assert completion.complete_settings("algorithm=gsp") == ["algorithm=gspo"]
    assert completion.metrics("khat") == [key for key in CATALOGUE if key.startswith("khat")] != []
    assert {"format", "s_k", "grpo", "actor/ppo_kl"} <= set(completion.explained(""))
    assert completion.frameworks("") == list(DIALECTS)
    assert set(completion.reported("")) == {row.name for each in DIALECTS.values() for row in each.rows} | {*CATALOGUE}
    assert benchmark_names() == sorted((*BENCHMARKS, *LONG))
    assert completion.report_pages("") == list(SECTIONS)
    assert completion.report_pages("drift,cl") == ["drift,clipping"]
    monkeypatch.chdir(ROOT)
    runs = [f"sample_runs/{folder.name}" for folder in sorted(Path("sample_runs").iterdir()) if folder.is_dir()]
    assert completion.folders("sample_r") == ["sample_runs", *runs]
    assert completion.folders("sample_runs/mism") == ["sample_runs/mismatch-grpo-seed0"]
    assert completion.folders("no/such/folder") == []


def test_completion_and_help_need_none_of_the_large_libraries() -> None:
    code = (
        "import sys; from ratioscope.dashboard import cli; from ratioscope.dashboard.cli import completion as c;"
        "c.presets(''), c.grids(''), c.explained(''), c.folders(''), c.metrics(''), c.frameworks(''), c.reported('');"
        "large = {'torch', 'pandas', 'duckdb', 'streamlit', 'scipy', 'plotly'};"
        "sys.exit(', '.join(large & sys.modules.keys()) or None)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_shell_is_answered(tmp_path: Path) -> None:
    environment = {"_RATIOSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "ratioscope explain s_", "COMP_CWORD": "2"}
    found = subprocess.run(
        [sys.executable, "-P", "-m", "ratioscope"], cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": "", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "s_k" in found.stdout.split()
