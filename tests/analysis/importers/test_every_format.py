"""What every format must do: whole, again without news, from any step on, and with files that are damaged.

What is said of the run that was made of it: `tests/dashboard/test_every_format_page.py`.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratioscope.analysis.importers import Importer, Reading, Step
from ratioscope.analysis.importers.detect import FoundSource, the_source
from ratioscope.analysis.importers.formats import IMPORTERS
from ratioscope.analysis.importers.writing import Options, import_run
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from tests.making.foreign import (
    imitated_lines,
    imitated_miles,
    imitated_ms_swift,
    imitated_nemo_rl,
    imitated_open_instruct,
    imitated_prime_rl,
    imitated_slime,
    truth,
)
from tests.making.foreign.packed import unpack
from tests.making.foreign.policy import Policy

STORED = Path(__file__).parents[2] / "making" / "foreign" / "stored"


def stored(name: str, within: str = "") -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(STORED / name, folder / name)) / within


def packed(name: str, within: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        unpack(name, folder)
        return folder / within

    return make


def nemo_rl(folder: Path) -> Path:
    policy = Policy(seed=3)
    for step in (1, 2, 3):
        imitated_nemo_rl.write(folder / "nemo", imitated_nemo_rl.batch(policy, step), step)
    return folder / "nemo"


def open_instruct(folder: Path) -> Path:
    policy = Policy(seed=3)
    records = [
        imitated_open_instruct.record(step, place, one)
        for step in (1, 2, 3)
        for place, one in enumerate(imitated_nemo_rl.batch(policy, step))
    ]
    imitated_open_instruct.write(folder / "rollouts", [records[:14], records[14:]])
    return folder / "rollouts"


SOURCES: dict[str, Callable[[Path], Path]] = {
    "slime": lambda folder: imitated_slime.write(folder / "slime", truth.run()),
    "miles": lambda folder: imitated_miles.write(folder / "miles", truth.run()),
    "ROLL": lambda folder: imitated_lines.roll(folder / "roll", truth.run()),
    "RLLoggingBoard": lambda folder: imitated_lines.logging_board(folder / "board", truth.run()),
    "text of ROLL": lambda folder: imitated_lines.roll_rollouts(folder / "roll", truth.run()),
    "AReaL": lambda folder: imitated_lines.areal(folder / "areal", truth.run()),
    "verl": lambda folder: imitated_lines.verl(folder / "verl", truth.run()),
    "NeMo-Gym": stored("nemo_gym", "results"),
    "Harbor": stored("harbor", "job"),
    "ART": stored("art", "words/models/words"),
    "Atropos": stored("atropos", "groups"),
    "NeMo-RL": nemo_rl,
    "open-instruct": open_instruct,
    "SkyRL": stored("skyrl"),
    "Trinity-RFT": stored("trinity"),
    "TRL": stored("trl", "plain"),
    "prime-rl": lambda folder: imitated_prime_rl.write(folder / "run", chunk_bytes=20_000, frame_bytes=3_000),
    "prime-rl, running": lambda folder: imitated_prime_rl.write(folder / "run", finished=False),
    "prime-rl before September 2026": packed("prime_rl", "prime_rl"),
    "verifiers": packed("verifiers", "verifiers/traces.jsonl"),
    "tinker-cookbook": packed("tinker_cookbook", "tinker_cookbook"),
    "a store of tinker-cookbook": packed("tinker_store", "tinker_store/capture.sqlite"),
    "rLLM's gateway": packed("rllm", "rllm/gateway_traces.db"),
    "rLLM's episodes": packed("rllm", "rllm/logs"),
    "rLLM's evaluation": packed("rllm", "rllm/eval_results"),
    "ms-swift": lambda folder: imitated_ms_swift.trainer(folder / "v0", truth.run()),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    return SOURCES[request.param](tmp_path / "theirs")


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def read(importer: Importer, path: Path, **reading: object) -> list[Step]:
    return list(importer.read(path, Reading(unpickle=True, **reading)))  # type: ignore[arg-type]


def shape(step: Step) -> tuple[int, int, int]:
    return step.number, _rows(step.sequences), _rows(step.tokens or {})


def _rows(columns: object) -> int:
    assert isinstance(columns, dict)
    return next((len(values) for values in columns.values() if values is not None), 0)


def test_it_is_imported_whole_again_without_news_and_from_any_step_on(source: Path, tmp_path: Path) -> None:
    before = contents(tmp_path / "theirs")
    found = the_source(source)
    importer, path = found.importer, found.description.path
    steps = read(importer, path)
    done = import_run(found, tmp_path / "run", Options(unpickle=True))
    assert done.steps == len(steps) > 0
    run = open_run(tmp_path / "run")
    assert run.problems == () and run.status == "finished" and run.manifest.source["format"] == importer.name
    assert found.description.steps in (None, len(steps))
    assert import_run(found, tmp_path / "run", Options(unpickle=True)).steps == 0
    shapes = [shape(step) for step in steps]
    assert sorted(number for number, *_ in shapes) == [number for number, *_ in shapes]
    for place, step in enumerate(steps):
        assert [shape(later) for later in read(importer, path, after=step.number)] == shapes[place + 1 :]
    growing = [shape(step) for step in read(importer, path, growing=True)]
    assert growing == shapes[: len(growing)]
    assert contents(tmp_path / "theirs") == before
    others = [other.name for other in IMPORTERS if other is not importer and other.describe(source) is not None]
    assert others == []


def damaged(file: Path) -> Iterator[None]:
    """One damage after the other; the file is whole again between them."""
    whole = file.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"\x00\xff{" + whole, whole[:-2] + b"]}\n", b'{"a": 1}\n', b"null\n"):
        file.write_bytes(broken)
        yield
        file.write_bytes(whole)


def test_damaged_files_are_sentences_and_never_a_traceback(source: Path, tmp_path: Path) -> None:
    found = the_source(source)
    files = [path for path in sorted((tmp_path / "theirs").rglob("*")) if path.is_file()]
    for place, file in enumerate(dict.fromkeys((files[0], files[len(files) // 2], files[-1]))):
        for number, _ in enumerate(damaged(file)):
            try:
                _try(found, skip=(place + number) % 2 == 0)
            except RatioscopeError as problem:
                assert "\n" not in str(problem) and str(problem).endswith((".", "?")), problem


def _try(found: FoundSource, *, skip: bool) -> None:
    found.importer.describe(found.description.path)
    for _ in found.importer.read(found.description.path, Reading(unpickle=True, skip_bad=skip)):
        pass
