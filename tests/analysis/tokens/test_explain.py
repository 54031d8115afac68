"""What differs in some steps: a planted token is found with its prompt; where nothing differs, that is said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.analysis.tokens.explain import explain, sentences
from tests.making.runs import Step, plain_step, write_run

PLANTED = (10, 11, 12)


def _step(number: int) -> Step:
    """12 responses of 8 tokens to 4 prompts; in the planted steps token 5 of prompt 2 has a ratio of 60."""
    rng = np.random.default_rng(number)
    token = np.arange(96)
    behavior = -rng.uniform(5.0, 6.0, 96)
    current = behavior + rng.normal(0, 0.02, 96)
    group = token // 24
    step = plain_step(behavior, current, number=number, sequence=token // 8, group=group, token_id=token % 8)
    if number in PLANTED:
        chosen = (token % 8 == 5) & (group == 2)
        step = step.with_tokens(logp_current=np.where(chosen, behavior + np.log(60), current).astype(np.float32))
    reward = rng.normal(0.5, 0.05, 12).astype(np.float32)
    ids = np.arange(12) // 3
    texts = {"prompt_id": ids, "prompt": [f"prompt {name}" for name in ids], "reward": reward}
    return replace(step, sequences=step.sequences | texts)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, StepSummary]:
    folder = tmp_path_factory.mktemp("explain") / "run"
    run = open_run(write_run(folder, map(_step, range(30)), vocabulary=lambda token: f"word{token}"))
    return run, summarise(run)


def test_a_planted_culprit_is_found(planted: tuple[Run, StepSummary]) -> None:
    found = explain(*planted, 10, 12)
    assert {"s_k", "chi2_token", "ratio_max"} <= {moved.key for moved in found.moved}
    assert all(moved.units > 3 for moved in found.moved if moved.key == "s_k")
    places = {place.owner: place for place in found.places}
    assert (places["token"].label, places["prompt"].label) == ("word5", "prompt 2")
    assert places["token"].share > 0.9 > 0.2 > places["token"].share_of_tokens
    assert {moved.key for moved in found.setting if moved.is_far} == set()
    said = sentences(found)
    assert len(said) <= 6
    text = " ".join(line.text for line in said)
    for part in ("in steps 10 to 12", "robust SD", "the token 'word5'", "the prompt 'prompt 2'", "in the rest"):
        assert part in text
    assert not any(word in text for word in ("because", "cause"))
    assert {(line.first, line.last) for line in said} == {(10, 12)}


def test_one_step_of_a_range_is_named(planted: tuple[Run, StepSummary]) -> None:
    run, summary = planted
    only = replace(summary, values=summary.values.drop(index=[11, 12]))
    found = explain(run, only, 6, 10)
    assert {moved.step for moved in found.moved if moved.key == "s_k"} == {10}
    assert (sentences(found)[0].first, sentences(found)[0].last) == (10, 10)


def test_where_nothing_differs_it_is_said(planted: tuple[Run, StepSummary]) -> None:
    run, summary = planted
    found = explain(run, summary, 2, 5)
    assert (found.moved, found.places, found.responses) == ((), (), None)
    assert sentences(found)[0].text.startswith("No metric differs in steps 2 to 5 from the rest of the run")
    for steps, why in (((0, 29), "fewer than 8 other steps"), ((90, 99), "none of these steps")):
        (said,) = sentences(explain(run, summary, *steps))
        assert why in said.text


def test_a_sawtooth_hides_nothing(planted: tuple[Run, StepSummary]) -> None:
    """Four times what is usual for data of this age, and no more than what old data have."""
    run, summary = planted
    age = np.arange(30) % 10
    saw = 0.02 * (1 + age) * np.exp(np.random.default_rng(0).normal(0, 0.05, 30))
    values = summary.values.assign(
        s_k_bounded=np.where(np.arange(30) == 21, 4 * saw, saw), version_lag=age.astype(float)
    )
    moved = {found.key: found for found in explain(run, replace(summary, values=values), 21, 21).moved}["s_k_bounded"]
    assert moved.at_same_age and moved.units > 3 and moved.outside < 0.07
    assert moved.value < values["s_k_bounded"].max()
    usual = explain(run, replace(summary, values=values), 29, 29)
    assert "s_k_bounded" not in {found.key for found in usual.moved}


def test_what_changed_for_good_is_said_in_its_order(planted: tuple[Run, StepSummary]) -> None:
    """The same change points as before a fall; a metric that went back has not changed for good."""
    run, summary = planted
    rng = np.random.default_rng(1)
    steps = np.arange(60)
    values = summary.values.iloc[np.zeros(60, dtype=int)].set_axis(pd.Index(steps, name="step"))
    values = values.assign(
        grad_norm=np.where(steps < 25, 1.0, 4.0) * (1 + 0.02 * rng.standard_normal(60)),
        entropy=np.where(steps < 40, 1.0, 0.3) * (1 + 0.02 * rng.standard_normal(60)),
        kl_k3=np.where(steps == 55, 9.0, 1.0) * (1 + 0.02 * rng.standard_normal(60)),
        version_lag=0.0,
    )
    found = explain(run, replace(summary, values=values), 45, 59)
    assert [(course.label, shift.first) for course, shift in found.order] == [("gradient norm", 25), ("entropy", 40)]
    text = " ".join(line.text for line in sentences(found))
    assert "For good, gradient norm rose from" in text and "in step 25; then entropy fell from" in text
    assert not any(word in text for word in ("because", "cause"))
