"""What every command shares: the app, exit codes, options, and opening runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

import ratioscope
from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.terminal import complain, print_line
from ratioscope.ending import MEANINGS, PIPE_CLOSED
from ratioscope.errors import RatioscopeError
from ratioscope.storage.places import place

if TYPE_CHECKING:
    from ratioscope.analysis.runs.store import Run

DEFAULT_ROOT = Path("runs")
DEFAULT_PORT = 8501

SeverityName = Literal["notice", "warning", "critical"]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run's folder or URL.",
        parser=place,
        autocompletion=completion.folders,
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]
Thresholds = Annotated[
    Path | None, typer.Option(help="A TOML file; default: ratioscope.toml beside the run or in a folder above.")
]
RefuseRunLimits = Annotated[
    bool,
    typer.Option(
        "--refuse-run-limits", help="Exit code 2 where a ratioscope.toml in the run's own folder would move the limits."
    ),
]
StepRange = Annotated[str | None, typer.Option(metavar="FIRST:LAST", help="Both included; either may be empty.")]
Root = Annotated[
    Path, typer.Option(help="Folder that runs are written to.", autocompletion=completion.folders, show_default=True)
]
Port = Annotated[int, typer.Option(help="Port on the loopback interface.", min=1, max=65535)]


class _Commands(TyperGroup):
    """The commands; a closed pipe passes through, which typer would answer with the exit code of a finding."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(PIPE_CLOSED) from None


app = typer.Typer(
    name="ratioscope",
    cls=_Commands,
    help="Diagnostics for off-policy LLM reinforcement learning.",
    epilog=f"Exit codes: {MEANINGS}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"ratioscope {ratioscope.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Diagnostics for off-policy LLM reinforcement learning."""


def examples(*commands: str) -> str:
    """The end of a command's help: one line an example, which is not wrapped."""
    return "\n".join(["\b", *(f"Example: ratioscope {command}" for command in commands)])


def check_is_folder(folder: Path) -> None:
    """Raise a RatioscopeError unless there is such a folder."""
    if not folder.is_dir():
        raise RatioscopeError(f"{folder}: there is no such folder.")


def opened(folder: Path) -> "Run":
    """A run; files that had to be left out are named on stderr. Raises as `open_run`."""
    from ratioscope.analysis.runs.store import open_run

    run = open_run(folder)
    complain_of(run)
    return run


def complain_of(run: "Run") -> None:
    """Name the files that had to be left out on stderr."""
    for problem in run.problems:
        complain(problem)


def step_range(text: str | None) -> tuple[int | None, int | None]:
    """FIRST:LAST as two steps; an end that is left out is None."""
    if text is None:
        return None, None
    parts = text.split(":")
    if len(parts) != 2 or not all(part.strip().isdecimal() or not part.strip() for part in parts):
        raise RatioscopeError(f"--steps {text}: write FIRST:LAST, e.g. 100:200 or 100: for all from 100 on.")
    first, last = (int(part) if part.strip() else None for part in parts)
    if first is not None and last is not None and first > last:
        raise RatioscopeError(f"--steps {text}: the first step comes after the last.")
    return first, last
