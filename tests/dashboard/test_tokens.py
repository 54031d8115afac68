"""The Tokens page, its reader, and the dialog of a step."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.tokens.contributions import contributions, contributions_sentence
from ratioscope.analysis.tokens.reader import read_sequence
from ratioscope.analysis.tokens.search import next_response, reward_halves
from ratioscope.dashboard.annotations import MOST_PINS, Annotation, annotation_of, write_annotation
from ratioscope.dashboard.components import token_strip
from ratioscope.dashboard.components.token_colours import COLOURINGS, classes, legend
from ratioscope.dashboard.roots import serve_from
from tests.dashboard.conftest import make_steps
from tests.making.pages import checked, elements, query, sentences, visit
from tests.making.runs import random_step, write_run

Look = Callable[..., AppTest]

HOSTILE = "EVIL\u202e\x07<img src=x onerror=alert(1)> ![](http://127.0.0.2/x) **bold**"
STYLE = (Path(token_strip.__file__).parent / "token_strip.css").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with hostile texts on the same prompts, and one that names no prompt."""
    folder = tmp_path_factory.mktemp("tokens")
    for seed, name in enumerate(("here", "there", "bare")):
        algorithm = {"name": "grpo"}
        with RunRecorder(folder / name, vocabulary=lambda token: HOSTILE, algorithm=algorithm, seed=seed) as recorder:
            for step in make_steps(5):
                number = len(step.sequences["seq_id"])
                texts = {
                    "prompt_id": np.arange(number) // 3,
                    "prompt": [f"{HOSTILE} {group}" for group in np.arange(number) // 3],
                    "response": [HOSTILE] * number,
                    "finish_reason": ["length"] * number,
                }
                recorder.record_step(
                    step.number,
                    tokens=step.tokens,
                    sequences=step.sequences | (texts if name != "bare" else {}),
                    scalars=step.scalars,
                )
    return folder


@pytest.fixture
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder])
    return folder


def strips(at: AppTest) -> list[dict[str, Any]]:
    """What the token readers of the page get."""
    protos = [element.proto for element in elements(at) if element.type == "bidi_component"]
    return [json.loads(proto.json) for proto in protos if proto.component_name == "ratioscope_token_strip"]


def element_cells(element: Any) -> list[str]:
    """Texts of a table."""
    if element.type != "arrow_data_frame":
        return []
    return [str(text) for column in element.value.select_dtypes("object") for text in element.value[column]]


def test_without_a_link_the_worst_sequence_is_open(served: Path) -> None:
    at = visit("tokens", run="here")
    found = contributions(open_run(served / "here"), "s_k")
    named = re.search(r"Responses? (\d+).* of step (\d+)", sentences(at))
    worst = found.frame.iloc[0]
    if "No response of steps 0 to 4 stands out" in sentences(at):
        assert named is not None
        inside = contributions(open_run(served / "here"), "s_k", int(named[2]), int(named[2]))
        worst = inside.frame.iloc[0]
        assert int(named[1]) == worst["seq_id"]
    assert contributions_sentence(found, "steps 0 to 4") in sentences(
        at
    ) or "No response of steps 0 to 4 stands out" in sentences(at)
    assert f"## Step {worst['step']:.0f}, response {worst['seq_id']:.0f}" in sentences(at)
    assert len(strips(at)[0]["texts"]) == worst["n_tokens"]
    assert strips(at)[0]["chosen"] == worst["position"]
    assert "The plain form does not bound what one token weighs." in sentences(at)
    assert "1% of the tokens carry" in sentences(at)


@pytest.mark.parametrize(("link", "window"), [
    ({"step": "2"}, "step 2"),
    ({"step": "2", "seq": "4"}, "step 2"),
    ({"step": "2", "where": "these steps"}, "steps 0 to 4"),
    ({"step": "2", "from": "1", "to": "3"}, "steps 1 to 3"),
    ({"step": "2", "from": "1", "to": "3", "where": "this step"}, "step 2"),
])  # fmt: skip
def test_answer_tiles_and_table_are_of_the_steps_of_the_link(served: Path, link: dict[str, str], window: str) -> None:
    at = visit("tokens", run="here", show="chi2_token", **link)
    run, steps = open_run(served / "here"), [int(number) for number in re.findall(r"\d+", window)]
    found = contributions(run, "chi2_token", steps[0], steps[-1])
    assert contributions_sentence(found, window) in sentences(
        at
    ) or f"No response of {window} stands out. Resp" in sentences(at)
    assert (f"What differs in {window} from the rest of the run is unknown" in sentences(at)) == (window[-1] != "4")
    table = at.dataframe[0].value
    assert table["seq_id"].tolist() == found.frame["seq_id"].tolist()
    assert at.selectbox(key="by").value == "chi2_token" and "plain form does not bound" not in sentences(at)
    assert f"## Step 2, response {link['seq']}" in sentences(at) if "seq" in link else True


def test_the_step_that_is_offered_is_that_of_the_open_response(served: Path) -> None:
    """It offered the step of the link, or the one where the number is highest, with a row of another step ticked."""
    for link in ({}, {"step": "2", "where": "these steps"}):
        at = visit("tokens", run="here", **link)
        (step,) = (text.split()[2] for text in sentences(at).splitlines() if re.match(r"## Step \d+, response", text))
        assert at.button(key="where").label == f"Show step {step.rstrip(',')} alone"
    assert at.button(key="where").click().run().button(key="where").label == "Show steps 0 to 4 instead"
    assert query(at, "step") == [step.rstrip(",")]


def test_a_link_restores_sequence_token_colour_and_criterion(served: Path) -> None:
    at = visit("tokens", run="here", step="3", seq="4", token="1", colour="Entropy (nats)", by="Lowest reward")
    assert "## Step 3, response 4" in sentences(at)
    read = read_sequence(open_run(served / "here"), 3, 4)
    shown = strips(at)[0]
    assert shown["chosen"] == 1
    assert shown["classes"] == classes(read.tokens, COLOURINGS["entropy"])
    assert at.selectbox(key="by").value == "lowest_reward"
    fields = dict(zip(shown["fields"], shown["values"][0], strict=True))
    assert float(fields["log p behavior"]) == pytest.approx(read.tokens["logp_behavior"][0], rel=0.01)
    assert {"log p current", "log p new", "log p reference", "gate", "entropy (nats)", "version lag"} <= fields.keys()


@pytest.mark.parametrize(("step", "seq"), [("99", "0"), ("1", "777")])
def test_a_sequence_that_is_not_there_is_said(served: Path, step: str, seq: str) -> None:
    said = sentences(visit("tokens", run="here", step=step, seq=seq))
    assert f"Step {step}, response {seq} cannot be read." in said
    assert f"there is no response {seq} in step {step}" in said


@pytest.mark.parametrize("value", ["-1", "9" * 40, "²"])
def test_a_senseless_link_is_no_link(served: Path, value: str) -> None:
    at = visit("tokens", run="here", step=value, seq=value, token=value, beside=value, other=value, by=value)
    assert "## Step" in sentences(at)
    assert at.selectbox(key="by").value == "s_k"


def test_the_same_prompt_of_another_run_is_beside_it_in_the_same_colours(served: Path) -> None:
    at = visit("tokens", run="here", step="3", seq="4", other="there")
    assert "## there: step 3, response 3" in sentences(at)
    assert len(strips(at)) == 2
    assert strips(at)[0]["legend"] == strips(at)[1]["legend"]


def test_a_run_without_prompts_cannot_have_the_same_one(served: Path) -> None:
    said = sentences(visit("tokens", run="here", step="3", seq="4", other="bare"))
    assert "that run logs neither prompts nor their ids" in said
    said = sentences(visit("tokens", run="bare", step="3", seq="4", other="here"))
    assert "this run logs neither prompts nor their ids" in said
    assert "The prompt is not logged." in said


def test_hostile_text_stays_text(served: Path) -> None:
    at = visit("tokens", run="here", step="3", seq="4", other="there", owner="Prompt")
    assert strips(at)[0]["texts"][0].startswith("EVIL⟨202E⟩⟨7⟩<img")
    for element in elements(at):
        if element.type in ("markdown", "caption", "alert", "button"):
            text = str(getattr(element, "value", "")) + str(getattr(element, "label", ""))
            assert "<" not in re.sub(r"\\.", "", text) if "EVIL" in text else True
        told = [*(getattr(element, name, "") for name in ("value", "label")), *element_cells(element)]
        assert not re.search("[\u202e\x07]", " ".join(map(str, told)))
    assert "innerHTML" not in (Path(token_strip.__file__).parent / "token_strip.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("colour", ["current", "new", "gate"])
def test_a_colour_that_is_not_logged_is_not_offered(look: Look, colour: str) -> None:
    look("runs")  # serves the gallery
    at = visit("tokens", run="lean", colour=COLOURINGS[colour].title)
    assert (COLOURINGS[colour].title in at.selectbox(key="colour").options) == (colour == "current")
    assert set(strips(at)[0]["classes"]) != {"absent"}
    assert "token ids are shown because the run has no vocabulary.parquet" in sentences(at)
    assert all(text.startswith("#") for text in strips(at)[0]["texts"])


def test_steps_without_data_are_said(served: Path) -> None:
    at = visit("tokens", run="here", **{"from": "500", "to": "900"})
    assert "Steps 500 to 900: staleness, plain form has no value." in sentences(at)
    assert not strips(at)


def test_owners_and_sums_can_be_chosen(served: Path) -> None:
    at = visit("tokens", run="here", measure="Σ|ρ − 1|", owner="Prompt")
    assert any("of Σ|ρ − 1|; " in text.value and "the prompt 'EVIL" in text.value for text in at.text)


def test_long_sequences_come_in_pages(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_strip, "PART", 4)
    monkeypatch.setattr("ratioscope.dashboard.components.sequence_reader.PART", 4)
    step = random_step(np.random.default_rng(0), longest=30)
    longest = int(np.argmax(step.sequences["n_tokens"]))
    write_run(root / "long", [step])
    at = visit("tokens", run="long", step="0", seq=str(longest), token="5")
    assert (strips(at)[0]["first"], len(strips(at)[0]["texts"])) == (4, 4)
    checked(at.button(key="part-after").click().run(), "tokens")
    assert query(at, "token") == ["8"]
    assert strips(at)[0]["first"] == 8


def test_invisible_signs_of_a_token_are_made_visible() -> None:
    assert token_strip.shown_text(" the\n", 1, 0) == "␣the⏎"
    assert token_strip.shown_text("\u202egnp\x00", 1, 0) == "⟨202E⟩gnp⟨0⟩"
    assert token_strip.shown_text("", 1, 0) == "∅"
    assert token_strip.shown_text(None, 7, 0) == "#7"
    assert token_strip.shown_text(None, None, 12) == "@12"
    assert len(token_strip.shown_text("x" * 10_000, 1, 0)) < 100


def test_classes_are_symmetric_around_a_ratio_of_one() -> None:
    logs = np.log([0.1, 0.3, 0.7, 0.85, 0.95, 1.0, 1.05, 1.2, 1.5, 3.0, 10.0])
    frame = pd.DataFrame({"log_rho": [*logs, np.inf, -np.inf, np.nan]})
    found = classes(frame, COLOURINGS["current"])
    assert found[:11] == [*(f"low{n}" for n in (5, 4, 3, 2, 1)), "mid", *(f"high{n}" for n in (1, 2, 3, 4, 5))]
    assert found[11:] == ["high5", "low5", "absent"]


@pytest.mark.parametrize("colouring", COLOURINGS.values(), ids=COLOURINGS)
def test_every_class_has_a_colour_in_both_modes_and_words(colouring: Any) -> None:
    for name, words in legend(colouring):
        assert words
        for mode in ("light", "dark"):
            assert f".{mode} .{name} {{" in STYLE


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_can_be_read_on_every_class() -> None:
    rules = re.findall(r"\.(?:light|dark) \.\w+ \{ background: (#\w{6}); color: (#\w{6}); \}", STYLE)
    assert len(rules) == 34
    for background, text in rules:
        dark, light = sorted((_luminance(background), _luminance(text)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (background, text)


def _dialog_script() -> None:
    import streamlit as st

    from ratioscope.dashboard import state
    from ratioscope.dashboard.components.step_dialog import show_step
    from ratioscope.dashboard.session import session

    session().clicked_step, session().clicked_metric = st.session_state.get("step", 3), "chi2_token"
    show_step(state.open_listed(state.runs()["here"]))


def test_the_dialog_of_a_step_has_its_numbers_and_worst_sequences(served: Path) -> None:
    at = AppTest.from_function(_dialog_script, default_timeout=60).run()
    assert not at.exception
    assert [metric.label for metric in at.metric][:2] == ["Token χ²", "Staleness"]
    found = contributions(open_run(served / "here"), "chi2_token", 3, 3)
    assert contributions_sentence(found, "step 3") in sentences(at)
    assert at.dataframe[0].value["seq_id"].tolist() == found.frame["seq_id"].tolist()
    assert len(strips(at)[0]["texts"]) == found.frame["n_tokens"].iloc[0]
    at.selectbox(key="step-by").set_value("lowest_reward").run()
    assert at.dataframe[0].value["reward"].is_monotonic_increasing


def test_a_note_on_a_step_keeps_what_was_written_meanwhile(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(tmp_path))
    at = AppTest.from_function(_dialog_script, default_timeout=60).run()
    write_annotation(served / "here", Annotation(("mine",)).pinned(5, "later"))
    at.text_input(key="pin-here-3").set_value("look").run()
    assert annotation_of(served / "here") == Annotation(("mine",), pins=((3, "look"), (5, "later")))
    write_annotation(served / "here", Annotation(pins=tuple((step, "x") for step in range(10, 10 + MOST_PINS))))
    assert at.run().text_input(key="pin-here-3").disabled, "one more would push the last one out"


def test_a_step_that_is_not_there_opens_nothing(served: Path) -> None:
    at = AppTest.from_function(_dialog_script, default_timeout=60)
    at.session_state["step"] = 99
    at.run()
    assert not at.exception
    assert not at.metric
    assert at.session_state["ratioscope"].clicked_step is None


def test_a_text_is_found_and_the_next_answer_opened(served: Path) -> None:
    at = visit("tokens", run="here", find="EVIL", step="1", seq="0", where="these steps")
    run = open_run(served / "here")
    assert f"responses have “EVIL” in steps 0 to {run.last_step}." in sentences(at)
    beyond = visit("tokens", run="here", find="EVIL", step="1", seq="0", **{"from": "500", "to": "600"})
    assert "No response of steps 500 to 600 has “EVIL”" in sentences(beyond)
    halves = reward_halves(run)
    assert halves is not None
    expected = next_response(run, (1, 0), halves.condition(high=True), "EVIL")
    at.button(key="next-high").click()
    at = checked(at.run(), "tokens")
    assert expected is not None
    assert f"## Step {expected[0]}, response {expected[1]}" in sentences(at)
    assert "/(/ is not a regular expression" in sentences(visit("tokens", run="here", find="/(/"))
