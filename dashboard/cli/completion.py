"""Values that a shell completes: presets, algorithms, metrics, frameworks, folders. Nothing here imports torch."""

import ast
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from ratioscope.run_format.manifest import MANIFEST_NAME

# A folder with more runs than these is completed by its own name alone.
_MOST_FOLDERS = 500


def presets(incomplete: str) -> list[str]:
    """Presets and algorithms, for `train`."""
    return _starting(incomplete, [*_files("presets"), *algorithm_names()])


def grids(incomplete: str) -> list[str]:
    """Studies, presets and algorithms, for `ablate`."""
    return _starting(incomplete, [*_files("studies"), *_files("presets"), *algorithm_names()])


def complete_settings(incomplete: str) -> list[str]:
    """`algorithm=NAME`, `gate=NAME` and `weight=NAME` among the settings of a training."""
    from ratioscope.rules.gates import GATES
    from ratioscope.rules.weights import WEIGHTS

    known = {"algorithm": algorithm_names(), "gate": GATES, "weight": WEIGHTS}
    return _starting(incomplete, [f"{key}={name}" for key, names in known.items() for name in names])


def metrics(incomplete: str) -> list[str]:
    """Keys of the step summary."""
    from ratioscope.catalogue import CATALOGUE

    return _starting(incomplete, CATALOGUE)


def explained(incomplete: str) -> list[str]:
    """Everything that `explain` knows."""
    from ratioscope.catalogue import ENTRIES

    rooms = {"diagnosis": ("rule", "cause"), "linter": ("cause",)}
    declared = (name for room, by in rooms.items() for module in _modules(room) for name in _called(module, *by))
    words = ["format", "metrics", "algorithms", "parts", "presets", "settings"]
    words += ["findings", "checks", "causes", "thresholds"]
    known = [*words, *ENTRIES, *algorithm_names(), *declared, *_of_frameworks(), *of_trainer()]
    return _starting(incomplete, dict.fromkeys(known))


def frameworks(incomplete: str) -> list[str]:
    """Frameworks whose numbers are known, for `translate`."""
    return _starting(incomplete, _keys(_frameworks("__init__"), "DIALECTS"))


def formats(incomplete: str) -> list[str]:
    """Formats of other programs, for `import`; read from the source of each importer."""
    modules = _modules("importers/formats")
    return _starting(incomplete, [name for module in modules for name in _called(module, "Importer", "Plain")])


def reported(incomplete: str) -> list[str]:
    """What frameworks report, and the metrics that it is near to."""
    from ratioscope.catalogue import CATALOGUE

    return _starting(incomplete, dict.fromkeys([*_of_frameworks(), *CATALOGUE]))


def report_pages(incomplete: str) -> list[str]:
    """Pages of a report, separated by commas; read from the source, as importing them would import plotly."""
    found = {}
    for file in (_package("dashboard") / "sections").glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(value=ast.Call(func=ast.Name(id="Page"), args=[key, _, _, place, *_], keywords=given)):
                    if "report" in {keyword.arg for keyword in given}:
                        found[ast.literal_eval(key)] = ast.literal_eval(place)
    before, separator, start = incomplete.rpartition(",")
    names = _starting(start, sorted(found, key=lambda name: found[name]))
    return [before + separator + name for name in names if name not in before.split(",")]


def folders(incomplete: str) -> list[str]:
    """Folders that begin like this, and those inside of them: a run of a root is two keystrokes away."""
    typed, separator, start = incomplete.rpartition("/")
    here = Path(typed + separator)
    found = [path for path in _inside(here) if path.name.startswith(start)]
    below = [path for folder in found if not (folder / MANIFEST_NAME).is_file() for path in _inside(folder)]
    names = [typed + separator + path.relative_to(here).as_posix() for path in [*found, *below]]
    return [name for name in names if name.isprintable()]


def algorithm_names() -> list[str]:
    """Names and aliases of the trainer's algorithms."""
    from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES

    return [*ALGORITHMS, *ALIASES]


def of_trainer() -> list[str]:
    """Settings and presets of the trainer, where it can be used."""
    if find_spec("pydantic") is None:
        return []
    from ratioscope.trainer.settings import table

    return table.names()


def _keys(tree: ast.Module, name: str) -> Iterator[str]:
    """The keys of a dictionary that a module declares."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        declared = [target.id for target in targets if isinstance(target, ast.Name)]
        value = getattr(node, "value", None)
        if declared == [name] and isinstance(value, ast.Dict):
            yield from (str(key.value) for key in value.keys if isinstance(key, ast.Constant))


def _of_frameworks() -> Iterator[str]:
    """Names of the frameworks' numbers, read from the source: importing them would import pandas."""
    for module in _keys(_frameworks("__init__"), "DIALECTS"):
        yield from _called(_frameworks(module), "TheirNumber")


def _frameworks(module: str) -> ast.Module:
    return ast.parse((_package("analysis") / "frameworks" / f"{module}.py").read_text(encoding="utf-8"))


def _modules(folder: str) -> Iterator[ast.Module]:
    for path in sorted((_package("analysis") / folder).glob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def _called(tree: ast.Module, *functions: str) -> Iterator[str]:
    """The names that a module gives to functions which declare something under them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
            yield from (str(value.value) for value in given[:1] if isinstance(value, ast.Constant))


def _package(name: str) -> Path:
    found = find_spec(f"ratioscope.{name}")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _files(kind: str) -> list[str]:
    return sorted(path.stem for path in (_package("trainer") / "settings" / kind).glob("*.toml"))


def _inside(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    return found if len(found) <= _MOST_FOLDERS else []


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
