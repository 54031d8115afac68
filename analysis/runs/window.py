"""A window of a run: the steps that something looks at, of a run in one state of its folder.

window = window_of(run, summary.values["n_tokens"], (None, None), 500_000)      # the latest steps with so many tokens
measure(window.run(), *window.steps)
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.store import Run, open_run

FirstLast = tuple[int | None, int | None]
"""First and last step, both included; None is the first or last there is."""


@dataclass(frozen=True)
class Window:
    """The steps first..last, both included. Small and hashable: what is computed from their tokens is kept by it."""

    folder: Path
    signature: str
    """Of the run's state (`store.signature`): another one when there is news."""
    first: int
    last: int
    left_out: tuple[LeftOut, ...] = ()
    """See `Run.left_out`."""

    @classmethod
    def of(cls, run: Run, first: int | None = None, last: int | None = None) -> "Window":
        """Steps of a run that is open; None is the first or last there is."""
        steps = 0 if first is None else first, run.last_step if last is None else last
        return cls(run.folder, run.signature, *steps, run.left_out)

    @property
    def steps(self) -> tuple[int, int]:
        """First and last step, as functions of a run take them."""
        return self.first, self.last

    @property
    def words(self) -> str:
        """ "step 3", "steps 3 to 9"."""
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"

    def run(self) -> Run:
        """The run, opened again: what is on disk has no place in a key.

        Raises:
            RunFormatError: as `open_run`.
        """
        return replace(open_run(self.folder), left_out=self.left_out)

    def latest(self, n_tokens: "pd.Series[float]", tokens: int) -> "Window":
        """The latest of these steps that hold at most so many tokens together, at least one.

        Args:
            n_tokens: by step, ascending; of these steps at least one.
        """
        held = n_tokens.loc[self.first : self.last][::-1].cumsum()
        return replace(self, first=int(held.index[max(1, int((held <= tokens).sum())) - 1]), last=int(held.index[0]))


def window_of(run: Run, n_tokens: "pd.Series[float]", steps: FirstLast, tokens: int) -> Window:
    """What is looked at token by token: the chosen steps, else the latest ones that hold at most so many tokens.

    Args:
        n_tokens: by step, ascending, not empty.
        steps: the chosen ones, where both are given.
    """
    first, last = steps
    if first is not None and last is not None:
        return Window.of(run, first, last)
    return Window.of(run, int(n_tokens.index[0]), int(n_tokens.index[-1])).latest(n_tokens, tokens)
