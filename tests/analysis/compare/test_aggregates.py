"""Many seeds as one number: scipy is the oracle for mean, interquartile mean and t; simulation for the coverage."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratioscope.analysis.compare.aggregates import DRAWS, STATISTICS, aggregate, band_words, resamples, t_interval
from ratioscope.analysis.compare.aggregates import welch_interval as welch

Array = np.ndarray


def frame(seeds: int, rows: int = 30, seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, seeds)))


@pytest.mark.parametrize("seeds", range(1, 13))
def test_the_interquartile_mean_is_scipys_trimmed_mean(seeds: int) -> None:
    values = frame(seeds)
    found = aggregate(values, "iqm")["value"].to_numpy()
    assert found == pytest.approx(stats.trim_mean(values.to_numpy(), 0.25, axis=1))
    if seeds < 4:
        assert found == pytest.approx(values.mean(axis=1).to_numpy())


def test_by_hand() -> None:
    values = pd.DataFrame([[0.0, 1.0, 3.0, 100.0], [1.0, 1.0, np.nan, np.nan]])
    middle, mean = aggregate(values, "iqm"), aggregate(values, "mean")
    assert middle["value"].tolist() == [2.0, 1.0]
    assert mean["value"].tolist() == [26.0, 1.0]
    assert mean["seeds"].tolist() == [4, 2]
    assert tuple(mean.loc[1, ["low", "high"]]) == (1.0, 1.0)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("seeds", [4, 5, 8])
def test_the_band_is_that_of_resampled_seeds(name: str, seeds: int) -> None:
    """The same by resampling seeds one by one, with other draws."""
    values = frame(seeds, rows=3)
    drawn = values.to_numpy()[:, np.random.default_rng(1).integers(0, seeds, (20_000, seeds))]
    statistic = drawn.mean(axis=2) if name == "mean" else stats.trim_mean(drawn, 0.25, axis=2)
    found = aggregate(values, name)[["low", "high"]].to_numpy()[:, :, None]  # type: ignore[arg-type]
    # Of few seeds the resamples are few and tied: what counts is how many lie beyond the band.
    rounding = 1e-9
    assert ((statistic < found[:, 0] - rounding).mean(axis=1) < 0.04).all()
    assert ((statistic < found[:, 0] + rounding).mean(axis=1) > 0.012).all()
    assert ((statistic > found[:, 1] + rounding).mean(axis=1) < 0.04).all()
    assert ((statistic > found[:, 1] - rounding).mean(axis=1) > 0.012).all()


def test_resamples_draw_every_stratum_as_often_as_it_has_seeds() -> None:
    counts = resamples((3, 5))
    assert counts.shape == (DRAWS, 8)
    assert (counts[:, :3].sum(axis=1) == 3).all()
    assert (counts[:, 3:].sum(axis=1) == 5).all()


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    """Percentile intervals of few seeds are too narrow; 2,000 data sets each."""
    rng = np.random.default_rng(0)
    for seeds, at_least, at_most in ((5, 0.78, 0.88), (20, 0.90, 0.96)):
        found = aggregate(pd.DataFrame(rng.normal(size=(2_000, seeds))))
        covered = ((found["low"] <= 0) & (found["high"] >= 0)).mean()
        assert at_least < covered < at_most


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_few_seeds_have_their_range_and_one_seed_has_no_band(seeds: int) -> None:
    values = frame(seeds)
    found = aggregate(values)
    if seeds == 1:
        assert found[["low", "high"]].isna().all(axis=None)
        assert "no band" in band_words(1)
    else:
        assert found["low"].to_numpy() == pytest.approx(values.min(axis=1).to_numpy())
        assert found["high"].to_numpy() == pytest.approx(values.max(axis=1).to_numpy())
        assert band_words(seeds) == f"from the lowest to the highest of {seeds} seeds"


@pytest.mark.parametrize("name", STATISTICS)
def test_rows_use_the_seeds_that_they_have(name: str) -> None:
    values = frame(6, rows=120)
    holes = values.mask(np.random.default_rng(2).uniform(size=values.shape) < 0.4)
    holes.iloc[7] = np.nan
    found = aggregate(holes, name)  # type: ignore[arg-type]
    for row in range(len(holes)):
        present = holes.iloc[[row]].dropna(axis=1)
        assert found.loc[row, "seeds"] == present.shape[1]
        if present.shape[1]:
            alone = aggregate(present, name).iloc[0]  # type: ignore[arg-type]
            assert found.loc[row].to_numpy() == pytest.approx(alone.to_numpy(), nan_ok=True)
    assert found.loc[7, ["value", "low", "high"]].isna().all()


def test_results_repeat_and_do_not_depend_on_the_order_of_seeds() -> None:
    values = frame(6)
    for name in STATISTICS:
        pd.testing.assert_frame_equal(aggregate(values, name), aggregate(values, name))
        pd.testing.assert_frame_equal(aggregate(values[[3, 1, 5, 0, 2, 4]], name), aggregate(values, name))


def test_infinite_values_have_no_band_and_can_be_trimmed() -> None:
    values = pd.DataFrame([[1.0, 2.0, 3.0, np.inf], [-np.inf, 2.0, 3.0, np.inf], [1.0, 2.0, 3.0, 4.0]])
    mean, middle = aggregate(values), aggregate(values, "iqm")
    assert mean["value"].tolist()[0] == np.inf
    assert np.isnan(mean["value"][1])
    assert middle["value"].tolist() == [2.5, 2.5, 2.5]
    assert mean["low"].isna().tolist() == [True, True, False]


def test_nothing_gives_nothing() -> None:
    assert len(aggregate(frame(3, rows=0))) == 0
    assert aggregate(pd.DataFrame({"a": [np.nan]}))["value"].isna().all()


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_t_and_welch_are_scipys(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    x, y = rng.normal(size=(4, seeds)), rng.normal(1, 3, size=(4, seeds + 1))
    mean, low, high = t_interval(x)
    expected = stats.ttest_1samp(x, 0, axis=1).confidence_interval(0.95)
    assert np.stack([mean, low, high]) == pytest.approx(np.stack([x.mean(axis=1), *expected]))
    difference, low, high = welch(x, y)
    expected = stats.ttest_ind(x, y, axis=1, equal_var=False).confidence_interval(0.95)
    assert np.stack([difference, low, high]) == pytest.approx(
        np.stack([x.mean(axis=1) - y.mean(axis=1), expected.low, expected.high])
    )


def test_t_and_welch_leave_out_what_is_missing() -> None:
    x, y = np.array([1.0, np.nan, 2.0, 4.0]), np.array([0.0, 1.0, np.nan, np.nan])
    assert np.stack(t_interval(x)) == pytest.approx(np.stack(t_interval(x[~np.isnan(x)])))
    assert np.stack(welch(x, y)) == pytest.approx(np.stack(welch(x[~np.isnan(x)], y[:2])))
    for lonely in (t_interval(np.array([3.0, np.nan])), welch(np.array([3.0]), np.zeros(1))):
        assert lonely[0] == 3
        assert np.isnan(lonely[1:]).all()
    assert np.isnan(np.stack(t_interval(np.array([])))).all()
    assert np.stack(welch(np.ones(3), np.zeros(3))).tolist() == [1, 1, 1]
