"""Where a report may be written; checked before the work, so nothing heavy is imported here."""

from pathlib import Path

from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import MANIFEST_NAME

FORMATS = (".html", ".pdf", ".md", ".json")


def check_target(path: Path) -> None:
    """Whether a report can be written there; before the work is done.

    Raises:
        RatioscopeError: the name says no format, the folder is not there, or it is that of a run.
    """
    if path.suffix.lower() not in FORMATS:
        raise RatioscopeError(f"{path}: the name of a report must end in one of {', '.join(FORMATS)}.")
    check_target_folder(path.parent)
    if path.is_dir():
        raise RatioscopeError(f"{path}: is a folder; give a file name.")


def check_target_folder(folder: Path) -> None:
    """Whether files may be put there.

    Raises:
        RatioscopeError: the folder is not there, or a run's: nothing is ever written into a run.
    """
    if not folder.is_dir():
        raise RatioscopeError(f"{folder}: there is no such folder.")
    for place in (folder.resolve(), *folder.resolve().parents):
        if (place / MANIFEST_NAME).is_file():
            raise RatioscopeError(
                f"{folder}: lies inside the run {place}, and runs are never written to; choose another folder."
            )
