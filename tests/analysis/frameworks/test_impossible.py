"""What a trainer logged and cannot be is one sentence a column, with the release that is known; what can be is none."""

from pathlib import Path
from typing import Any

import pytest

from ratioscope.analysis.frameworks.impossible import impossible
from ratioscope.analysis.runs.store import open_run
from tests.making.runs import plain_step, write_run

EPSILON = {"algorithm": {"name": "grpo", "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.28}}}


def said(folder: Path, column: str, values: list[float], **manifest: Any) -> list[str]:
    steps = [plain_step([-1.0], [-1.0], number=number) for number in range(len(values))]
    for step, value in zip(steps, values, strict=True):
        step.scalars[column] = value
    return impossible(open_run(write_run(folder, steps, **manifest)))


@pytest.mark.parametrize(
    ("column", "values", "manifest", "words"),
    [
        (
            "extra_actor_clip_fraction",
            [0.1, 31.0, 2.0],
            {"source": {"framework": "RLinf"}},
            "extra_actor_clip_fraction is 31 in step 1, and a fraction is never above 1: 2 of 3 steps. "
            "RLinf logged sums over the dimensions of an action (RLinf #1471).",
        ),
        (
            "extra_clip_ratio_low_mean",
            [0.1, -0.2],
            {"source": {"framework": "TRL"}},
            "extra_clip_ratio_low_mean is -0.2 in step 1, and a fraction is never below 0: 1 of 2 steps.",
        ),
        (
            "extra_actor_entropy",
            [-0.5, 1.0],
            {},
            "extra_actor_entropy is -0.5 in step 0, and an entropy of tokens is never below 0: 1 of 2 steps.",
        ),
        (
            "extra_objective_entropy",
            [-3.0],
            {"source": {"framework": "TRL"}},
            "extra_objective_entropy is -3 in step 0, and an entropy is never below 0: 1 of 1 steps. TRL's PPOTrainer "
            "took 1 off for each padded place (TRL #6121).",
        ),
        (
            "extra_completions_min_length",
            [0.0, 3.0],
            {"source": {"framework": "TRL"}},
            "extra_completions_min_length is 0 in step 0, and the length of a completion is never below 1: 1 of 2 "
            "steps. TRL took the length of a truncated response, whose mask is zeroed, for 0 (TRL #3476).",
        ),
        (
            "extra_training_rollout_probs_diff_max",
            [0.4, 1.6],
            {},
            "extra_training_rollout_probs_diff_max is 1.6 in step 1, and a difference of probabilities is never above "
            "1: 1 of 2 steps.",
        ),
        (
            "extra_training_rollout_actor_probs_pearson_corr",
            [-1.5],
            {},
            "extra_training_rollout_actor_probs_pearson_corr is -1.5 in step 0, and a correlation is never below -1: "
            "1 of 1 steps.",
        ),
        (
            "extra_rollout_corr_training_ppl",
            [0.5],
            {},
            "extra_rollout_corr_training_ppl is 0.5 in step 0, and a perplexity is never below 1: 1 of 1 steps.",
        ),
        (
            "extra_token_mult_prob_error",
            [0.9],
            {},
            "extra_token_mult_prob_error is 0.9 in step 0, and a mean of e to an absolute value is never below 1: "
            "1 of 1 steps.",
        ),
        (
            "extra_sampling_importance_sampling_ratio_max",
            [2.9, 3.5],
            {"algorithm": {"name": "grpo", "parameters": {"vllm_importance_sampling_clip_max": 3.0}}},
            "extra_sampling_importance_sampling_ratio_max is 3.5 in step 1, and a weight that is cut at its largest is "
            "never above 3: 1 of 2 steps.",
        ),
        (
            "extra_rollout_corr_k3_kl",
            [0.1, -0.01],
            {},
            "extra_rollout_corr_k3_kl is -0.01 in step 1, and a KL by k3 is never below 0: 1 of 2 steps.",
        ),
        (
            "extra_probs_ratio_clamped_min",
            [0.4, 0.8],
            {"source": {"framework": "NeMo-RL"}, **EPSILON},
            "extra_probs_ratio_clamped_min is 0.4 in step 0, and a ratio inside of its clip is never below 0.8: 1 of 2 "
            "steps. NeMo-RL logged means over micro-batches of smallest and largest ratios (NeMo-RL #1818).",
        ),
    ],
)
def test_an_impossible_value_is_a_sentence(
    tmp_path: Path, column: str, values: list[float], manifest: dict[str, Any], words: str
) -> None:
    assert said(tmp_path / "run", column, values, **manifest) == [words]


@pytest.mark.parametrize(
    ("column", "values", "manifest"),
    [
        ("extra_actor_clip_fraction", [0.0, 1.0, float("nan")], {}),
        ("extra_actor_entropy_loss", [-0.5], {}),  # a term of the loss has a sign
        ("extra_actor_approx_kl", [-0.01], {}),  # k1 may be negative
        ("extra_probs_ratio_clamped_max", [1.28], EPSILON),
        ("extra_probs_ratio_clamped_max", [9.0], {}),  # nobody says what the clip is
        ("extra_rollout_corr_k3_kl", [-1e-4], {}),  # rounding
        ("extra_fraction_of_seconds_std", [3.0], {}),
        ("extra_clip_ratio_c", [3.0], {}),  # a setting
        ("extra_loss_clipped_ratio_max", [1.2], {}),  # a ratio
        ("extra_completions_min_terminated_length", [0.0], {}),  # nothing has ended
        ("extra_completions_min_length", [1.0], {}),
        ("extra_sampling_importance_sampling_ratio_max", [9.0], {}),  # nobody says where it is cut
        ("extra_rollout_corr_training_log_ppl", [0.5], {}),
        ("extra_objective_kl", [-1.0], {}),
    ],
)
def test_what_can_be_is_not_said(tmp_path: Path, column: str, values: list[float], manifest: dict[str, Any]) -> None:
    assert said(tmp_path / "run", column, values, **manifest) == []


def test_a_report_of_another_framework_is_not_named(tmp_path: Path) -> None:
    (sentence,) = said(tmp_path / "run", "extra_clipfrac", [2.0], source={"framework": "verl"})
    assert "#" not in sentence


def test_a_smallest_value_above_the_largest_is_said(tmp_path: Path) -> None:
    steps = [plain_step([-1.0], [-1.0], number=number) for number in range(3)]
    for step, (low, high) in zip(steps, [(0.5, 0.9), (1.4, 1.1), (1.0, 1.0)], strict=True):
        step.scalars["extra_probs_ratio_min"], step.scalars["extra_probs_ratio_max"] = low, high
    (sentence,) = impossible(open_run(write_run(tmp_path / "run", steps)))
    assert sentence == (
        "extra_probs_ratio_min is 1.4 in step 1, above extra_probs_ratio_max, 1.1: 1 of 3 steps."
    )  # fmt: skip
