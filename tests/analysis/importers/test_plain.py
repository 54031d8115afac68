"""What a declaration can say: records of every kind of file, lists of responses, paths into objects, files beside."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, Step
from ratioscope.analysis.importers.paths import Record, at_path, at_paths
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.source import BadLine
from ratioscope.analysis.importers.values import as_number, numbers

REWARD = (("reward", "score", as_number),)


def declared(files: str, keys: tuple[str, ...] = ("score",), **more: Any) -> Plain:
    return Plain("theirs", "theirs", framework="", files=files, keys=keys, **{"sequences": REWARD, **more})


def steps_of(plain: Plain, path: Path, **reading: Any) -> list[Step]:
    assert plain.importer.describe(path) is not None
    return list(plain.importer.read(path, Reading(**reading)))


def rewards(steps: list[Step]) -> list[tuple[int, list[float]]]:
    return [(step.number, list(step.sequences["reward"])) for step in steps]


def lines(file: Path, *records: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_line_that_is_a_group_with_lists_over_whole_sequences(tmp_path: Path) -> None:
    """As Atropos writes them: -100 where the policy did not sample."""
    group = {"tokens": [[1, 2, 3], [4, 5]], "masks": [[-100, 2, 3], [4, -100]], "scores": [1, 0.5], "env": "math"}
    group["logps"] = [[0.0, -0.5, -0.25], [-1.0, 0.0]]
    plain = declared(
        r"group_(\d+)\.jsonl",
        ("tokens", "masks", "scores"),
        spread="group",
        sequences=(("reward", "scores", as_number),),
        tokens=(
            ("token_id", "tokens", np.asarray),
            ("logp_behavior", "logps", numbers),
            ("sampled", "masks", lambda masks: np.asarray(masks) != -100),
        ),
    )
    lines(tmp_path / "group_3.jsonl", group, group)
    (step,) = steps_of(plain, tmp_path)
    assert step.tokens is not None and step.number == 3
    assert step.sequences["group_id"] == [0, 0, 1, 1] and step.sequences["n_tokens"] == [2, 1, 2, 1]
    assert step.tokens["token_id"].tolist() == [2, 3, 4] * 2
    assert step.tokens["logp_behavior"].tolist() == [-0.5, -0.25, -1.0] * 2
    lines(tmp_path / "group_3.jsonl", group, group | {"scores": [1]})
    with pytest.raises(
        ImportProblem, match=r"line 2: tokens, masks, scores are not lists of one length \(2, 2, 1\)\.$"
    ):
        steps_of(plain, tmp_path)


def test_a_line_that_is_a_step_with_a_list_a_column(tmp_path: Path) -> None:
    """As ms-swift writes them; the step stands beside the lists."""
    plain = declared(r"completions\.jsonl", ("step", "score"), step="step", spread="step")
    lines(tmp_path / "completions.jsonl", {"step": 1, "score": [1, 2]}, {"step": 2, "score": [3]})
    assert rewards(steps_of(plain, tmp_path)) == [(1, [1, 2]), (2, [3])]
    assert rewards(steps_of(plain, tmp_path / "completions.jsonl", growing=True)) == [(1, [1, 2])]
    assert rewards(steps_of(plain, tmp_path, after=1)) == [(2, [3])]


def test_a_file_of_somebody_else_in_the_folder_is_left_out_and_named(tmp_path: Path) -> None:
    plain = declared(r".*\.jsonl", ("score", "said"))
    lines(tmp_path / "a.jsonl", {"loss": 1})
    lines(tmp_path / "b.jsonl", {"score": 1, "said": ""})
    reading = Reading()
    assert plain.importer.describe(tmp_path) is not None
    assert rewards(list(plain.importer.read(tmp_path, reading))) == [(0, [1])]
    wanted = f"{tmp_path / 'a.jsonl'}: is left out: its first record has no said and no score, as theirs have."
    assert reading.problems == [wanted]
    with pytest.raises(ImportProblem, match="line 1: no said and no score"):
        list(plain.importer.read(tmp_path / "a.jsonl", Reading()))
    (tmp_path / "a.jsonl").write_text("")
    assert plain.importer.describe(tmp_path) is not None
    (tmp_path / "b.jsonl").unlink()
    assert plain.importer.describe(tmp_path) is None


def test_json_parquet_and_what_a_declaration_reads_itself(tmp_path: Path) -> None:
    whole = declared(r"episodes/step_(\d+)_\d+\.json", scalars=lambda *_: {2: {"policy_version": 1}})
    for name, contents in (("1_0", {"score": 1}), ("1_1", [{"score": 2}, {"score": "3"}]), ("2_0", {"score": 4})):
        (tmp_path / "episodes").mkdir(exist_ok=True)
        (tmp_path / "episodes" / f"step_{name}.json").write_text(json.dumps(contents))
    steps = steps_of(whole, tmp_path)
    assert rewards(steps) == [(1, [1, 2, 3]), (2, [4])] and steps[1].scalars["policy_version"] == 1
    assert rewards(steps_of(whole, tmp_path, growing=True)) == [(1, [1, 2, 3])]
    (tmp_path / "episodes" / "step_2_0.json").write_text('{"score')
    with pytest.raises(ImportProblem, match=r"step_2_0\.json: not JSON, or not whole \(.*\)\.$"):
        steps_of(whole, tmp_path)

    pq.write_table(pa.table({"score": [0.5, None]}), tmp_path / "0001.parquet")
    assert rewards(steps_of(declared(r"(\d+)\.parquet"), tmp_path)) == [(1, [0.5, None])]
    (tmp_path / "0002.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportProblem, match=r"0002\.parquet: no Parquet file, or not whole"):
        steps_of(declared(r"(\d+)\.parquet"), tmp_path)

    with closing(sqlite3.connect(tmp_path / "traces.db")) as connection, connection:
        connection.execute("CREATE TABLE traces (data TEXT)")
        connection.execute("INSERT INTO traces VALUES ('{\"score\": 2}')")

    def of_store(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
        with closing(sqlite3.connect(file)) as store:
            yield from ((number, json.loads(data)) for number, data in store.execute("SELECT rowid, data FROM traces"))

    one_step = declared(r"traces\.db", read=of_store)
    assert rewards(steps_of(one_step, tmp_path / "traces.db")) == [(0, [2])]
    assert steps_of(one_step, tmp_path, growing=True) == steps_of(one_step, tmp_path, after=0) == []


def test_paths_into_a_record() -> None:
    record = {"a": {"b": 1}, "c.d": 2, "e": [{"f": [1, 2]}, {"f": None}, {}, {"f": [3]}], "g": None}
    wanted = {"a.b": 1, "c.d": 2, "e[*].f": [1, 2, 3], "g|a.b": 1, "a.b.c": None, "a[*].b": [], "none": None}
    wanted |= {"e[0].f": [1, 2], "e[-1].f[0]": 3, "e[4].f": None, "e[*].f[0]": [1, 3], "e[*].f[*]": [1, 2, 3], "": None}
    assert {path: at_path(record, path) for path in wanted} == wanted


def test_paths_into_one_list_keep_what_belongs_together() -> None:
    record = {
        "e": [{"f": 1, "g": 2}, {"g": 3}, {}, {"f": None, "h": 0}],
        "c": [{"x": [1, 2], "y": {"z": [{"p": 3}, {"p": None}]}}, {"x": [4]}, {"x": None, "y": None}],
        "n": 5,
    }
    assert at_paths(record, ["e[*].f", "e[*].g", "n"]) == {"e[*].f": [1, None], "e[*].g": [2, 3], "n": 5}
    assert at_paths(record, ["e[*].g", "none|e[*].f"]) == {"e[*].g": [2, 3], "none|e[*].f": [1, None]}
    assert at_paths(record, ["e[*].f"]) == {"e[*].f": [1, None]}  # where it stands alone, a null is a value, too
    assert at_paths(record, ["c[*].x", "c[*].y.z[*].p"]) == {"c[*].x": [1, 2, 4], "c[*].y.z[*].p": [3, None, None]}
    assert at_paths(record, ["c[*].x", "none[*].x", "none"]) == {"c[*].x": [1, 2, 4], "none[*].x": [], "none": None}
    arrays = at_paths({"c": [{"x": np.ones(2)}, {}, {"x": np.ones(1)}]}, ["c[*].x"])
    assert isinstance(arrays["c[*].x"], np.ndarray) and len(arrays["c[*].x"]) == 3
    # Of several objects, lists of other lengths would come together by chance.
    with pytest.raises(
        BadLine, match=r"entry 0 of a list has lists of different lengths \(c\[\*\]\.x 2, c\[\*\]\.y 1\)"
    ):
        at_paths({"c": [{"x": [1, 2], "y": [3]}, {"x": [4], "y": [5, 6]}]}, ["c[*].x", "c[*].y"])
    assert at_paths({"c": [{"x": [1, 2], "y": [3]}, {}]}, ["c[*].x", "c[*].y"]) == {"c[*].x": [1, 2], "c[*].y": [3]}


def test_what_the_first_record_decides(tmp_path: Path) -> None:
    plain = declared(r"(\d+)\.jsonl", told=lambda first, file: {"version": file.name} if first["score"] else None)
    lines(tmp_path / "1.jsonl", {"score": 1, "said": "a"})
    found = plain.importer.describe(tmp_path)
    assert found is not None and found.version == "1.jsonl" and found.steps == 1
    lines(tmp_path / "1.jsonl", {"score": 0})
    assert plain.importer.describe(tmp_path) is None


def test_a_key_that_cannot_be_one_is_a_sentence(tmp_path: Path) -> None:
    plain = declared(r"(\d+)\.jsonl", group=lambda record: record["task"])
    lines(tmp_path / "1.jsonl", {"score": 1, "task": "a"}, {"score": 1, "task": ["a"]}, {"score": 1})
    reading = Reading(skip_bad=True)
    assert rewards(list(plain.importer.read(tmp_path, reading))) == [(1, [1])]
    assert [problem.partition("1.jsonl, ")[2] for problem in reading.problems] == [
        "line 2: the response cannot be read: something in it is of another kind than the format has.",
        "line 3: the response cannot be read: it has no task.",
    ]
