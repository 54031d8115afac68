"""What lies in a folder of an object storage: asked once, and believed for some seconds.

A listing is what costs least to know of an object: its size and its time, without a request for each.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from ratioscope.storage.clients import client, top
from ratioscope.storage.failures import attempted, no_such_top

FRESH_SECONDS = 5.0


# Of these pyarrow lists the objects of a folder without the folders in it.
_FLAT = ("gs",)


@dataclass(frozen=True)
class ListedObject:
    """An object, or a folder, as a listing shows it."""

    name: str
    is_dir: bool
    size: int = 0
    modified_ns: int = 0


@dataclass
class _Listing:
    when: float
    children: dict[str, ListedObject]


_lock = threading.Lock()
_listings: dict[str, _Listing] = {}
_whole: dict[str, float] = {}
"""When everything below a folder was listed."""
_asked: dict[str, tuple[float, ListedObject | None]] = {}
"""What was asked for alone, and when."""
_objects: dict[str, ListedObject] = {}
"""Each object as it was last seen: it is read as the one that was listed, though the listing be old."""


def children(url: str) -> dict[str, ListedObject]:
    """What lies in a folder, by name, sorted.

    Raises:
        FileNotFoundError: nothing does.
        StorageError: it cannot be listed.
    """
    known = _known(url)
    if known is None:
        known = _list(url, recursive=False)
    if not known and url != top(url):
        raise FileNotFoundError(url)
    return known


def below(url: str) -> None:
    """List a folder with everything below it in one go, for `children` of each folder in it."""
    with _lock:
        if time.monotonic() - _whole.get(url, -FRESH_SECONDS) < FRESH_SECONDS:
            return
    _list(url, recursive=True)


def found(url: str) -> ListedObject | None:
    """The object or folder of that name; None where there is none.

    Raises:
        StorageError: it cannot be known.
    """
    folder, _, name = url.rpartition("/")
    if url == top(url):
        try:
            children(url)
        except FileNotFoundError:
            return None
        return ListedObject(name, True)
    known = _known(folder)
    if known is not None:
        return known.get(name)
    with _lock:
        when, seen = _asked.get(url, (float("-inf"), None))
        if time.monotonic() - when < FRESH_SECONDS:
            return seen
    filesystem, path = client(url)
    info = attempted(url, lambda: filesystem.get_file_info(path))
    seen = _folder(url) if info.type.name == "NotFound" else _seen(name, info)
    with _lock:
        _asked[url] = time.monotonic(), seen
        if seen and not seen.is_dir:
            _objects[url] = seen
    return seen


def _folder(url: str) -> ListedObject | None:
    """A folder as such; not every storage tells it from nothing when it is asked for alone."""
    try:
        return ListedObject(url.rpartition("/")[2], True) if children(url) else None
    except FileNotFoundError:
        return None


def last_seen(url: str) -> ListedObject | None:
    """The object as it was last listed; else as `found`."""
    with _lock:
        known = _objects.get(url)
    return known or found(url)


def forget(url: str) -> None:
    """Somebody has changed the object: its folder is listed anew."""
    folder = url.rpartition("/")[0]
    with _lock:
        _objects.pop(url, None)
        _asked.pop(url, None)
        for known in (_listings, _whole):
            for place in [place for place in known if folder == place or folder.startswith(f"{place}/")]:
                del known[place]


def _known(url: str) -> dict[str, ListedObject] | None:
    """What was listed of a folder lately."""
    oldest = time.monotonic() - FRESH_SECONDS
    with _lock:
        listing = _listings.get(url)
        if listing is not None and listing.when > oldest:
            return listing.children
        above = url
        while len(above) > len(top(url)):
            if _whole.get(above, oldest) > oldest:
                return {}  # it would have been found there
            above = above.rpartition("/")[0]
    return None


def _list(url: str, *, recursive: bool) -> dict[str, ListedObject]:
    """List a folder; returns what lies in it."""
    from pyarrow import fs

    filesystem, path = client(url)
    scheme = url.partition("://")[0]
    recursive = recursive or scheme in _FLAT
    selector = fs.FileSelector(path, recursive=recursive)  # which tells a missing bucket from a missing folder
    try:
        infos = attempted(url, lambda: filesystem.get_file_info(selector))
    except FileNotFoundError:
        if url == top(url):
            raise no_such_top(url) from None
        infos = []
    now = time.monotonic()
    by_folder: dict[str, dict[str, ListedObject]] = {url: {}}
    for info in sorted(infos, key=lambda info: info.path):
        folder, _, name = info.path.rstrip("/").rpartition("/")
        by_folder.setdefault(f"{scheme}://{folder}", {})[name] = _seen(name, info)
    for folder in list(by_folder):
        while len(folder) > len(url):  # folders that no object stands for
            above, _, name = folder.rpartition("/")
            by_folder.setdefault(above, {}).setdefault(name, ListedObject(name, True))
            folder = above
    with _lock:
        for folder, inside in by_folder.items():
            _listings[folder] = _Listing(now, inside)
            _objects.update({f"{folder}/{each.name}": each for each in inside.values() if not each.is_dir})
        if recursive:
            _whole[url] = now
    return by_folder[url]


def _seen(name: str, info: Any) -> ListedObject:
    return ListedObject(name, info.type.name == "Directory", info.size or 0, info.mtime_ns or 0)
