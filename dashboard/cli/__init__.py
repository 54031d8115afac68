"""The command line: the one place that knows all four packages, each imported inside its command."""

import errno
import io
import os
import sys
from importlib import import_module

from ratioscope.dashboard.cli.common import app
from ratioscope.dashboard.terminal import complain
from ratioscope.ending import CRASHED, INTERRUPTED, PIPE_CLOSED, PROBLEMS_FOUND, USAGE_ERROR
from ratioscope.errors import MissingPackageError, RatioscopeError

__all__ = [
    "COMMAND_MODULES",
    "CRASHED",
    "INTERRUPTED",
    "PIPE_CLOSED",
    "PROBLEMS_FOUND",
    "USAGE_ERROR",
    "app",
    "main",
]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Each adds its commands to the app when it is imported; in the order of the help.
COMMAND_MODULES = (
    "training",
    "serving",
    "assisting",
    "importing",
    "runs",
    "sharding",
    "compacting",
    "caching",
    "gates",
    "laboratory",
    "translating",
    "comparing",
    "reporting",
    "watching",
    "bridging",
    "bench",
)
for _module in COMMAND_MODULES:
    import_module(f"ratioscope.dashboard.cli.{_module}")


def main() -> None:
    """The console command: a user's mistake, or a disk that is full, is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A Greek letter on a terminal without it, or a folder's name that is no text, is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="ratioscope")
        finally:
            sys.stdout.flush()
    except MissingPackageError:
        raise  # `ratioscope.__main__` names the extra that the command needs
    except RatioscopeError as error:
        complain(str(error))
        sys.exit(USAGE_ERROR)
    except MemoryError:  # also that of Arrow
        complain("There is not enough memory for this.")
        sys.exit(USAGE_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _no_more_output()
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        if error.filename is not None:
            complain(f"{error.filename}: {error.strerror or type(error).__name__}.")
        elif error.errno in _NO_ROOM:  # what is written without a name is the output
            complain(f"The output cannot be written: {error.strerror}.")
            _no_more_output()
        else:
            raise
        sys.exit(USAGE_ERROR)


def _no_more_output() -> None:
    """Python flushes stdout once more at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
