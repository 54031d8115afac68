"""The tests of what changed: those that import it, nearest first, for about a minute; `make quick`.

What changed is what is not in the upstream branch, or since the last commit where there is none. How long a file takes
is known from the last `make test` (`tests.times`). What is not reached by imports (a command, the browser) is left to
`make test`, as is what there is no time for.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

from tests.times import ROOT, by_file

# Seconds of all processes together; what a file is taken for that is not on record.
BUDGET, UNKNOWN = 100.0, 8.0
LINKED = ("analysis", "dashboard", "trainer")
"""Folders that are packages in `ratioscope` through a link."""
OF_THE_TREE = ("tests.test_layering", "tests.test_docs")
"""These read every file, whoever imports it."""


def changed() -> list[str]:
    """Paths of what differs from the upstream branch, or of what is not committed."""
    upstream = _git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    return sorted({*_git("diff", "--name-only", *upstream), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.splitlines()


def modules_of(path: str, modules: set[str]) -> Iterator[str]:
    """The modules that change with a file: itself and its test, those beside SQL or prose, those below a conftest."""
    place = Path(f"ratioscope/{path}" if path.split("/")[0] in LINKED else path)
    names = {folder: ".".join(folder.parts) for folder in place.parents}
    if place.name == "conftest.py":
        yield from (module for module in modules if module.startswith(f"{names[place.parent]}."))
    elif place.suffix == ".py":
        yield ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        yield from (module for module in modules if module.endswith(f".test_{place.stem}"))
    else:
        beside = ([m for m in modules if m.rpartition(".")[0] == name] for name in names.values() if name)
        yield from next((found for found in beside if found), [])


def by_distance(paths: list[str], graph: grimp.ImportGraph) -> list[str]:
    """Modules of tests that import what changed, with the fewest steps between first."""
    found = {name: 0 for path in paths for name in modules_of(path, graph.modules) if name in graph.modules}
    for name in (waiting := list(found)):
        for importer in sorted(graph.find_modules_that_directly_import(name) - found.keys()):
            found[importer] = found[name] + 1
            waiting.append(importer)
    return [name for name in found if name.rpartition(".")[2].startswith("test_")]


def affordable(names: list[str], seconds: float = BUDGET) -> list[str]:
    """As many of the tests as there is time for, in their order."""
    known, left = by_file(), seconds
    chosen: list[str] = []
    for name in names:
        cost = sum(known[name].values()) if name in known else UNKNOWN
        if cost <= left or not chosen:
            chosen.append(name)
            left -= cost
    return chosen


def main() -> int:
    paths = changed()
    if not paths:
        print("Nothing has changed.")
        return 0
    graph = grimp.build_graph("ratioscope", "tests", cache_dir=str(ROOT / ".pytest_cache" / "imports"))
    names = [*dict.fromkeys([*by_distance(paths, graph), *OF_THE_TREE])]
    chosen = affordable(names)
    print(f"{len(chosen)} of the {len(names)} test files that what changed reaches, the nearest", flush=True)
    files = [f"{name.replace('.', '/')}.py" for name in chosen]
    command = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:], *files]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
