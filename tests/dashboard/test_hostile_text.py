"""Names, tags and texts of a log are hostile: none of it may be read as Markdown, HTML, LaTeX or a link."""

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from streamlit.testing.v1 import AppTest

import ratioscope
from ratioscope.dashboard import app
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.watching.alerts import message, safe_name
from ratioscope.inert import one_line, safe
from tests.making.commands import command
from tests.making.hostile import ACTIVE, FOLDER, FORGED, HOSTILE, MARK, MARKUP, write_hostile
from tests.making.loops import in_one_loop
from tests.making.pages import PAGES, charts, elements, runs_table, visit

# These show their text as it is; all others read Markdown.
PLAIN = {"text", "code", "dataframe", "selectbox", "multiselect", "text_input", "bidi_component"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in which everything that can carry text is hostile, and an honest one."""
    return write_hostile(tmp_path_factory.mktemp("hostile"))


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


def _active(text: str) -> str:
    """The signs of a text that are obeyed and not seen, line feeds and tabs excepted, as U+…."""
    signs = set(text) - set("\n\t")
    found = {sign for sign in signs if unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")} | signs & set(
        ACTIVE
    ) - set("[2J")
    stacked = ["accents"] if chr(0x301) * 5 in text else []
    return " ".join([*(f"U+{ord(sign):04X}" for sign in sorted(found)), *stacked])


def _faults(at: AppTest) -> Iterator[str]:
    for element in elements(at):
        if MARK in str(element.proto) and element.type != "text_input":  # which holds what the reader's link says
            if element.type == "dataframe":
                texts = _strings(element.value.astype(str).to_numpy().tolist())
            else:
                texts = _strings(json.loads(json_format.MessageToJson(element.proto)) | {"id": ""})
            if signs := _active("".join(texts).replace("\u2060", "")):
                yield f"{element.type}: {signs}"
        if element.type == "html" and element.proto.body == app._STYLE:
            continue
        if element.type in ("html", "iframe", "component_instance") or getattr(element, "allow_html", False):
            yield f"{element.type} renders HTML"
        if element.type in PLAIN:
            continue
        for text in [
            str(element.proto),
            *_strings(getattr(element, "value", None)),
            str(getattr(element, "label", "")),
        ]:
            unescaped = re.sub(r"\\+.", "", text) if MARK in text else ""
            if set("<[$") & set(unescaped) or ":material/bolt:" in unescaped or ":smile:" in unescaped:
                yield f"{element.type}: {text[:200]!r}"


def _assert_harmless(at: AppTest) -> None:
    assert not (found := sorted(set(_faults(at)))), "\n".join(["", *found])


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
    assert one_line(FOLDER) in runs_table(visit("runs"))


def test_a_hostile_link_is_harmless(hostile: str) -> None:
    for page in ("runs", "overview", "compare"):
        _assert_harmless(visit(page, run=HOSTILE, q=HOSTILE, metric=HOSTILE, **{"from": HOSTILE, "to": HOSTILE}))


def test_labels_are_escaped_character_by_character() -> None:
    from ratioscope.dashboard.formats import escape

    escaped = escape(MARKUP)
    joiner = "\u2060"  # invisible, inside what would become a link
    assert re.sub(r"\\(.)", r"\1", escaped).replace(joiner, "") == MARKUP
    assert not set(r"`*_[]<>$:!#~|") & set(re.sub(r"\\.", "", escaped))
    linked = escape("http://a.b WWW.a.b someone@a.b").replace("\\", "")
    assert not re.search(r"://|www\.|@\w", linked, re.IGNORECASE)


def test_every_command_prints_it_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    run = folder / FOLDER
    commands: dict[tuple[Any, ...], bool] = {  # whether what it prints names anything of the log
        ("ls", folder): True, ("ls", folder, "--json"): True, ("check", run): False, ("check", run, "--json"): True,
        ("diagnose", run): True, ("diagnose", run, "--json"): True, ("summarize", run, "--json"): True,
        ("summarize", run): False, ("compare", folder): True, ("compare", folder, "--json"): True,
        ("translate", run, "--json"): True, ("translate", run): False, ("check", folder / f"{FOLDER}?"): True,
        ("bridge", run, "--to", "csv", "--metric", "u_k"): True, ("watch", run, "--file", "alerts.jsonl"): True,
        **{("report", run, "-o", f"made.{kind}", "--quiet"): False for kind in ("html", "json")},
    }  # fmt: skip

    @in_one_loop("each", {f"{words[0]} {words[2:]}": (words, named) for words, named in commands.items()})
    def prints_it_as_it_is(each: tuple[tuple[Any, ...], bool]) -> None:
        arguments, named = each
        ended = command(monkeypatch, capsys, *arguments)
        assert ended.code in ((2,) if f"{FOLDER}?" in str(arguments[1]) else (0, 1)), ended.err
        printed = ended.out + ended.err
        assert MARK in printed or not named, "it was expected to quote the log"
        assert not _active(printed)
        assert not [line for line in printed.splitlines() if line.strip().startswith(FORGED)]
        if "--json" in arguments:
            assert not _active("\n".join(_strings(json.loads(ended.out))))

    prints_it_as_it_is()
    written = [(tmp_path / f"made.{kind}").read_text(encoding="utf-8") for kind in ("html", "json")]
    written += ["\n".join(_strings(json.loads(line))) for line in Path("alerts.jsonl").read_text().splitlines()]
    written.append("\n".join(_strings(json.loads(written[1]))))
    assert not [found for text in written if (found := _active(text))]


def test_a_message_to_a_chat_makes_no_link_and_no_picture() -> None:
    named = f"{HOSTILE} www.evil.com @all <!here>"
    sent = message({"run": named, "sentence": named, "severity": "critical"})
    for text in sent.values():
        assert not _active(text)
        assert "\n" not in text
    assert not re.search(r":smile:|://|www\.|@all|<[!@#h]", sent["text"])
    assert safe_name("sync/lr0.0003-seed0") == "sync/lr0.0003-seed0"


def test_a_notebook_shows_it_as_it_is(folder: Path) -> None:
    opened = ratioscope.open_run(folder / FOLDER)
    shown = [opened.name, repr(opened), opened.verdict, *opened.figures.values()]
    shown += [text for found in opened.findings for text in (found.sentence, found.why, found.do, found.sure)]
    assert MARK in opened.name
    assert not [found for text in shown if (found := _active(text))]
    assert FORGED not in [line.strip() for text in shown for line in text.splitlines()]


def test_no_sign_is_obeyed() -> None:
    for code in range(0x110000):
        sign = chr(code)
        if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in "\n\t\r":
            assert safe(f"a{sign}b") == "a\ufffdb", hex(code)
    assert safe("a\r\nb\rc\td") == "a\nb\nc\td"
    assert one_line("a \r\n b\u2028c\vd\n") == "a b c d"
    assert safe("naïve Việt 한국어 हिन्दी שָׁלוֹם 👍🏽 ✔️") == "naïve Việt 한국어 हिन्दी שָׁלוֹם 👍🏽 ✔️"
