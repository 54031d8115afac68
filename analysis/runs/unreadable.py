"""Why reading a run's files failed: which of them is gone, or damaged where."""

from collections.abc import Iterable
from pathlib import Path

import duckdb

from ratioscope.errors import RatioscopeError, RunFormatError, first_line
from ratioscope.run_format.seals import damaged_row_group
from ratioscope.storage.places import Remote


def unreadable(files: Iterable[Path], error: Exception) -> RatioscopeError | None:
    """The sentence about the file that an error of DuckDB or pyarrow came from; None where it came from none of them.

    The files are read for it, one after the other, to the first that cannot be.
    """
    reason = first_line(error, 300)
    every = dict.fromkeys(files)
    for path in every:
        if isinstance(path, Remote):
            continue
        try:
            problem = damaged_row_group(path)
        except OSError as vanished:
            return RatioscopeError(
                f"{path}: vanished or changed while it was read ({vanished.strerror or vanished}); try again."
            )
        if problem:
            return RunFormatError(f"{path}: {problem}; take the file out of the folder to read the others.")
    if "utf" in reason.casefold():  # of a run elsewhere, or of one that has been mended meanwhile
        where = ", ".join(sorted({str(path.parent) for path in every}))
        return RunFormatError(f"{where}: text in a file is not UTF-8 ({reason}); take that file out of the folder.")
    if isinstance(error, OSError | duckdb.IOException):
        where = next((f"{path.parent}: " for path in every), "A file ")
        return RatioscopeError(f"{where}vanished or changed while it was read ({reason}); try again.")
    return None
