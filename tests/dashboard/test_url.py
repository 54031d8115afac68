"""The URL is the view: what it holds is what the page shows, and what is chosen on the page goes into it."""

import ast
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import Manifest, dashboard
from ratioscope.dashboard.formats import escape, metric_label
from ratioscope.dashboard.parameters import parameters
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.saved_views import LONGEST_NAME, SavedView, save_view, saved_views
from ratioscope.dashboard.session import Leaving
from ratioscope.dashboard.views.compare import choosing
from ratioscope.errors import RatioscopeError
from tests.dashboard.conftest import make_steps
from tests.making.pages import RUN_PAGES, charts, checked, elements, query, runs_table, sentences, visit
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS

SEEDS = ["seed-0", "seed-1", "other"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of one setting and a run of another algorithm, newest last."""
    folder = tmp_path_factory.mktemp("three")
    for number, name in enumerate(SEEDS):
        algorithm = {"name": "reinforce" if name == "other" else "grpo"}
        write_run(folder / name, make_steps(12), algorithm=algorithm, seed=number)
    return folder


@pytest.fixture
def three(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of these runs, served by the app."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder])
    return SEEDS


def test_without_a_run_in_the_url_the_newest_is_shown(three: list[str]) -> None:
    assert visit("overview").selectbox(key="run-picker").value == three[-1]


@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_run_of_the_url_is_shown_and_its_step_range_by_every_chart_over_steps(three: list[str], page: str) -> None:
    at = visit(page, run="seed-1", **{"from": "3", "to": "7"})
    assert at.selectbox(key="run-picker").value == "seed-1"
    assert query(at, "run") == ["seed-1"]
    assert "steps 3 to 7" in sentences(at)
    over_steps = [chart for chart in charts(at) if "step" in str(chart["layout"]["xaxis"]["title"])]
    ranges = [chart["layout"]["xaxis"].get("range") for chart in over_steps if chart["layout"]["height"] > 150]
    assert ranges or page in ("tokens", "linter", "sql")
    assert all(shown == [2.5, 7.5] for shown in ranges)


@pytest.mark.parametrize(("first", "last"), [("9", "2"), ("x", "7"), ("-3", "5"), ("1e3", "2e3"), ("", "")])
def test_a_senseless_step_range_is_none(three: list[str], first: str, last: str) -> None:
    at = visit("overview", run="seed-1", **{"from": first, "to": last})
    assert ":blue-badge" not in sentences(at)
    assert f"Nothing here is set by from={first}, to={last}: this part of the link is ignored." in sentences(at)
    assert not [button for button in at.button if button.key == "all-steps"]


def test_an_end_of_the_range_that_is_typed_stays_and_moves_the_other(three: list[str]) -> None:
    at = visit("overview", run="seed-1", **{"from": "2", "to": "4"})
    at.session_state["steps"] = True
    at.run().number_input(key="first-step").set_value(6).run()
    assert [at.query_params[key][0] for key in ("from", "to")] == ["6", "6"]
    at.number_input(key="last-step").set_value(7).run()
    at.number_input(key="last-step").set_value(3).run()
    assert [at.query_params[key][0] for key in ("from", "to")] == ["3", "3"]


def test_a_view_is_saved_by_name_opened_by_its_address_and_deleted_with_a_way_back(
    three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, name = tmp_path / "notes", "<b>stale</b> **x** \u202e" + "y" * 40
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(notes))
    at = visit("compare", run=three[:2], **{"from": "3", "to": "7", "embed_options": "x", "nonsense": "1"})
    at.session_state["views"] = True
    at.run().text_input(key="view-name").set_value(name)
    next(button for button in at.button if button.label == "Save").click().run()
    assert "Saved." in sentences(at)
    (view,) = saved_views().values()
    kept = {"run": three[:2], "from": ["3"], "to": ["7"]}
    assert (view.page, view.query, len(view.name)) == ("compare", kept, LONGEST_NAME)
    assert view.name.startswith("<b>stale</b> **x** \N{REPLACEMENT CHARACTER}")
    for page in (visit("runs"), at):
        links = [link.proto for link in elements(page) if link.type == "page_link"]
        (link,) = [link for link in links if "stale" in link.label]
        assert (link.label, link.query_string) == (escape(view.name), "run=seed-0&run=seed-1&from=3&to=7")
    at.query_params["run"] = "other"
    at.text_input(key="view-name").set_value(name)
    next(button for button in at.button if button.label == "Save").click().run()
    assert f"Saved in place of the old “{view.name}”." in sentences(at)
    assert [each.query["run"] for each in saved_views().values()] == [["other"]]
    at.button(key="undo-view").click().run()
    assert list(saved_views().values()) == [view] and "is back." in sentences(at)
    with pytest.raises(RatioscopeError, match=rf"^This name has 61 characters; {LONGEST_NAME} are the most\.$"):
        save_view(replace(view, name=f"{view.name}y"))
    asked = AppTest.from_function(_runs_page, default_timeout=60)
    asked.query_params["view"] = view.name
    assert asked.run().session_state["ratioscope"].leaving == Leaving("compare", kept, "")
    assert "No saved view is called “nope”." in sentences(visit("runs", view="nope"))

    at.button(key="delete-view-0").click().run()
    assert not saved_views() and "Deleted" in sentences(at)
    at.button(key="undo-view").click().run()
    assert list(saved_views().values()) == [view]
    monkeypatch.setenv("RATIOSCOPE_NOTES", "/proc/nowhere")
    with pytest.raises(RatioscopeError, match=r"^The view was not saved: /proc/nowhere cannot be written\.$"):
        save_view(view)
    for text in ("", "[]", '{"name": 3}', '{"name": "x", "page": "runs", "query": {"run": 3}}', "\x00"):
        next(notes.rglob("*.json")).write_text(text)
        monkeypatch.setenv("RATIOSCOPE_NOTES", str(notes))
        assert saved_views() == {}


@pytest.mark.parametrize(
    "written",
    ["[" * 5_000, '{"name": "x", "page": "runs", "query": {"find": ["\\ud800"]}}', " " * 7_000, None],
    ids=["deep", "half a sign", "large", "pipe"],
)
def test_what_others_write_into_the_folder_of_views_breaks_no_page(
    three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(tmp_path / "notes"))
    save_view(SavedView("x", "runs", {"find": ["y"]}))
    file = next((tmp_path / "notes").rglob("*.json"))
    file.unlink()
    if written is None:
        os.mkfifo(file)
    else:
        file.write_text(written)
    assert saved_views() == {}
    checked(visit("runs"), "runs")


def _runs_page() -> None:
    from ratioscope.dashboard import app

    app.main(default="runs")


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_step_range_beyond_the_data_is_shown_without_an_error(three: list[str], page: str) -> None:
    assert "steps 500 to 900" in sentences(visit(page, run="seed-1", **{"from": "500", "to": "900"}))


@pytest.mark.parametrize("page", ["ratios", "tokens"])
def test_a_step_that_the_run_lacks_is_said_on_every_page(root: Path, page: str) -> None:
    write_run(root / "gap", [each for each in make_steps(12) if each.number != 5])
    for step, why in (("77777", "the run ends at step 11"), ("5", "the run has no such step")):
        assert f"This link asks for step {step}; {why}." in sentences(visit(page, run="gap", step=step))
    assert "asks for step" not in sentences(visit(page, run="gap", step="4"))


def test_overview_says_what_does_not_follow_the_chosen_steps(three: list[str]) -> None:
    """Lights, findings and causes stayed as they were without a word."""
    said = "of the whole run, charts and tiles of steps 3 to 7."
    assert said in sentences(visit("overview", run="seed-1", **{"from": "3", "to": "7"}))
    assert "of the whole run, charts" not in sentences(visit("overview", run="seed-1"))


def test_overview_says_what_happened_in_bold_with_chosen_steps_too(root: Path) -> None:
    name = "sync_interval20-reinforce-seed0"
    (root / name).symlink_to(SAMPLE_RUNS / name)
    bold = [
        re.findall(r"^\*\*Accuracy fell.*\*\*$", sentences(visit("overview", run=name, **steps)), re.MULTILINE)
        for steps in ({}, {"from": "20", "to": "60"})
    ]
    assert bold[0] == bold[1] != []


def test_all_steps_takes_the_range_out_of_the_url(three: list[str]) -> None:
    at = visit("overview", run="seed-1", **{"from": "3", "to": "7"})
    assert _menu(at) == {"run=seed-1&from=3&to=7"}
    checked(at.button(key="all-steps").click().run(), "overview")
    assert _menu(at) == {"run=seed-1"}
    assert query(at, "from") == query(at, "to") == []
    assert query(at, "run") == ["seed-1"]
    assert "steps 3 to 7" not in sentences(at)
    checked(at.button(key="back-to-steps").click().run(), "overview")
    assert _menu(at) == {"run=seed-1&from=3&to=7"}


def _menu(at: AppTest) -> set[str]:
    """What the links of the menu carry."""
    return {element.proto.query_string for element in at.sidebar if element.type == "page_link"}


def test_choosing_another_run_goes_into_the_url_and_drops_the_step_range(three: list[str]) -> None:
    at = visit("overview", run="seed-1", **{"from": "3", "to": "7"})
    checked(at.selectbox(key="run-picker").set_value("other").run(), "overview")
    assert query(at, "run") == ["other"]
    assert query(at, "from") == []
    assert "reinforce · " in sentences(at)


@pytest.mark.parametrize("page", ["overview", "tokens", "compare", "report"])
def test_no_link_leads_out_of_the_folders_that_are_served(
    three: list[str], page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are looked up among those that were listed; what a link says is never made a path."""
    outside = folder.parent / "outside"
    if not outside.exists():
        write_run(outside, make_steps(2), name="not served")
    read: set[Path] = set()  # threads that read the runs of other tests may add to it
    original = Manifest.read
    monkeypatch.setattr(Manifest, "read", lambda place: read.add(place.resolve()) or original(place))
    for way in ("../outside", str(outside), outside.as_uri(), "seed-0/../../outside", "..%2Foutside"):
        at = visit(page, run=way, runs=[way, "seed-1"], baseline=way, rule=way, metric=way)
        assert "not served" not in sentences(at)
    assert outside not in read


def test_compared_runs_and_metric_come_from_the_url(three: list[str]) -> None:
    at = visit("compare", run=three, metric=metric_label("u_k"), smooth="5")
    assert at.selectbox(key="metric").value == "u_k"
    assert at.select_slider(key="smooth").value == 5
    assert "Update drift" in sentences(at)
    drawn = [trace.get("name") for chart in charts(at) for trace in chart["data"]]
    assert {"grpo", "reinforce"} <= set(drawn)


def test_an_unknown_metric_in_the_url_falls_back_to_a_known_one(three: list[str]) -> None:
    assert visit("compare", run=three, metric="nonsense").selectbox(key="metric").value == "eval_accuracy"


def test_two_runs_are_ranked_with_what_differs(three: list[str]) -> None:
    at = visit("compare", run=three, metric="reward")
    (ranking,) = [table.value for table in at.dataframe if "Seeds" in table.value]
    (differing,) = [table.value for table in at.dataframe if "algorithm.name" in set(table.value.get("Setting", ()))]
    assert sorted(ranking["Seeds"]) == ["1", "2"]
    assert set(differing.set_index("Setting").loc["algorithm.name"]) == {"grpo", "reinforce"}


def test_one_run_alone_is_nothing_to_compare(three: list[str]) -> None:
    assert "nothing to compare yet" in sentences(visit("compare", run="other"))
    assert "Choose the runs to compare:" in sentences(visit("compare"))


def test_all_runs_puts_every_run_into_the_url(three: list[str]) -> None:
    at = visit("compare")
    button = next(button for button in at.button if button.label == "All runs")
    checked(button.click().run(), "compare")
    assert sorted(query(at, "run")) == sorted(three)


def test_a_link_with_more_runs_than_can_be_compared_shows_the_first(
    three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "MOST_RUNS", 2)
    (ranking,) = [table.value for table in visit("compare", run=three).dataframe if "Seeds" in table.value]
    assert sum(map(int, ranking["Seeds"])) == 2


def test_search_words_and_status_of_the_url_filter_the_list(three: list[str]) -> None:
    assert set(runs_table(visit("runs", q="reinforce"))) == {"other"}
    assert set(runs_table(visit("runs", q="SEED grpo"))) == {"seed-0", "seed-1"}
    assert set(runs_table(visit("runs", status="finished"))) == set(three)


def test_a_search_that_finds_nothing_shows_no_row_and_no_error(three: list[str]) -> None:
    at = visit("runs", q="no such run")
    assert "**3 runs, none live" in sentences(at)


def _keys_in_addresses() -> set[str]:
    """Of every widget and fold of the dashboard that keeps its value in the address, as far as it is written out."""
    found = set()
    for path in Path(dashboard.__path__[0]).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                key = given.get("key") if "bind" in given else call.args[0] if name in _BY_PLACE and call.args else None
                if isinstance(key, ast.Constant) and key.value:
                    found.add(str(key.value))
    return found


_BY_PLACE = ("fold", "Part", "Choice", "metric_choice", "url_number", "criterion_picker")


def test_every_key_that_a_page_keeps_in_the_address_is_known() -> None:
    kept = _keys_in_addresses()
    assert len(kept) > 60 and kept - parameters() == {"step-by"} & kept


def test_what_means_nothing_in_a_link_is_said(three: list[str]) -> None:
    at = visit("overview", run="seed-1", nonsense="<b>1</b>", mean="5")
    said = sentences(at).replace("\\", "")
    assert (
        "Nothing here is set by nonsense=<b>1</b>: this part of the link is ignored." in said and "mean=5" not in said
    )
