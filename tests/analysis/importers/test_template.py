"""`ratioscope import --template`: what it says of other programs' columns, and that it proposes nothing wrong."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import Step
from ratioscope.analysis.importers.template import template
from ratioscope.errors import RatioscopeError
from tests.analysis.importers.layouts import steps_of, written
from tests.making.loops import in_one_loop

NONE_SAYS = "no column and no name says"


def guesses(text: str) -> set[str]:
    """The lines that were guessed, without their comments."""
    return {line[3:].partition("   #")[0] for line in text.splitlines() if line.startswith("#? ")}


def imported(folder: Path) -> list[Step]:
    """What the template of a folder imports once its guesses are turned on."""
    return steps_of(folder, re.sub(r"^#\? ", "", template(folder), flags=re.MULTILINE))


def rows(*steps: Any, column: str = "step") -> list[dict[str, Any]]:
    return [{column: step, "token_ids": [place, 2], "logprobs": [-0.5, -1.0]} for place, step in enumerate(steps)]


STEPS: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "of asynchronous training": (rows(2, 1), "step", "# The rows are not in its order: sort those of each file by it"),
    "digits that are not in order": (rows("10", "9"), "step", "# The rows are not in its order"),
    "words": (rows("step_0", "step_1"), "step", "# It has 'step_0', which is no whole number"),
    "halves": (rows(0.5, 1.5), "step", "# It has 0.5, which is no whole number"),
    "a null": (rows(0, None), "step", "# It has None, which is no whole number"),
    "truth values": (rows(True, False), "", ""),
    "a phase": (rows("train", "train"), "", ""),
    **{name: (rows(0, 1, column=name), name, "") for name in ("iter", "update", "stepIdx", "globalStep", "update_id")},
}


@in_one_loop("case", STEPS)
def test_a_column_that_may_be_the_step_is_named_with_what_is_the_matter(
    case: tuple[list[dict[str, Any]], str, str], tmp_path: Path
) -> None:
    found, column, trouble = case
    written(tmp_path / "x", found, "jsonl")
    text = template(tmp_path / "x")
    named = [line for line in text.splitlines() if line.startswith("#? step")]
    assert len(named) == 1 and (f'#? step = "{column}"' in named) == bool(column)
    after = text[text.index(named[0]) :].splitlines()[1]
    assert trouble in after and after.startswith("# step_in_name") == (not trouble) and len(after) <= 120
    assert (NONE_SAYS in text) == (not column) and len(guesses(text)) == 3


def test_a_path_to_the_step_holds_digits(tmp_path: Path) -> None:
    written(tmp_path / "x", [{"meta": {"step": row.pop("step")}} | row for row in rows("0", "1")], "jsonl")
    assert [step.number for step in imported(tmp_path / "x")] == [0, 1]


def test_a_step_in_order_or_in_the_name_comes_before_one_that_is_not(tmp_path: Path) -> None:
    found = [{"iteration": 5 - place} | row for place, row in enumerate(rows(0, 1))]
    written(tmp_path / "x", found, "jsonl")
    assert '#? step = "step"' in template(tmp_path / "x")
    written(tmp_path / "y", rows(2, 1), "jsonl", "step_3")
    assert "#? step_in_name = 'step_(\\d+)'" in template(tmp_path / "y")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_command_that_it_names_does_what_it_says(tmp_path: Path) -> None:
    written(tmp_path / "x", rows("10", "9"), "jsonl", "my log")
    (command,) = re.findall(r"^#   (jq .*)$", template(tmp_path / "x"), re.MULTILINE)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path / "x")
    (tmp_path / "x" / "my log.jsonl").unlink()
    assert [step.number for step in imported(tmp_path / "x")] == [9, 10]


def test_rows_of_a_database_are_sorted_by_its_own_language(tmp_path: Path) -> None:
    written(tmp_path / "x", rows(2, 1), "db")
    text = template(tmp_path / "x")
    assert '#   CREATE TABLE sorted AS SELECT * FROM "data" ORDER BY "step" + 0, rowid' in text


def test_no_command_holds_a_name_that_a_shell_would_obey(tmp_path: Path) -> None:
    written(tmp_path / "x", rows(2, 1, column="x'; rm -rf ~; '.step"), "jsonl", "$(touch it)")
    text = template(tmp_path / "x")
    assert "sort those of each file by it first." in text and "#   jq" not in text
    written(tmp_path / "y", rows(2, 1), "jsonl", "$(touch it)")
    assert "'$(touch it).jsonl' > " in template(tmp_path / "y")


NAMES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "our own": (
        {"logp_current": [-1.0], "other_logprobs": [-1.0], "logp_behavior": [-1.0], "token_id": [1]},
        {'logp_behavior = "logp_behavior"', 'logp_current = "logp_current"', 'token_id = "token_id"'},
    ),
    "short": (
        {"tok": [1], "lp": [-1.0], "adv": [1.0], "rew": 1.0},
        {'token_id = "tok"', 'logp_behavior = "lp"', 'advantage = "adv"', 'reward = "rew"'},
    ),
    "plain": ({"tokens": [1], "logp": [-1.0]}, {'token_id = "tokens"', 'logp_behavior = "logp"'}),
    "a trainer's": (
        {"completion_ids": [1], "vllm_logps": [-1.0], "per_token_logps": [-1.0]},
        {'token_id = "completion_ids"', 'logp_behavior = "vllm_logps"', 'logp_current = "per_token_logps"'},
    ),
    "generated": (
        {"gen_tokens": [1], "gen_logp": [-1.0], "rewards": {"accuracy": 1.0, "total": 1.5}},
        {'token_id = "gen_tokens"', 'logp_behavior = "gen_logp"', 'reward = "rewards.total"'},
    ),
    "camels": (
        {"tokenIds": [1], "logProbs": [-1.0], "finalReward": 1.0},
        {'token_id = "tokenIds"', 'logp_behavior = "logProbs"', 'reward = "finalReward"'},
    ),
    "rows of tokens": (
        {"seq": "a", "tok": 1, "logp": -1.0, "rew": 1.0},
        {'seq_id = "seq"', 'token_id = "tok"', 'logp_behavior = "logp"', 'reward = "rew"'},
    ),
    "two versions": (
        {"ids": [1], "policy_version": 5, "weight_version": 3},
        {'token_id = "ids"', 'behavior_version = "weight_version"', 'policy_version = "policy_version"', "[steps]",
         "[steps.columns]"},
    ),
    "one version": ({"ids": [1], "policy_version": 5}, {'token_id = "ids"', 'behavior_version = "policy_version"'}),
    "no advantage": ({"ids": [1], "overrides": [{"set_advantage_to_zero": True}]}, {'token_id = "ids"'}),
    "ids of a prompt": ({"tokens": [[1], [2]], "prompt_ids": [1, 2], "scores": [1.0, 0.0]},
                        {'token_id = "tokens"', 'reward = "scores"'}),
}  # fmt: skip


@in_one_loop("case", NAMES)
def test_usual_names_are_known(case: tuple[dict[str, Any], set[str]], tmp_path: Path) -> None:
    row, known = case
    written(tmp_path / "x", [{"step": 0} | row], "jsonl")
    assert guesses(template(tmp_path / "x")) == known | {'step = "step"'}
    assert len(imported(tmp_path / "x")) == 1


def test_a_row_of_a_step_is_no_group(tmp_path: Path) -> None:
    each = {"prompts": ["q"] * 4, "completions": [*"abcd"], "rewards": [0.0, 1.0, 0.0, 1.0]}
    each |= {"tokens": [[1], [2], [3], [4]], "logprobs": [[-1.0]] * 4, "uids": ["g", "g", "h", "h"]}
    written(tmp_path / "x", [{"iteration": step, "loss": 0.5} | each for step in (0, 1)], "jsonl")
    steps = imported(tmp_path / "x")
    assert [step.sequences["group_id"].tolist() for step in steps] == [[0, 0, 1, 1]] * 2
    assert [step.scalars["loss"] for step in steps] == [0.5, 0.5]


def test_texts_alone_may_be_several_of_a_row(tmp_path: Path) -> None:
    """As ms-swift writes them without a total reward; a conversation, or what would have been right, is one."""
    row = {"step": ["1", "1"], "prompt": ["p", "q"], "completion": ["a", "b"], "accuracy": [0.0, 1.0]}
    written(tmp_path / "x", [row, row | {"step": ["2", "2"]}], "jsonl")
    assert [(step.number, list(step.sequences["response"])) for step in imported(tmp_path / "x")] == [
        (1, ["a", "b"]),
        (2, ["a", "b"]),
    ]
    for one in ({"completion": [{"role": "assistant", "content": "a"}]}, {"response": "a", "answers": ["a", "b"]}):
        written(tmp_path / "y", [{"step": 0, "prompt": "p"} | one], "jsonl")
        assert 'layout = "lists"' in template(tmp_path / "y")


def test_objects_that_are_responses_are_the_rows(tmp_path: Path) -> None:
    one = {"token_ids": [1, 2], "logprobs": [-0.1, -0.2], "reward": 1.0}
    other = {"token_ids": [3], "logprobs": [-0.5], "reward": 0.0}
    in_steps = [response | {"prompt": prompt} for prompt in "ab" for response in (one, other)]
    shapes: dict[str, list[dict[str, Any]]] = {
        "a prompt a row": [{"step": 0, "prompt": prompt, "choices": [one, other]} for prompt in "ab"],
        "a step a row": [{"step": 0, "rollouts": in_steps}],
        "groups in a row": [{"step": 0, "groups": [{"prompt": prompt, "answers": [one, other]} for prompt in "ab"]}],
    }
    for shape, records in shapes.items():
        for kind in ("jsonl", "parquet"):
            written(tmp_path / f"{shape} {kind}", records, kind)
            (step,) = imported(tmp_path / f"{shape} {kind}")
            assert step.tokens is not None and step.tokens["token_id"].tolist() == [1, 2, 3] * 2
            assert step.sequences["reward"].tolist() == [1.0, 0.0] * 2
            assert list(step.sequences["prompt"]) == [*"aabb"]
            assert np.ma.asarray(step.sequences.get("group_id", [])).tolist() == (
                [] if shape == "a step a row" else [0, 0, 1, 1]
            )
    one |= {"text": "a"}
    turns = [{name: value for name, value in one.items() if name != "reward"}] * 2
    for name, row in {"a": {"choices": [one]}, "b": {"turns": turns, "reward": 1.0}}.items():
        written(tmp_path / name, [{"step": 0} | row], "jsonl")
        assert 'logp_behavior = "' in "".join(guesses(template(tmp_path / name)))


def test_rewards_and_losses_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    written(folder, [{"sample_id": f"s{place}"} | row for place, row in enumerate(rows(0, 0, 1))], "jsonl", "tokens")
    scored = [{"iter": step, "sample_id": f"s{place}", "reward": place} for step, place in ((0, 1), (0, 0), (1, 2))]
    written(folder, scored, "jsonl", "rewards")
    written(folder, [{"step": step, "loss": step / 2, "reward": 0.5} for step in (0, 1)], "jsonl", "metrics")
    first, second = imported(folder)
    begins = dict(zip(first.tokens["seq_id"][::2], first.tokens["token_id"][::2], strict=True))
    assert {
        begins[seq]: reward for seq, reward in zip(first.sequences["seq_id"], first.sequences["reward"], strict=True)
    } == {0: 0.0, 1: 1.0}
    assert list(second.sequences["reward"]) == [2.0] and second.scalars["loss"] == 0.5


BAD: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.jsonl", b"", "has no rows"),
    "blank": ("a.jsonl", b"\n\n", "has no rows"),
    "cut": ("a.jsonl", b'{"step": 0, "tok', "line 1: the file ends within this line"),
    "a cut stream": ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "cannot be read"),
    "binary": ("a.jsonl", bytes(range(128, 256)) + b"\n", "line 1: not JSON"),
    "a number": ("a.jsonl", b"3\n", "a JSON object is wanted"),
    "half a file": ("a.json", b"[{", "not JSON, or not whole"),
}


@in_one_loop("case", BAD)
def test_a_bad_file_is_a_sentence(case: tuple[str, bytes, str], tmp_path: Path) -> None:
    name, contents, said = case
    folder = tmp_path / "x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(contents)
    with pytest.raises(RatioscopeError, match=said) as caught:
        template(folder)
    assert str(caught.value).startswith(str(folder / name)) and str(caught.value).endswith(".")
    written(folder, rows(0), "jsonl", "b")
    assert json.dumps(str(folder / name))[1:-1] in template(folder)  # beside a good one it is named
