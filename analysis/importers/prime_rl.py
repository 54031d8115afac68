"""prime-rl: token exports and traces of a run, joined where both are there.

Read from prime-rl 559b4477:
- `src/prime_rl/trainer/rl/token_export.py`: `token_exports/step_N/rank_r.jsonl`, a trained sample a line, prompt
  included; `STABLE` beside them when the step is whole. No reward, group, version or text.
- `src/prime_rl/monitors/file.py`: `rollouts/step_N/train/{all,effective}/traces.jsonl`, an episode of verifiers a line,
  and metrics.jsonl. `all` is what arrived while the batch was collected, `effective` what was trained on.
- `src/prime_rl/trainer/rl/train.py`: one optimiser step on a batch; step N trains on version N - 1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.gathered import (
    Gathered,
    Ordinals,
    at,
    config,
    first_object,
    known,
    moment,
    number,
    numbered,
    sampled_runs,
    words,
)
from ratioscope.analysis.importers.prime_rl_export import ARRAYS, WANTED, exported, partner_of, problem
from ratioscope.analysis.importers.source import Description, Importer, Reading, Step
from ratioscope.analysis.importers.traces import DECIMALS, Told, failed, told

MAX_OFF_POLICY_STEPS = 8
"""prime-rl's default: how many steps after its sampling a response may still be trained on."""

_STEP = r"step_(\d+)"
_ID = re.compile(rb'"id":\s*"([^"\\]+)"')


# What lies there ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """The files of a run, by step."""

    root: Path
    exports: Mapping[int, Path]
    """Folders of the token export."""
    rollouts: Mapping[int, Path]
    """Folders with `all` and `effective`."""

    @property
    def steps(self) -> list[int]:
        """Those with an update; responses of a step that has none yet wait for theirs."""
        trained = (step for step in self.rollouts if self.effective(step).is_file())
        return sorted({*self.exports, *trained})

    def effective(self, step: int) -> Path:
        return self.root / "rollouts" / f"step_{step}" / "train" / "effective" / "traces.jsonl"

    def arrived(self, step: int) -> Path:
        return self.root / "rollouts" / f"step_{step}" / "train" / "all" / "traces.jsonl"


def _folder(path: Path) -> Folder | None:
    root = path.parent if path.name in ("token_exports", "rollouts") else path
    exports = {
        step: folder
        for step, folder in numbered(root / "token_exports", _STEP).items()
        if any(folder.glob("rank_*.jsonl"))
    }
    rollouts = {
        step: folder
        for step, folder in numbered(root / "rollouts", _STEP).items()
        if any((folder / "train" / kind / "traces.jsonl").is_file() for kind in ("all", "effective"))
    }
    return Folder(root, exports, rollouts) if exports or rollouts else None


def describe(path: Path) -> Description | None:
    folder = _folder(path)
    if folder is None:
        return None
    export = first_object(next(iter(_ranks(next(iter(folder.exports.values())))))) if folder.exports else {}
    if folder.exports and "inference_logprobs" not in export:
        return None
    files = (file for step in folder.rollouts for file in (folder.effective(step), folder.arrived(step)))
    traces = next((file for file in files if file.is_file()), None)
    episode = first_object(traces) if traces else {}
    if traces and not folder.exports and "traces" not in episode:
        return None
    trace: Mapping[str, Any] = next(iter(episode.get("traces") or []), {})
    of_traces = at(trace, "verifiers", "version")
    parts = [words for words, there in (("token exports", folder.exports), ("traces", folder.rollouts)) if there]
    return Description(
        framework="prime-rl",
        format=" and ".join(parts),
        path=folder.root,
        version=f"verifiers {of_traces}" if of_traces else "",
        steps=len(folder.steps),
        missing=_missing(folder, trace, export),
        assumed=tuple(_assumed(folder)),
        manifest=_manifest(folder),
    )


def _missing(folder: Folder, trace: Mapping[str, Any], export: Mapping[str, Any]) -> dict[str, str]:
    missing = {
        "logp_new": "prime-rl does not score a batch again after its update.",
        "logp_behavior_train": "prime-rl does not score a response again with the weights that sampled it, so "
        "engine and age are one part of the ratio.",
    }
    if not folder.rollouts:
        reason = "Token exports hold tokens alone; {} in rollouts/, which prime-rl's file monitor writes."
        for columns, what in (
            (("reward", "response", "prompt"), "rewards and texts are"),
            (("group_id",), "groups are"),
            (("behavior_version",), "versions are"),
        ):
            missing |= dict.fromkeys(columns, reason.format(what))
    if not folder.exports:
        switch = "set trainer.enable_token_export = true to have them"
        scored = any(node.get("trainer_logprobs") for node in trace.get("nodes") or [])
        if not scored:
            missing["logp_current"] = f"the traces hold no log-probabilities of the trainer; {switch}."
        missing["clipped"] = f"the traces do not say which tokens the loss masked; {switch}."
        missing["entropy"] = f"the traces hold no entropies of the trainer; {switch}."
    elif not any(value is not None for value in export.get("is_masked") or []):
        missing["clipped"] = "prime-rl exports the mask of its default loss alone, and this run has another."
    return missing


def _assumed(folder: Folder) -> Iterator[str]:
    if folder.exports:
        yield (
            "trainer_logprobs are the policy's at the start of the update: prime-rl takes one optimiser step on a "
            "batch, so the weights do not move while the loss looks at it."
        )
        yield (
            "What is_masked marks is read as clipped, above where is_masked_high says so and else below: the mask "
            "takes a token's policy gradient away as a clip does. Its KL term stays."
        )
        yield "A null among numbers was NaN or infinite: the export replaces those. It is kept as NaN."
    if folder.rollouts:
        yield (
            "A token's version is the policy's when its group was sent out, as prime-rl counts staleness: later tokens "
            "may be of newer weights, so ages are upper bounds. behavior_version_max is the newest that is possible."
        )
        yield (
            "A conversation that forks is a response a branch, each with the reward of the whole. A message that "
            "several branches share counts in the first, as prime-rl trains it."
        )
        yield (
            "Responses in all/ that no later step has in effective/ never reached the loss; they are dropped ones of "
            "the step that was collected when they came in."
        )
    if folder.rollouts and folder.exports:
        yield "Exports and traces of a step belong together where their token ids are equal, prompt included."
    if folder.rollouts and not folder.exports:
        yield ("A message's trainer_logprobs, where there are any, are the policy's at the start of the update on it.")
    yield "Step N trains the weights of version N - 1, as prime-rl numbers them."


def _manifest(folder: Folder) -> dict[str, Any]:
    """What the resolved configs say, which the launcher writes."""
    run = config(folder.root / "configs" / "rl.json")
    trainer = config(folder.root / "configs" / "trainer.json") or at(run, "trainer") or {}
    orchestrator = config(folder.root / "configs" / "orchestrator.json") or at(run, "orchestrator") or {}
    loss = at(trainer, "loss") or {}
    train = at(orchestrator, "train") or {}
    sampling = at(train, "sampling") or {}
    thresholds = {key: value for key, value in loss.items() if key != "type" and number(value) is not None}
    algorithm = at(orchestrator, "algo", "type")
    environments = [str(name) for name in map(_name_of_source, at(train, "source") or []) if name]
    manifest = known(
        algorithm=known(
            name=f"{algorithm or 'prime-rl'} ({loss['type']} loss)" if loss.get("type") else algorithm,
            parameters=known(
                epochs=1 if folder.exports else None, minibatches=1 if folder.exports else None, **thresholds
            ),
        ),
        schedule=known(
            max_off_policy_steps=_whole(orchestrator.get("max_off_policy_steps")),
            groups_span_steps=True,  # a batch is cut at so many responses, whatever group they are of
        ),
        sampler=known(
            samples_per_prompt=_whole(orchestrator.get("group_size")),
            temperature=number(sampling.get("temperature")),
            top_p=number(sampling.get("top_p")),
            top_k=_whole(sampling.get("top_k")),
        ),
        model=known(path=at(trainer, "model", "name")),
        task=known(name=", ".join(environments) or None),
        optimiser=known(
            name=at(trainer, "optim", "type"),
            learning_rate=number(at(trainer, "optim", "lr")),
            weight_decay=number(at(trainer, "optim", "weight_decay")),
            max_grad_norm=number(at(trainer, "optim", "max_norm")),
        ),
        planned_updates=_whole(trainer.get("max_steps")),
        log_probability_decimals=None if folder.exports else DECIMALS,
    )
    if config(folder.root / "configs" / "inference.json") or run.get("inference"):
        manifest["sampled_with"] = "processed"  # its own server is set to processed_logprobs (configs/inference.py)
    return manifest


def _name_of_source(source: Any) -> Any:
    return at(source, "name") or at(source, "env", "id") or at(source, "env", "taskset", "id")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# Steps --------------------------------------------------------------------------------------------------------------


def read(path: Path, reading: Reading) -> Iterator[Step]:
    folder = _folder(path)
    if folder is None:
        return
    orchestrator = config(folder.root / "configs" / "orchestrator.json")
    window = _whole(orchestrator.get("max_off_policy_steps"))
    shipped = lru_cache(maxsize=64)(lambda step: _ids(folder.effective(step)))
    scalars = _scalars(folder.root / "metrics.jsonl", reading)
    for step in folder.steps:
        if step <= reading.after:
            continue
        if reading.growing and not _whole_step(folder, step):
            return
        gathered = Gathered()
        groups = Ordinals()
        traced = list(_traced(folder.effective(step), reading)) if folder.effective(step).is_file() else []
        if step in folder.exports:
            _add_exports(gathered, folder.exports[step], traced, groups, reading)
        else:
            for one in traced:
                _add(gathered, one, groups)
        if folder.arrived(step).is_file():
            last = step + (MAX_OFF_POLICY_STEPS if window is None else window)
            _add_dropped(gathered, folder, step, last, shipped, groups, reading)
        yield gathered.step(step, {"policy_version": step - 1, **scalars.get(step, {})})


def _whole_step(folder: Folder, step: int) -> bool:
    """Whether nothing more is written to it. Without an export, a later step says so."""
    if step in folder.exports:
        return (folder.exports[step] / "STABLE").exists()
    return step < max(folder.steps)


def _ranks(folder: Path) -> list[Path]:
    return list(numbered(folder, r"rank_(\d+)\.jsonl").values())


def _traced(file: Path, reading: Reading) -> Iterator[Told]:
    for line, episode in lines.read(file, reading):
        found: list[Told] = []
        with reading.whole_line(file, line):
            found = told(episode)
        yield from found


def _add(gathered: Gathered, one: Told, groups: Ordinals, dropped: str | None = None) -> None:
    row = {"group_id": groups.of(one.group), **one.row, "dropped": dropped}
    gathered.add(row, one.tokens if dropped is None else None, one.messages)


def _add_exports(gathered: Gathered, folder: Path, traced: Sequence[Told], groups: Ordinals, reading: Reading) -> None:
    by_tokens: dict[bytes, list[Told]] = {}
    for one in traced:
        by_tokens.setdefault(one.ids.tobytes(), []).append(one)
    for rank, file in numbered(folder, r"rank_(\d+)\.jsonl").items():
        for line, record in lines.read(file, reading, arrays=ARRAYS, only=WANTED):
            wrong = problem(record)
            if wrong:
                reading.bad(file, wrong, line)
                continue
            with reading.whole_line(file, line):
                ids = np.array(record["token_ids"], dtype=np.int32)
                mask = np.array(record["loss_mask"], dtype=bool)
                tokens = exported(record, ids, mask)
                partner = partner_of(ids, tokens, by_tokens, traced)
                row: dict[str, Any] = {"environment": words(record.get("env_name"))}
                if partner is not None:
                    partner.used = True
                    row |= {key: value for key, value in partner.row.items() if value is not None}
                    row["group_id"] = groups.of(partner.group)
                    tokens["turn"] = partner.messages_of_tokens[: len(ids)][mask]
                    if "behavior_version_min" in row:
                        tokens["behavior_version"] = np.full(int(mask.sum()), row["behavior_version_min"], np.int32)
                row |= {"rank": rank, "n_tokens": int(mask.sum()), "n_turns": sampled_runs(mask)}
                gathered.add(row, tokens, partner.messages if partner is not None else ())
    for one in traced:
        if not one.used:
            _add(gathered, one, groups, "not in the token export")


def _ids(file: Path) -> frozenset[bytes]:
    """Everything that is called an id in a file of traces: a trace's own is unique, so this is enough to find it."""
    try:
        with file.open("rb") as opened:
            return frozenset(name for line in opened for name in _ID.findall(line))
    except OSError:
        return frozenset()


def _add_dropped(
    gathered: Gathered,
    folder: Folder,
    step: int,
    last: int,
    shipped: Any,
    groups: Ordinals,
    reading: Reading,
) -> None:
    """Responses that came in at `step` and were trained on at none until `last`, the last that may still take them."""
    later = [other for other in folder.rollouts if step <= other <= last]
    if reading.growing and max(folder.rollouts) < last:
        return  # some of them may still be trained on
    left: list[Told] = []
    rewards: dict[Any, set[Any]] = {}
    for one in _traced(folder.arrived(step), reading):
        rewards.setdefault(one.group, set()).add(one.row["reward"])
        name = str(one.trace.get("id", "")).encode()
        if not any(name in shipped(other) for other in later):
            left.append(one)
    for one in left:
        _add(gathered, one, groups, _why(one.trace, len(rewards[one.group]) == 1))


def _why(trace: Mapping[str, Any], alike: bool) -> str:
    if failed(trace):
        return f"failed: {trace.get('stop_condition') or 'error'}"
    return "no signal: equal rewards in its group" if alike else "not in the effective batch"


def _scalars(file: Path, reading: Reading) -> dict[int, dict[str, Any]]:
    """The trainer's numbers by step, from the file monitor; those of a step are several lines."""
    found: dict[int, dict[str, Any]] = {}
    if not file.is_file():
        return found
    for _, row in lines.read(file, reading):
        step = _whole(row.get("step"))
        if step is None:
            continue
        values = {column: number(row.get(name)) for name, column in _METRICS.items() if name in row}
        if "optim/lr" in row:
            values["wall_time"] = moment(row.get("time"))  # type: ignore[assignment]
        found.setdefault(step, {}).update({key: value for key, value in values.items() if value is not None})
    return found


_METRICS = {
    "loss/mean": "loss",
    "optim/grad_norm": "grad_norm",
    "optim/lr": "learning_rate",
    "time/forward_backward": "seconds_training",
    "time/wait_for_batch": "extra_seconds_waiting_for_batch",
    "mismatch_kl/all/mean": "extra_mismatch_kl",
}

IMPORTER = Importer("prime-rl", "prime-rl: token exports and traces of a run", describe, read)
