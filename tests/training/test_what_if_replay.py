"""The what-if analysis replays what the trainer did from the manifest and the logged columns."""

import pytest

from analysis.store import open_run
from analysis.what_if import apply, load, own_rule
from tests.answers.what_if_oracle import logged
from tests.training.replay import Run, logged_ratios, steps_of
from trainer.algorithms import ALGORITHMS


def test_the_own_rule_of_an_algorithm_gives_its_logged_clipping(recorded: Run, algorithm: str) -> None:
    run = open_run(recorded(algorithm).folder)
    own, tokens = own_rule(run), load(run)
    declared = ALGORITHMS[algorithm]
    assert own.rule is not None and not own.reason
    assert (own.rule.gate, own.rule.weight) == (declared.gate, declared.weight)
    assert own.rule.gate_level == own.rule.weight_level == declared.level
    decision = apply(own.rule, tokens).decision
    rows = logged(run, tokens)
    assert decision.clipped.tolist() == rows["clipped"].tolist()
    assert decision.side.tolist() == rows["clip_side"].tolist()
    assert decision.value.tolist() == pytest.approx(rows["gate"].tolist(), rel=1e-6, abs=0)


def test_ratios_are_those_of_the_loss(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    tokens = load(open_run(run.folder), 2, 2)
    expected = logged_ratios(run, steps_of(run.folder)[2])
    level = tokens.level(ALGORITHMS[algorithm].level).ratios
    for found, used in zip(level, expected, strict=True):
        assert sorted(found.tolist()) == pytest.approx(sorted(used.tolist()), rel=1e-12)
