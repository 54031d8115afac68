"""`ratioscope bench`: the benchmarks of the source checkout, as ratios to baselines of the same run."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.dashboard.cli.common import app, examples
from ratioscope.errors import RatioscopeError, unknown


def benchmark_names() -> list[str]:
    """The benchmarks there are, in the order of their names; none outside of a source checkout.

    Their modules are looked at and not imported: that would import torch for the sake of a help text.
    """
    modules = sorted((_checkout() / "tests" / "benchmarks").glob("*.py"))
    return [module.stem for module in modules if "\ndef run() -> None:" in module.read_text(encoding="utf-8")]


def _checkout() -> Path:
    return Path(__file__).resolve().parents[2]


def _completed(incomplete: str) -> list[str]:
    return [name for name in benchmark_names() if name.startswith(incomplete)]


@app.command(epilog=examples("bench listing", "bench scanning comparing"))
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Which; default: all. {', '.join(benchmark_names()) or 'They are in the source checkout only'}.",
            autocompletion=_completed,
        ),
    ] = None,
) -> None:
    """Speed as ratios to baselines of the same run.

    The benchmarks are part of the source checkout, not of the installed package.
    """
    known = benchmark_names()
    if not known:
        raise RatioscopeError(
            "The benchmarks are in tests/benchmarks of the source checkout, not in the installed package; "
            "run the command of an editable installation of it."
        )
    wrong = next((name for name in names or [] if name not in known), None)
    if wrong is not None:
        raise unknown("a benchmark", wrong, known)
    sys.path.insert(0, str(_checkout()))
    try:
        benchmarks = import_module("tests.benchmarks.__main__")
        for name in names or benchmarks.BENCHMARKS:
            benchmarks.run(name)
    except ImportError as error:
        raise RatioscopeError(
            f"The benchmarks need the packages of the dependency group 'dev' ({error}); run make check once."
        ) from None
