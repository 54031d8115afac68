"""Numbers as JSON has them: what is not finite is null, and so is an interval without two finite ends."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ratioscope.analysis.summary.intervals import Interval


def plain(value: Any) -> Any:
    """A value, or a tree of mappings and sequences of values, as `json.dumps(..., allow_nan=False)` takes it."""
    if isinstance(value, Interval):
        return [float(value.low), float(value.high)] if isfinite(value.low) and isfinite(value.high) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return value
