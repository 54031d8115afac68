"""What a trainer logged and cannot be is one sentence a column, with the release that is known; what can be is none."""

from pathlib import Path
from typing import Any

import numpy as np
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
            "extra_is_masked_mean",
            [0.2, 1.5],
            {"source": {"framework": "prime-rl"}},
            "extra_is_masked_mean is 1.5 in step 1, and a fraction is never above 1: 1 of 2 steps.",
        ),
        (
            "extra_clip_ratio_region_mean",
            [0.1, float("nan"), float("nan")],
            {"source": {"framework": "TRL"}},
            "extra_clip_ratio_region_mean is NaN in step 1, and a clip fraction is a finite number: 2 of 3 steps.",
        ),
        (
            "extra_actor_pg_clipfrac",
            [float("-inf")],
            {},
            "extra_actor_pg_clipfrac is infinite in step 0, and a clip fraction is a finite number: 1 of 1 steps.",
        ),
        (
            "extra_sampling_importance_sampling_ratio_max",
            [1.0, float("inf")],
            {},
            "extra_sampling_importance_sampling_ratio_max is infinite in step 1, and a ratio of probabilities is a "
            "finite number: 1 of 2 steps.",
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
        ("extra_actor_clip_fraction", [0.0, 1.0], {}),
        ("extra_frac_reward_zero_std", [0.5, float("nan")], {}),  # a mean of no groups
        ("extra_kl_ent_ratio_mean", [float("inf")], {}),  # of a policy that is certain
        ("extra_completions_clipped_ratio", [float("nan")], {}),
        ("extra_is_masked_mean", [1.0], {"source": {"framework": "prime-rl"}}),
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


def test_a_ratio_that_a_step_does_not_have_is_not_one_that_is_not_a_number(tmp_path: Path) -> None:
    steps = [plain_step([-1.0], [-1.0], number=number) for number in range(3)]
    steps[1].scalars["extra_clip_ratio_region_mean"] = 0.5
    assert impossible(open_run(write_run(tmp_path / "run", steps))) == []


def beside(folder: Path, columns: dict[str, list[float]], framework: str) -> list[str]:
    steps = [plain_step([-1.0], [-1.0], number=number) for number in range(len(next(iter(columns.values()))))]
    for column, values in columns.items():
        for step, value in zip(steps, values, strict=True):
            step.scalars[column] = value
    return impossible(open_run(write_run(folder, steps, source={"framework": framework})))


def slots(filled: int, empty: int, spread: float = 0.05) -> tuple[float, float]:
    """Mean and variance of ratios near 1 and of slots that nobody filled, as torch has them."""
    values = np.concatenate([1 + spread * np.cos(np.arange(filled)), np.zeros(empty)])
    return float(values.mean()), float(values.var(ddof=1))


def test_slots_that_nobody_filled_are_told_by_the_variance_of_the_ratio(tmp_path: Path) -> None:
    mean, variance = zip(*[slots(8, 24, 0.03 - 0.01 * step) for step in range(4)], strict=True)
    columns = {"extra_val_ratio": list(mean), "extra_val_ratio_var": list(variance)}
    assert beside(tmp_path / "trl", columns, "TRL") == [
        "extra_val_ratio is 0.25 and extra_val_ratio_var is 0.194 in step 3, as of ratios near 1 and 75% zeros: "
        "4 of 4 steps. TRL's PPOTrainer takes slots that no micro-batch fills for 0, in its other means, too "
        "(TRL #7041)."
    ]
    (other,) = beside(tmp_path / "other", columns, "mine")
    assert other.endswith("4 of 4 steps.")
    half, of_four = slots(2, 2)  # one epoch of two mini-batches of two
    assert beside(tmp_path / "few", {"extra_val_ratio": [half] * 4, "extra_val_ratio_var": [of_four] * 4}, "TRL")


@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        ([0.25] * 4, [0.01] * 4),  # the policy has moved away, everywhere alike
        ([0.25] * 4, [0.6] * 4),
        ([1.0, 0.98, 1.02, 1.1], [0.001] * 4),
        ([0.95] * 4, [0.05] * 4),  # what a few small ratios make
        ([0.25, 1.0, 1.0, 1.0], [0.19, 0.01, 0.01, 0.01]),
        ([0.25] * 3, [0.19] * 3),
        ([0.0] * 4, [0.0] * 4),
    ],
)
def test_other_means_and_variances_are_those_of_ratios(
    tmp_path: Path, mean: list[float], variance: list[float]
) -> None:
    assert beside(tmp_path / "run", {"extra_val_ratio": mean, "extra_val_ratio_var": variance}, "TRL") == []


DIRECT, GAP = "extra_rollout_correction_kl", "extra_rollout_correction_log_ppl_diff"


def test_a_kl_in_the_other_direction_is_told_by_the_perplexities(tmp_path: Path) -> None:
    gap = [0.002, 0.003, -0.001, 0.004, 0.002]
    logged = [-0.0021, -0.0027, 0.0012, -0.005, 0.0001]
    assert beside(tmp_path / "run", {DIRECT: logged, GAP: gap}, "ms-swift") == [
        "extra_rollout_correction_kl is -0.005 in step 3, where extra_rollout_correction_log_ppl_diff, of the same "
        "sign by definition, is 0.004: 4 of 5 steps. ms-swift before 3.12 took the sampler's log-probability off the "
        "trainer's (ms-swift #7145)."
    ]
    (of_verl,) = beside(
        tmp_path / "verl",
        {"extra_rollout_corr_kl": logged, "extra_rollout_corr_log_ppl_diff": gap},
        "verl",
    )
    assert "ms-swift" not in of_verl


@pytest.mark.parametrize(
    "logged",
    [
        [0.0021, 0.0027, -0.0012, 0.005, 0.002],
        [0.0021, 0.0027, 0.0012, 0.005, -0.002],  # other signs by accident: of tokens and of responses
        [0.0] * 5,
    ],
)
def test_a_kl_in_its_own_direction_is_not_said(tmp_path: Path, logged: list[float]) -> None:
    gap = [0.002, 0.003, -0.001, 0.004, 0.002]
    assert beside(tmp_path / "run", {DIRECT: logged, GAP: gap}, "ms-swift") == []
    assert beside(tmp_path / "alone", {DIRECT: [-each for each in gap]}, "ms-swift") == []


def mismatched(folder: Path, column: str, of: str, steps: int = 4, framework: str = "prime-rl") -> list[str]:
    """Short responses on which trainer and sampler agree, a long one on which they do not, and a KL of them."""
    found = []
    for number in range(steps):
        gap = 0.1 + 0.01 * number
        sequence = np.array([0, 1, 2, *[3] * 9])
        gate = np.where(sequence == 3, -1.0 + gap, -1.0)
        step = plain_step(np.full(12, -1.0), np.full(12, -1.5), number=number, sequence=sequence).with_tokens(
            logp_gate=gate.astype(np.float32)
        )
        k3 = np.exp(gate + 1) - (gate + 1) - 1
        values = {"tokens": k3.mean(), "responses": np.mean([k3[sequence == one].mean() for one in range(4)])}
        step.scalars[column] = float(values.get(of, 0.7 * k3.mean()))
        found.append(step)
    return impossible(open_run(write_run(folder, found, source={"framework": framework})))


def test_a_mean_of_the_responses_means_is_told_by_the_tokens(tmp_path: Path) -> None:
    assert mismatched(tmp_path / "run", "extra_mismatch_kl_mean", "responses") == [
        "extra_mismatch_kl_mean is 0.00221 in step 3, the mean of the responses' means; that of all tokens is 0.00662: "
        "4 of 4 steps. prime-rl did so until May 2026, whatever the length of a response (prime-rl #2478)."
    ]
    assert mismatched(tmp_path / "imported", "extra_mismatch_kl", "responses")


@pytest.mark.parametrize(
    ("column", "of", "steps", "framework"),
    [
        ("extra_mismatch_kl_mean", "tokens", 4, "prime-rl"),
        ("extra_mismatch_kl_mean", "neither", 4, "prime-rl"),  # of other tokens: nobody knows
        ("extra_mismatch_kl_mean", "responses", 3, "prime-rl"),
        ("extra_mismatch_kl_mean", "responses", 4, "verl"),  # whose number of this name is another
        ("extra_unmasked_mismatch_kl_mean", "responses", 4, "prime-rl"),
        ("extra_mismatch_kl_max", "responses", 4, "prime-rl"),
    ],
)
def test_a_mean_over_tokens_is_not_said(tmp_path: Path, column: str, of: str, steps: int, framework: str) -> None:
    assert mismatched(tmp_path / "run", column, of, steps, framework) == []


def test_responses_of_one_length_do_not_tell_the_means_apart(tmp_path: Path) -> None:
    steps = []
    for number in range(5):
        step = plain_step([-1.0, -1.0], [-0.9, -0.8], number=number)
        gap = np.array([0.1, 0.2])
        step.scalars["extra_mismatch_kl_mean"] = float(np.mean(np.exp(gap) - gap - 1))
        steps.append(step)
    assert impossible(open_run(write_run(tmp_path / "run", steps, source={"framework": "prime-rl"}))) == []


def test_without_tokens_nothing_is_held_against_them(tmp_path: Path) -> None:
    steps = []
    for number in range(5):
        step = plain_step([-1.0, -1.0], [-0.9, -0.8], number=number)
        step.scalars["extra_mismatch_kl_mean"] = 0.01
        steps.append(step)
    folder = write_run(tmp_path / "run", steps, source={"framework": "prime-rl"})
    for file in (folder / "tokens").iterdir():
        file.unlink()
    assert impossible(open_run(folder)) == []


def test_the_sentences_about_several_numbers_are_short(tmp_path: Path) -> None:
    variance = [0.19] * 4
    found = [
        *beside(tmp_path / "slots", {"extra_val_ratio": [0.25] * 4, "extra_val_ratio_var": variance}, "TRL"),
        *beside(tmp_path / "kl", {DIRECT: [-0.002] * 4, GAP: [0.002] * 4}, "ms-swift"),
        *mismatched(tmp_path / "means", "extra_mismatch_kl_mean", "responses"),
    ]
    assert len(found) == 3
    for sentence in (one for text in found for one in text.split(". ")):
        assert len(sentence.split()) <= 25, sentence
