"""Scalars of the steps table that are no finite numbers, and since when one is not logged any more.

Read from the files: a frame makes one of NaN, which was logged, and null, which was not.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.analysis.runs.store import Run

_NEARLY_ALL, _STOPPED = 0.9, 3
"""A scalar in so large a share of the steps, and in none of so many last ones, has stopped being logged."""


def flags_of_scalars(run: Run, names: Sequence[str]) -> pd.DataFrame:
    """Return by step whether each logged scalar is not finite; null where it was not logged."""
    if not run.files["steps"]:
        return pd.DataFrame(index=pd.Index([], name="step"))
    table = run.table("steps", ["step", *names])
    logged = [name for name in names if name in table.column_names]
    columns = {name: pc.invert(pc.is_finite(table[name].cast(pa.float64()))) for name in logged}
    found = pa.table({"step": table["step"], **columns}).to_pandas()
    return found.groupby("step").last()


def unusable(flags: "pd.Series[bool]") -> "pd.Series[bool]":
    """Return the steps that say something of a scalar, and whether it is not finite there.

    Args:
        flags: of one scalar, as `flags_of_scalars` returns them.

    A scalar that was in nearly every step and is missing up to the end is not finite there: some loggers make nothing
    of NaN.
    """
    known = flags.notna()
    if not known.any():
        return flags[known].astype(bool)
    end = int(np.flatnonzero(known)[-1]) + 1
    stopped = float(known.iloc[:end].mean()) >= _NEARLY_ALL and len(known) - end >= _STOPPED
    return (flags.fillna(True) if stopped else flags[known]).astype(bool)
