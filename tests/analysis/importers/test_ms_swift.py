"""ms-swift's completions.jsonl: of its trainer, of Megatron's and of Ray's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import ms_swift
from tests.making.foreign import imitated_ms_swift, truth
from tests.making.foreign.reading import steps_of

KNOWN = truth.run()


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "completions.jsonl").read_text().splitlines()]


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    lines = [change(record) or record for record in records(folder)]
    (folder / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_generation_that_is_logged_again_is_one_step(tmp_path: Path) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    assert len(records(folder)) == 8  # two a generation, an evaluation, the end
    for path in (folder, folder / "completions.jsonl"):
        steps = steps_of(ms_swift.IMPORTER, path)
        assert [step.number for step in steps] == [1, 3, 5]
    for step, found in zip(steps, KNOWN, strict=True):
        sequences = step.sequences
        assert step.tokens is None and step.scalars["wall_time"] is None
        assert sequences["group_id"] == [0, 0, 1, 1, 2, 2] and sequences["n_turns"] == [1] * 6
        assert sequences["response"] == [one.response for one in found]
        assert sequences["reward_accuracy"] == [one.reward for one in found]
        # The trainer counts a function that says nothing as 0.
        assert sequences["reward"] == [one.reward + 0.25 for one in found[:5]] + [found[5].reward]
        assert repr(sequences["reward_format"]) == repr([0.25] * 5 + [float("nan")])


def test_the_reward_is_the_sum_where_the_advantages_say_so(tmp_path: Path) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    rewritten(folder, lambda record: {**record, "format": [-3 * value for value in record["accuracy"]]})
    found = ms_swift.IMPORTER.describe(folder)
    assert found is not None and "not their weights" in found.missing["reward"]
    assert "reward" not in steps_of(ms_swift.IMPORTER, folder)[0].sequences
    rewritten(folder, lambda record: {**record, "format": [0.25] * 6})
    found = ms_swift.IMPORTER.describe(folder)
    assert found is not None and "reward" not in found.missing and "sum of the reward functions" in found.assumed[-1]
    step = steps_of(ms_swift.IMPORTER, folder)[0]
    assert step.sequences["reward"] == [one.reward + 0.25 for one in KNOWN[0]]
    rewritten(folder, lambda record: {name: record[name] for name in record if name != "format"})
    rewritten(folder, lambda record: {**record, "accuracy": [None, float("nan"), *record["accuracy"][2:]]})
    step = steps_of(ms_swift.IMPORTER, folder)[0]
    assert step.sequences["reward"][:2] == [None, None] and step.sequences["reward"][2:] == [0, 1, 0, 1]


def test_groups_are_as_large_as_the_settings_say(tmp_path: Path) -> None:
    """Of several turns, the earlier ones are in the prompt, which is then another for each response."""
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    rewritten(
        folder, lambda record: {**record, "prompt": [f"{each} {i}" for i, each in enumerate(record["prompt"])]}
    )  # fmt: skip
    step = steps_of(ms_swift.IMPORTER, folder)[0]
    assert step.sequences["group_id"] == [0, 1, 2, 3, 4, 5] and "reward" not in step.sequences

    def given(**settings: Any) -> Any:
        (folder / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "num_generations": 2} | settings))
        return steps_of(ms_swift.IMPORTER, folder)[0].sequences

    assert given()["group_id"] == [0, 0, 1, 1, 2, 2]
    assert given()["reward"] == [one.reward + 0.25 for one in KNOWN[0][:5]] + [KNOWN[0][5].reward]
    found = ms_swift.IMPORTER.describe(folder)
    assert found is not None and "num_generations responses" in found.assumed[2] and "reward" not in found.missing
    assert given(num_generations=4)["group_id"] == [0, 1, 2, 3, 4, 5]  # six rows are not groups of four
    assert given(rlhf_type="gkd")["group_id"] == [0, 1, 2, 3, 4, 5]
    (folder / "args.json").write_text("no settings")
    assert steps_of(ms_swift.IMPORTER, folder)[0].sequences["group_id"] == [0, 1, 2, 3, 4, 5]


def test_settings_that_the_prompts_contradict_are_not_used(tmp_path: Path) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    (folder / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "num_generations": 3}))
    assert steps_of(ms_swift.IMPORTER, folder)[0].sequences["group_id"] == [0, 0, 1, 1, 2, 2]
    rewritten(folder, lambda record: {**record, "prompt": [*record["prompt"][:2] * 2, *record["prompt"][4:]]})
    (folder / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "num_generations": 2}))
    step = steps_of(ms_swift.IMPORTER, folder)[0]  # one prompt twice, one after the other
    assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]


def test_lines_of_megatron_and_of_ray(tmp_path: Path) -> None:
    for write in (imitated_ms_swift.megatron, imitated_ms_swift.ray):
        folder = write(tmp_path / write.__name__, KNOWN)
        steps = steps_of(ms_swift.IMPORTER, folder)
        assert [step.number for step in steps] == [0, 1, 2]
        for step, found in zip(steps, KNOWN, strict=True):
            assert step.sequences["response"] == [one.response for one in found]
            assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2]
        found_source = ms_swift.IMPORTER.describe(folder)
        assert found_source is not None and "gen_step" in found_source.assumed[0]
    assert steps[0].sequences["reward"] == [one.reward for one in KNOWN[0]]
    assert found_source.missing["advantage"] == "the file has no advantages"


def test_a_generation_that_comes_again_with_other_responses_is_said(tmp_path: Path) -> None:
    folder = imitated_ms_swift.megatron(tmp_path / "twice", KNOWN)
    last = records(folder)[-1]
    with (folder / "completions.jsonl").open("a") as file:
        file.write(json.dumps(last) + "\n")
    assert [step.number for step in steps_of(ms_swift.IMPORTER, folder)] == [0, 1, 2]  # the same is nothing new
    with (folder / "completions.jsonl").open("a") as file:
        file.write(json.dumps(last | {"completion": ["other"] * len(last["completion"])}) + "\n")
    with pytest.raises(ImportProblem, match=r"line 5: gen_step 2 comes again, with other responses\.$"):
        steps_of(ms_swift.IMPORTER, folder)
    reading = Reading(skip_bad=True)
    assert len(list(ms_swift.IMPORTER.read(folder, reading))) == 3 and len(reading.problems) == 1


def test_texts_alone_and_other_columns(tmp_path: Path) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    rewritten(folder, lambda record: {name: record[name] for name in ("step", "prompt", "completion")})
    found = ms_swift.IMPORTER.describe(folder)
    assert found is not None and found.missing["reward"] == "the file has no rewards"
    assert "reward" not in steps_of(ms_swift.IMPORTER, folder)[0].sequences
    rewritten(folder, lambda record: {**record, "solution": [4] * 6, "entropy": [0.5] * 6})
    assert {"reward", "reward_solution"}.isdisjoint(steps_of(ms_swift.IMPORTER, folder)[0].sequences)


def test_following_reads_no_batch_twice(tmp_path: Path) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    file = folder / "completions.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:4]) + whole[4][:40])
    assert [step.number for step in ms_swift.IMPORTER.read(folder, Reading(growing=True))] == [1]
    file.write_bytes(b"".join(whole))
    for after in (1, 2):
        assert [step.number for step in ms_swift.IMPORTER.read(folder, Reading(after=after))] == [3, 5]
    assert list(ms_swift.IMPORTER.read(folder, Reading(after=5))) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda record: {"prompt": [], "completion": []}, "no step"),
        (lambda record: {"step": ["1"]}, "no prompt and no completion"),
        (lambda record: {**record, "prompt": ["a"]}, "step, prompt, completion are not lists of one length"),
        (lambda record: {**record, "step": ["1", "2"] * 3}, "step is not one number"),
        (lambda record: {**record, "step": [None] * 6}, "step is not one number"),
        (lambda record: {**record, "step": ["2"] * 6}, "step 2 comes after step 6"),
    ],
)
def test_a_line_of_another_shape_is_one_sentence(
    change: Callable[[dict[str, Any]], dict[str, Any]], what: str, tmp_path: Path
) -> None:
    folder = imitated_ms_swift.trainer(tmp_path / "v0", KNOWN)
    with (folder / "completions.jsonl").open("a") as file:
        file.write(json.dumps(change(records(folder)[-1])) + "\n")
    with pytest.raises(ImportProblem, match=rf"completions\.jsonl, line 9: {what}\.$"):
        steps_of(ms_swift.IMPORTER, folder)
    reading = Reading(skip_bad=True)
    assert [step.number for step in ms_swift.IMPORTER.read(folder, reading)] == [1, 3, 5] and len(reading.problems) == 1
