"""prime-rl since September 2026: one stream of episodes, and annotations that say which step trained on what.

Read from prime-rl 65a18584 and 551bfc39, `src/prime_rl/monitors/file/`: below `monitors/file/traces` every episode is
written once, as it arrives (`stream/`, train and eval mixed). What is known later is an annotation of its trace
(`annotations/<producer>/`): the orchestrator's, that it was shipped to the trainer and for which step; the trainer's,
by token. Beside each stream lies an index with a row for each record, which says where it is: a step is put together
from the indexes, and records are read where they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.chunks import Chunks
from ratioscope.analysis.importers.gathered import Gathered, Ordinals, at, number, words
from ratioscope.analysis.importers.prime_rl_settings import manifest, scalars, settings, whole, window
from ratioscope.analysis.importers.source import BadLine, Description, Reading, Step
from ratioscope.analysis.importers.traces import DECIMALS, Told, failed, leaf_paths, told

EPISODES = ("kind", "chunk", "offset", "trace_ids", "arrival")
"""What is read of a row of the episodes' index; the first three say what it is and where."""

_Row = Mapping[str, Any]
_VERSION = 1
_BY_TOKEN = ("advantages", "trainer_logprobs", "entropies", "is_masked")
# The orchestrator ships step S when the weights of S - 2 are applied, so the trainer is done with S - 3 in any case.
_AHEAD = 3
# So many rows of an index are looked through for the first episode that was no evaluation.
_LOOKED_THROUGH = 100_000


@dataclass(frozen=True)
class Layout:
    """Where the files of a run are."""

    root: Path
    traces: Path

    @property
    def episodes(self) -> Chunks:
        return Chunks(self.traces / "stream")

    @property
    def annotations(self) -> dict[str, Chunks]:
        """By producer."""
        found = sorted((self.traces / "annotations").glob("*.index.jsonl"))
        names = [path.name.removesuffix(".index.jsonl") for path in found]
        return {name: Chunks(self.traces / "annotations" / name) for name in names}


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
    rows = islice(_episodes(run, reading), _LOOKED_THROUGH)
    first = next((found for found in rows if found[1]["kind"] == "train"), None)
    episode = _record(run.episodes, *first, reading) if first else {}
    trace: Mapping[str, Any] = next(iter(episode.get("traces") or []), {})
    version = at(trace, "verifiers", "version")
    said = _first_of_trainer(run, reading)
    decimals = at(settings(run.root, "trainer"), "monitors", "file")
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
            record = _record(producer, *first, reading)
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
    "trainer_logprobs are the policy's at the start of the update: prime-rl takes one optimiser step on a batch, so "
    "the weights do not move while the loss looks at it.",
    "What is_masked marks is read as clipped, above where the probability rose and else below: the mask takes a "
    "token's policy gradient away as a clip does.",
    "A token of a trained response to which the trainer's annotation gives nothing is in no loss, and rejected.",
    "A token's version is the policy's when its group was sent out, as prime-rl counts staleness: later tokens may "
    "be of newer weights, so ages are upper bounds. behavior_version_max is the newest that is possible.",
    "A conversation that forks is a response a branch, each with the reward of the whole. A message that several "
    "branches share counts in the first, as prime-rl trains it.",
    "Episodes that were shipped for no step never reached the loss; they are dropped ones of the step that was "
    "collected when they came in. Evaluations are left out.",
    "Step N trains the weights of version N - 1, as prime-rl numbers them.",
)


# Indexes ------------------------------------------------------------------------------------------------------------


@dataclass
class _Ledger:
    """What the annotations' indexes say of every trace."""

    ships: dict[str, int] = field(default_factory=dict)
    """By trace, the step that trained on it."""
    given_up: set[str] = field(default_factory=set)
    """Traces shipped by an attempt that the run has since gone back behind."""
    times: dict[int, float] = field(default_factory=dict)
    """By step, when it was shipped."""
    notes: dict[str, list[tuple[Chunks, int, _Row]]] = field(default_factory=dict)
    """By trace, where its annotations are, in the order in which they were written."""
    trained: int = -1
    """The last step of which the trainer has said something."""

    def ship(self, trace: str, step: int, time: float) -> None:
        """A step that comes again is a resumed run's: what was shipped for it and for later ones is given up.

        All of a batch is shipped at one time.
        """
        if step < max(self.times, default=step) or self.times.get(step, time) != time:
            again = {other for other, shipped in self.ships.items() if shipped >= step}
            self.given_up |= again
            self.ships = {other: shipped for other, shipped in self.ships.items() if other not in again}
            self.times = {other: when for other, when in self.times.items() if other < step}
        self.ships[trace] = step
        self.times[step] = time


def _ledger(run: Layout, reading: Reading) -> _Ledger:
    ledger = _Ledger()
    by_trainer: list[str] = []
    for name, producer in run.annotations.items():
        for line, row in _rows(producer, reading):
            trace, step = str(row["trace_id"]), whole(at(row, "info", "ship", "step"))
            ledger.notes.setdefault(trace, []).append((producer, line, row))
            if step is not None and step >= 0:
                time = number(at(row, "info", "ship", "time"))
                ledger.ship(trace, step, float("inf") if time is None else time)
            elif _is_trainer(name):
                by_trainer.append(trace)
    ledger.trained = max((ledger.ships.get(trace, -1) for trace in by_trainer), default=-1)
    return ledger


def _is_trainer(producer: str) -> bool:
    return producer.startswith("train")


def _rows(stream: Chunks, reading: Reading) -> Iterator[tuple[int, _Row]]:
    """The rows of the index of a producer's annotations."""
    for line, row in lines.read(stream.index, reading, only=("trace_id", "chunk", "offset", "info")):
        if "trace_id" in row:
            yield line, row
        else:
            reading.bad(stream.index, "a row without trace_id", line)


def _episodes(run: Layout, reading: Reading) -> Iterator[tuple[int, _Row]]:
    """The rows of the episodes' index."""
    for line, row in lines.read(run.episodes.index, reading, only=EPISODES):
        absent = [key for key in EPISODES[:3] if key not in row]
        if absent:
            reading.bad(run.episodes.index, f"a row without {', '.join(absent)}", line)
        else:
            yield line, row


def _record(stream: Chunks, line: int, row: _Row, reading: Reading) -> dict[str, Any]:
    """What a row of an index points at; {} where it is bad and left out."""
    found: dict[str, Any] = {}
    with reading.whole_line(stream.index, line):
        found |= stream.record(row.get("chunk"), row.get("offset"))
    return found


# Steps --------------------------------------------------------------------------------------------------------------

_ByStep = dict[int, list[tuple[int, _Row]]]


def read(path: Path, reading: Reading) -> Iterator[Step]:
    run = layout(path)
    if run is None:
        return
    ledger = _ledger(run, reading)
    newest = max(ledger.times, default=-1)
    last = _last_whole(run, ledger, reading)
    wanted = [step for step in sorted(ledger.times) if reading.after < step <= last]
    trained, dropped = _by_step(run, ledger, wanted, reading)
    logged = scalars(run.traces.parent / "metrics.jsonl", reading)
    in_time = window(run.root)
    for step in wanted:
        batch = _Batch(run, ledger, reading)
        for line, row in trained[step]:
            batch.add(line, row, step)
        if not reading.growing or newest >= step + in_time:  # before that they may still be trained on
            batch.add_dropped(dropped[step])
        if batch.gathered.sequences:
            yield batch.gathered.step(step, {"policy_version": step - 1, **logged.get(step, {})})


def _last_whole(run: Layout, ledger: _Ledger, reading: Reading) -> int:
    """The last step to which nothing is added any more.

    A step is shipped before it is trained, and the trainer's annotations of it come together. So while it runs, a later
    step says that they are all there; of one that the trainer never came to, nothing was learnt.
    """
    newest = max(ledger.times, default=-1)
    if reading.growing:
        return max(min(ledger.trained, newest) - 1, newest - _AHEAD)
    if ledger.trained < 0 and not run.episodes.is_live:
        return newest
    return max(ledger.trained, newest - _AHEAD)


def _by_step(run: Layout, ledger: _Ledger, wanted: Sequence[int], reading: Reading) -> tuple[_ByStep, _ByStep]:
    """The episodes that a step trained on, and those that came in while it was collected and were not shipped."""
    trained: _ByStep = {step: [] for step in wanted}
    dropped: _ByStep = {step: [] for step in wanted}
    steps = sorted(ledger.times)
    collected = 0
    for line, row in _episodes(run, reading):
        if row["kind"] != "train":
            continue
        arrival = number(row.get("arrival")) or 0.0
        while collected < len(steps) and ledger.times[steps[collected]] < arrival:
            collected += 1
        names = [str(name) for name in row.get("trace_ids") or []]
        shipped = {ledger.ships[name] for name in names if name in ledger.ships}
        for step in shipped & trained.keys():
            trained[step].append((line, row))
        if (not names or any(name not in ledger.ships for name in names)) and collected < len(steps):
            dropped.get(steps[collected], []).append((line, row))
    return trained, dropped


@dataclass
class _Batch:
    """A step as it is put together."""

    run: Layout
    ledger: _Ledger
    reading: Reading
    gathered: Gathered = field(default_factory=Gathered)
    groups: Ordinals = field(default_factory=Ordinals)
    rewards: dict[Any, list[Any]] = field(default_factory=dict)
    """By group, of its responses."""

    def add(self, line: int, row: _Row, step: int) -> None:
        """The traces of an episode that the step trained on, with what was annotated."""
        with self.reading.whole_line(self.run.episodes.index, line):
            episode = self._episode(line, row)
            for trace in episode.get("traces") or []:
                name = str(trace.get("id"))
                if self.ledger.ships.get(name) == step:
                    notes = [_record(*note, self.reading) for note in self.ledger.notes[name]]
                    for one in self._told(episode, [annotated(trace, notes)]):
                        self.gathered.add(self._row(one), one.tokens, one.messages)

    def add_dropped(self, rows: Iterable[tuple[int, _Row]]) -> None:
        """What of these episodes was shipped for no step."""
        left: list[Told] = []
        for line, row in rows:
            with self.reading.whole_line(self.run.episodes.index, line):
                episode = self._episode(line, row)
                traces = episode.get("traces") or []
                left += self._told(episode, [each for each in traces if str(each.get("id")) not in self.ledger.ships])
                if episode and not traces:  # it failed before there was one
                    name = at(episode, "env", "name") or at(episode, "env", "id")
                    why = at(next(iter(episode.get("errors") or []), {}), "type") or "error"
                    group = self.groups.of(at(episode, "group", "id"))
                    self.gathered.add({"group_id": group, "environment": words(name), "dropped": f"failed: {why}"})
        for one in left:
            self.gathered.add(self._row(one) | {"dropped": self._why(one)}, None, one.messages)

    def _episode(self, line: int, row: _Row) -> dict[str, Any]:
        return _record(self.run.episodes, line, row, self.reading)

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
                if branch.get(name):
                    _spread(nodes, paths[place], name, branch[name])
    return {**trace, "nodes": nodes}


def _spread(nodes: list[dict[str, Any]], path: Sequence[int], name: str, values: Sequence[float | None]) -> None:
    """Give each message of a branch its part. A trainer with a limit of length cuts the last ones."""
    given = np.array(values, dtype=np.float32)
    begin = 0
    for place in path:
        mask = np.array(nodes[place].get("mask") or [], dtype=bool)
        part = np.full(len(mask), np.nan, dtype=np.float32)
        there = given[begin : begin + len(mask)]
        part[: len(there)] = there
        begin += len(mask)
        if not np.isnan(part[mask]).all():  # otherwise another branch trains it, or none does
            nodes[place][name] = np.ma.masked_array(part[mask], np.isnan(part[mask]))
