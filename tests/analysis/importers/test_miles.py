"""miles's dumps: the ranks' shares become whole responses, each once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import miles, slime
from tests.making.foreign import imitated_miles, truth
from tests.making.foreign.reading import assert_tokens, column, steps_of


@pytest.fixture
def known() -> list[list[truth.Known]]:
    return truth.run()


@pytest.mark.parametrize(("slices", "copies"), [(1, 1), (2, 2), (3, 1)])
def test_every_column_is_that_of_the_run(tmp_path: Path, slices: int, copies: int) -> None:
    known = truth.run(updates=2)
    folder = imitated_miles.write(tmp_path / "dump", known, slices=slices, copies=copies)
    for step, responses in zip(steps_of(miles.IMPORTER, folder), known, strict=True):
        assert_tokens(
            step,
            responses,
            token_id="ids",
            logp_behavior="sampler",
            logp_current="current",
            logp_gate="gate",
            logp_reference="reference",
            entropy="entropy",
        )
        assert step.sequences["reward"] == [one.reward for one in responses]
        assert step.sequences["dropped"][-1] == "remove_sample"
        # Shares of the data: ranks that hold copies or slices of the same would look as if they had lost their own.
        assert {*step.sequences["rank"]} == {0, 1}


def test_copies_and_slices_of_a_response(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """Trap 8: eight files hold six responses, each twice and cut in two; read one after the other they are 24."""
    folder = imitated_miles.write(tmp_path / "dump", known[:1])
    files = sorted((folder / "train_data").iterdir())
    naive = [part for file in files for part in torch.load(file)["rollout_data"]["log_probs"]]
    step = steps_of(miles.IMPORTER, folder)[0]
    assert len(naive) == 4 * len(step.sequences["seq_id"])
    assert sum(map(len, naive)) == 2 * sum(len(one.ids) for one in known[0])
    # A slice is two pieces, from both ends: put one after the other, slices are not the response.
    zero, one = (torch.load(files[rank])["rollout_data"]["log_probs"][0].numpy() for rank in (0, 2))
    first = known[0][0]
    assert len(zero) + len(one) == len(first.ids)
    assert not np.array_equal(np.concatenate([zero, one]), first.current)
    np.testing.assert_array_equal(column(step, "logp_current", 0), first.sampled(first.current))


def test_conversations_have_their_turns(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    step = steps_of(miles.IMPORTER, imitated_miles.write(tmp_path / "dump", known[:1]))[0]
    assert step.messages is not None
    assert step.messages["role"] == ["user", "assistant", "tool", "assistant"]
    assert step.messages["tool"] == [None, "lookup", "lookup", None]
    mask = known[0][0].mask
    assert column(step, "turn", 0).tolist() == [1] * 3 + [3] * int(mask[3:].sum())
    assert step.messages["first_position"] == [None, 0, None, 3]
    assert step.sequences["n_tool_calls"][0] == 1


def test_without_the_rollouts_their_parquet_copy_is_read(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_miles.write(tmp_path / "dump", known[:1])
    (folder / "rollout_data/0.pt").unlink()
    step = steps_of(miles.IMPORTER, folder)[0]
    assert_tokens(step, known[0][:-1], logp_behavior="sampler", logp_current="current")
    for file in (folder / "train_data").iterdir():
        file.unlink()
    assert_tokens(steps_of(miles.IMPORTER, folder)[0], known[0], logp_behavior="sampler")


def test_a_loss_that_is_the_first_to_score(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    """With --skip-actor-forward-only there are no log_probs, and the loss saw the policy that the update began with."""
    folder = imitated_miles.write(tmp_path / "dump", known[:1])
    for file in (folder / "train_data").iterdir():
        payload = torch.load(file)
        del payload["rollout_data"]["log_probs"]
        payload["rollout_data"]["num_microbatches"] = [3]
        torch.save(payload, file)
    step = steps_of(miles.IMPORTER, folder)[0]
    assert_tokens(step, known[0], logp_current="gate")
    assert step.tokens is not None and "logp_gate" not in step.tokens


def test_a_lost_rank_is_said(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_miles.write(tmp_path / "dump", known[:1], copies=1)
    (folder / "train_data/0_1.pt").unlink()
    with pytest.raises(ImportProblem, match=r"sample 0 cannot be read: slices of 1 of 2 ranks of context parallelism"):
        list(miles.IMPORTER.read(folder, Reading()))
    reading = Reading(skip_bad=True)
    (step,) = miles.IMPORTER.read(folder, reading)
    assert len(step.sequences["seq_id"]) == 3 and len(reading.problems) == 3


def test_slices_of_a_dump_that_does_not_name_them(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_miles.write(tmp_path / "dump", known[:1], copies=1)
    for file in (folder / "train_data").iterdir():
        payload = torch.load(file)
        torch.save({name: value for name, value in payload.items() if not name.startswith("cp_")}, file)
    with pytest.raises(ImportProblem, match="the file does not say how context parallelism cut them"):
        list(miles.IMPORTER.read(folder, Reading()))


def test_growing_dumps_wait_for_every_rank(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_miles.write(tmp_path / "dump", known)
    (folder / "train_data/2_7.pt").unlink()
    assert [step.number for step in miles.IMPORTER.read(folder, Reading(growing=True))] == [0, 1]


def test_told_by_what_slime_does_not_write(tmp_path: Path, known: list[list[truth.Known]]) -> None:
    folder = imitated_miles.write(tmp_path / "dump", known[:1])
    assert slime.IMPORTER.describe(folder) is None
    for name in ("train_data", "dashboard_columns"):
        for file in (folder / name).iterdir():
            file.unlink()
    assert slime.IMPORTER.describe(folder) is None
    assert miles.IMPORTER.describe(folder) is not None
