"""The distances of two policies that differ in one token, against their definitions on a vocabulary."""

import numpy as np
import pytest

from ratioscope.analysis.laboratory.rare_token import EXPERIMENT, compute, distances


def test_the_numbers_of_the_source() -> None:
    found = compute(1e-4, 200, 0.2, 1000)
    assert found["tv"] == pytest.approx(0.0199)
    assert round(found["chi2"], 2) == 3.96
    assert round(found["kl"], 3) == 0.086
    assert round(found["kl_back"], 3) == 0.020
    assert EXPERIMENT.question.answers[EXPERIMENT.question.right] == f"{100 * found['ess']:.0f}%"


def test_the_distances_are_those_of_a_vocabulary() -> None:
    """The common tokens may be many, as long as they keep their proportions."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        e, common = 10 ** rng.uniform(-6, -1), rng.dirichlet(np.ones(20))
        ratio = rng.uniform(1, min(1e4, 0.99 / e))
        data = np.array([e, *(1 - e) * common])
        new = np.array([e * ratio, *(1 - e * ratio) * common])
        assert distances(e, ratio) == pytest.approx([
            np.abs(new - data).sum() / 2, (new**2 / data).sum() - 1,
            (new * np.log(new / data)).sum(), (data * np.log(data / new)).sum(),
        ], rel=1e-6, abs=1e-12)  # fmt: skip


def test_what_a_clip_touches() -> None:
    assert compute(1e-4, 200, 0.2, 1000)["clipped"] == pytest.approx(1e-4)
    assert compute(1e-4, 1.1, 0.2, 1000)["clipped"] == 0
    assert compute(0.1, 5, 0.2, 1000)["clipped"] == pytest.approx(1), "the common tokens have a ratio of .56"
    assert "A clip at 1 ± 0.2 touches 100% of the tokens" in compute(0.1, 5, 0.2, 1000)["says"], "below as above"
