"""verl's `trainer.rollout_data_dir`: {step}.jsonl, a response a line, text and scores.

Read against verl 0.9.1: verl/trainer/ppo/v1/trainer_base.py and verl/trainer/ppo/ray_trainer.py (_write_generations).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.gathered import as_number
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step

_KEYS = {"input", "output", "score", "step"}
_NO_TOKENS = (
    "the files have text and scores, no tokens: verl's own batches have them, which ratioscope's plugin records"
)

_MISSING = {
    **dict.fromkeys(("logp_behavior", "logp_current", "advantage", "entropy", "token_id"), _NO_TOKENS),
    "behavior_version": "the files do not say which weights sampled a response",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_BY_UID = "Responses are grouped by uid without its last two numbers, as verl makes it of prompt, session and output."
_BY_TEXT = "Responses of a step that have the same input are a group: the files have no uid."
_ALIKE = "The folder is rollout_data_dir: that of validation_data_dir looks the same, and its responses train nothing."


def _files(path: Path) -> dict[int, Path]:
    return dict(sorted((int(file.stem), file) for file in path.glob("*.jsonl") if file.stem.isdecimal()))


def _describe(path: Path) -> Description | None:
    try:
        files = _files(path)
        file = next(iter(files.values()), None)
        first = next((row for _, row in lines.read(file, Reading(skip_bad=True))), {}) if file is not None else {}
    except OSError:
        return None
    if not first.keys() >= _KEYS:
        return None
    return Description(
        framework="verl",
        format="verl trainer.rollout_data_dir",
        path=path,
        steps=len(files),
        missing=_MISSING,
        assumed=(_BY_UID if "uid" in first else _BY_TEXT, _ALIKE),
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    for number, file in files.items():
        if number <= reading.after or (reading.growing and number == max(files)):
            continue
        rows = []
        for line, row in lines.read(file, reading):
            if not row.keys() >= _KEYS:
                reading.bad(file, f"no {' and no '.join(sorted(_KEYS - row.keys()))}", line)
            else:
                rows.append(row)
        if rows:
            yield _step(number, rows)


def _step(number: int, rows: list[dict[str, Any]]) -> Step:
    groups = responses.groups_of([_group(row) for row in rows])
    return responses.step(
        number,
        [
            responses.Response(
                row={
                    "group_id": group,
                    "prompt": responses.text(row["input"]),
                    "response": responses.text(row["output"]),
                    "reward": as_number(row["score"]),
                }
                | responses.parts({name: value for name, value in row.items() if name not in (*_KEYS, "uid", "gts")})
            )
            for row, group in zip(rows, groups, strict=True)
        ],
    )


def _group(row: Mapping[str, Any]) -> Any:
    """The prompt's part of verl's key {prompt}_{session}_{output}, or the prompt."""
    uid = row.get("uid")
    if not isinstance(uid, str):
        return responses.text(row["input"])
    prompt, *numbers = uid.rsplit("_", 2)
    return prompt if len(numbers) == 2 and all(map(str.isdecimal, numbers)) else uid


IMPORTER = Importer(
    "verl-rollouts",
    "verl rollout_data_dir",
    _describe,
    _read,
    signs=(Sign("[0-9]*.jsonl", tuple(sorted(_KEYS)), says_enough=False),),
)
