"""RLLoggingBoard's JSON lines, as ROLL writes them with `save_logging_board_dir`: a response a line.

Read against HarderThenHarder/RLLoggingBoard cf56d5d9 (README, section 2.1) and alibaba/ROLL 8eb27cc2:
roll/pipeline/rlvr/rlvr_pipeline.py (save_metrics). ROLL writes one file a domain and step, others one a rank with all
steps: all files of a folder are read together, by step. ROLL's lists begin at the response and end with the padding.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.gathered import as_number
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step

_COLUMNS = {"logprobs": "logp_current", "ref_logprobs": "logp_reference", "old_log_probs2_entropy": "entropy"}
_MASK = "new_response_mask"
_ARRAYS = (*_COLUMNS, _MASK)
_WANTED = (*_ARRAYS, "step", "prompt", "response", "reward")

_MISSING = {
    "logp_behavior": "the files have the trainer's log-probabilities, not the sampler's",
    "behavior_version": "the files do not say which weights sampled a token",
    "policy_version": "the files do not say which weights sampled a token, so the age of none is known",
    "token_id": "the files have the text of tokens, no ids",
    "advantage": "the files have rewards a token, no advantages",
    "logp_new": "the responses are not scored again after the update",
    "logp_gate": "the files are written before the loss",
    "clipped": "the files are written before the loss",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_ASSUMED = (
    "logprobs are those of the policy at the start of the update: both writers score the responses before they train.",
    "Responses of a step that have the same prompt are a group.",
    "Reference log-probabilities that are all the policy's own in a step are left out: ROLL copies them where it has "
    "no reference model.",
)
_OF_ROLL = {
    "reward": "ROLL writes rewards after normalising and clipping them; they are in reward_processed",
}


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.suffix == ".jsonl" else []


def _describe(path: Path) -> Description | None:
    try:
        files = _files(path)
        first = _first(files[0]) if files else None
    except OSError:
        return None
    if first is None or not {"prompt", "response", "reward", "step"} <= first.keys() or "task_id" in first:
        return None
    of_roll = _MASK in first
    missing = _MISSING | (_OF_ROLL if of_roll else {})
    if "logprobs" not in first:
        missing |= dict.fromkeys(("logp_current", "logp_reference", "entropy"), "the files have text and rewards alone")
    else:
        missing |= {column: f"the files have no {key}" for key, column in _COLUMNS.items() if key not in first}
    return Description(
        framework="ROLL" if of_roll else "",
        format="ROLL save_logging_board_dir" if of_roll else "RLLoggingBoard",
        path=path,
        missing=missing,
        assumed=_ASSUMED if "logprobs" in first else _ASSUMED[1:2],
    )


def _first(file: Path) -> dict[str, Any] | None:
    """The first object of a file; None: it has none."""
    return next((row for _, row in lines.read(file, Reading(skip_bad=True, growing=True))), None)


class _File:
    """A file that is read as far as a step goes."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self._reading = path, reading
        self._rows = lines.read(path, reading, arrays=_ARRAYS, only=_WANTED)
        self._next: tuple[int, dict[str, Any]] | None = None
        self.step: int | None = -1
        self._advance()

    def _advance(self) -> None:
        for line, row in self._rows:
            step = responses.version(row.get("step"))
            if step is None or step < 0:
                self._reading.bad(self.path, "no step", line)
            elif self.step is not None and step < self.step:
                self._reading.bad(self.path, f"step {step} comes after step {self.step}", line)
            else:
                self.step, self._next = step, (line, row)
                return
        self.step, self._next = None, None

    def rows(self, step: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of the step that it is at."""
        while self.step == step and self._next is not None:
            found = self._next
            self._advance()
            yield found


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    begins: dict[Path, int] = {}
    for file in _files(path):
        first = _first(file)
        begins[file] = (responses.version(first.get("step")) or 0) if first is not None else 0
    waiting = sorted(begins, key=lambda file: (begins[file], file.name), reverse=True)
    open_files: list[_File] = []
    held: Step | None = None  # what may still grow is told by what comes after it
    while waiting or open_files:
        now = min([file.step for file in open_files if file.step is not None] + [begins[file] for file in waiting[-1:]])
        while waiting and begins[waiting[-1]] <= now:
            open_files.append(_File(waiting.pop(), reading))
        rows = []
        for source in open_files:
            for line, row in source.rows(now):
                make = partial(_response, row)
                response = responses.made(make, reading, source.path, "the response", line)
                if response is not None and now > reading.after:
                    rows.append(response)
        open_files = [file for file in open_files if file.step is not None]
        if held is not None:
            yield held
            held = None
        if rows:
            held = _step(now, rows)
    if held is not None and not reading.growing:
        yield held


def _response(row: Mapping[str, Any]) -> responses.Response:
    mask = row.get(_MASK)
    values = {column: np.asarray(row[key], float) for key, column in _COLUMNS.items() if row.get(key) is not None}
    size = next((len(value) for value in values.values()), 0)
    return responses.Response(
        sampled=np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool),
        values=dict(values),
        row={
            "prompt": responses.text(row.get("prompt")),
            "response": responses.text(row.get("response")),
            "reward_processed" if mask is not None else "reward": as_number(row.get("reward")),
        },
    )


def _step(number: int, rows: list[responses.Response]) -> Step:
    for response, group in zip(rows, responses.groups_of([row.row["prompt"] for row in rows]), strict=True):
        response.row["group_id"] = group
    if all(_copied(response) for response in rows):
        for response in rows:
            response.values.pop("logp_reference", None)
    return responses.step(number, rows)


def _copied(response: responses.Response) -> bool:
    ours, reference = response.values.get("logp_current"), response.values.get("logp_reference")
    return ours is None or reference is None or np.array_equal(ours, reference)


IMPORTER = Importer(
    "logging-board",
    "ROLL or RLLoggingBoard JSON lines",
    _describe,
    _read,
    signs=(Sign("*.jsonl", ("prompt", "response", "reward", "step"), says_enough=False),),
)
