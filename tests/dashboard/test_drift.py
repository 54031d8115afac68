"""The Drift page: the path edge by edge, triangle, exact against sampled, certificate and feasibility."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.drift import promises
from ratioscope.analysis.drift import sentences as drift_answers
from ratioscope.analysis.drift.bounds import factors
from ratioscope.analysis.drift.certificate import ABOVE, certificate
from ratioscope.analysis.drift.feasibility import feasibility, vocabulary_is_large
from ratioscope.analysis.drift.pairs import PAIRS, measure_pairs
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures import drift as figures
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import drift
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.theme import DARK, LIGHT
from ratioscope.notes import cells
from tests.dashboard.conftest import make_steps
from tests.making.caveats import UNRELIABLE
from tests.making.pages import charts, sentences, visit
from tests.making.runs import random_step, with_held_out, write_run

Look = Callable[..., AppTest]

_NO_BINS = pd.DataFrame({"step": [], "bin": [], "tokens": []})


def _summary(n: int) -> StepSummary:
    keys = [*COUNTS, *CATALOGUE]
    values = pd.DataFrame(
        np.random.default_rng(0).uniform(0.01, 1, (n, len(keys))), index=pd.RangeIndex(n, name="step"), columns=keys
    )
    values = values.assign(n_recomputed=0)  # ratios are to the sampler's own log-probs
    return StepSummary(values, values - 0.01, values + 0.01, {step: {} for step in range(n)}, _NO_BINS)


@pytest.fixture
def finished(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """finished(gamma="0") -> the page on the finished run with these parameters in its address."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])
    return partial(visit, "drift", run="finished")


def _labels(figure: Any) -> str:
    return "\n".join(str(note.text) for note in figure.layout.annotations)


def test_the_path_has_a_row_for_every_pair_with_its_interval(look: Look, gallery: Path) -> None:
    at = look("drift", "finished")
    frame = measure_pairs(open_run(gallery / "finished"), 0, 11)
    table, besides = (each.value for each in at.dataframe if "Part" in each.value)
    assert list(table["Part"]) == list(besides["Part"]) == [figures.PARTS[pair] for pair in PAIRS]
    row = frame[(frame["pair"] == "new/current") & (frame["metric"] == "tv_bounded")].iloc[0]
    shown = table.set_index("Part")["TV"]["update"]
    assert shown.startswith(f"{row['value']:.3g} ({row['low']:.3g} to ")
    assert drift_answers.path_beside(facts_of(summarise(open_run(gallery / "finished")))) in sentences(at)


def test_the_recomputed_policy_is_a_node_where_it_is_logged(gallery: Path, tmp_path: Path) -> None:
    run = open_run(gallery / "finished")
    diagram = figures.path_diagram(measure_pairs(run), LIGHT)
    assert list(diagram.data[-1].text) == ["behavior", "recomputed", "current", "new"]
    steps = [step.with_tokens(logp_behavior_train=None) for step in make_steps(3)]
    lean = open_run(write_run(tmp_path / "unrecomputed", steps))
    without = measure_pairs(lean)
    assert list(figures.path_diagram(without, DARK).data[-1].text) == ["behavior", "current", "new"]
    assert "engine and age cannot be separated" in drift_answers.path_sentence(facts_of(summarise(lean)))


def test_edges_say_what_is_not_logged_or_not_reliable(gallery: Path) -> None:
    run = open_run(gallery / "lean")
    frame = measure_pairs(run)
    assert "not logged" in _labels(figures.path_diagram(frame, LIGHT))
    assert "the update is unknown" in drift_answers.path_sentence(facts_of(summarise(run)))
    frame.loc[frame["pair"] == "current/behavior", ["low", "high"]] = np.nan
    frame.loc[frame["pair"] == "current/behavior", ["note_kind", "note"]] = list(cells(UNRELIABLE).values())
    figure = figures.path_diagram(frame, LIGHT)
    assert "no interval" in _labels(figure)
    assert "dot" in {trace.line.dash for trace in figure.data if trace.mode == "lines"}


def test_the_path_is_in_the_bounded_form() -> None:
    rows = [
        {"pair": pair, "metric": metric, "value": value, "low": value, "high": value, **cells(None)}
        for pair in PAIRS
        for metric, value in (("tv", 0.1), ("tv_bounded", 0.25), ("kl_k3", 0.01), ("chi2", 0.1), ("ratio_mean", 0.9))
    ]
    frame = pd.DataFrame(rows)
    labels = _labels(figures.path_diagram(frame, LIGHT))
    assert "<b>0.25</b>" in labels and "<b>0.1</b>" not in labels
    found = drift_answers.of_pairs(replace(facts_of(_summary(5)), fresh=False), frame)
    assert {part.value for part in found.path.parts} == {0.25} and len(found.path.parts) == 3
    assert (found.path.staleness, found.path.ppo) == (0.25, 0.25)


def test_level_and_discount_of_the_url_are_used(gallery: Path, finished: Look) -> None:
    run = open_run(gallery / "finished")
    at = finished(pathlevel="Whole responses", gamma="0")
    said = sentences(at)
    facts = drift_answers.of_pairs(facts_of(summarise(run)), measure_pairs(run, 0, 11, level="sequence"))
    assert drift_answers.path_section(facts, "whole responses") in said
    assert promises.certificate_sentence(certificate(run, 0, 11, gamma=0.0)) in said
    assert any("· update drift costs" in fold.label for fold in at.expander)


def test_what_the_bound_costs_is_of_the_drift_of_the_chosen_steps(gallery: Path) -> None:
    """It was a multiple that follows from the length of the responses alone, the same on every page."""
    opened = open_folder(gallery / "finished")
    whole, part = (drift.costs(Subject(opened, steps)) for steps in ((None, None), (2, 4)))
    assert whole.startswith("update drift costs ") and whole != part
    length, update = (opened.summary.values[key] for key in ("response_length", "u_k"))
    multiple = factors(1, 1 - 1 / float(length.mean())).update * float(update.median())
    assert (
        f"costs {number(multiple, digits=2)} × the largest advantage (median {number(float(update.median()))})" in whole
    )


def test_steps_without_data_and_nonsense_in_the_url_are_survived(finished: Look) -> None:
    at = finished(pathlevel="'; drop table token", gamma="7", **{"from": "500", "to": "900"})
    assert at.selectbox(key="pathlevel").value == "Tokens"
    assert at.select_slider(key="gamma").value == "by length"
    for sentence in (
        "No step of this run lies in the chosen range.",
        "No step of the path can be measured here: no step lies in this range.",
        "no response in these steps",
    ):
        assert sentence in sentences(at)


def test_the_triangle_holds_and_is_described(gallery: Path) -> None:
    summary = summarise(open_run(gallery / "finished"))
    values = summary.values
    s, u, ppo = "s_k_bounded", "u_k_bounded", "tv_new_behavior_bounded"
    assert (values[ppo] <= values[u] + values[s] + 1e-12).all()
    means = {key: np.average(values[key], weights=values["n_tokens"]) for key in (ppo, u, s)}
    share = means[ppo] / (means[u] + means[s])
    assert f"{share:.0%} of U + S" in drift_answers.triangle_sentence(facts_of(summary))
    staleness, both, clipped = figures.triangle(summary, LIGHT, (None, None)).data[:3]
    np.testing.assert_allclose(both.y, values[s] + values[u], rtol=1e-6)
    np.testing.assert_allclose(staleness.y, values[s], rtol=1e-6)
    assert (np.asarray(clipped.y) <= np.asarray(both.y) + 1e-6).all()


def test_without_the_new_policy_there_is_no_triangle(look: Look) -> None:
    said = sentences(look("drift", "lean"))
    assert "how far the new policy is from the data, because logp_new is not logged" in said
    assert "The triangle" not in said


def test_exact_distances_are_drawn_beside_the_sampled_ones(look: Look, root: Path) -> None:
    names = [trace.get("name") for chart in charts(look("drift", "finished")) for trace in chart["data"]]
    assert names.count("sampled") == names.count("exact") == 2
    exact = dict.fromkeys(("tv_current_behavior", "tv_new_current", "chi2_current_behavior"))
    write_run(root / "sampled-only", [step.with_tokens(**exact) for step in make_steps(3)])
    sampled = charts(visit("drift", run="sampled-only"))
    assert "exact" not in {trace.get("name") for chart in sampled for trace in chart["data"]}


def test_the_sampled_distances_are_judged_in_standard_errors() -> None:
    summary = _summary(10)
    summary.values["s_k_exact_z"] = [-5.0] * 8 + [0.0] * 2
    summary.values["u_k_exact_z"] = 1.0
    summary.values["s_k_bounded"], summary.values["s_k_exact"] = 0.1, 0.2
    said = drift_answers.exact_sentence(summary)
    assert "more than 3 standard errors off in 8 of 10 steps, below" in said
    assert "within 3 standard errors in all 10 steps" in said
    assert "The samples show too little staleness (0.1 against 0.2)" in said
    summary.values[["s_k_exact_z", "u_k_exact_z"]] = np.nan
    assert drift_answers.exact_sentence(summary) == ""


def test_no_trace_has_more_points_than_a_screen_has_pixels(gallery: Path) -> None:
    summary, steps, mode = _summary(2_500), (None, None), DARK
    terms = certificate(open_run(gallery / "finished")).terms
    long = pd.concat([terms] * 210, ignore_index=True)
    shares = pd.DataFrame(dict.fromkeys(("infeasible_share", "infeasible_low", "infeasible_high"), 0.1), long.index)
    for figure in (
        figures.triangle(summary, mode, steps),
        figures.sampled_and_exact(summary, "s_k_bounded", "s_k_exact", mode, steps),
        figures.standard_errors(summary, mode, steps),
        figures.certificate_terms(long, mode, steps),
        figures.infeasible_share(shares, mode, steps),
    ):
        assert figure.data
        assert all(len(trace.x) <= base.MOST_POINTS for trace in figure.data)


def test_the_certificate_says_what_it_promises(look: Look, gallery: Path) -> None:
    found = certificate(open_run(gallery / "finished"), 0, 11)
    assert promises.certificate_sentence(found) in sentences(look("drift", "finished"))
    assert promises.certificate_sentence(found).startswith("In-sample, so no promise")
    found.terms["mark"] = ABOVE
    assert "above 0 in 12 of 12 steps." in promises.certificate_sentence(found)


def test_only_held_out_prompts_certify_anything(look: Look, root: Path) -> None:
    rng = np.random.default_rng(0)
    steps = [with_held_out(random_step(rng, n, groups=8), random_step(rng, n, groups=8)) for n in range(3)]
    run = open_run(write_run(root / "held-out", steps))
    found = certificate(run, 0, 2, held_out=True, gamma=certificate(run, 0, 2).gamma)
    said = sentences(visit("drift", run="held-out"))
    assert promises.held_out_sentence(found) in said and "Nothing can be certified here" not in said
    assert "Nothing can be certified here" in sentences(look("drift", "finished"))


def test_the_terms_are_drawn_with_the_signs_of_the_bound(gallery: Path) -> None:
    terms = certificate(open_run(gallery / "finished")).terms
    figure = figures.certificate_terms(terms, LIGHT, (None, None))
    drawn = {trace.name: np.asarray(trace.customdata, dtype=float) for trace in figure.data if trace.name}
    total = drawn["L: surrogate"] + drawn["−C₁U: update"] + drawn["−C₂S: staleness"]
    np.testing.assert_allclose(total, drawn["bound: their sum"], rtol=1e-5)
    assert figure.layout.yaxis.ticktext[list(figure.layout.yaxis.tickvals).index(0)] == "0"


def test_a_certificate_that_lacks_a_column_says_so(look: Look) -> None:
    said = sentences(look("drift", "lean"))
    assert "What theory promises of the updates is unknown: logp_new is not logged." in said


def test_feasibility_says_what_it_bounds(gallery: Path, look: Look) -> None:
    found = feasibility(open_run(gallery / "finished"), 0, 11)
    at = look("drift", "finished")
    said = sentences(at)
    assert drift_answers.feasibility_sentence(found, 0.2) in said
    assert "A lower bound, which underestimates" in said
    assert "**Which clip:**" in said
    assert any("be met?** · not in at least" in fold.label for fold in at.expander)


def test_one_version_can_be_near_itself(root: Path) -> None:
    steps = [random_step(np.random.default_rng(0), number) for number in range(3)]
    one = [step.with_tokens(behavior_version=np.full(len(step.tokens["seq_id"]), step.number)) for step in steps]
    found = feasibility(open_run(write_run(root / "one-version", one)))
    assert not any("be met?" in fold.label for fold in visit("drift", run="one-version").expander)
    assert "All data of 3 steps come from one behavior version each" in drift_answers.feasibility_sentence(found, 0.2)
    assert drift_answers.feasibility_caveat(found) == ""


def test_feasibility_that_cannot_be_known_is_said(tmp_path: Path) -> None:
    exact = dict.fromkeys(("tv_current_behavior", "chi2_current_behavior", "tv_version_spread"))
    steps = [step.with_tokens(**exact) for step in make_steps(3)[1:]]
    found = feasibility(open_run(write_run(tmp_path / "unknown", steps)))
    assert "Cannot tell whether a clip around 1 can be met" in drift_answers.feasibility_sentence(found, 0.2)


@pytest.mark.parametrize(("largest", "large"), [(31, False), (49_151, True)])
def test_a_language_model_is_known_by_its_token_ids(tmp_path: Path, largest: int, large: bool) -> None:
    step = make_steps(1)[0]
    tokens = np.full(len(step.tokens["seq_id"]), largest, dtype=np.int32)
    run = open_run(write_run(tmp_path / "run", [step.with_tokens(token_id=tokens)]))
    assert vocabulary_is_large(run, 0, 0) is large
