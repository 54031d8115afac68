"""Metrics by stratum: those of a run in which each stratum is a step of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.strata import BUCKETS, MOST_PROMPTS, STRATIFICATIONS, Strata, stratify
from ratioscope.analysis.summary.summary import LOGGED, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from tests.making.runs import Step, random_step, write_run

OF_RESPONSES = {"reward", "response_length", "ess_seq", "reliance_seq", "khat_seq"} | {
    key for key in CATALOGUE if "chi2_seq" in key
}


def made_steps() -> list[Step]:
    rng, steps = np.random.default_rng(4), []
    for number in range(3, 6):
        step = random_step(rng, number, groups=6, responses=4, longest=12)
        sequences, tokens = len(step.sequences["seq_id"]), step.tokens
        advantage = rng.integers(-1, 2, sequences).astype(np.float32)
        step.sequences["prompt_id"] = step.sequences["group_id"] + 100
        steps.append(step.with_tokens(advantage=advantage[np.searchsorted(step.sequences["seq_id"], tokens["seq_id"])]))
    return steps


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return made_steps()


@pytest.fixture(scope="module")
def run(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(write_run(tmp_path_factory.mktemp("strata") / "run", steps))


@pytest.fixture(scope="module")
def stratified(run: Run) -> dict[str, Strata]:
    """The whole run by every stratification."""
    return {by: stratify(run, by) for by in STRATIFICATIONS}


def of_tokens(name: str) -> Callable[[Step], Any]:
    return lambda step: step.tokens[name]


def of_response(name: str) -> Callable[[Step], Any]:
    return lambda step: np.asarray(step.sequences[name])[
        np.searchsorted(step.sequences["seq_id"], step.tokens["seq_id"])
    ]


def doubling(step: Step) -> Any:
    return np.floor(np.log2(np.maximum(step.tokens["position"], 0.5))).astype(int)


KINDS: dict[str, Callable[[Step], Any]] = {
    "version": of_tokens("behavior_version"),
    "lag": lambda step: step.number - step.tokens["behavior_version"],
    "position": doubling,
    "advantage": of_tokens("advantage"),
    "outcome": of_response("reward"),
    "prompt": of_response("prompt_id"),
    "length": of_response("n_tokens"),
    "clipped": lambda step: ~step.tokens["clipped"],
    "dropped": lambda step: np.zeros(len(step.tokens["seq_id"])),
}


def by_hand(steps: list[Step], value: Callable[[Step], Any], folder: Path) -> pd.DataFrame:
    """Every stratum written as a step, responses and groups of different steps told apart."""
    apart = [
        step.with_tokens(
            seq_id=step.tokens["seq_id"] + 1000 * step.number, group_id=step.tokens["group_id"] + 1000 * step.number
        )
        for step in steps
    ]
    columns = {name: np.concatenate([step.tokens[name] for step in apart]) for name in apart[0].tokens}
    values = np.concatenate([np.asarray(value(step)) for step in steps])
    sequences = {
        name: np.concatenate([np.asarray(step.sequences[name]) for step in steps]) for name in steps[0].sequences
    }
    for name in ("seq_id", "group_id"):
        sequences[name] = sequences[name] + np.concatenate(
            [np.full(len(s.sequences[name]), 1000 * s.number) for s in steps]
        )
    strata = []
    for place, stratum in enumerate(np.unique(values)):
        rows = values == stratum
        there = np.isin(sequences["seq_id"], columns["seq_id"][rows])
        strata.append(
            Step(
                place,
                {name: column[rows] for name, column in columns.items()},
                {name: column[there] for name, column in sequences.items()},
                {"policy_version": place},
            )
        )
    return summarise(open_run(write_run(folder, strata))).values


def values_of(strata: Strata) -> pd.DataFrame:
    return strata.table.values


@pytest.mark.parametrize("by", [by for by in STRATIFICATIONS if by != "length"])
def test_a_stratum_is_what_a_step_of_its_tokens_would_be(
    by: str, steps: list[Step], stratified: dict[str, Strata], tmp_path: Path
) -> None:
    strata = stratified[by]
    expected = by_hand(steps, KINDS[by], tmp_path / "run")
    found = values_of(strata).iloc[:-1]
    assert len(found) == len(expected) == len(strata.labels) - 1
    divided = by in ("version", "lag", "position", "clipped")
    for key in (*COUNTS, *CATALOGUE):
        if key in LOGGED or (divided and (key in OF_RESPONSES or key in ("n_sequences", "n_undefined"))):
            assert found[key].isna().all()
        elif key.endswith("_bounded") and STRATIFICATIONS[by].drawn:
            assert found[key].isna().all() and "read the plain form" in strata.metric(key)["note"].iloc[0], key
        elif key != "version_lag" and not (divided and key == "n_groups"):  # groups without a token in the stratum
            assert found[key].to_numpy() == pytest.approx(expected[key].to_numpy(), rel=1e-9, nan_ok=True), key


@pytest.mark.parametrize("by", STRATIFICATIONS)
def test_strata_hold_every_token_once_and_all_is_all(by: str, steps: list[Step], stratified: dict[str, Strata]) -> None:
    values = values_of(stratified[by])
    assert (
        values["n_tokens"].iloc[:-1].sum() == values["n_tokens"].iloc[-1] == sum(len(s.tokens["seq_id"]) for s in steps)
    )
    weights = values["n_tokens"].iloc[:-1] / values["n_tokens"].iloc[-1]
    for key in ("s_k", "chi2_token", "kl_k1", "clip_fraction"):
        assert (weights * values[key].iloc[:-1]).sum() == pytest.approx(values[key].iloc[-1], rel=1e-9)


@pytest.mark.parametrize("by", STRATIFICATIONS)
def test_every_missing_number_of_a_stratum_has_a_reason(by: str, stratified: dict[str, Strata]) -> None:
    strata = stratified[by]
    assert len(set(strata.labels)) == len(strata.labels) and strata.labels[-1] == "all"
    for key in CATALOGUE:
        frame = strata.metric(key)
        assert list(frame["label"]) == list(strata.labels)
        assert (frame.loc[frame["value"].isna(), "note"] != "").all(), key


def test_strata_of_some_steps_are_those_of_a_run_that_has_no_other(run: Run, steps: list[Step], tmp_path: Path) -> None:
    some, alone = stratify(run, "lag", 4, 5), stratify(open_run(write_run(tmp_path / "run", steps[1:])), "lag")
    assert some.labels == alone.labels
    pd.testing.assert_frame_equal(values_of(some), values_of(alone))


def test_many_numbers_are_put_into_buckets_of_about_as_many_tokens(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0), groups=20, responses=5, longest=60)
    strata = stratify(open_run(write_run(tmp_path / "run", [step])), "length")
    tokens = strata.table.values["n_tokens"].iloc[:-1]
    assert len(tokens) == BUCKETS and tokens.max() < 2 * tokens.min()
    assert all(" to " in label for label in strata.labels[:-1])


def test_the_rarest_of_many_prompts_go_together(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0), groups=50, responses=2, longest=5)
    strata = stratify(open_run(write_run(tmp_path / "run", [step])), "prompt")
    assert len(strata.labels) == MOST_PROMPTS + 1 and strata.labels[-2] == "21 others"


def test_responses_that_the_loss_left_out_are_seen_beside_the_kept_ones(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0), groups=4)
    dropped = np.where(step.sequences["seq_id"] % 3 == 0, "stale", None)
    step.sequences["dropped"], step.sequences["reward"] = dropped, (dropped == None).astype(np.float32)  # noqa: E711
    kept = step.rows(step.tokens["seq_id"] % 3 != 0)
    strata = stratify(open_run(write_run(tmp_path / "run", [kept])), "dropped")
    assert strata.labels == ("kept", "stale", "all")
    reward = strata.metric("reward")
    assert list(reward["value"])[:2] == [1.0, 0.0] and 0 < reward["value"][2] < 1
    staleness = strata.metric("s_k")
    assert np.isnan(staleness["value"][1]) and "no usable token in this stratum" in staleness["note"][1]


def test_what_is_not_logged_is_a_stratum_of_that_name(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0)).with_tokens(clipped=None, clip_side=None)
    assert stratify(open_run(write_run(tmp_path / "run", [step])), "clipped").labels == ("not logged", "all")


def test_unknown_strata_and_empty_ranges_are_said_in_one_sentence(run: Run) -> None:
    with pytest.raises(RatioscopeError, match="'colour' is not a stratification; there are: version"):
        stratify(run, "colour")
    with pytest.raises(RatioscopeError, match="'khat_tok' is not a metric; did you mean khat_token"):
        stratify(run, "lag").metric("khat_tok")
    with pytest.raises(RatioscopeError, match="no token in these steps"):
        stratify(run, "lag", 100, 200)
