"""slime's dumps: what was sampled and what was trained on become the same responses."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import miles, slime
from tests.making.foreign import imitated_slime, truth
from tests.making.foreign.reading import assert_tokens, column, steps_of


@pytest.fixture
def known() -> list[list[truth.Known]]:
    return truth.run()


def test_every_column_is_that_of_the_run(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    steps = steps_of(slime.IMPORTER, imitated_slime.write(tmp_path / "dump", known))
    assert [step.number for step in steps] == [0, 1, 2]
    for step, responses in zip(steps, known, strict=True):
        assert_tokens(
            step,
            responses,
            token_id="ids",
            logp_behavior="sampler",
            logp_current="current",
            logp_reference="reference",
            entropy="entropy",
        )
        assert step.tokens is not None and "logp_gate" not in step.tokens and "logp_new" not in step.tokens
        sequences = step.sequences
        assert sequences["group_id"] == [one.group for one in responses]
        assert sequences["reward"] == [one.reward for one in responses]
        assert sequences["finish_reason"][:2] == ["stop", "length"] and sequences["truncated"][:2] == [False, True]
        assert sequences["rank"] == [0, 1] * 3
        assert sequences["n_turns"] == [2, 1, 1, 1, 1, 1]
        assert sequences["prompt_tokens"] == [len(one.prompt_ids) for one in responses]
        assert step.scalars["wall_time"] is None


def test_a_teacher_and_an_end_by_somebody_are_read(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known[:1])
    sampled, trained = (torch.load(folder / name / "0.pt") for name in ("rollout_data", "train_data"))
    sampled["samples"][1]["status"] = "aborted"
    for row in trained["samples"]:
        row["teacher_log_probs"] = row["ref_log_probs"] - 0.25
    torch.save(sampled, folder / "rollout_data/0.pt")
    torch.save(trained, folder / "train_data/0.pt")
    (step,) = steps_of(slime.IMPORTER, folder)
    assert step.sequences["failure"] == [None, "aborted"] + [None] * (len(known[0]) - 2)
    np.testing.assert_allclose(
        column(step, "logp_teacher", 1), column(step, "logp_reference", 1) - 0.25, rtol=0, atol=1e-6
    )


def test_placeholders_of_tools_are_no_tokens(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Trap 3: samplers write 0.0 where a tool spoke, which is the log-probability of a certain token."""
    folder = imitated_slime.write(tmp_path / "dump", known)
    logged = torch.load(folder / "rollout_data/0.pt")["samples"][0]["rollout_log_probs"]
    naive = np.exp(logged).mean()
    right = np.exp(column(steps_of(slime.IMPORTER, folder)[0], "logp_behavior", 0)).mean()
    assert (np.exp(logged) == 1).sum() == 2
    assert naive > right + 0.05
    assert not (column(steps_of(slime.IMPORTER, folder)[0], "logp_behavior", 0) == 0).any()


def test_a_removed_sample_keeps_its_values_and_says_so(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Trap 6: its mask is zero in the training data, where it would vanish."""
    step = steps_of(slime.IMPORTER, imitated_slime.write(tmp_path / "dump", known))[0]
    last = len(known[0]) - 1
    assert step.sequences["dropped"] == [None] * last + ["remove_sample"]
    assert set(column(step, "rejected", last)) == {"remove_sample"}
    assert set(column(step, "rejected", 1)) == {None}
    assert len(column(step, "logp_current", last)) == len(known[0][last].ids)


def test_versions_are_numbers_a_turn(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Trap 13: versions are text, one a generated message; as text, "10" is older than "9"."""
    for response in known[2]:
        response.versions = [str(int(version) + 7) for version in response.versions]
    step = steps_of(slime.IMPORTER, imitated_slime.write(tmp_path / "dump", [known[2]], first=9))[0]
    assert max(known[2][0].versions) == "9"
    assert step.sequences["behavior_version_max"][0] == 10
    mask = known[2][0].mask
    assert column(step, "behavior_version", 0).tolist() == [9] * 3 + [10] * int(mask[3:].sum())
    assert step.scalars["policy_version"] == 10


def test_a_counter_that_goes_back_gives_no_ages(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Trap 13: a resumed run counts its weight versions anew; the difference to the step would be a false age."""
    for response in known[2]:
        response.versions = ["1"] * len(response.versions)
    folder = imitated_slime.write(tmp_path / "dump", known)
    steps = steps_of(slime.IMPORTER, folder)
    naive_age = (2 + 1) - steps[2].sequences["behavior_version_min"][1]
    assert naive_age == 2
    assert all("policy_version" not in step.scalars for step in steps)
    found = slime.IMPORTER.describe(folder)
    assert found is not None and "counted anew" in found.missing["policy_version"]


def test_versions_that_are_no_numbers_are_not_logged(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    for response in known[0]:
        response.versions = ["default"] * len(response.versions)
    step = steps_of(slime.IMPORTER, imitated_slime.write(tmp_path / "dump", known[:1]))[0]
    assert step.tokens is not None and "behavior_version" not in step.tokens


def test_only_what_was_sampled(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known)
    for file in (folder / "train_data").iterdir():
        file.unlink()
    found = slime.IMPORTER.describe(folder)
    assert found is not None and "no training data" in found.missing["logp_current"]
    step = steps_of(slime.IMPORTER, folder)[0]
    assert_tokens(step, known[0], logp_behavior="sampler")
    assert step.tokens is not None and "logp_current" not in step.tokens
    assert step.sequences["reward"] == [one.reward for one in known[0]]


def test_only_what_was_trained_on(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known)
    for file in (folder / "rollout_data").iterdir():
        file.unlink()
    step = steps_of(slime.IMPORTER, folder / "train_data")[0]
    assert_tokens(step, known[0][:-1], logp_current="current", logp_behavior="sampler")
    assert "group_id" not in step.sequences and step.sequences["reward"] == [one.reward for one in known[0]]


def test_a_folder_of_any_name(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """As --save-debug-rollout-data path/rollout_{rollout_id}.pt writes it, and the training data's switch."""
    folder = imitated_slime.write(tmp_path / "dump", known)
    for file in (folder / "rollout_data").iterdir():
        file.rename(file.with_stem(f"rollout_{file.stem}"))
    sampled, trained = (folder / "rollout_data").rename(tmp_path / "a"), (folder / "train_data").rename(tmp_path / "b")
    assert_tokens(steps_of(slime.IMPORTER, sampled)[2], known[2], logp_behavior="sampler")
    assert_tokens(steps_of(slime.IMPORTER, trained)[2], known[2][:-1], logp_current="current")
    torch.save({"model": {"weight": torch.ones(2)}}, tmp_path / "100.pt")  # somebody's checkpoint
    assert slime.IMPORTER.describe(tmp_path) is None


def test_a_reward_of_parts(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known[:1])
    payload = torch.load(folder / "rollout_data/0.pt")
    for sample in payload["samples"]:
        sample["reward"] = {"score": sample["reward"], "style": 0.5, "judge": "fine"}
    torch.save(payload, folder / "rollout_data/0.pt")
    sequences = steps_of(slime.IMPORTER, folder)[0].sequences
    assert sequences["reward_style"] == [0.5] * 6 and "reward_judge" not in sequences
    assert sequences["reward"] == sequences["reward_score"]  # raw_reward of the training data


def test_growing_dumps_wait_for_the_training(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known)
    (folder / "train_data/2.pt").unlink()
    assert [step.number for step in slime.IMPORTER.read(folder, Reading(growing=True))] == [0, 1]
    whole = (folder / "train_data/1.pt").read_bytes()
    (folder / "train_data/2.pt").write_bytes(whole[: len(whole) // 2])
    assert [step.number for step in slime.IMPORTER.read(folder, Reading(growing=True, after=0))] == [1]
    with pytest.raises(ImportProblem, match=r"2\.pt: no file of torch, or not whole"):
        list(slime.IMPORTER.read(folder, Reading()))


def test_the_two_are_told_apart_and_others_are_neither(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_slime.write(tmp_path / "dump", known[:1])
    assert miles.IMPORTER.describe(folder) is None
    (tmp_path / "other/train_data").mkdir(parents=True)
    torch.save([1, 2], tmp_path / "other/train_data/3.pt")
    for path in (tmp_path, tmp_path / "other", tmp_path / "nothing", folder / "train_data/0.pt"):
        assert slime.IMPORTER.describe(path) is None
