"""What recording costs: seconds that the training waited for it, against the steps' own time, and bytes on disk.

    cost = Cost()
    with cost.recording():
        ...                                  # anything the training waits for
    cost.step_ended()
    print(cost.sentence(folder))

The writer's thread is not in it: it runs beside the training, on another core where there is one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Cost:
    """Seconds of a recorder's parts; the clock starts with the first `step_began`, and pauses are not counted."""

    def __init__(self) -> None:
        self.steps = 0
        self.recording_seconds = 0.0
        """Since the start, in which the training waited for the recorder; scoring is not in it."""
        self.scoring_seconds = 0.0
        """In extra forward passes (logp_new)."""
        self.step_seconds = 0.0
        """In steps, recording and scoring included."""
        self._began: float | None = None
        self._inside = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Count the block as recording; a block inside of another one counts once, and one before the first step not
        at all."""
        began = time.perf_counter()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside and (self.steps or self._began is not None):
                self.recording_seconds += time.perf_counter() - began

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Count the block as an extra forward pass, and not as recording."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self.scoring_seconds += seconds
            if self._inside:
                self.recording_seconds -= seconds

    def step_began(self) -> None:
        """The training starts a step."""
        self._began = time.perf_counter()

    def step_ended(self) -> float:
        """The training ended a step; returns its seconds."""
        if self._began is None:
            return 0.0
        seconds, self._began = time.perf_counter() - self._began, None
        self.step_seconds += seconds
        self.steps += 1
        return seconds

    @property
    def recording_share(self) -> float:
        """Of the steps' time without recording and scoring; NaN before the first step ended."""
        own = self.step_seconds - self.recording_seconds - self.scoring_seconds
        return self.recording_seconds / own if own > 0 else float("nan")

    @property
    def scoring_share(self) -> float:
        """As `recording_share`, of the extra forward passes."""
        own = self.step_seconds - self.recording_seconds - self.scoring_seconds
        return self.scoring_seconds / own if own > 0 else float("nan")

    def sentence(self, folder: Path) -> str:
        """What a user reads when the training is over."""
        if not self.steps:
            return f"ratioscope: no step was recorded in {folder}."
        megabytes = size_of(folder) / 1e6
        text = (
            f"ratioscope: {self.steps} steps recorded in {folder}. The training waited for the recorder for "
            f"{_percent(self.recording_share)} of its time ({1000 * self.recording_seconds / self.steps:.1f} ms a step)"
        )
        if self.scoring_seconds:
            text += f" and for scoring the updated policy (logp_new) for {_percent(self.scoring_share)}"
        return f"{text}; {megabytes:.2f} MB on disk, {megabytes / self.steps:.3f} MB a step."


def _percent(share: float) -> str:
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
