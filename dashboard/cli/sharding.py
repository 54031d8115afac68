"""`ratioscope partials`: the costly part of a run's summary, computed by shards into a cache that machines share."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import Quiet, RunFolder, app, examples, opened
from ratioscope.dashboard.terminal import print_line, working
from ratioscope.ending import PROBLEMS_FOUND
from ratioscope.errors import RatioscopeError
from ratioscope.storage.places import place


@app.command(
    epilog=examples(
        "partials sample_runs/sync_interval20-grpo-seed0 --shard 1/2",
        "partials sample_runs/sync_interval20-grpo-seed0 --list",
        "partials runs/large --shard $SLURM_ARRAY_TASK_ID/16 --cache /shared/ratioscope",
        "partials runs/large --engine ray --address ray://head:10001",
        'partials runs/large --shard "$((JOB_COMPLETION_INDEX + 1))/16" --cache s3://bucket/cache',
    )
)
def partials(
    run: RunFolder,
    shard: Annotated[str, typer.Option(metavar="I/N", help="The I-th of N parts of the run, I from 1 to N.")] = "1/1",
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|URL",
            help="Where partials are kept; default: RATIOSCOPE_CACHE, or the user's cache folder.",
            parser=place,
            autocompletion=completion.folders,
            show_default=False,
        ),
    ] = None,
    only_list: Annotated[
        bool,
        typer.Option("--list", help="Compute nothing: count what is done; exit code 1 where something is missing."),
    ] = False,
    engine: Annotated[
        str, typer.Option(metavar="threads|ray", help="Who computes: this process, or tasks of a Ray cluster.")
    ] = "threads",
    address: Annotated[
        str | None,
        typer.Option(
            help="Of the Ray cluster, e.g. auto or ray://head:10001; default: RAY_ADDRESS, or one of this machine.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compute the partial sums of a run, or of a part of it, into a cache that may be shared.

    A unit is a set of files that share steps, or a part of them where a step has millions of tokens. Any number of
    machines may do this at once; one that was stopped goes on where it was. With RATIOSCOPE_CACHE set to the same
    folder or URL, the summary of the run, its pages and reports then read no token. All machines need the same
    ratioscope, Python and libraries: others compute their own.
    """
    from ratioscope.analysis.summary import blocks, shards
    from ratioscope.analysis.summary.on_ray import on_ray
    from ratioscope.analysis.summary.partials import threads
    from ratioscope.analysis.summary.units import scan_units
    from ratioscope.storage.cache import cached_in, kept_in

    number, of = _shard(shard)
    if engine not in ("threads", "ray"):
        raise RatioscopeError(f"--engine {engine}: choose threads or ray.")
    if address and engine != "ray":
        raise RatioscopeError(f"--address {address}: is of a Ray cluster; add --engine ray.")
    with cached_in(cache):
        every = scan_units(opened(run))
        units = shards.shard(shards.parts(every), number, of)
        if not only_list:
            scanning = on_ray(address) if engine == "ray" else nullcontext(threads)
            with scanning as scanned_by, working("Computing", quiet) as progress:
                shards.fill(units, progress, scanned_by)
                blocks.fill(every)
        done = len(units) - len(shards.missing(units))
        print_line(f"{done} of {len(units)} units are in {kept_in('partials')}.")
    if done < len(units):
        raise typer.Exit(PROBLEMS_FOUND)


def _shard(text: str) -> tuple[int, int]:
    """I/N as two numbers."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        raise RatioscopeError(f"--shard {text}: write I/N with I from 1 to N, e.g. 1/16 for the first of 16 parts.")
    return number, of
