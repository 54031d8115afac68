"""The console command, which is there in every installation: `ratioscope` and `python -m ratioscope`.

The commands are in `ratioscope.dashboard.cli` and need the packages of an extra. Nothing imports this module.
"""

import gc
import os
import sys
from typing import NoReturn

import ratioscope
from ratioscope import ending
from ratioscope.errors import MissingPackageError
from ratioscope.extras import needing

# The extra that a command needs, where it is not the dashboard's.
_EXTRAS = {"train": "trainer", "ablate": "all", "demo": "all", "mcp": "mcp"}
_SMALL_HELP = """Usage: ratioscope [--version] COMMAND ...

Diagnostics for off-policy LLM reinforcement learning. This installation records and reads runs in Python
(ratioscope.RunRecorder). Commands need an extra:

  pip install "ratioscope[dashboard]"   the app, analysis, reports and the commands around them
  pip install "ratioscope[trainer]"     ratioscope train
  pip install "ratioscope[mcp]"         ratioscope mcp, for assistants
  pip install "ratioscope[all]"         all of these, and what makes large runs faster"""

_IMPORTED = 500_000
"""Objects that a command's imports make, and that stay."""


def main() -> NoReturn:
    """Run a command, and end."""
    _collect_later()
    ending.run(_command)


def _collect_later() -> None:
    """Let the first collection of garbage come after the imports, and all others as usual: to look again and again
    through what imports leave takes a tenth of a short command's time."""
    usual = gc.get_threshold()

    def begun(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(begun)
        gc.set_threshold(*usual)

    gc.callbacks.append(begun)
    gc.set_threshold(_IMPORTED, *usual[1:])


def _command() -> None:
    """Where a package of the command's extra is missing, one sentence says what to install."""
    # For the processes that a command starts: what lies in the working folder is not imported.
    os.environ["PYTHONSAFEPATH"] = "1"
    if sys.argv[1:] == ["--version"]:
        print(f"ratioscope {ratioscope.__version__}")
        return
    name = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    extra = _EXTRAS.get(name, "dashboard")
    try:
        with needing(f"ratioscope {name}".strip(), f"ratioscope[{extra}]"):
            from ratioscope.dashboard import cli

            cli.main()
    except MissingPackageError as error:
        if sys.argv[1:] in (["--help"], ["-h"]):
            print(_SMALL_HELP)
            return
        print(f"ratioscope: {error}", file=sys.stderr)
        sys.exit(ending.USAGE_ERROR)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the working folder there
    main()
