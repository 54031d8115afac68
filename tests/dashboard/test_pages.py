"""Every page on every kind of run: it says what is the case and never raises."""

import gc
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from subprocess import Popen
from threading import Event
from typing import Any
from weakref import ref

import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.demo import Demo, stage
from ratioscope.dashboard.formats import metric_value
from ratioscope.dashboard.load import server_load
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import MENU
from ratioscope.dashboard.watching.reader import server_reader
from ratioscope.errors import RatioscopeError
from ratioscope.metric import Grain
from tests.dashboard.conftest import SCHEDULE, make_steps
from tests.making.pages import PAGES, RUN_PAGES, charts, elements, read, runs_table, sentences, visit
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS, end_of

Look = Callable[..., AppTest]
LookAt = Callable[[str, str], tuple[AppTest, Path]]

# Pages whose first row of tiles is of the step summary.
TILES = {name: page.tiles for name, page in MENU.items() if page.tiles and page.without is None}
N_CHARTS = {"overview": 6, "drift": 7, "ratios": 8, "clipping": 5, "variance": 5, "staleness": 2}

NO_RUN = "There are no runs in the folders of this dashboard."
NO_STEP = "No step is on disk yet."


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that this process is still writing and that has one step; tests do not go on with it."""
    folder = tmp_path_factory.mktemp("begun") / "begun"
    with RunRecorder(folder, flush_seconds=0.0, algorithm={"name": "grpo"}, schedule=SCHEDULE) as recorder:
        (step,) = make_steps(1)
        recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()
        yield folder


@pytest.mark.parametrize("page", ["compare", "report"])
def test_a_deleted_run_is_named(page: str, root: Path) -> None:
    for name in ("stays", "deleted"):
        write_run(root / name, make_steps(3), algorithm={"name": "grpo"}, schedule=SCHEDULE)
    at = visit(page, run=["stays", "deleted"])
    assert "Some chosen runs are not in the folders" not in sentences(at)
    rmtree(root / "deleted")
    said = sentences(at.run())
    assert "Some chosen runs are not in the folders of this dashboard." in said and "\ndeleted\n" in said


def test_a_demo_whose_run_is_finished_is_not_live(tmp_path: Path) -> None:
    run = write_run(tmp_path / "live", make_steps(1))
    with Popen(["true"]) as trainer:
        now = stage(Demo(run, trainer, None, 0.0))
    assert (now.says, now.has_steps, now.ended) == ("The training has finished.", True, True)


@pytest.fixture
def look_at(look: Look, gallery: Path, begun: Path) -> LookAt:
    """look_at(page, run) -> the page on a run of the gallery or on the one that has begun, and the run's folder."""

    def look_once(page: str, run: str) -> tuple[AppTest, Path]:
        if run != "begun":
            return look(page, run), gallery / run
        serve_from([begun.parent])
        if page not in _BEGUN:
            _BEGUN[page] = visit(page, run=run)
        return _BEGUN[page], begun

    return look_once


_BEGUN: dict[str, AppTest] = {}


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_live_run_says_how_fresh_it_is_and_is_followed(look_at: LookAt, page: str) -> None:
    at, _ = look_at(page, "begun")
    assert ":green-badge[:material/sensors: live]" in sentences(at)
    assert "data up to step 0, " in sentences(at)
    assert at.toggle(key="follow").value is True


def test_the_laboratory_needs_no_run(root: Path) -> None:
    page = visit("laboratory")
    assert NO_RUN not in sentences(page)
    links = " ".join(link.proto.label.replace("\\", "") for link in elements(page) if link.type == "page_link")
    assert all(experiment.claim in links for experiment in EXPERIMENTS.values())


@pytest.mark.parametrize("page", [page for page in PAGES if page != "laboratory"])
def test_without_any_run_a_page_says_how_to_get_one(root: Path, page: str) -> None:
    said = sentences(visit(page))
    assert NO_RUN in said
    assert "ratioscope demo" in said
    assert str(root) in said


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_run_that_ended_with_only_a_manifest_is_not_awaited(look: Look, page: str) -> None:
    at = look(page, "empty")
    assert "The run holds no step." in sentences(at) and NO_STEP not in sentences(at)
    assert not at.metric
    assert not charts(at)


def test_comparing_runs_without_steps_says_so(look: Look) -> None:
    at = look("compare", "empty")
    assert "empty: no step is on disk." in sentences(at)
    assert not charts(at)


@pytest.mark.parametrize("page", TILES)
@pytest.mark.parametrize("run", ["begun", "finished"])
def test_tiles_show_the_median_of_the_chosen_steps_and_the_worst(look_at: LookAt, page: str, run: str) -> None:
    at, folder = look_at(page, run)
    summary = summarise(open_run(folder))
    for tile, key in zip(at.metric, TILES[page], strict=False):  # other tiles may follow
        assert CATALOGUE[key].label in tile.label
        known, beside = summary.values[key].dropna(), str(tile.delta)
        if len(known) > 1:
            _assert_shows(tile.value, float(known.median()), math.nan)
            if known.nunique() > 1:
                better = CATALOGUE[key].better
                far = (known - float(better)).abs() if better.isdigit() else -known if better == "higher" else known
                place = far.argmax()
                assert f"(step {known.index[place]})" in beside
        elif len(known):
            step = known.index[0]
            _assert_shows(tile.value, float(known[step]), float(summary.high[key][step] - summary.low[key][step]))
            few = summary.values["effective_groups"][step] < 12 and CATALOGUE[key].grain is not Grain.STEP
            has_interval = any(words in beside for words in (" to ", "at least ", "at most "))
            assert ("effective prompt group" in beside) == (few and has_interval), beside
        else:
            assert (tile.value, tile.delta) == ("–", str(summary.note(summary.last_step, key)))


def _assert_shows(text: str, value: float, width: float) -> None:
    """Three significant digits, or a percentage with one decimal; less where the width of the interval is larger."""
    allowed = 0.0 if math.isnan(width) else 0.0251 * width  # half of the second digit of half the width
    if text.endswith("%"):
        assert float(text.removesuffix("%")) / 100 == pytest.approx(value, abs=max(0.00051, allowed))
    else:
        assert float(text) == pytest.approx(value, rel=0.0051, abs=allowed)


@pytest.mark.parametrize("page", N_CHARTS)
@pytest.mark.parametrize("run", ["begun", "finished"])
def test_a_page_draws_all_its_charts(look_at: LookAt, page: str, run: str) -> None:
    drawn = charts(look_at(page, run)[0])
    fresh = (page, run) == ("staleness", "begun")  # one step, no token of which is old
    assert len(drawn) >= (0 if fresh else N_CHARTS[page])  # findings bring sparklines along
    assert all(chart["data"] for chart in drawn)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_finished_run_says_so_and_is_not_followed(look: Look, page: str) -> None:
    at = look(page, "finished")
    said = sentences(at)
    assert ":gray-badge[:material/check: finished]" in said
    assert "grpo · sync_interval = 4 · seed 3" in said
    assert "data up to step" not in said
    assert "follow" not in [toggle.key for toggle in at.toggle]


def test_the_list_shows_status_steps_and_reward_of_every_run(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])
    at = read(visit("runs"))
    rows = runs_table(at)
    assert set(rows) == {folder.name for folder in gallery.iterdir()}
    finished = rows["finished"]
    assert (finished["Status"], finished["Steps"], finished["Algorithm"]) == ("finished", 12, "grpo")
    assert len(finished["Reward"]) == 12
    assert finished["Finding"]
    assert (rows["empty"]["Status"], rows["empty"]["Steps"]) == ("interrupted", 0)
    assert f"**{len(rows)} runs, none live" in sentences(at)


def test_a_live_run_shows_its_new_steps_at_the_next_run_of_the_script(live: RunRecorder) -> None:
    at = visit("overview", run=live.folder.name)
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert "data up to step 5, " in sentences(at.run())
    assert str(at.metric[0].delta).endswith(f", last {metric_value('reward', float(step.sequences['reward'].mean()))}")


def test_pages_that_stand_open_keep_no_state(live: RunRecorder, root: Path) -> None:
    """A state of a long run takes tens of megabytes, and each viewer of a run that is written sees hundreds."""
    gc.freeze()  # what other tests have made is not looked through
    write_run(root / "another", make_steps(5), algorithm={"name": "reinforce"}, schedule=SCHEDULE)
    chosen: dict[str, Any] = dict.fromkeys(RUN_PAGES, "live-run") | {"compare": ["live-run", "another"]}
    stand_open, followed = ({page: visit(page, run=run) for page, run in chosen.items()} for _ in range(2))
    gc.collect()
    drawn = [ref(one) for one in gc.get_objects() if isinstance(one, Run) and one.folder == live.folder]
    assert drawn
    for step in make_steps(7)[5:]:  # what is computed is kept for two states
        live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        live.flush()
        server_load._followers.clear()  # so many viewers would wait for the next state, by how busy the machine is
        for at in followed.values():
            at.run()
    gc.collect()
    gc.unfreeze()
    assert not any(one() for one in drawn)
    assert [page for page, at in stand_open.items() if at.run().exception] == []


def test_what_a_page_has_borrowed_is_there_until_another_state_has_come(
    live: RunRecorder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a slider on a finished run draws its own part, and one on a live run the whole page, once."""
    drawn_again: list[bool] = []
    monkeypatch.setattr(state.st, "rerun", lambda: drawn_again.append(True))
    write_run(root / "finished", make_steps(5))
    shared = state._Shared("finished", str(root / "finished"), Limits())
    borrowed = state.lent(shared.get(seen=""))
    gc.collect()
    assert borrowed() is shared.get(seen="")
    shared = state._Shared("live", str(live.folder), Limits())
    borrowed = state.lent(shared.get(seen=""))
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert borrowed().summary.last_step == 4
    shared.get(seen=borrowed().run.signature)
    gc.collect()
    assert not drawn_again
    borrowed()
    assert drawn_again == [True]


def test_viewers_of_a_live_run_share_its_states(live: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has seen the latest one gets the next; the others get the latest, and nothing is read for them."""
    monkeypatch.setattr(state, "_FRESH", math.inf)
    shared = state._Shared("live", str(live.folder), Limits())
    first = shared.get(seen="")
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert shared.get(seen="another") is first
    second = shared.get(seen=first.run.signature)
    assert (second.summary.last_step, shared.get(seen=first.run.signature)) == (5, second)
    assert shared.has_news(first.run.signature)
    assert not shared.has_news(second.run.signature)


def comes(condition: Callable[[], bool]) -> bool:
    """Whether it is so within a minute."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_who_follows_a_live_run_does_not_wait_for_its_next_state(
    live: RunRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, goes_on = state._Shared("live", str(live.folder), Limits()), Event()
    first, read = shared.get(seen=""), state.open_folder

    def slowly(*arguments: Any, **options: Any) -> Opened:
        assert goes_on.wait(60)
        return read(*arguments, **options)

    monkeypatch.setattr(state, "open_folder", slowly)
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert not shared.has_news(first.run.signature)
    assert shared.get(seen=first.run.signature) is first
    goes_on.set()
    assert comes(lambda: shared.has_news(first.run.signature))
    second = shared.get(seen=first.run.signature)
    assert (second.summary.last_step, shared.has_news(second.run.signature)) == (5, False)


def test_why_the_next_state_cannot_be_read_is_said(live: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = state._Shared("live", str(live.folder), Limits())
    first = shared.get(seen="")
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()

    def refuse(*arguments: Any, **options: Any) -> Opened:
        raise RatioscopeError("tokens: cannot be read any more.")

    monkeypatch.setattr(state, "open_folder", refuse)
    assert comes(lambda: shared.has_news(first.run.signature))
    with pytest.raises(RatioscopeError, match="cannot be read any more"):
        shared.get(seen=first.run.signature)


def test_one_run_is_counted_in_the_singular(live: RunRecorder) -> None:
    at = visit("runs")
    assert "**1 run, live" in sentences(at)
    assert runs_table(at)[live.folder.name]["Status"] == "live"


@pytest.mark.parametrize("page", TILES)
def test_what_is_not_logged_is_said_once_and_has_no_tile(look: Look, page: str) -> None:
    missing = {"u_k", "tv_new_behavior_bounded", "clip_fraction", "clip_fraction_positive", "clip_fraction_negative",
               "effective_token_fraction", "entropy"}  # fmt: skip
    at = look(page, "broken")
    known = [CATALOGUE[key].label for key in TILES[page] if key not in missing]
    assert [tile.label.split(" $")[0] for tile in at.metric][: len(known)] == known
    assert all(tile.value != "–" for tile in at.metric[: len(known)])
    said = {
        "overview": "how far updates moved the policy, because logp_new is not logged; what the clip did, because "
        "neither clipped nor clip_side is logged; how sure the policy is of its tokens, because entropy is not logged",
        "drift": "how far updates moved the policy and how far the new policy is from the data, because logp_new is "
        "not logged",
        "clipping": "what the clip did, because neither clipped nor clip_side is logged",
    }
    assert sentences(at).count(f"This log does not say {said.get(page)}.") == (page in said)


def test_answers_say_what_is_not_logged(look: Look) -> None:
    assert "so the update is unknown" in sentences(look("drift", "broken"))


def test_runs_that_lack_columns_are_compared_by_the_others(look: Look) -> None:
    at = look("compare", "lean", "finished")
    assert charts(at)[0]["data"]


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_broken_file_is_left_out_and_named(look: Look, gallery: Path, page: str) -> None:
    at = look(page, "broken")
    assert "A file of this run was left out." in sentences(at)
    assert str(gallery / "broken" / "tokens" / "000002-000002-w0.parquet") in sentences(at)
    assert charts(at) or at.metric or page == "sql"


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_run_of_a_newer_format_is_refused_with_the_reason(look: Look, page: str) -> None:
    at = look(page, "newer")
    assert "This run cannot be read." in sentences(at)
    assert "written in run format 7.0" in sentences(at)
    assert not at.metric


def test_runs_that_cannot_be_read_are_listed_with_the_reason(look: Look) -> None:
    at = look("runs")
    for name in ("newer", "torn"):
        assert (runs_table(at)[name]["Status"], runs_table(at)[name]["Finding"]) == ("cannot be read", "cannot be read")
    assert "written in run format 7.0" in sentences(at)
    assert "cannot be read as JSON" in sentences(at)


def test_a_run_that_cannot_be_read_is_left_out_of_a_comparison(look: Look) -> None:
    at = look("compare", "newer", "finished")
    assert "A run was left out." in sentences(at)
    assert "written in run format 7.0" in sentences(at)
    assert charts(at)


@pytest.mark.parametrize(
    ("page", "unknown"), [*((page, "../../etc") for page in RUN_PAGES), ("overview", "nowhere"), ("overview", "")]
)
def test_an_unknown_run_in_the_link_is_said_and_no_other_is_shown_for_it(look: Look, page: str, unknown: str) -> None:
    at = look(page, unknown)
    assert "The run in this link is not in the folders" in sentences(at)
    assert at.selectbox(key="run-picker").value is None
    assert not at.metric


def test_an_unknown_run_cannot_be_compared(look: Look) -> None:
    assert "nothing to compare yet" in sentences(look("compare", "nowhere", "finished"))


def test_beside_the_remedy_stands_what_was_tried_the_best_first(root: Path) -> None:
    """A run that fell, and what became of others of which one setting differs; one of another seed is none of them."""
    tried = {
        "sync_interval20-rec_twoside_nois-lr0.0003-seed0": "clip two_side (rec_twoside_nois)",
        "sync_interval20-rec_ring_nois-lr0.0003-seed0": "clip ring (rec_ring_nois)",
        "sync_interval20-reinforce-seed0": "learning_rate 0.0001",
    }
    fallen = "sync_interval20-reinforce-lr0.0003-seed0"
    for name in (fallen, *tried, "sync_interval20-reinforce-seed1"):
        (root / name).symlink_to(SAMPLE_RUNS / name)
    at = visit("overview", run=fallen)
    while "read so far" in sentences(at):
        server_reader().wait(1.0)
        at.run()
    links = [link.proto.label.replace("\\", "") for link in elements(at) if link.type == "page_link"]
    ends = {name: end_of(name) for name in tried}
    best_first = sorted(tried, key=lambda name: -ends[name])
    assert [link for link in links if link in tried.values()] == [tried[name] for name in best_first]
    shown = [text for text in sentences(at).splitlines() if re.fullmatch(r":material/\w+: \*\*\d+%\*\*", text)]
    assert [re.findall(r"\d+%", text) for text in shown] == [[f"{100 * ends[name]:.0f}%"] for name in best_first]


def test_engine_says_whether_the_run_learns_and_where_its_limits_are_from() -> None:
    serve_from([SAMPLE_RUNS])
    said = sentences(visit("engine", run="mismatch-grpo-seed0"))
    assert "**Learning:** Rising. Accuracy 43 → 89% (steps 0 and 149)." in said
    assert "mult_prob_error 1.05: mean factor by which the two engines' probabilities may differ" in said
    assert "From: NeMo-RL, documented alert on token_mult_prob_error." in said
