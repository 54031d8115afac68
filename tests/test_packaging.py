"""What an installation holds: the same from a checkout, a source distribution and an editable installation."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from ratioscope.dashboard.demo import GUIDED
from ratioscope.versioning import version_of as version_of_checkout
from tests.making.packages import ROOT, Built, build_all, modules_below, names_in

FOLDERS = {"ratioscope": "ratioscope", **{name: f"ratioscope/{name}" for name in ("analysis", "dashboard", "trainer")}}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# The runs that the demo guides to are those that travel.
SHIPPED = [name for _, name, _ in GUIDED]
# Asked for and missed with a sentence of their own.
OPTIONAL = {"numba", "huggingface_hub", "peft", "ray", "reasoning_gym", "transformers"}
# What one command needs, `ratioscope mcp`; its extra is the dashboard's and these.
OF_ASSISTANTS = {Requirement(line).name for line in EXTRAS["mcp"]} - {"ratioscope"}
# Frameworks that an adapter of theirs records in: whoever imports it has them.
FRAMEWORKS = {"skyrl"}
# Packages that are installed by another name than they are imported by.
IMPORTED_AS = {"pysimdjson": "simdjson"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("built"))


def test_a_wheel_is_the_same_from_a_checkout_and_from_a_source_distribution(built: Built) -> None:
    assert names_in(built.wheel) == names_in(built.wheel_from_source)
    assert built.wheel.read_bytes() == built.wheel_from_source.read_bytes()


def test_a_wheel_holds_every_file_of_the_packages_under_one_name(built: Built) -> None:
    wanted = {f"ratioscope/dashboard/{name}" for run in SHIPPED for name in files_of(f"sample_runs/{run}")}
    for folder, package in FOLDERS.items():
        wanted |= {package + name.removeprefix(folder) for name in files_of(folder)}
    names = names_in(built.wheel)
    assert {name for name in names if name.startswith("ratioscope/")} == wanted
    assert {Path(name).suffix for name in wanted} >= {".py", ".sql", ".css", ".js", ".toml", ".j2", ".json", ".typed"}
    assert {name.partition("/")[0] for name in names} == {"ratioscope", f"ratioscope-{version_of(built)}.dist-info"}


def test_an_editable_installation_offers_the_modules_of_the_wheel_and_no_other(built: Built) -> None:
    names = names_in(built.editable)
    (path_file,) = (name for name in names if ".dist-info/" not in name)
    with zipfile.ZipFile(built.editable) as wheel:
        (folder,) = wheel.read(path_file).decode().splitlines()
    assert modules_below(Path(folder)) == {name for name in names_in(built.wheel) if name.endswith(".py")}
    assert [path.name for path in Path(folder).iterdir()] == ["ratioscope"]


def test_a_source_distribution_holds_the_sources_and_nothing_that_work_leaves_behind(built: Built) -> None:
    names = names_in(built.source)
    assert {name.partition("/")[0] for name in names} == {
        *(*FOLDERS, "tests", "docs", "sample_runs", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
        *("LICENSE", "PKG-INFO", "pyproject.toml", "constraints.txt", ".gitignore", "CITATION.cff", "SKILL.md"),
    }
    assert not [name for name in names if "__pycache__" in name or "_cache/" in name]
    assert {name.split("/")[1] for name in names if name.startswith("sample_runs/")} == set(SHIPPED)
    assert built.source.stat().st_size < 5_500_000  # two starts of the built-in model are a third of it
    assert built.wheel.stat().st_size < 5_000_000


@pytest.mark.parametrize(
    ("extra", "folders"),
    [
        ("dashboard", ("ratioscope", "analysis", "dashboard")),
        ("trainer", ("ratioscope", "trainer", "dashboard/cli")),
    ],
)
def test_every_package_that_is_imported_is_in_the_extra(extra: str, folders: tuple[str, ...]) -> None:
    installed = {Requirement(line).name for line in (*PROJECT["dependencies"], *EXTRAS[extra])}
    declared = {IMPORTED_AS.get(name, name) for name in installed}
    imported = {name for folder in folders for name in packages_imported(ROOT / folder)}
    assert imported - declared - OPTIONAL - FRAMEWORKS - OF_ASSISTANTS == set()


def test_all_is_the_dashboard_and_the_trainer() -> None:
    assert EXTRAS["all"] == ["ratioscope[dashboard,trainer,fast,mcp]"]


def test_no_version_of_a_young_interface_is_allowed_that_nobody_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    lines = [*EXTRAS["dashboard"], *EXTRAS["mcp"]]
    wanted = {Requirement(line).name: Requirement(line).specifier for line in lines}
    for name in ("streamlit", "plotly", "duckdb", "mcp"):
        assert tested[name] in wanted[name]
        assert f"{int(tested[name].split('.')[0]) + 1}.0" not in wanted[name]


@pytest.mark.parametrize(
    ("tags", "commits", "dirty", "version"),
    [
        ((), 1, False, "1.4.0+untagged"),
        (("v1.4.0",), 0, False, "1.4.0"),
        (("v1.4.0",), 2, False, "1.4.1.dev2+gHASH"),
        (("v1.4.0",), 0, True, "1.4.1.dev0+gHASH.dirty"),
        (("stable", "v2"), 0, False, "1.4.0+untagged"),
    ],
)
def test_the_version_comes_from_the_nearest_tag(
    tmp_path: Path, tags: tuple[str, ...], commits: int, dirty: bool, version: str
) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-C", str(tmp_path))
        return subprocess.run(["git", *identity, *arguments], capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n## 1.4.0\n\n## 1.3.0\n")
    git("add", ".")
    git("commit", "-qm", "first")
    for tag in tags:
        git("tag", tag)
    for _ in range(commits):
        git("commit", "-q", "--allow-empty", "-m", "more")
    if dirty:
        changelog.write_text("changed")
    hashed = git("rev-parse", "--short", "HEAD").strip()
    assert version_of_checkout(tmp_path) == str(Version(version.replace("HASH", hashed)))


def test_a_folder_without_git_has_the_version_of_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 1.4.0\n")
    assert version_of_checkout(tmp_path) == "1.4.0+untagged"
    (tmp_path / "CHANGELOG.md").unlink()
    assert version_of_checkout(tmp_path) == "0.0.0+untagged"


def files_of(folder: str) -> Iterator[str]:
    """The files of a top folder that belong to an installation, relative to the root; links are not followed."""
    for path in (ROOT / folder).rglob("*"):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and "__pycache__" not in name:
            yield name


def packages_imported(folder: Path) -> Iterator[str]:
    """Top-level names of what is imported at any depth of the code, without the standard library and ratioscope."""
    for source in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"), source)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"ratioscope"}


def version_of(built: Built) -> str:
    return built.wheel.name.split("-")[1]
