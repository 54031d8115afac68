"""SkyRL's batches, as its own package wrote them (tests/making/foreign/skyrl.py)."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, pickles
from ratioscope.analysis.importers.formats import skyrl
from tests.making.foreign import truth
from tests.making.foreign.reading import assert_tokens, column, steps_of
from tests.making.foreign.skyrl import FOLDER, PADDING

FIRST = FOLDER / "dumped_data/global_step_1_training_input.pkl"


def tensors() -> dict[str, np.ndarray]:
    batch = skyrl._batch(FIRST, Reading(unpickle=True))
    assert batch is not None
    return batch[0]


def test_every_column_is_that_of_the_run() -> None:
    known = truth.run(updates=2)
    steps = steps_of(skyrl.IMPORTER, FOLDER, unpickle=True)
    assert [step.number for step in steps] == [1, 2]
    for step, responses in zip(steps, known, strict=True):
        assert_tokens(step, responses, token_id="ids", logp_behavior="sampler", logp_current="current")
        assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]
        for place, one in enumerate(responses):
            assert set(column(step, "advantage", place)) == {one.advantage}
            np.testing.assert_allclose(  # bfloat16 in the file
                column(step, "logp_reference", place), one.sampled(one.reference), rtol=0.01
            )


def test_responses_are_aligned_to_the_right() -> None:
    """Trap 1: read from the left, a shorter response begins with padding, whose 0.0 reads as certainty."""
    known = truth.run(updates=1)[0]
    shortest = int(np.argmin([len(one.ids) for one in known]))
    one, held = known[shortest], tensors()
    naive = held["action_log_probs"][shortest, : len(one.ids)]
    assert not np.array_equal(naive, one.current) and (naive == 0).any()
    step = steps_of(skyrl.IMPORTER, FOLDER, unpickle=True)[0]
    np.testing.assert_array_equal(column(step, "logp_current", shortest), one.current)
    np.testing.assert_array_equal(column(step, "token_id", shortest), one.ids)


def test_rows_that_fill_up_the_batch_are_no_responses() -> None:
    """Trap 7: they are copies of the first row."""
    held = tensors()
    naive = len(held["sequences"])
    step = steps_of(skyrl.IMPORTER, FOLDER, unpickle=True)[0]
    assert len(step.sequences["seq_id"]) == 6 == naive - PADDING
    assert np.array_equal(held["sequences"][0], held["sequences"][-1])


def test_a_filtered_response_keeps_its_values_and_says_so() -> None:
    """Trap 6: its loss mask is zero, and its tokens would vanish."""
    known = truth.run(updates=1)[0]
    assert not tensors()["loss_mask"][5].any()
    step = steps_of(skyrl.IMPORTER, FOLDER, unpickle=True)[0]
    assert step.sequences["dropped"] == [None] * 5 + ["loss mask of the whole response"]
    assert set(column(step, "rejected", 5)) == {"loss mask of the whole response"}
    assert len(column(step, "logp_current", 5)) == len(known[5].ids)


def test_nothing_is_unpickled_without_leave(tmp_path: Path) -> None:
    """Trap 15: SkyRL's batches are pickles of its own classes."""
    found = skyrl.IMPORTER.describe(FOLDER)
    assert found is not None and "pickle" in found.unpickles and found.steps == 2
    with pytest.raises(ImportProblem, match=r"pickle of a class of its own: allow it with --allow-pickle\.$"):
        list(skyrl.IMPORTER.read(FOLDER, Reading()))

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "gone off"), "w")

    (tmp_path / "global_step_1_training_input.pkl").write_bytes(pickle.dumps(Trap()))
    for reading in (Reading(), Reading(unpickle=True)):
        with pytest.raises(ImportProblem):
            list(skyrl.IMPORTER.read(tmp_path, reading))
    assert not (tmp_path / "gone off").exists()


def test_half_a_file(tmp_path: Path) -> None:
    whole = FIRST.read_bytes()
    (tmp_path / FIRST.name).write_bytes(whole)
    (tmp_path / "global_step_2_training_input.pkl").write_bytes(whole[: len(whole) // 2])
    growing = skyrl.IMPORTER.read(tmp_path, Reading(unpickle=True, growing=True))
    assert [step.number for step in growing] == [1]
    with pytest.raises(ImportProblem, match=r"global_step_2.*cannot be unpickled"):
        list(skyrl.IMPORTER.read(tmp_path, Reading(unpickle=True)))
    reading = Reading(unpickle=True, skip_bad=True)
    assert [step.number for step in skyrl.IMPORTER.read(tmp_path, reading)] == [1]
    assert len(reading.problems) == 1


def test_without_old_log_probabilities(tmp_path: Path) -> None:
    """SkyRL skips the forward pass for losses that are taken against the sampler."""
    found = pickles.allowed(FIRST.read_bytes(), FIRST, Reading(unpickle=True), "")
    held, metadata = skyrl._batch(FIRST, Reading(unpickle=True)) or ({}, {})
    del held["action_log_probs"]
    step = skyrl._step(1, held, {"pad_size": PADDING}, FIRST, Reading())
    assert found is not None and metadata["pad_size"] == PADDING
    assert step.tokens is not None and "logp_current" not in step.tokens and "group_id" not in step.sequences
