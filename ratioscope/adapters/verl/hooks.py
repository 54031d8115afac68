"""What is wrapped of verl's trainers, and what is done there.

The current trainer (`verl.trainer.ppo.v1`): a run step is one of its steps, with all the mini-batches between two
transfers of weights to the sampler, since `old_log_probs` are those of the policy before the first of them. The step's
number is verl's `global_steps`, and the policy before it has the version `global_steps - 1`.

The old one (`RayPPOTrainer`, and the trainers of `verl.experimental` and of forks made of it): the same around
`_update_actor`, or, where a `fit` asks the workers itself (before verl 0.7, in forks), around their `update_actor`.

A step without an update of the policy (while the critic warms up) is no step of the run.
"""

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ratioscope.adapters.methods import reaches
from ratioscope.adapters.recording import Recording, closing
from ratioscope.adapters.verl import manifest
from ratioscope.adapters.verl.columns import TOKEN_FIELDS, Decode, step_columns

_LOG = logging.getLogger("ratioscope")
Method = Callable[..., Any]

_FIELDS = [
    *TOKEN_FIELDS, "teacher_ids", "teacher_logprobs", "prompts", "response_mask", "rm_scores", "uid", "data_source",
    "extra_fields",
]  # fmt: skip
_OWN = {"actor/pg_loss": "loss", "actor/grad_norm": "grad_norm", "actor/lr": "learning_rate"}
_TRAINING = ("old_log_prob", "ref", "values", "adv", "update_critic", "update_actor")


def wrap_trainer(module: ModuleType) -> None:
    """Wrap the current trainer's class."""
    for name, wrapped in (
        ("fit", _fit),
        ("step", _step),
        ("_compute_advantage", _compute_advantage),
        ("_update_actor", _update_actor),
    ):
        _around(module.PPOTrainer, name, wrapped)


def wrap_old_trainer(module: ModuleType) -> None:
    """Wrap the old trainer's class, and the function that overwrites its mask."""
    trainer = module.RayPPOTrainer
    _around(trainer, "__init__", _begin)
    if hasattr(trainer, "_update_actor"):
        _around(trainer, "fit", _fit)
        _around(trainer, "_update_actor", _update_actor_of_old)
    else:
        _around(trainer, "fit", _fit_of_workers)
    with suppress(ImportError):  # verl before 0.6 has none
        helper = __import__("verl.trainer.ppo.rollout_corr_helper", fromlist=["_"])
        _around(helper, "compute_rollout_correction_and_add_to_batch", _correct)


def _around(owner: Any, name: str, wrapped: Method) -> None:
    """Replace a function by `wrapped`, which gets the original first; once, however often it is asked for."""
    original = getattr(owner, name)
    if getattr(original, "ratioscope", False):
        return

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapped(original, *args, **kwargs)

    method.ratioscope = True  # type: ignore[attr-defined]
    setattr(owner, name, method)


class _Watched:
    """The recording of one trainer, and what is kept until its step is written."""

    def __init__(self) -> None:
        new = os.environ.get("RATIOSCOPE_NEW", "0")
        if not new.isdecimal():
            _LOG.warning("RATIOSCOPE_NEW is %r and must be a whole number: logp_new is not scored.", new)
        folder = os.environ.get("RATIOSCOPE_RUN", "run")
        self.recording = Recording(folder, manifest.PRODUCER, new=int(new) if new.isdecimal() else 0)
        self.texts = os.environ.get("RATIOSCOPE_TEXTS", "1") != "0"
        self.masks: dict[str, Any] = {}
        """`response_mask` before rejection sampling, by the key of the response."""
        self.current: dict[str, Any] = {}
        """Log-probabilities before the update, where bypass mode has none, by the key of the response."""
        self.updates = 0
        """Updates of the policy in the step at hand."""


def _of(trainer: Any) -> _Watched:
    found: _Watched = trainer.__dict__.setdefault("_ratioscope", None) or _Watched()
    trainer.__dict__["_ratioscope"] = found
    return found


def _fit(original: Method, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _of(trainer).recording
    recording.cost.step_began()
    return closing(recording, lambda: original(trainer, *args, **kwargs))


def _begin(original: Method, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """A fork's trainer has a `fit` of its own: it is wrapped as verl's is, or said to be out of sight."""
    result = original(trainer, *args, **kwargs)
    kind = type(trainer)
    if not getattr(kind.fit, "ratioscope", False):
        if reaches(kind, "fit", ("_update_actor",), through=True):
            _around(kind, "fit", _fit)
        elif reaches(kind, "fit", ("update_actor",), through=True):
            _around(kind, "fit", _fit_of_workers)
        else:
            _LOG.warning(
                "ratioscope does not record: the fit of %s calls neither _update_actor nor the workers' update_actor.",
                kind.__name__,
            )
    return result


def _fit_of_workers(original: Method, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """A `fit` that asks the workers for the update itself: their method is wrapped before it begins."""
    workers: Any = getattr(trainer, "actor_rollout_wg", None)
    update = getattr(workers, "update_actor", None)
    if update is None:
        _LOG.warning(
            "ratioscope does not record: when the fit of %s begins, it has no actor_rollout_wg that updates.",
            type(trainer).__name__,
        )
    elif not getattr(update, "ratioscope", False):

        def method(batch: Any, *more: Any, **named: Any) -> Any:
            return _update_actor_of_old(lambda _, given: update(given, *more, **named), trainer, batch)

        method.ratioscope = True  # type: ignore[attr-defined]
        workers.update_actor = method
    return _fit(original, trainer, *args, **kwargs)


# The current trainer ------------------------------------------------------------------------------------------------


def _step(original: Method, trainer: Any, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
    watched = _of(trainer)
    recording = watched.recording
    watched.masks, watched.current, watched.updates = {}, {}, 0
    recording.cost.step_began()
    batch = original(trainer, metrics, timing_raw)
    if watched.updates:
        new = recording.score(lambda: _scored(trainer, batch)) if recording.scores_now else None
        tables = recording.attempt(lambda: _tables(trainer, watched, batch, new))
        if tables is not None:
            seconds = {"seconds_sampling": timing_raw.get("gen")}
            seconds["seconds_training"] = sum(timing_raw.get(name, 0.0) for name in _TRAINING)
            _write(trainer, watched, tables, metrics, seconds, "TensorDict of jagged tensors (TransferQueue)")
    recording.cost.step_ended()
    return batch


def _compute_advantage(original: Method, trainer: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    watched = _of(trainer)
    watched.recording.attempt(lambda: _keep_mask(trainer, watched, batch))
    return original(trainer, batch, *args, **kwargs)


def _update_actor(original: Method, trainer: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    watched = _of(trainer)
    recording = watched.recording
    if recording.scores_now and not watched.updates and recording.attempt(lambda: manifest.is_bypass(trainer.config)):
        # Before the first mini-batch alone: before the others the policy has moved on.
        watched.current = recording.score(lambda: _scored(trainer, batch)) or {}
    watched.updates += 1
    return original(trainer, batch, *args, **kwargs)


def _queue() -> Any:
    return sys.modules["verl.trainer.ppo.v1.trainer_base"].tq


def _keep_mask(trainer: Any, watched: _Watched, batch: Any) -> None:
    if manifest.rejection(trainer.config):
        data = _queue().kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        rows = zip(batch.keys, data["response_mask"].unbind(), strict=True)
        watched.masks |= {key: row.clone() for key, row in rows}


def _scored(trainer: Any, batch: Any) -> dict[str, Any]:
    """Log-probabilities of the batch's responses under the weights of now, by key: a forward pass of the workers."""
    extra = {
        "calculate_entropy": False,
        "compute_loss": False,
        "temperature": trainer.config.actor_rollout_ref.rollout.temperature,
    }
    meta = type(batch)(keys=batch.keys, tags=batch.tags, partition_id=batch.partition_id, extra_info=extra)
    trainer.actor_rollout_wg.compute_log_prob(meta)
    data = _queue().kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["log_probs", "response_mask"]
    )
    # The workers' column belongs to the whole text, and its place t to token t + 1.
    rows = zip(batch.keys, data["log_probs"].unbind(), data["response_mask"].unbind(), strict=True)
    return {key: row[len(row) - len(mask) - 1 : len(row) - 1].clone() for key, row, mask in rows}


def _tables(trainer: Any, watched: _Watched, batch: Any, new: Mapping[str, Any] | None) -> Any:
    data = _queue().kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
    fields: dict[str, Any] = {name: data[name] for name in data.keys()}  # noqa: SIM118 (a TensorDict iterates over rows)
    for name in ("min_global_steps", "max_global_steps"):
        fields[name] = [tag.get(name) for tag in batch.tags]
    fields |= reward_parts(list(fields.pop("extra_fields", [])))
    if any(pieces := pieces_of(zip(batch.keys, batch.tags, strict=True))):
        fields["segment_id"] = pieces
    rows = zip(batch.keys, data["responses"].unbind(), strict=True)
    current = [watched.current.get(key, torch.full((len(row),), torch.nan)) for key, row in rows]
    return step_columns(
        fields,
        sampled=[watched.masks[key] for key in batch.keys] if watched.masks else None,
        rejection=manifest.rejection(trainer.config),
        bypass=manifest.is_bypass(trainer.config),
        current=current if watched.current else None,
        new=[new[key] for key in batch.keys] if new is not None else None,
        synthetic=[bool(tag.get("is_padding")) for tag in batch.tags],
        decode=_decode(trainer) if watched.texts else None,
    )


def pieces_of(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[int]:
    """Return the place of each response among the outputs of its session, by its key `uid_session_place`.

    An agent loop that does not go on with its history (a compaction, say) returns several.
    """
    found = [None if tag.get("is_padding") else re.search(r"_\d+_(\d+)$", key) for key, tag in rows]
    return [int(one[1]) if one else 0 for one in found]


# The old trainer ----------------------------------------------------------------------------------------------------

_MASK = "_ratioscope_mask"


def _correct(original: Method, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep the mask that rejection sampling overwrites, as an attribute: what is in the batch goes to the workers."""
    mask = batch.batch["response_mask"].clone()
    result = original(batch, *args, **kwargs)
    with suppress(AttributeError, TypeError):
        setattr(result[0], _MASK, mask)
    return result


def _update_actor_of_old(original: Method, trainer: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    watched = _of(trainer)
    recording = watched.recording
    sampled = getattr(batch, _MASK, None)
    bypass = bool(recording.attempt(lambda: manifest.is_bypass(trainer.config)))
    current = recording.score(lambda: _scored_of_old(trainer, batch)) if bypass and recording.scores_now else None
    output = original(trainer, batch, *args, **kwargs)
    new = recording.score(lambda: _scored_of_old(trainer, batch)) if recording.scores_now else None

    def tables() -> Any:
        fields = dict(batch.batch.items()) | {name: list(values) for name, values in batch.non_tensor_batch.items()}
        if "group_ids" in fields:  # RAGEN's: its uid is another one for each response
            fields["uid"] = fields.pop("group_ids")
        parts = {name: fields.pop(name) for name in batch.meta_info.get("reward_extra_keys", []) if name in fields}
        fields |= reward_parts([dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)])
        rejecting = sampled is not None and manifest.rejection(trainer.config)
        return step_columns(
            fields,
            sampled=sampled if rejecting else None,
            rejection=manifest.rejection(trainer.config),
            bypass=bypass,
            current=current,
            new=new,
            decode=_decode(trainer) if watched.texts else None,
        )

    found = recording.attempt(tables)
    if found is not None:
        told = getattr(output, "meta_info", {}).get("metrics", {})  # a future has none
        metrics = {name: np.mean(values) for name, values in told.items()}
        _write(trainer, watched, found, metrics, {}, "DataProto")
    recording.cost.step_ended()
    recording.cost.step_began()
    return output


def _scored_of_old(trainer: Any, batch: Any) -> Any:
    """Log-probabilities of the batch's responses under the weights of now, (responses, length)."""
    own = getattr(trainer, "_compute_old_log_prob", None)  # since verl 0.7
    output = own(batch) if own is not None else trainer.actor_rollout_wg.compute_log_prob(batch)
    return (output[0] if isinstance(output, tuple) else output).batch["old_log_probs"]


# Both ---------------------------------------------------------------------------------------------------------------


def _write(
    trainer: Any,
    watched: _Watched,
    tables: tuple[dict[str, Any], dict[str, Any]],
    metrics: Mapping[str, Any],
    seconds: Mapping[str, float | None],
    format_read: str,
) -> None:
    tokens, sequences = tables
    step = int(trainer.global_steps)

    def fields() -> dict[str, Any]:
        found = manifest.fields(
            trainer.config,
            tokens,
            version=sys.modules["verl"].__version__,
            new=watched.recording.new,
            format_read=format_read,
        )
        return found | {"vocabulary": _vocabulary(trainer)}

    watched.recording.write(
        step,
        sequences=sequences,
        tokens=tokens,
        scalars={"policy_version": step - 1} | dict(seconds) | scalars_of(metrics),
        manifest=fields,
        resumed=step > max(1, int(manifest.setting(trainer.config, "trainer.critic_warmup", 0))),
    )


def scalars_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """verl's metrics of a step as columns of the steps table: our names where the meaning is the same, else extra_."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        number = _number(value)
        if number is not None:
            found[_OWN.get(name) or f"extra_{re.sub('[^0-9A-Za-z]+', '_', name).strip('_').lower()}"] = number
    return found


def reward_parts(infos: list[Any]) -> dict[str, list[float | None]]:
    """The numbers that reward functions give besides the reward, `reward_<part>`, one a response; None: not given."""
    infos = [info.get("reward_extra_info", info) if isinstance(info, Mapping) else {} for info in infos]
    numbers = [{name: _number(value) for name, value in (info or {}).items()} for info in infos]
    names = sorted({name for info in numbers for name, value in info.items() if value is not None})
    return {f"reward_{name}": [info.get(name) for info in numbers] for name in names}


def _number(value: Any) -> float | None:
    if getattr(value, "size", 1) == 1 and hasattr(value, "item"):
        value = value.item()
    return float(value) if isinstance(value, bool | int | float) else None


def _decode(trainer: Any) -> Decode | None:
    tokenizer = getattr(trainer, "tokenizer", None)
    if tokenizer is None:
        return None
    return lambda rows: tokenizer.batch_decode(rows, skip_special_tokens=True)


def _vocabulary(trainer: Any) -> Callable[[int], str] | None:
    tokenizer = getattr(trainer, "tokenizer", None)
    return None if tokenizer is None else lambda token: str(tokenizer.decode([token]))
