"""Writing a source as a run: whole or not at all, continued, only what is new, followed; what is found where."""

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest, RunRecorder
from ratioscope.analysis.importers import Description, Importer, ImportProblem, Reading, Step
from ratioscope.analysis.importers.detect import FoundSource
from ratioscope.analysis.importers.mapping import importer_of
from ratioscope.analysis.importers.source import StepStart
from ratioscope.analysis.importers.vocabulary import token_texts
from ratioscope.analysis.importers.writing import Imported, Options, follow_run, import_run
from ratioscope.analysis.runs.store import discover, open_run
from ratioscope.errors import RatioscopeError
from tests.analysis.importers.layouts import COLUMNS

MAPPING = f'step = "k"\n[tokens]\nfiles = "*.jsonl"{COLUMNS}'


def line(step: int, number: int, n: int = 5) -> str:
    rng = np.random.default_rng([step, number])
    values = {"ids": rng.integers(0, 50, n), "mu": -rng.exponential(size=n), "old": -rng.exponential(size=n)}
    row = {"k": step, "uid": number // 2, "score": float(step)} | {name: each.tolist() for name, each in values.items()}
    return json.dumps(row) + "\n"


def write(folder: Path, steps: Any, each: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.jsonl").open("a") as file:
        file.writelines(line(step, number) for step in steps for number in range(each))
    return folder


def found_in(folder: Path, mapping: str = MAPPING) -> FoundSource:
    file = folder.parent / "mapping.toml"
    file.write_text(mapping)
    importer = importer_of(file)
    description = importer.describe(folder)
    assert description is not None
    return FoundSource(importer, description, description.path)


def rewards(folder: Path) -> list[float]:
    return list(open_run(folder).read("sequences", ["reward"])["reward"])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_says_where_it_is_from_and_its_times_are_not_those_of_the_import(tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(3))
    os.utime(source / "log.jsonl", (1e9, 1e9))
    before = everything(source)
    found = found_in(source, MAPPING + "[run]\nframework = 'mine'\nversion = '2'\nseed = 3\n")
    done = import_run(found, tmp_path / "runs" / "a", Options())
    assert (done.steps, done.responses, done.tokens, done.last_step) == (3, 12, 60, 2)
    assert done.bytes_read >= (source / "log.jsonl").stat().st_size
    run = open_run(tmp_path / "runs" / "a")
    assert (run.status, run.problems, run.manifest.seed) == ("finished", (), 3)
    assert run.manifest.source == {
        "framework": "mine", "version": "2", "path": str(source), "format": found.importer.name
    }  # fmt: skip
    assert run.manifest.producer == {"name": "mine", "version": "2"}
    assert run.manifest.created == "2001-09-09T01:46:40.000+00:00"
    assert any("oldest file" in sentence for sentence in run.manifest.assumed)
    assert "logp_new" in run.manifest.missing
    assert run.read("steps")["wall_time"].isna().all()
    assert rewards(run.folder) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4
    assert everything(source) == before
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a"]


def test_again_brings_only_what_is_new(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"
    import_run(found, folder, Options())
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    again = import_run(found, folder, Options())
    assert (again.steps, again.continued) == (0, True)
    write(tmp_path / "theirs", [2, 3])
    more = import_run(found, folder, Options())
    assert (more.steps, more.last_step, more.continued) == (2, 3, True)
    assert rewards(folder) == [float(step) for step in range(4) for _ in range(4)]
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert open_run(folder).status == "finished"


def test_a_run_of_something_else_or_a_step_that_has_changed_is_one_sentence(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"
    import_run(found, folder, Options())
    other = found_in(write(tmp_path / "others", range(2)))
    with pytest.raises(RatioscopeError, match=r"holds a run made of .*theirs .*choose another name"):
        import_run(other, folder, Options())
    with (tmp_path / "theirs" / "log.jsonl").open("a") as file:
        file.write(line(1, 9))  # step 1 was not whole when it was imported
    before = everything(folder)
    with pytest.raises(RatioscopeError, match=r"step 1 had 4 responses when it was imported and has 5"):
        import_run(found, folder, Options())
    assert everything(folder) == before
    with RunRecorder(tmp_path / "runs" / "own", name="own"):
        pass
    with pytest.raises(RatioscopeError, match="holds a run that was not imported"):
        import_run(found, tmp_path / "runs" / "own", Options())
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "runs" / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(RatioscopeError, match="something else is there"):
        import_run(found, tmp_path / "runs" / "mine", Options())
    with pytest.raises(RatioscopeError, match="in which nothing is written"):
        import_run(found, tmp_path / "theirs" / "runs" / "a", Options())
    assert (tmp_path / "runs" / "mine" / "thesis.txt").read_text() == "x"


@pytest.mark.parametrize("place", [0, 6, 11])
def test_after_an_error_nothing_is_left(tmp_path: Path, place: int) -> None:
    source = write(tmp_path / "theirs", range(3))
    lines = (source / "log.jsonl").read_text().splitlines(keepends=True)
    lines[place] = lines[place][:40] + "\n"
    (source / "log.jsonl").write_text("".join(lines))
    folder = tmp_path / "runs" / "a"
    with pytest.raises(ImportProblem, match=rf"log\.jsonl, line {place + 1}: not JSON"):
        import_run(found_in(source), folder, Options())
    assert [*(tmp_path / "runs").iterdir()] == []
    done = import_run(found_in(source), folder, Options(skip_bad=True))
    assert len(done.problems) == 1 and done.responses == 11
    assert open_run(folder).status == "finished"


def test_a_source_with_nothing_in_it_makes_no_run(tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(1))
    found = found_in(source)
    (source / "log.jsonl").write_text("")
    with pytest.raises(ImportProblem, match="not one step"):
        import_run(found, tmp_path / "runs" / "a", Options())
    assert [*(tmp_path / "runs").iterdir()] == []


def test_what_does_not_fit_the_run_format_is_said_of_the_source(tmp_path: Path) -> None:
    found = found_in(write(tmp_path / "theirs", range(1)), MAPPING + '\nn_turns = "old[0]"\n')
    with pytest.raises(ImportProblem, match=r"theirs: Column n_turns .* cannot be stored as int"):
        import_run(found, tmp_path / "runs" / "a", Options())
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_step_that_does_not_fit_the_run_format_is_left_out_where_bad_ones_are(tmp_path: Path) -> None:
    log = write(tmp_path / "theirs", range(2)) / "log.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(row | {"turns": 1 << 40 * row["k"]}) + "\n" for row in rows))
    found = found_in(log.parent, MAPPING + '\nn_turns = "turns"\n')
    done = import_run(found, tmp_path / "runs" / "a", Options(skip_bad=True))
    assert done.steps == 1 and len(done.problems) == 1
    assert "theirs: step 1 is left out (Column n_turns of the sequences table" in done.problems[0]


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), MemoryError(), sqlite3.DatabaseError("malformed")])
def test_what_an_importer_did_not_count_on_is_a_sentence(tmp_path: Path, error: Exception) -> None:
    def read(path: Path, reading: Reading) -> Iterator[Step]:
        raise error
        yield

    found = found_in(write(tmp_path / "theirs", range(1)))
    found = replace(found, importer=replace(found.importer, read=read))
    with pytest.raises(ImportProblem, match=rf"theirs: cannot be read \({str(error) or 'MemoryError'}\)\.$"):
        import_run(found, tmp_path / "runs" / "a", Options())
    assert [*(tmp_path / "runs").iterdir()] == []


@pytest.mark.parametrize("follow", [False, True])
def test_an_import_that_another_one_has_just_begun_is_left_alone(tmp_path: Path, follow: bool) -> None:
    found = found_in(write(tmp_path / "theirs", range(2)))
    begun = tmp_path / "runs" / ".a.importing"
    begun.mkdir(parents=True)
    with pytest.raises(RatioscopeError, match="another import into it is beginning"):
        (followed if follow else imported)(found, tmp_path / "runs" / "a")
    assert begun.is_dir()
    os.utime(begun, (0, 0))  # what died before it wrote anything
    assert (followed if follow else imported)(found, tmp_path / "runs" / "a").steps == 2
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_name_that_is_taken_meanwhile_is_a_sentence(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"

    def take(so_far: Imported) -> None:
        (folder / "other").mkdir(parents=True, exist_ok=True)

    with pytest.raises(RatioscopeError, match=r"runs/a: cannot be used \(Directory not empty\)\.$"):
        import_run(found, folder, Options(), take)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def followed(found: FoundSource, folder: Path) -> Imported:
    return follow_run(found, folder, Options(), every=0.01, quiet=0.1)


def imported(found: FoundSource, folder: Path) -> Imported:
    return import_run(found, folder, Options())


@pytest.mark.parametrize("go_on", [imported, followed])
def test_an_import_that_was_interrupted_is_not_listed_and_is_continued(
    tmp_path: Path, go_on: Callable[[FoundSource, Path], Imported]
) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(6))), tmp_path / "runs" / "a"

    def interrupt(so_far: Imported) -> None:
        if so_far.last_step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_run(found, folder, Options(), interrupt)
    assert not folder.exists() and discover([tmp_path / "runs"]) == []
    done = go_on(found, folder)
    assert (done.steps, done.continued) == (3, True)
    assert rewards(folder) == [float(step) for step in range(6) for _ in range(4)]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_kill_leaves_nothing_that_is_listed_and_the_same_command_continues(tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(400), each=40)
    (tmp_path / "mapping.toml").write_text(MAPPING)
    command = [
        sys.executable, "-P", "-m", "ratioscope", "import", str(source), "--mapping", str(tmp_path / "mapping.toml"),
        "--to", str(tmp_path / "runs"), "--name", "a",
    ]  # fmt: skip
    hidden = tmp_path / "runs" / ".a.importing"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not [*hidden.glob("steps/*.parquet")] and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL  # else it was over before it could be killed
    assert discover([tmp_path / "runs"]) == []
    done = import_run(found_in(source), tmp_path / "runs" / "a", Options())
    assert done.continued and 0 < done.steps < 400
    assert rewards(tmp_path / "runs" / "a") == [float(step) for step in range(400) for _ in range(40)]


def test_a_half_import_of_something_else_is_removed_and_one_that_runs_is_not(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"
    with RunRecorder(tmp_path / "runs" / ".a.importing", source={"path": "elsewhere", "format": "x"}) as running:
        with pytest.raises(RatioscopeError, match="is importing this at the moment"):
            import_run(found, folder, Options())
        assert running.folder.exists()
    assert import_run(found, folder, Options()).steps == 2
    assert not running.folder.exists()


def test_a_source_that_grows_is_followed_and_its_last_step_waits(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"
    seen: list[tuple[int, str]] = []
    grown = threading.Event()

    def tell(so_far: Imported) -> None:
        if so_far.last_step == 0 and not grown.is_set():
            seen.append((so_far.last_step, Manifest.read(folder).live_status()))
            grown.set()
            write(tmp_path / "theirs", [2])
            with (tmp_path / "theirs" / "log.jsonl").open("a") as file:
                file.write(line(3, 0)[:20])  # being written
        elif so_far.last_step == 1 and len(seen) == 1:
            seen.append((so_far.last_step, Manifest.read(folder).live_status()))
            with (tmp_path / "theirs" / "log.jsonl").open("a") as file:
                file.write(line(3, 0)[20:])

    done = follow_run(found, folder, Options(), every=0.05, quiet=3.0, tell=tell)
    assert seen == [(0, "running"), (1, "running")]
    assert (done.steps, done.last_step) == (4, 3)
    assert open_run(folder).status == "finished"
    assert rewards(folder) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4 + [3.0]


def test_a_source_that_has_been_quiet_for_long_is_not_waited_for(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(2))), tmp_path / "runs" / "a"
    os.utime(tmp_path / "theirs" / "log.jsonl", (1e9, 1e9))
    assert follow_run(found, folder, Options(), every=900, quiet=1800).steps == 2
    assert open_run(folder).status == "finished"


def test_each_look_at_a_source_that_grows_begins_where_the_last_one_came_to(tmp_path: Path) -> None:
    """Bytes are read once but for the step that waits; a file that was written anew is read anew."""
    source = write(tmp_path / "theirs", range(20))
    importer, file = found_in(source).importer, source / "log.jsonl"
    places: dict[Path, list[StepStart]] = {}

    def look(after: int) -> tuple[list[int], int]:
        reading = Reading(after=after, growing=True, places=places)
        return [step.number for step in importer.read(source, reading)], reading.bytes_read

    steps, size = look(-1)
    assert steps == list(range(19)) and size >= file.stat().st_size
    write(source, [20, 21])
    steps, size = look(18)
    assert steps == [19, 20] and size < file.stat().st_size / 4
    assert [place.step for place in places[file]] == [19, 20, 21]
    file.write_text("\n" * 7 + "".join(line(step, 0) for step in range(30)))
    assert look(20)[0] == list(range(21, 29))
    file.write_text("".join(line(step, 0) for step in (31, 32)))
    assert look(28)[0] == [31]


def test_following_that_is_ended_goes_on_where_it_stopped(tmp_path: Path) -> None:
    found, folder = found_in(write(tmp_path / "theirs", range(3))), tmp_path / "runs" / "a"

    def interrupt(so_far: Imported) -> None:
        if so_far.last_step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow_run(found, folder, Options(), every=0.05, quiet=9, tell=interrupt)
    assert open_run(folder).status == "interrupted" and rewards(folder) == [0.0] * 4 + [1.0] * 4
    write(tmp_path / "theirs", [3])
    assert import_run(found, folder, Options()).steps == 2
    assert rewards(folder) == [float(step) for step in range(4) for _ in range(4)]


def test_a_bad_line_ends_following_with_its_sentence(tmp_path: Path) -> None:
    source, folder = write(tmp_path / "theirs", range(2)), tmp_path / "runs" / "a"
    with (source / "log.jsonl").open("a") as file:
        file.write("{\n" + line(2, 0))
    with pytest.raises(ImportProblem, match="line 9: not JSON"):
        follow_run(found_in(source), folder, Options(), every=0.01, quiet=9)
    run = open_run(folder)
    assert run.status == "interrupted" and "line 9" in run.manifest.status_reason
    done = follow_run(found_in(source), folder, Options(skip_bad=True), every=0.01, quiet=0.1)
    assert len(done.problems) == 1 and rewards(folder) == [0.0] * 4 + [1.0] * 4 + [2.0]


# Pickles --------------------------------------------------------------------------------------------------------------


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_unpickled_without_leave(tmp_path: Path) -> None:
    source, sprung = tmp_path / "theirs", tmp_path / "sprung"
    source.mkdir()
    (source / "batch.pkl").write_bytes(pickle.dumps(Trap(sprung)))

    def read(path: Path, reading: Reading) -> Iterator[Step]:
        assert reading.unpickle
        pickle.loads((path / "batch.pkl").read_bytes())
        yield Step(0, {"seq_id": [0]})

    description = Description("x", "x", source, unpickles="its batches are pickles")
    found = FoundSource(Importer("x", "x", lambda path: description, read), description, description.path)
    with pytest.raises(RatioscopeError, match=r"its batches are pickles; .* runs whatever code .* --allow-pickle"):
        import_run(found, tmp_path / "runs" / "a", Options())
    with pytest.raises(RatioscopeError, match="--allow-pickle"):
        follow_run(found, tmp_path / "runs" / "a", Options(), every=1, quiet=1)
    assert not sprung.exists() and not (tmp_path / "runs").exists()
    import_run(found, tmp_path / "runs" / "a", Options(unpickle=True))
    assert sprung.exists()


def test_texts_of_tokens_come_from_a_tokenizer_in_a_folder(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[UNK]": 0, **{f"w{number}": number for number in range(1, 40)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]").save_pretrained(tmp_path / "tokenizer")
    texts = token_texts(str(tmp_path / "tokenizer"))
    assert [texts(token) for token in (1, 39, 40, -1)] == ["w1", "w39", "<40>", "<-1>"]
    import_run(found_in(write(tmp_path / "theirs", range(1))), tmp_path / "runs" / "a", Options(texts=texts))
    vocabulary = open_run(tmp_path / "runs" / "a").vocabulary()
    ids = set(pq.read_table(tmp_path / "runs" / "a" / "tokens")["token_id"].to_pylist())
    assert vocabulary.keys() == ids and vocabulary[max(ids)] in {f"w{max(ids)}", f"<{max(ids)}>"}
    (tmp_path / "none").mkdir()
    with pytest.raises(RatioscopeError, match="no tokenizer can be read there"):
        token_texts(str(tmp_path / "none"))


def test_a_step_that_goes_back_is_a_problem_of_the_source(tmp_path: Path) -> None:
    found = found_in(write(tmp_path / "theirs", range(1)))
    steps = [Step(1, {"seq_id": [0]}), Step(1, {"seq_id": [0]})]
    wrong = FoundSource(replace(found.importer, read=lambda path, reading: iter(steps)), found.description, found.place)
    with pytest.raises(ImportProblem, match="step 1 comes after step 1"):
        import_run(wrong, tmp_path / "runs" / "a", Options())
