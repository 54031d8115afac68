"""What-if in a hurry: kept orders, single curves, tokens in parts, samples; always the numbers of the slow way."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if import (
    MEASURES,
    Digest,
    Rule,
    apply,
    described,
    evaluate_rule,
    load_in_parts,
    load_tokens,
    rebuilt,
    result_of,
    stops,
    sweep,
    sweep_values,
    swept,
    tokens_of,
    value_of,
)
from ratioscope.analysis.what_if.tails import tops
from ratioscope.analysis.what_if.tokens import EVERYTHING
from ratioscope.errors import RatioscopeError
from ratioscope.rules.parameters import PARAMETERS
from tests.making.runs import numbered_step, write_run
from tests.oracles.what_if import RULES, random_columns, rule_of, rules

LARGE = tokens_of(random_columns(1, groups=30, steps=3, spread=0.6))
SOME = [rule_of("one_side"), rule_of("two_side", "truncated"), rule_of("soft"), rule_of("masked", level="sequence"),
        rule_of("window", "incremental"), rule_of("none", "geometric_of_clipped")]  # fmt: skip
some = pytest.mark.parametrize("rule", SOME, ids=str)


@rules
def test_the_largest_weight_is_that_of_its_definition(rule: Rule) -> None:
    outcome = apply(rule, LARGE)
    tokens, signal = outcome.tokens, outcome.tokens.signal.numpy()
    level = np.concatenate([block.tokens.level(rule.weight_level).ratios.behavior.numpy() for block in outcome.blocks])
    applied = outcome.applied.numpy()
    for part in (EVERYTHING, *LARGE.steps.values()):
        of = {"raw": np.exp(level[part.tokens][signal[part.tokens]]), "applied": applied[part.tokens]}
        for name, weights in of.items():
            (found,) = tops(rule, outcome.blocks, name, [part])
            weights = weights[weights > 0]
            assert found.largest == pytest.approx(weights.max(initial=0), rel=1e-12)
            if not rule.shares_weights:
                assert found.n == len(weights)
    assert len(tokens) <= len(LARGE)


@rules
def test_a_curve_is_the_measure_of_every_step(rule: Rule) -> None:
    outcome = apply(rule, LARGE)
    for key in MEASURES:
        curve = outcome.curve(key)
        if curve is None:
            assert all(key in numbers.notes for numbers in outcome.by_step.values())
            continue
        for place, numbers in enumerate(outcome.by_step.values()):
            assert curve.values[place] == pytest.approx(numbers.values[key], nan_ok=True)
            assert curve.trusted[place] == (key not in numbers.notes), key
            if key in numbers.intervals:
                assert (curve.low[place], curve.high[place]) == pytest.approx(numbers.intervals[key])


@some
def test_a_few_measures_alone_are_the_same(rule: Rule) -> None:
    whole = apply(rule, LARGE).overall
    for key in [*MEASURES, "ess", "ess_raw", "max_weight", "max_weight_raw"]:
        alone = apply(rule, LARGE, [key]).overall
        assert alone.values.keys() == {key}
        assert alone.values[key] == pytest.approx(whole.values[key], nan_ok=True)
        assert alone.notes.get(key) == whole.notes.get(key)
        assert alone.intervals.get(key) == whole.intervals.get(key)
        assert all(described(key))


def in_parts(rule: Rule, keys: tuple[str, ...] | None = None) -> Digest:
    """The rule on the steps of LARGE, one at a time."""
    plain = random_columns(1, groups=30, steps=3, spread=0.6)
    parts = (tokens_of({name: values[plain["step"] == step] for name, values in plain.items()}) for step in range(3))
    return result_of(evaluate_rule([rule], parts, keys=keys, curves=("clip_fraction", "drift_kept")))[0]


@rules
def test_tokens_in_parts_have_the_numbers_of_all_of_them(rule: Rule) -> None:
    whole, found = apply(rule, LARGE), in_parts(rule)
    assert found.values == pytest.approx(whole.values, rel=1e-9, abs=1e-12, nan_ok=True)
    assert found.overall.notes == whole.overall.notes
    assert found.overall.intervals.keys() == whole.overall.intervals.keys()
    for key, interval in whole.overall.intervals.items():
        assert found.overall.intervals[key] == pytest.approx(interval, rel=1e-9, abs=1e-12)
    assert found.steps == (0, 1, 2) and found.n_tokens == len(LARGE)
    for key in ("clip_fraction", "drift_kept"):
        curve, expected = found.curves[key], whole.curve(key)
        assert curve is not None and expected is not None
        assert curve.values == pytest.approx(expected.values, nan_ok=True)


def test_work_can_be_followed_and_left() -> None:
    rules_of = [rule_of(), rule_of("one_side")]
    work = evaluate_rule(rules_of, [LARGE, LARGE])
    assert [next(work) for _ in range(2)] == [len(LARGE), 2 * len(LARGE)]
    work.close()
    assert [digest.rule for digest in result_of(evaluate_rule(rules_of, [LARGE]))] == rules_of


def test_what_a_part_does_not_log_is_not_there_for_all() -> None:
    without = replace(LARGE, logp_new=None)
    (found,) = result_of(evaluate_rule([rule_of()], [LARGE, without], curves=("drift_kept",)))
    assert found.overall.notes["drift_kept"].text == "logp_new is not logged" and found.curves["drift_kept"] is None


def test_a_sweep_in_parts_is_the_sweep() -> None:
    rule, values = rule_of("none", "truncated"), [1.0, 1.5, 3.0]
    digests = result_of(evaluate_rule([rule.with_parameter("cap", value) for value in values], [LARGE]))
    found, expected = swept("cap", digests), sweep(rule, "cap", values, LARGE)
    assert found.index.tolist() == values
    assert found["bias_proxy"].to_numpy() == pytest.approx(expected["bias_proxy"].to_numpy())
    assert found["unreliable"].tolist() == expected["unreliable"].tolist()


def test_a_sample_of_loaded_tokens_is_of_whole_groups() -> None:
    sample = LARGE.sample(200, seed=3)
    assert 0 < len(sample) <= 200 and sample.fraction == pytest.approx(len(sample) / len(LARGE))
    sizes = set(np.bincount(LARGE.group.numpy()).tolist())
    assert set(np.bincount(sample.group.numpy()).tolist()) <= sizes
    assert LARGE.sample(10**9) is LARGE
    assert len(LARGE.sample(1).group_starts) == 1
    assert LARGE.sample(200, seed=3).logp_current.tolist() == sample.logp_current.tolist()


def test_loading_in_parts_reads_every_step_once(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [numbered_step(step) for step in range(5)]))
    sizes = {step: len(load_tokens(run, step, step)) for step in range(5)}
    parts = list(load_in_parts(run, sizes, 2 * max(sizes.values())))
    assert [step for part in parts for step in part.steps] == [0, 1, 2, 3, 4] and len(parts) < 5
    assert len(list(load_in_parts(run, sizes, 1))) == 5


# Scales -------------------------------------------------------------------------------------------------------------


def test_every_parameter_has_a_scale_that_its_range_allows() -> None:
    for name, row in PARAMETERS.items():
        assert all(row.allows(value) for value in (row.scale.low, row.scale.high, row.scale.typical))
        positions = stops(name, 0.12345, float("inf"))
        assert all(early < late for early, late in pairwise(positions)) and 10 < len(positions) < 100
        assert (0.12345 in positions) == PARAMETERS[name].allows(0.12345)


@rules
def test_a_sweep_stays_within_what_the_rule_allows(rule: Rule) -> None:
    for name in rule.parameters:
        values = sweep_values(rule, name)
        assert len(values) > 5 and values == sorted(values)
        assert all(value_of(rule.with_parameter(name, value), name) == value for value in values)
    with pytest.raises(RatioscopeError, match="has no parameter 'nonsense'"):
        sweep_values(rule, "nonsense")


def test_every_rule_can_be_reached_by_changing_one_part_at_a_time() -> None:
    for rule in RULES:
        changed = rebuilt(rule_of("two_side", epsilon_low=1.0), gate=rule.gate)
        changed = rebuilt(changed, weight=rule.weight, gate_level=rule.gate_level, weight_level=rule.weight_level)
        parts = (changed.gate, changed.weight, changed.gate_level, changed.weight_level)
        assert parts == (rule.gate, rule.weight, rule.gate_level, rule.weight_level)
    kept = rebuilt(rule_of("one_side", epsilon_low=0.3), gate="ring", known={"outer_low": 0.1, "epsilon_low": 0.9})
    assert kept.gate_parameters["epsilon_low"] == 0.3 == kept.gate_parameters["outer_low"]
