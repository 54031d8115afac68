"""NeMo-RL: the batch of a step as its trainer got it.

Read from NeMo-RL 7ea279ab: `nemo_rl/algorithms/grpo.py` lines 3633-3654 (also grpo_sync.py, ppo.py), which writes
`<log_dir>/train_data_step{N}.jsonl` with N from 1, and `nemo_rl/utils/logger.py` line 1071, which writes a sample a
line with every value as a list of length 1. Column i of a list belongs to token i; nothing predicts token 0.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import SURPRISES, Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import (
    Ordinals,
    as_number,
    content_text,
    first_object,
    numbered,
    numbers,
    sampled_runs,
    segments,
    words_of,
)

_FILE = r"train_data_step(\d+)\.jsonl"
_LISTS = ("token_loss_mask", "advantages", "generation_logprobs", "prev_logprobs", "token_ids")
_WRAPPED = ("input_lengths", "token_loss_mask", "generation_logprobs")


def _files(path: Path) -> dict[int, Path]:
    return numbered(path.parent, _FILE) if path.is_file() else numbered(path, _FILE)


def describe(path: Path) -> Description | None:
    files = _files(path)
    first = first_object(next(iter(files.values()))) if files else {}
    if not set(_WRAPPED) <= first.keys():
        return None
    missing = {
        "logp_new": "NeMo-RL does not score a batch again after its update.",
        "behavior_version": "the file has no versions of the weights, not even where sampling runs ahead.",
        "logp_behavior_train": "NeMo-RL recomputes log-probabilities with the current weights alone.",
        "clipped": "the file does not say what the loss clipped.",
        "entropy": "NeMo-RL averages the entropy and keeps no token's.",
    }
    if _unscored(_unwrapped(first)):
        missing["logp_current"] = (
            "prev_logprobs are 0 everywhere: force_on_policy_ratio leaves the recomputation out and fills its place."
        )
    if "token_ids" not in first:
        missing["token_id"] = "grpo_sync may leave token ids out, and this file has none."
        missing["group_id"] = "Groups are found by equal prompt tokens, and the file has no token ids."
    if "content" not in first:
        missing["response"] = "the file has no texts."
    assumed = [
        "Responses whose prompts are equal token by token are one group: the file has no group ids.",
        "Responses with sample_loss_mask 0 were sampled and kept out of the loss. The file does not say why: overlong, "
        "an error of the environment, or two log-probabilities that are far apart.",
    ]
    if "filtered_rewards" in first:
        assumed.append(
            "filtered_rewards are the rewards of these responses; `rewards` are those before the filter, in "
            "another order."
        )
    return Description(
        framework="NeMo-RL",
        format="train data",
        path=next(iter(files.values())).parent,
        steps=len(files),
        missing=missing,
        assumed=tuple(assumed),
    )


def read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    for step, file in files.items():
        if step <= reading.after:
            continue
        if reading.growing and step == max(files):
            return
        found, groups = list[Response](), Ordinals()
        rows = []
        for line, wrapped in lines.read(file, reading, arrays=_LISTS):
            row = _unwrapped(wrapped)
            if problem := _problem(row):
                reading.bad(file, problem, line)
            else:
                rows.append((line, row))
        scored = any(not _unscored(row) for _, row in rows)
        for line, row in rows:
            with reading.whole_line(file, line):
                found.append(_response(groups, row, scored))
        if found:
            yield responses.step(step, found)


def _unwrapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """A sample without the list of length 1 around every value."""
    return {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in row.items()}


def _problem(row: Mapping[str, Any]) -> str:
    absent = [name for name in _WRAPPED if name not in row]
    if absent:
        return f"a sample without {', '.join(absent)}"
    length = row["input_lengths"]
    if not isinstance(length, int):
        return f"input_lengths is {length!r}, a number is wanted"
    sizes = {name: len(row[name]) if _is_list(row[name]) else 0 for name in _LISTS if name in row}
    short = {name: size for name, size in sizes.items() if size < length}
    if short:
        return f"{length} tokens, and lists that are shorter: " + ", ".join(f"{name} {n}" for name, n in short.items())
    return ""


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def _sampled(row: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which tokens are in the loss; padding, and the first token, which nothing predicts, never."""
    mask = np.array(row["token_loss_mask"][: row["input_lengths"]], dtype=bool)
    mask[:1] = False
    return mask


def _unscored(row: Mapping[str, Any]) -> bool:
    """Whether prev_logprobs are the zeros that stand in for a recomputation that was left out."""
    values = row.get("prev_logprobs")
    if values is None or _problem(row):
        return True
    try:
        return not np.array(values[: row["input_lengths"]], dtype=np.float32)[_sampled(row)].any()
    except SURPRISES:  # said when the line is read
        return True


def _response(groups: Ordinals, row: Mapping[str, Any], scored: bool) -> Response:
    length, mask = row["input_lengths"], _sampled(row)
    tokens: dict[str, Any] = {}
    for name, column in (
        ("generation_logprobs", "logp_behavior"),
        ("prev_logprobs", "logp_current"),
        ("advantages", "advantage"),
    ):
        if _is_list(row.get(name)) and (scored or column != "logp_current"):
            tokens[column] = numbers(row[name][:length])[mask]  # type: ignore[index]
    tokens["turn"] = segments(mask)[mask]
    prompt: bytes | None = None
    if _is_list(row.get("token_ids")):
        ids = np.array(row["token_ids"][:length], dtype=np.int32)
        tokens["token_id"] = ids[mask]
        prompt = ids[: int(mask.argmax()) if mask.any() else length].tobytes()
    weight = as_number(row.get("sample_loss_mask"))
    if weight == 0:
        tokens["rejected"] = np.full(int(mask.sum()), "sample mask 0", dtype=object)
    prompt_text, response = _texts(row.get("content"), sampled_runs(mask))
    agent = row.get("agent_ref")
    sequence = {
        "group_id": groups.of(prompt),
        "prompt": prompt_text,
        "response": response,
        "n_tokens": int(mask.sum()),
        "reward": as_number(row.get("filtered_rewards", row.get("rewards"))),
        "sample_weight": weight,
        "environment": words_of(agent.get("name")) if isinstance(agent, Mapping) else None,
        "n_turns": sampled_runs(mask),
    }
    return responses.without_empty(sequence, tokens)


def _texts(content: Any, turns: int) -> tuple[str | None, str | None]:
    """Prompt and response of a conversation's texts, whose roles are not in the file."""
    if not content:
        return None, None
    if not isinstance(content, list):
        return None, content_text(content)
    first = len(content) - 1 if turns <= 1 else 1
    return "\n\n".join(map(content_text, content[:first])) or None, "\n\n".join(
        map(content_text, content[first:])
    ) or None


IMPORTER = Importer(
    "nemo-rl", "NeMo-RL: train_data_step files", describe, read, signs=(Sign("train_data_step*.jsonl", _WRAPPED),)
)
