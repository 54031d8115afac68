"""The Clipping page and its what-if instrument: rules of the URL, presets, samples, what is not known."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.frameworks.presets import PRESETS
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if import STOPPING, apply, described, load_tokens, parse
from ratioscope.dashboard.components import judged, rule_editor
from ratioscope.dashboard.formats import estimate, share
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.views.what_if_numbers import TABLE
from ratioscope.rules.parameters import PARAMETERS
from ratioscope.rules.ratios import LEVELS
from ratioscope.rules.weights import WEIGHTS
from tests.dashboard.conftest import SCHEDULE, make_steps
from tests.making.pages import charts, checked, elements, query, read, sentences, visit
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS

GRPO = {
    "name": "grpo",
    "parts": {"gate": "one_side", "weight": "ratio", "level": "token"},
    "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2},
}
OWN = "one_side(epsilon_low~0.2~epsilon_high~0.2)*ratio"
OTHER = "one_side(epsilon_low~0.2~epsilon_high~0.5)*ratio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that states the rule that it was trained with."""
    return write_run(tmp_path_factory.mktemp("rules") / "stated", make_steps(6), algorithm=GRPO, schedule=SCHEDULE)


@pytest.fixture
def stated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its id, served by the app."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder.parent])
    return folder.name


@pytest.fixture
def long(root: Path) -> str:
    """A run of its own for a test that calls so many tokens long: what it computes is remembered by run."""
    return write_run(root / "long", make_steps(6), algorithm=GRPO, schedule=SCHEDULE).name


def numbers(at: AppTest) -> dict[str, dict[str, str]]:
    """The table of numbers: row by measure."""
    frame = next(table.value for table in at.dataframe if "Measure" in table.value)
    return {str(row["Measure"]): row for row in frame.astype(str).to_dict("records")}  # type: ignore[misc]


def test_an_algorithm_without_a_gate_has_no_clip_fraction(root: Path) -> None:
    """A zero by construction is said once, without interval; where the log says otherwise, it is shown."""
    steps = [step.with_tokens(**{name: 0 * step.tokens[name] for name in ("clipped", "clip_side")})
             for step in make_steps(3)]  # fmt: skip
    without = {"name": "reinforce", "parts": {"gate": "none", "weight": "none", "level": "token"}}
    write_run(root / "gateless", steps, algorithm=without, schedule=SCHEDULE)
    write_run(root / "contradicted", make_steps(3), algorithm=without, schedule=SCHEDULE)
    for page in ("clipping", "overview"):
        said = visit(page, run="gateless")
        assert sentences(said).count("This algorithm clips no token.") == 1
        assert not any(metric.label.startswith("Clip fraction") for metric in said.metric)
    said = visit("clipping", run="contradicted")
    assert any(metric.label.startswith("Clip fraction") for metric in said.metric)


def test_a_loss_without_a_clip_is_first_seen_with_one_and_else_as_it_is(root: Path) -> None:
    """A weight that the loss does not have came with the clip: what was looked at was another loss."""
    without = {"name": "reinforce", "parts": {"gate": "none", "weight": "none", "level": "token"}, "parameters": {}}
    write_run(root / "plain", make_steps(3), algorithm=without, schedule=SCHEDULE)
    at = visit("clipping", run="plain")
    assert (at.selectbox(key="whatif-gate").value, at.selectbox(key="whatif-weight").value) == ("one_side", "none")


def test_clip_the_loss_leads_to_the_clip_that_was_tried_and_ended_best(root: Path) -> None:
    """Several runs differ in their clip alone; one that ends lower than this run is no advice."""
    tried = ("reinforce", "rec_oneside_nois_0.6_2", "rec_oneside_nois", "rec_ring_nois-lr0.0003")
    for name in (f"sync_interval20-{each}-seed0" for each in tried):
        (root / name).symlink_to(SAMPLE_RUNS / name, target_is_directory=True)
    read(visit("runs"))
    at = visit("overview", run="sync_interval20-reinforce-seed0")
    links = [element.proto for element in elements(at) if element.type == "page_link"]
    (query,) = [parse_qs(link.query_string) for link in links if link.page == "clipping"][:1]
    assert query["rule"] == ["one_side(epsilon_low~0.2~epsilon_high~0.2)*none"]
    at = visit("clipping", run=query["run"], rule=query["rule"])
    assert (at.selectbox(key="whatif-gate").value, at.selectbox(key="whatif-weight").value) == ("one_side", "none")
    (told,) = [
        caption.proto.help for caption in visit("overview", run=query["run"]).caption if "Tried" in caption.value
    ]
    plain = told.replace("\\", "")
    assert plain.startswith("Evaluation accuracy. One run, of the same seed, each.")
    assert "This run's is 67%; its last value is 64%." in plain
    assert plain.endswith(" 1 more run of this task differs in several settings, the seed included.")


def test_the_first_view_is_the_rule_that_was_applied(stated: str) -> None:
    """Nothing changes: its numbers stand there once, not beside themselves."""
    at = visit("clipping", run=stated)
    assert "The applied rule: nothing changes." in sentences(at)
    assert not any("applied" in str(tile.delta) for tile in at.metric)
    assert "What-if, in numbers" not in sentences(at) and "Variance and permitted drift" not in sentences(at)
    assert at.selectbox(key="whatif-gate").value == "one_side"
    assert at.select_slider(key="whatif-epsilon_high").value == 0.2
    assert all(row["applied"] == row["what-if"] for row in numbers(at).values())


def test_the_numbers_are_those_of_the_analysis(folder: Path, stated: str) -> None:
    at = visit("clipping", run=stated, rule=OTHER)
    table, tokens = numbers(at), load_tokens(open_run(folder))
    assert list(table) == [described(key)[0] for key in TABLE]
    for column, rule in (("applied", OWN), ("what-if", OTHER)):
        found = apply(parse(rule), tokens).overall
        for key in ("clip_fraction", "effective_token_fraction"):
            interval = found.intervals[key]
            expected = estimate("clip_fraction", found.values[key], interval.low, interval.high)
            assert table[described(key)[0]][column] == expected
    assert "Changed most: " in sentences(at) and "instead of" in sentences(at)
    tiles = [tile for tile in at.metric if tile.label == "Clipped"]
    assert tiles[0].value == share(apply(parse(OTHER), tokens).values["clip_fraction"])


def test_a_slider_puts_its_rule_into_the_url(stated: str) -> None:
    at = visit("clipping", run=stated)
    checked(at.select_slider(key="whatif-epsilon_high").set_value(0.5).run(), "clipping")
    assert query(at, "rule") == [OTHER]
    assert "Changed most: " in sentences(at)
    checked(at.selectbox(key="whatif-gate").set_value("stale").run(), "clipping")
    assert parse(query(at, "rule")[0]).gate == "stale"
    assert at.selectbox(key="whatif-gate_level").disabled
    checked(at.selectbox(key="whatif-weight").set_value("truncated").run(), "clipping")
    assert at.select_slider(key="whatif-cap").value == 2


def test_the_rule_of_the_url_is_shown_by_every_widget(stated: str) -> None:
    at = visit(
        "clipping",
        run=stated,
        rule="masked.sequence(cap~3.21)*ratio.sequence",
        sweep="C",
        watch="Effective sample size",
    )
    assert at.selectbox(key="whatif-gate_level").value == "sequence" == at.selectbox(key="whatif-weight_level").value
    assert at.select_slider(key="whatif-cap").value == 3.21
    assert (at.selectbox(key="sweep").value, at.selectbox(key="watch").value) == ("cap", "ess")


@pytest.mark.parametrize(
    "text", ["one_side(epsilon_low~nan~epsilon_high~1)*ratio", "![x](http://127.0.0.2/x.png)" + "*" * 500]
)
def test_a_broken_rule_is_said_and_the_own_one_is_shown(stated: str, text: str) -> None:
    at = visit("clipping", run=stated, rule=text)
    assert "The rule in this link cannot be used" in sentences(at)
    assert at.selectbox(key="whatif-gate").value == "one_side"
    assert "The applied rule: nothing changes." in sentences(at)


@pytest.mark.parametrize(
    "rule",
    [
        "window(max_lag~1.0)*none",
        "masked(cap~inf)*ratio",
        "soft(tau_positive~1.0~tau_negative~1e300)*none",
        "ring(epsilon_low~0.0~epsilon_high~0.0~outer_low~0.0~outer_high~0.0)*geometric_of_clipped(epsilon_log~0.4)",
    ],
)
def test_every_kind_of_rule_is_drawn(stated: str, rule: str) -> None:
    at = visit("clipping", run=stated, rule=rule)
    assert len(charts(at)) >= 8 and "Changed most: " in sentences(at)


def test_margins_of_a_ring_cannot_cross(stated: str) -> None:
    rule = "ring(epsilon_low~0.2~epsilon_high~0.2~outer_low~0.6~outer_high~2.0)*ratio"
    at = visit("clipping", run=stated, rule=rule)
    checked(at.select_slider(key="whatif-outer_high").set_value(0.1).run(), "clipping")
    assert "outer_high=0.1 is inside of epsilon_high=0.2" in sentences(at)
    assert query(at, "rule") == [rule] and at.select_slider(key="whatif-outer_high").value == 2


def test_a_preset_sets_the_rule_and_says_its_source(stated: str) -> None:
    at = visit("clipping", run=stated)
    checked(at.selectbox(key="whatif-framework").set_value("trl").run(), "clipping")
    preset = next(preset for preset in PRESETS if preset.framework is FRAMEWORKS["trl"] and preset.default)
    checked(at.selectbox(key="whatif-preset").set_value(preset.setting).run(), "clipping")
    assert query(at, "rule") == [str(preset.rule)]
    assert FRAMEWORKS["trl"].source in sentences(at)
    assert "This is the framework's default." in sentences(at)
    checked(at.select_slider(key="whatif-cap").set_value(5).run(), "clipping")
    assert at.selectbox(key="whatif-preset").value is None


def test_many_tokens_are_previewed_from_a_sample_until_all_are_asked_for(
    root: Path, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "MOST_TOKENS", 100)
    monkeypatch.setattr(judged, "PREVIEW_TOKENS", 60)
    monkeypatch.setattr("ratioscope.dashboard.views.what_if.MOST_TOKENS", 100)
    at = visit("clipping", run=long, rule=OTHER)
    assert "preview from a sample of" in sentences(at)
    checked(at.button(key="whatif-exact-run").click().run(), "clipping")
    at = checked(at.run(), "clipping")
    assert "exact: all" in sentences(at)
    found = apply(parse(OTHER), load_tokens(open_run(root / long))).overall
    interval = found.intervals["clip_fraction"]
    expected = estimate("clip_fraction", found.values["clip_fraction"], interval.low, interval.high)
    assert numbers(at)["Clipped"]["what-if"] == expected
    checked(at.select_slider(key="whatif-epsilon_high").set_value(1.0).run(), "clipping")
    assert "preview from a sample of" in sentences(at)


def test_a_sweep_is_previewed_and_exact_on_demand(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "SWEEP_TOKENS", 50)
    monkeypatch.setattr(judged, "WHOLE_SWEEP", 50)
    at = visit("clipping", run=long, rule=OTHER)
    previewed = _sweep_line(at)
    checked(at.button(key="whatif-sweep-run").click().run(), "clipping")
    assert _sweep_line(at) != previewed
    exact = _sweep_line(checked(at.run(), "clipping"))
    assert exact == _sweep_line(at) and "preview" not in sentences(at)


def _sweep_line(at: AppTest) -> object:
    drawn = [chart for chart in charts(at) if chart["layout"]["xaxis"]["title"].get("text") == "ε_low"]
    assert len(drawn) == 1
    return next(trace["y"] for trace in drawn[0]["data"] if trace.get("mode") == "lines+markers")


def test_a_run_that_does_not_state_its_rule_is_compared_with_none(look: Callable[..., AppTest]) -> None:
    at = look("clipping", "finished")
    assert "The rule of this run is not known" in sentences(at)
    assert "does not state its algorithm's parts and parameters" in sentences(at)
    assert "no rule" in numbers(at)["Clipped"]


def test_without_clip_columns_what_if_is_offered(look: Callable[..., AppTest]) -> None:
    at = look("clipping", "lean")
    assert "what the clip did, because neither clipped nor clip_side is logged" in sentences(at)
    assert "What a rule would clip follows from the log-probs: see what-if below." in sentences(at)
    assert numbers(at)["Drift, kept"]["what-if"] == "–"
    assert "logp_new is not logged" in numbers(at)["Drift, kept"]["doubt"]
    assert "The gradient of single tokens is not logged" in sentences(at)


def test_after_several_passes_raw_stands_beside_applied(root: Path) -> None:
    steps = [
        step.with_tokens(logp_gate=np.minimum(step.tokens["logp_current"] + 0.05, 0).astype(np.float32))
        for step in make_steps(3)
    ]
    algorithm = GRPO | {"parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2, "epochs": 4}}
    write_run(root / "passes", steps, algorithm=algorithm)
    at = visit("clipping", run="passes")
    names = [trace.get("name") for chart in charts(at) for trace in chart["data"]]
    assert "gate, first pass" in names and "logged" in names
    assert "The log's mask and the stated rule do not match" in sentences(at)


def test_a_range_without_tokens_is_said(stated: str) -> None:
    at = visit("clipping", run=stated, **{"from": "500", "to": "900"})
    assert "What-if has no tokens in these steps." in sentences(at)
    assert "no usable token in the steps 500 to 900" in sentences(at)


def test_without_an_advantage_there_is_nothing_to_change(root: Path) -> None:
    silent = [step.with_tokens(advantage=np.zeros(len(step.tokens["seq_id"]), np.float32)) for step in make_steps(2)]
    write_run(root / "silent", silent, algorithm=GRPO)
    at = visit("clipping", run="silent", rule=OTHER)
    assert "there is no gradient that a rule could change" in sentences(at)
    assert "No token in these steps has a nonzero advantage." in sentences(at)


def test_every_part_and_parameter_has_words() -> None:
    for rows in (STOPPING, WEIGHTS, LEVELS):
        words = rule_editor.words_of(rows)
        assert words.keys() == rows.keys() and all(words.values()) and len({*words.values()}) == len(words)
    assert all(row.symbol and row.label and row.meaning for row in PARAMETERS.values())
