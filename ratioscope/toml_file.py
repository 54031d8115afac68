"""TOML files that a user wrote."""

import tomllib
from pathlib import Path
from typing import Any

from ratioscope.errors import RatioscopeError, first_line
from ratioscope.storage.bounds import SETTINGS_BYTES, read_whole


def read_toml(file: Path, *, missing: str = "") -> dict[str, Any]:
    """What a file says.

    Args:
        missing: the sentence where it is not there; default: that it is not.

    Raises:
        RatioscopeError: it is not there, cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(read_whole(file, SETTINGS_BYTES).decode())
    except FileNotFoundError:
        raise RatioscopeError(missing or f"{file}: there is no such file.") from None
    except RecursionError:
        raise RatioscopeError(f"{file}: cannot be read as TOML (its values are nested too deeply).") from None
    except (OSError, ValueError) as error:  # not readable, not UTF-8, not TOML
        raise RatioscopeError(f"{file}: cannot be read as TOML ({first_line(error)}).") from None
