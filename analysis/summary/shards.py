"""A run's partials by shards: several processes or machines compute a part of the units each, into one cache."""

from collections.abc import Callable, Sequence

from ratioscope.analysis.summary.partials import ScanEngine, kept, partials_of, threads
from ratioscope.analysis.summary.units import ScanUnit
from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import kept_in


def parts(units: Sequence[ScanUnit]) -> list[ScanUnit]:
    """What is computed one by one: units, or the parts of those that have any."""
    return [part for unit in units for part in unit.parts]


def shard(units: Sequence[ScanUnit], number: int, of: int) -> list[ScanUnit]:
    """The number-th of so many parts, from 1 on: every of-th unit, so that a unit that is appended moves no other."""
    return list(units[number - 1 :: of])


def missing(units: Sequence[ScanUnit]) -> list[ScanUnit]:
    """Those whose partials are not in the cache."""
    return [unit for unit in units if not kept(unit).there]


def fill(
    units: Sequence[ScanUnit],
    progress: Callable[[int, int], None] = lambda done, of: None,
    engine: ScanEngine = threads,
) -> None:
    """Compute the partials that are not in the cache; each is there as soon as it is known.

    Raises:
        RatioscopeError: a file cannot be read any more, or the cache does not keep what is put into it.
    """
    left = missing(units)
    done = len(units) - len(left)
    progress(done, len(units))
    for unit, _ in partials_of(left, engine):
        if done == len(units) - len(left) and not kept(unit).there:  # asked once: at a URL it is a request
            raise RatioscopeError(
                f"{kept_in('partials')}: does not keep partials; make room, make it writable, or raise "
                "RATIOSCOPE_CACHE_LIMIT."
            )
        done += 1
        progress(done, len(units))
    if lost := len(missing(units)):
        raise RatioscopeError(
            f"{kept_in('partials')}: {lost} of {len(units)} units are not there any more; raise RATIOSCOPE_CACHE_LIMIT "
            "(megabytes), make room, or make it writable."
        )
