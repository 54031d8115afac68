"""Views by name: a page and what its address asks for, kept beside the notes, for everybody whom this dashboard serves.

A view belongs to the folders that are served, because its runs are named relative to them. In a folder that is a
group's, names and addresses are other people's: hostile until escaped (`components.view_tools`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ratioscope.dashboard.annotations import annotations_folder
from ratioscope.dashboard.roots import root_key, roots
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.storage import bounds
from ratioscope.storage.whole_files import replace_atomically

LONGEST_NAME, MOST_VIEWS = 60, 200
_LONGEST_ADDRESS = 6_000  # characters; browsers and proxies take 8,000


@dataclass(frozen=True)
class SavedView:
    """A page as somebody has set it up."""

    name: str
    page: str
    query: Mapping[str, list[str]]


def saved_views() -> dict[str, SavedView]:
    """All views of the served folders by name; files that hold none are left out."""
    found: dict[str, SavedView] = {}
    for folder in reversed(_folders()):  # of two of one name that of the first folder
        with suppress(OSError):
            for file in folder.glob("*.json"):
                with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    view = _view(**json.loads(bounds.read_whole(file, _LONGEST_ADDRESS)))
                    if view.name and file == _file(folder, view.name):
                        found[view.name] = view
    return dict(sorted(found.items(), key=lambda item: item[0].casefold()))


def save_view(view: SavedView) -> SavedView | None:
    """Keep a view under its name; returns the one that it takes the place of.

    Raises:
        RatioscopeError: it has no name, it is too long, or it cannot be written.
    """
    known, kept = saved_views(), _view(view.name, view.page, view.query)
    if not kept.name:
        raise RatioscopeError("The view needs a name.")
    if (length := len(one_line(view.name).strip())) > LONGEST_NAME:
        raise RatioscopeError(f"This name has {length:,} characters; {LONGEST_NAME} are the most.")
    if kept.name not in known and len(known) >= MOST_VIEWS:
        raise RatioscopeError(f"{MOST_VIEWS} views are saved: delete one first.")
    contents = json.dumps({"name": kept.name, "page": kept.page, "query": dict(kept.query)})
    if len(contents) > _LONGEST_ADDRESS:
        raise RatioscopeError("This view has too long an address: choose fewer runs.")
    file = _file(_folders()[0], kept.name)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_atomically(file, contents.encode(), private=True)
    except OSError:
        raise RatioscopeError(f"The view was not saved: {annotations_folder()} cannot be written.") from None
    return known.get(kept.name)


def delete_view(view: SavedView) -> None:
    """Forget a view.

    Raises:
        RatioscopeError: it cannot be deleted.
    """
    try:
        for folder in _folders():
            _file(folder, view.name).unlink(missing_ok=True)
    except OSError:
        raise RatioscopeError(f"The view was not deleted: {annotations_folder()} cannot be written.") from None


def _view(name: object, page: object, query: Mapping[str, Iterable[object]]) -> SavedView:
    known = {str(key): list(map(str, values)) for key, values in query.items()}
    json.dumps(known, ensure_ascii=False).encode()  # half a pair of surrogates would fail in each link
    return SavedView(one_line(name)[:LONGEST_NAME].strip(), str(page), known)


def _folders() -> list[Path]:
    return [annotations_folder() / "views" / root_key(root) for root in roots()]


def _file(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
