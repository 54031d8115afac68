"""A text in the responses of a run and the next wrong answer, against a search in Python."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.tokens.search import next_response, reward_halves, search_responses, text_column
from ratioscope.errors import RatioscopeError
from ratioscope.run_format.schema import HELD_OUT
from tests.making.runs import plain_step, write_run

WORDS = ("Red", "fish\n", "100%", "_[x]", "Éa", "' or 1", "$text")
REWARDS = (0.0, 1.0, math.nan, 1.0)


def _written(folder: Path, *, responses: bool) -> tuple[Run, dict[tuple[int, int], str]]:
    """Four steps of four responses of three tokens; the last response of each was held out. The texts by place."""
    steps, texts = [], {}
    for number in range(4):
        step = plain_step([-1.0] * 12, [-1.0] * 12, number=number, sequence=np.repeat(range(4), 3))
        step.tokens["token_id"] = np.random.default_rng(number).integers(0, len(WORDS), 12)
        said = ["".join(WORDS[token] for token in ids) for ids in step.tokens["token_id"].reshape(4, 3)]
        texts |= {(number, seq): text for seq, text in enumerate(said[:3])}
        step.sequences.update(reward=np.array(REWARDS), dropped=[None, None, None, HELD_OUT])
        steps.append(step.with_sequences(response=said) if responses else step)
    return open_run(write_run(folder, steps, vocabulary=WORDS.__getitem__)), texts


@pytest.mark.parametrize("responses", [True, False])
def test_what_is_found_is_what_python_finds(tmp_path: Path, responses: bool) -> None:
    run, texts = _written(tmp_path / "run", responses=responses)
    assert text_column(run) == ("response" if responses else "token_id")
    for text in ("red", "éA", "%", "_", "[x]", "'", "$text", "/", "/Red$/", "/(?i)fISH./", "/[0-9]+%/", "nowhere"):
        pattern = re.compile(text[1:-1], re.MULTILINE) if len(text) > 2 and text[0] == "/" else None
        fits = {
            place
            for place, said in texts.items()
            if (pattern.search(said) if pattern else text.lower() in said.lower())
        }
        found = search_responses(run, text, 1, 3)
        places = list(zip(found.frame["step"], found.frame["seq_id"], strict=True))
        assert places == sorted(place for place in fits if place[0]), text
        assert found.total == len(places)
        wrong = [place for place in sorted(fits) if REWARDS[place[1]] == 0.0 and place > (1, 0)]
        assert next_response(run, (1, 0), "reward <= 0.5", text) == next(iter(wrong), None), text
    with pytest.raises(RatioscopeError, match=r"^/\(/ is not a regular expression: missing \)\.$"):
        search_responses(run, "/(/", 0, 3)


def test_a_match_is_shown_at_its_own_place(tmp_path: Path) -> None:
    said = "17 is prime.\n" + "x" * 200 + " so 7 it is" + "y" * 200
    step = plain_step([-1.0], [-1.0]).with_sequences(response=[said])
    run = open_run(write_run(tmp_path / "run", [step]))
    for text, begins in (
        (r"/\b7\b/", "… x"),
        ("so 7", "… x"),
        ("/7|so/", "17 is"),
        (r"/\Qprime.\E/", "17 is"),
        (r"/\Qprime./", "17 is"),
        ("/(?i)IT is(y)?/", "… x"),
        ("/y$/", "… y"),
        ("/prime.$/", "17 is"),
        ("/^x/", "17 is"),
    ):
        shown = search_responses(run, text, 0, 0).frame["response"][0]
        assert shown.startswith(begins) and (begins != "… x" or "so 7 it" in shown), text


def test_the_next_wrong_and_right_answer_follow_the_log_and_end(tmp_path: Path) -> None:
    run, _ = _written(tmp_path / "run", responses=True)
    halves = reward_halves(run)
    assert halves is not None
    assert (halves.middle, halves.names) == (0.5, ("wrong answer", "right answer"))
    for high, seq in ((False, 0), (True, 1)):
        place: tuple[int, int] | None = (0, -1)
        seen = []
        while place := next_response(run, place, halves.condition(high=high)):
            seen.append(place)
        assert seen == [(step, seq) for step in range(4)], "neither NaN nor what was held out is an answer"


def test_a_part_about_correctness_is_what_is_asked(tmp_path: Path) -> None:
    step = plain_step([-1.0] * 3, [-1.0] * 3)
    parts = {"reward": [0.0, 0.3, 1.3], "reward_form": [0, 1, 1], "reward_correct": [0, 0, 1]}
    halves = reward_halves(open_run(write_run(tmp_path / "run", [step.with_sequences(**parts)])))
    assert halves is not None and (halves.column, halves.names[1]) == ("reward_correct", "right answer")
    graded = reward_halves(open_run(write_run(tmp_path / "graded", [step.with_sequences(reward=[0.0, 0.3, 1.3])])))
    assert graded is not None and graded.names == ("low reward", "high reward")
    assert reward_halves(open_run(write_run(tmp_path / "same", [step]))) is None
