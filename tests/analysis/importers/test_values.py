"""A reward means the same whoever wrote it: one table of values, through every format that writes one number each."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.gathered import as_number
from ratioscope.analysis.importers.writing import Options, import_run
from tests.making.foreign import (
    imitated_lines,
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
    run = truth.run(updates=1, groups=5, members=2)
    for one, reward in zip(run[0], rewards, strict=True):
        one.reward = reward
    return run


FORMATS: dict[str, Callable[[Path, list[Any]], Path]] = {
    "slime": lambda folder, rewards: imitated_slime.write(folder, known(rewards)),
    "miles": lambda folder, rewards: imitated_miles.write(folder, known(rewards)),
    "text of ROLL": lambda folder, rewards: imitated_lines.roll_rollouts(folder, known(rewards)),
    "AReaL": lambda folder, rewards: imitated_lines.areal(folder, known(rewards)),
    "verl": lambda folder, rewards: imitated_lines.verl(folder, known(rewards)),
    "NeMo-RL": lambda folder, rewards: imitated_nemo_rl.write(folder, policies(rewards), 1).parent,
    "open-instruct": open_instruct,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_a_reward_alike(name: str, tmp_path: Path) -> None:
    source = FORMATS[name](tmp_path / "source", [value for value, _ in VALUES.values()])
    import_run(the_source(source), tmp_path / "run", Options())
    table = pq.read_table(tmp_path / "run" / "sequences").sort_by("seq_id")
    read = table["reward"].to_pylist()
    for (label, (_, expected)), found in zip(VALUES.items(), read[: len(VALUES)], strict=True):
        assert repr(found) == repr(expected), label


def test_a_whole_number_beyond_all_bounds_is_infinite() -> None:
    assert as_number(10**400) == math.inf and as_number(-(10**400)) == -math.inf
