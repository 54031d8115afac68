"""How many processes may make sections of a report at once, this one not counted."""

import os

_MOST = 3


def processes() -> int:
    """At least 0: a single core is busy with this one."""
    return min(_MOST, (os.cpu_count() or 1) - 1)
