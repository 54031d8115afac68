"""How many of a fixed sample of mutants the tests kill: `python -m tests.making.mutants CHECKOUT [COUNT]`.

A mutant is one changed operator, constant or condition in the floor or in the rooms `summary` and `findings`. It is
written into CHECKOUT, a clean clone that is put back afterwards, where the tests that import its module run, nearest
first, until one fails. The sample depends on the code alone: before and after a change of tests it is the same, and
those that stay alive are named, so that the tests which were changed can be asked of them as they were before.
"""

import ast
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grimp

from tests.quick import affordable, by_distance

FOLDERS = ("ratioscope", "analysis/summary", "analysis/findings")
SEED = 31
COUNT = 100
SECONDS = 60.0
"""Of tests for each mutant, as long as they took in the last `make test`; one that makes them last ten times as long is
killed."""

_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
"""How an operator is written, and what is written in its place."""


class Mutant(NamedTuple):
    """Other text for a stretch of a file."""

    path: str
    line: int
    first: int
    last: int
    """Characters of the file, first included, last not."""
    text: str

    def of(self, source: str) -> str:
        """The file with it."""
        return source[: self.first] + self.text + source[self.last :]


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a file; texts that people read and annotations are left alone."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        before = source[starts[line - 1] :].encode()[:column]
        return starts[line - 1] + len(before.decode())

    def end(node: ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return place(node.end_lineno, node.end_col_offset)

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutant]:
        known, other = _OPERATORS.get(type(operator), ("", ""))
        first = end(left)
        if known and source[first : place(right.lineno, right.col_offset)].strip(" \n()") == known:
            at = source.index(known, first)
            yield Mutant(path, source.count("\n", 0, at) + 1, at, at + len(known), other)

    for node in _code(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BinOp) and not _joins_texts(node):
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            first = place(node.lineno, node.col_offset)
            yield Mutant(path, node.lineno, first, first + len("not "), "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            first = place(node.lineno, node.col_offset)
            changed = not node.value if isinstance(node.value, bool) else node.value + 1
            yield Mutant(path, node.lineno, first, end(node), repr(changed))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What runs: all below a node but annotations and the parts of formatted texts."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from _code(child)


def _joins_texts(node: ast.BinOp) -> bool:
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in (node.left, node.right))


def sample(checkout: Path, count: int) -> list[Mutant]:
    """Mutants drawn from all of the folders, the same for the same code."""
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=checkout, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if path.endswith(".py")]
    every = [mutant for path in paths for mutant in mutants_of(path, (checkout / path).read_text(encoding="utf-8"))]
    return random.Random(SEED).sample(every, count)


def killed_by(mutant: Mutant, checkout: Path, graph: grimp.ImportGraph) -> str | None:
    """The first test that fails with a mutant; None where all pass."""
    file = checkout / mutant.path
    source = file.read_text(encoding="utf-8")
    tests = affordable(by_distance([mutant.path], graph), SECONDS)
    files = [f"{name.replace('.', '/')}.py" for name in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *files]
    try:
        file.write_text(mutant.of(source), encoding="utf-8")
        result = subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, check=False, timeout=10 * SECONDS
        )
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        file.write_text(source, encoding="utf-8")
    if not result.returncode:
        return None
    failed = [line.split()[1] for line in result.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else "no start"


def main() -> int:
    checkout = Path(sys.argv[1])
    graph = grimp.build_graph("ratioscope", "tests", cache_dir=None)
    drawn = sample(checkout, int(sys.argv[2]) if len(sys.argv) > 2 else COUNT)
    alive = 0
    for mutant in drawn:
        killer = killed_by(mutant, checkout, graph)
        alive += killer is None
        line = (checkout / mutant.path).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
        print(f"{killer or 'ALIVE'}: {mutant.path}:{mutant.line} {mutant.text or 'without not'}: {line}", flush=True)
    print(f"{len(drawn) - alive} of {len(drawn)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
