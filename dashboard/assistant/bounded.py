"""How much one answer may hold: a page of rows, long texts and long lists cut, and every cut said.

page_of("tokens", rows, offset=400, limit=200)   # {"tokens": [...], "total": 9120, "next_offset": 600, "cut": "..."}

A reader that is a model pays for each character, and most programs refuse answers above some ten thousand words.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.errors import RatioscopeError

MOST_CHARACTERS = 40_000
"""Of the rows of one answer, as JSON; what does not fit is on the next page."""
MOST_ROWS = 1_000
LONGEST_TEXT, LONGEST_LIST = 2_000, 100


def page_of(what: str, rows: Sequence[Any], offset: int, limit: int, total: int | None = None) -> dict[str, Any]:
    """A page of rows, as many as fit, and where the next one begins.

    Args:
        what: the name of the rows, a plural.
        rows: from the first one on; more than the page needs are left where they are.
        offset, limit: the first row of the page, and the most that are wanted.
        total: how many rows there are; default: those that are here.

    Raises:
        RatioscopeError: the offset or the limit is out of range.
    """
    check_page(offset, limit)
    total = len(rows) if total is None else total
    page: list[Any] = []
    size = 0
    for row in rows[offset : offset + limit]:
        held = cut_short(row)
        size += len(json.dumps(held, ensure_ascii=False, default=str))
        if page and size > MOST_CHARACTERS:
            break
        page.append(held)
    end = min(offset, total) + len(page)
    more = end < total
    return {
        "total": total,
        "next_offset": end if more else None,
        "cut": f"{len(page):,} of {total:,} {what} are here; offset {end} reads on." if more else None,
        what: page,
    }


def check_page(offset: int, limit: int) -> None:
    """Raise a RatioscopeError unless these are a page's."""
    if not 0 <= offset < 2**31:
        raise RatioscopeError("offset: write how many rows come before the page, from 0 on.")
    if not 1 <= limit <= MOST_ROWS:
        raise RatioscopeError(f"limit: write how many rows to return, 1 to {MOST_ROWS:,}.")


def cut_short(value: Any, longest: int = LONGEST_TEXT) -> Any:
    """A tree of values with long texts cut, which then say their length, and of mappings the long lists of values that
    are no trees; KEY_total then says how many there are."""
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}… ({len(value):,} characters)"
    if isinstance(value, Mapping):
        held: dict[str, Any] = {}
        for key, inner in value.items():
            plain = isinstance(inner, list | tuple) and not any(isinstance(each, dict | list | tuple) for each in inner)
            if plain and len(inner) > LONGEST_LIST:
                held[f"{key}_total"] = len(inner)
                inner = inner[:LONGEST_LIST]
            held[str(key)] = cut_short(inner, longest)
        return held
    return [cut_short(inner, longest) for inner in value] if isinstance(value, list | tuple) else value
