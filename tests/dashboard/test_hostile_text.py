"""Names, tags and texts of a log are hostile: none of it may be read as Markdown, HTML, LaTeX or a link."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.dashboard import app
from ratioscope.dashboard.roots import serve_from
from tests.making.pages import PAGES, charts, elements, runs_table, visit
from tests.making.runs import random_step, write_run

MARK = "EVIL"
HOSTILE = (
    f"{MARK}<script>alert(1)</script> <img src=x onerror=alert(1)> ![](http://127.0.0.2/x) ${MARK}$ "
    "[link](javascript:alert(1)) :material/bolt: <a href='http://127.0.0.2'>a</a> **bold**"
)
FOLDER = HOSTILE.replace("/", "∕")

# These show their text as it is; all others read Markdown.
PLAIN = {"text", "code", "dataframe", "selectbox", "multiselect", "text_input", "bidi_component"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in which everything that can carry text is hostile, and an honest one."""
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(1)
    fields: dict[str, Any] = {
        "name": HOSTILE,
        "algorithm": {"name": HOSTILE, "parts": {HOSTILE: HOSTILE}, "parameters": {HOSTILE: 1.0}},
        "schedule": {"sync_interval": HOSTILE, "sync_offset": HOSTILE},
        "task": {"name": HOSTILE},
        "tags": [HOSTILE],
        "notes": HOSTILE,
    }
    for number, name in enumerate((FOLDER, f"{FOLDER} again")):
        recorder = RunRecorder(folder / name, vocabulary=lambda token: HOSTILE, **fields, model={MARK: number})
        for step in (random_step(rng, number) for number in range(4)):
            texts = dict.fromkeys(("prompt", "response"), [HOSTILE] * len(step.sequences["seq_id"]))
            recorder.record_step(
                step.number, tokens=step.tokens, sequences=step.sequences | texts, scalars=step.scalars
            )
        recorder.close("failed", HOSTILE)
    return write_run(
        folder / "honest", [random_step(rng)], algorithm={"name": "grpo"}, schedule={"sync_interval": 4}
    ).parent


@pytest.fixture
def hostile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of the first of these runs, served by the app."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder])
    return FOLDER


def _strings(value: Any) -> list[str]:
    """All strings of a JSON value, keys of objects left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [part for key, part in value.items() if key != "legendgroup"]  # a key, never drawn
    inner = value if isinstance(value, list) else []
    return [text for part in inner for text in _strings(part)]


def _assert_harmless(at: AppTest) -> None:
    for element in elements(at):
        if element.type in PLAIN:
            continue
        for text in [
            str(element.proto),
            *_strings(getattr(element, "value", None)),
            str(getattr(element, "label", "")),
        ]:
            unescaped = re.sub(r"\\+.", "", text) if MARK in text else ""
            assert not set("<[$") & set(unescaped), f"{element.type}: {text}"
            assert ":material/bolt:" not in unescaped, f"{element.type}: {text}"
        assert not getattr(element, "allow_html", False), f"{element.type} renders HTML"
        own_style = element.type == "html" and element.proto.body == app._STYLE
        assert own_style or element.type not in ("html", "iframe", "component_instance")


@pytest.mark.parametrize("page", PAGES)
def test_hostile_text_is_shown_and_never_interpreted(hostile: str, page: str) -> None:
    at = visit(page, run=[hostile, f"{hostile} again", "honest"] if page == "compare" else hostile)
    shown = [element for element in elements(at) if MARK in str(element.proto)]
    assert shown, "the page shows the run's name"
    _assert_harmless(at)
    for chart in charts(at):
        for text in _strings(chart):
            assert not (MARK in text and "<" in text), f"Plotly reads a subset of HTML: {text}"


def test_a_hostile_problem_is_plain_text(root: Path) -> None:
    (root / FOLDER).mkdir()
    (root / FOLDER / "run.json").write_text(json.dumps({"schema_version": HOSTILE, "name": HOSTILE}))
    for page in ("runs", "overview", "compare"):
        _assert_harmless(visit(page, run=FOLDER))
    assert FOLDER in runs_table(visit("runs"))


def test_a_hostile_link_is_harmless(hostile: str) -> None:
    for page in ("runs", "overview", "compare"):
        _assert_harmless(visit(page, run=HOSTILE, q=HOSTILE, metric=HOSTILE, **{"from": HOSTILE, "to": HOSTILE}))


def test_labels_are_escaped_character_by_character() -> None:
    from ratioscope.dashboard.formats import escape

    escaped = escape(HOSTILE)
    joiner = "\u2060"  # invisible, inside what would become a link
    assert re.sub(r"\\(.)", r"\1", escaped).replace(joiner, "") == HOSTILE
    assert not set(r"`*_[]<>$:!#~|") & set(re.sub(r"\\.", "", escaped))
    linked = escape("http://a.b WWW.a.b someone@a.b").replace("\\", "")
    assert not re.search(r"://|www\.|@\w", linked, re.IGNORECASE)
