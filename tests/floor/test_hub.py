"""Runs in a data set of the Hugging Face Hub: read to the byte, and what cannot be had is one sentence."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from ratioscope.storage.failures import StorageError
from ratioscope.storage.parquet import footer, read_table
from ratioscope.storage.places import place, scan
from tests import hub
from tests.hub import Hub
from tests.making.runs import random_step, write_run
from tests.object_storage import forget_all

DATA_SET = f"hf://datasets/{hub.REPOSITORY}"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    rng = np.random.default_rng(0)
    write_run(tmp_path / "set" / "runs" / "mine", [random_step(rng, 0, groups=32, longest=60), random_step(rng, 1)])
    with hub.serving(tmp_path / "set") as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
        forget_all()
        yield found
    forget_all()


def test_a_run_of_a_data_set_is_the_same_run(served: Hub, tmp_path: Path) -> None:
    there, here = open_folder(place(f"{DATA_SET}/runs/mine")), open_folder(tmp_path / "set" / "runs" / "mine")
    assert there.summary.values.equals(here.summary.values)
    assert [finding.sentence for finding in there.findings] == [finding.sentence for finding in here.findings]


def test_bytes_moved_are_those_of_the_columns(served: Hub) -> None:
    file, *_ = open_run(place(f"{DATA_SET}/runs/mine")).files["tokens"]
    column, before = footer(file.path).row_group(0).column(0), served.bytes_read
    read_table(file.path, [column.path_in_schema])
    assert 0 < served.bytes_read - before <= column.total_compressed_size


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hf://datasets", "it names no repository; write hf://datasets/owner/name/folder"),
        ("hf://datasets/owner", "it names no repository"),
        ("hf://datasets/owner/other", "there is no such repository, or it is not public: check its name and HF_TOKEN"),
    ],
)
def test_what_is_not_there_is_one_sentence(served: Hub, url: str, said: str) -> None:
    with pytest.raises(RatioscopeError, match=said):
        scan(place(url))
    with pytest.raises(FileNotFoundError):
        scan(place(f"{DATA_SET}/nothing"))


def test_a_hub_that_is_not_there(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("ratioscope.storage.failures.WAITS", (0.0,))
    with pytest.raises(StorageError, match=r"did not answer in 2 attempts \(.*refused\); check the network and HF_END"):
        scan(place(f"{DATA_SET}/runs"))


def test_nothing_is_written_there(served: Hub) -> None:
    with pytest.raises(RatioscopeError, match="hf:// is only read here; write to a folder"):
        RunRecorder(f"{DATA_SET}/runs/new")
