"""`ratioscope cache`: what is kept of runs that were read, and how to clear it."""

from typing import Annotated

import typer

from ratioscope.dashboard.cli.common import app, examples
from ratioscope.dashboard.terminal import print_line
from ratioscope.errors import RatioscopeError


@app.command(epilog=examples("cache", "cache --clear", "cache --clear --only partials"))
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove what is kept.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="KIND", help="With --clear: remove entries of one kind alone.")
    ] = None,
) -> None:
    """What the cache holds, by kind, or clear it.

    It holds what can be computed again: RATIOSCOPE_CACHE says where, RATIOSCOPE_CACHE_LIMIT how many megabytes. Warm
    starts, converted models and what was sent as an alert are no entries of it and stay. A folder that everybody may
    write to, or that is another user's, is not used: name another one, or take the right to write from the others.
    """
    from ratioscope.storage.cache import cache_folder, forget, kept_now

    kept = kept_now()
    if only is not None and not clear:
        raise RatioscopeError("--only goes with --clear.")
    if only is not None and only not in kept:
        raise RatioscopeError(f"The cache holds nothing of the kind {only!r}; there is {', '.join(kept) or 'nothing'}.")
    if clear:
        removed = forget(only)
        print_line(f"{removed} {'entries were' if removed != 1 else 'entry was'} removed from {cache_folder('')}.")
    else:
        print_line(f"{cache_folder('')}: {sum(size for _, size in kept.values()) / 1e6:.1f} MB")
        for kind, (n, size) in kept.items():
            print_line(f"{kind:<20} {n:>8} {'entries' if n != 1 else 'entry':<8} {size / 1e6:>10.1f} MB")
