"""Files of a flush that is under way: its writer has written one table of it, and not yet the next."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ratioscope import schema

if TYPE_CHECKING:
    from ratioscope.analysis.runs.store import TableFile


def in_flight(listed: "Mapping[str, Sequence[TableFile]]") -> set[str]:
    """Identities of the files that are left out until their flush is whole: their steps would seem to lack rewards.

    A writer flushes one table after the other, in the order of `schema.TABLES`, so that only its newest file of a table
    can be ahead of a table behind it. Where more are, that table is not written with every flush.

    Args:
        listed: the files of each table, of a run that is being written.
    """
    of_writer: defaultdict[int, dict[str, list[TableFile]]] = defaultdict(dict)
    for table in schema.TABLES:
        for file in listed.get(table, ()):
            of_writer[file.name.writer].setdefault(table, []).append(file)
    found: set[str] = set()
    for tables in of_writer.values():
        flushed: int | None = None  # the last step of which every table behind is there
        for files in reversed(tables.values()):
            if flushed is not None:
                ahead = [file for file in files if file.name.last_step > flushed]
                if len(ahead) == 1:
                    found.add(ahead[0].identity)
            last = max(file.name.last_step for file in files)
            flushed = last if flushed is None else min(flushed, last)
    return found
