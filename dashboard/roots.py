"""The folders that a dashboard serves, handed from the launcher to the app's script by an environment variable."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import cache_folder, distrusted, own_folder
from ratioscope.storage.places import place

_VARIABLE = "RATIOSCOPE_ROOTS"


def serve_from(folders: Sequence[Path]) -> None:
    """Set the folders for every session of this process."""
    os.environ[_VARIABLE] = json.dumps([str(folder.resolve()) for folder in folders])


def roots() -> list[Path]:
    """The folders that the server was started on."""
    return [place(folder) for folder in json.loads(os.environ.get(_VARIABLE) or "[]")]


def shelves() -> list[Path]:
    """Where runs are looked for: these folders, and those that their imports go to, unless others may write there; the
    latter may not exist yet."""
    served = roots()
    imports = [] if distrusted(cache_folder("imports")) else map(imports_of, served)
    return [*served, *(folder for folder in imports if not distrusted(folder))]


def check_imports() -> None:
    """Make the folder of all imports.

    Raises:
        RatioscopeError: it cannot be made, or others may write there.
    """
    if own_folder("imports") is None:
        folder = cache_folder("imports")
        why = distrusted(folder) or "it cannot be made"
        raise RatioscopeError(f"{folder}: nothing is imported here, {why}; see ratioscope cache --help.")


def imports_of(root: Path) -> Path:
    """Where other programs' runs below a folder are imported to: the cache, and never the folder."""
    return cache_folder("imports") / root_key(root)


def root_key(root: Path) -> str:
    """The name of a folder for what belongs to a served one and is kept elsewhere."""
    return hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
