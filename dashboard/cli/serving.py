"""`ratioscope dashboard`: folders of runs in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import DEFAULT_PORT, Port, app, check_is_folder, examples
from ratioscope.dashboard.cli.server import check_port, sample_runs_folder, serve
from ratioscope.dashboard.terminal import print_line
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.storage.places import place


@app.command(epilog=examples("dashboard", "dashboard runs sample_runs --port 8600"))
def dashboard(
    roots: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="ROOT",
            help="Folders that contain runs, or run folders; URLs, too. Default: the sample runs.",
            parser=place,
            autocompletion=completion.folders,
            show_default=False,
        ),
    ] = None,
    port: Port = DEFAULT_PORT,
    login: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Show runs to people who have logged in (OpenID Connect) and whom this TOML file names.",
        ),
    ] = None,
) -> None:
    """Open the dashboard on folders of runs.

    It answers on the loopback interface only; Ctrl-C is the usual way to stop it and ends it with exit code 0.
    """
    from ratioscope.dashboard.foreign import foreign_below

    roots = roots or _samples()
    for root in roots:
        check_is_folder(root)
    check_port(port)
    asked = None
    if login:
        from ratioscope.dashboard.login import read_login

        asked = read_login(login)
    for each in foreign_below(roots):
        way = "ratioscope import --allow-pickle" if each.found.description.unpickles else "the page Runs"
        print_line(one_line(f"{each.found.description.path}: {each.found.importer.title}; {way} imports it."))
    serve(roots, port, asked)


def _samples() -> list[Path]:
    """The sample runs, and what brings those that do not travel with an installation."""
    folder = sample_runs_folder()
    if folder is None:
        raise RatioscopeError("There are no sample runs here: name a folder of runs.")
    print_line(f"The sample runs in {folder}; ratioscope train --sample NAME trains another of them, into runs/NAME.")
    return [folder]
