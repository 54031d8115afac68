"""Trinity-RFT's explorer database, as its own package wrote it (tests/making/foreign/trinity.py)."""

import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import trinity
from tests.making.foreign import truth
from tests.making.foreign.reading import assert_tokens, column, steps_of
from tests.making.foreign.trinity import FOLDER

DATABASE = FOLDER / "buffer/explorer_output.db"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATABASE, tmp_path / "explorer_output.db"))


def change(database: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement, values)
        connection.commit()


def blob(row: int) -> bytes:
    with closing(sqlite3.connect(DATABASE)) as connection:
        return connection.execute("SELECT experience_bytes FROM pipeline_input_blob WHERE id = ?", (row,)).fetchone()[0]


@pytest.mark.parametrize("path", [FOLDER, FOLDER / "buffer", DATABASE])
def test_every_column_is_that_of_the_run(path: Path) -> None:
    known = truth.run(updates=3)
    steps = steps_of(trinity.IMPORTER, path)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, responses in zip(steps, known, strict=True):
        assert_tokens(step, responses, token_id="ids", logp_behavior="sampler")
        assert step.tokens is not None and "logp_current" not in step.tokens
        assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]
        assert step.sequences["reward"] == [one.reward for one in responses]
        assert step.sequences["prompt_tokens"] == [len(one.prompt_ids) for one in responses]
        assert step.sequences["prompt"][1] == responses[1].prompt
        assert step.sequences["truncated"][1]
        assert step.scalars["policy_version"] == step.number - 1
        assert column(step, "behavior_version", 1).tolist() == [step.number - 1] * len(responses[1].ids)


def test_the_log_probabilities_end_the_tokens() -> None:
    """Trap 2: they cover the response alone; laid against the tokens from the first on, they are those of others."""
    known = truth.run(updates=1)[0][1]
    tensors, meta = trinity._unpacked(blob(2), "row 2", DATABASE, Reading())
    assert len(tensors["tokens"]) - len(tensors["logprobs"]) == meta["prompt_length"] == len(known.prompt_ids)
    naive = tensors["tokens"][: len(tensors["logprobs"])]
    step = steps_of(trinity.IMPORTER, FOLDER)[0]
    assert naive.tolist() != known.ids
    assert column(step, "token_id", 1).tolist() == known.ids


def test_tools_and_messages() -> None:
    step = steps_of(trinity.IMPORTER, FOLDER)[0]
    one = truth.run(updates=1)[0][0]
    assert (one.placeheld(one.sampler) == 0).sum() == 2  # trap 3: placeholders in the file
    assert not (column(step, "logp_behavior", 0) == 0).any()
    assert column(step, "turn", 0).tolist() == [1] * 3 + [3] * int(one.mask[3:].sum())
    assert step.messages is not None and step.messages["role"] == ["user", "assistant", "tool", "assistant"]
    assert step.sequences["prompt"][0] == f"user: {one.prompt}"


def test_the_teacher_of_a_distillation_is_read() -> None:
    experience = pytest.importorskip("trinity.common.experience")
    given = {"tokens": [1, 2, 3, 4], "prompt_length": 2, "logprobs": [-0.1, -0.2], "teacher_logprobs": [-0.3, -0.4]}
    written = experience.Experience(eid=experience.EID(batch=1, task=0, run=0), **given)
    tensors, meta = trinity._unpacked(
        experience.Experience.serialize_many([written]), "row 1", Path("explorer_output.db"), Reading()
    )
    values = trinity._response(tensors, meta, 0, 1.0).values
    np.testing.assert_allclose(values["logp_teacher"], [-0.3, -0.4])
    assert values["token_id"].tolist() == [3, 4]


def test_weights_that_changed_while_a_task_ran_give_a_range() -> None:
    """Which of its tokens each version sampled, the file does not say."""
    step = steps_of(trinity.IMPORTER, FOLDER)[1]
    assert (step.sequences["behavior_version_min"][0], step.sequences["behavior_version_max"][0]) == (0, 1)
    assert np.isnan(column(step, "behavior_version", 0)).all()


def test_following_reads_what_is_new() -> None:
    assert [step.number for step in trinity.IMPORTER.read(FOLDER, Reading(after=1))] == [2, 3]
    assert [step.number for step in trinity.IMPORTER.read(FOLDER, Reading(after=1, growing=True))] == [2]
    assert [step.number for step in trinity.IMPORTER.read(FOLDER, Reading(after=3))] == []


def test_a_trap_in_the_metadata_never_goes_off(database: Path, tmp_path: Path) -> None:
    """Trap 15: the metadata are a pickle, which Trinity's own reader loads."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "gone off"), "w")

    data = blob(1)
    magic, version, size, tensors = trinity._HEADER.unpack_from(data)
    meta = pickle.loads(data[trinity._HEADER.size : trinity._HEADER.size + size])
    meta["items"][0]["metrics"] = Trap()
    pickled = pickle.dumps(meta)
    header = trinity._HEADER.pack(magic, version, len(pickled), tensors)
    changed = header + pickled + data[trinity._HEADER.size + size :]
    change(database, "UPDATE pipeline_input_blob SET experience_bytes = ? WHERE id = 1", changed)
    with pytest.raises(ImportProblem, match=r"row 1 has objects beside text and numbers .*--allow-pickle"):
        list(trinity.IMPORTER.read(database, Reading()))
    assert [step.number for step in trinity.IMPORTER.read(database, Reading(unpickle=True))] == [1, 2, 3]
    assert not (tmp_path / "gone off").exists()


def test_rows_of_earlier_versions_need_leave() -> None:
    legacy = FOLDER / "legacy.db"
    found = trinity.IMPORTER.describe(legacy)
    assert found is not None and "before 0.6" in found.unpickles
    with pytest.raises(ImportProblem, match=r"row 1 is a pickle, .*--allow-pickle"):
        list(trinity.IMPORTER.read(legacy, Reading()))
    (step,) = trinity.IMPORTER.read(legacy, Reading(unpickle=True))
    assert_tokens(step, truth.run(updates=1)[0][:2], token_id="ids", logp_behavior="sampler")


def test_what_is_damaged_is_said_with_its_row(database: Path) -> None:
    change(database, "UPDATE pipeline_input_blob SET experience_bytes = ? WHERE id = 2", blob(2)[:-9])
    change(database, "DELETE FROM pipeline_input_blob WHERE id = 3")
    with pytest.raises(ImportProblem, match=r"explorer_output\.db: row 2 cannot be read: its blob is not whole\.$"):
        list(trinity.IMPORTER.read(database, Reading()))
    reading = Reading(skip_bad=True)
    steps = list(trinity.IMPORTER.read(database, reading))
    assert [len(step.sequences["seq_id"]) for step in steps] == [4, 6, 6]
    assert [problem.split(": ")[1] for problem in reading.problems] == [
        "row 2 cannot be read",
        "row 3 has no blob.",
    ]


def test_batches_that_go_back_are_said(database: Path) -> None:
    change(database, "UPDATE pipeline_input_blob SET experience_bytes = ? WHERE id = 18", blob(1))
    with pytest.raises(ImportProblem, match="row 18: batch 1 comes after batch 3"):
        list(trinity.IMPORTER.read(database, Reading()))


def test_other_databases_are_not_claimed(tmp_path: Path) -> None:
    other = tmp_path / "explorer_output.db"
    change(other, "CREATE TABLE something (id INTEGER)")
    (tmp_path / "text.db").write_text("hello")
    for path in (other, tmp_path, tmp_path / "text.db", tmp_path / "nothing"):
        assert trinity.IMPORTER.describe(path) is None
