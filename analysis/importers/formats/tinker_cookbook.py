"""tinker-cookbook: the folder of an RL run: rollout summaries, metrics and, where it is there, the capture.

Read from tinker-cookbook 0.6.1: `tinker_cookbook/rl/rollout_logging.py`
(iteration_NNNNNN/train_rollout_summaries.jsonl, a trajectory a line), `stores/training_store.py` (config.json,
metrics.jsonl, timing_spans.jsonl), `rl/train.py` (summaries are written before groups of equal rewards are taken out).
Of programs on Baseten Loops: basetenlabs/tinker-cookbook 39351e00, whose summaries are of schema_version 2.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.formats import tinker_capture
from ratioscope.analysis.importers.formats.tinker_capture import SampledTurn
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import (
    Ordinals,
    as_number,
    at,
    config,
    first_object,
    known_values,
    moment,
    numbered,
    part_of_reward,
)

_ITERATION = r"iteration_(\d+)"
_SUMMARIES = "train_rollout_summaries.jsonl"
_REQUIRED = {"iteration", "group_idx", "traj_idx", "total_reward", "steps"}


def _iterations(path: Path) -> dict[int, Path]:
    found = numbered(path, _ITERATION)
    return {step: folder / _SUMMARIES for step, folder in found.items() if (folder / _SUMMARIES).is_file()}


def describe(path: Path) -> Description | None:
    files = _iterations(path)
    first = first_object(next(iter(files.values()))) if files else {}
    if not first.keys() >= _REQUIRED:
        return None
    capture = tinker_capture.find(path)
    tokens = (
        "tinker-cookbook writes tokens only when its capture is on: `with capture_to_store(...)`, or a CaptureExporter "
        "with a JsonlFileSink on the run's folder."
    )
    trainer = "tinker-cookbook writes no values of the trainer by token; its forward_backward returns them."
    missing = dict.fromkeys(("logp_current", "logp_new", "advantage", "clipped", "entropy"), trainer)
    missing["response"] = "the summaries hold lengths and rewards; texts are in the logtree pages alone."
    assumed = ["A trajectory's version is the step of the sampling client, which counts iterations like the run's own."]
    if capture is None:
        missing |= {"token_id": tokens, "logp_behavior": tokens}
    else:
        assumed += [
            "Captured calls belong to the trajectory of the same iteration, group and index, if their lengths agree.",
            *tinker_capture.assumed_of(capture),
        ]
    settings = config(path / "config.json")
    if settings.get("remove_constant_reward_groups"):
        assumed.append("Groups whose rewards are all equal are dropped: remove_constant_reward_groups is on.")
    return Description(
        framework="tinker-cookbook",
        format="run folder and capture" if capture else "run folder",
        path=path,
        steps=len(files),
        missing=missing,
        assumed=tuple(assumed),
        manifest=_manifest(settings),
    )


def _manifest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of config.json. In an asynchronous run the loss is that of async_config."""
    loss = at(settings, "async_config", "loss_fn") or settings.get("loss_fn")
    builder = settings.get("dataset_builder")
    return known_values(
        algorithm=known_values(
            name=loss,
            parameters=known_values(
                epochs=1 if loss else None,
                minibatches=settings.get("num_substeps"),
                kl_penalty_coef=as_number(settings.get("kl_penalty_coef")),
            ),
        ),
        schedule=known_values(max_steps_off_policy=at(settings, "async_config", "max_steps_off_policy")),
        sampler=known_values(
            temperature=as_number(settings.get("temperature")), samples_per_prompt=at(builder or {}, "group_size")
        ),
        model=known_values(path=settings.get("model_name")),
        optimiser=known_values(learning_rate=as_number(settings.get("learning_rate"))),
        task=known_values(name=settings.get("recipe_name"), response_length=settings.get("max_tokens")),
        seed=at(builder or {}, "seed") if isinstance(at(builder or {}, "seed"), int) else None,
        planned_updates=settings.get("max_steps") if isinstance(settings.get("max_steps"), int) else None,
    )


def read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _iterations(path)
    scalars = _scalars(path, reading)
    removes = bool(config(path / "config.json").get("remove_constant_reward_groups"))
    capture = tinker_capture.find(path)
    captured = tinker_capture.by_step(capture, reading) if capture else iter(())
    ahead: tuple[int, list[SampledTurn]] | None = next(captured, None)
    for step, file in files.items():
        if reading.growing and step == max(files):
            return
        while ahead is not None and ahead[0] < step:
            ahead = next(captured, None)
        samples = ahead[1] if ahead is not None and ahead[0] == step else []
        if step > reading.after:
            found = _step(file, samples, reading)
            if removes:
                _drop_equal(found)
            if found:
                yield responses.step(step, found, {"policy_version": step, **scalars.get(step, {})})


def _step(file: Path, samples: list[SampledTurn], reading: Reading) -> list[Response]:
    found, groups = list[Response](), Ordinals()
    turns_of = {(turns[0].group, turns[0].trajectory): turns for turns in tinker_capture.trajectories(samples)}
    for line, row in lines.read(file, reading):
        absent = sorted(_REQUIRED - row.keys())
        if absent:
            reading.bad(file, f"a trajectory without {', '.join(absent)}", line)
            continue
        with reading.whole_line(file, line):
            found.append(_response(groups, row, turns_of.get((row["group_idx"], row["traj_idx"]), [])))
    return found


def _response(groups: Ordinals, row: Mapping[str, Any], turns: list[SampledTurn]) -> Response:
    """A trajectory, with the captured calls of it."""
    version = row.get("sampling_client_step") if isinstance(row.get("sampling_client_step"), int) else None
    sequence: dict[str, Any] = {
        "group_id": groups.of(row["group_idx"]),
        "n_tokens": sum(int(step.get("ac_len") or 0) for step in row["steps"]),
        "reward": as_number(row["total_reward"]),
        **_parts(row),
        "behavior_version_min": version,
        "behavior_version_max": version,
        "environment": ", ".join(map(str, row.get("tags") or [])) or None,
        "n_turns": len(row["steps"]),
    }
    tokens = None
    if turns and [len(turn.tokens) for turn in turns] == [step.get("ac_len") for step in row["steps"]]:
        sequence = tinker_capture.sequence_of(turns) | sequence
        tokens = tinker_capture.tokens_of(turns)
        if tokens is not None and version is not None:
            tokens["behavior_version"] = np.full(len(tokens["token_id"]), version, np.int32)
    return responses.without_empty(sequence, tokens)


def _drop_equal(found: list[Response]) -> None:
    """Mark groups without a signal; of a batch of nothing else the first is trained on."""
    rewards: dict[Any, set[Any]] = {}
    for response in found:
        rewards.setdefault(response.row["group_id"], set()).add(response.row.get("reward"))
    equal = {group for group, values in rewards.items() if len(values) == 1}
    if len(equal) == len(rewards):
        equal.discard(next(iter(rewards), None))
    for response in found:
        if response.row["group_id"] in equal:
            response.drop("no signal: equal rewards in its group")


def _parts(row: Mapping[str, Any]) -> dict[str, float]:
    """What the steps earned and what the group gave at the end, where the total is both."""
    final, total = as_number(row.get("final_reward")), as_number(row["total_reward"])
    if final is None or total is None or final in (0.0, total):
        return {}
    return {part_of_reward("final"): final, part_of_reward("steps"): total - final}


def _scalars(path: Path, reading: Reading) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for name, columns in (("metrics.jsonl", _METRICS), ("timing_spans.jsonl", {})):
        if not (path / name).is_file():
            continue
        for step, row in lines.of_steps(path / name, reading):
            values = {column: as_number(row.get(key)) for key, column in columns.items()}
            spans = row.get("spans")
            ends = [as_number(at(span, "wall_end")) or 0.0 for span in spans] if isinstance(spans, list) else []
            values["wall_time"] = moment(max(ends, default=None))  # type: ignore[assignment]
            found.setdefault(step, {}).update({key: value for key, value in values.items() if value is not None})
    return found


_METRICS = {
    "optim/lr": "learning_rate",
    "time/train": "seconds_training",
    "time/sample": "seconds_sampling",
    "optim/kl_sample_train_v1": "extra_kl_sample_train_v1",
    "optim/kl_sample_train_v2": "extra_kl_sample_train_v2",
    "kl_pre_post_v1": "extra_kl_pre_post_v1",
    "kl_pre_post_v2": "extra_kl_pre_post_v2",
    "kl_policy_base": "extra_kl_policy_base",
}

IMPORTER = Importer(
    "tinker-cookbook",
    "tinker-cookbook: the folder of a run",
    describe,
    read,
    signs=(Sign(f"iteration_*/{_SUMMARIES}", tuple(sorted(_REQUIRED))),),
)
