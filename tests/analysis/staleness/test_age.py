"""Age of the data: counts by lag, age against staleness, versions inside responses, and filters, by brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.staleness import age
from ratioscope.analysis.staleness import filters as age_filters
from ratioscope.analysis.staleness import mixed_responses as segments
from ratioscope.analysis.summary.strata import stratify
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.what_if import load
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
    found = age.version_lags(run).set_index(["step", "lag"])["tokens"]
    assert found.to_dict() == expected.to_dict()
    some = age.version_lags(run, 5, 6)
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
    lags = age.version_lags(run)
    means = lags.groupby("step").apply(lambda rows: np.average(rows["lag"], weights=rows["tokens"]))
    assert means.to_numpy() == pytest.approx(summarise(run).values["version_lag"].to_numpy())
    assert lags["lag"].min() >= 0


def test_how_old_says_what_is_missing_and_what_is_impossible() -> None:
    def said(lags: list[float]) -> str:
        return age.how_old(pd.DataFrame({"step": 0, "lag": lags, "tokens": 10}))

    assert said([0]) == "Every token was sampled by the policy that it updates."
    assert said([3]) == "Every token is 3 updates old."
    assert said([0, 4]) == "The tokens are 2 updates old on average and 4 at most."
    assert "33.3% of them are newer" in said([-1, 0, 4])
    assert "50% of the tokens have no logged version." in said([2, np.nan])
    assert said([np.nan]) == "Versions are not logged: the age of the data is unknown."
    assert said([]) == "Versions are not logged: the age of the data is unknown."


def verdict_of(folder: Path, steps: list[Step]) -> tuple[age.AgeEffect, str]:
    run = open_run(write_run(folder, steps))
    strata = stratify(run, "lag")
    effect = age.age_effect(strata, "s_k")
    return effect, age.sentence(age.version_lags(run), strata, effect, facts_of(summarise(run)))


def test_age_hurts_where_the_oldest_stratum_is_beyond_the_freshest(tmp_path: Path) -> None:
    steps = [aged(number, (0, 1, 8), 0.02, np.random.default_rng(number)) for number in range(8, 12)]
    effect, said = verdict_of(tmp_path / "run", steps)
    assert effect.verdict is age.Verdict.HURTS
    assert effect.freshest is not None
    assert effect.oldest is not None
    assert (effect.freshest.label, effect.oldest.label) == ("lag 0", "lag 8")
    tokens = frame(steps)
    of_oldest = tokens[tokens["step"] - tokens["behavior_version"] == 8]
    log_rho = of_oldest["logp_current"].astype(float) - of_oldest["logp_behavior"].astype(float)
    assert effect.oldest.value == pytest.approx(np.abs(np.expm1(log_rho)).mean() / 2)
    assert "Age hurts: staleness (S_k) is" in said
    assert "below the limit of 0.2 at every age" in said
    assert "which age does not explain." in said


def test_the_same_spread_at_every_age_cannot_be_told(tmp_path: Path) -> None:
    effect, said = verdict_of(tmp_path / "run", [aged(9, (2, 2, 2, 5), 0.0, np.random.default_rng(0))])
    assert effect.verdict is age.Verdict.CANNOT_TELL
    assert "Whether age hurts is unknown" in said
    assert "their 95 % intervals overlap" in said


def test_one_age_tells_nothing(tmp_path: Path) -> None:
    effect, said = verdict_of(tmp_path / "run", [aged(9, (3,), 0.02, np.random.default_rng(0))])
    assert effect.verdict is age.Verdict.ONE_AGE
    assert "Every token is 3 updates old. All tokens are of one age" in said


def test_old_weights_and_the_engine_are_split_where_both_are_logged(run: Run) -> None:
    strata = stratify(run, "lag")
    said = age.sentence(age.version_lags(run), strata, age.age_effect(strata, "s_k"), facts_of(summarise(run)))
    parts = [float(strata.metric(key)["value"].iloc[-1]) for key in ("s_k_version", "s_k_engine")]
    assert parts[0] > parts[1]
    expected = f"the age of the data: {parts[0]:.2g} against {parts[1]:.2g} of the engine (means)"
    assert f"The larger part of staleness is {expected}." in said


def test_responses_of_several_versions_are_counted_by_step(run: Run, steps: list[Step]) -> None:
    versions = frame(steps).groupby(["step", "seq_id"])["behavior_version"].nunique()
    expected = (versions > 1).groupby("step").agg(["sum", "size"])
    found = segments.switching(run)
    assert found["several"].to_dict() == expected["sum"].to_dict()
    assert found["responses"].to_dict() == expected["size"].to_dict()
    assert (found["low"] <= found["share"]).all()
    assert (found["share"] <= found["high"]).all()
    assert f"{expected['sum'].sum()} of {len(versions)} responses" in segments.sentence(found)
    table = segments.by_versions(run)
    assert table.set_index("versions")["responses"].to_dict() == versions.value_counts().to_dict()
    assert table["share"].sum() == pytest.approx(1)


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
    assert "Every response was sampled by one version" in segments.sentence(segments.switching(run))


def test_filters_drop_what_is_beyond_them(run: Run, steps: list[Step]) -> None:
    tokens = frame(steps)
    tokens = tokens[tokens["advantage"] != 0]
    distance = np.abs(np.expm1(tokens["logp_current"].astype(float) - tokens["logp_behavior"].astype(float)))
    lag = (tokens["step"] - tokens["behavior_version"]).groupby([tokens["step"], tokens["seq_id"]]).transform("max")
    loaded = load(run)
    curve = age_filters.curve(loaded, "epsilon_stale", [0.1, 0.5])
    for value, row in curve.iterrows():
        kept = distance <= value
        assert row["dropped"] == pytest.approx(1 - kept.mean())
        assert row["staleness"] == pytest.approx(distance[kept].mean() / 2)
        assert row["dropped_low"] <= row["dropped"] <= row["dropped_high"]
    assert age_filters.lag_values(loaded) == [0, 1, 2, 3]
    found = age_filters.effect(loaded, "max_lag", 1)
    assert found.numbers.values["kept_tokens"] == pytest.approx((lag <= 1).mean())
    said = age_filters.sentence(found)
    assert said.startswith("A window of W = 2 (lags up to 1) would drop")
    assert f"{1 - (lag <= 1).mean():.1%}" in said


def test_a_filter_that_leaves_nothing_says_so(run: Run) -> None:
    assert age_filters.sentence(age_filters.effect(load(run), "epsilon_stale", 0)).endswith("nothing would be left.")
