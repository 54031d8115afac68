"""`ratioscope mcp`: an assistant asks about the runs in some folders."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import DEFAULT_ROOT, app, check_is_folder, examples
from ratioscope.storage.places import place


@app.command(name="mcp", epilog=examples("mcp sample_runs", "mcp runs s3://bucket/runs"))
def serve_assistant(
    roots: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="ROOT",
            help="Folders that contain runs, or run folders; URLs, too. Default: runs.",
            parser=place,
            autocompletion=completion.folders,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let an assistant ask about runs, over the Model Context Protocol on stdin and stdout.

    An assistant's program starts this command; it ends with its input, or at Ctrl-C. Every tool reads and none writes
    into a run: the runs with their lights, diagnosis, causes, check of the log, metrics, responses, tokens, one SELECT,
    comparison, explanations. Runs outside of ROOT cannot be asked for.
    """
    for root in roots or [DEFAULT_ROOT]:
        check_is_folder(root)

    from ratioscope.dashboard.assistant.server import assistant_server
    from ratioscope.dashboard.assistant.shelf import Shelf

    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # The library's thread waits for a line of stdin, and nothing but the end of the process ends that.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(0))
    assistant_server(Shelf(roots or [DEFAULT_ROOT])).run("stdio")
