"""Imports run one way, in no circle: dashboard -> analysis -> ratioscope <- trainer; the floor needs pyarrow alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What each package may import of the others.
ALLOWED = {
    "ratioscope": set(),
    "analysis": {"ratioscope"},
    "trainer": {"ratioscope"},
    "dashboard": {"ratioscope", "analysis"},
}
# The command line knows all four. `ratioscope.open_run` is the one door from the floor up to the figures, and lazy;
# nobody imports the program `ratioscope.__main__`.
EXCEPTIONS = {
    "dashboard/cli/completion.py": {"trainer"},
    "dashboard/cli/training.py": {"trainer"},
    "dashboard/cli/runs.py": {"trainer"},
    "ratioscope/__init__.py": {"dashboard"},
    "ratioscope/__main__.py": {"dashboard"},
    # An adapter imports the framework that it is for.
    "ratioscope/adapters/trl/recorder.py": {"transformers"},
    "ratioscope/adapters/stopping.py": {"transformers"},
}
# Whole libraries that a folder must not import.
FORBIDDEN = {
    "ratioscope": {"duckdb", "streamlit", "plotly", "pandas", "transformers", "dashboard"},
    "analysis": {"streamlit", "plotly"},
    "trainer": {"streamlit", "plotly", "duckdb"},
    "dashboard/figures": {"streamlit"},
}


def sources() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for name in ALLOWED for path in sorted((ROOT / name).rglob("*.py"))]


def imported(source: str, text: str) -> Iterator[str]:
    """Packages of ours and top-level names of others' of everything a file imports, at any depth of the code."""
    for node in ast.walk(ast.parse(text, source)):
        if isinstance(node, ast.Import):
            yield from (package_of(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "ratioscope":
            yield from (package_of(f"ratioscope.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield source.split("/")[0] if node.level else package_of(node.module or "")


def package_of(module: str) -> str:
    """`analysis` for ratioscope.analysis and what is in it, `ratioscope` for the floor."""
    top, _, rest = module.partition(".")
    inner = rest.split(".")[0]
    return inner if top == "ratioscope" and inner in ALLOWED else top


def violations(source: str, text: str) -> set[str]:
    package = source.split("/")[0]
    allowed = ALLOWED[package] | EXCEPTIONS.get(source, set()) | {package}
    names = set(imported(source, text))
    forbidden = {name for folder, banned in FORBIDDEN.items() if source.startswith(f"{folder}/") for name in banned}
    return (names & ALLOWED.keys() - allowed) | (names & forbidden - allowed)


def test_no_import_runs_the_wrong_way() -> None:
    found = {source: violations(source, (ROOT / source).read_text(encoding="utf-8")) for source in sources()}
    assert len(found) > 200
    assert {source: names for source, names in found.items() if names} == {}


def test_no_imports_go_in_a_circle() -> None:
    """Not even inside of functions or for type checkers; `ratioscope.open_run` alone reaches up, and says why."""
    modules = {_module(source): source for source in sources()}
    graph = {
        name: {
            module if (module := f"{node.module}.{alias.name}") in modules else str(node.module)
            for node in ast.walk(ast.parse((ROOT / source).read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for name, source in modules.items()
        if source not in ("ratioscope/__init__.py", "ratioscope/__main__.py")
    }
    assert len([*TopologicalSorter(graph).static_order()]) > len(modules) - 2  # raises at a circle
    rooms: dict[str, set[str]] = {}
    for name, found in graph.items():
        if name.startswith("ratioscope.analysis."):
            inside = {module.split(".")[2] for module in found if module.startswith("ratioscope.analysis.")}
            rooms.setdefault(name.split(".")[2], set()).update(inside - {name.split(".")[2]})
    assert len([*TopologicalSorter(rooms).static_order()]) == len(rooms)


def _module(source: str) -> str:
    name = source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.split(".")[0] == "ratioscope" else f"ratioscope.{name}"


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("analysis/x.py", "import streamlit as st", {"streamlit"}),
        ("analysis/x.py", "def f():\n    from ratioscope.dashboard.figures import base", {"dashboard"}),
        ("dashboard/figures/x.py", "import streamlit", {"streamlit"}),
        ("dashboard/views/x.py", "import streamlit", set()),
        ("dashboard/views/x.py", "from ratioscope.trainer.training.loop import Trainer", {"trainer"}),
        ("dashboard/cli/training.py", "from ratioscope.trainer.training.loop import Trainer", set()),
        ("ratioscope/x.py", "import ratioscope.run_format.schema\nimport ratioscope.analysis.runs.store", {"analysis"}),
        ("trainer/x.py", "from ratioscope.analysis import summary", {"analysis"}),
    ],
)
def test_the_check_finds_what_it_looks_for(source: str, text: str, found: set[str]) -> None:
    assert violations(source, text) == found


@pytest.mark.parametrize(
    "module", ["ratioscope", "ratioscope.run_format.schema", "ratioscope.run_format.manifest", "ratioscope.recorder"]
)
def test_the_floor_needs_pyarrow_and_the_standard_library_only(module: str) -> None:
    blocked = ["torch", "duckdb", "streamlit", "pandas", "transformers", "scipy", "plotly"]
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import {module}"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("package", ALLOWED)
def test_every_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
