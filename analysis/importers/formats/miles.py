"""miles's `--dump-details`: what slime writes, one training file a rank, and more beside it.

Read against radixark/miles 31f1ca96: miles/utils/train_dump_utils.py (train_data/{id}_{rank}.pt),
miles/ray/rollout/debug_data.py (rollout_data, trajectory, dashboard_columns) and, in miles/backends/training_utils,
debug_dump.py (policy_loss_debug) and cp_utils.py (how context parallelism cuts a sequence).

Every rank writes what it holds: ranks of tensor parallelism hold the same, those of context parallelism a slice each,
and only the last stage of pipeline parallelism has log-probabilities.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import lines, pickles, responses
from ratioscope.analysis.importers.formats import gates, slime
from ratioscope.analysis.importers.source import SURPRISES, BadLine, Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import as_number, numbered, table_rows

_SLICED = (*slime.COLUMNS, gates.FIELD)
_MISSING = {name: why.replace("slime", "miles") for name, why in slime.MISSING.items()}
_ASSUMED = (
    "One rollout is one step: log_probs are from before its first update.",
    "Where the dump has the log-probabilities of the loss (policy_loss_debug), logp_gate are those; they belong to a "
    "response whose lengths and log-probabilities are the same, as their files do not name it.",
)


def ranks(folder: Path) -> dict[int, list[Path]]:
    """Training files by rollout id, those of a rollout by rank."""
    found: dict[int, dict[int, Path]] = {}
    for file in folder.glob("*_*.pt"):
        number, _, rank = file.stem.partition("_")
        if number.isdecimal() and rank.isdecimal():
            found.setdefault(int(number), {})[int(rank)] = file
    return {number: [files[rank] for rank in sorted(files)] for number, files in sorted(found.items())}


def columns_of(folder: Path) -> dict[int, Path]:
    """Files of dashboard_columns by rollout id: tokens, mask and the sampler's log-probabilities, as Parquet."""
    return numbered(folder, r"rollout_(\d+)\.parquet")


def _describe(path: Path) -> Description | None:
    folder = slime.folder_of(path)
    try:
        trained, sampled = ranks(folder / "train_data"), slime.rollouts(folder / "rollout_data")
        mirrored = columns_of(folder / "dashboard_columns")
    except OSError:
        return None
    if not trained and not mirrored and not _is_ours(sampled):
        return None
    missing = dict(_MISSING)
    leave = pickles.needs_leave(next(iter(trained.values()))[0]) if trained else ""
    if not trained:
        why = "there is no train_data folder: the dump has what was sampled, not what was trained on"
        missing |= dict.fromkeys(("logp_current", "advantage", "entropy", "logp_reference"), why)
    elif not leave:
        there = {name for file in next(iter(trained.values())) for name in _columns(file, Reading(skip_bad=True))}
        missing |= {
            column: f"the training dump has no {name}: the configuration did not ask for it"
            for name, column in slime.COLUMNS.items()
            if name not in there
        }
    if gates.calls(folder):
        del missing["logp_gate"]
    if not sampled:
        missing |= dict.fromkeys(("group_id", "prompt", "response"), "there is no rollout_data folder")
    since = _anchor(trained)
    if since is None:
        missing["policy_version"] = (
            "the weight versions do not count the rollouts: none are logged, weights are sent less often, or a resumed "
            "run counted anew"
        )
    return Description(
        framework="miles",
        format="miles --dump-details",
        path=folder,
        steps=len(trained.keys() | sampled.keys() | mirrored.keys()),
        missing=missing,
        assumed=_ASSUMED + ((slime.versions_assumed(since),) if since is not None else ()),
        unpickles=f"the training files hold {leave} beside tensors" if leave else "",
    )


def _is_ours(sampled: Mapping[int, Path]) -> bool:
    if not sampled:
        return False
    payload = pickles.torch_file(next(iter(sampled.values())), Reading(skip_bad=True))
    return isinstance(payload, Mapping) and isinstance(payload.get("samples"), list) and "metadata" in payload


def _columns(path: Path, reading: Reading) -> Mapping[str, Any]:
    return (_rank(path, reading) or {}).get("rollout_data") or {}


def _rank(path: Path, reading: Reading) -> dict[str, Any] | None:
    payload = pickles.torch_file(path, reading, lazily=True)
    if payload is None:
        return None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("rollout_data"), Mapping):
        reading.bad(path, "no training dump of miles: it has no rollout_data")
        return None
    return dict(payload)


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    folder = slime.folder_of(path)
    trained, sampled = ranks(folder / "train_data"), slime.rollouts(folder / "rollout_data")
    mirrored = columns_of(folder / "dashboard_columns")
    since = _anchor(trained)
    wanted = len(next(iter(trained.values()))) if trained else 0
    losses = gates.Losses(folder)
    ids = sorted(trained.keys() | sampled.keys() | mirrored.keys())
    for number in ids:
        if number <= reading.after:
            continue
        last = reading.growing and number == ids[-1]
        if last and len(trained.get(number, ())) < wanted:
            return  # not trained on yet, or not written by every rank
        quiet = Reading(unpickle=reading.unpickle, skip_bad=reading.skip_bad or last)
        shards = [shard for file in trained.get(number, ()) if (shard := _rank(file, quiet)) is not None]
        samples = _samples(sampled.get(number), mirrored.get(number), quiet)
        if last and quiet.problems:
            return  # a file that is still being written
        losses.join(shards, quiet)
        talks = _trajectories(folder / "trajectory" / f"{number}.jsonl", quiet)
        if samples or shards:
            file = next(iter(trained.get(number, ())), sampled.get(number, folder))
            reading.bytes_read += sum(path.stat().st_size for path in (*trained.get(number, ()), file))
            try:
                step = _step(number, samples, shards, talks, since, file, quiet)
            except SURPRISES as error:
                quiet.bad(file, f"no training dump of miles: {responses.other_shape(error)}")
            else:
                yield step
        reading.problems += quiet.problems


def _samples(file: Path | None, mirror: Path | None, reading: Reading) -> list[Mapping[str, Any]]:
    """Samples of a rollout: from its dump, or from the Parquet file beside it where the dump cannot be read."""
    quiet = Reading(unpickle=reading.unpickle, skip_bad=reading.skip_bad or mirror is not None)
    payload = pickles.torch_file(file, quiet) if file is not None else None
    if isinstance(payload, Mapping) and isinstance(payload.get("samples"), list):
        reading.problems += quiet.problems
        return payload["samples"]
    if payload is not None:
        reading.bad(file, "no dump of miles: it has no list of samples")  # type: ignore[arg-type]
    if mirror is None:
        return []
    instead = f"{mirror.name} was read instead, without prompts and rewards."
    reading.problems += [f"{problem} {instead}" for problem in quiet.problems]
    return [row | {"index": row["sample_index"]} for row in table_rows(mirror, reading)]


def _trajectories(path: Path, reading: Reading) -> dict[Any, list[dict[str, Any]]]:
    if not path.is_file():
        return {}
    rows = [row for _, row in lines.read(path, reading)]
    return {
        index: responses.conversation(row.get("messages"))
        for row in rows
        if (index := responses.version(row.get("sample_index"))) is not None
    }


def _step(
    number: int,
    samples: Sequence[Mapping[str, Any]],
    shards: Sequence[Mapping[str, Any]],
    talks: Mapping[Any, list[dict[str, Any]]],
    since: int | None,
    file: Path,
    reading: Reading,
) -> Step:
    places: dict[int, list[tuple[int, int]]] = {}
    for which, shard in enumerate(shards):
        for row, index in enumerate(shard["rollout_data"].get("sample_indices") or ()):
            places.setdefault(int(index), []).append((which, row))
    # Ranks that hold slices or copies of the same responses are one: what is counted is shares of the data.
    shares = sorted({_first_rank(shards, held) for held in places.values()})
    by_index = {int(sample["index"]): sample for sample in samples if sample.get("index") is not None}
    raw = next((shard["rollout_data"].get("raw_reward") for shard in shards), None)
    updates = next((len(shard["rollout_data"].get("num_microbatches") or ()) for shard in shards), 0)

    def response(place: int, index: int) -> responses.Response:
        sample = by_index.get(index, {})
        trained = _whole(shards, places[index]) if index in places else None
        found = slime.response_of(sample, trained, dropped=bool(shards) and trained is None)
        if trained is not None:
            found.row["rank"] = shares.index(trained["rank"])
            if gates.FIELD in trained:
                # Of a rollout that is one update and was not scored before it, the loss saw the policy it began with.
                began_with = "logp_current" not in found.values and updates == 1
                found.values["logp_current" if began_with else "logp_gate"] = trained[gates.FIELD]
        if raw is not None and len(raw) == len(by_index) and place < len(raw):
            reward = as_number(raw[place])
            found.row |= {"reward": reward} if reward is not None else {}
        if isinstance(adapter := getattr(sample.get("adapter"), "state", None), Mapping):
            found.row["adapter"] = responses.plain_text(adapter.get("name"))
        if index in talks:
            found.messages = talks[index]
            found.row["n_tool_calls"] = sum(message["role"] == "tool" for message in found.messages)
        return found

    rows = [
        found
        for place, index in enumerate(dict.fromkeys([*by_index, *sorted(places)]))
        if (found := responses.made(partial(response, place, index), reading, file, f"sample {index}")) is not None
    ]
    scalars = {"policy_version": number + since} if since is not None else {}
    return responses.step(number, rows, scalars | ({"extra_updates_of_rollout": float(updates)} if updates else {}))


def _whole(shards: Sequence[Mapping[str, Any]], places: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """A sample's row of the training dump over its whole response, joined from the ranks that hold a part of it.

    Raises:
        BadLine: the ranks do not hold all of it, or do not say which part is whose.
    """
    first, at = places[0]
    columns = shards[first]["rollout_data"]
    total, length = int(columns["total_lengths"][at]), int(columns["response_lengths"][at])
    row: dict[str, Any] = {
        name: values[at]
        for name in ("tokens", "response_lengths", "loss_masks", "truncated", "weight_versions")
        if (values := columns.get(name)) is not None
    }
    row["rank"] = _first_rank(shards, places)
    count = int(shards[first].get("cp_size") or 1)
    for name in _SLICED:
        parts: dict[int, NDArray[Any]] = {}
        for which, place in places:
            values = shards[which]["rollout_data"].get(name)
            if values is not None and values[place] is not None:
                part = pickles.array(values[place])
                # Ranks of tensor parallelism hold the same slice: the first is as good as any.
                parts.setdefault(int(shards[which].get("cp_rank") or 0), part)
        if parts:
            padded = columns.get("max_seq_lens")
            longest = int(padded[at]) if padded is not None and shards[first].get("qkv_format") == "bshd" else total
            row[name] = joined(parts, count, total, length, longest)
    return row


def _first_rank(shards: Sequence[Mapping[str, Any]], places: Sequence[tuple[int, int]]) -> int:
    """The lowest rank that holds a sample."""
    return int(shards[places[0][0]].get("rank", 0))


def joined(parts: Mapping[int, NDArray[Any]], count: int, total: int, length: int, longest: int) -> NDArray[Any]:
    """One array over the response from the slices that the ranks of context parallelism hold.

    The sequence is cut into 2·`count` pieces of equal size; rank r holds piece r and the r-th from the end. A
    log-probability lies where the token before it does.

    Args:
        parts: by rank of context parallelism.
        total: tokens of prompt and response; `length`: of the response.
        longest: what the pieces' size is reckoned from: `total`, or the padded length.

    Raises:
        BadLine: a slice is missing or has another length than the cut gives it.
    """
    whole = np.zeros(length, dtype=np.result_type(*parts.values()))
    if count == 1:
        if len(parts[0]) != length:
            raise BadLine(
                f"{len(parts[0])} values for {length} tokens; the file does not say how context parallelism cut them"
            )
        return parts[0]
    if len(parts) != count:
        raise BadLine(f"slices of {len(parts)} of {count} ranks of context parallelism")
    prompt, size = total - length, -(-longest // (2 * count))
    for rank, part in parts.items():
        taken = 0
        for piece in (rank, 2 * count - rank - 1):
            start, end = max(piece * size, prompt - 1), min((piece + 1) * size, total - 1)
            if start < end:
                span = slice(start - prompt + 1, end - prompt + 1)
                if taken + end - start > len(part):
                    break
                whole[span] = part[taken : taken + end - start]
                taken += end - start
        if taken != len(part):
            raise BadLine(f"{len(part)} values on rank {rank} of context parallelism, which holds {taken}")
    return whole


def _anchor(trained: Mapping[int, Sequence[Path]]) -> int | None:
    if not trained:
        return None
    (first, one), (last, other) = next(iter(trained.items())), list(trained.items())[-1]
    return slime.anchor(first, _freshest(one), last, _freshest(other))


def _freshest(files: Sequence[Path]) -> int | None:
    found = [version for file in files if (version := _newest(file, file.stat().st_mtime_ns)) is not None]
    return max(found, default=None)


@lru_cache(maxsize=256)
def _newest(path: Path, modified_ns: int) -> int | None:
    return slime.newest(_columns(path, Reading(skip_bad=True)).get("weight_versions") or ())


IMPORTER = Importer(
    "miles", "miles --dump-details", _describe, _read, signs=(Sign("dashboard_columns", ("rollout_*.parquet",)),)
)
