"""The list of runs: fast because it opens no table of a run that nobody looks at; search, filters, notes, order."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import Manifest, RunRecorder
from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.runs.store import Listed, discover, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard import annotations
from ratioscope.dashboard.annotations import (
    Annotation,
    annotation_of,
    read_annotations,
    split_tags,
    write_annotation,
)
from ratioscope.dashboard.components import run_list
from ratioscope.dashboard.components.run_list import NOT_READ, RunLine, line
from ratioscope.dashboard.formats import metric_label, metric_value
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.views import runs as page
from ratioscope.dashboard.watching import headlines
from ratioscope.dashboard.watching.headlines import Headline, read_headline
from ratioscope.errors import RatioscopeError
from tests.dashboard.conftest import make_steps
from tests.making.pages import elements, query, read, runs_table, sentences, visit
from tests.making.runs import write_run

ENTROPY = metric_label("entropy")
HOSTILE = "<script>alert(1)</script> **bold** $x$ [link](javascript:alert(1)) :material/bolt: ![](http://127.0.0.2/x)"


def frame(at: AppTest) -> pd.DataFrame:
    return at.dataframe[0].value


@pytest.fixture(autouse=True)
def own_annotations(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(folder))
    return folder


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four readable runs, newest last, one without a step and one that cannot be read."""
    folder, steps = tmp_path_factory.mktemp("shelf"), make_steps(8)
    named: dict[str, dict[str, Any]] = {
        "one": {"algorithm": {"name": "grpo"}, "tags": ["paper"], "notes": "the baseline of table 2"},
        "two": {"algorithm": {"name": "ppo"}, "task": {"name": "sorting"}},
        "no-reward": {"algorithm": {"name": "grpo"}, "tags": [1, None, "late"]},
        "rich": {},
    }
    for name, fields in named.items():
        rewards = {"one": 0.25, "two": 0.75, "no-reward": np.nan, "rich": np.inf}[name]
        with RunRecorder(folder / name, flush_seconds=float("inf"), **fields) as recorder:
            for step in steps[: 8 if name == "one" else 4]:
                reward = np.full(len(step.sequences["seq_id"]), rewards, np.float32)
                recorder.record_step(
                    step.number, tokens=step.tokens, sequences=step.sequences | {"reward": reward}, scalars=step.scalars
                )
    (folder / "empty").mkdir()
    Manifest(name="empty", status="failed", created="0000-99-99").write(folder / "empty")
    (folder / "torn").mkdir()
    (folder / "torn" / "run.json").write_text("{")
    return folder


@pytest.fixture
def served(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([shelf])
    return shelf


def test_a_thousand_runs_are_listed_at_once_and_read_in_order_of_size(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"schema_version": "1.0", "status": "finished", "algorithm": {"name": "grpo"}}
    for number in range(1_000):
        (root / f"{number:04d}" / "tokens").mkdir(parents=True)
        (root / f"{number:04d}" / "tokens" / "000000-000009-w0.parquet").write_bytes(bytes(1_000 - number))
        created = {"created": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}+00:00"}
        (root / f"{number:04d}" / "run.json").write_text(json.dumps(contents | created))
    opened = []

    def refuse(folder: Path, **_: object) -> Opened:
        opened.append(folder.name)
        raise RatioscopeError("this one is not to be read")

    monkeypatch.setattr(headlines, "open_folder", refuse)
    at = visit("runs")
    assert len(frame(at)) == 1_000
    assert "1,000 runs, none live" in sentences(at)
    read(at)
    assert opened == [f"{number:04d}" for number in reversed(range(1_000))]
    assert NOT_READ not in set(frame(at)["Finding"])


def test_lines_agree_with_the_summary_and_the_rules(served: Path) -> None:
    rows = runs_table(read(visit("runs")))
    summary = summarise(open_run(served / "one"))
    one, found = rows["one"], read_headline(served / "one")
    assert found is not None
    assert one["Reward"] == pytest.approx(list(summary.values["reward"]), rel=1e-3)
    assert one["Last reward"] == pytest.approx(0.25)
    # "last" alone is the last step's, as on Overview.
    assert '"label": "Reward, last 5"' in visit("runs").dataframe[0].proto.columns
    assert one["Tokens"] == summary.values["n_tokens"].sum()
    word = Severity(found.severity).word
    assert one["Finding"] == rule_words(found.rule)
    assert [label.split()[-1] for label in one["Severity"]] == [word]
    assert (rows["empty"]["Finding"], rows["empty"]["Status"]) == ("nothing to judge", "failed")
    assert rows["torn"]["Finding"] == rows["torn"]["Status"] == "cannot be read"


def test_a_narrow_screen_names_the_first_runs_with_their_verdicts(served: Path) -> None:
    """The table has room for a name there, and none for what was found."""
    at = read(visit("runs"))
    rows = frame(at)
    links = [element.proto for element in elements(at) if element.type == "page_link"]
    verdicts = [(link.label, link.query_string) for link in links if "run=" in link.query_string][: page._AT_A_GLANCE]
    assert len(verdicts) == min(len(rows), page._AT_A_GLANCE)
    for (label, address), name, finding in zip(verdicts, rows["Run"], rows["Finding"], strict=False):
        assert name in label.replace("\\", "") and finding in label and f"run={name}" in address


def test_what_is_missing_is_missing_and_never_first(served: Path) -> None:
    at = read(visit("runs", order="highest reward"))
    order = list(frame(at)["Run"])
    assert order[:2] == ["two", "one"]
    assert set(order[2:]) == {"no-reward", "rich", "empty", "torn"}
    shown = frame(at).set_index("Run")
    assert shown["Last reward"].isna().to_dict() == {name: name not in ("one", "two") for name in order}
    assert pd.isna(shown["Started"]["empty"])
    assert not pd.isna(shown["Started"]["one"])
    assert pd.isna(shown["Tokens"]["torn"])


@pytest.mark.parametrize(
    ("runs", "below", "names"),
    [
        (["a/b/c", "a/b/d"], "a/b", ["c", "d"]),
        (["a/b/c", "a/d"], "a", ["b/c", "d"]),
        (["a", "a/b"], "", ["a", "a/b"]),
        (["a/b"], "", ["a/b"]),
    ],
)
def test_names_are_below_the_folder_that_runs_share(runs: list[str], below: str, names: list[str]) -> None:
    lines = [line(Listed(name, Path(name), None, 0), None, None) for name in runs]
    assert run_list._names(lines) == (below, names)


@pytest.mark.parametrize(("order", "first"), [("newest", "rich"), ("name", "empty"), ("most steps", "one")])
def test_the_order_is_in_the_url(served: Path, order: str, first: str) -> None:
    assert frame(visit("runs", order=order))["Run"].iloc[0] == first


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "TABLE baseline"}, {"one"}),
        ({"q": "sorting"}, {"two"}),
        ({"q": "late"}, {"no-reward"}),
        ({"q": "JSON"}, {"torn"}),
        ({"algorithm": "grpo"}, {"one", "no-reward"}),
        ({"algorithm": ["grpo", "ppo"], "q": "table"}, {"one"}),
        ({"tag": "paper"}, {"one"}),
        ({"tag": ["paper", "1"]}, {"one", "no-reward"}),
        ({"status": "failed"}, {"empty"}),
        ({"status": "<b>", "tag": "../..", "algorithm": "$x$"}, {"one", "two", "no-reward", "rich", "empty", "torn"}),
    ],
)
def test_search_and_filters_are_in_the_url(served: Path, query: dict[str, Any], names: set[str]) -> None:
    at = visit("runs", **query)
    assert set(runs_table(at)) == names
    assert ("Shown: " in sentences(at)) == (len(names) < 6)


def test_columns_and_groups_are_in_the_address(root: Path) -> None:
    made = [("a", 5, "<b>x</b>"), ("b", 20, True), ("c", 5, 10**400), ("d", None, [1])]
    for seed, (name, interval, odd) in enumerate(made):
        write_run(
            root / name,
            make_steps(12),
            algorithm={"name": name},
            schedule={"sync_interval": interval, "odd": odd},
            seed=seed,
        )
    at = visit(
        "runs", groupby="schedule.sync_interval", columns=["schedule.sync_interval", "schedule.odd", "seed", ENTROPY]
    )
    groups = at.dataframe[0].value
    assert list(groups["schedule.sync_interval"]) == ["5", "20", "not stated"] and list(groups["Runs"]) == [2, 1, 1]
    assert groups["Critical"].isna().all(), "not known is not none"
    at = read(at)
    groups, table = (element.value for element in at.dataframe)
    assert groups["Critical"].notna().all() and ", with evaluation accuracy at their end" in sentences(at)
    levels = {name: (read_headline(root / name) or Headline()).level_end or 0.0 for name in "abcd"}
    assert groups["Highest"][0] == metric_value("eval_accuracy", max(levels["a"], levels["c"]))
    assert list(table["Run"])[2:] == ["b", "d"] and set(table["Run"][:2]) == {"a", "c"}
    assert list(at.dataframe[1].proto.column_order)[:4] == ["Run", "Open", "schedule.sync_interval", "schedule.odd"]
    rows = table.set_index("Run")
    assert rows["schedule.sync_interval"]["b"] == 20.0 and rows["schedule.odd"]["a"] == "<b>x</b>"
    summary = summarise(open_run(root / "b"))
    assert rows[ENTROPY]["b"] == pytest.approx(summary.values["entropy"].iloc[-1], rel=1e-3)
    only = visit("runs", groupby="schedule.sync_interval", columns="seed", **{"groups-shown": ["20", "nowhere"]})
    assert list(only.dataframe[1].value["Run"]) == ["b"] and "Shown: 1 run" in sentences(only)
    order = list(visit("runs", groupby="schedule.sync_interval").dataframe[1].proto.column_order)
    assert order[:3] == ["Run", "Open", "schedule.sync_interval"] and len(set(order)) == len(order)


def test_a_search_that_finds_nothing_says_so(served: Path) -> None:
    at = visit("runs", q="no such run")
    assert "No run matches these filters." in sentences(at)
    assert not at.dataframe


def test_findings_can_be_searched(served: Path) -> None:
    at = read(visit("runs"))
    rows = runs_table(at)
    critical = [name for name, row in rows.items() if "critical" in str(row["Severity"])]
    assert critical == list(rows)[: len(critical)] != []  # what is worst comes first
    at.text_input(key="q").set_value("critical:").run()
    assert list(runs_table(at)) == critical
    at.text_input(key="q").set_value("").run()
    at.multiselect(key="severity").set_value(["critical"]).run()
    assert list(runs_table(at)) == critical
    at.multiselect(key="finding").set_value(["nothing to judge"]).run()
    assert list(runs_table(at)) == ["empty"]


def test_a_tick_outlives_a_search(served: Path) -> None:
    at = _select(AppTest.from_function(_runs_page, default_timeout=60), "one", "two")
    at.text_input(key="q").set_value("sorting").run()
    assert list(runs_table(at)) == ["two"]
    assert "2 runs selected, 1 of them not shown." in sentences(at)
    assert not next(button for button in at.button if button.label == "Compare").disabled
    next(button for button in at.button if button.label == "Untick all").click()
    assert "Select one row" in sentences(at.run())
    assert query(at, "run") == []


def test_what_is_ticked_is_in_the_link(served: Path) -> None:
    """A reload and a shared link lost it."""
    at = visit("runs", run=["two", "one", "gone"], order="name")
    assert "2 runs selected." in sentences(at)
    assert not next(button for button in at.button if button.label == "Compare").disabled
    assert {element.proto.query_string for element in at.sidebar if element.type == "page_link"} == {
        "run=two&run=one&run=gone"
    }


def _select(at: AppTest, *names: str) -> AppTest:
    at.query_params["run"] = list(names)
    return at.run()


@pytest.fixture
def fresh(root: Path) -> Path:
    write_run(root / "mine", make_steps(2), algorithm={"name": "grpo"}, tags=["theirs"], notes="their note")
    write_run(root / "other", make_steps(2))
    return root


def test_notes_are_saved_beside_nothing_of_the_run_and_found_again(fresh: Path, own_annotations: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in fresh.rglob("*"))
    at = AppTest.from_function(_runs_page, default_timeout=60)
    at = _select(at, "mine")
    assert "their note" in sentences(at)
    assert "Kept in your own files" in sentences(at)
    write_annotation(fresh / "mine", Annotation().pinned(1, "here"))  # in another tab, after this list was drawn
    at.text_input[-1].set_value("good, seed 3, good")
    at.text_area[0].set_value("look at step 12\nagain")
    next(button for button in at.button if button.label == "Save").click()
    at.run()
    assert not at.exception
    assert "Saved in your own files" in sentences(at)
    assert annotation_of(fresh / "mine").pins == ((1, "here"),)
    assert list(runs_table(at)["mine"]["Tags"]) == ["theirs", "good", "seed 3"]
    order = list(at.dataframe[0].proto.column_order)  # they were right of what a screen shows
    assert order[order.index("Finding") + 1 :][:3] == ["Tags", "Notes", "Reward"]
    again = visit("runs", tag="good")
    assert set(runs_table(again)) == {"mine"}
    assert runs_table(again)["mine"]["Notes"] == "look at step 12\nagain · their note"
    assert set(runs_table(visit("runs", q="step 12"))) == {"mine"}
    assert sorted((path, path.stat().st_mtime_ns) for path in fresh.rglob("*")) == before
    assert len(list(own_annotations.iterdir())) == 1


def _runs_page() -> None:
    from ratioscope.dashboard import app

    app.main(default="runs")


def test_only_a_note_on_a_step_is_no_note_on_the_run(fresh: Path) -> None:
    write_annotation(fresh / "mine", Annotation().pinned(1, "here"))
    at = _select(AppTest.from_function(_runs_page, default_timeout=60), "mine")
    assert "Kept in your own files" in sentences(at)


def test_hostile_notes_are_shown_and_never_interpreted(fresh: Path) -> None:
    write_annotation(fresh / "mine", Annotation((HOSTILE[:50],), HOSTILE + "\x00\ud800"))
    at = _select(AppTest.from_function(_runs_page, default_timeout=60), "mine")
    assert not at.exception
    assert HOSTILE in runs_table(at)["mine"]["Notes"]
    for element in elements(at):
        if element.type in ("markdown", "caption", "warning", "info"):
            assert "alert(1)" not in str(element.value)


def test_a_note_is_kept_cleaned_and_taken_away(tmp_path: Path, own_annotations: Path) -> None:
    run = tmp_path / "run"
    kept = write_annotation(run, Annotation(tuple(f"t{n}" for n in range(50)), " \ud800x" * 9_000))
    assert (len(kept.tags), len(kept.text) <= annotations.LONGEST_NOTE) == (annotations.MOST_TAGS, True)
    assert read_annotations([run, tmp_path]) == {run: kept}
    kept.text.encode()
    write_annotation(run, Annotation((), "  "))
    assert read_annotations([run]) == {}
    assert not list(own_annotations.iterdir())
    assert split_tags(" a, b,,a ,") == ("a", "b")
    kept = write_annotation(run, Annotation().pinned(7, "x\u202ey\n" * 200).pinned(3, "first").pinned(3, "second"))
    assert [step for step, _ in kept.pins] == [3, 7]
    assert kept.pins[0] == (3, "second") and len(kept.pins[1][1]) <= annotations.LONGEST_PIN
    assert read_annotations([run]) == {run: kept}
    assert write_annotation(run, kept.pinned(3, "").pinned(7, " ")) == Annotation()


@pytest.mark.parametrize("contents", ["", "[]", '{"tags": 3, "text": ""}', '{"text": "x"}', "\x00"])
def test_a_file_that_is_no_note_is_passed_over(tmp_path: Path, own_annotations: Path, contents: str) -> None:
    write_annotation(tmp_path, Annotation(("a",)))
    next(own_annotations.iterdir()).write_text(contents)
    assert read_annotations([tmp_path]) == {}


def test_halves_of_characters_in_a_manifest_do_not_break_the_list(root: Path) -> None:
    write_run(root / "odd", make_steps(1))
    manifest = json.loads((root / "odd" / "run.json").read_text())
    odd = {
        "name": "\ud800",
        "algorithm": {"name": ["\ud800"]},
        "task": {"name": 3},
        "tags": ["\udfff"],
        "notes": "\ud800",
    }
    (root / "odd" / "run.json").write_text(json.dumps(manifest | odd))
    at = _select(visit("runs"), "odd")
    assert not at.exception
    assert runs_table(at)["odd"]["Task"] == "3"


def test_a_tick_without_news_sees_none_and_every_change_is_news(fresh: Path) -> None:
    def stamp() -> Callable[[], tuple[int, ...]]:
        listed = discover([fresh])
        live, places = [run for run in listed if page._may_grow(run)], page._places(listed)
        return lambda: page._stamp(live, places)

    with RunRecorder(fresh / "live", flush_seconds=0.0) as recorder:
        now = stamp()
        before = now()
        recorder.manifest.write(fresh / "live")  # a sign of life
        assert now() == before
        step = make_steps(1)[0]
        recorder.record_step(0, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()
        grown = now()
        assert grown != before
    now = stamp()
    ended = now()
    write_run(fresh / "later", make_steps(1))
    assert now() != ended
    now = stamp()
    known = now()
    Manifest.read(fresh / "mine").write(fresh / "mine")  # taken up again, or its notes changed
    assert now() != known


def test_a_level_without_a_light_stands_alone_in_its_cell(fresh: Path) -> None:
    """Of a run whose light is not known the cell begins with the level, and not with a blank."""
    found = read_headline(fresh / "mine")
    assert found is not None and found.lights
    (listed,) = (run for run in discover([fresh]) if run.folder.name == "mine")
    of_level = replace(found, level_metric="eval_accuracy", level_end=0.25)
    known, unknown = (RunLine(listed, "", head, Annotation()) for head in (of_level, replace(of_level, lights=())))
    assert unknown.learning == "25%" and known.learning == f"{known.light('Learning')}, at 25%"
