"""What moved upstream: names, methods and defaults that our code counts on, in other programs' newest sources.

    python -m tests.making.upstream                        # newest wheels against the releases that were read
    python -m tests.making.upstream --clone                # and repositories of programs without a package
    python -m tests.making.upstream SkyRL --newest SkyRL=FOLDER

What is counted on stands where it is used: an importer's or a recorder's module says in its docstring what it was read
against and in which files, and its strings and attributes are the names; presets, definitions and remedies have theirs
in `analysis.frameworks`. Of all these words those count that the release held to has in those files; they have moved
where the newest has not. Sources are downloaded and parsed: nothing of another program is installed, imported or run.
Exit code 1: something moved.
"""

import argparse
import ast
import difflib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.presets import PRESETS
from ratioscope.analysis.frameworks.remedies import REMEDIES
from ratioscope.analysis.frameworks.sources import FRAMEWORKS

ROOT = Path(__file__).parents[2]

# Program, as docstrings name it -> its package on PyPI, whose own name serves as well. Wheels that are placeholders
# (NeMo-RL, slime) are none.
PACKAGES = {
    "agentlightning": "agentlightning", "AReaL": "areal", "ART": "openpipe-art", "Atropos": "atroposlib",
    "baseten-loops": "baseten-loops", "Harbor": "harbor", "ms-swift": "ms-swift",
    "Gym": "nemo-gym", "NeMo-Gym": "nemo-gym", "OpenRLHF": "openrlhf", "SkyRL": "skyrl", "tinker": "tinker",
    "tinker-cookbook": "tinker-cookbook", "Trinity-RFT": "trinity-rft", "TRL": "trl", "Unsloth": "unsloth-zoo",
    "verifiers": "verifiers", "verl": "verl",
}  # fmt: skip
# Repositories of what has no presets; those of the others stand in `analysis.frameworks.sources`.
REPOSITORIES = {"rLLM": "rllm-org/rllm", "RLLoggingBoard": "HarderThenHarder/RLLoggingBoard"}
REPOSITORIES |= {framework.title: framework.repository for framework in FRAMEWORKS.values()}

_TITLES = {"tinker": "tinker-cookbook"}  # its presets are of the cookbook, whose service is tinker

_READ = re.compile(r"\bRead\s+(?:against|from)\s+(?:[\w.-]+/)?(?P<program>[A-Za-z][\w-]*)\s+(?P<release>[^:`(/]*)")
_PAST = "the last to write it"
_RELEASE = re.compile(r"\b(\d+(?:\.\d+)+|(?=[0-9a-f]*\d)[0-9a-f]{7,40})\b")
_FILE = re.compile(r"[\w./-]+\.(?:py|yaml)\b|\b\w+(?:/\w+)+\b")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
# What values of any program have: these are ours and not a framework's.
_ANYBODYS = frozenset().union(*(dir(kind) for kind in (str, bytes, dict, list, set, Path, re.Match, np.ndarray, np)))


@dataclass(frozen=True)
class Held:
    """One part of ours that was read against a program."""

    part: str
    """A module or package of ours, relative to the repository."""
    program: str
    releases: tuple[str, ...]
    """Releases and commits, the last one newest."""
    files: tuple[str, ...]
    """Ends of the paths of their files and folders."""
    words: frozenset[str]
    """What may be a name of theirs."""
    signatures: bool = False
    """Whether functions of those names are wrapped, so that their arguments count, too."""
    past: bool = False
    """Whether it is of files that the program does not write any more: nothing newer can be like it."""
    whole_owners: bool = False
    """Whether of a class with one such field all defaults count: those behind presets."""

    @property
    def commit(self) -> str:
        return next((one for one in reversed(self.releases) if "." not in one), "")

    @property
    def release(self) -> str:
        return next((one for one in reversed(self.releases) if "." in one), "")


@dataclass(frozen=True)
class Moved:
    """One thing that is not where it was."""

    what: str
    where: str
    """Part of ours that counts on it."""
    expected: str
    found: str
    release: str

    def __str__(self) -> str:
        return f"{self.release}: {self.what}; {self.where} expects {self.expected}; found {self.found}"


def package_of(program: str) -> str:
    """Its package on PyPI; "" where it has none."""
    return PACKAGES.get(program) or (program if program in PACKAGES.values() else "")


# What is held ---------------------------------------------------------------------------------------------------------


def held_parts() -> list[Held]:
    """Importers and recorders by their docstrings, then presets, definitions and remedies by framework."""
    return [*_modules("analysis/importers/formats"), *_modules("ratioscope/adapters"), *_frameworks()]


def held_in(text: str, part: str, files: Iterable[str], *, attributes: bool) -> list[Held]:
    """What a module's docstring says that it was read against: each program, with the files that are named after it.

    Args:
        text: of the module.
        part: its name.
        files: texts of all files of the part.
        attributes: whether attributes are names of theirs, too.
    """
    said = ast.get_docstring(ast.parse(text)) or ""
    words = frozenset().union(*(_mentioned(ast.parse(each), attributes) for each in files))
    found = [*_READ.finditer(said)]
    places = pairwise([*(each.start() for each in found), len(said)])
    return [
        Held(
            part,
            each["program"],
            tuple(_RELEASE.findall(each["release"])),
            _named_files(said[begin:end]),
            words,
            signatures=attributes,
            past=_PAST in each["release"],
        )
        for each, (begin, end) in zip(found, places, strict=True)
    ]


def _modules(folder: str) -> Iterator[Held]:
    for place in sorted((ROOT / folder).iterdir()):
        module = place / "__init__.py" if place.is_dir() else place
        if module.suffix != ".py" or not module.is_file():
            continue
        files = [each.read_text(encoding="utf-8") for each in (place.glob("*.py") if place.is_dir() else [place])]
        part = place.relative_to(ROOT).as_posix()
        yield from held_in(module.read_text(encoding="utf-8"), part, files, attributes="adapters" in folder)


def _frameworks() -> Iterator[Held]:
    for key, framework in FRAMEWORKS.items():
        texts = [preset.setting for preset in PRESETS if preset.framework is framework]
        texts += [advice.setting for advice in REMEDIES.get(key, ())]
        if key in DIALECTS:
            texts += [row.name for row in DIALECTS[key].rows] + [DIALECTS[key].settings]
        words = frozenset([*framework.defaults, *(word for text in texts for word in _WORD.findall(text))])
        title = _TITLES.get(framework.title, framework.title)
        releases = tuple(_RELEASE.findall(framework.version))
        yield Held(
            f"analysis/frameworks ({key})", title, releases, _named_files(framework.files), words, whole_owners=True
        )


def _named_files(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip("./") for name in _FILE.findall(text)))


def _mentioned(tree: ast.Module, attributes: bool) -> frozenset[str]:
    """Words of the strings that are no docstrings and no sentences, and attributes."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            found |= set(_WORD.findall(node.value)) if " " not in node.value else set()
        elif attributes and isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif attributes and isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
    return frozenset(found - _ANYBODYS)


# What a program has ---------------------------------------------------------------------------------------------------


class Sources:
    """The files of a program, unpacked."""

    def __init__(self, folder: Path, release: str) -> None:
        self.folder, self.release = folder, release
        self._parsed: dict[Path, _Parsed] = {}

    @cached_property
    def files(self) -> list[Path]:
        return sorted(
            path.relative_to(self.folder)
            for path in self.folder.rglob("*")
            if path.suffix in (".py", ".yaml") and "tests" not in path.parts and path.is_file()
        )

    def named(self, end: str) -> list[Path]:
        """Files whose path ends so, or that lie in a folder whose path does; a name without folders may be several."""
        return [file for file in self.files if f"/{file.as_posix()}".endswith(f"/{end}") or
                ("." not in end and f"/{end}/" in f"/{file.parent.as_posix()}/")]  # fmt: skip

    def parsed(self, file: Path) -> "_Parsed":
        if file not in self._parsed:
            self._parsed[file] = _Parsed.of((self.folder / file).read_text(encoding="utf-8", errors="replace"), file)
        return self._parsed[file]


@dataclass(frozen=True)
class _Parsed:
    """What a file has."""

    words: frozenset[str]
    defaults: Mapping[str, Any]
    """Of fields, arguments and options, by `Owner.name`, as their source text."""
    arguments: Mapping[str, tuple[str, ...]]
    """Of functions, by name."""

    @classmethod
    def of(cls, text: str, file: Path) -> "_Parsed":
        try:
            tree = ast.parse(text) if file.suffix == ".py" else None
        except SyntaxError:
            tree = None
        if tree is None:
            return cls(frozenset(_WORD.findall(text)), {}, {})
        words: set[str] = set()
        for node in ast.walk(tree):
            for each in ("id", "attr", "arg", "name"):
                words |= {value} if isinstance(value := getattr(node, each, None), str) else set()
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words |= set(_WORD.findall(node.value))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        arguments = {
            node.name: tuple(arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)) for node in functions
        }
        return cls(frozenset(words), dict(_defaults(tree)), arguments)


def _defaults(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, str]]:
    """Of fields, arguments, returned dictionaries and options of the command line, by owner."""
    for node in ast.iter_child_nodes(tree):
        inside = owner
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            inside = f"{owner}.{node.name}".lstrip(".")
        if isinstance(node, ast.AnnAssign) and isinstance(tree, ast.ClassDef) and node.value is not None:
            yield f"{owner}.{ast.unparse(node.target)}", _literal(node.value)
        elif isinstance(node, ast.FunctionDef):
            plain = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            named = [pair for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if pair[1]]
            for argument, default in [*zip(plain, node.args.defaults, strict=True), *named]:
                if default is not None:
                    yield f"{inside}.{argument.arg}", _literal(default)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield f"{owner}.{key.value!s}", _literal(value)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            option, literal = node.args[0].value, _literal(node)
            if isinstance(option, str) and option.startswith("--") and literal != ast.unparse(node):
                yield option.lstrip("-").replace("-", "_"), literal
        yield from _defaults(node, inside)


def _literal(value: ast.expr) -> str:
    """What `field(default=...)` and its like hold; the expression itself elsewhere."""
    if isinstance(value, ast.Call):
        value = next((each.value for each in value.keywords if each.arg == "default"), value)
    return ast.unparse(value)


# What moved -----------------------------------------------------------------------------------------------------------


def moved(held: Held, before: Sources, now: Sources) -> list[Moved]:
    """What a part of ours counts on, is in the release that it is held to, and is not or is otherwise in the newest."""
    found: list[Moved] = []
    then, newest = _gathered(before, held.files), _gathered(now, held.files)

    def say(what: str, expected: str, there: str) -> None:
        found.append(Moved(what, held.part, f"{expected} ({held.program} {before.release})", there, now.release))

    for end in held.files:
        if before.named(end) and not now.named(end):
            name = end.rpartition("/")[2]
            say("a file is gone", end, ", ".join(map(str, now.named(name)[:3])) or "no file of that name")
    expected = held.words & then.words
    for word in sorted(expected - newest.words):
        elsewhere = next((str(file) for file in now.files if word in now.parsed(file).words), "")
        near = difflib.get_close_matches(word, newest.words - then.words, 1, 0.75)
        say(
            "a name is gone",
            word,
            f"it in {elsewhere}" if elsewhere else f"{near[0]} that is new" if near else "nothing",
        )
    owners = {name.rpartition(".")[0] for name in then.defaults if name.rpartition(".")[2] in expected}
    for name in sorted(then.defaults):
        owner, _, field = name.rpartition(".")
        counts = held.whole_owners and (owner in owners or _is_named(owner, expected))
        is_now = newest.defaults.get(name, "none" if held.whole_owners and field in expected else None)
        if (counts or field in expected) and is_now not in (None, then.defaults[name]):
            say("a default moved", f"{name} = {then.defaults[name]}", str(is_now))
    for name in sorted(expected & then.arguments.keys() & newest.arguments.keys()) if held.signatures else ():
        if then.arguments[name] != newest.arguments[name]:
            say(
                "arguments moved",
                f"{name}({', '.join(then.arguments[name])})",
                f"({', '.join(newest.arguments[name])})",
            )
    return found


def _is_named(owner: str, words: Iterable[str]) -> bool:
    """Whether a class is called after one of the words: CISPOConfig after cispo."""
    return any(len(word) > 3 and word in owner.lower() for word in words)


def _gathered(sources: Sources, ends: Iterable[str]) -> _Parsed:
    parsed = [sources.parsed(file) for end in ends for file in sources.named(end)]
    return _Parsed(
        frozenset().union(*(each.words for each in parsed)),
        {name: value for each in parsed for name, value in each.defaults.items()},
        {name: value for each in parsed for name, value in each.arguments.items()},
    )


# Where sources come from ----------------------------------------------------------------------------------------------


def unpacked(archive: Path, folder: Path) -> Path:
    """A wheel's or a source distribution's files, below the folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
    return folder


def from_package(package: str, release: str, folder: Path) -> Sources | None:
    """A release of a package, "" for the newest; None: no wheel, and a source distribution would be run to be read."""
    wanted = f"{package}=={release}" if release else package
    into = folder / f"{package}-{release or 'newest'}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--python-version", "3.12", "--dest", str(into), wanted]  # fmt: skip
    if subprocess.run(command, check=False, capture_output=True).returncode or not (wheels := [*into.glob("*.whl")]):
        return None
    return Sources(unpacked(wheels[0], into / "files"), wheels[0].name.split("-")[1])


def from_repository(place: str, commit: str, folder: Path) -> Sources | None:
    """A commit of a repository, "" for the newest; None: it is not to be had."""
    clone = folder / re.sub(r"\W+", "_", place)
    if (
        not clone.exists()
        and _git("clone", "--quiet", "--filter=blob:none", "--no-checkout", place, str(clone)) is None
    ):
        return None
    tree = folder / f"{clone.name}-{commit or 'newest'}"
    if not tree.exists() and _git("-C", str(clone), "worktree", "add", "--detach", str(tree), commit or "HEAD") is None:
        return None
    return Sources(tree, (_git("-C", str(tree), "rev-parse", "--short=9", "HEAD") or "").strip())


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], check=False, capture_output=True, text=True)
    return None if done.returncode else done.stdout


@dataclass(frozen=True)
class Upstream:
    """Where the sources of programs come from."""

    folder: Path
    clone: bool = False
    newest: Mapping[str, str] = ()  # type: ignore[assignment]
    """Program -> folder or repository that stands for its newest release."""

    def both(self, held: Held) -> tuple[Sources | None, Sources | None]:
        """Sources of the release that a part is held to, and of the newest; None: not to be had."""
        given, package = dict(self.newest).get(held.program), package_of(held.program)
        if given is not None and not (Path(given) / "HEAD").exists() and not (Path(given) / ".git").exists():
            return self._held(held), Sources(Path(given), Path(given).name)
        if package and held.release and given is None:
            return self._held(held), from_package(package, "", self.folder)
        place = given or (f"https://github.com/{REPOSITORIES[held.program]}" if held.program in REPOSITORIES else "")
        if place and (given or self.clone):
            return from_repository(place, held.commit, self.folder), from_repository(place, "", self.folder)
        return None, None

    def _held(self, held: Held) -> Sources | None:
        package = package_of(held.program)
        return from_package(package, held.release, self.folder) if package and held.release else None


def compare(
    parts: Iterable[Held], both: Callable[[Held], tuple[Sources | None, Sources | None]]
) -> Iterator[Moved | str]:
    """What moved, and of each part without it a line that says so."""
    for held in parts:
        if held.past:
            continue
        before, now = both(held)
        if before is None or now is None:
            yield f"{held.program}: not installable, held to {' and '.join(held.releases)} ({held.part})"
        elif before.release == now.release:
            yield f"{held.program} {now.release}: nothing newer ({held.part})"
        elif found := moved(held, before, now):
            yield from found
        else:
            yield f"{held.program} {now.release}: nothing moved since {before.release} ({held.part})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="only these")
    parser.add_argument("--clone", action="store_true", help="clone what has no package")
    parser.add_argument("--newest", action="append", default=[], metavar="PROGRAM=PLACE", help="a folder or repository")
    given = parser.parse_args(arguments)
    parts = [held for held in held_parts() if not given.programs or held.program in given.programs]
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        upstream = Upstream(Path(folder), given.clone, dict(each.split("=", 1) for each in given.newest))
        cached: dict[Any, Any] = {}

        def both(held: Held) -> tuple[Sources | None, Sources | None]:
            key = (held.program, held.releases)
            if key not in cached:
                cached[key] = upstream.both(held)
            found: tuple[Sources | None, Sources | None] = cached[key]
            return found

        lines = list(compare(parts, both))
    print(*lines, sep="\n")
    return int(any(isinstance(line, Moved) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
