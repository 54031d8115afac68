"""A run that is recorded from inside of somebody else's training: an error ends the recording, never the training."""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ratioscope.adapters.cost import Cost
from ratioscope.recorder import RunRecorder
from ratioscope.run_format.manifest import MANIFEST_NAME, library_versions
from ratioscope.storage.places import Remote, place

_LOG = logging.getLogger("ratioscope")
T = TypeVar("T")


class Recording:
    """Opens its run with the first step, prints what it cost when it is closed.

    Args:
        folder: where the run goes.
        producer: who records, for the manifest.
        new: score the batch again after every n-th update (`logp_new`); 0: never.
        quiet: do not print what recording cost.
    """

    def __init__(self, folder: str | Path, producer: str, *, new: int = 0, quiet: bool = False) -> None:
        self.folder, self.new, self.cost = place(folder), new, Cost()
        if not isinstance(self.folder, Remote):
            self.folder = self.folder.absolute()  # the training may change its folder meanwhile
        self.failure = ""
        """Why the recording stopped before the training did; empty: it did not."""
        self._producer, self._quiet = producer, quiet
        self._run: RunRecorder | None = None
        self._steps = 0
        self._seconds_before = 0.0
        self._closed = False

    @property
    def live(self) -> bool:
        """Whether steps are still taken."""
        return not self.failure and not self._closed

    @property
    def scores_now(self) -> bool:
        """Whether `logp_new` is due at the step that is being recorded."""
        return self.live and self.new > 0 and self._steps % self.new == 0

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Do something for the recording, with the training waiting for it; None where it failed, now or before."""
        if not self.live:
            return None
        try:
            with self.cost.recording():
                return action()
        except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
            self.stop(error)
            return None

    def score(self, action: Callable[[], T]) -> T | None:
        """The extra forward pass; as `attempt`, and its seconds are counted apart."""
        return self.attempt(lambda: self._scored(action))

    def write(
        self,
        step: int,
        *,
        sequences: Mapping[str, Any],
        tokens: Mapping[str, Any] | None,
        scalars: Mapping[str, Any],
        manifest: Callable[[], Mapping[str, Any]],
        resumed: bool = False,
    ) -> None:
        """Hand a step over; the seconds that recording it has taken go into `seconds_logging`.

        Args:
            manifest: fields of the manifest and `vocabulary`, asked for once.
            resumed: the training goes on from a checkpoint, so a run that is there is continued.
        """
        self.attempt(lambda: self._write(step, sequences, tokens, scalars, manifest, resumed))

    def _write(
        self,
        step: int,
        sequences: Mapping[str, Any],
        tokens: Mapping[str, Any] | None,
        scalars: Mapping[str, Any],
        manifest: Callable[[], Mapping[str, Any]],
        resumed: bool,
    ) -> None:
        if self._run is None:
            resume = resumed and (self.folder / MANIFEST_NAME).exists()
            fields = {"producer": {"name": self._producer} | library_versions("ratioscope"), **manifest()}
            vocabulary = fields.pop("vocabulary", None)
            self._run = RunRecorder(self.folder, resume=resume, vocabulary=vocabulary, **({} if resume else fields))
        seconds = self.cost.recording_seconds - self._seconds_before
        self._run.record_step(step, sequences=sequences, tokens=tokens, scalars={**scalars, "seconds_logging": seconds})
        self._seconds_before += seconds
        self._steps += 1

    def close(self, status: str = "finished", reason: str = "") -> None:
        """Write what is left and print the cost; the first call counts."""
        if self._closed:
            return
        if self._run is not None and not self.failure:
            run = self._run
            self.attempt(lambda: run.close(status, reason))
        self._closed = True
        if self.cost.steps and not self._quiet and not self.failure:
            print(self.cost.sentence(self.folder), flush=True)

    def _scored(self, action: Callable[[], T]) -> T:
        with self.cost.scoring():
            return action()

    def stop(self, error: Exception) -> None:
        """End the recording with one warning; the training goes on."""
        self.failure = f"{type(error).__name__}: {error}"
        _LOG.warning("ratioscope stopped recording %s, the training goes on: %s", self.folder, error)
        run = self._run
        if run is not None:  # not waited for: a writer that hangs must not hold the training up
            threading.Thread(target=_given_up, args=(run, self.failure), daemon=True).start()


def closing(recording: Recording, train: Callable[[], T]) -> T:
    """Train, and close the recording with what became of it."""
    try:
        result = train()
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        why = "stopped by the user" if stopped else f"{type(error).__name__}: {error}"[:500]
        recording.close("interrupted" if stopped else "failed", why)
        raise
    recording.close()
    return result


def _given_up(run: RunRecorder, reason: str) -> None:
    try:
        run.close("failed", f"recording stopped: {reason}"[:500])
    except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
        _LOG.debug("%s: %s", run.folder, error)
