"""Where things that can be made again are kept."""

import os
from pathlib import Path


def cache_folder(purpose: str) -> Path:
    """$RATIOSCOPE_CACHE, or the user's cache folder, for one purpose; may not exist yet."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ratioscope"
    return Path(os.environ.get("RATIOSCOPE_CACHE") or default) / purpose
