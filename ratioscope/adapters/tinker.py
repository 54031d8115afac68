"""tinker and Baseten Loops: records a training from its client's `forward_backward` and `optim_step`.

    from ratioscope.adapters.tinker import record

    run = record(training_client, "runs/mine")
    ...                                                          # the training loop, as it is
    run.close()

A step of the run is an optimizer step, with the data of all `forward_backward` calls before it. Of a `Datum` the
recorder takes `target_tokens`, `logprobs` (the sampler's) and `advantages`, and of the result `logprobs`: those of the
policy that the gradient was taken at. All are shifted alike: place t belongs to the t-th target. A datum of Loops may
leave the targets out: they are its tokens, one further.

tinker-cookbook takes the mask out of the data before it sends them, and groups, rewards and versions are never in
them. `run.about(data, ...)` says them, for the data as they were before.

Read against tinker 0.38.0: tinker/lib/public_interfaces/training_client.py and tinker/types. Read against
baseten-loops 0.32.0: loops/training_client.py, loops/models.py, loops/promise_client.py and loops/rl_metrics.py.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.adapters.recording import Recording
from ratioscope.adapters.tensors import MadeColumns, counts, group_numbers, sampling_versions, token_columns
from ratioscope.run_format.manifest import library_versions

PRODUCER = "ratioscope tinker recorder"
LONGEST_WAIT = 60.0
"""Seconds that `close` waits for results that are still computed."""
_FORGOTTEN_AFTER = 50
_CONTEXT_IS_ZERO = (
    "Targets whose sampled log-probability is exactly 0 are taken for context: tinker-cookbook fills context with 0, "
    "and the data have neither mask nor provenance."
)
NO_ADVANTAGE = "advantages all 0"
_ZEROS_ARE_LEFT_OUT = (
    "Responses whose advantages are all 0, and for which the service returned a log-probability of exactly 0 for every "
    "token, are taken for left out of its loss."
)
_INSIDE: ContextVar[bool] = ContextVar("_INSIDE", default=False)
"""Whether a method of the client is called by one that is recorded: either form may be made of the other."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


def record(
    client: Any,
    folder: str | Path,
    *,
    new: int = 0,
    first_step: int = 0,
    decode: Callable[[Sequence[int]], str] | None = None,
    quiet: bool = False,
    **manifest: Any,
) -> "TrainingRecorder":
    """Record what a training client is asked to do from now on.

    Args:
        client: has `forward_backward(data, loss_fn, ...)` and `optim_step(...)`; for `new`, `forward`, too. Forms that
            are awaited (`forward_backward_async`) are recorded as well.
        folder: where the run goes; continued where `first_step` is above 0 and it is there.
        new: score the data again after every n-th optimizer step (`logp_new`), a forward pass each time; 0: never.
        first_step: number of the first step, which is the version of the weights before it.
        decode: token ids to text.
        quiet: do not print what recording cost.
        manifest: fields of the manifest: name, algorithm, sampler, model, task, ...
    """
    return TrainingRecorder(client, Recording(folder, PRODUCER, new=new, quiet=quiet), first_step, decode, manifest)


@dataclass
class About:
    """What a `Datum` does not say; arrays over the places of its targets, or one value."""

    mask: Any = None
    group: Any = None
    reward: float | None = None
    version: int | None = None
    oldest: int | None = None
    known_by: Any = None
    """What the datum is known by; kept, because it is known by its identity."""
    said_at: int = 0
    """The step at which it was said."""


@dataclass
class _Step:
    """An optimizer step whose results are not all there yet."""

    number: int
    data: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    new: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    scored: bool = True
    """False while the calls are being made again, after the update: the step waits for that."""
    learning_rate: float | None = None


class TrainingRecorder:
    """Watches one client; made by `record`."""

    def __init__(
        self,
        client: Any,
        recording: Recording,
        first_step: int,
        decode: Callable[[Sequence[int]], str] | None,
        manifest: Mapping[str, Any],
    ) -> None:
        self.recording = recording
        self._client, self._first, self._decode, self._manifest = client, first_step, decode, dict(manifest)
        self._about: dict[int, About] = {}
        self._step = _Step(first_step)
        self._waiting: list[_Step] = []
        for name, noted in (("forward_backward", self._on_forward_backward), ("optim_step", self._on_optim_step)):
            setattr(client, name, self._around(getattr(client, name), noted))
            awaited = getattr(client, f"{name}_async", None)
            if awaited is not None:
                setattr(client, f"{name}_async", self._around_awaited(awaited, noted))
        recording.cost.step_began()

    def about(
        self,
        data: Sequence[Any],
        *,
        groups: Sequence[Any] | None = None,
        rewards: Sequence[float] | None = None,
        versions: Sequence[int] | None = None,
        oldest: Sequence[int] | None = None,
    ) -> None:
        """Say what the data do not say; before they are sent, with the mask still in them.

        Args:
            data: the datums.
            groups: prompt group of each, any value: equal ones belong together.
            rewards: total reward of each.
            versions: optimizer steps before the weights that sampled its last token.
            oldest: the same of its first token, where weights changed in between; default: `versions`.
        """
        self.recording.attempt(lambda: self._remember(data, groups, rewards, versions, oldest))

    def close(self) -> None:
        """Record what is left, when the training is over."""
        self.recording.attempt(lambda: self._drain(LONGEST_WAIT))
        self.recording.close()

    # What the client's methods do in addition -----------------------------------------------------------------------

    def _around(self, original: Callable[..., Any], noted: Callable[..., _Step]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            if _INSIDE.get():
                return original(*args, **kwargs)
            before = _INSIDE.set(True)
            try:
                result = original(*args, **kwargs)
            finally:
                _INSIDE.reset(before)
            step = self.recording.attempt(lambda: noted(result, *args, **kwargs))
            if step is not None and not step.scored:  # in the order of the calls, and not waited for here
                self.recording.attempt(
                    lambda: self._scored(step, [self._client.forward(*args, **kwargs) for args, kwargs in step.calls])
                )
            self.recording.attempt(lambda: self._drain(0.0))
            return result

        return method

    def _around_awaited(self, original: Callable[..., Any], noted: Callable[..., _Step]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def method(*args: Any, **kwargs: Any) -> Any:
            if _INSIDE.get():
                return await original(*args, **kwargs)
            before = _INSIDE.set(True)
            try:
                result = await original(*args, **kwargs)
            finally:
                _INSIDE.reset(before)
            step = self.recording.attempt(lambda: noted(result, *args, **kwargs))
            if step is not None and not step.scored:
                try:  # awaited, too: a call that blocks could wait for one that the loop makes, and which it holds up
                    passes = [await self._client.forward_async(*args, **kwargs) for args, kwargs in step.calls]
                except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
                    self.recording.stop(error)
                else:
                    self.recording.attempt(lambda: self._scored(step, passes))
            self.recording.attempt(lambda: self._drain(0.0))
            return result

        return method

    def _on_forward_backward(self, result: Any, data: Sequence[Any], *args: Any, **kwargs: Any) -> _Step:
        self._step.data += list(data)
        self._step.results.append(result)
        self._step.calls.append(((list(data), *args), kwargs))
        return self._step

    def _on_optim_step(self, result: Any, *args: Any, **kwargs: Any) -> _Step:
        """End the step, and return it."""
        parameters = next((one for one in (*args, *kwargs.values()) if hasattr(one, "learning_rate")), None)
        step, self._step = self._step, _Step(self._step.number + 1)
        step.learning_rate = getattr(parameters, "learning_rate", None)
        due = self.recording.new > 0 and (step.number - self._first) % self.recording.new == 0
        step.scored = not (due and step.data and hasattr(self._client, "forward"))
        if step.data:
            self._waiting.append(step)
        # Of data that were never sent.
        self._about = {key: one for key, one in self._about.items() if one.said_at > step.number - _FORGOTTEN_AFTER}
        self.recording.cost.step_ended()
        self.recording.cost.step_began()
        return step

    # Writing --------------------------------------------------------------------------------------------------------

    def _scored(self, step: _Step, passes: Sequence[Any]) -> None:
        step.new, step.scored = [_asked_for(one) for one in passes], True

    def _remember(
        self,
        data: Sequence[Any],
        groups: Sequence[Any] | None,
        rewards: Sequence[float] | None,
        versions: Sequence[int] | None,
        oldest: Sequence[int] | None,
    ) -> None:
        for place, datum in enumerate(data):
            known_by = _known_by(datum)
            self._about[id(known_by)] = About(
                mask=datum.loss_fn_inputs.get("mask"),
                group=None if groups is None else groups[place],
                reward=None if rewards is None else float(rewards[place]),
                version=None if versions is None else versions[place],
                oldest=None if oldest is None else oldest[place],
                known_by=known_by,
                said_at=self._step.number,
            )

    def _drain(self, seconds: float) -> None:
        """Write the steps whose results are there, in their order."""
        while self._waiting and (self._waiting[0].scored or seconds):
            step = self._waiting[0]
            found = [_result(one, seconds) for one in (*step.results, *step.new)]
            if any(one is None for one in found):
                return
            self._waiting.pop(0)
            self._write(step, found[: len(step.results)], found[len(step.results) :])

    def _write(self, step: _Step, results: list[Any], new: list[Any]) -> None:
        known = [self._about.pop(id(_known_by(datum)), About()) for datum in step.data]
        tokens, sequences = step_columns(step.data, results, known, new=new, decode=self._decode)
        metrics = {f"extra_{name.replace(':', '_')}": float(value) for name, value in _metrics(results).items()}
        guessed = any(_mask(datum, about)[1] for datum, about in zip(step.data, known, strict=True))
        assumed = [_CONTEXT_IS_ZERO] if guessed else []
        if "dropped" in sequences:
            assumed.append(_ZEROS_ARE_LEFT_OUT)
        self.recording.write(
            step.number,
            tokens=tokens,
            sequences=sequences,
            scalars={"policy_version": step.number, "learning_rate": step.learning_rate} | metrics,
            manifest=lambda: self._fields(tokens, assumed),
            resumed=self._first > 0,
        )

    def _fields(self, found: Mapping[str, Any], assumed: list[str]) -> dict[str, Any]:
        reasons = {
            "logp_current": "The client's forward_backward returned no logprobs.",
            "logp_new": "The data are not scored again after the step: record(..., new=10) does it at every tenth one.",
            "behavior_version": "The data do not say which weights sampled them: run.about(data, versions=...) does.",
            "group_id": "The data do not say which prompt they belong to: run.about(data, groups=...) does.",
            "logp_reference": "The data hold no log-probabilities of a reference policy.",
            "entropy": "The client does not return it.",
            "gate": "The loss is computed by the service.",
            "gradient_weight": "The loss is computed by the service.",
        }
        if self.recording.new:
            reasons.pop("logp_new")
        versions = library_versions("tinker", "tinker-cookbook", "baseten-loops", "torch", "pyarrow")
        program = "baseten-loops" if _is_of_loops(self._client) else "tinker"
        return {
            "name": self.recording.folder.name,
            "libraries": versions,
            "source": {"framework": program, "version": versions.get(program, ""), "format": "Datum"},
            "missing": {name: why for name, why in reasons.items() if name not in found},
            "assumed": assumed,
            "vocabulary": None if self._decode is None else _one_token(self._decode),
        } | self._manifest


def step_columns(
    data: Sequence[Any],
    results: Sequence[Any],
    known: Sequence[About],
    *,
    new: Sequence[Any] = (),
    decode: Callable[[Sequence[int]], str] | None = None,
) -> tuple[MadeColumns, MadeColumns]:
    """The tokens and the sequences of an optimizer step.

    Args:
        data: its datums.
        results: `ForwardBackwardOutput` of its calls, whose `loss_fn_outputs` are those of the datums in their order.
        known: what is known of each datum besides.
        new: results of the same calls after the step; empty: not scored.
    """
    targets = [_targets(datum) for datum in data]
    columns = {
        "token_id": targets,
        "logp_behavior": _inputs(data, "logprobs"),
        "advantage": _inputs(data, "advantages"),
        "logp_current": _outputs(results),
        "logp_new": _outputs(new),
    }
    sampled = [_mask(datum, about)[0] for datum, about in zip(data, known, strict=True)]
    sequences: MadeColumns = {"seq_id": np.arange(len(data)), "n_tokens": counts(sampled)}
    left_out = _left_out(data, _outputs(results))
    mask = [one & (not out) for one, out in zip(sampled, left_out, strict=True)]
    if any(left_out):
        sequences["dropped"] = pa.array([NO_ADVANTAGE if out else None for out in left_out], pa.string())
    whole: MadeColumns = {}
    if all(about.group is not None for about in known):
        whole["group_id"] = sequences["group_id"] = group_numbers([about.group for about in known])
    if any(about.version is not None for about in known):
        newest = [about.version for about in known]
        versions = sampling_versions(
            [about.version if about.oldest is None else about.oldest for about in known], newest
        )
        whole["behavior_version"] = versions.pop("behavior_version")
        sequences |= versions
    if any(about.reward is not None for about in known):
        sequences["reward"] = pa.array([about.reward for about in known], pa.float32())
    if decode is not None:
        first = [int(np.argmax(one)) if one.any() else len(one) for one in sampled]
        before = [_input_tokens(datum)[: place + 1] for datum, place in zip(data, first, strict=True)]
        sequences["prompt"] = [decode(ids) for ids in before]
        sequences["response"] = [decode(ids[k:].tolist()) for ids, k in zip(targets, first, strict=True)]
    return token_columns(mask, columns | whole), sequences


def _mask(datum: Any, about: About) -> tuple[np.ndarray, bool]:
    """Which targets the model sampled, and whether that had to be guessed from their log-probabilities."""
    inputs = datum.loss_fn_inputs
    stated = about.mask if about.mask is not None else inputs.get("mask")
    spans = getattr(datum, "loss_fn_input_spans", None)
    if stated is not None:
        sampled = _array(stated) > 0
    elif spans is not None:
        kinds = [np.full(span.length, type(span).__name__.startswith("Sampled")) for span in spans]
        sampled = np.concatenate(kinds)
    else:
        sampled = np.nan_to_num(_array(inputs["logprobs"])) != 0
    if "target_tokens" not in inputs and len(sampled):
        sampled[-1] = False  # the last token has none after it
    return sampled, stated is None and spans is None


def _known_by(datum: Any) -> Any:
    """Taking the mask out of a datum makes another one, of the same tensors."""
    return datum.loss_fn_inputs.get("target_tokens", datum.model_input)


def _targets(datum: Any) -> np.ndarray:
    if "target_tokens" in datum.loss_fn_inputs:
        return _array(datum.loss_fn_inputs["target_tokens"])
    places = [token for chunk in datum.model_input.chunks for token in getattr(chunk, "tokens", [-1] * chunk.length)]
    return np.array([*places[1:], -1], dtype=np.int64)


def _inputs(data: Sequence[Any], name: str) -> list[np.ndarray] | None:
    found = [datum.loss_fn_inputs.get(name) for datum in data]
    if any(one is None for one in found):
        return None
    arrays = [(_array(one), len(_targets(datum))) for one, datum in zip(found, data, strict=True)]
    # One advantage for all places is a tensor of one value.
    return [np.full(places, one[0]) if len(one) == 1 else one for one, places in arrays]


def _outputs(results: Sequence[Any]) -> list[np.ndarray] | None:
    found = [output.get("logprobs") for result in results for output in result.loss_fn_outputs]
    return None if not found or any(one is None for one in found) else [_array(one) for one in found]


def _left_out(data: Sequence[Any], outputs: list[np.ndarray] | None) -> list[bool]:
    """Of each datum, whether the service left it out of its loss, and returned zeros for its log-probabilities.

    Loops computes those of places whose advantage is not 0 (rl_metrics.py, `_is_active`).
    """
    advantages, sampler = _inputs(data, "advantages"), _inputs(data, "logprobs")
    if outputs is None or advantages is None or sampler is None:
        return [False] * len(data)
    each = zip(outputs, advantages, sampler, strict=True)
    return [not _known(output) and not _known(worth) and _known(logp) for output, worth, logp in each]


def _known(values: np.ndarray) -> bool:
    """Whether there is a number other than 0."""
    return bool(np.nan_to_num(values).any())


def _input_tokens(datum: Any) -> list[int]:
    """Tokens of the input; what is no text stands for nothing."""
    return [int(token) for chunk in datum.model_input.chunks for token in getattr(chunk, "tokens", ())]


def _array(values: Any) -> np.ndarray:
    """Of a `TensorData`, a tensor or a list; NaN where a service leaves a number out."""
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    listed = getattr(values, "data", values)
    return (
        np.array([np.nan if one is None else one for one in listed]) if isinstance(listed, list) else np.array(values)
    )


def _is_of_loops(client: Any) -> bool:
    """Whether it is the client of Loops, as such or by tinker's name (the package baseten-loops-tinker)."""
    return any(kind.__module__.startswith("baseten.loops") for kind in type(client).__mro__)


def _asked_for(promised: Any) -> Any:
    """A future for it; one of Loops is done when somebody has asked for its result, and here nobody else will."""
    if hasattr(promised, "loss_fn_outputs") or callable(getattr(promised, "future", None)):
        return promised
    future: Future[Any] = Future()

    def ask() -> None:
        try:
            future.set_result(promised.result())
        except Exception as error:  # noqa: BLE001 - raised where the result is used
            future.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return future


def _result(promised: Any, seconds: float) -> Any:
    """The result of a future, `APIFuture` or not; None where it is not there in time. Its error is raised."""
    if hasattr(promised, "loss_fn_outputs"):
        return promised
    future = promised.future() if callable(getattr(promised, "future", None)) else promised
    if not seconds and hasattr(future, "done") and not future.done():
        return None
    return future.result(timeout=seconds or None)


def _metrics(results: Sequence[Any]) -> dict[str, float]:
    """Mean over the calls of a step."""
    names = sorted({name for result in results for name in (getattr(result, "metrics", None) or {})})
    return {
        name: float(np.mean([result.metrics[name] for result in results if name in result.metrics])) for name in names
    }


def _one_token(decode: Callable[[Sequence[int]], str]) -> Callable[[int], str]:
    return lambda token: decode([token])
