"""`ratioscope compact`: the many small files of a run become few."""

from typing import Annotated

import typer

from ratioscope.dashboard.cli.common import Quiet, RunFolder, app, examples
from ratioscope.dashboard.terminal import print_line, working


@app.command(epilog=examples("compact runs/mine", "compact runs/mine --ended"))
def compact(
    run: RunFolder,
    ended: Annotated[
        bool, typer.Option("--ended", help="The run was interrupted or failed, and will not be resumed.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make few files of the many small ones of a run that has ended.

    No row is lost: meanwhile readers see the old files or the new ones, and a crash leaves the run whole. A run that is
    being written is refused. Partial sums of the new files are computed anew.
    """
    from ratioscope.run_format.compaction import compact as compacted

    with working("Compacting", quiet) as progress:
        found = compacted(run, ended=ended, progress=progress)
    print_line(
        f"{found.before} files became {found.after}." if found.after < found.before else "There is nothing to do."
    )
