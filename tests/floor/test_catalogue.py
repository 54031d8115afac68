"""The catalogue: every number of the summary has an entry, every entry is complete, and trust has its limits."""

from dataclasses import replace
from math import log10
from pathlib import Path

import numpy as np
import pytest

from ratioscope import catalogue
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE, ENTRIES, THRESHOLDS, explain
from ratioscope.catalogue.typeset import formula_text
from ratioscope.dashboard.theme import PALETTE
from ratioscope.metric import KHAT_LIMIT, Grain, Metric, Moment, khat_limit
from ratioscope.notes import Kind
from ratioscope.run_format.schema import SEQUENCES, TOKENS
from ratioscope.sources import titled
from tests.making.loops import in_one_loop
from tests.making.runs import random_step, write_run

TABLE = {Grain.TOKEN: TOKENS, Grain.RESPONSE: SEQUENCES}
every_metric = in_one_loop("metric", ENTRIES)


@every_metric
def test_every_entry_is_complete(metric: Metric) -> None:
    for text in (metric.title, metric.symbol, metric.formula, metric.definition, metric.source, metric.reading):
        assert text.strip() == text and text
    assert metric.definition.endswith(".") and metric.reading.endswith(".")
    assert not metric.remedy or metric.remedy.endswith(".")
    assert metric.better in ("", "lower", "higher", "0", "1")
    assert metric.label and metric.colour in PALETTE
    assert not metric.share or metric.unit == ""
    assert not metric.sparse or metric.grain is Grain.STEP


@every_metric
def test_symbols_and_formulas_are_balanced(metric: Metric) -> None:
    for text in (metric.symbol, metric.formula):
        assert text.count("{") == text.count("}") and "$" not in text
        assert text.count(r"\left") == text.count(r"\right")


@every_metric
def test_what_is_possible_is_an_interval_and_a_second_moment_has_a_judge(metric: Metric) -> None:
    lowest, highest = metric.possible
    assert lowest < highest and metric.reliance in CATALOGUE
    assert not metric.one_sided or metric.moment is Moment.SECOND
    assert not metric.spread or (metric.spread in CATALOGUE and not metric.one_sided)
    if metric.moment is Moment.SECOND and metric.key in CATALOGUE:
        assert metric.better in ("lower", "higher") or metric.key == "chi2_token_raw"


@every_metric
def test_a_mean_is_of_one_thing_over_something_that_is_counted(metric: Metric) -> None:
    if metric.mean is not None:
        assert metric.grain is not Grain.STEP and (metric.share or not metric.mean.term.is_condition)
    for part in metric.over.chain:
        assert part.count.startswith("n_") and part.missing.kind in (Kind.NOT_LOGGED, Kind.UNDEFINED)
        assert (part.missing.kind is Kind.NOT_LOGGED) == bool(part.columns)
        assert part.where or not part.columns
        assert all(TABLE[part.grain].column(name) for name in part.columns)


def test_a_count_has_one_meaning() -> None:
    parts = {part for metric in ENTRIES.values() for part in metric.over.chain}
    meanings = {replace(part, within=None) for part in parts}
    assert len(meanings) == len({part.count for part in parts}) > 10


def test_keys_and_titles_are_unique() -> None:
    parts = (catalogue.total_variation, catalogue.divergences, catalogue.weights, catalogue.learning, catalogue.theory)
    assert len(ENTRIES) == sum(len(part.ENTRIES) for part in parts)
    assert all(key == metric.key for key, metric in ENTRIES.items())
    assert len({metric.title for metric in ENTRIES.values()}) == len(ENTRIES)


def test_the_summary_and_the_catalogue_have_the_same_keys(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [random_step(np.random.default_rng(0))]))
    summary = summarise(run)
    for frame in (summary.values, summary.low, summary.high):
        assert set(frame.columns) - set(COUNTS) == set(CATALOGUE)
        assert set(COUNTS) <= set(frame.columns) and frame.columns.is_unique
    assert not set(COUNTS) & set(CATALOGUE)


@pytest.mark.parametrize(
    "key", ["u_k", "u_k_bounded", "s_k", "s_k_version_bounded", "tv_new_behavior", "ratio_mean", "kl_k3"]
)
def test_means_of_the_ratio_need_its_first_moment(key: str) -> None:
    assert CATALOGUE[key].moment is Moment.FIRST


@pytest.mark.parametrize(
    "key", ["chi2_token", "chi2_token_raw", "chi2_seq", "log1p_chi2_seq", "ess_token", "ess_seq", "kl_reverse"]
)
def test_means_of_its_square_or_nearly_so_need_the_second(key: str) -> None:
    assert CATALOGUE[key].moment is Moment.SECOND
    assert CATALOGUE[key].reliance == ("reliance_seq" if "seq" in key else "reliance_token")


@pytest.mark.parametrize(
    "key", ["s_k_bounded", "s_k_engine_bounded", "tv_new_behavior_bounded", "clip_fraction", "gate_mean", "entropy"]
)
def test_bounded_metrics_are_never_judged(key: str) -> None:
    assert CATALOGUE[key].moment is Moment.BOUNDED
    assert khat_limit(CATALOGUE[key].moment, 10) is None


def test_limits_are_those_of_the_moment_and_of_the_sample_size() -> None:
    assert KHAT_LIMIT == {Moment.FIRST: 0.7, Moment.SECOND: 0.35}
    for n in (11, 100, 1_000, 2_000):
        by_size = min(1 - 1 / log10(n), 0.7)
        assert khat_limit(Moment.FIRST, n) == pytest.approx(by_size)
        assert khat_limit(Moment.SECOND, n) == pytest.approx(by_size / 2)
    for n in (2_200, 10**6, 10**9):
        assert khat_limit(Moment.FIRST, n) == 0.7 and khat_limit(Moment.SECOND, n) == 0.35


@pytest.mark.parametrize("n", range(12))
@pytest.mark.parametrize("moment", [Moment.FIRST, Moment.SECOND])
def test_few_samples_are_never_an_error(moment: Moment, n: int) -> None:
    limit = khat_limit(moment, n)
    assert limit is not None and 0 <= limit < 0.1


@every_metric
def test_every_metric_can_be_explained(metric: Metric) -> None:
    text = explain(metric.key)
    for part in (
        metric.title,
        metric.key,
        metric.definition,
        formula_text(metric.formula),
        titled(metric.source),
        metric.reading,
    ):
        assert part in text
    assert ("unreliable when" in text) == (metric.moment is Moment.SECOND)
    assert metric.remedy in text and metric.unit in text
    assert not set(text) & set("\\{}"), "a terminal draws no LaTeX"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("u_k", "½ mean |ρₖ₊₁ − ρₖ|"),
        ("s_k_version_bounded", "mean (e^(b'−b) − ρₖ)⁺"),
        ("ess_seq", "(ΣW)²/(nΣW²)"),
        ("effective_groups", "(Σ_g N_g)² / Σ_g N_g²"),
        ("khat_token", "k̂ of a generalised Pareto fit to the largest weights"),
        ("kl_to_initial", "mean (e^ℓ − 1 − ℓ), ℓ = log π₀/πₖ"),
        ("update_penalty", "(2γ‖A‖_∞)/(1 − γ)² Uₖᵞ"),
    ],
)
def test_a_formula_means_the_same_as_text(key: str, text: str) -> None:
    assert formula_text(ENTRIES[key].formula) == text


@pytest.mark.parametrize("latex", [r"\unheard x", "x}"])
def test_a_formula_that_cannot_be_read_is_an_error(latex: str) -> None:
    with pytest.raises(ValueError, match=r"formula|no text"):
        formula_text(latex)


def test_thresholds_say_where_they_come_from() -> None:
    assert THRESHOLDS["epsilon"].value == 0.2 and THRESHOLDS["epsilon_stale"].value == 0.4
    for name, threshold in THRESHOLDS.items():
        assert name == threshold.name and threshold.source and threshold.meaning
        assert threshold.lowest <= threshold.value <= threshold.highest
