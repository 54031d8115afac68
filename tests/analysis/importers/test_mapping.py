"""Mapping files: every layout gives the tokens that were written, whatever the files are."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, Step
from ratioscope.analysis.importers.sums import terms
from ratioscope.analysis.importers.template import template
from ratioscope.errors import RatioscopeError
from tests.analysis.importers.layouts import (
    ALL,
    COLUMNS,
    LAYOUTS,
    TURNS,
    Response,
    expected,
    groups_of_lists,
    ints,
    mapped,
    meta,
    padded,
    response_alone,
    rows_of,
    shifted,
    steps_of,
    steps_of_lists,
    steps_of_objects,
    with_prompt,
    with_turns,
    written,
)
from tests.making.loops import in_one_loop


@in_one_loop("layout", LAYOUTS)
def test_every_layout_gives_the_tokens_that_were_sampled(
    layout: tuple[Callable[[Response], dict[str, Any]], str, bool], tmp_path: Path
) -> None:
    row, said, masked = layout
    rows = [row(response) for response in ALL]
    for kind in ("jsonl", "parquet", "feather", "arrow"):
        folder = tmp_path / f"{row.__name__}-{len(said)}-{kind}"
        written(folder, rows, kind)
        steps = steps_of(folder, f"step = 'k'\n[tokens]\nfiles = '*.{kind}'\n{said}\n{COLUMNS}")
        assert rows_of(steps) == expected(ALL, masked), kind
        for step in steps:
            own = [one for one in ALL if one.step == step.number]
            assert list(step.sequences["reward"]) == [one.reward for one in own]
            assert list(step.sequences["group_id"]) == [one.group for one in own]
            counts = [sum(one.sampled) if masked else len(one.tokens) for one in own]
            assert list(step.sequences["n_tokens"]) == counts


EVERY_KIND = ("jsonl", "jsonl.zst", "jsonl.gz", "json", "parquet", "feather", "db")


@in_one_loop("kind", {kind: kind for kind in EVERY_KIND})
def test_what_lies_in_objects_and_in_lists_of_them(kind: str, tmp_path: Path) -> None:
    """In JSON, in nested columns of Parquet, and in a column of a database that holds JSON."""
    folder = tmp_path / kind
    written(folder, [with_turns(r) for r in ALL], kind)
    steps = steps_of(folder, f"step = 'k'\n[tokens]\nfiles = '*'\ntable = 'data'\n{TURNS}")
    assert rows_of(steps) == expected(ALL)
    for step in steps:
        assert list(step.sequences["reward"]) == [r.reward for r in ALL if r.step == step.number]
        assert step.tokens is not None and set(step.tokens["behavior_version"].tolist()) == {step.number + 5}


def test_a_text_of_json_in_a_column_is_entered(tmp_path: Path) -> None:
    rows = [row | {"data": json.dumps(row["data"])} for row in map(with_turns, ALL)]
    for kind in ("parquet", "jsonl"):
        written(tmp_path / kind, rows, kind)
        assert rows_of(steps_of(tmp_path / kind, f"step='k'\n[tokens]\nfiles='*'\n{TURNS}")) == expected(ALL)


@in_one_loop("kind", {kind: kind for kind in EVERY_KIND})
def test_a_row_that_is_a_group_or_a_step(kind: str, tmp_path: Path) -> None:
    """The responses are those of rows that are a response each, whatever the rows are."""
    folder = tmp_path / f"groups-{kind}"
    written(folder, groups_of_lists(ALL), kind)
    text = f"step='k'\n[tokens]\nfiles='*'\ntable='data'\nlayout='groups'\nmask='labels'\nignore_index=-100\n{COLUMNS}"
    text = text.replace('group_id = "uid"', 'prompt = "prompt"').replace("ignore", "prompt_length='p'\nignore")
    steps = steps_of(folder, text)
    assert [[row[2:] for row in rows] for _, rows in rows_of(steps)] == [
        [row[2:] for row in rows] for _, rows in expected(ALL)
    ]
    assert all(list(step.sequences["group_id"]) == [0, 0, 1, 1, 2, 2] for step in steps)
    assert {len(json.loads(prompt)) for step in steps for prompt in step.sequences["prompt"]} == {2}
    folder = tmp_path / f"steps-{kind}"
    written(folder, steps_of_lists(ALL), kind)
    text = f"step='k'\n[tokens]\nfiles='*'\ntable='data'\nlayout='steps'\nmask='m'\n{COLUMNS}\nprompt = 'q'"
    steps = steps_of(folder, text)
    assert rows_of(steps) == expected(ALL)
    assert [json.loads(step.sequences["prompt"][0])[0]["content"] for step in steps] == ["0", "0", "0"]


EACH = """step = 'k'
[tokens]
files = '*'
table = 'data'
each = 'groups[*].answers'
mask = 'groups.answers.m'
[tokens.columns]
token_id = "groups.answers.ids"
logp_behavior = "groups.answers.mu"
logp_current = "groups.answers.old"
[sequences.columns]
group_id = "groups.uid"
reward = "groups.answers.score"
"""


@in_one_loop("kind", {kind: kind for kind in EVERY_KIND})
def test_objects_in_lists_may_be_the_responses(kind: str, tmp_path: Path) -> None:
    written(tmp_path / kind, steps_of_objects(ALL), kind)
    by_name = steps_of(tmp_path / kind, EACH)
    by_place = steps_of(tmp_path / kind, EACH.replace('"groups.uid"', '"[row]"'))
    for steps in (by_name, by_place):
        assert rows_of(steps) == expected(ALL)
        assert [list(step.sequences["reward"]) for step in steps] == [
            [r.reward for r in ALL if r.step == number] for number, _ in expected(ALL)
        ]


def test_objects_in_a_list_may_be_groups(tmp_path: Path) -> None:
    steps = [
        {"k": 3, "groups": [{key: value for key, value in row.items() if key != "k"} for row in groups_of_lists(ALL)]}
    ]
    written(tmp_path / "x", steps, "jsonl")
    lists = "mask='groups.labels'\nignore_index=-100\nprompt_length='groups.p'"
    text = f"step='k'\n[tokens]\nfiles='*'\neach='groups'\nlayout='groups'\n{lists}\n{COLUMNS}"
    text = re.sub(r'"(ids|mu|old|score)"', r'"groups.\1"', text).replace('group_id = "uid"', "")
    (step,) = steps_of(tmp_path / "x", text)
    assert list(step.sequences["reward"]) == [r.reward for r in ALL]
    assert list(step.sequences["group_id"]) == [place // 2 for place in range(len(ALL))]


BAD_EACH = {
    "none": ({"groups": [{"uid": "a"}]}, "no groups[*].answers"),
    "null": ({"groups": [{"answers": None}]}, "groups[*].answers is no list of objects"),
    "an object": ({"groups": {"answers": []}}, "groups[*].answers is no list of objects"),
    "texts": ({"groups": [{"answers": ["a", "b"]}]}, "groups[*].answers is no list of objects"),
}


@in_one_loop("bad", BAD_EACH)
def test_rows_that_cannot_be_taken_apart_are_named(bad: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    row, said = bad
    folder = tmp_path / "x"
    written(folder, [*steps_of_objects(ALL), {"k": 9} | row], "jsonl")
    with pytest.raises(ImportProblem, match=re.escape(f"data.jsonl, line 4: {said}.")):
        steps_of(folder, EACH)
    assert rows_of(steps_of(folder, EACH, skip_bad=True)) == expected(ALL)


def test_what_is_taken_apart_is_there_and_a_list(tmp_path: Path) -> None:
    written(tmp_path / "x", steps_of_objects(ALL), "jsonl")
    for given, said in (
        ("groups[0].answers", "must lead to a list of objects"),
        ("groups[*].answers[*]", "must lead to a list of objects"),
        ("groups[*].answer", "each = 'groups[*].answer' is not a column of data.jsonl"),
    ):
        with pytest.raises(RatioscopeError, match=re.escape(said)):
            steps_of(tmp_path / "x", EACH.replace("groups[*].answers", given))
    with pytest.raises(RatioscopeError, match=r"'\[row\]' is a token where layout = 'rows'"):
        steps_of(tmp_path / "x", "step='k'\n[tokens]\nfiles='*'\nlayout='rows'\n[tokens.columns]\nseq_id='[row]'")
    with pytest.raises(RatioscopeError, match=r"\[tokens.columns\]: names no column"):
        steps_of(tmp_path / "x", "step='k'\n[tokens]\nfiles='*'")


def test_text_and_rewards_of_a_step_in_one_line(tmp_path: Path) -> None:
    written(tmp_path / "x", [{"k": 1, "q": "x", "a": ["y", "z"], "r": [1, 0]}, {"k": 2, "a": ["y"], "r": [1]}], "jsonl")
    text = "step = 'k'\n[sequences]\nfiles = '*'\nlayout = 'steps'\n[sequences.columns]\nprompt = 'q'\nresponse = 'a'"
    first, second = steps_of(tmp_path / "x", text + "\nreward = 'r'\n[steps.columns]\npolicy_version = 'k - 1'")
    assert first.tokens is None and first.scalars["policy_version"] == 0
    assert list(first.sequences["prompt"]) == ["x", "x"] and list(first.sequences["response"]) == ["y", "z"]
    assert list(first.sequences["reward"]) == [1, 0] and list(second.sequences["prompt"]) == [None]


UNEVEN: dict[str, tuple[dict[str, Any], str]] = {
    "an entry too few": ({"score": [1.0]}, "ids, mu, old, score are not lists of one length (2, 2, 2, 1)"),
    "none": ({"ids": []}, "ids, mu, old, score are not lists of one length (0, 2, 2, 2)"),
    "tokens that differ": ({"mu": [[-1.0], [-1.0]]}, "its lists are of different lengths (token_id 2, "),
    "numbers for lists": ({"mu": [-1.0, -2.0]}, "mu is a number, and a list in the lines before"),
    "lists too deep": ({"mu": [[[-1.0]], [[-1.0]]]}, "mu is a list of a list, and a list in the lines before"),
}


@in_one_loop("case", UNEVEN)
def test_a_group_whose_lists_do_not_fit_is_named(case: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    changed, said = case
    good = {
        "k": 0,
        "ids": [[1, 2], [3]],
        "mu": [[-1.0, -2.0], [-3.0]],
        "old": [[-1.0, -2.0], [-3.0]],
        "score": [1.0, 0.0],
    }
    written(tmp_path / "x", [good, good | changed, good], "jsonl")
    text = f"step='k'\n[tokens]\nfiles='*'\nlayout='groups'\n{COLUMNS}".replace('group_id = "uid"', "")
    with pytest.raises(ImportProblem) as problem:
        steps_of(tmp_path / "x", text)
    assert said in str(problem.value) and "data.jsonl, line 2: " in str(problem.value)
    (step,) = mapped(tmp_path / "x", text).read(tmp_path / "x", Reading(skip_bad=True))
    assert 6 <= len(step.tokens["token_id"]) <= 8 and set(step.sequences["group_id"]) >= {0, 1}


def test_all_of_a_file_is_one_step(tmp_path: Path) -> None:
    written(tmp_path / "x", [response_alone(r) for r in ALL], "jsonl")
    (step,) = steps_of(tmp_path / "x", f"step = 4\n[tokens]\nfiles = '*'\n{COLUMNS}")
    assert step.number == 4 and len(step.sequences["reward"]) == len(ALL)
    assert steps_of(tmp_path / "x", f"step = 4\n[tokens]\nfiles = '*'\n{COLUMNS}", growing=True) == []


SUMS: dict[str, tuple[dict[str, Any], list[int | None] | str]] = {
    "one value a response": ({"age": 2}, [5, 5]),
    "a value a token": ({"age": [2, 3]}, [5, 4]),
    "text of digits": ({"age": "2"}, [5, 5]),
    "a whole float": ({"age": 2.0}, [5, 5]),
    "null": ({"age": None}, [None, None]),
    "null for a token": ({"age": [None, 3]}, [None, 4]),
    "half": ({"age": 2.5}, "age is 2.5, and no whole number"),
    "a word": ({"age": "new"}, "age is 'new', and no whole number"),
    "a truth value": ({"age": True}, "age is True, and no whole number"),
    "beyond 64 bits": ({"age": -(2**63) + 5}, "is beyond 64 bits"),
    "another length": ({"age": [1, 2, 3]}, "its lists are of different lengths"),
}


@in_one_loop("case", SUMS)
def test_a_version_is_a_sum_of_columns(case: tuple[dict[str, Any], list[int | None] | str], tmp_path: Path) -> None:
    changed, wanted = case
    written(tmp_path / "x", [GOOD | {"k": 6, **changed}], "jsonl")
    text = f"step = 'k - 3 + 1'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    text = text.replace("[tokens.columns]", "[tokens.columns]\nbehavior_version = 'k - age + 1'")
    if isinstance(wanted, str):
        with pytest.raises(ImportProblem) as problem:
            steps_of(tmp_path / "x", text)
        assert wanted in str(problem.value) and "data.jsonl, line 1: " in str(problem.value)
    else:
        (step,) = steps_of(tmp_path / "x", text)
        assert step.number == 4 and step.tokens is not None
        assert pa.array(step.tokens["behavior_version"]).to_pylist() == wanted


def test_one_bad_row_leaves_the_sums_of_the_others(tmp_path: Path) -> None:
    top = 2**63 - 1
    bad: list[tuple[Any, Any, str]] = [
        ([5, 6], [1], "v and a are lists of different lengths"),
        ([5, 6], [1, 1.5], "a is 1.5, and no whole number"),
        ([5, top], [1, -9], "v - a is beyond 64 bits"),
        (top, -9, "v - a is beyond 64 bits"),
        (5, 1.5, "a is 1.5, and no whole number"),
    ]
    for place, (v, a, said) in enumerate(bad):
        good = ([5, 6], [1, 1]) if isinstance(v, list) else (5, 1)
        rows = [(good, (v, a))[number == 3] for number in range(5)]
        folder = tmp_path / str(place)
        written(folder, [{"k": 0, "lp": [-1.0, -2.0], "v": v, "a": a} for v, a in rows], "jsonl")
        text = "step='k'\n[tokens]\nfiles='*'\n[tokens.columns]\nlogp_behavior='lp'\nbehavior_version='v - a'"
        reading = Reading(skip_bad=True)
        (step,) = mapped(folder, text).read(folder, reading)
        assert reading.problems == [f"{folder / 'data.jsonl'}, line 4: {said}."]
        assert step.tokens is not None
        found = pa.array(step.tokens["behavior_version"]).to_pylist()
        whole = [4, 5] if isinstance(v, list) else [4, 4]
        assert found[:6] + found[8:] == whole * 4 and None in found[6:8], said


def test_only_a_row_of_numbers_and_names_is_a_sum() -> None:
    wanted: dict[str, tuple[tuple[int, str | int], ...]] = {
        "step - age": ((1, "step"), (-1, "age")),
        "1 + a.b[0] - c-d": ((1, 1), (1, "a.b[0]"), (-1, "c-d")),
        **dict.fromkeys(("step", "a-b", "a * b", "- a", "a -", "", " + ", "f(a)"), ()),
    }
    assert {text: terms(text) for text in wanted} == wanted


def test_a_wrong_layout_gives_other_numbers(tmp_path: Path) -> None:
    """The padding side and the shift matter: said wrongly, the same files give other tokens or values."""
    written(tmp_path / "a", [padded("left")(response) for response in ALL], "parquet")
    wrong = steps_of(tmp_path / "a", f"step = 'k'\n[tokens]\nfiles = '*'\nlength = 'n'\npadding = 'right'\n{COLUMNS}")
    assert rows_of(wrong) != expected(ALL, masked=False)
    written(tmp_path / "b", [shifted(r) | {"mu": [*shifted(r)["mu"], 0.0]} for r in ALL], "parquet")
    text = f"step = 'k'\n[tokens]\nfiles = '*'\nmask = 'm'\nprompt_length = 'p'\n{COLUMNS}"
    assert rows_of(steps_of(tmp_path / "b", text)) != expected(ALL)


def test_rows_of_tokens_with_responses_in_the_same_or_other_files(tmp_path: Path) -> None:
    token_rows, response_rows = [], []
    for number, r in enumerate(ALL):
        response_rows.append(meta(r) | {"id": f"r{number}", "parts": {"format": r.reward / 2}})
        lists = {"ids": r.tokens, "mu": r.behavior, "old": r.current, "m": r.sampled}
        token_rows += [
            meta(r) | {"id": f"r{number}", "at": place} | {name: values[place] for name, values in lists.items()}
            for place in range(len(r.tokens))
        ]
    rng = np.random.default_rng(1)
    token_rows = sorted((token_rows[i] for i in rng.permutation(len(token_rows))), key=lambda row: row["k"])
    for kind in ("jsonl", "parquet"):
        written(tmp_path / kind, token_rows, kind, "tokens")
        written(tmp_path / kind, response_rows, kind, "responses")
        head = f"step = 'k'\n[tokens]\nfiles = 'tokens.*'\nlayout = 'rows'\nmask = 'm'\n{COLUMNS}"
        head = head.replace("[tokens.columns]", "[tokens.columns]\nseq_id = 'id'\nposition = 'at'")
        same = steps_of(tmp_path / kind, head)
        other = head.replace(
            "[sequences.columns]", "[sequences]\nfiles = 'responses.*'\n[sequences.columns]\nseq_id = 'id'"
        )
        apart = steps_of(tmp_path / kind, other + "\n[sequences.rewards]\nformat = 'parts.format'\n")
        for steps in (same, apart):
            for step, (number, rows) in zip(steps, expected(ALL), strict=True):
                assert step.tokens is not None and step.number == number
                names = ("position", "token_id", "logp_behavior", "logp_current")
                found = zip(*(np.asarray(step.tokens[name]).tolist() for name in names), strict=True)
                assert sorted(found) == sorted(row[2:] for row in rows)
                rewards = dict(zip(step.sequences["seq_id"], step.sequences["reward"], strict=True))
                counts = np.bincount(step.tokens["seq_id"], minlength=len(rewards))
                own = [one for one in ALL if one.step == number]
                assert sorted(rewards.values()) == sorted(one.reward for one in own)
                for seq, reward in rewards.items():
                    (one,) = [one for one in own if one.reward == reward]
                    assert counts[seq] == sum(one.sampled)
        first = apart[0].sequences
        assert list(first["reward_format"]) == [reward / 2 for reward in first["reward"]]


def test_one_text_among_the_ids_changes_no_owner(tmp_path: Path) -> None:
    """Digits are numbers in one table alone, or beside a word in the other: rewards keep their responses."""
    text = """step = 'k'
[tokens]
files = 'tokens.*'
[tokens.columns]
logp_behavior = 'mu'
seq_id = 'id'
[sequences]
files = 'responses.*'
[sequences.columns]
seq_id = 'id'
reward = 'r'
group_id = 'id'
"""
    for place, (ids, others) in enumerate(((["0", "1"], ["x", "0", "1"]), ([7, 5], ["x", "5", "7"]), ([7, 5], [5, 7]))):
        folder = tmp_path / str(place)
        written(folder, [{"k": 0, "id": one, "mu": [-float(one), -1.0]} for one in ids], "jsonl", "tokens")
        written(
            folder,
            [{"k": 0, "id": one, "r": 9.0 if one == "x" else float(one)} for one in others],
            "jsonl",
            "responses",
        )
        (step,) = steps_of(folder, text)
        assert step.tokens is not None
        rewards = dict(zip(step.sequences["seq_id"].tolist(), step.sequences["reward"], strict=True))
        owners = step.tokens["seq_id"].tolist()[::2]
        assert (
            [rewards[owner] for owner in owners]
            == [float(one) for one in ids]
            == list(-step.tokens["logp_behavior"][::2])
        )
        assert len(rewards) == len(others) and (owners == [7, 5]) == ("x" not in others)


def test_the_step_is_in_the_name_and_ranks_are_merged(tmp_path: Path) -> None:
    for number, r in enumerate(ALL):
        folder = tmp_path / "x" / f"step_{r.step + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        row = json.dumps({key: value for key, value in response_alone(r).items() if key != "k"})
        with (folder / f"rank_{number % 2}.jsonl").open("a") as file:
            file.write(row + "\n")
    text = f"step_in_name = 'step_(\\d+)/'\nstep_offset = -1\n[tokens]\nfiles = '*/*.jsonl'\nmask = 'm'\n{COLUMNS}"
    steps = steps_of(tmp_path / "x", text)
    by_rank = sorted(range(len(ALL)), key=lambda number: (ALL[number].step, number % 2))
    wanted = expected([ALL[number] for number in by_rank])
    # Groups are numbered as they come.
    assert [[row[2:] for row in rows] for _, rows in rows_of(steps)] == [
        [row[2:] for row in rows] for _, rows in wanted
    ]
    assert [step.number for step in steps] == [0, 1, 2]
    assert [step.number for step in steps_of(tmp_path / "x", text, after=0, growing=True)] == [1]


def test_files_of_ranks_with_all_steps_are_read_side_by_side(tmp_path: Path) -> None:
    for rank in range(2):
        rows = [response_alone(r) for number, r in enumerate(ALL) if number % 2 == rank]
        written(tmp_path / "x", rows, "parquet", f"rank{rank}")
    steps = steps_of(tmp_path / "x", f"step = 'k'\n[tokens]\nfiles = '*'\nmask = 'm'\n{COLUMNS}")
    assert [step.number for step in steps] == [0, 1, 2]
    assert [len(step.sequences["reward"]) for step in steps] == [6, 6, 6]


def test_nulls_stay_nulls_nan_stays_nan_and_numbers_in_strings_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    lines = (
        '{"k": "3", "ids": [1, 2, 3], "mu": [NaN, null, -1.5], "old": null, "v": "12", "uid": null, "score": "0.5"}\n'
        '{"k": "3", "ids": [4], "mu": [-Infinity], "old": [-0.5], "v": "13", "uid": "a", "score": null}\n'
    )
    (tmp_path / "x" / "a.jsonl").write_text(lines)
    text = f"step = 'k'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    (step,) = steps_of(tmp_path / "x", text.replace("[tokens.columns]", "[tokens.columns]\nbehavior_version = 'v'"))
    assert step.number == 3 and step.tokens is not None
    mu = pa.array(step.tokens["logp_behavior"])
    assert mu.is_null().to_pylist() == [False, True, False, False]
    assert repr(mu.to_pylist()) == "[nan, None, -1.5, -inf]"
    assert pa.array(step.tokens["logp_current"]).to_pylist() == [None, None, None, -0.5]
    assert pa.array(step.tokens["behavior_version"]).to_pylist() == [12, 12, 12, 13]
    assert pa.array(step.sequences["group_id"]).to_pylist() == [None, 0]
    assert pa.array(step.sequences["reward"]).to_pylist() == [0.5, None]


GOOD = {"k": 0, "ids": [1, 2], "mu": [-1.0, -2.0], "old": [-1.0, -2.0], "uid": "a", "score": 1.0}
BAD: dict[str, tuple[Mapping[str, Any], str]] = {
    "lists of different lengths": ({"mu": [-1.0]}, "different lengths (token_id 2, "),
    "a number for a list": ({"mu": -1.0}, "mu is a number, and a list in the lines before"),
    "strings in a list": ({"mu": ["x", "y"]}, "mu is a list of a string"),
    "a word for a step": ({"k": "first"}, "k is a string, and a number in the lines before"),
    "no number": ({"score": "good"}, "score is a string, and a number in the lines before"),
    "half a step": ({"k": 0.5}, "k is 0.5, and no step"),
    "an object": ({"score": {"total": 1}}, "score is an object"),
    "steps that go back": ({"k": -1}, "step -1 comes after step 0; sort its rows by k first"),
    "truth values": ({"mu": [True, False]}, "mu is a list of truth values, and a list in the lines before"),
    "an id beyond 32 bits": ({"ids": [1, 1 << 40]}, "ids has 1099511627776, which is no token_id"),
    "half an id": ({"ids": [1, 1.5]}, "ids has 1.5, which is no token_id"),
    "a number beyond 64 bits": ({"ids": [1, 1 << 80]}, "ids has a number beyond 64 bits"),
}


@in_one_loop("case", BAD)
def test_a_row_that_does_not_fit_is_named_and_left_out_if_asked(
    case: tuple[Mapping[str, Any], str], tmp_path: Path
) -> None:
    changed, said = case
    (tmp_path / "x").mkdir(exist_ok=True)
    rows = [GOOD, GOOD | changed, GOOD]
    (tmp_path / "x" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"step = 'k'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    with pytest.raises(ImportProblem) as problem:
        steps_of(tmp_path / "x", text)
    assert "a.jsonl, line 2: " in str(problem.value) and said in str(problem.value)
    reading = Reading(skip_bad=True)
    steps = list(mapped(tmp_path / "x", text).read(tmp_path / "x", reading))
    assert str(problem.value) in reading.problems
    assert sum(len(step.tokens["token_id"]) for step in steps if step.tokens) >= 4


def test_a_file_without_one_right_value_is_said_with_its_line(tmp_path: Path) -> None:
    text = f"step = 'k'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"mu": [True, False]}, "mu has True, which is no logp_behavior."),
        ({"k": 0.5}, "k is 0.5, and no step."),
    )
    for number, (changed, said) in enumerate(cases):
        folder = tmp_path / str(number)
        file = written(folder, [GOOD | changed] * 2, "jsonl")
        with pytest.raises(ImportProblem) as problem:
            steps_of(folder, text)
        assert str(problem.value) == f"{file}, line 1: {said}"
        assert steps_of(folder, text, skip_bad=True) == []


def test_a_database_whose_steps_go_back_is_to_be_sorted(tmp_path: Path) -> None:
    written(tmp_path / "x", [GOOD | {"k": 1}, GOOD], "db")
    with pytest.raises(ImportProblem, match=r"read a table that is sorted by k \(CREATE TABLE .* ORDER BY"):
        steps_of(tmp_path / "x", f"step = 'k'\n[tokens]\nfiles = '*'\ntable = 'data'\n{COLUMNS}")


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst"])
def test_a_compressed_file_that_is_cut_is_left_out_where_bad_ones_are(kind: str, tmp_path: Path) -> None:
    folder, text = tmp_path / "x", f"step = 'k'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    cut = written(folder, [GOOD] * 3, kind, "a")
    cut.write_bytes(cut.read_bytes()[:-20])
    said = f"{cut}: cannot be read (its compressed stream is cut; copy the file again)."
    for _ in range(2):  # alone, and beside another file
        with pytest.raises(ImportProblem) as problem:
            steps_of(folder, text)
        assert str(problem.value) == said
        written(folder, [GOOD | {"k": 1}], kind, "b")
    reading = Reading(skip_bad=True)
    assert [step.number for step in mapped(folder, text).read(folder, reading)] == [1] and said in reading.problems
    assert [step.number for step in steps_of(folder, text, skip_bad=True)] == [1]


def test_files_without_a_row_are_said_to_have_none(tmp_path: Path) -> None:
    folder, text = tmp_path / "x", f"step = 'k'\n[tokens]\nfiles = '*'\n{COLUMNS}"
    file = written(folder, [], "jsonl")
    with pytest.raises(RatioscopeError, match=r"data\.jsonl: is empty"):
        steps_of(folder, text)
    file.write_text("\n \n")
    with pytest.raises(RatioscopeError, match=r"data\.jsonl: it has no rows\.$"):
        steps_of(folder, text)


WRONG_LAYOUTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a response": ("groups", {}, "ids is one list in a row; layout = 'lists' does."),
    "a response for a step": ("steps", {}, "ids is one list in a row; layout = 'lists' does."),
    "a token": ("lists", {"ids": 1, "mu": -1.0, "old": -1.0}, "ids is one value in a row; layout = 'rows' does."),
}


@in_one_loop("case", WRONG_LAYOUTS)
def test_of_a_layout_that_cannot_be_right_it_is_said_which_one_is(
    case: tuple[str, dict[str, Any], str], tmp_path: Path
) -> None:
    layout, changed, said = case
    lists = {"uid": ["a", "a"], "score": [1.0, 0.0]} if layout != "lists" else {}
    for kind in ("jsonl", "parquet"):
        folder = tmp_path / f"{layout}-{kind}"
        written(folder, [GOOD | lists | changed], kind)
        with pytest.raises(RatioscopeError) as problem:
            steps_of(folder, f"step = 'k'\n[tokens]\nfiles = '*'\nlayout = '{layout}'\n{COLUMNS}")
        wanted = f"mapping.toml, [tokens]: layout = '{layout}' does not fit data.{kind}, where {said}"
        assert str(problem.value).endswith(wanted)


def test_what_is_no_token_may_hold_anything_and_a_mask_alone_is_a_list(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    row = '{"k": 0, "adv": 0.5, "m": [0, 1], "ids": [7, 8], "v": [NaN, 3.0]}\n'
    (folder / "a.jsonl").write_text(row)
    text = "step = 'k'\n[tokens]\nfiles = '*'\nmask = 'm'\n[tokens.columns]\nadvantage = 'adv'"
    for more, wanted in (("", None), ("\ntoken_id = 'ids'\nbehavior_version = 'v'", 3)):
        (step,) = steps_of(folder, text + more)
        assert step.tokens is not None and list(step.tokens["advantage"]) == [0.5]
        assert wanted is None or list(step.tokens["behavior_version"]) == [wanted]


@in_one_loop("kind", {kind: kind for kind in ("jsonl", "parquet", "json")})
def test_values_of_one_object_stay_together(kind: str, tmp_path: Path) -> None:
    """What an object lacks that it has otherwise is null; objects that have nothing of it are no tokens."""
    toks = [{"id": 1, "lp": -0.1}, {"lp": -0.2}, {"id": 3}, {"said": "a tool's"}, {"id": 5, "lp": None}]
    calls = [{"ids": [1, 2], "lps": [-0.1, -0.2]}, {"said": "a tool's"}, {"ids": [3]}, {"ids": [5, 6], "lps": [-5, -6]}]
    for name, columns, ids, logps in (
        ("toks", ("toks[*].id", "toks[*].lp"), [1, None, 3, 5], [-0.1, -0.2, None, None]),
        ("calls", ("calls[*].ids", "calls[*].lps"), [1, 2, 3, 5, 6], [-0.1, -0.2, None, -5, -6]),
        ("plain", ("ids", "toks[*].lp"), [1, 2, 3], [-0.1, None, -0.3]),
    ):
        folder = tmp_path / f"{name}-{kind}"
        rows = [{"k": 0, "toks": toks, "calls": calls}]
        if name == "plain":
            rows = [{"k": 0, "ids": [1, 2, 3], "toks": [{"lp": -0.1}, {"lp": None}, {"lp": -0.3}]}]
        written(folder, rows, kind)
        named = f"token_id = '{columns[0]}'\nlogp_behavior = '{columns[1]}'"
        (step,) = steps_of(folder, f"step = 'k'\n[tokens]\nfiles = '*'\n[tokens.columns]\n{named}")
        assert step.tokens is not None
        assert pa.array(step.tokens["token_id"]).to_pylist() == ids, (kind, name)
        assert pa.array(step.tokens["logp_behavior"]).to_pylist() == logps, (kind, name)


def test_a_step_below_0_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    written(folder, [GOOD, GOOD | {"k": 1}], "jsonl", "a_0")
    said = "step -1 is below 0, where ours begin (step_offset = -1)"
    for line, text in (
        (", line 1", f"step = 'k'\nstep_offset = -1\n[tokens]\nfiles = '*'\n{COLUMNS}"),
        ("", f"step_in_name = '([0-9])'\nstep_offset = -1\n[tokens]\nfiles = '*'\n{COLUMNS}"),
        ("", f"step = -1\n[tokens]\nfiles = '*'\n{COLUMNS}"),
    ):
        with pytest.raises(ImportProblem) as problem:
            steps_of(folder, text)
        wanted = said if "step_offset" in text else "step -1 is below 0, where ours begin"
        assert str(problem.value) == f"{folder / 'a_0.jsonl'}{line}: {wanted}."
        reading = Reading(skip_bad=True)
        assert [step.number for step in mapped(folder, text).read(folder, reading)] == ([0] if line else [])
        assert reading.problems == [str(problem.value)]


MISTAKES: dict[str, tuple[str, str]] = {
    "no table": ("", "add a table [tokens] or [sequences]"),
    "no TOML": ("[tokens", "cannot be read as TOML"),
    "an unknown table": ("[token]\nfiles = '*'", "did you mean tokens"),
    "an unknown key": ("step = 'k'\n[tokens]\nfile = '*'", "did you mean files"),
    "an unknown column of ours": ("step = 'k'\n[tokens.columns]\nlogp_curent = 'old'", "did you mean logp_current"),
    "an unknown column of theirs": ("step='k'\n[tokens]\nfiles='*'\n[tokens.columns]\nlogp_new='olds'", "you mean old"),
    "no step": ("[tokens]\nfiles = '*'", "nothing says of which step"),
    "two steps": ("step = 'k'\nstep_in_name = '(1)'\n[tokens]", "both name a step"),
    "no group": ("step_in_name = 'step'\n[tokens]", "needs a group"),
    "no expression": ("step_in_name = '('\n[tokens]", "no regular expression"),
    "an unknown layout": ("step = 'k'\n[tokens]\nlayout = 'list'", "did you mean lists"),
    "padding alone": ("step = 'k'\n[tokens]\npadding = 'left'", "needs a length or a mask"),
    "rows with a shift": ("step = 'k'\n[tokens]\nlayout = 'rows'\nshifted = ['x']", "shifted is about lists"),
    "rows without a sequence": ("step = 'k'\n[tokens]\nlayout = 'rows'", "rows need seq_id"),
    "a shift of nothing": ("step = 'k'\n[tokens]\nshifted = ['logp_new']", "is not mapped here"),
    "a column and a constant": ("step='k'\n[tokens.columns]\nlogp_new='a'\n[tokens.constants]\nlogp_new=1", "both"),
    "step as a column": ("step = 'k'\n[tokens.columns]\nstep = 'k'", "not as a column"),
    "a wrong type": ("step = 3.5\n[tokens]", "must be a string or an integer"),
    "a column that is a number": ("step = 'k'\n[tokens.columns]\nlogp_new = 3", "must be the name of a column"),
    "a seed that is a word": ("step = 'k'\n[tokens]\nfiles='*'\n[run]\nseed = 'one'", "wrong type"),
    "no files": ("step = 'k'\n[tokens]", "names no files below"),
    "files elsewhere": ("step = 'k'\n[tokens]\nfiles = '../*'", "names no files below"),
    "files of the system": ("step = 'k'\n[tokens]\nfiles = '/etc/*'", "is no pattern below"),
    "an unknown term": ("step='k'\n[tokens]\nfiles='*'\ncolumns.token_id='k - agee'", "'agee' is not"),
    "code": ("step='k'\n[tokens]\nfiles='*'\n[tokens.columns]\nbehavior_version='f(1) - k'", "'f(1)' is not"),
    "a sum of numbers": ("step='k'\n[tokens.columns]\nbehavior_version='3 + 4'", "under [tokens.constants]"),
    "a step of numbers": ("step='0 + 1'\n[tokens]", "step = '0 + 1' names no column; write step = 1."),
    "an infinite constant": ("step='k'\n[tokens]\nfiles='*'\n[tokens.constants]\nadvantage=inf", "a finite number"),
    "an index of nothing": ("step='k'\n[tokens]\nfiles='*'\nignore_index=-100", "is about a mask"),
    "two layouts": ("step='k'\n[tokens]\nfiles='*'\n[sequences]\nlayout='steps'", "whose layout counts"),
    "no file": ("step = 'k'\n[tokens]\nfiles = '*.parquet'", "no file below"),
}  # fmt: skip


@in_one_loop("case", MISTAKES)
def test_a_mistake_in_the_mapping_file_is_one_sentence(case: tuple[str, str], tmp_path: Path) -> None:
    text, said = case
    (tmp_path / "x").mkdir(exist_ok=True)
    (tmp_path / "x" / "a.jsonl").write_text(json.dumps(GOOD) + "\n")
    with pytest.raises(RatioscopeError) as problem:
        steps_of(tmp_path / "x", text)
    assert said in str(problem.value) and "mapping.toml" in str(problem.value)
    assert "\n" not in str(problem.value) and re.search(r"[.?]$", str(problem.value))


def test_scalars_of_steps_come_from_their_own_file(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    written(folder, [response_alone(r) for r in ALL], "parquet", "tokens")
    rows = [{"s": 0, "loss": 1.0}, {"s": 0, "norm": 2.0}, {"s": 1, "loss": None, "t": "2026-01-02T03:04:05Z"}]
    rows += [{"s": 2, "t": "2026-01-02T03:04:05"}, {"s": 9}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"""step = 'k'
[tokens]
files = 'tokens.parquet'
{COLUMNS}
[steps]
files = 'metrics.jsonl'
step = 's'
[steps.columns]
loss = 'loss'
grad_norm = 'norm'
wall_time = 't'
"""
    steps = steps_of(folder, text)
    assert [dict(step.scalars) | {"wall_time": None} for step in steps] == [
        {"loss": 1.0, "grad_norm": 2.0, "wall_time": None}, {"wall_time": None}, {"wall_time": None}
    ]  # fmt: skip
    for step in steps[1:]:
        assert step.scalars["wall_time"].isoformat() == "2026-01-02T03:04:05+00:00"


def test_what_is_known_of_steps_may_stand_beside_the_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    written(folder, [response_alone(r) | {"v": r.step + 7} for r in ALL], "jsonl", "tokens")
    text = f"""step = 'k'
[tokens]
files = 'tokens.jsonl'
{COLUMNS}
[steps.columns]
policy_version = 'v'
"""
    assert [step.scalars["policy_version"] for step in steps_of(folder, text)] == [7, 8, 9]
    said = text.replace("[steps.columns]\npolicy_version", "[tokens.constants]\nbehavior_version = 0\n[run]\nnotes")
    description = mapped(folder, said).describe(folder)
    assert description is not None and "age" in description.missing["policy_version"]


def test_texts_and_rewards_alone_are_a_source(tmp_path: Path) -> None:
    rows = [
        {"k": 0, "q": [{"role": "user", "content": "x"}], "a": "y", "score": 1},
        {"k": 1, "q": "x", "a": "z", "score": 0},
    ]
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps(rows[0]) + "\n")
    text = "step = 'k'\n[sequences]\nfiles = '*'\n[sequences.columns]\nprompt = 'q'\nresponse = 'a'\nreward = 'score'"
    (step,) = steps_of(folder, text)
    assert step.tokens is None
    assert step.sequences["prompt"][0] == '[{"role": "user", "content": "x"}]'
    assert list(step.sequences["seq_id"]) == [0]


def test_a_text_of_a_database_that_looks_like_a_list_stays_text(tmp_path: Path) -> None:
    """What a column is mapped to decides, and no value of it."""
    answers = ["[1, 2, 3]", "The answer is 5", "[4]"]
    rows = [{"k": 0, "a": answer, "id": f"[{place}]"} for place, answer in enumerate(answers)]
    written(tmp_path / "x", rows, "db")
    text = "step = 'k'\n[sequences]\nfiles = '*'\ntable = 'data'\n[sequences.columns]\nresponse = 'a'\ngroup_id = 'id'"
    (step,) = steps_of(tmp_path / "x", text)
    assert list(step.sequences["response"]) == answers and step.sequences["group_id"].tolist() == [0, 1, 2]
    group = {"k": 0, "q": '["a", "b", "c"]', "a": ["[2]", "3"]}
    written(tmp_path / "y", [group], "db")
    text = text.replace("table", "layout = 'groups'\ntable").replace("group_id = 'id'", "prompt = 'q'")
    (step,) = steps_of(tmp_path / "y", text)
    assert list(step.sequences["response"]) == group["a"] and list(step.sequences["prompt"]) == [group["q"]] * 2


def test_a_template_names_the_columns_that_are_there(tmp_path: Path) -> None:
    hostile = 'evil"\n[run]\nseed = 7'
    written(tmp_path / "x", [response_alone(r) | {"rollout_log_probs": r.behavior, hostile: 1} for r in ALL], "parquet")
    text = template(tmp_path / "x")
    assert '#? logp_behavior = "rollout_log_probs"   # list<double>' in text
    assert 'files = "data.parquet"' in text and "\n[run]" not in text
    assert template(None).startswith("# What the files hold")
    with pytest.raises(RatioscopeError, match="no file here that a mapping file can describe"):
        (tmp_path / "y").mkdir()
        template(tmp_path / "y")


def test_names_of_files_and_folders_are_names_alone_in_a_template(tmp_path: Path) -> None:
    folder = tmp_path / "we\nird = 'x'\n[tokens]\x1b[31m"
    rows = [GOOD | {"completion_ids": [1, 2]}]
    for name in ("a[1]'s 3", "b*?"):
        written(folder, rows, "jsonl", name)
        text = template(folder)
        found = tomllib.loads(text)
        assert "ird" not in found and text.count("\n[tokens]\n") == 1
        importer = mapped(
            folder, "step = 0\n" + re.sub(r"^#\? step.*$", "", text, flags=re.MULTILINE).replace("#? ", "")
        )
        assert len(list(importer.read(folder, Reading()))) == 1
        (folder / f"{name}.jsonl").unlink()


def gym_items(r: Response) -> dict[str, Any]:
    """As NeMo-Gym writes a rollout: items of a response, of which the sampled ones have tokens."""
    half = (len(r.tokens) + 1) // 2
    items = [
        {"type": "message", "prompt_token_ids": r.prompt, "generation_token_ids": r.tokens[at]}
        | {"generation_log_probs": r.behavior[at], "content": [{"type": "output_text", "text": "a"}]}
        for at in (slice(0, half), slice(half, None))
    ]
    output = [items[0], {"type": "function_call_output", "call_id": "1", "output": "b"}, items[1]]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "x"}]},
        "response": {"id": "r", "output": output, "created_at": 1.5, "usage": {"input_tokens": 3}},
        "reward": r.reward,
        "task_index": r.group,
    }


def rows_of_atropos(found: list[Response]) -> list[dict[str, Any]]:
    return [
        {"tokens": row["ids"], "masks": row["labels"], "scores": row["score"], "inference_logprobs": row["mu"]}
        | {"advantages": None, "ref_logprobs": None, "group_overrides": {}, "overrides": None, "images": None}
        | {"messages": [[{"role": "user", "content": "x"}]] * len(row["score"])}
        for row in groups_of_lists(found)
    ]


def rows_of_swift(found: list[Response]) -> list[dict[str, Any]]:
    return [
        {"gen_step": row["k"], "prompt": [json.dumps(each) for each in row["q"]], "completion": ["a"] * len(row["k"])}
        | {"Accuracy": row["score"], "reward": row["score"], "completion_ids": row["ids"]}
        | {"rollout_per_token_logps": row["mu"], "old_per_token_logps": row["old"], "completion_mask": row["m"]}
        for row in steps_of_lists(found)
    ]


def gateway_rows(r: Response) -> dict[str, Any]:
    """As rLLM's gateway keeps a call: a row of a table, with the rest as JSON."""
    data = {"prompt_token_ids": r.prompt, "completion_token_ids": r.tokens, "logprobs": r.behavior}
    data |= {"weight_version": r.step, "finish_reason": "stop", "reward": r.reward}
    return {"trace_id": f"t{r.step}-{r.group}", "data": data, "created_at": 1.5 + r.step}


def plain_parquet(r: Response) -> dict[str, Any]:
    row = with_prompt(r)
    return {
        "global_step": r.step, "uid": row["uid"], "score": r.reward, "prompt_len": row["p"], "response": "a",
        "token_ids": row["ids"], "loss_mask": row["m"], "rollout_log_probs": row["mu"], "old_log_probs": row["old"],
    }  # fmt: skip


FOLDERS: dict[str, tuple[Any, str, bool, bool]] = {
    "items": ([gym_items(r) for r in ALL], "jsonl", False, False),
    "groups": (rows_of_atropos(ALL), "jsonl.zst", True, False),
    "steps": (rows_of_swift(ALL), "jsonl", True, True),
    "a database": ([gateway_rows(r) for r in ALL], "db", False, False),
    "parquet": ([plain_parquet(r) for r in ALL], "parquet", True, True),
}


@in_one_loop("case", FOLDERS)
def test_a_template_of_a_folder_imports_once_its_guesses_are_turned_on(
    case: tuple[Any, str, bool, bool], tmp_path: Path
) -> None:
    """Nothing is changed in it: the layout, the columns, and of which step a row is."""
    rows, kind, masked, with_steps = case
    folder = tmp_path / kind / str(len(rows)) / "x"
    folder.parent.mkdir(parents=True)
    written(folder, rows, kind)
    (folder / "config.json").write_text('{"seed": 1}')
    text = template(folder)
    steps = steps_of(folder, re.sub(r"^#\? ", "", text, flags=re.MULTILINE))
    wanted = [r if with_steps else replace(r, step=0) for r in ALL]
    found = [(row[3], row[4]) for _, rows in rows_of_values(steps) for row in rows]
    assert found == [(row[3], row[4]) for _, rows in expected(wanted, masked) for row in rows]
    assert [step.number for step in steps] == sorted({r.step for r in wanted})
    assert [reward for step in steps for reward in step.sequences["reward"]] == [r.reward for r in ALL]
    if "group_id" in steps[0].sequences:
        groups = {(r.step, r.group) for r in ALL}
        assert sum(len(set(step.sequences["group_id"])) for step in steps) in (len(groups), len({g for _, g in groups}))


def rows_of_values(steps: list[Step]) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """As `rows_of`, where some columns are not there."""
    absent = np.zeros(0)
    for step in steps:
        assert step.tokens is not None
        for name in ("group_id", "logp_current"):
            step.tokens.setdefault(name, np.resize(absent, len(step.tokens["token_id"])))
    return rows_of(steps)


def test_the_documented_mapping_file_does_what_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "importing.md").read_text(encoding="utf-8")
    text = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)[0]
    rows = [
        {
            "global_step": r.step, "prompt_len": len(r.prompt), "tokens": r.prompt + r.tokens, "uid": f"g{r.group}",
            "loss_mask": [0] * len(r.prompt) + ints(r.sampled), "rollout_log_probs": r.behavior, "text": "x",
            "old_log_probs": r.current, "advantages": [1.0] * len(r.tokens), "score": r.reward,
        }
        for r in ALL
    ]  # fmt: skip
    written(tmp_path / "rollouts", rows, "jsonl")
    assert rows_of(steps_of(tmp_path / "rollouts", text)) == expected(ALL)


def test_the_documented_layouts_do_what_the_page_says(tmp_path: Path) -> None:
    """Each section has a line of a file and the mapping file for it."""
    page = (Path(__file__).parents[3] / "docs" / "importing.md").read_text(encoding="utf-8")
    found = re.findall(r"```json\n(.*?)```\n.*?```toml\n(.*?)```", page, flags=re.DOTALL)
    said = {}
    for number, (lines, text) in enumerate(found):
        folder = tmp_path / str(number) / "x"
        kind = "jsonl.zst" if "jsonl.zst" in text else "db" if "traces.db" in text else "jsonl"
        folder.parent.mkdir()
        name = re.findall(r'files = "([\w*]+)\.', text)[0].replace("*", "1")
        written(folder, [json.loads(line) for line in lines.splitlines()], kind, name)
        steps = steps_of(folder, text)
        tokens = [step.tokens["token_id"].tolist() for step in steps if step.tokens is not None]
        said[number] = ([step.number for step in steps], tokens, [list(step.sequences["reward"]) for step in steps])
        for step in steps:
            if step.tokens is not None and "behavior_version" in step.tokens:
                assert step.tokens["behavior_version"].tolist() == [11] * 4 + [12] * 1
    assert said == {
        0: ([0], [[11, 12, 13]], [[1.0]]),
        1: ([0], [[12, 13, 14]], [[1.0, 0.0]]),
        2: ([0], [[11, 12, 13]], [[1.0, 0.0]]),
        3: ([3], [], [[1.0, 0.0]]),
        4: ([0], [[11, 12, 13, 14, 15]], [[1.0, 0.0]]),
    }


def test_a_file_that_is_being_written_is_waited_for_with_what_comes_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    for step in range(3):
        rows = [response_alone(r) for r in ALL if r.step == step]
        written(folder, rows, "parquet", f"step_{step}")
    torn = folder / "step_1.parquet"
    whole = torn.read_bytes()
    for said in ("step = 'k'", "step_in_name = '(\\d+)'"):
        text = f"{said}\n[tokens]\nfiles = '*'\nmask = 'm'\n{COLUMNS}"
        importer = mapped(folder, text)
        torn.write_bytes(whole[:200])
        assert [step.number for step in importer.read(folder, Reading(growing=True))] == []
        with pytest.raises(ImportProblem, match=r"step_1\.parquet: cannot be read"):
            list(importer.read(folder, Reading()))
        assert [step.number for step in importer.read(folder, Reading(skip_bad=True))] == [0, 2]
        torn.write_bytes(whole)
        assert [step.number for step in importer.read(folder, Reading(growing=True))] == [0, 1]
