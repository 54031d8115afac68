"""The dashboard's server as commands start it, and where the sample runs are."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ratioscope.dashboard.terminal import print_line
from ratioscope.ending import accept
from ratioscope.errors import RatioscopeError

if TYPE_CHECKING:
    from ratioscope.dashboard.login import Login


def check_port(port: int) -> None:
    """Raise a RatioscopeError when something listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise RatioscopeError(f"Port {port} is taken; choose another with --port.") from None


def serve(roots: list[Path], port: int, login: "Login | None" = None) -> None:
    """Serve until Ctrl-C, the usual way to end it."""
    from ratioscope.dashboard import launcher

    def listening() -> None:
        here = f"http://{launcher.LOOPBACK}:{port}/"
        address = here if login is None else f"{login.origin}/, to which whatever is in front of {here} has to lead"
        print_line(f"ratioscope: {address}   (Ctrl-C stops)")

    try:
        launcher.serve(roots, port, listening, login)
    except KeyboardInterrupt:
        accept()


def sample_runs_folder() -> Path | None:
    """The sample runs: in the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "sample_runs", package.parent / "sample_runs")
    return next((place for place in places if place.is_dir()), None)
