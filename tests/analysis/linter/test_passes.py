"""Noise of each pass, one seed for all, entropies of other tokens, an end without a gradient, a filter of wrong ends.

Each is held against what looks like it: values of other tokens, a policy that is certain, true entropies on old data.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ratioscope.analysis.findings.finding import Finding, Outcome, Severity
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.faults import sharper
from tests.cases.held_out import HELD_OUT
from tests.cases.world import END, Array, Call, Log, Shape, apply_loss, simulate, write

SMALL = Shape(31, steps=12, groups=6, responses=6, longest=40)


def found(log: Log, folder: Path, name: str) -> list[Finding]:
    """What a check finds in a log."""
    run = open_run(write(log, folder / name))
    return [remark for remark in asked(run, name) if remark.outcome is Outcome.FOUND]


def noisy(log: Log, which: str, logits: Array) -> Array:
    """A trainer with dropout."""
    return logits + 0.6 * log.rng.standard_normal(logits.shape)


def test_noise_of_each_pass_does_not_break_a_log(tmp_path: Path) -> None:
    remarks = found(simulate(SMALL, trainer=noisy), tmp_path, "own_token")
    assert {remark.severity for remark in remarks} == {Severity.NOTICE}
    assert all("differs from pass to pass" in remark.sentence and "dropout" in remark.do for remark in remarks)


def test_values_of_other_tokens_are_no_noise(tmp_path: Path) -> None:
    log = simulate(SMALL)
    log.tokens["logp_current"] = log.rng.permutation(log.tokens["logp_current"])
    remarks = found(apply_loss(log), tmp_path, "own_token")
    assert [remark.severity for remark in remarks] == [Severity.CRITICAL]


def test_another_context_behind_the_first_of_a_group_is_no_value_of_another_token(tmp_path: Path) -> None:
    """A group's first response whose values are of other tokens is told from it by the mean ratio."""
    wrong = np.random.default_rng(3).standard_normal((SMALL.states, SMALL.vocabulary))

    def cached(log: Log, which: str, logits: Array) -> Array:
        part = 0.5 * np.exp(-log.tokens["position"] / 18) * (log.of_token("seq_id") % SMALL.responses > 0)
        return logits + part[:, None] * wrong[log.state]

    remarks = found(simulate(SMALL, trainer=cached), tmp_path / "cached", "own_token")
    assert {remark.severity for remark in remarks} == {Severity.NOTICE}
    assert all("without the first response of each group" in remark.sentence for remark in remarks)
    log = simulate(SMALL)
    (first,) = np.nonzero(log.of_token("seq_id") % SMALL.responses == 0)
    log.tokens["logp_current"][first] = log.tokens["logp_current"][log.rng.permutation(first)]
    (remark,) = found(apply_loss(log), tmp_path / "moved", "own_token")
    assert remark.severity is Severity.CRITICAL and "belong to other tokens" in remark.do


def causes(log: Log, folder: Path, check: str) -> list[str]:
    return [remark.of_cause for remark in found(log, folder, check)]


def test_one_seed_for_all(tmp_path: Path) -> None:
    assert causes(HELD_OUT["one_seed_for_all"].make(), tmp_path, "selection") == ["one_seed"]


def test_a_certain_policy_repeats_itself(tmp_path: Path) -> None:
    """Its responses are the same, as they must be."""
    log = simulate(Shape(32, steps=12, sure=1.0), prepare=sharper(lambda version: 40.0 + 0 * version))
    first = log.tokens["position"] == 0
    assert np.exp(log.tokens["logp_behavior"][first]).mean() > 0.99
    assert causes(log, tmp_path, "selection") == []


def test_entropies_of_other_tokens(tmp_path: Path) -> None:
    log = simulate(SMALL)
    log.tokens["entropy"] = log.rng.permutation(log.tokens["entropy"])
    (remark,) = found(log, tmp_path, "entropy_agrees")
    assert "other tokens" in remark.sentence


def test_an_entropy_that_is_too_small_is_told_from_a_draw_that_is_not_logged(tmp_path: Path) -> None:
    """The first is less than such tokens allow; of the second entropies and log-probabilities are right."""

    def draw(call: Call, logp: Array) -> Array:
        return np.where((call.rng.random(len(logp)) < 0.75)[:, None], 1.2 * logp, logp)

    (small,) = found(simulate(Shape(36), entropy_at=0.6), tmp_path / "small", "entropy_agrees")
    assert "no distribution" in small.sentence and small.columns == ("entropy", "logp_current")
    (drawn,) = found(simulate(Shape(36), draw=draw, logs_raw=True), tmp_path / "drawn", "entropy_agrees")
    assert "tokens were not drawn from them or the entropy is wrong" in drawn.sentence
    assert drawn.columns == ("logp_behavior", "entropy") and "drafts" in drawn.do


def test_true_entropies_follow_the_tokens_on_old_data(tmp_path: Path) -> None:
    log = simulate(Shape(33, steps=16, lag=8, schedule="offset", drift=0.12))
    assert found(log, tmp_path, "entropy_agrees") == []


def without_gradient(rows: Callable[[Log], Array]) -> Log:
    log = simulate(Shape(34, steps=12))
    log.tokens["gradient_weight"][rows(log).astype(bool)] = 0.0
    return log


def test_an_end_token_without_a_gradient(tmp_path: Path) -> None:
    ends = without_gradient(lambda log: log.tokens["token_id"] == END)
    assert causes(ends, tmp_path, "applied_loss") == ["end_token_masked"]
    at_random = without_gradient(lambda log: log.rng.random(len(log.row)) < 0.3)
    assert "end_token_masked" not in causes(at_random, tmp_path / "other", "applied_loss")


def test_finished_responses_left_out_as_overlong(tmp_path: Path) -> None:
    log = HELD_OUT["finished_ones_masked_as_overlong"].make()
    assert causes(log, tmp_path, "selection")[0] == "finished_as_overlong"


def test_a_filter_by_length_is_one_of_length(tmp_path: Path) -> None:
    log = simulate(Shape(35, steps=12))
    masked = log.lengths()[log.row] > 35
    log.tokens["rejected"] = np.where(masked, "overlong", None)
    log.tokens["gradient_weight"][masked] = 0.0
    assert "finished_as_overlong" not in causes(log, tmp_path, "selection")


def test_the_best_response_has_not_the_smaller_advantage(tmp_path: Path) -> None:
    log = HELD_OUT["others_keep_their_rewards"].make()
    (remark,) = found(log, tmp_path, "advantages")
    assert "than the second best one" in remark.sentence


def test_responses_without_token_ids_are_passed_by(tmp_path: Path) -> None:
    """As a server that names some tokens by their text leaves them."""
    log = simulate(SMALL)
    rules = {remark.rule for remark in lint(open_run(write(log, tmp_path / "all"))) if remark.outcome is Outcome.FOUND}
    unknown = np.asarray(log.tokens["seq_id"]) % 3 == 0
    log.tokens["token_id"] = np.ma.masked_array(log.tokens["token_id"], unknown)
    remarks = lint(open_run(write(log, tmp_path / "some")))
    assert {remark.rule for remark in remarks if remark.outcome is Outcome.FOUND} == rules
    assert {"padding", "repeated"} <= {remark.rule for remark in remarks if remark.outcome is Outcome.PASSED}
