"""`ratioscope compare`: is A better than B."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import Quiet, app, check_is_folder, examples, opened
from ratioscope.dashboard.terminal import complain, print_table, print_wrapped, say_json, working
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.storage.places import place

if TYPE_CHECKING:
    from ratioscope.analysis.compare.grouping import Member

RunFolders = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="Run folders, or folders that contain runs; URLs, too.",
        parser=place,
        autocompletion=completion.folders,
        show_default=False,
    ),
]

MetricOption = Annotated[
    str | None,
    typer.Option(
        help="Metric key; default: eval_accuracy, or reward where no run logs it.", autocompletion=completion.metrics
    ),
]


@app.command(
    epilog=examples(
        "compare sample_runs/sync_interval20-grpo-seed0 sample_runs/sync_interval20-reinforce-seed0",
        "compare sample_runs --metric reward --by tokens --json",
    )
)
def compare(
    runs: RunFolders,
    metric: MetricOption = None,
    by: Annotated[Literal["step", "tokens", "time"], typer.Option(help="Axis on which runs are aligned.")] = "step",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    quiet: Quiet = False,
) -> None:
    """Is A better than B: do these runs differ beyond the noise of their evaluations, and would other seeds repeat it.

    Runs that differ in their seed only are one setting; the best is compared with each of the others. A metric that no
    two settings have is replaced by evaluation accuracy, or by the reward; the first sentence says so.

    --json prints an object: schema_version, metric, instead, by, until, sentences, ranking, judged_by, pairs, answers,
    prompts, collapsed, components, differences. Undefined is null.
    """
    from ratioscope.analysis.compare.report import report

    found = report(members(runs, quiet), metric, by)
    if as_json:
        say_json(found.to_json())
        return
    print_wrapped("\n".join((*map(one_line, found.sentences), "", *found.notes())))
    print_table(found.table())
    if parts := list(found.parts()):
        print_wrapped("\n".join(("", "Components in which the settings differ:", *parts)))


def members(folders: list[Path], quiet: bool) -> "list[Member]":
    """The runs in these folders with their summaries; one without a step is named and left out.

    Raises:
        RatioscopeError: as `run_folders`, or files vanish while they are read.
    """
    from ratioscope.analysis.compare.grouping import Member
    from ratioscope.analysis.summary.summary import Summariser

    found = []
    places = run_folders(folders)
    for number, folder in enumerate(places, start=1):
        run = opened(folder)
        with working(f"Reading {folder.name} ({number} of {len(places)})", quiet) as progress:
            summary = Summariser().summarise(run, progress)
        if len(summary.values):
            found.append(Member(str(folder), run, summary))
        else:
            complain(f"{folder}: left out, no step is on disk.")
    return found


def run_folders(folders: list[Path]) -> list[Path]:
    """The runs in these folders, each once; a bad run inside a folder of runs is named on stderr and left out.

    Raises:
        RatioscopeError: a folder is not there or has no run in it, or one that was named is a run that cannot be read.
    """
    from ratioscope.analysis.runs.store import discover

    found: dict[Path, Path] = {}
    for folder in folders:
        check_is_folder(folder)
        listed = discover([folder])
        if not listed:
            raise RatioscopeError(f"{folder}: there is no run in this folder.")
        for entry in listed:
            if not entry.problem:
                found[entry.folder.resolve()] = entry.folder
            elif entry.folder == folder:
                raise RatioscopeError(entry.problem)
            else:
                complain(f"{entry.problem} The run is left out.")
    return list(found.values())
