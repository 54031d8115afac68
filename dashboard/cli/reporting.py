"""`ratioscope report`: the diagnosis in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import Quiet, StepRange, Thresholds, app, complain_of, examples, step_range
from ratioscope.dashboard.cli.comparing import MetricOption, RunFolders, run_folders
from ratioscope.dashboard.terminal import complain, print_line, working
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.inert import one_line

if TYPE_CHECKING:
    from ratioscope.analysis.diagnosis.opened import Opened


@app.command(
    epilog=examples(
        "report sample_runs/sync_interval20-reinforce-lr0.0003-seed0 -o collapse.html",
        "report sample_runs/sync_interval20-grpo-seed0 sample_runs/sync_interval20-reinforce-seed0 -o comparison.pdf",
        "report sample_runs/sync_interval20-reinforce-lr0.0003-seed0 --post-mortem -o post-mortem.html",
        "report runs/mine -o mine.md --full",
        "report runs/mine -o mine.md --pages findings,drift --steps 100:200",
    )
)
def report(
    runs: RunFolders,
    output: Annotated[Path, typer.Option("--output", "-o", help="File: .html, .pdf, .md or .json.")] = Path(
        "report.html"
    ),
    pages: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: what to print of each run, instead of the short form.",
            autocompletion=completion.report_pages,
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Every page, with all definitions; the short form has two to four pages of paper."),
    ] = False,
    steps: StepRange = None,
    metric: MetricOption = None,
    framework: Annotated[
        str | None,
        typer.Option(
            help="Adds the numbers as it would log them: verl, trl, areal, nemo_rl or prime_rl.",
            autocompletion=completion.frameworks,
        ),
    ] = None,
    post_mortem: Annotated[
        bool,
        typer.Option("--post-mortem", help="Around the last step before a critical finding began; of one run."),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the numbers behind every figure, as CSV and Parquet.")
    ] = None,
    thresholds: Thresholds = None,
    quiet: Quiet = False,
) -> None:
    """Write the diagnosis of a run into one file: three lights, what was found, what to change; of several runs, how
    they compare.

    HTML is one file that works offline, with interactive figures and their numbers. PDF and Markdown need Chromium.
    JSON follows a published schema. The same input gives the same file.
    """  # fmt: skip
    from ratioscope.dashboard.report.target import check_target, check_target_folder

    check_target(output)
    if data:
        check_target_folder(data if data.exists() else data.parent)
    if metric is not None and metric not in CATALOGUE:
        raise unknown("a metric", metric, CATALOGUE)
    wanted = step_range(steps)
    chosen = [name.strip() for name in (pages or "").split(",") if name.strip()] or None
    folders = run_folders(runs)
    if full and chosen:
        raise RatioscopeError("--full has every page; leave out --pages, or --full.")
    if post_mortem and (len(folders) > 1 or chosen or full or framework or wanted != (None, None)):
        raise RatioscopeError("--post-mortem is of one run, with pages and steps of its own; leave the others out.")

    from ratioscope.dashboard.report.workers import imports_left_alone, workers

    with workers(folders) as pool:
        # What is wrong with the command has been said: now what takes seconds to import.
        from ratioscope.analysis.frameworks.naming import framework_key
        from ratioscope.dashboard.report.build import comparison_report, full_pages, run_report
        from ratioscope.dashboard.report.post_mortem import post_mortem_report
        from ratioscope.dashboard.report.write import write, write_data

        asked = framework_key(framework) if framework else ""
        if asked and chosen:
            chosen.append("frameworks")
        opened = _opened(folders, thresholds, quiet)
        chosen = list(full_pages(opened, asked)) if full else chosen
        with imports_left_alone(), working("Writing the report", quiet) as progress:

            def show(done: int, of: int, name: str) -> None:
                progress(done, of)

            if post_mortem:
                made = post_mortem_report(opened[0], progress=show, pool=pool)
            elif len(opened) == 1:
                made = run_report(opened[0], pages=chosen, steps=wanted, framework=asked, progress=show, pool=pool)
            else:
                made = comparison_report(
                    opened, pages=chosen, metric=metric, steps=wanted, framework=asked, progress=show, pool=pool
                )
            written = write(made, output)
            if data:
                write_data(made, data)
    print_line("\n".join(one_line(f"Written: {path}") for path in (*written, *([data] if data else []))))


def _opened(folders: Sequence[Path], thresholds: Path | None, quiet: bool) -> "list[Opened]":
    """The runs, without those that have nothing to be reported while others have."""
    from ratioscope.analysis.diagnosis.opened import open_folder

    opened: list[Opened] = []
    names = [folder.resolve().name for folder in folders]
    for number, folder in enumerate(folders, start=1):
        with working(f"Reading {folder.name} ({number} of {len(folders)})", quiet) as progress:
            # Runs of several roots may have the same name; nothing else tells them apart.
            run_id = folder.name if names.count(folder.resolve().name) == 1 else str(folder)
            found = open_folder(folder, run_id=run_id, thresholds=thresholds, progress=progress)
        complain_of(found.run)
        if len(folders) > 1 and not len(found.summary.values):
            complain(f"{folder}: left out, no step is on disk.")
        else:
            opened.append(found)
    if not opened:
        raise RatioscopeError("None of these runs has a step on disk; there is nothing to report.")
    return opened
