"""Atropos' scored groups, written by its own environment and managed server."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import atropos
from ratioscope.errors import RatioscopeError
from tests.making.foreign.reading import column, steps_of

STORED = Path(__file__).parents[2] / "making" / "foreign" / "stored" / "atropos"
POLICY = np.array(json.loads((STORED / "policy.json").read_text()))
GROUPS = [json.loads(line) for line in (STORED / "groups" / "words.jsonl").read_text().splitlines()]


def sampled(group: dict[str, Any], member: int) -> list[tuple[int, float]]:
    """Tokens that the policy sampled and their log-probabilities, by the policy itself."""
    ids, mask = group["tokens"][member], group["masks"][member]
    return [(ids[place], POLICY[ids[place - 1], ids[place]]) for place in range(len(ids)) if mask[place] != -100]


def test_what_the_policy_sampled(tmp_path: Path) -> None:
    (step,) = steps_of(atropos.IMPORTER, STORED / "groups")
    assert step.tokens is not None and step.number == 0
    assert step.sequences["group_id"] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert step.sequences["reward"] == [score for group in GROUPS for score in group["scores"]]
    for place in range(9):
        known = sampled(GROUPS[place // 3], place % 3)
        assert column(step, "token_id", place).tolist() == [token for token, _ in known]
        found, expected = column(step, "logp_behavior", place), np.array([logp for _, logp in known])
        there = np.isfinite(found)  # one token has none: the server gave too few, and Atropos writes 1
        np.testing.assert_allclose(found[there], expected[there], rtol=1e-6)
        assert (~there).sum() == (place == 0)
    assert len(sampled(GROUPS[0], 0)) > len(sampled(GROUPS[0], 1)) and step.sequences["prompt_tokens"] == [4] * 9


def test_turns_and_texts() -> None:
    (step,) = steps_of(atropos.IMPORTER, STORED / "groups")
    assert step.tokens is not None and step.messages is not None
    assert step.sequences["n_turns"][:2] == [2, 1] and step.sequences["n_tool_calls"][:2] == [1, None]
    assert [*dict.fromkeys(column(step, "turn", 0).tolist())] == [1, 3]
    rows = [
        (role, count)
        for seq, role, count in zip(*(step.messages[name] for name in ("seq_id", "role", "n_tokens")), strict=True)
        if seq == 0
    ]
    assert [role for role, _ in rows] == ["user", "assistant", "tool", "assistant"]
    assert sum(count or 0 for _, count in rows) == len(sampled(GROUPS[0], 0))
    assert step.sequences["prompt"][1] == "user: one two"
    assert step.sequences["response"][1] == GROUPS[0]["messages"][1][1]["content"]


def test_advantages_teacher_and_a_response_that_has_no_advantage() -> None:
    (step,) = steps_of(atropos.IMPORTER, STORED / "groups")
    assert step.tokens is not None
    assert step.sequences["dropped"] == [None] * 4 + ["set_advantage_to_zero"] + [None] * 4
    rejected = np.asarray(step.tokens["rejected"])
    assert {*rejected[np.asarray(step.tokens["seq_id"]) == 4]} == {"set_advantage_to_zero"}
    for place in range(9):
        advantage, teacher = column(step, "advantage", place), column(step, "logp_teacher", place)
        if place // 3 != 1:
            assert np.isnan(advantage).all() and np.isnan(teacher).all()
            continue
        assert (advantage == np.float32(GROUPS[1]["advantages"][place % 3][0])).all()
        assert (teacher[:-1] == -0.5).all() and np.isnan(teacher[-1])  # the last token is not among the teacher's


def test_what_is_missing_is_what_the_file_lacks(tmp_path: Path) -> None:
    found = atropos.IMPORTER.describe(STORED / "groups")
    assert found is not None and "logp_behavior" not in found.missing and "advantage" in found.missing
    assert any(sentence.startswith("A log-probability of 1") for sentence in found.assumed)
    bare = {name: GROUPS[0][name] for name in ("tokens", "masks", "scores")}
    write(tmp_path / "a.jsonl", bare, bare | {"advantages": [[1.0] * len(ids) for ids in bare["tokens"]]})
    found = atropos.IMPORTER.describe(tmp_path)
    assert found is not None and {"logp_behavior", "advantage"} <= found.missing.keys() and len(found.assumed) == 2
    (step,) = steps_of(atropos.IMPORTER, tmp_path)
    assert step.tokens is not None and "logp_behavior" not in step.tokens and step.messages is None


def test_placeholders_of_an_endpoint_without_tokens_are_none(tmp_path: Path) -> None:
    """Every response has the token ids 0 to 127, at -0.5 each."""
    ids, logps = [*range(128)], [-0.5] * 128
    fake = {"tokens": [ids, ids], "masks": [[-100, *ids[1:]]] * 2, "inference_logprobs": [logps] * 2, "scores": [1, 0]}
    write(tmp_path / "a.jsonl", fake)
    found = atropos.IMPORTER.describe(tmp_path)
    assert found is not None and "placeholders" in found.missing["token_id"]
    (step,) = steps_of(atropos.IMPORTER, tmp_path)
    assert step.tokens is None and step.sequences["reward"] == [1, 0]


def test_text_that_atropos_decoded_itself_is_no_conversation(tmp_path: Path) -> None:
    alone = [[{"role": "user", "content": "all of it"}]] * 3
    write(tmp_path / "a.jsonl", GROUPS[0] | {"messages": alone})
    (step,) = steps_of(atropos.IMPORTER, tmp_path)
    assert step.messages is None and "prompt" not in step.sequences and "response" not in step.sequences


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"scores": [1.0]}, "tokens, masks, scores are not lists of one length"),
        ({"masks": None}, "tokens, masks, scores are not lists of one length"),
        ({"inference_logprobs": [[-1.0]] * 3}, "response 0 cannot be read: 1 of logp_behavior for 19 tokens"),
        ({"tokens": [[2.5] * 19] * 3}, "response 0 cannot be read: a token id is no whole number of 32 bits"),
        ({"tokens": [[2**40] * 19] * 3}, "response 0 cannot be read: a token id is no whole number of 32 bits"),
        ({"tokens": [["a"] * 19] * 3}, "response 0 cannot be read: a token id is no whole number of 32 bits"),
        ({"distill_token_ids": [[[1]]] * 3, "distill_logprobs": [[[-1]]] * 3}, "response 0 cannot be read"),
        ({"messages": ["no list"] * 3}, None),
        ({"overrides": ["no object"] * 3}, None),
    ],
)
def test_lines_that_are_not_right_are_named(change: dict[str, Any], what: str | None, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", GROUPS[0], GROUPS[0] | change)
    if what is None:
        (step,) = steps_of(atropos.IMPORTER, tmp_path)
        assert len(step.sequences["reward"]) == 6
        return
    with pytest.raises(ImportProblem, match=rf"a\.jsonl, line 2: {what}.*\.$"):
        list(atropos.IMPORTER.read(tmp_path, Reading()))
    reading = Reading(skip_bad=True)
    (step,) = atropos.IMPORTER.read(tmp_path, reading)
    assert 3 <= len(step.sequences["reward"]) < 6 and reading.problems


def test_a_file_that_lacks_a_key_is_told_whose_it_is(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"tokens": [[1]], "masks": [[1]]})
    with pytest.raises(RatioscopeError, match="by its name it is from Atropos scored groups, but it has no scores"):
        the_source(tmp_path)


def test_a_file_that_is_still_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    whole = "".join(json.dumps(group) + "\n" for group in GROUPS)
    file.write_text(whole[:-40])
    assert list(atropos.IMPORTER.read(tmp_path, Reading(growing=True))) == []
    with pytest.raises(ImportProblem, match="line 3: the file ends within this line"):
        list(atropos.IMPORTER.read(tmp_path, Reading()))
    file.write_text(whole)
    assert len(steps_of(atropos.IMPORTER, tmp_path)) == 1


def write(file: Path, *groups: dict[str, Any]) -> None:
    file.write_text("".join(json.dumps(group) + "\n" for group in groups))
