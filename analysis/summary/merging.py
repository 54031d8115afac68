"""The partials of a step's parts as those of the whole: sums add up, order statistics come from sketches."""

import numpy as np
import pandas as pd

from ratioscope.analysis.summary.sketch import of_tables

_KEY = ["step", "group_id"]
_LARGEST = ("peak", "exact_largest")
_LOGS_OF_SUMS = ("lse_w", "lse_w_squared", "lse_chi2")


def merged_groups(groups: pd.DataFrame) -> pd.DataFrame:
    """One row a (step, group_id) where there were several: of parts of its responses.

    Sums add up, and what no part has stays absent. Sums that are relative to their step's peak are brought to the
    highest of its parts.
    """
    peak = groups.groupby("step")["peak"].transform("max")
    shift = groups["peak"] - peak
    groups = groups.assign(
        peak=peak,
        scaled=groups["scaled"] * np.exp(shift),
        scaled_squared=groups["scaled_squared"] * np.exp(2 * shift),
    ).sort_values(_KEY, ignore_index=True)
    starts = np.flatnonzero(groups.groupby(_KEY, sort=False).cumcount() == 0)
    found = groups.loc[starts, _KEY].reset_index(drop=True)
    if len(starts) == len(groups):
        return groups
    for name in groups.columns.drop(_KEY):
        values = groups[name].to_numpy(dtype=float, na_value=np.nan)
        absent = np.isnan(values)
        if name in _LARGEST:
            found[name] = np.fmax.reduceat(values, starts)
        elif name in _LOGS_OF_SUMS:
            with np.errstate(all="ignore"):
                found[name] = np.logaddexp.reduceat(np.where(absent, -np.inf, values), starts)
        else:
            found[name] = np.add.reduceat(np.where(absent, 0.0, values), starts)
        found[name] = found[name].mask(np.logical_and.reduceat(absent, starts))
    return found


def merged_order(order: pd.DataFrame, sketches: pd.DataFrame) -> pd.DataFrame:
    """The order statistics of steps, with one row for each, from the sketches of all of their parts."""
    rows = [{"step": step} | of_tables(table).order() for step, table in sketches.groupby("step")]
    return pd.DataFrame(rows, columns=order.columns)


def merged_histogram(histogram: pd.DataFrame) -> pd.DataFrame:
    """The histogram with the parts' counts added up."""
    return histogram.groupby(["step", "bin"], as_index=False).agg({"tokens": "sum"})
