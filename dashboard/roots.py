"""The folders that a dashboard serves, handed from the launcher to the app's script by an environment variable."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ratioscope.cache import cache_folder
from ratioscope.storage.places import place

_VARIABLE = "RATIOSCOPE_ROOTS"


def serve_from(folders: Sequence[Path]) -> None:
    """Set the folders for every session of this process."""
    os.environ[_VARIABLE] = json.dumps([str(folder.resolve()) for folder in folders])


def roots() -> list[Path]:
    """The folders that the server was started on."""
    return [place(folder) for folder in json.loads(os.environ.get(_VARIABLE) or "[]")]


def shelves() -> list[Path]:
    """Where runs are looked for: these folders, and those that their imports go to; the latter may not exist yet."""
    served = roots()
    return [*served, *map(imports_of, served)]


def imports_of(root: Path) -> Path:
    """Where other programs' runs below a folder are imported to: the cache, and never the folder."""
    key = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return cache_folder("imports") / key
