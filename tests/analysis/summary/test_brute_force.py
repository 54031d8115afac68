"""Each number of the summary, and each interval with a closed form, against the definitions in `brute_force`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import LOGGED, StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import is_unreliable
from tests.making.loops import in_one_loop
from tests.making.runs import Step, random_step, write_run
from tests.oracles import brute_force

STEPS = 3
TAILS = ("khat_token", "khat_token_new", "khat_seq")
COMPUTED = [key for key in CATALOGUE if key not in (*TAILS, *LOGGED)]
MEANS = [key for key, metric in CATALOGUE.items() if metric.mean and not metric.share]
FRACTIONS = [key for key, metric in CATALOGUE.items() if metric.mean and metric.share]
FRACTIONS += ["zero_advantage_group_fraction"]


def random_logs() -> list[Step]:
    rng = np.random.default_rng(5)
    return [random_step(rng, step, groups=6 + step, responses=4, longest=14, spread=0.25) for step in range(STEPS)]


def nearly_on_policy() -> list[Step]:
    rng = np.random.default_rng(6)
    return [random_step(rng, step, groups=5, spread=3e-5) for step in range(STEPS)]


def with_bad_rows() -> list[Step]:
    """NaN, infinities and impossible log-probabilities of every kind, in scattered rows."""
    rng, steps = np.random.default_rng(7), []
    for number in range(STEPS):
        step = random_step(rng, number, groups=8, spread=0.4)
        n = len(step.tokens["seq_id"])
        bad = {name: step.tokens[name].copy() for name in ("logp_behavior", "logp_current", "logp_new", "advantage")}
        for name, value in (
            ("logp_current", -np.inf), ("logp_current", np.nan), ("logp_current", np.inf), ("logp_new", -np.inf),
            ("logp_new", np.nan), ("logp_behavior", -np.inf), ("logp_behavior", 0.01), ("advantage", np.inf),
            ("advantage", np.nan),
        ):  # fmt: skip
            bad[name][rng.integers(n)] = value
        rewards = step.sequences["reward"].copy()
        rewards[0] = np.nan
        step.sequences["reward"] = rewards
        steps.append(step.with_tokens(**bad))
    return steps


def with_dropped_groups() -> list[Step]:
    """A group whose responses the loss left out: it has sequences and no tokens."""
    steps = []
    for step in random_logs():
        kept = step.tokens["group_id"] != 2
        dropped = np.where(step.sequences["group_id"] == 2, "dynamic sampling", None)
        step = step.rows(kept)
        steps.append(replace(step, sequences=step.sequences | {"dropped": dropped}))
    return steps


LOGS = {log.__name__: log for log in (random_logs, nearly_on_policy, with_bad_rows, with_dropped_groups)}


@pytest.fixture(scope="module", params=LOGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StepSummary]:
    folder = write_run(tmp_path_factory.mktemp("run") / request.param, LOGS[request.param](), flush_seconds=0)
    return folder, summarise(open_run(folder))


@in_one_loop("key", {key: key for key in COMPUTED})
def test_every_number_is_what_its_definition_says(run: tuple[Path, StepSummary], key: str) -> None:
    folder, summary = run
    for step in range(STEPS):
        expected = brute_force.step_numbers(folder, step)[key]
        found = summary.values.loc[step, key]
        if expected is None:
            assert np.isnan(found)
        else:
            # The raw form subtracts 1 from a mean near 1: that is the largest term.
            scale = 1e-9 if key == "chi2_token_raw" else 0
            assert found == pytest.approx(expected, rel=1e-9, abs=scale), (key, step)


def test_every_computed_metric_is_held_against_a_definition() -> None:
    folder_keys = set(COMPUTED) | set(TAILS) | set(LOGGED)
    assert folder_keys == set(CATALOGUE)
    assert set(MEANS) | set(FRACTIONS) <= set(COMPUTED)
    assert len(MEANS) >= 23 and len(FRACTIONS) >= 8


@in_one_loop("key", {key: key for key in MEANS})
def test_intervals_of_means_are_cluster_robust(run: tuple[Path, StepSummary], key: str) -> None:
    folder, summary = run
    for step in range(STEPS):
        value = summary.values.loc[step, key]
        if not np.isfinite(value):
            assert np.isnan(summary.low.loc[step, key]) and np.isnan(summary.high.loc[step, key])
            continue
        if key == "reward" and brute_force.rewards_are_shares(folder, step):
            expected = brute_force.wilson_interval(folder, step, key)
        else:
            expected = brute_force.mean_interval(folder, step, key, *CATALOGUE[key].possible)
        if is_unreliable(summary.note(step, key)):
            expected = expected[0], np.inf
        found = summary.low.loc[step, key], summary.high.loc[step, key]
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-9 * abs(value) + 1e-13), (key, step)


@in_one_loop("key", {key: key for key in FRACTIONS})
def test_intervals_of_fractions_are_wilson_at_the_effective_number(run: tuple[Path, StepSummary], key: str) -> None:
    folder, summary = run
    for step in range(STEPS):
        expected = brute_force.wilson_interval(folder, step, key)
        found = summary.low.loc[step, key], summary.high.loc[step, key]
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-9), (key, step)


@pytest.mark.parametrize("key", ["ess_token", "ess_seq", "chi2_seq", "log1p_chi2_seq", "chi2_seq_raw"])
def test_intervals_of_products_are_those_of_the_logarithm(run: tuple[Path, StepSummary], key: str) -> None:
    folder, summary = run
    for step in range(STEPS):
        expected = brute_force.product_interval(folder, step, key)
        if CATALOGUE[key].one_sided or is_unreliable(summary.note(step, key)):
            expected = (0.0, expected[1]) if key.startswith("ess") else (expected[0], np.inf)
        found = summary.low.loc[step, key], summary.high.loc[step, key]
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-12), (key, step)


def test_counts_are_exact(run: tuple[Path, StepSummary]) -> None:
    folder, summary = run
    for step in range(STEPS):
        rows = [row for row in brute_force.rows_of(folder, "tokens") if row["step"] == step]
        sequences = [row for row in brute_force.rows_of(folder, "sequences") if row["step"] == step]
        valid = sum(map(brute_force.is_valid, rows))
        expected = {
            "n_tokens": valid,
            "n_sequences": len(sequences),
            "n_groups": len({row["group_id"] for row in sequences}),
            "n_invalid": len(rows) - valid,
        }
        assert {key: summary.values.loc[step, key] for key in expected} == expected
        assert set(expected) <= set(COUNTS)


def test_logged_scalars_come_from_the_steps_table(run: tuple[Path, StepSummary]) -> None:
    _, summary = run
    assert summary.values["grad_norm"].tolist() == [1.0, 2.0, 3.0]
    assert summary.values["eval_accuracy"].tolist() == [0.25] * STEPS
    assert summary.values["kl_to_initial"].isna().all()
