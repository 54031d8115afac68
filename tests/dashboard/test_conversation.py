"""Conversations in the token reader: whose turn it is, what was said in between, and texts without tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.tokens.reader import read_sequence
from ratioscope.dashboard.components.conversation import between
from tests.making.pages import elements, sentences, visit
from tests.making.sources import HOSTILE

ROLES = ("system", "user", "assistant", "tool", "assistant", "user")
TURNS = [2, 2, 2, 4, 4]


def write_conversation(folder: Path, *, tokens: bool = True, messages: bool = True) -> Path:
    """One response of two sampled turns, with a tool's output between them; without token ids."""
    columns: dict[str, Any] = {
        "seq_id": np.zeros(5, dtype=int), "position": np.arange(5), "turn": TURNS,
        "logp_behavior": -np.arange(1.0, 6.0), "kept_mass": np.full(5, 0.9),
        "rejected": [None, None, "too stale", None, None],
    }  # fmt: skip
    said = {
        "seq_id": [0] * 6, "turn": list(range(6)), "role": list(ROLES),
        "tool": [None, None, None, "python", None, None],
        "content": [f"{role} says {HOSTILE}\u202e" for role in ROLES],
    }  # fmt: skip
    with RunRecorder(folder) as recorder:
        recorder.record_step(
            0,
            tokens=columns if tokens else None,
            sequences={"seq_id": [0], "reward": [0.5], "truncated": [True], "n_turns": [2]},
            messages=said if messages else None,
        )
    return folder


def strip(at: AppTest) -> dict[str, Any]:
    (found,) = (
        json.loads(element.proto.json)
        for element in elements(at)
        if element.type == "bidi_component" and element.proto.component_name == "ratioscope_token_strip"
    )
    return dict(found)


def test_messages_stand_between_the_tokens_of_the_turns(tmp_path: Path) -> None:
    read = read_sequence(open_run(write_conversation(tmp_path / "run")), 0, 0)
    found = between(read)
    assert sorted(found) == [0, 3, 5]
    assert [heading for heading, _ in found[0]] == ["turn 0 · system", "turn 1 · user", "turn 2 · assistant"]
    assert [heading for heading, _ in found[3]] == ["turn 3 · tool · python", "turn 4 · assistant"]
    assert [heading for heading, _ in found[5]] == ["turn 5 · user"]
    texts = [text for row in found.values() for _, text in row]
    assert [text.split(" says")[0] for text in texts] == ["system", "user", "", "tool", "", "user"]
    assert not any("\u202e" in text for text in texts)


def test_turns_alone_are_marked_and_one_turn_is_not(tmp_path: Path) -> None:
    read = read_sequence(open_run(write_conversation(tmp_path / "run", messages=False)), 0, 0)
    assert between(read) == {0: [("turn 2", "")], 3: [("turn 4", "")]}
    read.tokens["turn"] = 0
    assert between(read) == {}


def test_the_reader_shows_turns_kept_mass_and_what_a_mask_took_out(root: Path) -> None:
    write_conversation(root / "run")
    at = visit("tokens", run="run")
    shown = strip(at)
    assert shown["texts"] == ["@0", "@1", "@2", "@3", "@4"]
    assert [len(pairs) for pairs in shown["between"]] == [3, 0, 0, 2, 0, 1]
    fields = dict(zip(shown["fields"], shown["values"][2], strict=True))
    assert (fields["turn"], fields["mass kept by top-k, top-p"]) == ("2", "0.9")
    assert fields["taken out of the loss"] == "too stale"
    assert at.selectbox(key="colour").options == ["Surprise, −log p when sampled (nats)"]
    said = sentences(at)
    assert "positions are shown because token_id is not logged" in said
    assert "truncated: the response reached the length limit" in said


def test_a_conversation_without_tokens_is_read_as_text(root: Path) -> None:
    write_conversation(root / "run", tokens=False)
    at = visit("tokens", run="run")
    said = sentences(at)
    assert "This log does not say what single tokens did and which tokens did it, because no tokens are logged." in said
    assert "turn 3 · tool · python" in said
    assert f"tool says {HOSTILE}" in said
    assert "reward **0.5**" in said
    assert "token rows" not in said


@pytest.mark.parametrize("page", ["overview", "linter"])
def test_a_conversation_without_tokens_opens_elsewhere(root: Path, page: str) -> None:
    write_conversation(root / "run", tokens=False)
    visit(page, run="run")
