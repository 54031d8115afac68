"""verl's `trainer.rollout_data_dir`: {step}.jsonl, a response a line, text and scores.

Read against verl 0.9.1: verl/trainer/ppo/v1/trainer_base.py and verl/trainer/ppo/ray_trainer.py (_write_generations).
"""

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.paths import Record
from ratioscope.analysis.importers.plain import Plain, number_lists, of_text
from ratioscope.analysis.importers.responses import Response, plain_text
from ratioscope.analysis.importers.source import Reading, Sign
from ratioscope.analysis.importers.values import as_number

_KEYS = ("input", "output", "score", "step")
_NO_TOKENS = (
    "the files have text and scores, no tokens: verl's own batches have them, which ratioscope's plugin records"
)
_BY_UID = "Responses are grouped by uid without its last two numbers, as verl makes it of prompt, session and output."
_BY_TEXT = "Responses of a step that have the same input are a group: the files have no uid."
_LOOKED_AT = 1_000
"""Records that must be of the step in the file's name."""
_ALIKE = "The folder is rollout_data_dir: that of validation_data_dir looks the same, and its responses train nothing."


def _told(first: Record, file: Path) -> Mapping[str, Any] | None:
    rows = islice(lines.read(file, Reading(skip_bad=True, growing=True), only=("step",)), _LOOKED_AT)
    has_tokens = any(re.search("tok|logp|log_p", key) for key in number_lists(first))
    if has_tokens or {str(row.get("step")) for _, row in rows} != {file.stem}:
        return None  # verl writes text alone, and a file a step
    return {"assumed": (_BY_UID, _ALIKE)} if "uid" in first else {}


def _group(record: Record) -> Any:
    """The prompt's part of verl's key {prompt}_{session}_{output}, or the prompt."""
    uid = record.get("uid")
    if not isinstance(uid, str):
        return plain_text(record["input"])
    prompt, *numbers = uid.rsplit("_", 2)
    return prompt if len(numbers) == 2 and all(map(str.isdecimal, numbers)) else uid


def _parts(record: Record, response: Response) -> None:
    others = {name: value for name, value in record.items() if name not in (*_KEYS, "uid", "gts")}
    response.row |= responses.parts(others)


IMPORTER = Plain(
    "verl-rollouts",
    "verl rollout_data_dir",
    framework="verl",
    format="verl trainer.rollout_data_dir",
    files=r"(\d+)\.jsonl",
    keys=_KEYS,
    sequences=(("prompt", "input", plain_text), ("response", "output", plain_text), ("reward", "score", as_number)),
    group=_group,
    also=_parts,
    missing=of_text(_NO_TOKENS),
    assumed=(_BY_TEXT, _ALIKE),
    told=_told,
    signs=(Sign("[0-9]*.jsonl", _KEYS, says_enough=False),),
).importer
