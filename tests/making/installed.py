"""Other people's packages as source: read and run in parts without importing them, which would need all they need."""

import __future__

import ast
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One Python file of an installed package; the test is skipped where the package is not installed.

    Args:
        package: its name on the import path.
        path: of the file, inside of the package.
    """

    def __init__(self, package: str, path: str) -> None:
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            pytest.skip(f"{package} is not installed")
        self.package = package
        self.path = Path(next(iter(found.submodule_search_locations))) / path
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in self.tree.body)
        self._flags = __future__.annotations.compiler_flag if lazy else 0

    def definition(self, *names: str) -> Definition:
        """The class or function of a name, or of a name inside of another."""
        body: Iterable[ast.AST] = self.tree.body
        found: Definition | None = None
        for name in names:
            found = next(node for node in body if isinstance(node, Definition) and node.name == name)
            body = found.body
        assert found is not None
        return found

    def fields(self, name: str) -> dict[str, Any]:
        """Defaults of a class with annotated fields, where they are literals, alone or as `field(default=...)`."""
        assigned = [node for node in self.definition(name).body if isinstance(node, ast.AnnAssign) and node.value]
        return _literals((ast.unparse(node.target), _default(node.value)) for node in assigned)

    def arguments(self, *names: str) -> dict[str, Any]:
        """Defaults of a function's arguments, where they are literals."""
        function = self.definition(*names)
        assert isinstance(function, ast.FunctionDef)
        given = function.args.args[-len(function.args.defaults) :]
        return _literals(zip((argument.arg for argument in given), function.args.defaults, strict=True))

    def returned(self, *names: str) -> dict[str, Any]:
        """The literal dictionary that a function returns."""
        last = self.definition(*names).body[-1]
        assert isinstance(last, ast.Return) and last.value is not None
        returned: dict[str, Any] = ast.literal_eval(last.value)
        return returned

    def option(self, name: str) -> Any:
        """The default of an option of the command line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and node.args and getattr(node.args[0], "value", None) == name:
                return ast.literal_eval(_default(node))
        raise KeyError(name)

    def run(self, *names: str, **known: Any) -> Any:
        """A class or function made by running its definition alone, without its decorators; `known` are its globals."""
        node = self.definition(*names)
        if not isinstance(node, ast.ClassDef):
            node.decorator_list = []
        self._execute(ast.Module([node], []), known)
        return known[names[-1]]

    def part(self, name: str, *methods: str, of: str = "", **known: Any) -> Any:
        """A class with some methods of one alone, made like `run`; `of`: its base, one of `known`."""
        body: list[ast.stmt] = [self.definition(name, method) for method in methods]
        bases: list[ast.expr] = [ast.Name(of, ast.Load())] if of else []
        made = ast.ClassDef(name=name, bases=bases, keywords=[], body=body, decorator_list=[])
        self._execute(ast.fix_missing_locations(ast.Module([made], [])), known)
        return known[name]

    def run_all(self, **known: Any) -> dict[str, Any]:
        """The names of the file after running it without the imports of its own package."""
        kept = [node for node in self.tree.body if not _imports(node, self.package)]
        self._execute(ast.Module(kept, []), known)
        return known

    def _execute(self, module: ast.Module, known: dict[str, Any]) -> None:
        exec(compile(module, str(self.path), "exec", flags=self._flags, dont_inherit=True), known)


def _imports(node: ast.AST, package: str) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.split(".")[0] == package for name in names)


def _default(value: ast.expr | None) -> ast.expr:
    """What `field(default=...)` and its like hold; the expression itself elsewhere."""
    assert value is not None
    if isinstance(value, ast.Call):
        return next((keyword.value for keyword in value.keywords if keyword.arg == "default"), value)
    return value


def _literals(pairs: Iterable[tuple[str, ast.expr]]) -> dict[str, Any]:
    found = {}
    for name, value in pairs:
        try:
            found[name] = ast.literal_eval(value)
        except ValueError:
            continue
    return found
