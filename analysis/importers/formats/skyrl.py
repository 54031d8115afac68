"""SkyRL's `trainer.dump_data_batch`: dumped_data/global_step_{n}_training_input.pkl, a batch as it goes into training.

Read against SkyRL 0.4.0: skyrl/train/trainer.py (dump_data, convert_to_training_input), skyrl/train/dataset/
preprocess.py (layout) and skyrl/backends/skyrl_train/training_batch.py (TensorBatch, pad_training_input_batch).

Sequences are padded on the left, so every response ends at the last column, and tensors over responses are aligned to
the right: leading zeros, then the response.
"""

import io
import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import pickles, responses
from ratioscope.analysis.importers.source import SURPRISES, Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import numbered
from ratioscope.storage import bounds

_COLUMNS = {
    "action_log_probs": "logp_current",
    "rollout_logprobs": "logp_behavior",
    "base_action_log_probs": "logp_reference",
    "advantages": "advantage",
}
_WHY = "SkyRL writes a batch as a pickle of a class of its own"
_OUT = "loss mask of the whole response"

_MISSING = {
    "reward": "SkyRL takes the rewards out of the batch before it dumps it",
    "prompt": "the dump has token ids, no text",
    "response": "the dump has token ids, no text",
    "behavior_version": "the dump does not say which weights sampled a token",
    "policy_version": "the dump does not say which weights sampled a token, so the age of none is known",
    "entropy": "the dump has no entropies",
    "logp_new": "SkyRL does not score the responses again after the update",
    "logp_behavior_train": "SkyRL does not score the responses with the weights that sampled them",
    "logp_gate": "the dump is made before the loss",
    "clipped": "the dump is made before the loss",
    "finish_reason": "the dump does not say how a response ended",
    "routing_agreement": "the dump has the sampler's experts, not the trainer's",
    "wall_time": "the dump has no times",
}
_ASSUMED = (
    "A response whose loss mask is zero everywhere was left out by a filter (zero variance, overlong); tokens of "
    "a tool in it are those whose log-probability by the sampler is 0.",
    "Batches without old log-probabilities are of a loss that is taken against the sampler: SkyRL skips the pass then.",
)


def _folder(path: Path) -> Path:
    return path / "dumped_data" if (path / "dumped_data").is_dir() else path


def _files(path: Path) -> dict[int, Path]:
    return numbered(_folder(path), r"global_step_(\d+)_training_input\.pkl")


def _describe(path: Path) -> Description | None:
    files = _files(path)
    if not files:
        return None
    return Description(
        framework="SkyRL",
        format="SkyRL trainer.dump_data_batch",
        path=path,
        steps=len(files),
        missing=_MISSING,
        assumed=_ASSUMED,
        unpickles=_WHY,
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    for number, file in files.items():
        if number <= reading.after:
            continue
        last = reading.growing and number == max(files)
        quiet = Reading(unpickle=reading.unpickle, skip_bad=reading.skip_bad or (last and reading.unpickle))
        batch = _batch(file, quiet)
        if last and quiet.problems:
            return  # a file that is still being written
        reading.problems += quiet.problems
        if batch is not None:
            reading.bytes_read += file.stat().st_size
            try:
                step = _step(number, *batch, file, reading)
            except SURPRISES as error:
                reading.bad(file, f"no batch of SkyRL: {responses.other_shape(error)}")
            else:
                yield step


def _batch(file: Path, reading: Reading) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]] | None:
    """Tensors by name, (responses, ...), and the metadata of a batch."""
    try:
        data = bounds.read_whole(file)
    except OSError as error:
        reading.bad(file, f"cannot be read ({error.strerror or error})")
        return None
    found = pickles.allowed(data, file, reading, _WHY)
    if found is None:
        return None
    state = found.made_from[-1] if isinstance(found, pickles.Stand) and found.made_from else None
    held = state.get("batch_dict") if isinstance(state, Mapping) else None
    if not isinstance(held, Mapping) or not {"sequences", "attention_mask", "loss_mask"} <= held.keys():
        reading.bad(file, "no batch of SkyRL: it has no sequences, attention_mask and loss_mask")
        return None
    try:
        tensors = {
            name: _tensor(value)
            for name, value in held.items()
            if name in (*_COLUMNS, "sequences", "attention_mask", "loss_mask", "response_mask") and value is not None
        }
    except (KeyError, TypeError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        reading.bad(file, f"a tensor of it cannot be read: {responses.other_shape(error)}")
        return None
    return tensors, state.get("metadata") or {}  # type: ignore[union-attr]


def _tensor(value: Mapping[str, Any]) -> NDArray[Any]:
    if value.get("format") == "torch":
        import torch

        return pickles.array(torch.load(io.BytesIO(value["data"]), weights_only=True))
    return np.frombuffer(value["data"], dtype=np.dtype(value["dtype"])).reshape(value["shape"])


def _step(
    number: int, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any], file: Path, reading: Reading
) -> Step:
    padding = responses.version(metadata.get("pad_size")) or 0  # copies of the first row: ranks get equally many
    count = max(len(tensors["sequences"]) - padding, 0)
    groups: list[int | None] = [None] * count
    for group, ends in enumerate(metadata.get("policy_prompt_boundaries") or ()):
        start, end = (min(int(bound), count) for bound in ends)
        groups[start:end] = [group] * (end - start)
    found = [
        responses.made(partial(_response, tensors, place, groups[place]), reading, file, f"row {place}")
        for place in range(count)
    ]
    return responses.step(number, [response for response in found if response is not None])


def _response(tensors: Mapping[str, NDArray[Any]], place: int, group: int | None) -> responses.Response:
    mask = tensors["loss_mask"][place] > 0
    whole = tensors["response_mask"][place] > 0 if "response_mask" in tensors else mask
    # The response ends where the row ends, and its first token is the first that its mask has.
    length = int(len(whole) - whole.argmax()) if whole.any() else 0
    ending = slice(len(whole) - length, None)
    values: dict[str, Any] = {
        column: tensors[name][place, ending] for name, column in _COLUMNS.items() if name in tensors
    }
    ids = tensors["sequences"][place]
    values["token_id"] = ids[len(ids) - length :]
    sampled, trained_on, dropped = mask[ending], None, None
    if not sampled.any():
        drawn = values.get("logp_behavior")
        sampled = np.ones(length, dtype=bool) if drawn is None else np.asarray(drawn != 0)
        trained_on, dropped = np.zeros(length, dtype=bool), _OUT
    return responses.Response(
        sampled=sampled,
        values=values,
        row={"group_id": group, "dropped": dropped},
        trained_on=trained_on,
        reason=_OUT,
    )


IMPORTER = Importer(
    "skyrl",
    "SkyRL dump_data_batch",
    _describe,
    _read,
    signs=(Sign("dumped_data", ("global_step_*_training_input.pkl",)),),
)
