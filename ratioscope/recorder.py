"""RunRecorder: writes a run from any trainer, crash-safe, without holding up the updates.

    recorder = RunRecorder("runs/mine", name="mine", algorithm={"name": "grpo"}, vocabulary=tokenizer.decode)
    with recorder:
        for step in range(updates):
            ...
            recorder.record_step(step, tokens=..., sequences=..., scalars={"policy_version": step, "loss": loss})

Columns are those of `ratioscope.run_format.schema` (without `step`): anything pyarrow turns into an array, or torch
tensors. They are checked and copied before the call returns; a background thread sorts, compresses and writes. Its
queue is bounded: a slow disk slows the trainer down and never fills the memory; what a disk refuses for a while waits,
in bounded memory.
A `kill -9` loses the steps that were not flushed yet and nothing else; so does a SIGTERM that the program does not
handle. Ctrl-C waits for the last steps. A program that ends without `close` loses nothing: its end closes the recorder
and says so.
"""

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.background import Background
from ratioscope.errors import RatioscopeError, RunFormatError, first_line
from ratioscope.interrupts import held_interrupts
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest, now
from ratioscope.run_format.table_files import (
    LAST_STEP,
    Columns,
    by_key,
    check_columns,
    copied,
    leftovers,
    write_table_file,
)
from ratioscope.run_format.vocabulary import VocabularyFile
from ratioscope.run_format.writers import Seat, already_there, as_it_is, way_out, writers_of
from ratioscope.storage.places import Remote, place
from ratioscope.storage.spool import Spool
from ratioscope.storage.whole_files import reason_of, replace_atomically

FLUSH_ROWS = 250_000
# Seconds that the end of a program, or somebody who pressed Ctrl-C, waits for a disk that hangs.
_EXIT_SECONDS = 60.0
_LOG = logging.getLogger("ratioscope")


class RunRecorder:
    """Writes one run folder.

    Args:
        folder: where the run goes, a folder or a URL; must not hold a run yet, unless `resume` is true. What goes to a
            URL is written here first, and kept until it is through (`ratioscope.storage.spool`).
        resume: continue the numbering of the run that is there; steps already on disk are not written again.
        vocabulary: text of a token id, called once for each id that occurs.
        flush_seconds: a live reader sees a step at most about this much later.
        stop_on_error: columns that are wrong raise, and so does, at the next call, a disk that fails (True); or there
            is one warning, the recording ends and the program goes on (False). Errors that pass, as of a full disk, are
            warned of once, and the steps wait for the next try, up to `background.MOST_WAITING` bytes.
        writer: number of this writer, where several record into one run at a time, each with its own number: the first
            to come makes the run, the others join it, and what they say of it is not asked for. In a folder only.
        **manifest_fields: fields of `Manifest`: name, algorithm, schedule, task, seed, ...

    Raises:
        RunFormatError: the folder already holds a run, or, resuming, holds none that can be read.
        RatioscopeError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        resume: bool = False,
        vocabulary: Callable[[int], str] | None = None,
        flush_seconds: float = 3.0,
        stop_on_error: bool = True,
        writer: int = 0,
        **manifest_fields: Any,
    ) -> None:
        self.folder = place(folder)
        if not isinstance(self.folder, Remote):
            self.folder = self.folder.absolute()  # the program may change its folder meanwhile
        self._spool = Spool(self.folder) if isinstance(self.folder, Remote) else None
        self._disk = self._spool.folder if self._spool else self.folder
        self._writer, self._flush_seconds, self._stop_on_error = writer, flush_seconds, stop_on_error
        self._before: bytes | None = None
        """What run.json was, until something is added to a run that was taken over."""
        self._status, self._reason = "running", ""
        self._process = os.getpid()
        self._seat = Seat(self._disk, writer)
        self._seat.approach(self.folder, resume=resume)
        self._tables = schema.ALL_TABLES
        self._vocabulary = VocabularyFile(self.folder, self._disk, self._seat, vocabulary)
        try:
            if resume:  # what is damaged is said before the run is taken over
                self._vocabulary.resume()
            self._disk.mkdir(parents=True, exist_ok=True)
            with self._seat.exchange():
                self._become_the_writer(resume, manifest_fields)
            for table in schema.TABLES:
                (self._disk / table).mkdir(exist_ok=True)
            if self._spool:
                self._spool.start(anew=not resume)
            self._last_on_disk = {name: self._last_recorded(name) for name in self._tables}
        except OSError as error:
            self._seat.leave()
            raise RatioscopeError(f"{self.folder}: cannot be written ({reason_of(error)}).") from error
        except BaseException:
            self._seat.leave()
            raise

        self._next_step: int | None = None
        self._handed_over = -1
        """The last step that is in the queue, or was."""
        self._types = {name: pa.schema([]) for name in self._tables}
        """Of the columns that steps have had: one that no table declares keeps its kind."""
        self._other_words: dict[str, set[str]] = {}
        """By column: the words that were warned of."""
        self._pending: dict[str, list[pa.Table]] = {name: [] for name in self._tables}
        self._closed, self._ended = False, False
        self._background = Background(
            self.folder, lambda: self._flush(), self._beat, self._waiting, stop_on_error=stop_on_error
        )
        atexit.register(self._at_exit)

    # What a trainer calls -------------------------------------------------------------------------------------------

    @property
    def last_step(self) -> int:
        """The last step that is completely on disk; -1 when there is none."""
        return self._last_on_disk[schema.STEPS.name]  # written last

    def record_step(
        self,
        step: int,
        *,
        sequences: Columns,
        tokens: Columns | None = None,
        scalars: Mapping[str, Any] | None = None,
        probes: Mapping[str, Any] | None = None,
        messages: Columns | None = None,
    ) -> None:
        """Hand one update over to the writer. A column that is not given is not logged, and nothing stands in for it.

        Args:
            step: update index, a whole number; must grow from call to call.
            sequences: columns of the sequences table, arrays of length (n_sequences,).
            tokens: columns of the tokens table, arrays of length (n_tokens,). None: there are texts and rewards alone.
            scalars: one value a column of the steps table, a number or a tensor of one; `wall_time` is the present
                unless it is given, and None where it is not known.
            probes: one value a column of the probes table, where a gradient probe was made at this step.
            messages: columns of the messages table, arrays of length (n_messages,).

        Raises:
            RunFormatError: a required column is missing, lengths differ, values do not fit a column's type, or the step
                is no whole number or does not grow.
            RatioscopeError: writing an earlier step failed, the recorder is closed, or another process made it.
        """
        self._check_process()
        self._raise_error()
        if self._background.error is not None:
            return
        if self._closed:
            raise RatioscopeError(f"{self.folder}: step {step} was recorded after the recorder was closed.")
        one_row = {"wall_time": datetime.now(UTC)} | dict(scalars or {})
        given = {
            "tokens": tokens,
            "sequences": sequences,
            "steps": {key: [value] for key, value in one_row.items()},
            "probes": {key: [value] for key, value in probes.items()} if probes is not None else None,
            "messages": messages,
        }
        try:
            step = self._checked(step)
            rows = {
                name: self._rows(name, columns, step)
                for name, columns in given.items()
                if columns is not None and step > self._last_on_disk[name]
            }
        except RunFormatError as error:
            if self._stop_on_error:
                raise
            self._background.hand(partial(self._end_before, error))
            return
        self._next_step = step + 1
        self._background.hand(partial(self._take, rows))
        self._handed_over = step

    def _checked(self, step: Any) -> int:
        """The number of a step that can be recorded now; raises `RunFormatError`."""
        value = step
        with suppress(ValueError, RuntimeError):  # of an array of several
            value = step.item() if hasattr(step, "item") else step
        number = value if isinstance(value, int) and not isinstance(value, bool) else -1
        if not 0 <= number <= LAST_STEP:
            raise RunFormatError(
                f"{self.folder}: step {step!r} cannot be recorded, steps are whole numbers from 0 to {LAST_STEP}."
            )
        if self._next_step is not None and number < self._next_step:
            raise RunFormatError(f"{self.folder}: step {number} was recorded after step {self._next_step - 1}.")
        return number

    def _rows(self, name: str, columns: Columns, step: int) -> pa.Table:
        check_columns(self._tables[name], columns)
        rows = copied(self._tables[name], columns, step)
        try:
            self._types[name] = pa.unify_schemas([self._types[name], rows.schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise RunFormatError(
                f"{self.folder}: the {name} table of step {step} has other types than before: {first_line(error)}."
            ) from None
        self._say_other_words(name, rows)
        return rows

    def _say_other_words(self, name: str, rows: pa.Table) -> None:
        """Warn once of each word that readers do not know; it is kept."""
        for column in self._tables[name].columns:
            if column.words and column.name in rows.column_names:
                found = pc.unique(rows.column(column.name)).drop_null().to_pylist()
                for word in sorted({*found} - {*column.words, *self._other_words.get(column.name, ())}):
                    self._other_words.setdefault(column.name, set()).add(word)
                    known = ", ".join(column.words)
                    _LOG.warning("%s: %s %r is kept; the words known are %s.", self.folder, column.name, word, known)

    def set_aside(self, step: int) -> None:
        """Move what is on disk of `step` and later steps into `set_aside/`, where no reader looks; it is recorded anew.

        For a run that goes on from `step` and cannot repeat what it did then; before its first `record_step`.
        """
        self._before = None
        aside = Path("set_aside", f"from_step_{step}_at_{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        for name in self._tables:
            for path in self._files(name):
                parsed = schema.FileName.parse(path.name)
                if parsed and parsed.writer == self._writer and parsed.first_step >= step:
                    to = path.parents[1] / aside / name
                    to.mkdir(parents=True, exist_ok=True)
                    path.rename(to / path.name)
            self._last_on_disk[name] = self._last_recorded(name)

    def close(self, status: str = "finished", reason: str = "") -> None:
        """Write what is left and set the final status: finished, interrupted or failed; the first call counts.

        A run that was taken over, and failed before anything was added to it, is left as it was.
        """
        if self._ended or os.getpid() != self._process:
            return
        with held_interrupts() as held:
            if not self._closed:
                self._closed, self._status, self._reason = True, status, reason
            if self._finish(lambda: held.since(_EXIT_SECONDS)):
                self._end(lambda: held.first is not None)
            if held.first is not None and self._background.error is not None:
                _LOG.warning("%s: %s.", self.folder, reason_of(self._background.error))
        self._raise_error()

    def flush(self) -> None:
        """Wait until every recorded step is on disk.

        Raises:
            RatioscopeError: they cannot be written, now or at all.
        """
        self._check_process()
        self._background.write_all()
        self._raise_error()
        put_off = self._background.put_off
        if put_off is not None and self._stop_on_error:
            raise RatioscopeError(
                f"{self.folder}: the steps after {self.last_step} are not on disk yet ({reason_of(put_off)}); "
                "they wait in memory, and writing them is tried again."
            ) from put_off

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(*way_out(error))

    # The background thread ------------------------------------------------------------------------------------------

    def _waiting(self) -> int:
        """Bytes of the steps that are not on disk yet, but for those in the queue."""
        return sum(table.nbytes for tables in self._pending.values() for table in tables)

    def _beat(self) -> None:
        self._flush_when_due()
        self._write_manifest("running")

    def _take(self, rows: Mapping[str, pa.Table]) -> None:
        for name, table in rows.items():
            self._pending[name].append(by_key(self._tables[name], table))
        self._flush_when_due()

    def _end_before(self, error: Exception) -> NoReturn:
        """Write the steps before the one that cannot be recorded, and raise why it cannot."""
        with suppress(OSError):
            self._background.write()
        raise error

    def _flush_when_due(self) -> None:
        rows = sum(table.num_rows for name in ("tokens", "sequences") for table in self._pending[name])
        due = self._background.is_due(self._flush_seconds)
        if due or (rows >= FLUSH_ROWS and self._background.put_off is None):
            self._background.write()

    def _flush(self) -> None:
        self._vocabulary.extend(self._pending["tokens"])
        # Steps come last: a step with scalars is a complete step.
        for name in (*schema.OCCASIONAL_TABLES, *schema.TABLES):
            if not self._pending[name]:
                continue
            (self._disk / name).mkdir(exist_ok=True)
            table = pa.concat_tables(self._pending[name], promote_options="permissive")
            steps = table.column("step")
            first, last = pc.min(steps).as_py(), pc.max(steps).as_py()
            if first is None:
                self._pending[name].clear()
                continue
            write_table_file(self._disk / name / str(schema.FileName(first, last, self._writer)), table)
            self._before = None
            self._last_on_disk[name] = last
            self._pending[name].clear()
        self._write_manifest("running")

    def _write_manifest(self, status: str, reason: str = "") -> None:
        self.manifest.heartbeat = now()
        with self._seat.exchange():
            self._seat.write(self.manifest, status, reason)

    # The end --------------------------------------------------------------------------------------------------------

    def _finish(self, gives_up: Callable[[], bool]) -> bool:
        """Let the thread write the rest; whether it has."""
        if self._background.finish(gives_up):
            return True
        _LOG.warning(
            "%s: the steps after %d could not be written in %g seconds; they are lost.",
            self.folder, self.last_step, _EXIT_SECONDS,
        )  # fmt: skip
        return False

    def _end(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Write the final status; the thread has written the rest."""
        if self._background.error is not None:
            self._status, self._reason = "failed", f"recording stopped: {reason_of(self._background.error)}"
        elif self._status == "finished" and self.last_step < self._handed_over:
            self._status, self._reason = "failed", f"the steps after {self.last_step} were not written"
        try:
            if self._status == "failed" and self._before is not None:
                replace_atomically(self._disk / MANIFEST_NAME, self._before)
            else:
                self._write_manifest(self._status, self._reason)
            if self._spool:
                self._spool.close(interrupted)
        except (OSError, RatioscopeError) as error:
            self._background.error = self._background.error or error
        self._ended = True
        self._seat.leave()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """The program ends, and nobody has closed the recorder: what is left is written, and that is said."""
        if os.getpid() != self._process:
            return
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # in a session it may be an old one
        if not self._closed:
            self._closed, (self._status, self._reason) = True, way_out(error)
            self._reason = self._reason or "the program ended without closing the recorder"
        until = time.monotonic() + _EXIT_SECONDS
        with held_interrupts() as held:
            if not self._finish(lambda: time.monotonic() >= until):
                return
            self._end(lambda: held.first is not None)
        problem = f" ({reason_of(self._background.error)})" if self._background.error is not None else ""
        _LOG.warning(
            "%s: the program ended without closing the recorder%s; it is closed now, the last step on disk is %d.",
            self.folder, problem, self.last_step,
        )  # fmt: skip

    # Details --------------------------------------------------------------------------------------------------------

    def _become_the_writer(self, resume: bool, manifest_fields: Mapping[str, Any]) -> None:
        """Make the run, join its writers, or take it over from one that is gone, with its half-written files."""
        found = self._seat.approach(self.folder, resume=resume)
        if not self._seat.take():
            raise RunFormatError(f"{self.folder}: another process writes this run as writer {self._writer}.")
        self.manifest = found or Manifest(**({"name": self.folder.name} | dict(manifest_fields)))
        if found is None:
            with suppress(FileExistsError):
                self._seat.write(self.manifest, "running", "", new=True)
                return
            raise already_there(self.folder)
        if not self._seat.joined:
            latest = self._spool.latest() if self._spool else self.folder
            self._before = (latest / MANIFEST_NAME).read_bytes()
            if found.writers:
                entries = writers_of(found).items()
                self.manifest.writers = {name: as_it_is(entry, ended=True) for name, entry in entries}
                self.manifest.write(self._disk)
        if resume:
            for leftover in leftovers(self._disk, self._writer, shared=not self._seat.joined):
                leftover.unlink(missing_ok=True)
        self.manifest.heartbeat = now()
        self._seat.write(self.manifest, "running", "")

    def _last_recorded(self, name: str) -> int:
        names = (schema.FileName.parse(path.name) for path in self._files(name))
        return max((parsed.last_step for parsed in names if parsed and parsed.writer == self._writer), default=-1)

    def _files(self, table: str) -> list[Path]:
        """A table's files; of a run that goes to a URL those that are through, and those that wait."""
        places = dict.fromkeys((self._disk, self.folder))
        return [path for folder in places for path in (folder / table).glob("*.parquet")]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RatioscopeError(
                f"{self.folder}: its recorder belongs to process {self._process}, from which this one was forked; make "
                "a RunRecorder here, with a writer number of its own."
            )

    def _raise_error(self) -> None:
        if self._background.error is not None and self._stop_on_error:
            if isinstance(self._background.error, RatioscopeError):
                raise self._background.error
            raise RatioscopeError(
                f"{self.folder}: recording stopped ({reason_of(self._background.error)})."
            ) from self._background.error
