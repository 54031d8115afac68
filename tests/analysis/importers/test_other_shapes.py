"""Contents of another shape than a format has are one sentence with the file in it, and never a traceback."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import IMPORTERS
from tests.making.foreign import imitated_lines, imitated_miles, imitated_slime, truth

_STRANGE = [None, -1, 1e300, float("nan"), "text", [], [1, "a"], [[1], [2, 3]], {}, {"a": 1}, True]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside of a payload, containers included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inside:
        yield from places(entry, (*path, key))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], to)
    return copy


def somewhere(value: Any, chance: random.Random) -> tuple[Any, ...]:
    """A place in a payload; there are more of them deep inside, where less can go wrong, so some are cut short."""
    path = chance.choice([*places(value)][1:])
    return path[: chance.randint(1, len(path))]


def torch_changed(file: Path, chance: random.Random) -> None:
    payload = torch.load(file)
    torch.save(changed(payload, somewhere(payload, chance), chance.choice(_STRANGE)), file)


def line_changed(file: Path, chance: random.Random) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    row = chance.randrange(len(rows))
    rows[row] = changed(rows[row], somewhere(rows[row], chance), chance.choice(_STRANGE))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def miles(folder: Path, steps: Any) -> Path:
    return imitated_miles.write(folder, steps, slices=1, copies=1)


_WRITERS: dict[str, tuple[Callable[[Path, Any], Path], str, Callable[[Path, random.Random], None]]] = {
    "slime rollouts": (imitated_slime.write, "rollout_data/*.pt", torch_changed),
    "slime training": (imitated_slime.write, "train_data/*.pt", torch_changed),
    "miles rollouts": (miles, "rollout_data/*.pt", torch_changed),
    "miles training": (miles, "train_data/*.pt", torch_changed),
    "miles losses": (miles, "policy_loss_debug/*.pt", torch_changed),
    "miles trajectories": (miles, "trajectory/*.jsonl", line_changed),
    "ROLL": (imitated_lines.roll, "*.jsonl", line_changed),
    "AReaL": (imitated_lines.areal, "*/*.jsonl", line_changed),
    "verl": (imitated_lines.verl, "*.jsonl", line_changed),
}


@pytest.mark.parametrize("name", _WRITERS)
def test_strange_values_are_refused_or_taken(name: str, tmp_path: Path) -> None:
    write, files, change = _WRITERS[name]
    folder = write(tmp_path / "source", truth.run(updates=1, groups=2))
    originals = {file: file.read_bytes() for file in sorted(folder.glob(files))}
    chance = random.Random(name)
    for _ in range(20):
        file = chance.choice([*originals])
        change(file, chance)
        for importer in (one for one in IMPORTERS if one.describe(folder) is not None):
            for skip_bad in (False, True):
                try:
                    for step in importer.read(folder, Reading(skip_bad=skip_bad)):
                        assert step.number >= 0
                except ImportProblem as problem:
                    assert str(folder) in str(problem) and not skip_bad
        file.write_bytes(originals[file])
