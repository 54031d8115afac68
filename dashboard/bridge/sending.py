"""Sends the steps of a run that are new: into a target of the command, or to a function of a training loop."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ratioscope.analysis.runs.store import open_run, run_signature
from ratioscope.analysis.summary.summary import Summariser
from ratioscope.dashboard.bridge.numbers import StepNumbers, chosen, steps_beyond
from ratioscope.dashboard.bridge.targets import STEP, Target


class NewSteps:
    """Looks at a run again and again; only its new files are read."""

    def __init__(self, folder: Path, metrics: Sequence[str]) -> None:
        self._folder, self._metrics = folder, metrics
        self._summariser = Summariser()
        self._seen: object = None

    def send(self, target: Target) -> int:
        """Hand the new steps to the target, and say how many they were.

        Raises:
            RatioscopeError: the run cannot be read.
        """
        state = run_signature(self._folder)
        if state == self._seen:
            return 0
        summary = self._summariser.summarise(open_run(self._folder))
        sent = 0
        for numbers in steps_beyond(summary, self._metrics, target.last_step):
            target.send(numbers)
            sent += 1
        self._seen = state
        return sent


class _Function:
    """A function as a target, which starts behind a step."""

    where = "the function that was given"

    def __init__(self, log: Callable[[dict[str, float]], object], after: int) -> None:
        self._log, self.last_step = log, after

    def send(self, numbers: StepNumbers) -> None:
        self._log({STEP: float(numbers.step)} | numbers.flat)
        self.last_step = numbers.step

    def close(self) -> None:
        """Nothing is held back."""


class Bridge:
    """The bridge of a training loop.

    bridge = Bridge("runs/mine", wandb.log)
    ...
    recorder.flush()
    bridge.send()

    Args:
        folder: of the run.
        log: takes ratioscope/step and the numbers of one step by name, as `StepNumbers.flat` has them.
        metrics: keys of the catalogue; None: all.
        after: only steps beyond this one are sent.

    Raises:
        RatioscopeError: there is no such metric.
    """

    def __init__(
        self,
        folder: str | Path,
        log: Callable[[dict[str, float]], object],
        *,
        metrics: Sequence[str] | None = None,
        after: int = -1,
    ) -> None:
        self._new = NewSteps(Path(folder), chosen(metrics))
        self._target = _Function(log, after)

    def send(self) -> int:
        """Send the steps that have come since the last call; how many there were.

        Raises:
            RatioscopeError: the run cannot be read.
        """
        return self._new.send(self._target)
