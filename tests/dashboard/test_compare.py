"""Compare: seeds as one line, panels by any key, what leads and whether that is chance; every state of a choice."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.compare.curves import curves
from ratioscope.analysis.compare.grouping import Member, grouped_settings
from ratioscope.analysis.compare.sentences import with_other_seeds
from ratioscope.analysis.compare.standing import standing
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.components.metric_choice import METRICS
from ratioscope.dashboard.figures.base import MOST_POINTS
from ratioscope.dashboard.figures.line_styles import legend_names, styles
from ratioscope.dashboard.formats import metric_label
from ratioscope.dashboard.report.build import comparison_report
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections.compare.comparison import ComparedMeasure, Comparison, Look
from ratioscope.dashboard.sections.compare.curves import MOST_COLOURED, legend, looks, panels
from ratioscope.dashboard.sections.compare.dots import dots
from ratioscope.dashboard.sections.model import Chart, Paragraph, Table, cell_text
from tests.dashboard.conftest import SCHEDULE, make_steps
from tests.making.members import setting
from tests.making.pages import charts, checked, query, sentences, visit
from tests.making.runs import Step, random_step, write_run

EVIL = "<b>EVIL</b> ![](http://127.0.0.2/x) $x$ :material/bolt:"
SEEDS = 4


def _steps(n: int, shift: float, seed: int) -> list[Step]:
    """Steps whose evaluation accuracy rises to about 0.5 + shift; groups carry the same prompt ids in all runs."""
    rng, found = np.random.default_rng(seed), []
    for number in range(n):
        step = random_step(rng, number, groups=2, responses=2, longest=4)
        step.scalars["eval_accuracy"] = 0.5 * number / n + shift + 0.01 * rng.standard_normal()
        step.sequences["prompt_id"] = 10 * (number % 5) + np.asarray(step.sequences["group_id"])
        found.append(step)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two algorithms of four seeds at one learning rate, one of them also at another; a longer one; a broken one."""
    folder = tmp_path_factory.mktemp("ablation")
    for seed in range(SEEDS):
        for name, shift in (("grpo", 0.1), ("reinforce", 0.0)):
            fields: dict[str, Any] = {"algorithm": {"name": name, "parts": {"step": name}}, "schedule": SCHEDULE}
            write_run(folder / f"{name}-{seed}", _steps(8, shift, seed), seed=seed, optimiser={"lr": 0.1}, **fields)
    fields = {"algorithm": {"name": "grpo", "parts": {"step": "grpo"}}, "seed": 0}
    write_run(folder / "other-rate", _steps(8, 0.2, 9), schedule=SCHEDULE, optimiser={"lr": 0.2}, **fields)
    write_run(folder / "longer", _steps(12, 0.1, 8), schedule={"sync_interval": 20}, optimiser={"lr": 0.1}, **fields)
    write_run(folder / "newer", make_steps(1))
    manifest = folder / "newer" / "run.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": "', '"schema_version": "7'))
    write_run(folder / "evil", _steps(4, 0.0, 3), algorithm={"name": EVIL}, schedule={EVIL: EVIL}, optimiser={EVIL: 1})
    return folder


@pytest.fixture
def page(two: list[str]) -> AppTest:
    """The page on these runs, rendered once; do not click on it."""
    if not _SEEN:
        _SEEN.append(visit("compare", run=two))
    return _SEEN[0]


_SEEN: list[AppTest] = []


@pytest.fixture
def two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the eight runs of two settings, served by the app."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder])
    return [f"{name}-{seed}" for name in ("grpo", "reinforce") for seed in range(SEEDS)]


def _panels(at: AppTest) -> list[dict[str, Any]]:
    """The charts of the page without those of the ends and of the difference."""
    found = [chart for chart in charts(at) if "ticktext" not in chart["layout"]["yaxis"]]
    return [chart for chart in found if "minus" not in str(chart["layout"]["yaxis"]["title"].get("text"))]


def _dots(at: AppTest) -> dict[str, Any]:
    """The chart of the ends."""
    (found, *_) = [chart for chart in charts(at) if "ticktext" in chart["layout"]["yaxis"]]
    return found


def _named(at: AppTest) -> list[str]:
    """The names of the lines, over all panels."""
    return sorted({trace["name"] for chart in _panels(at) for trace in chart["data"] if "name" in trace})


def test_seeds_are_one_line_and_the_page_opens_with_the_answer(page: AppTest) -> None:
    assert _named(page) == ["grpo", "reinforce"]
    said = sentences(page).replace("\\", "")
    assert "Best: grpo (" in said and "%, 4 seeds).**  \nWorse: reinforce (" in said
    assert "may change this order" not in said  # four are enough
    assert "Worse: behind the best (95% over seeds)." in said
    assert "Bands: 95% bootstrap over 4 seeds." in said
    assert "mean of 3 values, steps 5–7" in said


def test_the_ranking_is_a_table_on_demand(on_demand: AppTest) -> None:
    (table,) = [table.value for table in on_demand.dataframe if "Seeds" in table.value]
    assert list(table["Setting"]) == ["grpo", "reinforce"]
    assert list(table["Seeds"]) == [str(SEEDS)] * 2
    assert list(table["To the best"]) == ["best", "worse"]


def test_one_run_alone_is_drawn_without_a_band_or_a_difference(two: list[str]) -> None:
    at = visit("compare", run=two[0])
    assert "nothing to compare yet" in sentences(at)
    assert "One seed: no band." in sentences(at)
    assert _named(at) == ["grpo"]
    assert "a" not in {box.key for box in at.selectbox}


def test_panels_by_any_key_have_equal_axes_and_a_title_each(two: list[str]) -> None:
    at = visit("compare", run=[*two, "other-rate"], facet="optimiser.lr", colour="optimiser.lr", dash="algorithm")
    first, second = (chart["layout"] for chart in _panels(at))
    assert first["yaxis"]["range"] == second["yaxis"]["range"]
    assert first["xaxis"]["range"] == second["xaxis"]["range"]
    titles = [text for each in at.markdown if "## optimiser.lr =" in (text := each.value.replace("\\", ""))]
    assert titles[:2] == ["## optimiser.lr = 0.1", "## optimiser.lr = 0.2"]
    assert _named(at) == ["lr 0.1, grpo", "lr 0.1, reinforce", "lr 0.2, grpo"]


def test_the_interquartile_mean_of_four_seeds_leaves_out_two(two: list[str], folder: Path) -> None:
    at = visit("compare", run=two, statistic="IQM", smooth="1")
    assert "interquartile mean over seeds" in sentences(at)
    (line,) = [trace for trace in _panels(at)[0]["data"] if trace.get("name") == "grpo"]
    members = [Member(name, run := open_run(folder / name), summarise(run)) for name in two]
    (grpo, _) = curves(grouped_settings(members), "eval_accuracy", statistic="iqm")
    middle = np.sort(grpo.seeds.to_numpy(), axis=1)[:, 1:3].mean(axis=1)
    np.testing.assert_allclose(grpo.frame["value"], middle)
    np.testing.assert_allclose(_numbers(line["y"]), middle, rtol=1e-5)


@pytest.mark.parametrize(("along", "title"), [("tokens", "tokens trained on"), ("time", "since the first update")])
def test_runs_are_laid_along_tokens_and_time(two: list[str], along: str, title: str) -> None:
    at = visit("compare", run=two, along=along, ranking="true")
    for chart in _panels(at):
        assert title in chart["layout"]["xaxis"]["title"]["text"]
    assert _named(at) == ["grpo", "reinforce"]


def test_runs_of_different_length_are_compared_at_their_common_end(two: list[str]) -> None:
    at = visit("compare", run=["grpo-0", "longer"], facet="nothing")
    assert "ends at step 7, and all runs are compared there: the other run goes on to step 11" in sentences(at)
    assert _panels(at)[0]["layout"]["xaxis"]["range"][1] > 11


def test_the_running_mean_leaves_what_was_logged_as_a_thin_line(two: list[str]) -> None:
    smooth, plain = (visit("compare", run=two, smooth=window, metric=metric_label("s_k")) for window in ("5", "1"))
    assert "Thin lines: logged values" in sentences(smooth)
    assert len(_panels(smooth)[0]["data"]) == len(_panels(plain)[0]["data"]) + 2


@pytest.fixture(scope="module")
def unfolded() -> list[AppTest]:
    """Where the page with all that is shown on demand is kept."""
    return []


@pytest.fixture
def on_demand(two: list[str], unfolded: list[AppTest]) -> AppTest:
    """The page with each seed and the same prompts, rendered once; do not click on it."""
    if not unfolded:
        shown = dict.fromkeys(("seeds", "prompts", "settings", "ranking"), "true")
        unfolded.append(visit("compare", run=two, **shown))
    return unfolded[0]


def test_each_seed_is_drawn_on_demand(two: list[str], page: AppTest, on_demand: AppTest) -> None:
    assert len(_panels(on_demand)[0]["data"]) == len(_panels(page)[0]["data"]) + len(two)
    for chart in charts(on_demand):
        for trace in chart["data"]:
            assert len(_numbers(trace["x"])) <= MOST_POINTS


def test_brushed_steps_are_shown_and_taken_back(two: list[str]) -> None:
    at = visit("compare", run=two, **{"from": "2", "to": "5"})
    assert "steps 2 to 5" in sentences(at)
    assert {tuple(chart["layout"]["xaxis"]["range"]) for chart in _panels(at)} == {(1.5, 5.5)}
    assert query(checked(at.button(key="all-steps").click().run(), "compare"), "from") == []


def test_lines_that_look_alike_are_pointed_out(two: list[str], page: AppTest) -> None:
    alike = "Lines that look the same differ"
    assert alike not in sentences(page)
    assert alike in sentences(visit("compare", run=two, colour="nothing", dash="nothing"))


def test_a_setting_is_held_against_the_baseline(two: list[str]) -> None:
    at = visit("compare", run=[*two, "other-rate"], ranking="true")
    assert at.selectbox(key="baseline").value == "grpo (lr 0.2)"
    assert at.selectbox(key="a").options == ["grpo", "reinforce"] and at.selectbox(key="a").value == "grpo"
    other = visit("compare", run=two, ranking="true", baseline="reinforce", a="nonsense")
    assert other.selectbox(key="a").options == ["grpo"]
    for at, title in (
        (visit("compare", run=two, ranking="true"), "reinforce minus grpo"),
        (other, "grpo minus reinforce"),
    ):
        assert title in sentences(at)
        assert "grpo is ahead in 4 of 4 pairs of seeds" in sentences(at)
        assert "probability of ending better 1" in sentences(at)


def test_rewards_on_the_same_prompts_are_compared_on_demand(page: AppTest, on_demand: AppTest) -> None:
    assert "on the same prompts" not in sentences(page)
    said = sentences(on_demand).replace("\\", "")
    assert "Difference of the reward on the same prompts" in said
    assert f"{8 * SEEDS * 2} pairs of 10 prompts, all steps" in said


def test_parts_of_the_algorithms_show_what_differs(page: AppTest) -> None:
    assert any("step (grpo / reinforce)" in fold.label.replace("\\", "") for fold in page.expander)
    (parts,) = [table.value for table in page.dataframe if "Component" in table.value]
    assert parts.to_dict("list") == {"Component": ["step"], "grpo": ["grpo"], "reinforce": ["reinforce"]}


def test_an_algorithm_called_as_a_column_has_a_column_of_its_own(tmp_path: Path, two: list[str]) -> None:
    for name in ("Component", "other"):
        write_run(tmp_path / name, _steps(2, 0.0, 1), algorithm={"name": name, "parts": {"step": name}})
    serve_from([tmp_path])
    heads = [
        list(table.value.columns) for table in visit("compare", run=["Component", "other"], settings="true").dataframe
    ]
    assert ["Component", "Component (2)", "other"] in heads


def test_page_and_report_say_the_same_of_two_settings(on_demand: AppTest, folder: Path, two: list[str]) -> None:
    """Tables cell by cell, and titles; where the page has a chart a panel, the report has one figure."""
    page = on_demand
    runs = [open_folder(folder / run_id) for run_id in two]
    section = comparison_report(runs, pages=["setting"], metric="eval_accuracy").sections[0]
    shown = [table.value.to_numpy().tolist() for table in page.dataframe]
    said = sentences(page)
    for block in section.blocks:
        if isinstance(block, Table):
            assert [list(map(cell_text, row)) for row in block.rows] in shown, block.title
            assert block.title in said
            assert block.note in said
        if isinstance(block, Chart):
            assert block.title in said
        if isinstance(block, Paragraph):
            assert block.text in said


def test_words_keep_only_the_runs_that_have_them(two: list[str]) -> None:
    at = visit("compare", run=two, only="reinforce sync_interval")
    assert "4 of 8 chosen runs contain these words." in sentences(at)
    assert _named(at) == ["reinforce"]
    checked(next(button for button in at.button if button.key == "all-runs").click().run(), "compare")
    assert set(query(at, "run")) == {f"reinforce-{seed}" for seed in range(SEEDS)}


def test_a_run_that_cannot_be_read_is_left_out_with_the_reason(two: list[str]) -> None:
    at = visit("compare", run=[*two, "newer"])
    assert "A run was left out." in sentences(at)
    assert "written in run format 7" in sentences(at)
    assert _named(at) == ["grpo", "reinforce"]


def test_a_metric_that_no_run_has_is_said_with_the_reason(two: list[str]) -> None:
    at = visit("compare", run=two, metric=metric_label("kl_to_initial"))
    said = sentences(at)
    assert "No run has a value of KL to " in said
    assert "compared by evaluation accuracy" in said
    assert charts(at)


def test_hostile_keys_and_values_are_offered_as_plain_text(two: list[str]) -> None:
    key = f"optimiser.{EVIL}"
    at = visit("compare", run=["evil", "grpo-0"], colour=key, dash=key, facet=key)
    assert at.selectbox(key="facet").value == key
    for element in at.markdown:
        assert "<b>" not in element.value
    for chart in charts(at):
        assert "<b>" not in str(chart["data"]).replace("'legendgroup': '<b>", "")
        assert "<b>EVIL" not in str(chart["layout"])


def test_senseless_controls_in_the_link_fall_back(two: list[str]) -> None:
    nonsense = dict.fromkeys(("colour", "dash", "facet", "a", "along", "statistic", "smooth", "seeds"), "../..")
    at = visit("compare", run=two, **nonsense)
    assert at.selectbox(key="facet").value == "schedule"
    assert _named(at) == ["grpo", "reinforce"]


def test_a_live_run_is_followed_and_a_finished_one_is_not(live: RunRecorder) -> None:
    at = visit("compare", run=live.folder.name)
    assert "data up to step 4" in sentences(at)
    assert at.toggle(key="follow-runs").value is True
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert "data up to step 5" in sentences(at.run())


def test_finished_runs_are_not_followed(page: AppTest) -> None:
    assert "follow-runs" not in {toggle.key for toggle in page.toggle}


def test_every_comparable_metric_has_a_name_of_its_own_without_latex() -> None:
    called = [metric_label(key) for key in METRICS]
    assert len(set(called)) == len(called) > 45
    assert set(METRICS) < set(CATALOGUE)
    assert not set("\\{}$") & set("".join(called))


def test_forty_settings_have_forty_looks(folder: Path) -> None:
    run = open_run(folder / "grpo-0")
    summary = summarise(run)

    def member(number: int) -> Member:
        manifest = type(run.manifest)(**{**vars(run.manifest), "algorithm": {"name": f"algorithm {number}"}})
        return Member(f"run {number}", type(run)(run.folder, manifest, run.files), summary)

    many = grouped_settings([member(number) for number in range(40)])
    assert len(many) == 40
    for colour, dash in (("algorithm", "variant"), ("algorithm", "nothing"), ("nothing", "algorithm")):
        assert len(set(styles(many, colour, dash))) == 40
        assert len(set(legend_names(many, colour, dash))) == 40
    assert len(set(styles(many, "schedule", "schedule"))) == 1


def test_standing_meets_across_schedules_where_no_schedule_has_two(folder: Path) -> None:
    members = [Member(name, run := open_run(folder / name), summarise(run)) for name in ("grpo-0", "longer")]
    found = standing(grouped_settings(members), "eval_accuracy")
    assert [group.schedule for group in found.ranked] == [""]
    assert "there is one seed of each" in with_other_seeds(found.contrasts[0])


def test_differences_are_to_the_best_of_two_until_another_is_chosen(two: list[str], on_demand: AppTest) -> None:
    other = next(label for label in on_demand.selectbox(key="baseline").options if label.startswith("reinforce"))
    for at, left in (
        (on_demand, "reinforce"),
        (visit("compare", run=two[::-1], ranking="true"), "reinforce"),
        (visit("compare", run=two, baseline=other, ranking="true"), "grpo"),
    ):
        (table,) = [table.value for table in at.dataframe if "Seeds" in table.value]
        held = table[table["95% of it"] != "–"]
        assert list(held["Setting"]) == [left]
        assert next(iter(held["Difference"])).startswith("-") == (left == "reinforce")
        assert "Significant" not in table or list(held["Significant"]) == ["better"]


def test_the_page_begins_with_the_ends_best_first(page: AppTest) -> None:
    """The numbers drawn are those of the ranking; a setting has the colour of its curve."""
    found = _dots(page)
    assert charts(page)[0] == found
    assert found["layout"]["yaxis"]["ticktext"] == ["grpo", "reinforce"]
    by_colour = {
        trace["marker"]["color"]: trace for trace in found["data"] if trace.get("marker", {}).get("symbol") == "circle"
    }
    colour_of = {
        trace["name"]: trace["line"]["color"] for panel in _panels(page) for trace in panel["data"] if "name" in trace
    }
    assert set(by_colour) == set(colour_of.values()) and len(by_colour) == 2
    (best,) = _numbers(by_colour[colour_of["grpo"]]["x"])
    assert _numbers(by_colour[colour_of["grpo"]]["y"]).tolist() == [0]
    assert [each["text"].split()[-1] for each in found["layout"]["annotations"][1:]] == ["best", "worse"]
    (seeds,) = [
        trace for trace in found["data"] if trace.get("marker", {}).get("symbol") == "circle-open"
        and trace["marker"]["color"] == colour_of["grpo"]
    ]  # fmt: skip
    assert len(_numbers(seeds["x"])) == SEEDS and best == pytest.approx(_numbers(seeds["x"]).mean())
    # Whoever touches a row reads what is behind the name, as far as the others are not the same.
    told = {name: by_colour[colour_of[name]]["customdata"][0] for name in ("grpo", "reinforce")}
    assert told == {name: [f"step {name}"] for name in told}


def _numbers(array: dict[str, str]) -> "np.ndarray[Any, Any]":
    """An array as Plotly sends it."""
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])


def test_a_setting_of_one_seed_has_a_mark_of_its_own() -> None:
    """It looked like the mean of several."""
    made = [setting(name, ends, task={"evaluation_prompts": 400}) for name, ends in (("a", [0.9, 0.8]), ("b", [0.5]))]
    figure = json.loads(dots(Comparison(made, ComparedMeasure("eval_accuracy"))).figure)
    marks = {trace["marker"]["symbol"]: _numbers(trace["y"]).tolist() for trace in figure["data"] if "marker" in trace
             if "bdata" in trace["y"]}  # fmt: skip
    assert (marks["circle"], marks["diamond-open"]) == ([0], [1])
    key = figure["layout"]["annotations"][0]["text"].replace("&nbsp;", "")
    assert key == "● mean ○ seed ◇ only seed ━ 95% vs best │ best ┊ 5 points behind"


@pytest.mark.parametrize(
    ("metric", "flip", "symbol", "word"),
    [
        ("eval_accuracy", False, "triangle-left", "◀ below axis"),
        ("s_k", True, "triangle-right", "▶ above axis"),
    ],
)
def test_the_axis_tells_apart_those_that_may_be_the_best(metric: str, flip: bool, symbol: str, word: str) -> None:
    """Of twenty runs from 8 to 92% the four that may be the best had a tenth of its width."""
    ends = {"a": [0.9, 0.905, 0.91], "b": [0.9, 0.89, 0.91], "c": [0.8, 0.801, 0.799], "d": [0.1, 0.11, 0.09]}
    made = [
        setting(name, [1 - end if flip else end for end in seeds], metric=metric, task={"evaluation_prompts": 400})
        for name, seeds in ends.items()
    ]
    compared = Comparison(made, ComparedMeasure(metric))
    assert [row.rank for row in compared.standing.rows][2:] == ["worse", "worse"]
    figure = json.loads(dots(compared).figure)
    marks = [(trace["marker"]["symbol"], _numbers(trace["y"]).tolist(), _numbers(trace["x"]).tolist())
             for trace in figure["data"] if trace.get("mode") == "markers"]  # fmt: skip
    ((places, at),) = [(y, x) for drawn, y, x in marks if drawn == symbol]
    low, high = figure["layout"]["xaxis"]["range"]
    assert places == [3] and all(low < x < high for x in at)  # what is on the very edge is not drawn
    assert high - low < 0.4 and not low < (0.9 if flip else 0.1) < high
    assert figure["layout"]["annotations"][0]["text"].endswith(word)
    assert "10.0%" in json.dumps(figure["layout"]["annotations"]) or flip  # its value stands in its row


@pytest.mark.parametrize(
    "ends",
    [
        {"best": [0.9], "tied": [0.897], "undecided": [0.87], "worse": [0.7]},
        {
            "best": [0.896, 0.9, 0.904], "tied": [0.899, 0.893, 0.897], "undecided": [0.86, 0.9, 0.89],
            "worse": [0.7, 0.705, 0.695],
        },
    ],
    ids=["one seed", "three seeds"],
)  # fmt: skip
def test_a_bar_is_the_interval_by_which_its_setting_is_judged(ends: dict[str, list[float]]) -> None:
    """It was that of the setting's own level: readers saw "worse" beside bars that overlapped the best one's."""
    made = [setting(name, levels, task={"evaluation_prompts": 400}) for name, levels in ends.items()]
    compared = Comparison(made, ComparedMeasure("eval_accuracy"))
    rows = {row.name: row for row in compared.standing.rows}
    assert all(row.rank == name for name, row in rows.items())
    figure = json.loads(dots(compared).figure)
    lines = {each["line"]["dash"]: each["x0"] for each in figure["layout"]["shapes"]}
    assert lines == pytest.approx({"solid": rows["best"].value, "dot": rows["best"].value - 0.05})
    bars = dict[int, list[float]]()
    for trace in figure["data"]:
        if trace["mode"] == "lines":
            for at, end in zip(_numbers(trace["y"]), _numbers(trace["x"]), strict=True):
                bars.setdefault(int(at), []).append(float(end)) if np.isfinite(at) else None
    assert 0 not in bars  # of the best itself there is no difference
    for at, (name, row) in enumerate(rows.items()):
        if not at:
            continue
        contrast = compared.standing.contrast(row.place, rows["best"].place)
        (low, high), best = compared.standing.deciding(contrast)[0].interval, rows["best"].value
        assert bars[at] == pytest.approx((best + low, min(best + high, 1.0)), abs=1e-6), name
        assert (bars[at][1] < best) == (row.rank == "worse"), name
        assert (bars[at][0] > best - 0.05) == (row.rank == "tied"), name


def test_the_axis_fits_the_lines_in_colour_and_says_how_far_grey_ones_leave_it() -> None:
    """Of twenty runs the best lay in a tenth of the height."""
    ends = [0.9, 0.89, 0.88, *np.linspace(0.1, 0.7, MOST_COLOURED)]
    made = [setting(f"algorithm {at}", [end, end], task={"evaluation_prompts": 9000}) for at, end in enumerate(ends)]
    compared = Comparison(made, ComparedMeasure("eval_accuracy"))
    (chart,) = panels(compared, Look())
    layout = json.loads(chart.figure)["layout"]
    low, high = layout["yaxis"]["range"]
    assert 0.87 < low < 0.88 and 0.9 < high < 0.91
    assert [each["text"] for each in layout["annotations"] if "line" in each["text"]] == [
        f"↓ {MOST_COLOURED} lines, to 10.0%"
    ]
    assert f"Grey: {MOST_COLOURED} more, which may leave the axis." in legend(compared, Look())


@pytest.mark.parametrize(("leading", "coloured"), [(4, 4), (1, 3)])
def test_of_more_settings_than_colours_those_that_may_be_the_best_are_in_colour(leading: int, coloured: int) -> None:
    """A few are at least; where there is a colour for each setting, each has one."""

    def shown(n: int) -> list[int]:
        ends = [0.9 if at < leading else 0.8 - 0.05 * at for at in range(n)]
        made = [setting(f"algorithm {at}", [end, end], task={"evaluation_prompts": 400}) for at, end in enumerate(ends)]
        return sorted(looks(Comparison(made, ComparedMeasure("eval_accuracy")), Look()))

    assert shown(MOST_COLOURED + 2) == list(range(coloured))
    assert len(shown(MOST_COLOURED)) == MOST_COLOURED
