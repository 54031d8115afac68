"""Trinity-RFT's explorer_output.db: every experience that its explorer sampled, in SQLite, written by default.

Read against Trinity-RFT 0.6.0: trinity/buffer/schema/sql_schema.py (tables pipeline_input and pipeline_input_blob),
trinity/common/experience.py (Experience.serialize_many), trinity/buffer/pipelines/experience_pipeline.py (its place).

A blob is "TRXP", a version, and two parts: metadata, which are pickled, and tensors in safetensors. The metadata of an
experience are text and numbers; they are read by their operations, never unpickled. Lengths come from the tensors
alone: log-probabilities cover the response, which ends the tokens.
"""

import json
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import pickles, responses, sqlite_rows
from ratioscope.analysis.importers.source import (
    SURPRISES,
    BadLine,
    Description,
    Importer,
    ImportProblem,
    Reading,
    Sign,
    Step,
)
from ratioscope.analysis.importers.values import as_number

_ROW, _BLOB = "pipeline_input", "pipeline_input_blob"
_PLACES = ("buffer/explorer_output.db", "explorer_output.db")
_PAGE = 64
_MAGIC, _HEADER = b"TRXP", struct.Struct("<4sBQQ")
_KINDS = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1"} | {
    "BOOL": "?",
    "BF16": "u2",
}

_PER_TOKEN = {"logprobs": "logp_behavior", "advantages": "advantage", "teacher_logprobs": "logp_teacher"}
_MISSING = {
    "logp_current": "the explorer writes experiences before the trainer scores them",
    "advantage": "the explorer writes experiences before advantages are computed",
    "logp_new": "the explorer writes experiences before the update",
    "logp_gate": "the explorer writes experiences before the loss",
    "logp_behavior_train": "Trinity does not score the responses with the weights that sampled them",
    "logp_reference": "the explorer writes experiences before the reference scores them",
    "entropy": "the explorer writes experiences before the trainer scores them",
    "clipped": "the explorer writes experiences before the loss",
    "routing_agreement": "the file has the sampler's experts, not the trainer's",
    "wall_time": "the file has the time at which an experience was stored, not that of an update",
}
_ASSUMED = (
    "Explorer batch b is trained in step b, by the policy of version b - 1, where explorer and trainer go in step, as "
    "Trinity's do. With a replay buffer, a filter or other batch sizes the ages are those at sampling.",
    "Where the weights changed while a task ran, its tokens have no version of their own, only the range of their "
    "response.",
)


def _database(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix in sqlite_rows.SUFFIXES else None
    return next((path / place for place in _PLACES if (path / place).is_file()), None)


def _describe(path: Path) -> Description | None:
    try:
        file = _database(path)
        if file is None:
            return None
        with sqlite_rows.connected(file) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {_ROW, _BLOB} <= tables:
                return None
            first = connection.execute(f"SELECT experience_bytes FROM {_BLOB} ORDER BY id LIMIT 1").fetchone()
    except ImportProblem:
        return None
    old = first is not None and isinstance(first[0], bytes) and not first[0].startswith(_MAGIC)
    return Description(
        framework="Trinity-RFT",
        format="Trinity-RFT explorer_output.db",
        path=file,
        missing=_MISSING,
        assumed=_ASSUMED,
        manifest={"sampled_with": "processed"},  # Trinity starts vLLM with logprobs_mode="processed_logprobs"
        unpickles="Trinity-RFT before 0.6 wrote an experience as a pickle of a class of its own" if old else "",
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    file = _database(path) or path
    with reading.whole_file(), sqlite_rows.connected(file) as connection:
        yield from _steps(connection, file, reading)


def _steps(connection: sqlite3.Connection, file: Path, reading: Reading) -> Iterator[Step]:
    number, rows, highest = -1, list[tuple[str, responses.Response]](), reading.after
    for row in _rows(connection, _first_row(connection, file, reading)):
        reading.bytes_read += len(row[-1]) if isinstance(row[-1], bytes) else 0
        found = _experience(row, file, reading)
        if found is None:
            continue
        batch, task, response = found
        if batch != number:
            if rows:
                yield _step(number, rows)
                highest = number
            if batch <= highest and batch > reading.after:
                reading.bad(
                    file, f"row {row[0]}: batch {batch} comes after batch {highest}; a resumed run went on in it"
                )
            number, rows = batch, []
        if batch > highest:
            rows.append((task, response))
    if rows and not reading.growing:
        yield _step(number, rows)


_ROWS = (
    f"SELECT id, task_id, model_version, reward, experience_bytes FROM {_ROW} LEFT JOIN {_BLOB} USING (id) "
    "WHERE id >= ? ORDER BY id"
)


def _rows(connection: sqlite3.Connection, first: int) -> Iterator[Any]:
    """The rows from a number on, some at a time: the explorer, which writes meanwhile, waits for none of them."""
    while page := connection.execute(f"{_ROWS} LIMIT {_PAGE}", (first,)).fetchall():
        yield from page
        first = page[-1][0] + 1


def _first_row(connection: sqlite3.Connection, file: Path, reading: Reading) -> int:
    """Where the rows beyond `reading.after` begin: batches follow each other, so half of the rows go at each look."""
    low, high = connection.execute(f"SELECT min(id), max(id) FROM {_ROW}").fetchone()
    if low is None or reading.after < 0:
        return 0
    quiet = Reading(unpickle=reading.unpickle, skip_bad=True)
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(f"{_ROWS} LIMIT 1", (middle,)).fetchone()
        found = _experience(row, file, quiet)
        if found is not None and found[0] > reading.after:
            high = middle
        else:
            low = max(middle, row[0]) + 1
    return int(low)


def _experience(row: Any, file: Path, reading: Reading) -> tuple[int, str, responses.Response] | None:
    """Batch, task and response of one row."""
    identity, task, model_version, reward, blob = row
    where = f"row {identity}"
    if not isinstance(blob, bytes):
        reading.bad(file, f"{where} has no blob")
        return None
    try:
        tensors, meta = _unpacked(blob, where, file, reading)
        batch = responses.version((meta.get("eid") or {}).get("batch"))
    except (*SURPRISES, struct.error) as error:
        reading.bad(file, f"{where} cannot be read: {responses.other_shape(error)}")
        return None
    if not tensors:
        return None
    if batch is None:
        reading.bad(file, f"{where} has no batch number: it is no experience of an explorer")
        return None
    response = responses.made(partial(_response, tensors, meta, model_version, reward), reading, file, where)
    return (batch, str(task), response) if response is not None else None


def _response(
    tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], model_version: Any, reward: Any
) -> responses.Response:
    covering = next((tensors[name] for name in ("logprobs", "action_mask") if name in tensors), None)
    if covering is None or "tokens" not in tensors:
        raise BadLine("it has no tokens with log-probabilities")
    length = len(covering)
    values: dict[str, Any] = {"token_id": tensors["tokens"][len(tensors["tokens"]) - length :]}
    for name, column in _PER_TOKEN.items():
        if name in tensors:
            values[column] = tensors[name]
    status = meta.get("truncate_status")
    fields: dict[str, Any] = {
        "prompt_tokens": len(tensors["tokens"]) - length,
        "prompt": responses.plain_text(meta.get("prompt_text")),
        "response": responses.plain_text(meta.get("response_text")),
        "reward": as_number(reward),
        "truncated": status == "response_truncated" if status else None,
        "finish_reason": "length" if status == "response_truncated" else None,
        "dropped": status if status == "prompt_truncated" else None,
    }
    version = responses.version(model_version)
    drift = responses.version((meta.get("info") or {}).get("model_version_drift")) or 0
    if version is not None:
        fields |= {"behavior_version_min": version, "behavior_version_max": version + drift}
    talk = meta.get("messages") or []
    if talk and fields["prompt"] is None and fields["response"] is None:
        asked = next((place for place, message in enumerate(talk) if message.get("role") == "assistant"), len(talk))
        fields |= {
            "prompt": responses.plain_text(talk[:asked] or None),
            "response": responses.plain_text(talk[asked:] or None),
        }
    return responses.Response(
        sampled=tensors.get("action_mask", np.ones(length)).astype(bool),
        values=values,
        row=fields,
        versions=(version,) if version is not None and not drift else (),
        messages=responses.conversation(talk),
    )


def _unpacked(
    blob: bytes, where: str, file: Path, reading: Reading
) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
    """Tensors and metadata of an experience.

    Raises:
        BadLine: it is damaged.
    """
    if not blob.startswith(_MAGIC):
        return _legacy(blob, where, file, reading)
    _, version, meta_size, tensor_size = _HEADER.unpack_from(blob)
    if version != 1:
        raise BadLine(f"its blob is of version {version}, version 1 is known")
    if len(blob) != _HEADER.size + meta_size + tensor_size:
        raise BadLine("its blob is not whole")
    pickled = blob[_HEADER.size : _HEADER.size + meta_size]
    try:
        meta = pickles.plain(pickled)
    except ValueError:
        meta = pickles.allowed(pickled, file, reading, f"{where} has objects beside text and numbers in its metadata")
    items = (meta or {}).get("items") or []
    if len(items) != 1:
        return {}, {}
    return _tensors(blob[_HEADER.size + meta_size :]), items[0]


def _tensors(data: bytes) -> dict[str, NDArray[Any]]:
    """Tensors of safetensors by the name of their field: 8 bytes of length, a header in JSON, the numbers."""
    size = struct.unpack_from("<Q", data)[0]
    start, found = 8 + size, {}
    for name, entry in json.loads(data[8:start]).items():
        kind = _KINDS.get(entry.get("dtype"))
        if name == "__metadata__" or kind is None:
            continue
        first, end = entry["data_offsets"]
        values = np.frombuffer(data[start + first : start + end], dtype=f"<{kind}" if kind != "?" else kind)
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        found[name.partition(":")[2]] = values.reshape(entry["shape"])
    return found


def _legacy(blob: bytes, where: str, file: Path, reading: Reading) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
    """An experience as Trinity wrote it before 0.6."""
    found = pickles.allowed(blob, file, reading, f"{where} is a pickle, as Trinity-RFT wrote them before 0.6")
    state = found.state if isinstance(found, pickles.Stand) else None
    if not isinstance(state, Mapping):
        return {}, {}
    tensors = {name: pickles.array(value) for name, value in state.items() if hasattr(value, "detach")}
    eid = state.get("eid")
    return tensors, dict(state) | {"eid": eid.state if isinstance(eid, pickles.Stand) else eid}


def _step(number: int, rows: list[tuple[str, responses.Response]]) -> Step:
    for (_, response), group in zip(rows, responses.groups_of([task for task, _ in rows]), strict=True):
        response.row["group_id"] = group
    newest = max(
        (one.row["behavior_version_max"] for _, one in rows if "behavior_version_max" in one.row), default=None
    )
    known = newest is not None and newest < number
    return responses.step(number, [one for _, one in rows], {"policy_version": number - 1} if known else {})


IMPORTER = Importer(
    "trinity",
    "Trinity-RFT explorer database",
    _describe,
    _read,
    signs=(*(Sign(place, (_ROW, _BLOB)) for place in _PLACES),),
)
