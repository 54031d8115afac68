"""A reward means the same whoever wrote it: one table of values, through every format that writes one number each.

A format that is declared (`Plain`) is in it without being named; any other is named here, or why it cannot be.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import IMPORTERS
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.writing import Options, import_run
from tests.making.foreign import (
    imitated_miles,
    imitated_nemo_rl,
    imitated_open_instruct,
    imitated_slime,
    truth,
)
from tests.making.foreign.policy import Policy, Response

VALUES: dict[str, tuple[Any, float | None]] = {
    "a number": (0.25, 0.25),
    "a whole number": (2, 2.0),
    "true": (True, 1.0),
    "false": (False, 0.0),
    "text that is a number": ("3", 3.0),
    "NaN": (math.nan, math.nan),
    "infinite": (math.inf, math.inf),
    "a whole number beyond all bounds": (10**400, math.inf),
    "a number below zero": (-2, -2.0),
    "null": (None, None),
    "a list": ([], None),
    "an object": ({}, None),
}


def policies(rewards: list[Any]) -> list[Response]:
    made = [*imitated_nemo_rl.batch(Policy(seed=3), 1), *imitated_nemo_rl.batch(Policy(seed=4), 1)]
    for place, one in enumerate(made):
        one.reward = rewards[place % len(rewards)]
    return made


def open_instruct(folder: Path, rewards: list[Any]) -> Path:
    made = [imitated_open_instruct.record(1, place, one) for place, one in enumerate(policies(rewards))]
    imitated_open_instruct.write(folder, [made])
    return folder


def known(rewards: list[Any]) -> list[list[truth.Known]]:
    run = truth.run(updates=1, groups=6, members=2)
    for one, reward in zip(run[0], rewards, strict=True):
        one.reward = reward
    return run


def declared(plain: Plain) -> Callable[[Path, list[Any]], Path]:
    """A writer of files as a declaration describes them."""

    def write(folder: Path, rewards: list[Any]) -> Path:
        place = next(theirs for ours, theirs, _ in plain.sequences if ours == "reward").split("|")[0]
        rest = dict.fromkeys(plain.keys, "1") | FILLED.get(plain.name, {})
        records = [rest | nested(place.split("."), reward) for reward in rewards]
        if plain.spread:
            records = [{name: [record[name] for record in records] for name in records[0]}]
        name = plain.files.replace(r"(\d+)", "1").replace(".*", "a").replace("\\", "")
        for number, record in enumerate(records):
            file = folder / name.replace(".+", f"{number:02d}")  # a folder for each
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as opened:
                opened.write(json.dumps(record) + "\n")
        return folder

    return write


FILLED: dict[str, dict[str, Any]] = {"atropos": {"tokens": [1], "masks": [1]}}
"""What a declaration's keys hold beside the reward, where text will not do."""


def nested(names: list[str], value: Any) -> dict[str, Any]:
    return {names[0]: nested(names[1:], value) if names[1:] else value}


def rllm(folder: Path, rewards: list[Any]) -> Path:
    place = folder / "train_step_1_epoch_0"
    place.mkdir(parents=True)
    for number, reward in enumerate(rewards):
        episode = {
            "training_step": 1,
            "episode_id": f"t{number}:0",
            "task_hash": "a",
            "trajectories": [{"reward": reward}],
        }
        (place / f"episode_{number:02}.json").write_text(json.dumps(episode))
    return folder


def evaluated(folder: Path, rewards: list[Any]) -> Path:
    for number, reward in enumerate(rewards):
        episode = {"eval_idx": number, "id": f"t{number}:0", "task": None, "trajectories": [{"reward": reward}]}
        (folder / "episodes").mkdir(parents=True, exist_ok=True)
        (folder / "episodes" / f"episode_{number:06}_a.json").write_text(json.dumps(episode))
    return folder


DECLARED = {one.name: plain for one in IMPORTERS if isinstance(plain := getattr(one.describe, "__self__", None), Plain)}
FORMATS: dict[str, Callable[[Path, list[Any]], Path]] = {
    "slime": lambda folder, rewards: imitated_slime.write(folder, known(rewards)),
    "miles": lambda folder, rewards: imitated_miles.write(folder, known(rewards)),
    "nemo-rl": lambda folder, rewards: imitated_nemo_rl.write(folder, policies(rewards), 1).parent,
    "open-instruct": open_instruct,
    "rllm-episodes": rllm,
    "rllm-evaluation": evaluated,
}
OTHERS = {
    "art": "columns of Parquet, of numbers alone",
    "skyrl": "its batches have no rewards",
    "tinker-capture": "captured calls have no rewards",
    "rllm-gateway": "calls have no rewards",
    "trinity": "a column of SQLite, of numbers alone",
    "trl-completions": "columns of Parquet, of numbers alone",
    "ms-swift": "columns of numbers alone",
    "tinker-cookbook": "a total of parts",
    "prime-rl": "a sum of weighted parts",
    "verifiers": "a sum of weighted parts",
    "verifiers-results": "null where the rollout failed",
}
FORMATS |= {name: declared(plain) for name, plain in DECLARED.items() if name not in FORMATS | OTHERS}


def test_every_format_is_in_it_or_it_is_said_why_not() -> None:
    assert sorted([*FORMATS, *OTHERS]) == sorted(importer.name for importer in IMPORTERS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_a_reward_alike(name: str, tmp_path: Path) -> None:
    source = FORMATS[name](tmp_path / "source", [value for value, _ in VALUES.values()])
    import_run(the_source(source), tmp_path / "run", Options())
    table = pq.read_table(tmp_path / "run" / "sequences").sort_by("seq_id")
    read = table["reward"].to_pylist()
    for (label, (_, expected)), found in zip(VALUES.items(), read[: len(VALUES)], strict=True):
        assert repr(found) == repr(expected), label
