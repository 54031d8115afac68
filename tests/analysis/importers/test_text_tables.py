"""Files with text and rewards and no tokens: TRL's completions, verl's rollouts, AReaL's dump."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import IMPORTERS, areal, completions, roll_rollouts, verl_rollouts
from tests.making.foreign import imitated_lines, imitated_miles, imitated_slime, skyrl, trinity, truth
from tests.making.foreign.reading import steps_of
from tests.making.foreign.trl import FOLDER as TRL


@pytest.fixture
def known() -> list[list[truth.Known]]:
    return truth.run()


def test_a_batch_that_trl_logs_again_is_one_batch() -> None:
    """Trap 9: the real trainer wrote six files of eight rows; with two steps a batch and two passes they are two."""
    files = sorted((TRL / "plain/completions").iterdir())
    tables = [pq.read_table(file) for file in files]
    naive = sum(table.num_rows for table in tables)
    assert tables[0].drop_columns("step").equals(tables[3].drop_columns("step"))
    steps = steps_of(completions.IMPORTER, TRL / "plain")
    assert [step.number for step in steps] == [1, 5]
    assert sum(len(step.sequences["seq_id"]) for step in steps) == 16 < naive == 48
    for step, table in zip(steps, (tables[0], tables[4]), strict=True):
        assert step.tokens is None and step.scalars["wall_time"] is None
        assert step.sequences["response"] == table["completion"].to_pylist()
        assert step.sequences["reward_length"] == table["length"].to_pylist()
        # The first batch has one prompt twice in a row, which TRL's advantages take as two groups.
        assert step.sequences["group_id"] == [0] * 4 + [1] * 4


def test_the_total_is_the_sum_only_where_advantages_say_so(tmp_path: Path) -> None:
    first = pq.read_table(TRL / "plain/completions/completions_00001.parquet")
    step = steps_of(completions.IMPORTER, TRL / "plain")[0]
    both = zip(first["length"].to_pylist(), first["holds_one"].to_pylist(), strict=True)
    assert step.sequences["reward"] == pytest.approx([one + other for one, other in both])
    # As if reward_weights had been [1, 0] in a run without the second function's part.
    changed = first.set_column(3, "length", pa.array([value**2 for value in first["length"].to_pylist()]))
    (tmp_path / "completions").mkdir()
    pq.write_table(changed, tmp_path / "completions/completions_00001.parquet")
    found = completions.IMPORTER.describe(tmp_path)
    assert found is not None and "not their weights" in found.missing["reward"]
    assert "reward" not in steps_of(completions.IMPORTER, tmp_path)[0].sequences


def test_conversations_of_trl() -> None:
    steps = steps_of(completions.IMPORTER, TRL / "chat")
    table = pq.read_table(TRL / "chat/completions/completions_00001.parquet")
    assert steps[0].sequences["prompt"][0].startswith("user: ")
    assert steps[0].sequences["response"][0] == table["completion"][0].as_py()[0]["content"]
    assert steps[0].sequences["reward"] == table["chat_length"].to_pylist()
    assert steps[0].messages is not None and steps[0].messages["role"][:2] == ["user", "assistant"]


def test_following_trl_reads_no_batch_twice(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TRL / "plain", tmp_path / "run"))
    for after in (1, 3, 4):
        assert [step.number for step in completions.IMPORTER.read(folder, Reading(after=after))] == [5]
    assert list(completions.IMPORTER.read(folder, Reading(after=5))) == []
    last = folder / "completions/completions_00006.parquet"
    last.write_bytes(last.read_bytes()[:100])
    assert [step.number for step in completions.IMPORTER.read(folder, Reading(growing=True))] == [1, 5]
    with pytest.raises(ImportProblem, match=r"completions_00006\.parquet: no Parquet file, or not whole"):
        list(completions.IMPORTER.read(folder, Reading()))


@pytest.mark.parametrize("with_uid", [True, False])
def test_rollouts_of_verl(tmp_path: Path, known: list[list[truth.Known]], with_uid: bool) -> None:
    folder = imitated_lines.verl(tmp_path / "rollouts", known, with_uid=with_uid)
    steps = steps_of(verl_rollouts.IMPORTER, folder)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, responses in zip(steps, known, strict=True):
        assert step.tokens is None
        assert step.sequences["reward"] == [one.reward for one in responses]
        assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]
        assert ("reward_acc" in step.sequences) is not with_uid and "reward_pred" not in step.sequences
    assert [step.number for step in verl_rollouts.IMPORTER.read(folder, Reading(after=1, growing=True))] == [2]


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": step} for step in range(3)],
        [{"step": 1}],
        [{"step": 0, "token_ids": [1, 2], "sampler_logprobs": [-0.1, -0.2]}],
    ],
)
def test_a_log_of_somebodys_own_is_not_taken_for_that_of_verl(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """verl writes a file a step, with the step in its name and in each row, and no tokens."""
    lines = [json.dumps({"input": "q", "output": "a", "score": 1.0, "gts": None} | row) + "\n" for row in rows]
    (tmp_path / "0.jsonl").write_text("".join(lines))
    assert verl_rollouts.IMPORTER.describe(tmp_path) is None


def test_a_line_of_verl_without_a_score(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_lines.verl(tmp_path / "rollouts", known)
    with (folder / "2.jsonl").open("a") as file:
        file.write('{"input": "a", "output": "b"}\n')
    with pytest.raises(ImportProblem, match=r"2\.jsonl, line 7: no score and no step\.$"):
        list(verl_rollouts.IMPORTER.read(folder, Reading()))


def test_versions_and_turns_of_areal(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    steps = steps_of(areal.IMPORTER, imitated_lines.areal(tmp_path / "dump", known))
    assert [step.number for step in steps] == [1, 2, 3]
    sequences, first = steps[1].sequences, known[1][0]
    assert (sequences["behavior_version_min"][0], sequences["behavior_version_max"][0]) == (1, 2)
    assert sequences["n_tokens"] == [int(one.mask.sum()) for one in known[1]]
    assert sequences["group_id"] == [one.group for one in known[1]]
    assert steps[1].messages is not None
    assert steps[1].messages["role"] == ["user", "assistant", "tool", "assistant"]
    assert steps[1].messages["first_position"] == [None, 0, None, 3]
    assert sequences["n_turns"][0] == 2 and steps[1].tokens is None
    assert int(first.mask.sum()) < len(first.ids)


def test_a_prompt_has_no_version(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """AReaL 1.0.4 takes the smallest version of all tokens, and those of the prompt have -1."""
    folder = imitated_lines.areal(tmp_path / "dump", known, wheel=True)
    sequences = steps_of(areal.IMPORTER, folder)[1].sequences
    assert "behavior_version_min" not in sequences and sequences["behavior_version_max"] == [2] * 6
    assert sequences["n_tokens"] == [int(one.mask.sum()) for one in known[1]]
    found = areal.IMPORTER.describe(folder)
    assert found is not None and "-1" in found.missing["behavior_version_min"]


def test_rollouts_of_roll(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_lines.roll_rollouts(tmp_path / "dump", known)
    steps = steps_of(roll_rollouts.IMPORTER, folder)
    assert [step.number for step in steps] == [0, 1, 2]
    sequences = steps[0].sequences
    assert sequences["reward"] == [one.reward for one in known[0]] and steps[0].tokens is None
    assert sequences["group_id"] == [0, 0, 1, 1, 2, 2] and sequences["environment"][:3] == ["math", "math", "code"]
    (folder / "rollout_dump_data.step_1.jsonl").write_text(
        '{"global_step": [1], "responses": ["a", "b"], "scores": [1]}\n'
    )
    with pytest.raises(
        ImportProblem, match=r"step_1\.jsonl, line 1: global_step, responses, scores are not lists of one"
    ):
        list(roll_rollouts.IMPORTER.read(folder, Reading()))


def test_no_importer_claims_what_another_wrote(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    places = {
        "slime": imitated_slime.write(tmp_path / "slime", known),
        "miles": imitated_miles.write(tmp_path / "miles", known),
        "skyrl": skyrl.FOLDER,
        "trinity": trinity.FOLDER,
        "logging-board": imitated_lines.roll(tmp_path / "roll", known),
        "roll-rollouts": imitated_lines.roll_rollouts(tmp_path / "rollouts", known),
        "areal": imitated_lines.areal(tmp_path / "areal", known),
        "verl-rollouts": imitated_lines.verl(tmp_path / "verl", known),
        "trl-completions": TRL / "plain",
    }
    for name, place in places.items():
        assert [importer.name for importer in IMPORTERS if importer.describe(place) is not None] == [name], place
