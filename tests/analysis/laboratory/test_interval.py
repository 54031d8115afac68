"""Simulated logs, held against the project's own intervals and marks on drawn tokens."""

import numpy as np
import pytest

from ratioscope.analysis.laboratory import interval as lab
from ratioscope.analysis.laboratory.tools import uniforms
from ratioscope.analysis.summary import intervals
from ratioscope.analysis.summary.metrics import step_table
from ratioscope.metric import Moment
from ratioscope.metric import khat_limit as limit_of
from tests.oracles.populations import samples, truth_of
from tests.oracles.trust import judged

_ONE = np.zeros(1, dtype=np.intp)


def test_intervals_are_those_of_the_step_summary() -> None:
    rng = np.random.default_rng(0)
    for groups in (2, 3, 4, 8, 30):
        for _ in range(20):
            sizes = np.exp(rng.normal(0, rng.uniform(0, 2), groups)) * 100
            sums = sizes * rng.gamma(2, 0.1, groups)
            df = float(intervals.degrees_of_freedom(sizes, _ONE)[0])
            assert lab.degrees_of_freedom(sizes.tolist()) == pytest.approx(df)
            t = float(intervals.quantile_t(sizes, _ONE)[0])
            assert lab.quantile_t(df) == pytest.approx(t, rel=2e-3)
            error = intervals.cluster_variance(sums, sizes) ** 0.5
            low, high = intervals.cluster_interval(sums, sizes, lowest=0.0)
            ours = lab.interval(sums.tolist(), sizes.tolist(), t)
            assert ours == pytest.approx([sums.sum() / sizes.sum(), error, low, high])
            moved = [abs(end - ours[0]) for end in ours[2:]]
            assert moved == pytest.approx([t * error * (end / ours[0]) ** 0.5 for end in ours[2:]]), "as the formula is"
    assert lab.quantile_t(1e9) == pytest.approx(1.959964, abs=1e-6)
    assert lab.of_share(0.9, 250) == pytest.approx([float(end) for end in intervals.of_share(np.float64(0.9), 250)])
    assert [lab.khat_limit(n) for n in (400, 6400, 1e6)] == [limit_of(Moment.SECOND, n) for n in (400, 6400, 10**6)]


def test_truths_are_exact() -> None:
    truth = truth_of("heavy tail")
    assert lab.truth(0.4) == pytest.approx([truth["s_k"], truth["chi2_token"]])


@pytest.mark.parametrize(("k", "tokens"), [(0.1, 100), (0.25, 800), (0.4, 800), (0.46, 3000)])
def test_groups_are_as_drawn_tokens(k: float, tokens: int) -> None:
    """Their largest ratios one by one and the rest as a normal number, against all tokens one by one."""
    rng = np.random.default_rng(1)
    ratios = np.where(rng.random((3_000, tokens)) < 0.5, (1 - k) * rng.random((3_000, tokens)) ** -k, 1.0)
    drawn = uniforms(3_000 * 6, 5)
    groups = np.array([lab.group(k, lab.moments(k), tokens, 0.5, drawn, 6 * place) for place in range(3_000)])
    for ours, there in zip(
        groups.T, (abs(ratios - 1).sum(axis=1) / 2, ((ratios - 1) ** 2).sum(axis=1), ratios.max(axis=1)), strict=True
    ):
        levels = (0.05, 0.25, 0.5, 0.75, 0.95)
        assert np.quantile(ours, levels) == pytest.approx(np.quantile(there, levels), rel=0.08)


def test_logs_are_judged_as_steps_of_a_run() -> None:
    """Coverage and marks, against the step summary on tokens of the same population; groups there have 384 tokens."""
    cells = {cell.key: cell for cell in judged("heavy tail", "equal", 8, 400)}
    table = step_table(samples("heavy tail", "equal", 8, 400))
    alone = table.notes[table.notes["key"].eq("chi2_token") & table.notes["note_kind"].eq("unreliable")]
    found = lab.EXPERIMENT.at(k=0.4, G=8, T=384, differ=0.4)
    assert found["cover"] == pytest.approx(cells["chi2_token"].holds.mean(), abs=0.09)
    assert found["stale_cover"] == pytest.approx(cells["s_k"].holds.mean(), abs=0.05)
    assert found["marked"] == pytest.approx(len(alone) / 400, abs=0.06)
    assert found["printed"] == pytest.approx(cells["chi2_token"].printed.mean(), abs=0.03)
    assert cells["chi2_token"].marked.all()
    assert "so all are marked" in found["says"]


def test_the_right_answer_is_computed() -> None:
    found = lab.EXPERIMENT.at()
    assert f"{100 * found['cover']:.0f}%" in lab.EXPERIMENT.question.because
    assert abs(found["cover"] - 2 / 3) < 0.05


def test_sentences_have_conditions() -> None:
    light = lab.EXPERIMENT.at(k=0.02)
    assert light["marked"] == 0
    assert light["low"] <= 0.95 <= light["high"]
    assert "as promised. No log is marked" in light["says"]
    assert "fewer than promised" in lab.EXPERIMENT.at()["says"]
    assert lab.EXPERIMENT.at(unequal=1.2)["effective"] < 6
    assert "Of staleness 98.4% hold: more than promised." in lab.EXPERIMENT.at(T=50, G=4, unequal=1.5)["says"]
