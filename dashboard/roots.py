"""The folders that a dashboard serves, handed from the launcher to the app's script by an environment variable."""

import os
from collections.abc import Sequence
from pathlib import Path

_VARIABLE = "RATIOSCOPE_ROOTS"


def serve_from(folders: Sequence[Path]) -> None:
    """Set the folders for every session of this process."""
    os.environ[_VARIABLE] = os.pathsep.join(str(folder.resolve()) for folder in folders)


def roots() -> list[Path]:
    """The folders that the server was started on."""
    return [Path(folder) for folder in os.environ.get(_VARIABLE, "").split(os.pathsep) if folder]
