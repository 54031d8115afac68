"""prime-rl since September 2026: one stream of episodes, and annotations that say which step trained on what.

Read from prime-rl 65a18584 and 551bfc39, `src/prime_rl/monitors/file/`: below `monitors/file/traces` every episode is
written once, as it arrives (`stream/`, train and eval mixed). What is known later is an annotation of its trace
(`annotations/<producer>/`): the orchestrator's, that it was shipped to the trainer and for which step; the trainer's,
by token. Beside each stream lies an index with a row for each record, which says where it is: a step is put together
from the indexes, and records are read where they are.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.formats.chunks import NULL, Chunks
from ratioscope.analysis.importers.formats.prime_rl_settings import manifest, resolved_settings, scalars, whole, window
from ratioscope.analysis.importers.formats.traces import (
    DECIMALS,
    LISTS,
    Told,
    episode_group,
    failed,
    leaf_paths,
    list_of,
    told,
    without_trace,
)
from ratioscope.analysis.importers.responses import Response, without_empty
from ratioscope.analysis.importers.source import FIRST_LINE, BadLine, Description, Reading, Step, StepStart
from ratioscope.analysis.importers.values import Ordinals, as_number, at, with_nulls

EPISODES = ("kind", "chunk", "offset", "trace_ids", "arrival")
"""What is read of a row of the episodes' index; the first three say what it is and where."""

_Row = Mapping[str, Any]
_VERSION = 1
_BY_TOKEN = ("advantages", "trainer_logprobs", "entropies", "is_masked")
_LISTS = tuple(f"branches[*].{name}" for name in _BY_TOKEN if name != "is_masked")  # which holds truth values
# The orchestrator ships step S when the weights of S - 2 are applied, so the trainer is done with S - 3 in any case.
_AHEAD = 3


@dataclass(frozen=True)
class Layout:
    """Where the files of a run are."""

    root: Path
    traces: Path

    @property
    def episodes(self) -> Chunks:
        return Chunks(self.traces / "stream", LISTS)

    @property
    def annotations(self) -> dict[str, Chunks]:
        """By producer."""
        found = sorted((self.traces / "annotations").glob("*.index.jsonl"))
        names = [path.name.removesuffix(".index.jsonl") for path in found]
        return {name: Chunks(self.traces / "annotations" / name, _LISTS, numbers_alone=True) for name in names}


def layout(path: Path) -> Layout | None:
    """The layout that a path is in: the run's folder, or one on the way down to the stream."""
    whole_run = path / "monitors" / "file" / "traces"
    for traces in (whole_run, path / "file" / "traces", path / "traces", path, path.parent):
        if traces.name == "traces" and (traces / "stream.index.jsonl").is_file():
            place = traces.absolute()
            if traces == whole_run:
                return Layout(path, traces)
            return Layout(place.parents[2] if place.parts[-3:-1] == ("monitors", "file") else place, place)
    return None


# What lies there ----------------------------------------------------------------------------------------------------


def describe(path: Path) -> Description | None:
    run = layout(path)
    if run is None:
        return None
    reading = Reading(skip_bad=True, growing=True)
    first = next(_episodes(run, reading, lambda line: b'"train"' in line), None)
    episode = _record(first[1], reading) if first else {}
    trace: Mapping[str, Any] = next(iter(episode.get("traces") or []), {})
    version = at(trace, "verifiers", "version")
    said = _first_of_trainer(run, reading)
    decimals = at(resolved_settings(run.root, "trainer"), "monitors", "file")
    return Description(
        framework="prime-rl",
        format="trace stream",
        path=run.root,
        version=f"verifiers {version}" if version else "",
        missing=_missing(run, said),
        assumed=_ASSUMED,
        manifest=manifest(
            run.root,
            scored=said is None or "trainer_logprobs" in said,
            decimals=whole(decimals.get("float_decimals", DECIMALS)) if isinstance(decimals, Mapping) else DECIMALS,
        ),
    )


def _first_of_trainer(run: Layout, reading: Reading) -> set[str] | None:
    """What the trainer's first annotation says by token; None where there is none."""
    for name, producer in run.annotations.items():
        first = next(_rows(producer, reading), None) if _is_trainer(name) else None
        if first is not None:
            record = _record(first[2], reading)
            return {key for branch in record.get("branches") or [] if isinstance(branch, Mapping) for key in branch}
    return None


def _missing(run: Layout, said: set[str] | None) -> dict[str, str]:
    missing = {
        "logp_new": "prime-rl does not score a batch again after its update.",
        "logp_behavior_train": "prime-rl does not score a response again with the weights that sampled it, so "
        "engine and age are one part of the ratio.",
    }
    if said is None and not run.episodes.is_live:  # while it runs, the trainer's may still come
        why = "the trainer wrote no annotations beside the traces."
        missing |= dict.fromkeys(("logp_current", "entropy", "clipped"), why)
    elif said is not None and "is_masked" not in said:
        missing["clipped"] = "prime-rl annotates the mask of its own loss alone, and this run has another."
    return missing


_ASSUMED = (
    "trainer_logprobs are the policy's at the start of the update. prime-rl takes one optimiser step on a batch, so "
    "the weights do not move while the loss looks at it.",
    "What is_masked marks is read as clipped, above where the probability rose and else below. The mask takes a "
    "token's policy gradient away as a clip does.",
    "A token of a trained response to which the trainer's annotation gives nothing is in no loss, and rejected.",
    "A token's version is the policy's when its group was sent out, as prime-rl counts staleness. Later tokens may "
    "be of newer weights, so ages are upper bounds. behavior_version_max is the newest that is possible.",
    "A conversation that forks is a response a branch, each with the reward of the whole. A message that several "
    "branches share counts in the first, as prime-rl trains it.",
    "Episodes that were shipped for no step never reached the loss; they are dropped ones of the step that was "
    "collected when they came in. Evaluations are left out.",
    "Step N trains the weights of version N - 1, as prime-rl numbers them.",
)


# Indexes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a record is, and the line of the index that says so."""

    stream: Chunks
    line: int
    chunk: Any
    offset: Any


@dataclass
class _Ledger:
    """What the annotations' indexes say of every trace that a step from `first` on was shipped with."""

    first: int
    ships: dict[str, int] = field(default_factory=dict)
    """By trace, the step that trained on it."""
    given_up: set[str] = field(default_factory=set)
    """Traces shipped by an attempt that the run has since gone back behind."""
    times: dict[int, float] = field(default_factory=dict)
    """By step in ascending order, when it was shipped."""
    notes: dict[str, list[_Place]] = field(default_factory=dict)
    """By trace, its annotations, in the order in which they were written."""
    trained: int = -1
    """The last step of which the trainer has said something."""

    @property
    def newest(self) -> int:
        return next(reversed(self.times), -1)

    def ship(self, trace: str, step: int, time: float) -> None:
        """A step that comes again is a resumed run's: what was shipped for it and for later ones is given up.

        All of a batch is shipped at one time.
        """
        if step < self.newest or self.times.get(step, time) != time:
            again = {other for other, shipped in self.ships.items() if shipped >= step}
            self.given_up |= again
            self.ships = {other: shipped for other, shipped in self.ships.items() if other not in again}
            self.times = {other: when for other, when in self.times.items() if other < step}
        self.ships[trace] = step
        self.times[step] = time

    def is_shipping(self, line: bytes) -> bool:
        """Whether a row of an index says that a trace was shipped, for one of the steps."""
        return b'"ship"' in line and ((step := _STEP.search(line)) is None or int(step[1]) >= self.first)

    def is_about(self, line: bytes) -> bool:
        """Whether another row is about one of the traces."""
        return b'"ship"' not in line and ((trace := _TRACE.search(line)) is None or trace[1].decode() in self.ships)

    def may_be_in(self, line: bytes) -> bool:
        """Whether an episode is one of the steps', or may have come in while they were collected."""
        arrival = _ARRIVAL.search(line)
        if arrival is None or float(arrival[1]) > self.times.get(self.first, -1.0):
            return True
        traces = _TRACES.search(line)
        return traces is None or any(name.decode() in self.ships for name in _NAME.findall(traces[1]))


# What a row says, told from its text: of a run that is followed nearly all rows are of steps that are long imported.
_STEP = re.compile(rb'"ship":\s*\{\s*"step":\s*(\d{1,18})\b')
_TRACE = re.compile(rb'"trace_id":\s*"([^"\\]*)"')
_TRACES = re.compile(rb'"trace_ids":\s*\[([^\[\]\\]*)\]')
_NAME = re.compile(rb'"([^"]*)"')
_ARRIVAL = re.compile(rb'"arrival":\s*(\d{1,18}(?:\.\d*)?)\s*[,}]')


@dataclass
class _Begins:
    """Tells a reading where the rows begin that a later look needs: a trace is shipped up to `in_time` steps late."""

    reading: Reading
    in_time: int
    seen: set[tuple[Path, int]] = field(default_factory=set)

    def __call__(self, place: _Place, step: int) -> None:
        index = place.stream.index
        if (index, step) not in self.seen:
            self.seen.add((index, step))
            self.reading.begins(index, step + self.in_time + _AHEAD, place.line)


def _ledger(run: Layout, reading: Reading, begins: _Begins) -> _Ledger:
    ledger = _Ledger(reading.after)
    producers = run.annotations
    first = {name: reading.place(producer.index) for name, producer in producers.items()}
    for name, producer in producers.items():
        for trace, row, place in _rows(producer, reading, ledger.is_shipping, first[name]):
            step, time = whole(at(row, "info", "ship", "step")), as_number(at(row, "info", "ship", "time"))
            if step is not None and step >= ledger.first:
                ledger.ship(trace, step, float("inf") if time is None else time)
                ledger.notes.setdefault(trace, []).append(place)
                begins(place, step)
    for name, producer in producers.items():
        for trace, _, place in _rows(producer, reading, ledger.is_about, first[name]):
            if trace in ledger.ships:
                ledger.notes[trace].append(place)
                begins(place, ledger.ships[trace])
                if _is_trainer(name):
                    ledger.trained = max(ledger.trained, ledger.ships[trace])
    return ledger


def _is_trainer(producer: str) -> bool:
    return producer.startswith("train")


def _rows(
    stream: Chunks,
    reading: Reading,
    wanted: Callable[[bytes], bool] | None = None,
    begin: StepStart = FIRST_LINE,
) -> Iterator[tuple[str, _Row, _Place]]:
    """The rows of the index of a producer's annotations, with the trace that each is about."""
    keys = ("trace_id", "chunk", "offset", "info")
    for line, row in lines.read(stream.index, reading, only=keys, wanted=wanted, begin=begin):
        if "trace_id" in row:
            yield str(row["trace_id"]), row, _Place(stream, line, row.get("chunk"), row.get("offset"))
        else:
            reading.bad(stream.index, "a row without trace_id", line)


def _episodes(
    run: Layout, reading: Reading, wanted: Callable[[bytes], bool] | None = None
) -> Iterator[tuple[_Row, _Place]]:
    """The rows of the episodes' index that are training, from where earlier looks came to."""
    stream = run.episodes
    begin = reading.place(stream.index)
    for line, row in lines.read(stream.index, reading, only=EPISODES, wanted=wanted, begin=begin):
        absent = [key for key in EPISODES[:3] if key not in row]
        if absent:
            reading.bad(stream.index, f"a row without {', '.join(absent)}", line)
        elif row["kind"] == "train":
            yield row, _Place(stream, line, row["chunk"], row["offset"])


def _record(place: _Place, reading: Reading) -> dict[str, Any]:
    """What a row of an index points at; {} where it is bad and left out."""
    found: dict[str, Any] = {}
    with reading.whole_line(place.stream.index, place.line):
        found |= place.stream.record(place.chunk, place.offset)
    return found


# Steps --------------------------------------------------------------------------------------------------------------

_ByStep = dict[int, list[_Place]]


def read(path: Path, reading: Reading) -> Iterator[Step]:
    run = layout(path)
    if run is None:
        return
    in_time = window(run.root)
    begins = _Begins(reading, in_time)
    ledger = _ledger(run, reading, begins)
    if not ledger.times and not reading.growing:
        reading.bad(run.traces, "nothing in it was shipped to a trainer, so it has no step")
    last = _last_whole(run, ledger, reading)
    wanted = [step for step in sorted(ledger.times) if reading.after < step <= last]
    trained, dropped = _by_step(run, ledger, wanted, reading, begins)
    logged = scalars(run.traces.parent / "metrics.jsonl", reading)
    for step in wanted:
        batch = _Batch(ledger, reading)
        for place in trained[step]:
            batch.add(place, step)
        if not reading.growing or ledger.newest >= step + in_time:  # before that they may still be trained on
            batch.add_dropped(dropped[step])
        if batch.found:
            yield responses.step(step, batch.found, {"policy_version": step - 1, **logged.get(step, {})})


def _last_whole(run: Layout, ledger: _Ledger, reading: Reading) -> int:
    """The last step to which nothing is added any more.

    A step is shipped before it is trained, and the trainer's annotations of it come together. So while it runs, a later
    step says that they are all there; of one that the trainer never came to, nothing was learnt.
    """
    behind = ledger.newest - _AHEAD
    if reading.growing:
        return max(min(ledger.trained, ledger.newest) - 1, behind)
    annotates = any(_is_trainer(name) for name in run.annotations)
    return max(ledger.trained, behind) if annotates or run.episodes.is_live else ledger.newest


def _by_step(
    run: Layout, ledger: _Ledger, wanted: Sequence[int], reading: Reading, begins: _Begins
) -> tuple[_ByStep, _ByStep]:
    """The episodes that a step trained on, and those that came in while it was collected and were not shipped."""
    trained: _ByStep = {step: [] for step in wanted}
    dropped: _ByStep = {step: [] for step in wanted}
    steps = sorted(ledger.times)
    collected = 0
    for row, place in _episodes(run, reading, ledger.may_be_in):
        arrival = as_number(row.get("arrival")) or 0.0
        while collected < len(steps) and ledger.times[steps[collected]] < arrival:
            collected += 1
        if collected < len(steps):
            begins(place, steps[collected])
        names = [str(name) for name in row.get("trace_ids") or []]
        shipped = {ledger.ships[name] for name in names if name in ledger.ships}
        for step in shipped & trained.keys():
            trained[step].append(place)
        if (not names or any(name not in ledger.ships for name in names)) and collected < len(steps):
            dropped.get(steps[collected], []).append(place)
    return trained, dropped


@dataclass
class _Batch:
    """A step as it is put together."""

    ledger: _Ledger
    reading: Reading
    found: list[Response] = field(default_factory=list)
    groups: Ordinals = field(default_factory=Ordinals)
    rewards: dict[Any, list[Any]] = field(default_factory=dict)
    """By group, of its responses."""

    def add(self, place: _Place, step: int) -> None:
        """The traces of an episode that the step trained on, with what was annotated."""
        with self.reading.whole_line(place.stream.index, place.line):
            episode = _record(place, self.reading)
            for trace in episode.get("traces") or []:
                name = str(trace.get("id"))
                if self.ledger.ships.get(name) == step:
                    notes = [_record(note, self.reading) for note in self.ledger.notes[name]]
                    for one in self._told(episode, [annotated(trace, notes)]):
                        self.found.append(one.response(self._row(one)))

    def add_dropped(self, places: Iterable[_Place]) -> None:
        """What of these episodes was shipped for no step."""
        left: list[Told] = []
        for place in places:
            with self.reading.whole_line(place.stream.index, place.line):
                episode = _record(place, self.reading)
                traces = episode.get("traces") or []
                left += self._told(episode, [each for each in traces if str(each.get("id")) not in self.ledger.ships])
                if episode and not traces:  # it failed before there was one
                    group = self.groups.of(episode_group(episode, {}))
                    self.found.append(without_empty({"group_id": group, **without_trace(episode)}))
        for one in left:
            self.found.append(one.response(self._row(one) | {"dropped": self._why(one)}))

    def _told(self, episode: Mapping[str, Any], traces: Sequence[Any]) -> list[Told]:
        found = told({**episode, "traces": traces})
        for one in found:
            self.rewards.setdefault(one.group, []).append(one.row["reward"])
        return found

    def _row(self, one: Told) -> dict[str, Any]:
        return {"group_id": self.groups.of(one.group), **one.row}

    def _why(self, one: Told) -> str:
        if str(one.trace.get("id")) in self.ledger.given_up:
            return "shipped by an attempt that the run went back behind"
        if failed(one.trace):
            return f"failed: {one.trace.get('stop_condition') or 'error'}"
        rewards = self.rewards[one.group]
        alike = len(rewards) > 1 and len(set(rewards)) == 1
        return "no signal: equal rewards in its group" if alike else "not shipped to the trainer"


# Annotations --------------------------------------------------------------------------------------------------------


def annotated(trace: Mapping[str, Any], notes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A trace with what was said of its tokens later, on its messages; of several notes the newest counts.

    A note is about one branch and covers all of its tokens, prompt included; null is where its producer says nothing.

    Raises:
        SURPRISES: a note has another shape, or is about a branch that the trace does not have.
    """
    nodes = [dict(node) for node in trace.get("nodes") or []]
    paths = leaf_paths(nodes)
    for note in notes:
        if note and note.get("version") != _VERSION:
            raise BadLine(f"an annotation of version {note.get('version')!r:.20}; {_VERSION} is known")
        for branch in note.get("branches") or []:
            place = whole(branch.get("index"))
            if place is None or not 0 <= place < len(paths):
                raise BadLine(f"an annotation of branch {branch.get('index')!r:.20} of {len(paths)}")
            for name in _BY_TOKEN:
                values = branch.get(name)
                if values is not None and len(values):
                    _spread(nodes, paths[place], name, values)
    return {**trace, "nodes": nodes}


def _spread(nodes: list[dict[str, Any]], path: Sequence[int], name: str, values: Any) -> None:
    """Give each message of a branch its part. A trainer with a limit of length cuts the last ones."""
    given = np.array(values, dtype=np.float64)
    given[given == NULL] = np.nan
    begin = 0
    for place in path:
        mask = list_of(nodes[place], "mask", np.bool_)
        there = given[begin : begin + len(mask)]
        begin += len(mask)
        if not mask.any():
            continue
        part = np.full(len(mask), np.nan, dtype=np.float32)
        part[: len(there)] = there
        own = part[mask]
        absent = np.isnan(own)
        if not absent.all():  # else another branch trains it, or none does
            nodes[place][name] = with_nulls(own, absent)
