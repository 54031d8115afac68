"""What lies where: which format a folder is of, and what is said where it is of none."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import RunRecorder
from ratioscope.analysis.importers import Description, Importer, detect, formats
from ratioscope.analysis.importers.detect import hint, search, the_source
from ratioscope.analysis.importers.source import Sign
from ratioscope.errors import RatioscopeError
from tests.making.loops import in_one_loop

# What is where --------------------------------------------------------------------------------------------------------


def marked(name: str) -> Importer:
    """A format that is told by a file of its name."""

    def describe(path: Path) -> Description | None:
        return Description(name, name, path) if (path / name).is_file() else None

    return Importer(name, f"{name} log", describe, lambda path, reading: iter(()))


@pytest.fixture
def two_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "IMPORTERS", (marked("first"), marked("second")))


def test_what_lies_somewhere_is_found_or_it_is_said_what_could_be(tmp_path: Path, two_formats: None) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "first").touch()
    assert the_source(tmp_path / "a" / "b").importer.name == "first"
    assert [each.description.path for each in search(tmp_path)] == [tmp_path / "a" / "b"]
    assert the_source(tmp_path).place == the_source(tmp_path, "first").place == tmp_path / "a" / "b"
    with pytest.raises(RatioscopeError, match="no second log is here"):
        the_source(tmp_path, "second")
    (tmp_path / "a" / "b" / "second").touch()
    with pytest.raises(RatioscopeError, match=r"choose with --format first \(first log\) or --format second"):
        the_source(tmp_path / "a" / "b")
    assert the_source(tmp_path / "a" / "b", "second").importer.name == "second"
    with pytest.raises(RatioscopeError, match="did you mean second"):
        the_source(tmp_path / "a" / "b", "secnd")
    (tmp_path / "c").mkdir()
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "second").touch()
    assert the_source(tmp_path / "e").importer.name == "second"
    with pytest.raises(RatioscopeError, match=rf"nothing to import here, but in {tmp_path}/a/b, {tmp_path}/e; name"):
        the_source(tmp_path)
    with pytest.raises(RatioscopeError, match="the folder is empty"):
        the_source(tmp_path / "c")
    (tmp_path / "c" / "notes.txt").touch()
    with pytest.raises(RatioscopeError, match=r"none of the known formats .*first log, second log.*--template"):
        the_source(tmp_path / "c")
    with pytest.raises(RatioscopeError, match="no first log is here"):
        the_source(tmp_path / "c", "first")
    with pytest.raises(RatioscopeError, match="there is no such"):
        the_source(tmp_path / "d")
    with RunRecorder(tmp_path / "run"):
        pass
    (tmp_path / "run" / "first").touch()
    with pytest.raises(RatioscopeError, match="a run of ratioscope already"):
        the_source(tmp_path / "run")
    assert hint(tmp_path / "a" / "b").startswith(f"{tmp_path / 'a' / 'b'}: this is no run yet")
    assert f"ratioscope import {tmp_path / 'a' / 'b'}" in hint(tmp_path / "a" / "b")
    assert hint(tmp_path / "c") == hint(tmp_path / "d") == ""


def test_run_json_of_another_program_makes_no_run_of_ours(tmp_path: Path, two_formats: None) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "first").touch()
    for text in ('{"experiment": "mine"}', '{"schema_version": 1}', "[]", "no JSON"):
        for folder in (tmp_path, tmp_path / "a"):
            (folder / "run.json").write_text(text)
        assert the_source(tmp_path).place == the_source(tmp_path / "a").place == tmp_path / "a"
    (tmp_path / "a" / "first").unlink()
    with pytest.raises(RatioscopeError, match="none of the known formats"):
        the_source(tmp_path / "a")


def test_opening_a_run_loads_no_importer() -> None:
    loaded = "sorted(name for name in sys.modules if name.startswith('ratioscope.analysis.importers'))"
    command = f"import sys, ratioscope.analysis.runs.store; print({loaded})"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# What has a known name and cannot be read ----------------------------------------------------------------------------


def made(place: Path, keys: tuple[str, ...]) -> None:
    """A file or folder of its kind with these keys."""
    place.parent.mkdir(parents=True, exist_ok=True)
    match place.suffix:
        case "":
            place.mkdir(exist_ok=True)
            for key in keys:
                (place / key.replace("*", "1")).touch()
        case ".parquet":
            pq.write_table(pa.table({key: ["1"] for key in keys}), place)
        case ".pt":
            torch.save(dict.fromkeys(keys, 1), place)
        case ".db" | ".sqlite":
            with closing(sqlite3.connect(place)) as connection:
                for key in ("other", *keys):
                    connection.execute(f"CREATE TABLE {key} (a)")
        case _:
            place.write_text(json.dumps(dict.fromkeys(keys, 1)) + "\n")


EVERY_SIGN = {f"{one.name}: {sign.files}": (one, sign) for one in formats.IMPORTERS for sign in one.signs}


def test_every_format_has_a_sign() -> None:
    assert {one.name for one, _ in EVERY_SIGN.values()} == {one.name for one in formats.IMPORTERS}


@in_one_loop("case", EVERY_SIGN)
def test_of_a_known_framework_that_cannot_be_read_the_sentence_says_what_lacks(
    case: tuple[Importer, Sign], tmp_path_factory: pytest.TempPathFactory
) -> None:
    importer, sign = case
    for deep in (False, True):
        folder = tmp_path_factory.mktemp("theirs") / "run"
        place = folder / "below" / "it" if deep else folder
        name = sign.files.replace("[0-9]", "1").replace("_*", "_1").replace("step*", "step1").replace("*", "train")
        made(place / name, sign.keys[1:])
        with pytest.raises(RatioscopeError) as raised:
            the_source(folder)
        said = str(raised.value)
        assert f"no {sign.keys[0]}" in said and said.startswith(f"{place / name}: by its name it is from "), said
        assert importer.title.partition(":")[0] in said
        with pytest.raises(RatioscopeError, match="by its name"):
            the_source(folder, importer.name)
    if sign.says_enough and place.joinpath(name).is_file():
        place.joinpath(name).write_bytes(b"")
        with pytest.raises(RatioscopeError, match=r"but it is empty\.$"):
            the_source(folder)


def test_a_name_that_anybody_uses_says_nothing_alone(tmp_path: Path) -> None:
    for name in ("1.jsonl", "log.jsonl"):
        (tmp_path / name).write_text('{"a": 1, "prompt": "p", "response": "r", "reward": 1.0}\n')
        with pytest.raises(RatioscopeError, match="none of the known formats"):
            the_source(tmp_path)
        (tmp_path / name).unlink()


def test_every_format_has_a_name_of_its_own_and_is_at_home_with_anything(tmp_path: Path) -> None:
    names = [importer.name for importer in formats.IMPORTERS]
    assert len(names) == len(set(names))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no log")
    (tmp_path / "odd").mkdir()
    for name in ("a.jsonl", "step_1", "b\n.jsonl", "run.parquet"):
        (tmp_path / "odd" / name).write_bytes(b"\x00\xff{")
    for place in ("empty", "text", "odd", "none"):
        for importer in formats.IMPORTERS:
            assert importer.describe(tmp_path / place) is None, (importer.name, place)
