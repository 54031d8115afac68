"""Numbers as JSON has them: what is not finite is null, and so is an open end, or an interval without any end."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ratioscope.analysis.summary.intervals import Interval


def json_value(value: Any) -> Any:
    """A value, or a tree of mappings and sequences of values, as `json.dumps(..., allow_nan=False)` takes it."""
    if isinstance(value, Interval):
        ends = [json_value(float(value.low)), json_value(float(value.high))]
        return None if ends == [None, None] else ends
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return value
