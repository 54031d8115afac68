"""RLLoggingBoard's JSON lines, as ROLL writes them with `save_logging_board_dir`: a response a line.

Read against HarderThenHarder/RLLoggingBoard cf56d5d9: rl_logging_board.py, which shows such files, and section 2.1 of
its README.

Read against alibaba/ROLL 8eb27cc2: roll/pipeline/rlvr/rlvr_pipeline.py (save_metrics). ROLL writes one file a domain
and step, others one a rank with all steps: all files of a folder are read together, by step. ROLL's lists begin at the
response and end with the padding.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers.paths import Record
from ratioscope.analysis.importers.plain import Plain, number_lists, of_text
from ratioscope.analysis.importers.responses import Response, plain_text
from ratioscope.analysis.importers.source import Sign
from ratioscope.analysis.importers.values import as_number

_COLUMNS = {"logprobs": "logp_current", "ref_logprobs": "logp_reference", "old_log_probs2_entropy": "entropy"}
_MASK = "new_response_mask"
_KEYS = ("prompt", "response", "reward", "step")
_TEXT_OF_TOKENS = "response_tokens"
_OF_TEXT = {*_KEYS, "ref_response", "ref_reward", "ground_truth"}
_LISTS = {*_COLUMNS, _MASK, "log_probs2", "values", "token_rewards"}

_MISSING = {
    "logp_behavior": "the files have the trainer's log-probabilities, not the sampler's",
    "behavior_version": "the files do not say which weights sampled a token",
    "policy_version": "the files do not say which weights sampled a token, so the age of none is known",
    "token_id": "the files have the text of tokens, no ids",
    "advantage": "the files have no advantages",
    "logp_new": "the responses are not scored again after the update",
    "logp_gate": "the files are written before the loss",
    "clipped": "the files are written before the loss",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_SCORED = (
    "logprobs are those of the policy at the start of the update: both writers score the responses before they train."
)
_GROUPS = "Responses of a step that have the same prompt are a group."
_COPIES = (
    "Reference log-probabilities that are all the policy's own in a step are left out: ROLL copies them where it has "
    "no reference model."
)
_OF_ROLL = {
    "reward": "ROLL writes rewards after normalising and clipping them; they are in reward_processed",
}


def _told(first: Record, _: Path) -> Mapping[str, Any] | None:
    if _TEXT_OF_TOKENS not in first:
        # Anybody's rows may have these four keys: with others than the board's, they are somebody else's.
        return {"format": "RLLoggingBoard", "assumed": (_GROUPS,)} if first.keys() <= _OF_TEXT else None
    if number_lists(first) - _LISTS or any(re.search("advantage|version", key) for key in first):
        return None  # which the board has not
    of_roll = _MASK in first
    missing = _MISSING | (_OF_ROLL if of_roll else {})
    missing |= {column: f"the files have no {key}" for key, column in _COLUMNS.items() if key not in first}
    if "token_rewards" in first:
        missing["advantage"] = "the files have rewards a token, no advantages"
    if "logprobs" not in first:
        missing["logp_behavior"] = "the files have no log-probabilities of the policy"
    said = {_SCORED: "logprobs" in first, _GROUPS: True, _COPIES: "ref_logprobs" in first}
    return {
        "framework": "ROLL" if of_roll else "",
        "format": "ROLL save_logging_board_dir" if of_roll else "RLLoggingBoard",
        "missing": missing,
        "assumed": tuple(sentence for sentence, holds in said.items() if holds),
    }


def _processed(record: Record, response: Response) -> None:
    if record.get(_MASK) is not None:
        response.row["reward_processed"] = response.row.pop("reward")


def _without_copies(rows: Sequence[Response]) -> None:
    if all(_copied(response) for response in rows):
        for response in rows:
            response.values.pop("logp_reference", None)


def _copied(response: Response) -> bool:
    ours, reference = response.values.get("logp_current"), response.values.get("logp_reference")
    return ours is None or reference is None or np.array_equal(ours, reference)


def _floats(values: Any) -> Any:
    return np.asarray(values, float)


IMPORTER = Plain(
    "logging-board",
    "ROLL or RLLoggingBoard JSON lines",
    framework="",
    files=r".*\.jsonl",
    keys=_KEYS,
    step="step",
    sequences=(("prompt", "prompt", plain_text), ("response", "response", plain_text), ("reward", "reward", as_number)),
    tokens=(*((column, key, _floats) for key, column in _COLUMNS.items()), ("sampled", _MASK, np.asarray)),
    only=(*_COLUMNS, _MASK, *_KEYS),
    group=lambda record: plain_text(record["prompt"]),
    also=_processed,
    finish=_without_copies,
    missing=of_text("the files have text and rewards alone, no tokens"),
    told=_told,
    signs=tuple(Sign(name, _KEYS, says_enough=False) for name in ("rollout_data_rank*.jsonl", "data_*_*_*.jsonl")),
).importer
