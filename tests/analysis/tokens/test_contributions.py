"""Which responses make a number: parts that add up to it, the token behind each, what has no parts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.tokens import contributions as module
from ratioscope.analysis.tokens.contributions import contributions, contributions_sentence, has_parts
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from tests.making.runs import plain_step, random_step, write_run


def test_parts_add_up_to_the_number_of_the_catalogue(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [random_step(np.random.default_rng(1), groups=8)]))
    values = summarise(run).values.loc[0]
    others = module._MADE.keys() | module.ORDERS.keys() | module.STAND_INS.keys()
    checked = 0
    with relations(run) as connection:
        for key, metric in CATALOGUE.items():
            if key in others - {"chi2_token", "chi2_token_raw", "response_length"}:
                continue
            assert metric.mean is not None, key
            assert has_parts(key) or key in others
            rows = module._rows(module._parts_of(metric))
            ((total, n),) = connection.execute(f"select sum(exp(size)), count(*) from ({rows})").fetchall()
            assert metric.mean.factor * total / n + metric.mean.offset == pytest.approx(values[key], rel=1e-9), key
            checked += 1
    assert checked > 25


def test_two_tokens_that_make_most_of_a_number_are_named(tmp_path: Path) -> None:
    ratios = np.full(40, 0.99)
    ratios[[13, 27]] = 157.0, 116.0
    behavior = np.where(ratios > 2, -9.0, -1.01)
    current = behavior + np.log(ratios)
    step = plain_step(behavior, current, number=3, sequence=np.arange(40) // 4)
    run = open_run(write_run(tmp_path / "run", [step], vocabulary=lambda token: f"t{token}"))
    found = contributions(run, "s_k", 3, 3)
    shares = np.abs(ratios - 1).reshape(10, 4).sum(axis=1) / np.abs(ratios - 1).sum()
    assert found.frame["seq_id"].tolist()[:2] == [3, 6]
    np.testing.assert_allclose(found.frame["share"], np.sort(shares)[::-1], rtol=1e-5)
    assert found.frame["position"].tolist()[:2] == [1, 3]
    assert found.frame["ratio"].tolist()[:2] == pytest.approx([157, 116], rel=1e-5)
    assert (found.n, found.half) == (10, 1)
    said = contributions_sentence(found, "step 3")
    assert said.startswith("Response 3 of step 3 makes 57.5% of staleness, plain form.")
    assert said.endswith("Most of it is its token 't6' at position 1, with ρ = 157.")
    assert contributions(run, "ratio_max", 3, 3).frame["seq_id"].tolist()[:2] == [3, 6]
    assert "no response stands out: the largest of 10" in contributions_sentence(
        contributions(run, "s_k_bounded"), "step 3"
    )


def test_what_has_no_parts_is_listed_and_says_so(tmp_path: Path) -> None:
    step = plain_step([-1.0, -800.0, -2.0], [-1.0, -1.0, -2.5])
    step = replace(step, sequences=step.sequences | {"reward": np.array([1.0, 0.0, 0.5], np.float32)})
    run = open_run(write_run(tmp_path / "run", [step]))
    assert contributions(run, "reward").frame["seq_id"].tolist() == [1, 2, 0]
    assert contributions(run, "lowest_reward").frame["seq_id"].tolist() == [1, 2, 0]
    infinite = contributions(run, "kl_k3")
    assert infinite.frame["seq_id"].iloc[0] == 1
    assert infinite.frame["share"].isna().all()
    assert "infinite" in contributions_sentence(infinite, "step 0")
    assert contributions(run, "s_k").frame["share"].iloc[0] == pytest.approx(
        1
    )  # e^799 is beyond doubles, its log is not
    assert (
        contributions_sentence(contributions(run, "clip_fraction"), "step 0") == "Step 0: clip fraction has no value."
    )
    with pytest.raises(RatioscopeError, match="a metric or a criterion"):
        contributions(run, "nonsense")
