"""One meaning a name, and no function without a caller.

What one module takes from another by name is declared in one place, and so is every class. Functions that are always
asked for with their module (`clipping.answer`, `drift.answer`) may share a name: a question is one word in every room.
"""

import ast
from collections import defaultdict

from vulture import Vulture  # type: ignore[import-untyped]

from tests.test_layering import ROOT, _module, sources

# Declared in a registry, which calls them.
REGISTERED = (
    "@declared*", "@rule*", "@check*", "@tool*", "@*command*", "@field_validator*", "@model_validator*", "@app.*",
)  # fmt: skip
# Called by others: callbacks of trainers, methods of interfaces, what users import, the ways in of verl's two versions.
OF_OTHERS = {
    "__getattr__", "RunCallback", "batch_metrics", "call_tool", "find_class", "on_log", "on_pre_optimizer_step",
    "on_step_begin", "on_step_end", "on_step_start", "on_train_begin", "on_train_end", "on_train_start", "readall",
    "readinto", "redirect_request", "seekable", "wrap_old_trainer", "wrap_trainer",
}  # fmt: skip


def declared(tree: ast.Module) -> dict[str, bool]:
    """Public names of a module's own, and whether each is a class."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = isinstance(node, ast.ClassDef)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: False for target in targets if isinstance(target, ast.Name)}
    return {name: is_class for name, is_class in found.items() if not name.startswith("_")}


def several_meanings(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """By name, the modules that declare it: two classes, or two that others import by that name."""
    places: dict[str, dict[str, bool]] = defaultdict(dict)
    for module, tree in trees.items():
        for name, is_class in declared(tree).items():
            places[name][module] = is_class
    by_name = {
        (node.module, alias.name)
        for module, tree in trees.items()
        if module != "ratioscope"  # what everybody imports from there has its name there
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {
        name: [module for module, is_class in modules.items() if is_class or (module, name) in by_name]
        for name, modules in places.items()
    }
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_a_public_name_has_one_meaning() -> None:
    trees = {_module(source): ast.parse((ROOT / source).read_text(encoding="utf-8")) for source in sources()}
    assert several_meanings(trees) == {}


def test_two_meanings_are_found() -> None:
    texts = {
        "a": "class Verdict: ...\ndef answer(): ...\ndef text(): ...",
        "b": "class Verdict: ...\ndef answer(): ...\ndef text(): ...",
        "c": "from a import text\nfrom b import text as theirs",
    }
    found = several_meanings({name: ast.parse(text) for name, text in texts.items()})
    assert found == {"Verdict": ["a", "b"], "text": ["a", "b"]}


def test_every_function_has_a_caller() -> None:
    """One that tests alone call is none of the product's. Pages name the functions of their views (`test_declared`)."""
    looked = Vulture(ignore_decorators=REGISTERED)
    of_links = [f"*/ratioscope/{name}/*" for name in ("analysis", "dashboard", "trainer")]
    looked.scavenge([ROOT / name for name in ("ratioscope", "analysis", "dashboard", "trainer")], exclude=of_links)
    kinds = ("function", "method", "property", "class")
    unused = {
        item.name: f"{item.filename.relative_to(ROOT)}:{item.first_lineno}"
        for item in looked.get_unused_code()
        if item.typ in kinds and item.filename.parent.name != "views"
    }
    assert {name: place for name, place in unused.items() if name not in OF_OTHERS} == {}
