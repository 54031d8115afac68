"""The what-if analysis replays what the trainer did: for every algorithm, from the manifest and the logged columns."""

import pytest
import torch

from analysis.store import open_run
from analysis.what_if import apply, load, own_rule
from tests.training.replay import Run, logged_ratios, steps_of
from trainer.algorithms import ALGORITHMS


def test_the_own_rule_of_every_algorithm_gives_its_logged_clipping(recorded: Run, algorithm: str) -> None:
    run = open_run(recorded(algorithm).folder)
    own, tokens = own_rule(run), load(run)
    declared = ALGORITHMS[algorithm]
    assert own.rule is not None and not own.reason
    assert (own.rule.gate, own.rule.weight) == (declared.gate, declared.weight)
    assert own.rule.gate_level == own.rule.weight_level == declared.level
    decision = apply(own.rule, tokens).decision
    assert tokens.clipped is not None and tokens.clip_side is not None and tokens.gate is not None
    assert torch.equal(decision.clipped, tokens.clipped)
    assert torch.equal(decision.side, tokens.clip_side)
    assert torch.allclose(decision.value, tokens.gate.double(), rtol=1e-6, atol=0)


def test_ratios_are_those_of_the_loss(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    tokens = load(open_run(run.folder), 2, 2)
    expected = logged_ratios(run, steps_of(run.folder)[2])
    level = tokens.level(ALGORITHMS[algorithm].level).ratios
    for found, logged in zip(level, expected, strict=True):
        assert sorted(found.tolist()) == pytest.approx(sorted(logged.tolist()), rel=1e-12)
