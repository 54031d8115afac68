"""What-if on runs: what is loaded of a log, samples of it, and replays of what the trainer did in the sample runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.what_if import apply, load_tokens, own_rule
from ratioscope.errors import RatioscopeError
from tests.making.runs import numbered_step, plain_step, random_step, write_run
from tests.making.samples import ONE_OF_EACH_ALGORITHM, run_of
from tests.oracles.what_if import logged, rule_of


def test_loading_reads_the_usable_rows_of_a_range(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [numbered_step(step) for step in range(5)]))
    tokens = load_tokens(run, 1, 3)
    rows = run.read("tokens")
    assert len(tokens) == rows["step"].between(1, 3).sum() and sorted(set(tokens.step.tolist())) == [1, 2, 3]
    assert tokens.fraction == 1 and tokens.without_gate == 0
    assert tokens.logp_gate is tokens.logp_current
    summary = summarise(run).values
    found = apply(rule_of(), load_tokens(run, 2, 2)).values
    signal = rows[(rows["step"] == 2) & (rows["advantage"] != 0)]
    assert len(signal) < (rows["step"] == 2).sum()
    assert found["effective_token_fraction"] == len(signal) / (rows["step"] == 2).sum()
    assert load_tokens(run).fraction == 1 and len(load_tokens(run)) == summary["n_tokens"].sum()


def test_without_silent_groups_raw_numbers_are_those_of_the_step_summary(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    steps = [random_step(rng, step) for step in range(2)]
    steps = [step.with_tokens(advantage=np.ones(len(step.tokens["advantage"]), dtype=np.float32)) for step in steps]
    run = open_run(write_run(tmp_path / "run", steps))
    found, summary = apply(rule_of(), load_tokens(run)).frame, summarise(run).values
    for here, there in (
        ("staleness_raw", "s_k"), ("drift_kept", "u_k"), ("chi2_raw", "chi2_token"), ("ess_raw", "ess_token"),
        ("mean_weight_raw", "ratio_mean"), ("max_weight_raw", "ratio_max"),
    ):  # fmt: skip
        assert found[here].to_numpy() == pytest.approx(summary[there].to_numpy(), rel=1e-9)


def test_a_sample_is_of_whole_prompt_groups(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [numbered_step(step) for step in range(5)]))
    whole, sample = load_tokens(run), load_tokens(run, max_tokens=400, seed=1)
    assert sample.fraction < 1 and len(sample) <= 400 and sample.fraction == len(sample) / len(whole)
    sizes = set(np.bincount(whole.group.numpy()).tolist())
    assert set(np.bincount(sample.group.numpy()).tolist()) <= sizes and len(set(sample.step.tolist())) > 1
    assert load_tokens(run, max_tokens=400, seed=1).logp_current.tolist() == sample.logp_current.tolist()
    assert load_tokens(run, max_tokens=400, seed=2).logp_current.tolist() != sample.logp_current.tolist()
    assert len(np.unique(load_tokens(run, max_tokens=1).group.numpy())) == 1
    assert load_tokens(run, max_tokens=10**9).fraction == 1


def test_unusable_rows_break_their_sequence(tmp_path: Path) -> None:
    nan = float("nan")
    step = plain_step([-1, -1, -1, -1, -1], [-1, nan, -2, -1, -1], sequence=[0, 0, 0, 1, 2])
    run = open_run(write_run(tmp_path / "run", [step.with_tokens(logp_gate=np.array([-1, -1, -1, -1, nan]))]))
    tokens = load_tokens(run)
    assert tokens.whole.tolist() == [False, False, True] and len(tokens.complete) == 1
    assert tokens.without_gate == 1


@pytest.mark.parametrize(
    ("first", "last", "where"),
    [(5, 6, "in the steps 5 to 6"), (9000, None, "from step 9000 on"), (None, -1, "up to step -1")],
)
def test_a_range_without_tokens_is_said(tmp_path: Path, first: int | None, last: int | None, where: str) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1], [-1])]))
    with pytest.raises(RatioscopeError, match=f"no usable token {where}; choose other steps"):
        load_tokens(run, first, last)


@pytest.mark.parametrize("name", ONE_OF_EACH_ALGORITHM)
def test_the_own_rule_of_a_sample_run_gives_its_logged_clipping(name: str) -> None:
    """The last 30 steps; the trainer's own tests replay every algorithm of the catalogue. TRL's rule is one, too."""
    run = run_of(name)
    own, tokens = own_rule(run), load_tokens(run, int(run.read("steps")["step"].max()) - 29)
    assert own.rule is not None
    outcome, rows = apply(own.rule, tokens), logged(run, tokens)
    assert outcome.decision.clipped.tolist() == rows["clipped"].tolist()
    assert outcome.decision.side.tolist() == rows["clip_side"].tolist()
    assert np.allclose(outcome.decision.value, rows["gate"], rtol=1e-6, atol=0)
    assert outcome.values["clip_fraction"] == pytest.approx(rows["clipped"].mean(), rel=1e-12)


def altered(parts: dict[str, str] | None, parameters: dict[str, float] | None) -> Run:
    run = run_of("sync_interval20-grpo-seed0")
    algorithm = {"name": "x", "parts": parts, "parameters": parameters}
    return replace(run, manifest=replace(run.manifest, algorithm=algorithm))


PPO = {"gate": "one_side", "weight": "ratio", "level": "token"}


@pytest.mark.parametrize(
    ("parts", "parameters", "reason"),
    [
        (None, {"epsilon_low": 0.2}, "does not state its algorithm's parts and parameters"),
        (PPO, None, "does not state its algorithm's parts and parameters"),
        ({"gate": "none"}, {}, "does not state its algorithm's weight and level"),
        (PPO, {"epsilon_low": 0.2}, "of which 'epsilon_high' is not known here"),
        (PPO | {"gate": "dual"}, {}, "of which 'dual' is not known here"),
        (PPO, {"epsilon_low": 2.0, "epsilon_high": 0.2}, "cannot be replayed: one_side: epsilon_low=2 must be"),
        (PPO, {"epsilon_low": "wide", "epsilon_high": 0.2}, "that are not numbers"),
        (PPO, {"epsilon_low": 0.2, "epsilon_high": 0.2, "epochs": 4}, "does not log logp_gate"),
    ],
)
def test_a_run_that_does_not_say_enough_has_no_rule_but_a_reason(parts: Any, parameters: Any, reason: str) -> None:
    own = own_rule(altered(parts, parameters))
    assert own.rule is None and reason in own.reason and own.reason.endswith(".")
