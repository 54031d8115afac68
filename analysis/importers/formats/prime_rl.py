"""prime-rl: traces of a run and, before September 2026, its token exports, joined where both are there.

Since September 2026 the traces are a stream (`prime_rl_stream`), and the token export is gone. Before, read from
prime-rl 559b4477:
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

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.formats import prime_rl_stream
from ratioscope.analysis.importers.formats.prime_rl_export import ARRAYS, WANTED, exported, partner_of, problem
from ratioscope.analysis.importers.formats.prime_rl_settings import manifest, scalars, window
from ratioscope.analysis.importers.formats.traces import DECIMALS, LISTS, Told, failed, told
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import (
    Ordinals,
    at,
    first_object,
    numbered,
    sampled_runs,
    words_of,
)

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
    stream = prime_rl_stream.describe(path)
    if stream is not None:
        return stream
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
        manifest=manifest(folder.root, scored=bool(folder.exports), decimals=None if folder.exports else DECIMALS),
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
        switch = "before September 2026 prime-rl wrote them into token exports alone, on request"
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
            "trainer_logprobs are the policy's at the start of the update. prime-rl takes one optimiser step on a "
            "batch, so the weights do not move while the loss looks at it."
        )
        yield (
            "What is_masked marks is read as clipped, above where is_masked_high says so and else below. The mask "
            "takes a token's policy gradient away as a clip does. Its KL term stays."
        )
        yield "A null among numbers was NaN or infinite: the export replaces those. It is kept as NaN."
    if folder.rollouts:
        yield (
            "A token's version is the policy's when its group was sent out, as prime-rl counts staleness. Later tokens "
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


# Steps --------------------------------------------------------------------------------------------------------------


def read(path: Path, reading: Reading) -> Iterator[Step]:
    if prime_rl_stream.layout(path) is not None:
        yield from prime_rl_stream.read(path, reading)
        return
    folder = _folder(path)
    if folder is None:
        return
    in_time = window(folder.root)
    shipped = lru_cache(maxsize=64)(lambda step: _ids(folder.effective(step)))
    logged = scalars(folder.root / "metrics.jsonl", reading)
    for step in folder.steps:
        if step <= reading.after:
            continue
        if reading.growing and not _whole_step(folder, step):
            return
        found: list[Response] = []
        groups = Ordinals()
        traced = list(_traced(folder.effective(step), reading)) if folder.effective(step).is_file() else []
        if step in folder.exports:
            _add_exports(found, folder.exports[step], traced, groups, reading)
        else:
            for one in traced:
                _add(found, one, groups)
        if folder.arrived(step).is_file():
            _add_dropped(found, folder, step, step + in_time, shipped, groups, reading)
        yield responses.step(step, found, {"policy_version": step - 1, **logged.get(step, {})})


def _whole_step(folder: Folder, step: int) -> bool:
    """Whether nothing more is written to it. Without an export, a later step says so."""
    if step in folder.exports:
        return (folder.exports[step] / "STABLE").exists()
    return step < max(folder.steps)


def _ranks(folder: Path) -> list[Path]:
    return list(numbered(folder, r"rank_(\d+)\.jsonl").values())


def _traced(file: Path, reading: Reading) -> Iterator[Told]:
    for line, episode in lines.read(file, reading, arrays=LISTS):
        found: list[Told] = []
        with reading.whole_line(file, line):
            found = told(episode)
        yield from found


def _add(found: list[Response], one: Told, groups: Ordinals, dropped: str | None = None) -> None:
    found.append(one.response({"group_id": groups.of(one.group), **one.row, "dropped": dropped}))


def _add_exports(
    found: list[Response], folder: Path, traced: Sequence[Told], groups: Ordinals, reading: Reading
) -> None:
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
                row: dict[str, Any] = {"environment": words_of(record.get("env_name"))}
                if partner is not None:
                    partner.used = True
                    row |= {key: value for key, value in partner.row.items() if value is not None}
                    row["group_id"] = groups.of(partner.group)
                    tokens["turn"] = partner.messages_of_tokens[: len(ids)][mask]
                    if "behavior_version_min" in row:
                        tokens["behavior_version"] = np.full(int(mask.sum()), row["behavior_version_min"], np.int32)
                row |= {"rank": rank, "n_tokens": int(mask.sum()), "n_turns": sampled_runs(mask)}
                found.append(responses.without_empty(row, tokens, partner.messages if partner is not None else ()))
    for one in traced:
        if not one.used:
            _add(found, one, groups, "not in the token export")


def _ids(file: Path) -> frozenset[bytes]:
    """Everything that is called an id in a file of traces: a trace's own is unique, so this is enough to find it."""
    try:
        with file.open("rb") as opened:
            return frozenset(name for line in opened for name in _ID.findall(line))
    except OSError:
        return frozenset()


def _add_dropped(
    found: list[Response],
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
        _add(found, one, groups, _why(one.trace, len(rewards[one.group]) == 1))


def _why(trace: Mapping[str, Any], alike: bool) -> str:
    if failed(trace):
        return f"failed: {trace.get('stop_condition') or 'error'}"
    return "no signal: equal rewards in its group" if alike else "not in the effective batch"


IMPORTER = Importer(
    "prime-rl",
    "prime-rl: traces of a run",
    describe,
    read,
    signs=(
        Sign("monitors/file/traces", ("stream.index.jsonl",)),
        Sign("token_exports/step_*/rank_*.jsonl", ("inference_logprobs",)),
        Sign("rollouts/step_*/train/*/traces.jsonl", ("traces",)),
        Sign("rollouts/step_*/train_rollouts.jsonl", ("traces",)),  # up to spring 2026: texts and rewards
    ),
)
