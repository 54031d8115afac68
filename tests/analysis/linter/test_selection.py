"""What is left out of the loss is named where it is long, cut off, chosen by reward, empty or a rank's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Finding, lint
from ratioscope.analysis.runs.store import Run, open_run
from tests.analysis.linter.remarks import asked
from tests.cases.held_out_seventh import HELD_OUT_SEVENTH
from tests.cases.world import Call, Shape, compared, set_advantages, share, simulate, write
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, write_run

Bools = NDArray[np.bool_]
N, GROUP, LONGEST = 64, 8, 40


@dataclass
class Batch:
    """The responses of a step."""

    rng: np.random.Generator
    length: NDArray[np.int64]
    reward: NDArray[np.float64]
    rejected: Bools = field(default_factory=lambda: np.zeros(N, dtype=bool))
    dropped: Bools = field(default_factory=lambda: np.zeros(N, dtype=bool))
    baseline: Bools = field(default_factory=lambda: np.ones(N, dtype=bool))
    """Which responses count in the baseline."""
    rescaled: bool = False
    rank: NDArray[np.int64] = field(default_factory=lambda: np.arange(N) % 4)
    failed: Bools = field(default_factory=lambda: np.zeros(N, dtype=bool))
    failure: str = ""
    """What the log calls the failed ones; "": only how they ended."""
    stated: bool = False
    """Whether the log says who counts in the baseline."""
    flagged: bool = True
    """Whether responses at the length limit are marked as truncated."""
    prompt: NDArray[np.int64] = field(default_factory=lambda: np.arange(N) // GROUP)
    """Of the prompts of a step, all of which are new."""


Fault = Callable[[Batch], None]


def steps_of(fault: Fault, seed: int) -> Iterator[Step]:
    rng = np.random.default_rng([seed, 6])
    for number in range(12):
        length = np.minimum(rng.geometric(0.08, N) + 2, LONGEST)
        batch = Batch(rng, length, (rng.random(N) < np.repeat(rng.uniform(0.2, 0.8, N // GROUP), GROUP)).astype(float))
        fault(batch)
        group, advantage = np.arange(N) // GROUP, np.zeros(N)
        for each in range(N // GROUP):
            here = (group == each) & batch.baseline
            if here.any():
                advantage[group == each] = batch.reward[group == each] - batch.reward[here].mean()
        sequence = np.repeat(np.arange(N), batch.length)
        n = len(sequence)
        behavior = -rng.exponential(1.5, n) - 0.05
        rejected = batch.rejected[sequence]
        divided = int((~rejected).sum()) if batch.rescaled else n
        weight = np.where(rejected, 0.0, advantage[sequence] / divided)
        step = plain_step(
            behavior, behavior, number=number, sequence=sequence, group=sequence // GROUP,
            advantage=advantage[sequence].astype(np.float32), gradient_weight=weight.astype(np.float32),
            rejected=[("ratio" if each else None) for each in rejected],
        ).with_tokens(token_id=None)  # fmt: skip
        columns: dict[str, Any] = {
            "seq_id": np.arange(N), "group_id": group, "n_tokens": batch.length.astype(np.int32),
            "prompt_id": 100 * number + batch.prompt,
            "reward": batch.reward.astype(np.float32), "rank": batch.rank.astype(np.int32),
            "truncated": (batch.length == LONGEST) & batch.flagged,
            "finish_reason": ["tool_timeout" if each else "stop" for each in batch.failed],
            "dropped": ["filtered" if each else None for each in batch.dropped],
        }  # fmt: skip
        if batch.failure:
            columns["finish_reason"] = ["stop"] * N
            columns["failure"] = [batch.failure if each else None for each in batch.failed]
        if batch.stated:
            columns["in_baseline"] = batch.baseline
        step.sequences.clear()
        step.sequences.update(columns)
        yield step


def nothing(batch: Batch) -> None:
    """All responses are learned from."""


def long_rejected(batch: Batch) -> None:
    batch.rejected = batch.rng.random(N) < np.clip(batch.length / 20, 0, 0.95)


def long_rejected_and_rescaled(batch: Batch) -> None:
    long_rejected(batch)
    batch.rescaled = True


def long_dropped(batch: Batch) -> None:
    batch.dropped = (batch.rng.random(N) < np.clip(batch.length / 20, 0, 0.9)) & (batch.length < LONGEST)


def cut_off(batch: Batch) -> None:
    batch.length = np.where(batch.rng.random(N) < 0.45, LONGEST, np.minimum(batch.length, LONGEST - 1))
    batch.dropped = batch.length == LONGEST


def good_dropped(batch: Batch) -> None:
    batch.dropped = batch.rng.random(N) < np.where(batch.reward > 0, 0.8, 0.2)


def empty(batch: Batch) -> None:
    batch.length = np.where(batch.rng.random(N) < 0.1, 0, batch.length)
    batch.reward = np.where(batch.length == 0, 0.0, batch.reward)


def half_of_the_ranks(batch: Batch) -> None:
    batch.rank = np.arange(N) % 4 * 2


def ranks_of_the_same_prompts(batch: Batch) -> None:
    batch.rank, batch.prompt = np.arange(N) // (2 * GROUP), np.arange(N) // GROUP % 2


def some_prompts_on_two_ranks(batch: Batch) -> None:
    batch.rank, batch.prompt = np.arange(N) // (2 * GROUP), np.arange(N) // GROUP % 5


def not_flagged(batch: Batch) -> None:
    batch.flagged = False


def failed(batch: Batch) -> None:
    batch.failed = batch.rng.random(N) < 0.15
    batch.reward[batch.failed] = 0.0


def judge_failed(batch: Batch) -> None:
    failed(batch)
    batch.failure = "judge"


def unreadable(batch: Batch) -> None:
    """The policy's own doing."""
    failed(batch)
    batch.failure = "parse"


def stated_in_the_baseline(batch: Batch) -> None:
    good_dropped(batch)
    batch.stated = True


def stated_outside_of_the_baseline(batch: Batch) -> None:
    not_in_the_baseline(batch)
    batch.stated = True


def failed_and_dropped(batch: Batch) -> None:
    failed(batch)
    batch.dropped, batch.baseline = batch.failed, ~batch.failed


def failed_as_others(batch: Batch) -> None:
    """Some tool timed out, which cost nothing."""
    batch.failed = batch.rng.random(N) < 0.15


def short(batch: Batch) -> None:
    """No response comes near a limit."""
    batch.length, batch.flagged = np.minimum(batch.length, 20 + batch.rng.integers(0, 12, N)), False


def anyhow(batch: Batch) -> None:
    """Many are rejected, whatever they are."""
    batch.rejected = batch.rng.random(N) < 0.5


def few_long(batch: Batch) -> None:
    batch.rejected = (batch.rng.random(N) < 0.2) & (batch.length > 15)


def not_in_the_baseline(batch: Batch) -> None:
    good_dropped(batch)
    batch.baseline = ~batch.dropped


class Case(NamedTuple):
    fault: Fault
    causes: tuple[str, ...]
    words: str
    severity: Severity = Severity.WARNING


FAULTS = {
    case.fault.__name__: case
    for case in (
        Case(long_rejected, ("long_rejected", "in_the_baseline_only", "rejected_in_the_mean"), "by quarter of length"),
        Case(long_rejected_and_rescaled, ("long_rejected", "in_the_baseline_only"), "by quarter of length"),
        Case(long_dropped, ("long_dropped", "in_the_baseline_only"), "by quarter of length"),
        Case(cut_off, ("long_cut_off", "in_the_baseline_only"), "length limit", Severity.NOTICE),
        Case(good_dropped, ("chosen_by_reward", "in_the_baseline_only"), "mean reward", Severity.NOTICE),
        Case(not_in_the_baseline, ("chosen_by_reward",), "mean reward", Severity.NOTICE),
        Case(empty, ("empty_responses",), "have no token"),
        Case(not_flagged, ("truncation_unmarked",), "end at 40 tokens"),
        Case(failed, ("failures_scored",), "tool_timeout"),
        Case(judge_failed, ("failures_scored",), "(judge)"),
        Case(stated_in_the_baseline, ("chosen_by_reward", "in_the_baseline_only"), "mean reward", Severity.NOTICE),
        Case(stated_outside_of_the_baseline, ("chosen_by_reward",), "mean reward", Severity.NOTICE),
        Case(ranks_of_the_same_prompts, ("loader_not_sharded",), "4 ranks have one set of 2"),
        Case(half_of_the_ranks, ("ranks_missing",), "1, 3 and 5"),
    )
}


def remarks(folder: Path, fault: Fault, seed: int = 0, parts: dict[str, str] | None = None) -> list[Finding]:
    algorithm = {"name": "grpo"} | ({"parts": parts} if parts else {})
    run = open_run(write_run(folder, steps_of(fault, seed), algorithm=algorithm))
    return asked(run, "selection")


@in_one_loop("case", FAULTS)
def test_a_selection_is_named(tmp_path: Path, case: Case) -> None:
    found = remarks(tmp_path / case.fault.__name__, case.fault)
    assert {each.of_cause for each in found} == {*case.causes}, [each.sentence for each in found]
    (named,) = (each for each in found if each.of_cause == case.causes[0])
    assert case.words in named.sentence + named.why and named.severity is case.severity


NEAR_MISSES = (nothing, few_long, failed_as_others, short, unreadable, some_prompts_on_two_ranks)


@in_one_loop("fault", {fault.__name__: fault for fault in NEAR_MISSES})
def test_a_near_miss_is_not_named(tmp_path: Path, fault: Fault) -> None:
    for seed in range(2):
        found = remarks(tmp_path / f"{fault.__name__} {seed}", fault, seed)
        assert [each.sentence for each in found if each.severity] == []


def test_failures_that_are_dropped_are_not_named(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", failed_and_dropped)
    assert "failures_scored" not in {each.of_cause for each in found}


def test_what_is_rejected_whatever_it_is_is_no_choice(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", anyhow)
    assert {each.of_cause for each in found} == {"in_the_baseline_only", "rejected_in_the_mean"}
    assert all(each.severity is Severity.NOTICE for each in found)


def test_a_selection_that_the_manifest_states_is_none(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", good_dropped, parts={"selection": "balanced"})
    assert not any(each.severity for each in found)


def constant(batch: Batch) -> None:
    """All responses of two of the eight groups are right."""
    batch.reward[: 2 * GROUP] = 1.0


def constant_and_dropped(batch: Batch) -> None:
    constant(batch)
    batch.dropped[: 2 * GROUP] = True


def constant_and_masked(batch: Batch) -> None:
    constant(batch)
    batch.rejected[: 2 * GROUP] = True


def constant_but_for_one_that_is_dropped(batch: Batch) -> None:
    constant(batch)
    batch.reward[: 2 * GROUP : GROUP], batch.dropped[: 2 * GROUP : GROUP] = 0.0, True


def constant_but_for_one_without_a_score(batch: Batch) -> None:
    constant(batch)
    batch.reward[: 2 * GROUP : GROUP] = np.nan


def rarely_constant(batch: Batch) -> None:
    batch.reward[:GROUP] = np.where(batch.rng.random() < 0.3, 1.0, batch.reward[:GROUP])


REMOVES = {"remove_constant_reward_groups": True}


@pytest.mark.parametrize(
    ("fault", "settings", "named"),
    [
        (constant, REMOVES, True),
        (constant, {"filter_groups": {"enable": True, "metric": "acc"}}, True),
        (constant, {"dynamic_sampling": {"type": "filter", "max_sample_batches": 30}}, True),
        (constant, {"dynamic_sampling": {"groups_generated": 16, "groups_kept": 8}}, True),
        (constant, {"use_dynamic_sampling": True}, True),
        (constant, {"dynamic_sampling_filter_path": "hub.dynamic_sampling_filters.check_reward_nonzero_std"}, True),
        (constant, {}, False),
        (constant, {"remove_constant_reward_groups": False}, False),
        (constant, {"filter_groups": {"enable": False, "metric": "acc"}}, False),
        (constant, {"dynamic_sampling": {"type": None, "max_sample_batches": 30}}, False),
        (constant, {"dynamic_sampling_filter_path": "hub.filters.too_long"}, False),
        (constant_and_dropped, REMOVES, False),
        (constant_and_masked, REMOVES, False),
        (constant_but_for_one_that_is_dropped, REMOVES, False),
        (constant_but_for_one_without_a_score, REMOVES, False),
        (rarely_constant, REMOVES, False),
        (nothing, REMOVES, False),
    ],
)
def test_groups_of_equal_rewards_that_stay_are_named(
    fault: Fault, settings: dict[str, Any], named: bool, tmp_path: Path
) -> None:
    algorithm = {"name": "grpo", "parameters": settings}
    run = open_run(write_run(tmp_path / "run", steps_of(fault, 0), algorithm=algorithm))
    said = [each for each in asked(run, "selection") if each.of_cause == "constant_groups_stay"]
    assert len(said) == named
    if named:
        assert "have equal rewards and no advantage" in said[0].sentence and next(iter(settings)) in said[0].sentence
        assert said[0].severity is Severity.WARNING and said[0].examples


def test_groups_of_equal_rewards_with_an_advantage_are_another_matter(tmp_path: Path) -> None:
    """The filter, and the advantages, look at something else than the logged reward."""

    def another_reward(batch: Batch) -> None:
        batch.reward = batch.reward + 0.01 * batch.rng.standard_normal(N)

    def logged(step: Step) -> Step:
        reward = np.array(step.sequences["reward"])
        reward[: 2 * GROUP] = 1.0
        return step.with_sequences(reward=reward)

    steps = (logged(step) for step in steps_of(another_reward, 0))
    run = open_run(write_run(tmp_path / "run", steps, algorithm={"name": "grpo"}, task=REMOVES))
    assert "constant_groups_stay" not in {each.of_cause for each in asked(run, "selection")}


def of_one_token(folder: Path, *, placeholder: float | None, token: int = 0) -> Run:
    """A run of which some responses are one token: that the sampler is certain of, or drawn like the others."""
    log = simulate(Shape(31, lag=0, steps=12, groups=12, noise=0.0, environments=("tools", "maths")))
    short = (log.responses["environment"] == "tools") & (share(log.responses["step"], log.responses["seq_id"]) < 0.3)
    log.keep(~short[log.row] | (log.tokens["position"] == 0))
    alone = short[log.row]
    if placeholder is not None:
        log.tokens["token_id"] = np.where(alone, token, log.tokens["token_id"])
        log.tokens["logp_behavior"] = np.where(alone, placeholder, log.tokens["logp_behavior"])
        for name in ("logp_behavior_train", "logp_current", "logp_new"):
            log.tokens[name] = np.where(alone, -9.0 - 3 * share(log.row, log.tokens["step"]), log.tokens[name])
    log.responses["n_tokens"] = log.lengths()
    log.responses["reward"] = np.where(short, 0.0, log.responses["reward"])
    return open_run(write(set_advantages(log, compared(log.responses["reward"], log.responses["group_id"])), folder))


def test_placeholders_of_one_token_are_no_responses_and_no_temperature(tmp_path: Path) -> None:
    run = of_one_token(tmp_path / "run", placeholder=0.0)
    (found,) = asked(run, "selection")
    assert found.of_cause == "placeholder_responses" and "of 'tools' are token 0 alone" in found.sentence
    (named,) = (each for each in lint(run) if each.of_cause == "placeholder_responses")
    assert named.wrong_rows is not None and 0 < named.wrong_rows.share < 0.02
    (zeros,) = asked(run, "zero_filled")
    assert "whole responses" in zeros.sentence and "BOS" not in zeros.sentence
    assert not any(each.is_problem for each in asked(run, "temperature"))


def test_short_responses_that_were_drawn_are_no_placeholders(tmp_path: Path) -> None:
    run = of_one_token(tmp_path / "run", placeholder=None)
    assert "placeholder_responses" not in {each.of_cause for each in asked(run, "selection")}


def test_a_few_tokens_of_any_constant_are_no_temperature(tmp_path: Path) -> None:
    run = of_one_token(tmp_path / "run", placeholder=-0.4)
    assert not any(each.is_problem for each in asked(run, "temperature"))


def sampled(folder: Path, sharper: float, seeds: bool = True, every: int = 1) -> list[Finding]:
    """What is said of a sampler that draws from its log-probabilities times a number, and logs them as they are.

    Args:
        seeds: whether each response has one of its own, not all of a group the same.
        every: so many steps it is so, and in those between tokens are drawn as they are logged.
    """

    def draw(call: Call, logp: NDArray[np.float64]) -> NDArray[np.float64]:
        others = (call.of("step") % every != 0)[:, None]
        if seeds:
            return np.where(others, logp, sharper * logp)
        keys = np.arange(logp.shape[1]), call.of("prompt_id")[:, None], call.position
        # A forced choice from the same numbers for all of a group.
        drawn = (logp - np.log(-np.log(share(*keys)))).argmax(axis=1)
        return np.where(others, logp, np.where(np.arange(logp.shape[1]) == drawn[:, None], 0.0, -1e9))

    log = simulate(Shape(37, lag=1, steps=12, closing=0.1, noise=0.02), draw=draw, logs_raw=True)
    return lint(open_run(write(log, folder, "verl")))


def test_the_likeliest_token_each_time_is_no_draw_and_no_copy(tmp_path: Path) -> None:
    """Neither the entropy is wrong, nor are there copies among the rows."""
    (named,) = (each for each in sampled(tmp_path / "run", 1e3) if each.is_problem)
    assert named.of_cause == "greedy" and "less surprising than their entropy" in named.sentence
    assert "the cases" in named.why and named.wrong_rows is None


def test_a_lower_temperature_and_one_seed_are_not_greedy(tmp_path: Path) -> None:
    sharper = sampled(tmp_path / "sharper", 2.0)
    assert "greedy" not in {each.of_cause for each in sharper}
    assert any(each.is_problem for each in sharper if each.rule == "drawn_as_logged")
    alike = {each.of_cause for each in sampled(tmp_path / "alike", 1.0, seeds=False)}
    assert "one_seed" in alike and "greedy" not in alike


def test_the_likeliest_token_in_some_steps_is_told_from_one_seed_in_them(tmp_path: Path) -> None:
    found = [each for each in sampled(tmp_path / "greedy", 1e3, every=4) if each.is_problem]
    (named,) = (each for each in found if each.of_cause)
    assert named.of_cause == "greedy_in_some_steps" and "in 3 steps (first 0, last 8)" in named.sentence
    assert "repeated" not in {each.rule for each in found} and named.wrong_rows is None
    alike = sampled(tmp_path / "alike", 1.0, seeds=False, every=4)
    assert "greedy_in_some_steps" not in {each.of_cause for each in alike}
    assert "repeated" in {each.rule for each in alike if each.is_problem}


def test_servers_of_one_seed_are_named_and_their_rows_are_no_copies(tmp_path: Path) -> None:
    """One server that logs its responses twice is another matter."""
    log = HELD_OUT_SEVENTH["servers_with_one_seed"].make()
    named = {each.rule: each for each in lint(open_run(write(log, tmp_path / "seed", "verl"))) if each.is_problem}
    assert set(named) == {"selection"} and named["selection"].of_cause == "servers_share_a_seed"
    assert "90" in named["selection"].sentence and named["selection"].wrong_rows is None
    log.responses["engine"][:] = "server-0"
    alone = [each for each in lint(open_run(write(log, tmp_path / "alone", "verl"))) if each.is_problem]
    assert "repeated" in {each.rule for each in alone} and not any(each.of_cause for each in alone)


def test_the_same_tokens_in_another_order_are_another_response(tmp_path: Path) -> None:
    """As in a vocabulary of a few words: 0 1 0 1 is not 1 0 1 0."""
    at = np.arange(256)  # eight groups of two responses of 16 tokens
    steps = []
    for number in range(4):
        step = plain_step(
            *np.full((3, 256), -1.0), number=number, sequence=at // 16, group=at // 32, token_id=(at + at // 16) % 2
        )
        step.sequences["engine"] = np.array(["a", "b"] * 8, dtype=object)
        steps.append(step)
    found = lint(open_run(write_run(tmp_path / "run", steps)))
    assert not {each.of_cause for each in found} & {"one_seed", "servers_share_a_seed"}


@pytest.mark.parametrize("padded", [True, False])
def test_a_threshold_over_padding_keeps_too_many_tokens(tmp_path: Path, *, padded: bool) -> None:
    """One over the tokens of each batch alone keeps the same share of them in all."""
    log = simulate(Shape(67, lag=0, steps=12))
    tokens, lengths = log.tokens, log.responses["n_tokens"]
    batch = log.responses["step"] * 4 + log.responses["rank"]
    out = np.zeros(len(log.row), dtype=bool)
    for one in np.unique(batch):
        rows = np.flatnonzero(batch[log.row] == one)
        whole = int((batch == one).sum()) * int(lengths[batch == one].max())
        padding = np.zeros((whole - len(rows)) * padded)
        lowest = np.quantile(np.concatenate([tokens["entropy"][rows], padding]), 0.8)
        out[rows] = tokens["entropy"][rows] < lowest
    tokens["rejected"] = np.where(out, "low entropy", None)
    tokens["gradient_weight"] = np.where(out, 0.0, tokens["gradient_weight"])
    found = asked(open_run(write(log, tmp_path / "run")), "selection")
    named = [each for each in found if each.of_cause == "padding_in_the_threshold"]
    assert bool(named) is padded
    assert all("20" in each.sentence and "padding together" in each.sentence for each in named)
