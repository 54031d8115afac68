"""slime's `--dump-details`: rollout_data/{id}.pt (samples) and train_data/{id}.pt (what the loss saw of them).

Read against THUDM/slime 624b824a: slime/observability/rollout_data_utils.py and train_data_utils.py (format 2: one file
a rollout, context-parallel slices already joined, tensors over the response), slime/utils/types.py (Sample).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import pickles, responses
from ratioscope.analysis.importers.source import SURPRISES, Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import as_number, numbered

COLUMNS = {
    "log_probs": "logp_current",
    "rollout_log_probs": "logp_behavior",
    "ref_log_probs": "logp_reference",
    "teacher_log_probs": "logp_teacher",
    "entropy": "entropy",
    "advantages": "advantage",
}
FINISHED = {"completed": "stop", "truncated": "length", "aborted": "abort", "failed": "failed"}

MISSING = {
    "logp_new": "slime does not score the responses again after the update",
    "logp_behavior_train": "slime does not score the responses with the weights that sampled them",
    "logp_gate": "the dump has one log-probability of the trainer a token, from before the rollout's updates",
    "clipped": "the dump does not say which tokens the loss clipped",
    "kept_mass": "the dump has the ids that top-p kept, not their probability",
    "routing_agreement": "the dump has the sampler's experts, not the trainer's",
    "wall_time": "the dump has no times",
}
ASSUMED = (
    "One rollout is one step: its log_probs are from before its first update. They were computed for themselves, or "
    "kept from the training pass where a rollout is one update.",
    "With --use-rollout-logprobs and several updates a rollout, log_probs are those of each sample's own training "
    "pass, after the updates before it. logp_current is then a later policy than the one the rollout began with.",
)


def folder_of(path: Path) -> Path:
    """The dump that a path is, or is the part of."""
    return path.parent if path.name in ("rollout_data", "train_data") else path


def rollouts(folder: Path) -> dict[int, Path]:
    """Files by rollout id, in ascending order; those of evaluations are not among them."""
    return numbered(folder, r"(?:rollout_)?(\d+)\.pt")


def _sources(path: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    """Files of what was sampled and of what was trained on, by rollout id.

    With --save-debug-rollout-data or --save-debug-train-data alone they lie in a folder of any name.
    """
    folder = folder_of(path)
    sampled, trained = rollouts(folder / "rollout_data"), rollouts(folder / "train_data")
    alone = {} if sampled or trained else rollouts(path)
    if not alone:
        return sampled, trained
    payload = _payload(next(iter(alone.values())), Reading(skip_bad=True))
    if payload is None:
        return {}, {}
    return ({}, alone) if "format_version" in payload else (alone, {})


def _describe(path: Path) -> Description | None:
    folder = folder_of(path)
    sampled, trained = _sources(path)
    if not sampled and not trained:
        return None
    first = next(iter((trained or sampled).values()))
    leave = pickles.needs_leave(first)
    payload = _payload(first, Reading(skip_bad=True)) if not leave else None
    if not leave and not isinstance(payload, Mapping):
        return None
    if payload is not None and (not isinstance(payload.get("samples"), list) or "metadata" in payload):
        return None  # miles has metadata beside its samples
    missing = dict(MISSING)
    if not trained:
        why = "there is no training data: the dump has what was sampled, not what was trained on"
        missing |= dict.fromkeys(("logp_current", "advantage", "entropy", "logp_reference"), why)
    elif payload is not None and isinstance(there := next(iter(payload["samples"]), None), Mapping):
        missing |= {
            column: f"the training dump has no {name}: the configuration did not ask for it"
            for name, column in COLUMNS.items()
            if name not in there
        }
    if not sampled:
        missing |= dict.fromkeys(("group_id", "prompt", "response", "behavior_version"), "there is no rollout data")
    if (anchor := _anchor(sampled)) is None:
        missing["policy_version"] = (
            "the weight versions do not count the rollouts: none are logged, weights are sent less often, or a resumed "
            "run counted anew"
        )
    return Description(
        framework="slime",
        format="slime --dump-details",
        path=folder,
        version=f"train_data format {payload['format_version']}" if payload and "format_version" in payload else "",
        steps=len(sampled.keys() | trained.keys()),
        missing=missing,
        assumed=ASSUMED + ((versions_assumed(anchor),) if anchor is not None else ()),
        unpickles=f"{first.name} holds {leave} beside tensors" if leave else "",
    )


def versions_assumed(anchor: int) -> str:
    """What reading ages off weight versions takes for granted."""
    return (
        f"The policy that rollout r trains has weight version r + {anchor}. The freshest sample of the first rollout "
        "is taken to be on-policy, and the counter grew by one a rollout since."
    )


def _payload(path: Path, reading: Reading) -> Any:
    payload = pickles.torch_file(path, reading, lazily=True)
    if payload is not None and not (isinstance(payload, Mapping) and isinstance(payload.get("samples"), list)):
        return reading.bad(path, "no dump of slime: it has no list of samples")
    return payload


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    sampled, trained = _sources(path)
    anchor = _anchor(sampled)
    ids = sorted(sampled.keys() | trained.keys())
    for number in ids:
        if number <= reading.after:
            continue
        last = reading.growing and number == ids[-1]
        if last and trained and number not in trained:
            return  # sampled, and not trained on yet
        quiet = Reading(unpickle=reading.unpickle, skip_bad=reading.skip_bad or last)
        rollout = _payload(sampled[number], quiet) if number in sampled else None
        training = _payload(trained[number], quiet) if number in trained else None
        if last and quiet.problems:
            return  # a file that is still being written
        reading.problems += quiet.problems
        if rollout is None and training is None:
            continue
        file = trained[number] if training is not None else sampled[number]
        reading.bytes_read += sum(files[number].stat().st_size for files in (sampled, trained) if number in files)
        try:
            step = _step(number, rollout, training, anchor, file, reading)
        except SURPRISES as error:
            reading.bad(file, f"no dump of slime: {responses.other_shape(error)}")
        else:
            yield step


def _step(
    number: int,
    rollout: Mapping[str, Any] | None,
    training: Mapping[str, Any] | None,
    anchor: int | None,
    file: Path,
    reading: Reading,
) -> Step:
    samples: Sequence[Mapping[str, Any]] = rollout["samples"] if rollout is not None else []
    trained: dict[int, Mapping[str, Any]] = {}
    for place, row in enumerate(training["samples"] if training is not None else []):
        position = responses.version(row.get("rollout_position")) if isinstance(row, Mapping) else None
        trained[place if position is None else position] = row
    raw = training.get("raw_reward") if training is not None else None
    count = max(len(samples), max(trained, default=-1) + 1)

    def response(place: int) -> responses.Response:
        sample, row = samples[place] if place < len(samples) else {}, trained.get(place)
        found = response_of(sample, row, dropped=training is not None and row is None)
        if raw is not None and len(raw) == count and (reward := as_number(raw[place])) is not None:
            found.row["reward"] = reward
        if row is not None and row.get("data_parallel_rank") is not None:
            found.row["rank"] = int(row["data_parallel_rank"])
        return found

    rows = [
        found
        for place in range(count)
        if (place < len(samples) or place in trained)
        and (found := responses.made(partial(response, place), reading, file, f"response {place}")) is not None
    ]
    shard = next(iter((training or {}).get("dp_shards") or ()), None)
    updates = shard.get("num_microbatches") if isinstance(shard, Mapping) else None
    scalars = {"extra_updates_of_rollout": float(len(updates))} if isinstance(updates, Sequence) else {}
    return responses.step(number, rows, scalars | ({} if anchor is None else {"policy_version": number + anchor}))


def response_of(
    sample: Mapping[str, Any], row: Mapping[str, Any] | None, *, dropped: bool = False
) -> responses.Response:
    """One response of slime or miles.

    Args:
        sample: of the rollout dump (`Sample.to_dict()`); empty: not there.
        row: of the training dump, whole lists over the response; None: not there.
        dropped: the training dump is there, and the response is not in it.
    """
    length = int(sample["response_length"] if sample else row["response_lengths"])  # type: ignore[index]
    tokens = pickles.array(sample["tokens"] if row is None else row["tokens"])
    mask = (row or {}).get("loss_masks")
    trained_on = None if mask is None else pickles.array(mask).astype(bool)
    logged = sample.get("loss_mask")
    sampled = np.ones(length, dtype=bool) if logged is None else pickles.array(logged).astype(bool)
    if not sample and trained_on is not None:
        sampled, trained_on = trained_on, None  # what the mask left out may have been sampled or not
    values: dict[str, Any] = {"token_id": tokens[len(tokens) - length :]}
    if sample.get("rollout_log_probs") is not None:
        values["logp_behavior"] = pickles.array(sample["rollout_log_probs"])
    for name, column in COLUMNS.items():
        if (found := (row or {}).get(name)) is not None:
            values[column] = pickles.array(found)
    removed = bool(sample.get("remove_sample"))
    if (dropped or removed) and trained_on is None:
        trained_on = np.zeros(length, dtype=bool)
    reason = "remove_sample" if removed else "not in the training data" if dropped else "loss mask of the training data"
    status = sample.get("status")
    fields = {
        "group_id": responses.version(sample.get("group_index")),
        "prompt": responses.plain_text(sample.get("prompt")),
        "response": responses.plain_text(sample.get("response")),
        "reward": as_number(sample.get("reward")),
        "prompt_tokens": len(tokens) - length,
        "finish_reason": FINISHED.get(str(status)),
        "failure": "aborted" if status == "aborted" else None,
        "truncated": status == "truncated" if status is not None else _truncated(row),
        "seconds_tools": as_number(sample.get("non_generation_time")) or None,
        "dropped": reason if dropped or removed else None,
    }
    versions = sample.get("weight_versions") or (row or {}).get("weight_versions") or ()
    return responses.Response(
        sampled=sampled,
        values=values,
        row=_filled(fields) | responses.parts(sample.get("reward")),
        versions=[responses.version(value) for value in versions],
        trained_on=trained_on,
        reason=reason,
    )


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _truncated(row: Mapping[str, Any] | None) -> bool | None:
    found = (row or {}).get("truncated")
    return None if found is None else bool(found)


def _anchor(sampled: Mapping[int, Path]) -> int | None:
    """Weight version of the policy that rollout 0 trains, if the counter grew by about one a rollout.

    A resumed run counts anew, and weights may go to the engines less often than every rollout; then the distance
    between the version of a token and the policy is not known, and no number is better than a wrong one.
    """
    if not sampled:
        return None
    (first, one), (last, other) = next(iter(sampled.items())), list(sampled.items())[-1]
    try:
        at_first, at_last = freshest(one, one.stat().st_mtime_ns), freshest(other, other.stat().st_mtime_ns)
    except OSError:  # reading says what is wrong
        return None
    return anchor(first, at_first, last, at_last)


def anchor(first: int, at_first: int | None, last: int, at_last: int | None) -> int | None:
    """See `_anchor`: from the newest version among the samples of the first and of the last rollout."""
    if at_first is None or at_last is None:
        return None
    behind = (last - first) - (at_last - at_first)
    return at_first - first if 0 <= behind <= max(1, (last - first) // 4) else None


@lru_cache(maxsize=64)
def freshest(path: Path, modified_ns: int) -> int | None:
    """The newest weight version among the samples of a rollout dump; `modified_ns`: of which writing of it."""
    payload = _payload(path, Reading(skip_bad=True))
    if payload is None:
        return None
    return newest(sample.get("weight_versions") for sample in payload["samples"] if isinstance(sample, Mapping))


def newest(versions: Any) -> int | None:
    """The newest of lists of versions; what is no list of them counts for nothing."""
    each = versions if isinstance(versions, Iterable) else ()
    lists = [values for values in each if isinstance(values, Sequence) and not isinstance(values, str)]
    found = [responses.version(value) for values in lists for value in values]
    return max((value for value in found if value is not None), default=None)


IMPORTER = Importer(
    "slime",
    "slime --dump-details",
    _describe,
    _read,
    signs=(Sign("rollout_data/*.pt", ("samples",)),),
)
