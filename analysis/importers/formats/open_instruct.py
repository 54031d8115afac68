"""open-instruct: rollouts of GRPO.

Read from open-instruct e6c3044a, `open_instruct/rl_utils.py` lines 22-159: `{run}_rollouts_{shard:06d}.jsonl`, a
response a line, and `{run}_metadata.jsonl`. Two threads append to a shard, so that the lines of neighbouring steps may
change places. `open_instruct/vllm_utils.py`: what a tool returned stands among the response's tokens with
log-probability 0.0 (line 211) and without a mask, and the token that is put into an empty response has NaN (line 1140).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import as_number, first_object, known_values, numbers, words_of

_SHARD = re.compile(r"(.+)_rollouts_(\d{6,})\.jsonl")
_REQUIRED = {"step", "prompt_idx", "response_tokens", "reward", "advantage"}
_ARRAYS = ("prompt_tokens", "response_tokens", "logprobs")
_WANTED = (*_REQUIRED, *_ARRAYS, "finish_reason", "dataset", "request_info")
_AHEAD = 2
"""How many later steps may begin before one is complete: two threads write."""


def _shards(path: Path) -> tuple[str, list[Path]]:
    """The run's name and its shards; of a folder with several runs, the first by name."""
    folder = path.parent if path.is_file() else path
    found: dict[str, list[tuple[int, Path]]] = {}
    try:
        for entry in folder.iterdir():
            if match := _SHARD.fullmatch(entry.name):
                found.setdefault(match[1], []).append((int(match[2]), entry))
    except OSError:
        return "", []
    asked = _SHARD.fullmatch(path.name) if path.is_file() else None
    run = asked[1] if asked else min(found, default="")
    return run, [file for _, file in sorted(found.get(run, []))]


def describe(path: Path) -> Description | None:
    run, shards = _shards(path)
    first = first_object(shards[0]) if shards else {}
    if not first.keys() >= _REQUIRED:
        return None
    metadata = first_object(shards[0].parent / f"{run}_metadata.jsonl")
    missing = {
        "logp_current": "open-instruct does not save the log-probabilities of its trainer.",
        "logp_new": "open-instruct does not score a batch again after its update.",
        "behavior_version": "the rollouts have no version of the weights that sampled them.",
        "clipped": "the rollouts do not say what the loss clipped.",
        "entropy": "the rollouts have no entropies.",
        "response": "the rollouts hold token ids and no text.",
    }
    assumed: tuple[str, ...]
    if first.get("logprobs") is None:
        missing["logp_behavior"] = "vLLM's log-probabilities are null in this run."
        assumed = (
            "Without log-probabilities nothing tells what tools returned from what was sampled: all are tokens.",
        )
    else:
        assumed = (
            "In a response that called a tool, tokens with log-probability 0 are the tool's: open-instruct writes 0.0 "
            "for those and saves no mask. What was sampled with probability 1 there is taken for them, too.",
            "NaN stands where open-instruct itself put a token into an empty response; it is no row.",
        )
    return Description(
        framework="open-instruct",
        format="rollouts",
        path=shards[0].parent,
        version=str(metadata.get("git_commit") or ""),
        missing=missing,
        assumed=(
            "The advantage of a response is that of all its tokens, as the trainer takes it.",
            *assumed,
        ),
        manifest=known_values(
            name=run or None,
            created=metadata.get("timestamp"),
            model=known_values(path=metadata.get("model_name")),
            sampled_with="processed",  # its engines are set to processed_logprobs (vllm_utils.py line 1284)
        ),
    )


def read(path: Path, reading: Reading) -> Iterator[Step]:
    _, shards = _shards(path)
    waiting: dict[int, list[Response]] = {}
    done = reading.after
    for file in shards:
        begun: set[int] = set()
        last: tuple[int, int] | None = None
        for line, row in lines.read(file, reading, arrays=_ARRAYS, only=_WANTED, begin=reading.place(file)):
            problem = _problem(row)
            if problem:
                reading.bad(file, problem, line)
                continue
            step = row["step"]
            last = step, line
            if step not in begun:
                reading.begins(file, step, line)
                begun.add(step)
            if step <= reading.after:
                continue
            if step <= done:
                reading.bad(file, f"a response of step {step}, which ended {done - step + _AHEAD} steps before", line)
                continue
            with reading.whole_line(file, line):
                response = _response(row)
                waiting.setdefault(step, []).append(response)
            while min(waiting) <= max(waiting) - _AHEAD:
                done = min(waiting)
                yield responses.step(done, waiting.pop(done))
        if last is not None and file != shards[-1]:
            reading.begins(file, *last)  # of a shard that is over no more than this is read again
    if not reading.growing:
        for step in sorted(waiting):
            yield responses.step(step, waiting[step])


def _problem(row: Mapping[str, Any]) -> str:
    absent = sorted(_REQUIRED - row.keys())
    if absent:
        return f"a response without {', '.join(absent)}"
    if not isinstance(row["step"], int):
        return f"step is {row['step']!r}, a whole number is wanted"
    values, tokens = row.get("logprobs"), row["response_tokens"]
    if not isinstance(tokens, list | np.ndarray) or not isinstance(values, list | np.ndarray | None):
        return "response_tokens and logprobs are lists where open-instruct wrote them"
    size = len(tokens)
    if values is not None and len(values) != size:
        return f"{size} response_tokens and {len(values)} logprobs"
    return ""


def _response(row: Mapping[str, Any]) -> Response:
    request = row.get("request_info")
    info: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
    mask = _sampled(row, info)
    tokens: dict[str, Any] = {
        "token_id": np.array(row["response_tokens"], dtype=np.int32)[mask],
        "advantage": np.full(int(mask.sum()), float(row["advantage"]), dtype=np.float32),
    }
    if row.get("logprobs") is not None:
        tokens["logp_behavior"] = numbers(row["logprobs"])[mask]  # type: ignore[index]
    dataset, calls, prompt = row.get("dataset"), info.get("num_calls"), row.get("prompt_tokens")
    return responses.without_empty(
        {
            "group_id": int(row["prompt_idx"]),
            "n_tokens": int(mask.sum()),
            "prompt_tokens": len(prompt) if isinstance(prompt, list | np.ndarray) else None,
            "reward": as_number(row["reward"]),
            "finish_reason": words_of(row.get("finish_reason")),
            "truncated": row.get("finish_reason") == "length",
            "environment": ", ".join(map(str, dataset)) if isinstance(dataset, list) else words_of(dataset),
            "n_tool_calls": calls if isinstance(calls, int) else None,
            "seconds_tools": as_number(info.get("tool_runtimes")),
        },
        tokens,
    )


def _sampled(row: Mapping[str, Any], info: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which tokens the policy sampled, as far as the file tells."""
    mask = np.ones(len(row["response_tokens"]), dtype=bool)
    if row.get("logprobs") is None:
        return mask
    values = numbers(row["logprobs"])
    mask &= ~np.isnan(values)  # type: ignore[arg-type]
    if info.get("tool_calleds") or info.get("num_calls"):
        mask &= values != 0
    return mask


IMPORTER = Importer(
    "open-instruct",
    "open-instruct: rollouts",
    describe,
    read,
    signs=(Sign("*_rollouts_[0-9]*.jsonl", tuple(sorted(_REQUIRED))),),
)
