"""TRL's own loss code as an outside oracle: the same batch, the same gradient of every parameter of the policy."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.trainer.algorithms.losses import ReferenceKL, Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.model.policy import entropy_of, evaluate
from ratioscope.trainer.sampling.rollout import Rollout
from tests.making import language_model

# Not imported before a test needs it: that takes a second, and every process collects this file.
if TYPE_CHECKING:
    from trl import GRPOTrainer

VOCABULARY, PROMPTS, COPIES, LONGEST = 12, 3, 4, 6
SEQUENCES = PROMPTS * COPIES


class Sampled(NamedTuple):
    """One batch, as both sides are given it."""

    rollout: Rollout
    advantage: Tensor
    """(n,)."""
    reference: Tensor
    """(n, T) log-probs of the reference policy."""

    def for_trl(self, *, fresh: bool = False) -> dict[str, Any]:
        """The inputs of GRPOTrainer's loss; without old log-probs it takes pi_theta's own."""
        rollout = self.rollout
        return {
            "prompt_ids": rollout.prompts,
            "prompt_mask": rollout.prompt_mask,
            "completion_ids": rollout.responses,
            "completion_mask": rollout.mask.long(),
            "advantages": self.advantage,
            "old_per_token_logps": None if fresh else rollout.logp,
            "ref_per_token_logps": self.reference,
            "num_items_in_batch": rollout.mask.sum(),
        }


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return language_model.policy(VOCABULARY, 16, intermediate_size=32, initializer_range=0.3)


@pytest.fixture(scope="module")
def sampled(model: PreTrainedModel) -> Sampled:
    """Prompts and responses of unequal lengths, from a policy that the ratios are far away from."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(2, VOCABULARY, (PROMPTS, 4), generator=generator)
    prompt_mask = torch.ones_like(prompts)
    prompts[0, :2], prompt_mask[0, :2] = 0, 0
    lengths = torch.randint(1, LONGEST + 1, (SEQUENCES,), generator=generator)
    mask = torch.arange(LONGEST) < lengths.unsqueeze(1)
    responses = torch.randint(2, VOCABULARY, mask.shape, generator=generator).masked_fill(~mask, 0)
    rollout = Rollout(
        prompts=prompts.repeat_interleave(COPIES, dim=0),
        prompt_mask=prompt_mask.repeat_interleave(COPIES, dim=0),
        responses=responses,
        mask=mask,
        logp=torch.zeros(mask.shape),
        version=torch.zeros_like(responses),
        copies=COPIES,
    )
    with torch.no_grad():
        own = evaluate(model, rollout).logp
    drawn, reference = torch.zeros(mask.shape), torch.zeros(mask.shape)
    drawn[mask] = own + 0.4 * torch.randn(own.shape, generator=generator)
    reference[mask] = own + 0.4 * torch.randn(own.shape, generator=generator)
    return Sampled(rollout._replace(logp=drawn), torch.randn(SEQUENCES, generator=generator), reference)


def oracle(model: PreTrainedModel, folder: Path, *, beta: float = 0.0, **settings: Any) -> "GRPOTrainer":
    """A real GRPOTrainer around the policy; everything that is not under test is off.

    `beta` is set afterwards: TRL would load a reference model by name, and its log-probs come with the batch here.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=SEQUENCES,
            num_generations=COPIES,
            max_completion_length=LONGEST,
            gradient_accumulation_steps=1,
            activation_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            **settings,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["2 3"] * SEQUENCES}),
        processing_class=language_model.tokenizer([str(token) for token in range(VOCABULARY)]),
    )
    trainer.beta = beta
    trainer.current_gradient_accumulation_steps = 1  # set in training; one accumulation step is no scaling
    return trainer


def flat(model: PreTrainedModel, loss: Tensor) -> Tensor:
    return torch.cat([piece.flatten() for piece in torch.autograd.grad(loss, list(model.parameters()))]).double()


def ours(
    model: PreTrainedModel,
    sampled: Sampled,
    name: str,
    *,
    fresh: bool = False,
    aggregation: str = "token_mean",
    reference_kl: ReferenceKL | None = None,
    **parameters: float,
) -> tuple[Tensor, float, float]:
    """The gradient of our loss, the share of tokens that it clips, and the value that is printed."""
    rollout = sampled.rollout
    sequence, _ = rollout.mask.nonzero(as_tuple=True)
    logp, distribution, _ = evaluate(model, rollout)
    behavior = logp.detach() if fresh else rollout.logp[rollout.mask]
    batch = TokenBatch(
        logp_behavior=behavior,
        logp_current=logp.detach(),
        advantage=sampled.advantage[sequence],
        sequence=sequence,
        group=sequence // COPIES,
        sample_weight=torch.ones_like(behavior),
        logp_reference=sampled.reference[rollout.mask],
        entropy=entropy_of(distribution.detach()),
    )
    size = Size(tokens=len(sequence), sequences=SEQUENCES, longest=LONGEST)
    algorithm = replace(ALGORITHMS[name], aggregation=aggregation)
    loss, gate = policy_loss(algorithm, parameters, logp, batch, size, reference_kl)
    return flat(model, loss), float(gate.clipped.double().mean()), float(loss)


def agree(found: Tensor, expected: Tensor) -> bool:
    """The same direction and the same length, and not the empty gradient."""
    cosine = torch.nn.functional.cosine_similarity(found, expected, dim=0)
    return bool(cosine > 1 - 1e-6) and float(found.norm()) == pytest.approx(float(expected.norm()), rel=1e-4)


BAND = {"epsilon": 0.2, "epsilon_high": 0.28}
OUR_BAND = {"epsilon_low": 0.2, "epsilon_high": 0.28}


class Pair(NamedTuple):
    """What has to agree."""

    trl: dict[str, Any]
    name: str
    parameters: dict[str, float]
    aggregation: str


# Each with what the two sides call differently.
PAIRS = {
    # TRL's "grpo" is S4 eq. 97, the mean inside a sequence first; ours is S3's token mean unless told otherwise.
    "grpo": Pair({"loss_type": "grpo", **BAND}, "grpo", OUR_BAND, "sequence_mean"),
    # TRL's "bnpo" divides by the tokens of the micro-batch, ours by those of the optimiser step; here both are one.
    "bnpo": Pair({"loss_type": "bnpo", **BAND}, "grpo", OUR_BAND, "token_mean"),
    # TRL caps the ratio at `delta` whatever the advantage; where A > 0 the clip binds before.
    "delta": Pair(
        {"loss_type": "bnpo", "delta": 1.5, **BAND}, "grpo_dual_clip", {**OUR_BAND, "dual": 1.5}, "token_mean"
    ),
    # TRL masks low entropies out of the loss and leaves them in its divisor.
    "top_entropy": Pair(
        {"loss_type": "bnpo", "top_entropy_quantile": 0.4, **BAND},
        "top_entropy",
        {**OUR_BAND, "entropy_share": 0.4},
        "token_mean",
    ),
    # TRL's "dapo" divides by `num_items_in_batch`, which its sampler counts; nothing is resampled or shaped here.
    "dapo": Pair({"loss_type": "dapo", **BAND}, "dapo", OUR_BAND, "token_mean"),
    # TRL's T_max is `max_completion_length`, whatever lengths occur; ours is the task's.
    "dr_grpo": Pair({"loss_type": "dr_grpo", **BAND}, "dr_grpo", OUR_BAND, "longest_mean"),
    # TRL's `epsilon_high` is the bound on CISPO's weight itself; ours is its distance from 1.
    "cispo": Pair({"loss_type": "cispo", "epsilon_high": 1.3}, "cispo", {"epsilon_high": 0.3}, "token_mean"),
    # Temperatures mean the same; TRL's 4 / tau is part of the objective, S4 eq. 117.
    "sapo": Pair(
        {"loss_type": "sapo", "sapo_temperature_pos": 1.5, "sapo_temperature_neg": 2.5},
        "sapo",
        {"tau_positive": 1.5, "tau_negative": 2.5},
        "sequence_mean",
    ),
    # VESPO's weight is of products; TRL adds the token means up over the batch, as its "dapo" does.
    "vespo": Pair(
        {"loss_type": "vespo"},
        "vespo",
        {"power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0},
        "token_mean",
    ),
    # TRL's GSPO is its "grpo" at the level of sequences; the 1/|y| of S4 eq. 111 comes from the derivative of s.
    "gspo": Pair(
        {"loss_type": "grpo", "importance_sampling_level": "sequence", **BAND}, "gspo", OUR_BAND, "sequence_mean"
    ),
    # TRL's LUSPO multiplies GSPO's term with |y|, which is the sum inside a sequence.
    "luspo": Pair(
        {"loss_type": "luspo", "importance_sampling_level": "sequence", **BAND}, "gspo", OUR_BAND, "sequence_sum"
    ),
}


CLIPPED = ("one_side", "none", "token")


@pytest.mark.parametrize("what", PAIRS)
def test_the_gradient_of_the_policy_is_the_one_of_trl(
    what: str, model: PreTrainedModel, sampled: Sampled, tmp_path: Path
) -> None:
    pair = PAIRS[what]
    trl = oracle(model, tmp_path, **pair.trl)
    loss = trl.compute_loss(trl.model, sampled.for_trl())
    expected = flat(model, loss)
    found, clipped, printed = ours(model, sampled, pair.name, aggregation=pair.aggregation, **pair.parameters)
    assert agree(found, expected)
    assert printed == pytest.approx(float(loss), rel=1e-5, abs=1e-6)
    if ALGORITHMS[pair.name].gate == "one_side" and ALGORITHMS[pair.name].filter == "none":
        assert 0.05 < clipped < 0.95
    if (ALGORITHMS[pair.name].gate, ALGORITHMS[pair.name].filter, ALGORITHMS[pair.name].level) == CLIPPED:
        assert trl._metrics["train"]["clip_ratio/region_mean"] == [pytest.approx(clipped, rel=1e-6)]


@pytest.mark.parametrize("what", PAIRS)
def test_on_fresh_data_too(what: str, model: PreTrainedModel, sampled: Sampled, tmp_path: Path) -> None:
    pair = PAIRS[what]
    trl = oracle(model, tmp_path, **pair.trl)
    expected = flat(model, trl.compute_loss(trl.model, sampled.for_trl(fresh=True)))
    found, clipped, _ = ours(model, sampled, pair.name, fresh=True, aggregation=pair.aggregation, **pair.parameters)
    assert agree(found, expected) and (clipped == 0 or pair.name == "top_entropy")


# The penalty on the distance to the reference policy: TRL differentiates the k3 estimate.
@pytest.mark.parametrize(
    ("fresh", "corrected", "estimator"),
    [
        # On fresh data that is our k3, the gradient of KL(ref || pi).
        (True, False, "k3"),
        # Corrected, the ratio is differentiated with it, and what comes out is our k2, the gradient of KL(pi || ref).
        (True, True, "k2"),
        (False, True, "k2"),
    ],
)
def test_the_pull_to_the_reference_is_the_one_of_trl(
    fresh: bool, corrected: bool, estimator: str, model: PreTrainedModel, sampled: Sampled, tmp_path: Path
) -> None:
    trl = oracle(model, tmp_path, loss_type="bnpo", beta=0.5, use_bias_correction_kl=corrected, **BAND)
    loss = trl.compute_loss(trl.model, sampled.for_trl(fresh=fresh))
    expected = flat(model, loss)
    penalty = ReferenceKL(0.5, estimator)
    found, _, printed = ours(model, sampled, "grpo", fresh=fresh, reference_kl=penalty, **OUR_BAND)
    assert agree(found, expected)
    assert corrected or printed == pytest.approx(float(loss), rel=1e-5)  # corrected, TRL prints the k3 estimate


def test_off_policy_trl_leaves_the_ratio_out_of_an_uncorrected_penalty(
    model: PreTrainedModel, sampled: Sampled, tmp_path: Path
) -> None:
    """Which then is the gradient of no divergence; here every estimator is weighted with pi_theta / behavior."""
    trl = oracle(model, tmp_path, loss_type="bnpo", beta=0.5, use_bias_correction_kl=False, **BAND)
    expected = flat(model, trl.compute_loss(trl.model, sampled.for_trl()))
    weighted, *_ = ours(model, sampled, "grpo", reference_kl=ReferenceKL(0.5, "k3"), **OUR_BAND)
    plain, *_ = ours(model, sampled, "grpo", **OUR_BAND)
    fresh, *_ = ours(model, sampled, "grpo", fresh=True, reference_kl=ReferenceKL(0.5, "k3"), **OUR_BAND)
    fresh_plain, *_ = ours(model, sampled, "grpo", fresh=True, **OUR_BAND)
    assert not agree(weighted, expected)
    assert agree(plain + (fresh - fresh_plain), expected)
