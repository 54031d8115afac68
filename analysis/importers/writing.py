"""A source written as a run: whole or not at all, continued where it was left, only what is new, or followed.

A new run is written into a hidden folder beside the one that it will have, and renamed when it is whole: nobody ever
sees half of one. What was interrupted stays there, and the next import of the same source continues it; after an error
it is removed. A run that is followed has its own name from the beginning, because somebody looks at it.
"""

import gc
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratioscope.analysis.importers.detect import FoundSource
from ratioscope.analysis.importers.source import ImportProblem, Reading, Step
from ratioscope.errors import RatioscopeError, RunFormatError
from ratioscope.recorder import RunRecorder
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest
from ratioscope.run_format.table_files import check_step, copied

Texts = Callable[[int], str]

# Of a source that cannot be read while it grows, this many looks in a row are put down to a file that is being written.
_PATIENCE = 3
# A folder with more files than these is not looked through for news and times.
_MOST_FILES = 100_000
# Seconds in which an import that has made its folder writes the manifest.
_BEGINNING = 10.0
# Without both of them a token has no ratio.
_LOG_PROBABILITIES = ("logp_behavior", "logp_current")


@dataclass
class Imported:
    """How far an import has come; what it brought, when it is over."""

    folder: Path
    steps: int = 0
    """That were new."""
    responses: int = 0
    tokens: int = 0
    last_step: int = -1
    bytes_read: int = 0
    """Of the source, where its reader counts."""
    problems: tuple[str, ...] = ()
    """What was left out because it cannot be read: one sentence each."""
    failed: Counter[str] = field(default_factory=Counter)
    """Responses by `failure`."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Those that did not fail, by `dropped`."""
    without: Counter[str] = field(default_factory=Counter)
    """Those in the loss that have no log-probability, by its column."""
    partly: Counter[str] = field(default_factory=Counter)
    """Those that have one for a part of their tokens."""
    logged: set[str] = field(default_factory=set)
    """Columns of log-probabilities that are there."""
    continued: bool = False
    """Whether the run, or a part of it, was there before."""


Tell = Callable[[Imported], None]


@dataclass(frozen=True)
class Options:
    """How a source is read."""

    unpickle: bool = False
    skip_bad: bool = False
    texts: Texts | None = None
    """Text of a token id, for the vocabulary."""


def import_run(found: FoundSource, folder: Path, options: Options, tell: Tell = lambda so_far: None) -> Imported:
    """Write a source as a run, or what is new of it into the run that was made of it before.

    Raises:
        ImportProblem: something cannot be read, and is not to be left out. A new run is then not there at all; one that
            was there before keeps the steps that came first.
        RatioscopeError: the folder holds a run of something else, or cannot be written.
    """
    _check(found, folder, options)
    done, hidden = Imported(folder), _hidden(folder)
    with _said(found):
        if _holds_run(folder):
            _check_last_step(found, folder, options)
            with _continued(found, folder, options) as recorder, _interrupted_by_problems(recorder):
                done.continued = True
                _write(found, recorder, options, done, tell)
            return done
        _make_room(found, hidden)
        is_mine = not _holds_run(hidden)
        try:
            with _begun(found, hidden, folder.name, options) as recorder:
                is_mine, done.continued = True, recorder.last_step >= 0
                _write(found, recorder, options, done, tell)
            if not done.steps and not done.continued:
                raise ImportProblem(f"{found.description.path}: not one step can be read here, so no run is written.")
            hidden.rename(folder)
        except Exception:
            if is_mine:  # what the user interrupts stays, and is continued
                shutil.rmtree(hidden, ignore_errors=True)
            raise
    return done


def follow_run(
    found: FoundSource,
    folder: Path,
    options: Options,
    *,
    every: float,
    quiet: float,
    tell: Tell = lambda so_far: None,
) -> Imported:
    """Write a source as a run and go on while it grows; ends when nothing has changed for `quiet` seconds, or had.

    The last step is left out until a later one, or silence, says that it is complete.

    Args:
        every: seconds between two looks.

    Raises:
        KeyboardInterrupt: the user ended it; the next import continues.
        ImportProblem: as `import_run`, where several looks in a row meet the same problem.
        RatioscopeError: as `import_run`.
    """
    _check(found, folder, options)
    with _said(found):
        if not _holds_run(folder):
            _make_room(found, _hidden(folder))
            _hidden(folder).rename(folder)  # new or continued, it grows where it is seen
    done = Imported(folder, continued=_holds_run(folder))
    if done.continued:
        _check_last_step(found, folder, options)
    with _said(found), _begun(found, folder, folder.name, options) as recorder, _interrupted_by_problems(recorder):
        seen, since, failed = -1, time.monotonic(), 0
        kept = Reading()
        while True:
            now = newest_change(found.description.path)
            if now != seen or failed:
                since = since if now == seen else time.monotonic()
                seen = now
                try:
                    _write(found, recorder, options, done, tell, growing=True, kept=kept)
                    failed = 0
                except ImportProblem:
                    failed += 1
                    if failed >= _PATIENCE:
                        raise
            if time.monotonic() - since >= quiet or time.time() - last_change(found.description.path) >= quiet:
                break
            tell(done)
            time.sleep(every)
        _write(found, recorder, options, done, tell, kept=kept)
    return done


def newest_change(path: Path) -> int:
    """Changes when a file below the path does: of a source, whether it has news."""
    return hash(tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in _files(path)))


def last_change(path: Path) -> float:
    """When a file below the path was written to last, in seconds since 1970; 0 where there is none."""
    return max((stat.st_mtime for _, stat in _files(path)), default=0.0)


# A run that is begun or continued -------------------------------------------------------------------------------------


def _begun(found: FoundSource, folder: Path, name: str, options: Options) -> RunRecorder:
    """A recorder of a new run, or of the one that is in this folder."""
    if _holds_run(folder):
        return _continued(found, folder, options)
    return RunRecorder(folder, vocabulary=options.texts, **manifest_of(found, name))


def _continued(found: FoundSource, folder: Path, options: Options) -> RunRecorder:
    _check_identity(found, folder)
    return RunRecorder(folder, resume=True, vocabulary=options.texts)


def _check_identity(found: FoundSource, folder: Path) -> None:
    manifest = Manifest.read(folder)
    if not _is_of(found, manifest):
        path, name = manifest.source.get("path"), manifest.source.get("format")
        of = f"made of {path} ({name})" if path else "that was not imported"
        raise RatioscopeError(f"{folder}: holds a run {of}; choose another name for this one with --name.")


def _holds_run(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def _is_of(found: FoundSource, manifest: Manifest) -> bool:
    return (manifest.source.get("path"), manifest.source.get("format")) == _identity(found)


def _identity(found: FoundSource) -> tuple[str, str]:
    return str(found.description.path.resolve()), found.importer.name


def _hidden(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.importing")


def _make_room(found: FoundSource, hidden: Path) -> None:
    """Make the folder, which only one of two imports can, and remove what one left half that cannot be continued."""
    if _made(hidden):
        return
    if not _holds_run(hidden) and time.time() - hidden.stat().st_mtime < _BEGINNING:
        raise RatioscopeError(f"{hidden}: another import into it is beginning at the moment.")
    try:
        manifest = Manifest.read(hidden)
        if manifest.live_status() == "running":
            raise RatioscopeError(f"{hidden}: process {manifest.process_id} is importing this at the moment.")
        if _is_of(found, manifest):
            return
    except RunFormatError:
        pass
    shutil.rmtree(hidden, ignore_errors=True)
    _made(hidden)


def _made(hidden: Path) -> bool:
    try:
        hidden.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _check(found: FoundSource, folder: Path, options: Options) -> None:
    """Raise what can be known before anything is written."""
    source = found.description.path.resolve()
    if source.is_dir() and folder.resolve().is_relative_to(source):
        raise RatioscopeError(
            f"{folder}: lies in the folder that is imported, in which nothing is written; choose another with --to."
        )
    if folder.exists() and not _holds_run(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise RatioscopeError(f"{folder}: something else is there; choose another name with --name.")
    why = found.description.unpickles
    if why and not options.unpickle:
        raise RatioscopeError(
            f"{source}: {why.rstrip('.')}; unpickling runs whatever code a file holds, so allow it with --allow-pickle "
            "only for files that you trust."
        )


@contextmanager
def _interrupted_by_problems(recorder: RunRecorder) -> Iterator[None]:
    """A run whose source cannot be read further is interrupted: its training did not fail."""
    try:
        yield
    except RatioscopeError as error:
        recorder.close("interrupted", f"the import stopped: {error}"[:500])
        raise


@contextmanager
def _said(found: FoundSource) -> Iterator[None]:
    """What does not fit the run format is said of the source: it is nothing that the run did wrong."""
    try:
        yield
    except RunFormatError as error:
        raise ImportProblem(f"{found.description.path}: {error}") from None
    except OSError as error:  # the importer's are sentences already
        place = error.filename2 or error.filename or found.description.path
        raise RatioscopeError(f"{place}: cannot be used ({error.strerror or error}).") from None


# Steps ----------------------------------------------------------------------------------------------------------------


@contextmanager
def _older_objects_set_aside() -> Iterator[None]:
    """Keep the collector off what was there before: it would go through all of it whenever many records are parsed.

    A server has frozen its own objects, and only all of them can be given back: nothing more is frozen there.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@_older_objects_set_aside()
def _write(
    found: FoundSource,
    recorder: RunRecorder,
    options: Options,
    done: Imported,
    tell: Tell,
    *,
    growing: bool = False,
    kept: Reading | None = None,
) -> None:
    """Record every step beyond the last one that is recorded.

    Args:
        kept: what the last look at a source that grows leaves to this one, which leaves it to the next.
    """
    last, kept = max(recorder.last_step, done.last_step), kept or Reading()
    reading = Reading(
        after=last,
        growing=growing,
        unpickle=options.unpickle,
        skip_bad=options.skip_bad,
        places=kept.places,
        taken=kept.taken,
        judged=kept.judged,
    )
    read_before = done.bytes_read
    for step in found.read(reading):
        if step.number <= last:
            raise ImportProblem(f"{found.description.path}: step {step.number} comes after step {last}.")
        if options.skip_bad and not _fits(found, step, reading):
            continue
        record(recorder, step)
        last = done.last_step = step.number
        done.steps += 1
        done.responses += _rows(step.sequences)
        done.tokens += _rows(step.tokens or {})
        _count(step, done)
        done.bytes_read = read_before + reading.bytes_read
        tell(done)
    done.problems = tuple(dict.fromkeys([*done.problems, *reading.problems]))


def _fits(found: FoundSource, step: Step, reading: Reading) -> bool:
    """Whether a step can be recorded; said where it cannot. The recorder would tell only when it writes."""
    try:
        check_step(step.number, {"tokens": step.tokens, "sequences": step.sequences, "messages": step.messages})
    except RunFormatError as error:
        reading.bad(found.description.path, f"step {step.number} is left out ({str(error).rstrip('.')})")
        return False
    return True


def record(recorder: RunRecorder, step: Step) -> None:
    """Hand a step over to the recorder; its time is the source's, or not known."""
    recorder.record_step(
        step.number,
        tokens=step.tokens,
        sequences=step.sequences,
        scalars={"wall_time": None} | dict(step.scalars),
        messages=step.messages,
    )


def _count(step: Step, done: Imported) -> None:
    """Count the responses of a step of which a part is not there, for whatever format."""
    rows = _as_recorded(schema.SEQUENCES, step.sequences, ("seq_id", "n_tokens", "failure", "dropped"), step.number)
    failure, dropped = (rows.column(name).to_pylist() for name in ("failure", "dropped"))
    done.failed.update(kind for kind in failure if kind is not None)
    done.dropped.update(why for why, kind in zip(dropped, failure, strict=True) if why is not None and kind is None)
    empty = pc.fill_null(pc.equal(rows.column("n_tokens"), 0), False)
    wanted = rows.column("seq_id").filter(pc.and_not(pc.is_null(rows.column("dropped")), empty))
    done.logged.update(name for name in _LOG_PROBABILITIES if (step.tokens or {}).get(name) is not None)
    tokens = _as_recorded(schema.TOKENS, step.tokens or {}, ("seq_id", "rejected", *_LOG_PROBABILITIES), step.number)
    for name in _LOG_PROBABILITIES:
        absent = pc.is_null(tokens.column(name), nan_is_null=True)
        having = pc.is_in(wanted, pc.unique(tokens.column("seq_id").filter(pc.invert(absent))))
        lacking = pc.is_in(
            wanted, pc.unique(tokens.column("seq_id").filter(pc.and_(absent, pc.is_null(tokens.column("rejected")))))
        )
        done.without[name] += pc.sum(pc.invert(having)).as_py() or 0
        done.partly[name] += pc.sum(pc.and_(having, lacking)).as_py() or 0


def _as_recorded(table: schema.DeclaredTable, columns: Any, names: Sequence[str], step: int) -> pa.Table:
    """Some columns as they are recorded; those that are not there are null."""
    nulls = [None] * _rows(columns)
    return copied(table, {name: nulls if columns.get(name) is None else columns[name] for name in names}, step)


def _rows(columns: Any) -> int:
    return next((len(values) for values in columns.values() if values is not None), 0)


def _check_last_step(found: FoundSource, folder: Path, options: Options) -> None:
    """Raise unless the last recorded step is in the source what it is in the run: whole, and of the same run."""
    _check_identity(found, folder)
    named = [(path, schema.FileName.parse(path.name)) for path in (folder / "sequences").glob("*.parquet")]
    files = [(path, name) for path, name in named if name is not None]
    last = max((name.last_step for _, name in files), default=-1)
    if last < 0:
        return
    reading = Reading(after=last - 1, unpickle=options.unpickle, skip_bad=options.skip_bad)
    step = next(found.read(reading), None)
    now = _trained(step.sequences) if step is not None and step.number == last else 0
    holding = [path for path, name in files if name.first_step <= last <= name.last_step]
    then = sum(_recorded(path, last) for path in holding)
    if now != then:
        raise RatioscopeError(
            f"{folder}: step {last} had {then:,} responses when it was imported and has {now:,} in "
            f"{found.description.path} now. Remove the folder and import again; follow a source that is still "
            "written with --follow."
        )


def _trained(sequences: Any) -> int:
    """How many responses were not dropped: of those that were, a source may say so only steps later."""
    dropped = sequences.get("dropped")
    return _rows(sequences) if dropped is None else sum(why is None for why in dropped)


def _recorded(path: Path, step: int) -> int:
    """The same of a step in a file of ours."""
    columns = [name for name in ("step", "dropped") if name in pq.read_schema(path).names]
    rows = pq.read_table(path, columns=columns, filters=[("step", "=", step)])
    return rows.column("dropped").null_count if "dropped" in columns else rows.num_rows


# What the manifest says -----------------------------------------------------------------------------------------------


def manifest_of(found: FoundSource, name: str) -> dict[str, Any]:
    """The fields of the manifest of a run that is made of this source."""
    description = found.description
    path, format_name = _identity(found)
    assumed = list(description.assumed)
    given = dict(description.manifest)
    if not given.get("created"):
        began = _oldest(description.path)
        if began is not None:
            given["created"] = began.isoformat(timespec="milliseconds")
            assumed.append("The run began when its oldest file was written, because it does not say when.")
    known = {declared.name for declared in fields(Manifest)} - {"extra"}
    version = {"version": description.version} if description.version else {}
    source = {"framework": description.framework, **version, "path": path, "format": format_name}
    return {
        "name": name,
        "producer": {"name": description.framework, **version},
        **{key: value for key, value in given.items() if key in known},
        "source": source,
        "missing": dict(description.missing),
        "assumed": assumed,
        "extra": {key: value for key, value in given.items() if key not in known},
    }


def _oldest(path: Path) -> datetime | None:
    times = [stat.st_mtime for _, stat in _files(path)]
    return datetime.fromtimestamp(min(times), UTC) if times else None


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a path, or the one that it is, in a fixed order."""
    if path.is_file():
        # SQLite writes beside a database first, for as long as somebody has it open.
        for written in (path, path.with_name(f"{path.name}-wal")):
            with suppress(OSError):
                yield str(written), written.stat()
        return
    left = _MOST_FILES
    for place, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(place, name)  # noqa: PTH118 - a hundred thousand Paths are slow
            try:
                yield file, os.stat(file)  # noqa: PTH116
            except OSError:
                continue  # it has just gone
            left -= 1
            if not left:
                return
