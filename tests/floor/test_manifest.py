"""run.json: whole or not there, tolerant of strangers' keys, clear about what is wrong, honest about who lives."""

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratioscope import Manifest, RunFormatError
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import (
    HEARTBEAT_SECONDS,
    INTERRUPTED_AFTER_SECONDS,
    STALLED_AFTER_SECONDS,
    library_versions,
)
from ratioscope.storage.whole_files import replace_atomically


def written(folder: Path, **fields: Any) -> dict[str, Any]:
    Manifest(name="mine", **fields).write(folder)
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def put(folder: Path, **fields: Any) -> None:
    (folder / "run.json").write_text(json.dumps({"schema_version": "1.0"} | fields), encoding="utf-8")


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    manifest = Manifest(
        name="π ≠ 'x' <b>", algorithm={"name": "grpo", "parameters": {"epsilon": 0.2}}, seed=3, tags=["a", "b"],
        planned_updates=10, notes="two\nlines", libraries={"torch": "2"},
    )  # fmt: skip
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest


def test_unknown_keys_are_kept_and_written_back(tmp_path: Path) -> None:
    put(tmp_path, name="theirs", cluster={"nodes": 4}, extra=[1], seed=None)
    manifest = Manifest.read(tmp_path)
    assert manifest.extra == {"cluster": {"nodes": 4}, "extra": [1]}
    manifest.write(tmp_path)
    contents = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert contents["cluster"] == {"nodes": 4} and contents["extra"] == [1] and contents["name"] == "theirs"
    assert Manifest.read(tmp_path) == manifest


def test_a_manifest_with_its_version_alone_is_enough(tmp_path: Path) -> None:
    put(tmp_path)
    manifest = Manifest.read(tmp_path)
    assert (manifest.name, manifest.run_id, manifest.process_id) == (tmp_path.name, tmp_path.name, 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": 3}, "field 'name' has the wrong type (int)"),
        ({"tags": "a"}, "field 'tags' has the wrong type (str)"),
        ({"algorithm": []}, "field 'algorithm' has the wrong type (list)"),
        ({"seed": "1"}, "field 'seed' has the wrong type (str)"),
        ({"seed": True}, "field 'seed' has the wrong type (bool)"),
        ({"planned_updates": 1.5}, "field 'planned_updates' has the wrong type (float)"),
        ({"process_id": None}, "field 'process_id' has the wrong type (NoneType)"),
        ({"status": "sleeping"}, "status 'sleeping' is not one of running, finished, interrupted, failed"),
        ({"schema_version": 2}, "upgrade ratioscope"),
        ({"schema_version": "one"}, "schema version 'one' is not of the form"),
    ],
)
def test_a_wrong_field_is_one_clear_sentence(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    put(tmp_path, **fields)
    with pytest.raises(RunFormatError) as caught:
        Manifest.read(tmp_path)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'run.json'}: ")


@pytest.mark.parametrize("text", ["", "{", "nothing", '{"a": 1,}', "[" * 10])
def test_what_is_not_json_is_one_clear_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunFormatError, match=r"run\.json: cannot be read as JSON \(.*\)\.$"):
        Manifest.read(tmp_path)


def test_the_run_of_another_program_is_sent_to_import(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "run.json").write_text('{"id": "x", "status": "done"}', encoding="utf-8")
    with pytest.raises(RunFormatError, match=r"program's; `ratioscope import '.*my run'` looks at its files\.$"):
        Manifest.read(folder)


@pytest.mark.parametrize(("text", "kind"), [("[]", "list"), ("3", "int"), ('"run"', "str"), ("null", "NoneType")])
def test_json_that_is_no_object_is_one_clear_sentence(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunFormatError, match=f"must hold a JSON object, it holds a {kind}"):
        Manifest.read(tmp_path)


def test_a_reader_sees_the_old_or_the_new_file_and_nothing_between(tmp_path: Path) -> None:
    manifests = [Manifest(name=letter * 200_000) for letter in "ab"]
    manifests[0].write(tmp_path)
    done = threading.Event()

    def write() -> None:
        for turn in range(40):
            manifests[turn % 2].write(tmp_path)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert len(set(Manifest.read(tmp_path).name)) == 1
    writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_atomically(tmp_path / "file", b"old")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


def dead_process() -> int:
    """The id of a process that was ours and is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def status(age: float, **fields: Any) -> str:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    manifest = Manifest(name="mine", heartbeat=(at - timedelta(seconds=age)).isoformat(), **fields)
    return manifest.live_status(at)


def test_a_run_with_a_fresh_heartbeat_is_running() -> None:
    assert status(0) == status(STALLED_AFTER_SECONDS - 1) == "running"
    assert STALLED_AFTER_SECONDS > 3 * HEARTBEAT_SECONDS


def test_a_run_that_went_silent_is_stalled_and_then_interrupted() -> None:
    assert status(STALLED_AFTER_SECONDS + 1) == status(INTERRUPTED_AFTER_SECONDS - 1) == "stalled"
    assert status(INTERRUPTED_AFTER_SECONDS + 1) == "interrupted"


def test_a_run_whose_process_is_gone_is_interrupted_at_once() -> None:
    assert status(0, process_id=dead_process()) == "interrupted"
    assert status(STALLED_AFTER_SECONDS + 1, process_id=dead_process()) == "interrupted"


def test_a_process_of_another_host_is_judged_by_its_heartbeat_alone() -> None:
    elsewhere = {"process_id": dead_process(), "host": socket.gethostname() + "-other"}
    assert status(0, **elsewhere) == "running"
    assert status(STALLED_AFTER_SECONDS + 1, **elsewhere) == "stalled"
    assert status(INTERRUPTED_AFTER_SECONDS + 1, **elsewhere) == "interrupted"


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_a_final_state_is_believed(state: str) -> None:
    assert status(10**6, status=state, process_id=dead_process()) == state


@pytest.mark.parametrize("heartbeat", ["", "yesterday"])
def test_a_run_that_never_gave_a_sign_of_life_is_interrupted(heartbeat: str) -> None:
    assert Manifest(name="mine", heartbeat=heartbeat).live_status() == "interrupted"


@pytest.mark.parametrize("process_id", [0, -1, 2**31, 2**80])
def test_a_process_id_that_cannot_be_one_is_no_crash(process_id: int) -> None:
    assert status(0, process_id=process_id) in ("running", "interrupted")


def test_versions_of_what_is_not_installed_are_left_out() -> None:
    assert library_versions("pyarrow", "no-such-distribution").keys() == {"python", "pyarrow"}


def test_writing_names_the_process_and_the_host(tmp_path: Path) -> None:
    contents = written(tmp_path)
    assert (contents["process_id"], contents["host"]) == (os.getpid(), socket.gethostname())
    assert "extra" not in contents and contents["schema_version"] == schema.SCHEMA_VERSION
