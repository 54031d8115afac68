"""What rules and checks share of what they look at: the run, the limits that hold for it, and what it logs."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.logged import Logged, logged
from ratioscope.analysis.runs.store import Run

_Made = TypeVar("_Made")


class Evidence:
    """What a rule or a check looks at; each thing is found out when it is first asked for."""

    run: Run | None
    limits: Limits

    @cached_property
    def log(self) -> Logged:
        """Which columns the run logs; of evidence with a run."""
        assert self.run is not None
        return logged(self.run)

    def once(self, name: str, make: Callable[[], _Made]) -> _Made:
        """What `make` returns, made when it is first asked for by this name."""
        if name not in self._made:
            self._made[name] = make()
        made: _Made = self._made[name]
        return made

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}
