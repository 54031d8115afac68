"""The part of the cache that machines share by an address: partial sums and what is made of them alone.

Where $RATIOSCOPE_CACHE is a URL the user's own cache folder is used, and what another machine has put at that address
is taken from there, once. A storage that fails is a cache that has nothing: that is said once, and it is left alone for
a while.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ratioscope.errors import RatioscopeError
from ratioscope.storage import listings
from ratioscope.storage.clients import SCHEMES, client
from ratioscope.storage.failures import StorageError, attempted

PURPOSES = ("partials", "steps")
"""Of entries that are shared; by their keys, which hold the code and the files that they are made of."""

_LEFT_ALONE = 60.0  # seconds
# Of an address, reading and writing apart.
_left_alone: dict[tuple[str, bool], float] = {}
_told: set[tuple[str, bool]] = set()
_lock = threading.Lock()

Answer = TypeVar("Answer")


def address() -> str:
    """$RATIOSCOPE_CACHE, which is a URL.

    Raises:
        RatioscopeError: of a kind that cannot be used.
    """
    named = os.environ.get("RATIOSCOPE_CACHE", "")
    scheme, _, rest = named.partition(":")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise RatioscopeError(f"RATIOSCOPE_CACHE={named}: a cache is a folder or lies at {known}.")
    return f"{scheme.lower()}://{re.sub('/+', '/', rest).strip('/')}"


def get(purpose: str, name: str) -> bytes | None:
    """What is kept there by this name; None where nothing is."""
    return _asked(purpose, lambda folder: _read(f"{folder}/{name}") if _is_listed(folder, name) else None)


def put(purpose: str, name: str, contents: bytes) -> None:
    """Keep the bytes there, where that is possible."""
    _asked(purpose, lambda folder: _write(f"{folder}/{name}", contents), writes=True)


def there(purpose: str, name: str) -> bool:
    """Whether something is kept there by this name."""
    return bool(_asked(purpose, lambda folder: _is_listed(folder, name)))


def _is_listed(folder: str, name: str) -> bool:
    """By the listing of its folder, which is one request for a thousand names."""
    return name in listings.children(folder)


def _read(url: str) -> bytes:
    filesystem, path = client(url)

    def action() -> bytes:
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    return attempted(url, action)


def _write(url: str, contents: bytes) -> None:
    filesystem, path = client(url)

    def action() -> None:
        with filesystem.open_output_stream(path) as stream:
            stream.write(contents)

    attempted(url, action)
    listings.forget(url)


def _asked(purpose: str, action: Callable[[str], Answer], *, writes: bool = False) -> Answer | None:
    """What an action upon the folder of a purpose says; None where nothing is, or where it fails."""
    folder = address()
    # Who may only read goes on reading.
    if _left_alone.get((folder, writes), 0.0) > time.monotonic():
        return None
    try:
        return action(f"{folder}/{purpose}")
    except FileNotFoundError:
        return None
    except (StorageError, OSError) as error:
        with _lock:
            _left_alone[folder, writes] = time.monotonic() + _LEFT_ALONE
            if (folder, writes) not in _told:
                _told.add((folder, writes))
                what = "Nothing is put into this cache" if writes else "This cache is not read"
                print(f"ratioscope: {error} {what} for now.", file=sys.stderr)
    return None
