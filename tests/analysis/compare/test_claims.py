"""Claims of a study: the verdict follows the interval, and each measure is what it says on curves made for it."""

import tomllib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratioscope.analysis.compare.claims import (
    CLAIM_MEASURES,
    Claim,
    ClaimVerdict,
    claims_of,
    claims_text,
    judge_claim,
    measure_claim,
    sentences,
)
from ratioscope.trainer.settings.ablation import STUDIES, plan
from tests.making.samples import summary_of


def claim(expect: str, margin: float = 0.0, **more: str) -> Claim:
    return Claim("said", "S3", "sync_interval", "a", "end", expect, margin=margin, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expect", "margin", "values", "verdict"),
    [
        ("above", 0.0, [0.10, 0.11, 0.12], ClaimVerdict.AGREES),
        ("above", 0.0, [-0.10, -0.11, -0.12], ClaimVerdict.DISAGREES),
        ("above", 0.0, [0.10, -0.11, 0.02], ClaimVerdict.UNDECIDED),
        ("above", 0.2, [0.10, 0.11, 0.12], ClaimVerdict.DISAGREES),
        ("below", 0.0, [-0.10, -0.11, -0.12], ClaimVerdict.AGREES),
        ("below", 0.0, [0.10, 0.11, 0.12], ClaimVerdict.DISAGREES),
        ("below", 0.2, [-0.10, -0.11, -0.12], ClaimVerdict.DISAGREES),
        ("alike", 0.05, [0.01, 0.0, -0.01], ClaimVerdict.AGREES),
        ("alike", 0.05, [0.10, 0.11, 0.12], ClaimVerdict.DISAGREES),
        ("alike", 0.05, [0.04, 0.05, 0.06], ClaimVerdict.UNDECIDED),
    ],
)
def test_the_verdict_follows_the_whole_interval(
    expect: str, margin: float, values: list[float], verdict: ClaimVerdict
) -> None:
    assert judge_claim(claim(expect, margin), dict(enumerate(values))).verdict is verdict


def test_two_settings_are_compared_seed_by_seed() -> None:
    of, than = {0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.65, 2: 0.8, 3: 0.0}
    found = judge_claim(claim("above", than="b"), of, than)
    differences = [0.1, 0.05, 0.1]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(differences), scale=stats.sem(differences))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(differences), low, high))
    assert found.seeds == 3


def test_one_seed_has_no_interval_and_decides_nothing() -> None:
    found = judge_claim(claim("above"), {0: 0.5})
    assert found.verdict is ClaimVerdict.UNDECIDED
    assert np.isnan(found.low)
    assert "no interval" in found.sentence()


def test_measures_are_those_of_the_logged_accuracy() -> None:
    summary = summary_of("sync_interval20-reinforce-seed0")
    accuracy = summary.values["eval_accuracy"].dropna()
    numbers = {name: measure_claim(Claim("", "", "", "", name, "above"), summary) for name in CLAIM_MEASURES}
    assert numbers["end"] == pytest.approx(accuracy.iloc[-5:].mean())
    assert numbers["change"] == pytest.approx(accuracy.iloc[-5:].mean() - accuracy.iloc[0])
    assert numbers["early"] == pytest.approx(accuracy.iloc[: len(accuracy) // 2].mean())
    assert numbers["late"] == pytest.approx(accuracy.iloc[len(accuracy) // 2 :].mean())
    assert numbers["drop"] >= 0
    assert numbers["clip"] == numbers["clip_growth"] == 0.0


def test_updates_to_a_level_and_falls_are_those_of_the_smoothed_curve() -> None:
    curve = [0.4, 0.4, 0.4, 0.7, 1.0, 0.7, 0.1, 0.1, 0.1]  # smoothed: .4 .4 .5 .7 .8 .6 .3 .1 .1
    summary = SimpleNamespace(values=pd.DataFrame({"eval_accuracy": curve}, index=range(0, 90, 10)))

    def number(name: str, level: float = 0.7) -> float:
        return measure_claim(Claim("", "", "", "", name, "above", level=level), summary)  # type: ignore[arg-type]

    assert number("updates_to", 0.6) == pytest.approx(25)
    assert number("updates_to", 0.3) == 0
    assert number("updates_to", 0.9) == 80  # never: all updates
    assert number("fall") == pytest.approx(0.7)


def test_a_sentence_is_borne_out_where_all_of_its_parts_are() -> None:
    row = {"text": "said", "source": "S3", "preset": "offline", "of": "a"}
    parts = [{"measure": "end", "expect": "above"}, {"measure": "fall", "expect": "below", "preset": "on_policy"}]
    first, second = claims_of([row | {"parts": parts}])
    assert (first.preset, first.measure, second.preset, second.expect) == ("offline", "end", "on_policy", "below")
    assert claims_of([row | parts[0]]) == [first]
    up, down, unclear = {0: 0.1, 1: 0.11}, {0: -0.1, 1: -0.11}, {0: -0.1, 1: 0.11}
    verdicts = [
        sentences([judge_claim(first, one), judge_claim(second, other)])[0][0]
        for one, other in ((up, down), (up, unclear), (down, unclear))
    ]
    assert verdicts == [ClaimVerdict.AGREES, ClaimVerdict.UNDECIDED, ClaimVerdict.DISAGREES]
    assert "1 claims: 1 agrees, 0 disagrees, 0 undecided" in claims_text(
        [judge_claim(first, up), judge_claim(second, down)]
    )


def test_the_clip_fraction_grows_between_synchronisations() -> None:
    summary = summary_of("sync_interval20-grpo-seed0")
    assert measure_claim(Claim("", "", "", "", "clip_growth", "above"), summary) > 0
    assert isinstance(summary.values["clip_fraction"], pd.Series)


@pytest.mark.parametrize("study", sorted(path.stem for path in STUDIES.glob("figure*.toml")))
def test_every_claim_of_a_study_is_about_runs_that_the_study_makes(study: str) -> None:
    grid = plan(study, [])
    made = {(cell.preset, cell.variant) for cell in grid.cells}
    assert len({cell.config.seed for cell in grid.cells}) >= 3
    for said in claims_of(grid.claims):
        assert said.measure in CLAIM_MEASURES
        assert said.source.startswith("S3")
        assert {(said.preset, setting) for setting in (said.of, said.than) if setting} <= made
    assert tomllib.loads((STUDIES / f"{study}.toml").read_text(encoding="utf-8"))["claims"] == grid.claims
