"""Age of the data: counts by lag, age against staleness, versions inside responses, and filters, by brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.words import whose_staleness
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.staleness import age
from ratioscope.analysis.staleness import filters as age_filters
from ratioscope.analysis.staleness import mixed_responses as segments
from ratioscope.analysis.staleness.trend import within_steps
from ratioscope.analysis.staleness.versions import sampled_by
from ratioscope.analysis.summary.strata import stratify
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.what_if import load_tokens
from tests.making.runs import Step, plain_step, random_step, write_run


def frame(steps: list[Step]) -> pd.DataFrame:
    """All tokens of some steps."""
    return pd.concat([pd.DataFrame(step.tokens).assign(step=step.number) for step in steps], ignore_index=True)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    rng = np.random.default_rng(5)
    return [random_step(rng, number, groups=8, longest=12, spread=0.2) for number in range(4, 9)]


@pytest.fixture(scope="module")
def run(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(write_run(tmp_path_factory.mktemp("age") / "run", steps))


def aged(number: int, lags: tuple[int, ...], spread: float, rng: np.random.Generator) -> Step:
    """A step with a block of groups of each lag, which spreads its log-ratios that many times over."""
    n, groups = 60, 6
    lag = np.repeat(lags, n)
    behavior = -rng.exponential(1.0, len(lag)) - 0.01
    current = np.minimum(behavior + spread * (1 + lag) * rng.standard_normal(len(lag)), 0)
    sequence = np.arange(len(lag)) // 5
    return plain_step(
        behavior, current, number=number, sequence=sequence, group=np.arange(len(lag)) // (n // groups),
        behavior_version=(number - lag).astype(np.int32),
    )  # fmt: skip


def test_tokens_are_counted_by_step_and_lag(run: Run, steps: list[Step]) -> None:
    tokens = frame(steps)
    expected = tokens.groupby(["step", tokens["step"] - tokens["behavior_version"]]).size()
    found = sampled_by(run).lags.set_index(["step", "lag"])["tokens"]
    assert found.to_dict() == expected.to_dict()
    some = sampled_by(run, 5, 6).lags
    assert set(some["step"]) == {5, 6}
    assert some["tokens"].sum() == expected[[5, 6]].sum()


def test_lags_agree_with_the_step_summary_where_versions_run_ahead(tmp_path: Path, steps: list[Step]) -> None:
    ahead = [
        replace(
            step.with_tokens(behavior_version=step.tokens["behavior_version"] + 100),
            scalars={"policy_version": 100 + step.number},
        )
        for step in steps
    ]  # fmt: skip
    run = open_run(write_run(tmp_path / "ahead", ahead))
    lags = sampled_by(run).lags
    means = lags.groupby("step").apply(lambda rows: np.average(rows["lag"], weights=rows["tokens"]))
    assert means.to_numpy() == pytest.approx(summarise(run).values["version_lag"].to_numpy())
    assert lags["lag"].min() >= 0


def test_how_old_says_what_is_missing_and_what_is_impossible() -> None:
    def said(lags: list[float]) -> str:
        return age.how_old(pd.DataFrame({"step": 0, "lag": lags, "tokens": 10}))

    assert said([0]) == "Every token is 0 updates old."
    assert said([3]) == "Every token is 3 updates old."
    assert said([0, 4]) == "Tokens are 2 updates old on average, 4 at most."
    assert "33.3% of them are newer" in said([-1, 0, 4])
    assert "50% of the tokens have no logged version." in said([2, np.nan])
    assert said([np.nan]) == "Versions are not logged: the age of the data is unknown."
    assert said([]) == "Versions are not logged: the age of the data is unknown."


def said_of(run: Run) -> str:
    """The answer of the Staleness page, and what it rests on."""
    of = sampled_by(run).lags, stratify(run, "lag"), age.age_effect(run), facts_of(summarise(run))
    return f"{age.age_sentence(*of)} {age.age_details(*of)}"


def drifting(slope: float, later: float, rng: np.random.Generator) -> pd.DataFrame:
    """Sums of 30 steps of 12 groups that hold lags 1 to 4, whose mean is linear in the lag and grows over the steps.

    Later steps hold older data, so that age and training time go together over the run.
    """
    rows = []
    for step in range(30):
        for group in range(12):
            lag = 1 + group % 4 + step // 10
            mean = 0.3 + slope * lag + later * step + 0.05 * rng.standard_normal()
            rows.append((step, group, float(lag), 50.0, 50 * mean))
    return pd.DataFrame(rows, columns=["step", "group_id", "lag", "n", "total"])


def test_an_effect_of_age_is_a_trend_within_steps() -> None:
    for slope, later in ((0.02, 0.0), (0.02, -0.02), (-0.02, 0.0), (-0.02, 0.02)):
        trend = within_steps(drifting(slope, later, np.random.default_rng(1)))
        assert trend.low < slope < trend.high
        assert (trend.rises, trend.falls) == (slope > 0, slope < 0)
        assert (trend.steps, trend.groups) == (30, 360)


def test_what_changes_over_training_is_no_effect_of_age() -> None:
    """Under the null a trend is claimed in 5 % of the runs, however far the level moves with the age of the steps."""
    for later in (0.0, 0.02, -0.02):
        trends = [within_steps(drifting(0.0, later, np.random.default_rng(seed))) for seed in range(200)]
        assert sum(trend.rises or trend.falls for trend in trends) <= 20
    few = drifting(0.0, 0.0, np.random.default_rng(0)).query("step == 0 and group_id < 3")
    assert within_steps(few).high - within_steps(few).low > 0.1


def test_the_slope_is_that_of_a_regression_with_a_level_for_each_step() -> None:
    cells = drifting(0.02, 0.01, np.random.default_rng(2))
    cells["n"] = np.random.default_rng(3).integers(1, 60, len(cells)).astype(float)
    design = np.column_stack([cells["lag"], pd.get_dummies(cells["step"])]).astype(float)
    root = np.sqrt(cells["n"].to_numpy())
    expected = np.linalg.lstsq(design * root[:, None], (cells["total"] / cells["n"]).to_numpy() * root, rcond=None)[0][
        0
    ]
    assert within_steps(cells).slope == pytest.approx(expected)


def test_older_tokens_of_a_step_that_are_further_away_are_found(tmp_path: Path) -> None:
    steps = [aged(number, (0, 1, 8), 0.02, np.random.default_rng(number)) for number in range(8, 12)]
    for step in steps:
        oldest = step.number - step.tokens["behavior_version"][::5] == 8
        step.sequences["reward"] = np.where(oldest, 0.2, 0.8).astype(np.float32)
    run = open_run(write_run(tmp_path / "run", steps))
    effect = age.age_effect(run)
    assert effect.verdict is age.AgeVerdict.HURTS
    tokens = frame(steps)
    tokens["distance"] = np.maximum(1 - np.exp(tokens["logp_current"].astype(float) - tokens["logp_behavior"]), 0)
    mean = tokens.groupby(tokens["step"] - tokens["behavior_version"])["distance"].mean()
    assert effect.staleness.slope == pytest.approx((mean[8] - mean[1]) / 7)
    assert effect.reward.falls
    said = said_of(run)
    assert "Age hurts: within a step staleness rises by" in said
    assert "The reward of older responses is lower" in said
    assert "which age does not explain." in said


def test_staleness_that_falls_with_age_does_not_hurt(tmp_path: Path) -> None:
    # The versions of the two blocks change places: what is 8 updates old has the spread of lag 1, and the reverse.
    steps = [aged(number, (1, 8), 0.02, np.random.default_rng(number)) for number in range(8, 12)]
    steps = [step.with_tokens(behavior_version=2 * step.number - 9 - step.tokens["behavior_version"]) for step in steps]
    run = open_run(write_run(tmp_path / "run", steps))
    assert age.age_effect(run).verdict is age.AgeVerdict.DOES_NOT
    assert "Age does not hurt: within a step staleness falls by" in said_of(run)


def test_the_same_spread_at_every_age_cannot_be_told(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [aged(9, (2, 2, 2, 5), 0.0, np.random.default_rng(0))]))
    assert age.age_effect(run).verdict is age.AgeVerdict.CANNOT_TELL
    assert "Whether age hurts is unknown" in said_of(run)


def test_one_age_a_step_cannot_be_separated_from_training_time(tmp_path: Path) -> None:
    """However much older and staler the later steps are."""
    steps = [aged(10 + lag, (lag,), 0.02 * lag, np.random.default_rng(lag)) for lag in range(1, 6)]
    run = open_run(write_run(tmp_path / "run", steps))
    assert age.age_effect(run).verdict is age.AgeVerdict.ONE_AGE
    said = said_of(run)
    assert "cannot be separated from training time" in said and "hurt" not in said
    fresh = open_run(write_run(tmp_path / "fresh", [aged(9, (0,), 0.02, np.random.default_rng(0))]))
    assert "training time" not in said_of(fresh)


def test_old_weights_and_the_engine_are_split_where_both_are_logged(run: Run) -> None:
    facts = facts_of(summarise(run))
    assert whose_staleness(facts) and whose_staleness(facts) in said_of(run)


def test_responses_of_several_versions_are_counted_by_step(run: Run, steps: list[Step]) -> None:
    versions = frame(steps).groupby(["step", "seq_id"])["behavior_version"].nunique()
    expected = (versions > 1).groupby("step").agg(["sum", "size"])
    found = sampled_by(run).responses
    assert found["several"].to_dict() == expected["sum"].to_dict()
    assert found["responses"].to_dict() == expected["size"].to_dict()
    assert (found["low"] <= found["share"]).all()
    assert (found["share"] <= found["high"]).all()
    assert f"{expected['sum'].sum()} of {len(versions)} responses" in segments.versions_sentence(found)
    table = segments.by_versions(run)
    assert table.set_index("versions")["responses"].to_dict() == versions.value_counts().to_dict()
    assert table["share"].sum() == pytest.approx(1)


def test_steps_of_one_version_are_counted_without_their_tokens(tmp_path: Path, steps: list[Step]) -> None:
    one = [step.with_tokens(behavior_version=np.full(len(step.tokens["position"]), 4, np.int32)) for step in steps]
    some = [other if step.number % 2 else step for step, other in zip(steps, one, strict=True)]
    versions = frame(some).groupby(["step", "seq_id"])["behavior_version"].nunique()
    expected = (versions > 1).groupby("step").agg(["sum", "size"])
    whole = write_run(tmp_path / "whole", some)
    found = sampled_by(open_run(whole)).responses
    assert found["several"].to_dict() == expected["sum"].to_dict()
    assert found["responses"].to_dict() == expected["size"].to_dict()
    assert found["known"].all()
    assert sampled_by(open_run(whole)).within(5, 7).responses.equals(sampled_by(open_run(whole), 5, 7).responses)
    for file in (whole / "sequences").iterdir():  # then there are the tokens alone
        file.unlink()
    again = sampled_by(open_run(whole)).responses
    assert again[["responses", "several"]].equals(found[["responses", "several"]])


def test_staleness_by_position_is_that_of_the_tokens_there(run: Run, steps: list[Step]) -> None:
    tokens = frame(steps)
    tokens["several"] = tokens.groupby(["step", "seq_id"])["behavior_version"].transform("nunique") > 1
    tokens["first"] = [p if p < 2 else 2 ** int(np.log2(p)) for p in tokens["position"]]
    log_rho = tokens["logp_current"].astype(float) - tokens["logp_behavior"].astype(float)
    tokens["distance"] = np.abs(np.expm1(log_rho)) / 2
    expected = tokens.groupby(["several", "first"])["distance"].agg(["mean", "size"])
    found = segments.by_position(run, "s_k").set_index(["several", "first"])
    assert found["n_tokens"].to_dict() == expected["size"].to_dict()
    assert found["value"].to_dict() == pytest.approx(expected["mean"].to_dict())
    assert found.loc[(True, 4), "label"] == "4–7"


def test_one_version_a_response_is_said(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [aged(9, (2,), 0.02, np.random.default_rng(0))]))
    assert "Every response was sampled by one version" in segments.versions_sentence(sampled_by(run).responses)


def test_filters_drop_what_is_beyond_them(run: Run, steps: list[Step]) -> None:
    tokens = frame(steps)
    tokens = tokens[tokens["advantage"] != 0]
    excess = np.expm1(tokens["logp_current"].astype(float) - tokens["logp_behavior"].astype(float))
    lag = (tokens["step"] - tokens["behavior_version"]).groupby([tokens["step"], tokens["seq_id"]]).transform("max")
    loaded = load_tokens(run)
    curve = age_filters.curve(loaded, "epsilon_stale", [0.1, 0.5])
    for value, row in curve.iterrows():
        kept = np.abs(excess) <= value
        assert row["dropped"] == pytest.approx(1 - kept.mean())
        assert row["staleness"] == pytest.approx(np.abs(excess[kept]).mean() / 2)
        assert row["dropped_low"] <= row["dropped"] <= row["dropped_high"]
    assert age_filters.lag_values(loaded) == [0, 1, 2, 3]
    found = age_filters.effect(loaded, "max_lag", 1)
    assert found.numbers.values["kept_tokens"] == pytest.approx((lag <= 1).mean())
    said = age_filters.filter_sentence(found)
    assert said.startswith("A window of W = 2 (lags up to 1) would drop")
    assert f"{1 - (lag <= 1).mean():.1%}" in said


def test_a_filter_that_leaves_nothing_says_so(run: Run) -> None:
    assert age_filters.filter_sentence(age_filters.effect(load_tokens(run), "epsilon_stale", 0)).endswith(
        "nothing would be left."
    )
