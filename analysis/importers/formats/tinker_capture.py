"""tinker-cookbook's capture: what the sampler drew, from JSON lines or from the capture store's SQLite file.

Read from tinker-cookbook 0.6.1: `tinker_cookbook/capture/exporter.py` (`capture/sample.jsonl`, a call a line),
`capture/instrument.py` (what is in a record) and `capture/store/schema.py` (table `wire_rows`, a sequence a row).
Log-probabilities are the sampler's; what the trainer makes of them is not captured.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import lines, responses, sqlite_rows
from ratioscope.analysis.importers.source import (
    SURPRISES,
    BadLine,
    Description,
    Importer,
    ImportProblem,
    Reading,
    Sign,
    Step,
    StepStart,
)
from ratioscope.analysis.importers.values import (
    Ordinals,
    as_number,
    at,
    first_object,
    joined_columns,
    known_values,
    nulls,
    numbers,
    words_of,
)

TABLE = "wire_rows"
_OVERTAKEN = 2
"""Optimiser steps that may be written in another order than they were asked for."""
_KEYS = ("samples", "scope", "kind")
_NOT_CAPTURED = "the capture holds what was sampled; tinker-cookbook does not write the trainer's side of it."
_COLUMNS = (
    "cursor, iteration, group_idx, traj_idx, split, purpose, sampling_session_id, seq_id, sample_idx, policy_version, "
    "created_at, prompt_tokens, sampled_tokens, logprobs, metadata"
)


@dataclass(frozen=True)
class SampledTurn:
    """One sampled sequence: a turn of a trajectory."""

    step: int
    group: Any
    trajectory: Any
    """None: it is a response of its own."""
    key: tuple[Any, ...]
    """The same for a record that was written twice."""
    created: float
    policy: str | None
    prompt: NDArray[np.int32]
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32] | None
    finish: str | None
    limits: Mapping[str, Any]
    """max_tokens, temperature, top_p, top_k."""
    seconds: float | None


# What lies there ----------------------------------------------------------------------------------------------------


def find(path: Path) -> Path | None:
    """The file of samples at a path: sample.jsonl, capture/sample.jsonl, or a capture store."""
    places = (
        [path]
        if path.is_file()
        else [path / "capture" / "sample.jsonl", path / "sample.jsonl", path / "capture.sqlite"]
    )
    for file in places:
        if file.suffix == ".jsonl" and first_object(file).keys() >= set(_KEYS):
            return file
        if file.suffix in (".sqlite", ".db") and file.is_file() and _run_of(file) is not None:
            return file
    return None


def _run_of(file: Path) -> tuple[str, int] | None:
    """The run that was written to last, and how many there are; None where it is no capture store."""
    try:
        with sqlite_rows.connected(file) as store:
            last = store.execute(f"select run_id from {TABLE} order by cursor desc limit 1").fetchone()
            (count,) = store.execute(f"select count(distinct run_id) from {TABLE}").fetchone()
    except ImportProblem:
        return None
    return (str(last[0]), int(count)) if last else None


def assumed_of(file: Path) -> tuple[str, ...]:
    """What is taken for granted of a file of samples."""
    if file.suffix == ".jsonl":
        named = at(first_object(file), "scope", "iteration") is not None
        return _ASSUMED if named else (*_ASSUMED, _BY_TIME)
    _, count = _run_of(file) or ("", 0)
    several = f"The store holds {count} runs; the one that was written to last is read."
    return (*_ASSUMED, several) if count > 1 else _ASSUMED


def describe(path: Path) -> Description | None:
    file = find(path)
    if file is None or any(path.glob("iteration_*/train_rollout_summaries.jsonl")):  # a run's folder, which holds more
        return None
    manifest, steps = {}, None
    if file.suffix == ".jsonl":
        record = first_object(file)
        manifest = known_values(model=known_values(path=record.get("base_model") or record.get("model_path")))
    else:
        run, _ = _run_of(file) or ("", 0)
        manifest = known_values(name=run)
        with suppress(ImportProblem), sqlite_rows.connected(file) as store:  # reading says what is wrong with it
            (steps,) = store.execute(
                f"select count(distinct iteration) from {TABLE} where run_id = ?", (run,)
            ).fetchone()
    return Description(
        framework="tinker-cookbook",
        format="capture" if file.suffix == ".jsonl" else "capture store",
        path=file,
        steps=steps or None,
        missing={
            "logp_current": _NOT_CAPTURED,
            "logp_new": _NOT_CAPTURED,
            "advantage": _NOT_CAPTURED,
            "clipped": _NOT_CAPTURED,
            "entropy": _NOT_CAPTURED,
            "reward": "the capture has no rewards; they are in the rollout summaries of the run's own folder.",
            "behavior_version": "sampler weights have names in the capture and no numbers; the name is in `adapter`.",
            "response": "the capture holds token ids and no text.",
        },
        assumed=assumed_of(file),
        manifest=manifest,
    )


_ASSUMED = (
    "Calls that sample one token where others sample more only score a text (compute_post_kl and KL penalties do "
    "that): they are no responses.",
    "Calls with a split other than train, or with the purpose eval, are left out.",
    "Calls of one trajectory are its turns, in the order in which they were made.",
)
_BY_TIME = (
    "The calls do not say which iteration they are of. A step is what was sampled between two optimiser steps, and "
    "has the number of those before it. capture(iteration=..., group_idx=..., traj_idx=...) around rollouts says it."
)


# Steps --------------------------------------------------------------------------------------------------------------


def read(path: Path, reading: Reading) -> Iterator[Step]:
    file = find(path)
    if file is None:
        return
    for step, samples in by_step(file, reading):
        if step <= reading.after:
            continue
        groups = Ordinals()
        yield responses.step(
            step,
            [
                responses.without_empty(
                    {"group_id": groups.of(group_of(turns)), **sequence_of(turns)}, tokens_of(turns)
                )
                for turns in trajectories(samples)
            ],
        )


def by_step(file: Path, reading: Reading) -> Iterator[tuple[int, list[SampledTurn]]]:
    """Samples by step, ascending: of the last step that was read, and of later ones.

    A first reading counts them, so that a step is handed on when it is complete.
    """
    counts: Counter[int] = Counter()
    begin, updates = reading.place(file), _Updates(file.parent / "train_op.jsonl", reading)
    longest = 0
    for sample in _samples(file, reading, begin, updates, whole=False):
        counts[sample.step] += 1
        longest = max(longest, int(as_number(sample.limits.get("max_tokens")) or 2))
    steps = sorted(counts)
    if reading.growing:
        steps = steps[:-1]
    waiting: dict[int, list[SampledTurn]] = {}
    seen: set[tuple[Any, ...]] = set()
    # What is bad was said at the first reading.
    again = Reading(after=reading.after, growing=reading.growing, skip_bad=True)
    for sample in _samples(file, again, begin, updates, whole=True):
        waiting.setdefault(sample.step, []).append(sample)
        counts[sample.step] -= 1
        while steps and counts[steps[0]] <= 0:
            step = steps.pop(0)
            kept = []
            for one in waiting.pop(step, []):
                scores = longest > 1 and one.limits.get("max_tokens") == 1
                if not scores and one.key not in seen:
                    kept.append(one)
                    seen.add(one.key)
            seen = {one.key for one in kept}  # records are written twice one soon after the other
            if kept:
                yield step, kept


def _samples(
    file: Path, reading: Reading, begin: StepStart, updates: "_Updates", *, whole: bool
) -> Iterator[SampledTurn]:
    if file.suffix == ".jsonl":
        return _from_lines(file, reading, begin, updates)
    return _from_store(file, reading, whole=whole)


def _from_lines(file: Path, reading: Reading, begin: StepStart, updates: "_Updates") -> Iterator[SampledTurn]:
    begun: set[int] = set()
    for line, record in lines.read(file, reading, begin=begin):
        found: list[SampledTurn] = []
        with reading.whole_line(file, line):
            found = _of_record(record, updates)
        for step in {sample.step for sample in found} - begun:
            reading.begins(file, step + 1, line)  # one step more, by whose calls those are told that only score
            begun.add(step)
        yield from found


def _of_record(record: Mapping[str, Any], updates: "_Updates") -> list[SampledTurn]:
    """The sequences that one call sampled."""
    scope = record.get("scope") or {}
    if not _trains(scope) or record.get("status", "ok") != "ok":
        return []
    created = as_number(record.get("created_at")) or 0.0
    iteration = scope.get("iteration")
    hash((scope.get("group_idx"), scope.get("traj_idx"), record.get("sampling_session_id"), record.get("seq_id")))
    return [
        SampledTurn(
            step=iteration if isinstance(iteration, int) else updates.before(created),
            group=scope.get("group_idx"),
            trajectory=scope.get("traj_idx"),
            key=(record.get("sampling_session_id"), record.get("seq_id"), place),
            created=created,
            policy=words_of(record.get("model_path")),
            prompt=_tokens(record.get("prompt_tokens")),
            tokens=_tokens(one.get("tokens")),
            logprobs=_logprobs(one.get("tokens"), one.get("logprobs")),
            finish=words_of(one.get("stop_reason")),
            limits=dict(record.get("sampling_params") or {}),
            seconds=as_number(record.get("latency_sec")),
        )
        for place, one in enumerate(record.get("samples") or [])
    ]


@dataclass(frozen=True)
class _Updates:
    """When optimiser steps were asked for, which is read where a call does not say which iteration it is of."""

    file: Path
    reading: Reading

    def before(self, time: float) -> int:
        """How many there were."""
        first, times = self._times
        return first + int(np.searchsorted(times, time))

    @cached_property
    def _times(self) -> tuple[int, list[float]]:
        """Those of the steps that are wanted, ascending, and how many came before."""
        if not self.file.is_file():
            return 0, []
        begin = self.reading.place(self.file)
        first, times = max(begin.step - _OVERTAKEN, 0), list[float]()
        for line, record in lines.read(self.file, self.reading, begin=begin):
            if record.get("op") == "optim_step" and record.get("status") in ("ok", "submitted"):
                self.reading.begins(self.file, first + len(times) + _OVERTAKEN, line)
                times.append(as_number(record.get("created_at")) or 0.0)
        return first, sorted(times)


def _from_store(file: Path, reading: Reading, *, whole: bool) -> Iterator[SampledTurn]:
    run = (_run_of(file) or ("", 0))[0]
    query = (
        f"select {_COLUMNS} from {TABLE} where run_id = ? and coalesce(iteration, 0) >= ? order by iteration, cursor"
    )
    with reading.whole_file(), sqlite_rows.connected(file) as store:
        store.row_factory = sqlite3.Row
        for row in store.execute(query, (run, reading.after)):
            if not _trains({name: row[name] for name in ("split", "purpose")}):
                continue
            try:
                yield _of_row(row, whole)
            except SURPRISES as error:
                reading.bad(file, f"row {row['cursor']} of {TABLE}: not of the shape that is known ({error})")


def _of_row(row: sqlite3.Row, whole: bool) -> SampledTurn:
    """A row of the store; without its lists where only its place is asked for."""
    metadata = json.loads(row["metadata"] or "{}")
    listed = ("prompt_tokens", "sampled_tokens", "logprobs") if whole else ()
    lists = {name: json.loads(row[name]) if row[name] else None for name in listed}
    tokens = lists.get("sampled_tokens")
    return SampledTurn(
        step=row["iteration"] if row["iteration"] is not None else 0,
        group=row["group_idx"],
        trajectory=row["traj_idx"],
        key=(row["sampling_session_id"], row["seq_id"], row["sample_idx"]),
        created=row["created_at"] or 0.0,
        policy=words_of(row["policy_version"]),
        prompt=_tokens(lists.get("prompt_tokens")),
        tokens=_tokens(tokens),
        logprobs=_logprobs(tokens, lists.get("logprobs")),
        finish=words_of(metadata.get("stop_reason")),
        limits=dict(metadata.get("sampling_params") or {}),
        seconds=as_number(metadata.get("latency_sec")),
    )


def _trains(scope: Mapping[str, Any]) -> bool:
    return scope.get("split") in (None, "train") and scope.get("purpose") != "eval"


def _tokens(values: Any) -> NDArray[np.int32]:
    return np.array([] if values is None else values, dtype=np.int32)


def _logprobs(tokens: Any, values: Any) -> NDArray[np.float32] | None:
    if values is not None and len(tokens or ()) != len(values):
        raise BadLine(f"{len(tokens or ())} sampled tokens and {len(values)} log-probabilities")
    return numbers(values)


# Responses ----------------------------------------------------------------------------------------------------------


def trajectories(samples: Sequence[SampledTurn]) -> list[list[SampledTurn]]:
    """The samples of a step by trajectory, each in the order of its turns."""
    found: dict[Any, list[SampledTurn]] = {}
    for place, sample in enumerate(samples):
        whole = sample.trajectory is not None
        found.setdefault((sample.group, sample.trajectory) if whole else place, []).append(sample)
    return [sorted(turns, key=lambda sample: sample.created) for turns in found.values()]


def group_of(turns: Sequence[SampledTurn]) -> Any:
    """What the responses to a prompt have in common: the group that the caller named, else the prompt itself."""
    first = turns[0]
    return first.group if first.group is not None else first.prompt.tobytes()


def tokens_of(turns: Sequence[SampledTurn]) -> dict[str, Any] | None:
    """Token columns of a trajectory; prompts and what tools answered lie between its turns."""
    if not any(len(turn.tokens) for turn in turns):
        return None
    places = [np.full(len(turn.tokens), 2 * place + 1, np.int16) for place, turn in enumerate(turns)]
    tokens = {
        "token_id": np.concatenate([turn.tokens for turn in turns]),
        "turn": np.concatenate(places),
    }
    if any(turn.logprobs is not None for turn in turns):
        parts = [nulls(len(turn.tokens)) if turn.logprobs is None else turn.logprobs for turn in turns]
        tokens["logp_behavior"] = joined_columns(parts)
    return tokens


def sequence_of(turns: Sequence[SampledTurn]) -> dict[str, Any]:
    """The row of a trajectory, without seq_id and group_id."""
    first, last = turns[0], turns[-1]
    seconds = [turn.seconds for turn in turns if turn.seconds is not None]
    top_k = first.limits.get("top_k")
    return {
        "n_tokens": sum(len(turn.tokens) for turn in turns),
        "prompt_tokens": len(first.prompt) or None,
        "finish_reason": last.finish,
        "truncated": last.finish == "length" if last.finish else None,
        "adapter": first.policy,
        "temperature": as_number(first.limits.get("temperature")),
        "top_p": as_number(first.limits.get("top_p")),
        "top_k": (0 if top_k == -1 else top_k) if isinstance(top_k, int) else None,
        "n_turns": len(turns),
        "seconds_generating": sum(seconds) if seconds else None,
    }


IMPORTER = Importer(
    "tinker-capture",
    "tinker-cookbook: captured samples",
    describe,
    read,
    signs=(
        Sign("capture/sample.jsonl", _KEYS),
        Sign("sample.jsonl", _KEYS, says_enough=False),
        Sign("capture.sqlite", (TABLE,)),
    ),
)
