"""A sampler that is not the training engine: what is recorded is the distribution that was really drawn from."""

from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from transformers import LlamaForCausalLM

from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.sampling.engine import Engine, rounded_to_int8
from ratioscope.trainer.sampling.rollout import pad_left
from ratioscope.trainer.sampling.sample import Decoding, Version, sample
from ratioscope.trainer.tasks.addition import Addition
from tests.making.training import Recorded, small, train
from tests.oracles.replay import distributions, recomputed_by_own_version, steps_of

TASK = Addition(1, 20)
VOCABULARY = CharacterVocabulary(TASK.characters)
DECODINGS = {
    "temperature": Decoding(temperature=1.5),
    "top-k": Decoding(top_k=4),
    "top-p": Decoding(top_p=0.9),
    "all three": Decoding(temperature=1.3, top_k=6, top_p=0.95),
}
OVERRIDES = {
    "temperature": ["temperature=1.5"],
    "top-k": ["top_k=4"],
    "top-p": ["top_p=0.9"],
    "all three": ["temperature=1.3", "top_k=6", "top_p=0.95"],
}


def by_hand(plain: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """The decoded distribution of one state from its log-probabilities, in plain Python, (vocabulary,)."""
    weight = {token: float(p) for token, p in enumerate((plain.double() / decoding.temperature).exp())}
    ranked = sorted(weight, key=lambda token: -weight[token])
    if decoding.top_k:
        ranked = ranked[: decoding.top_k]
    total, kept, mass = sum(weight[token] for token in ranked), [], 0.0
    for token in ranked:
        if mass >= decoding.top_p:
            break
        kept.append(token)
        mass += weight[token] / total
    found = torch.zeros(len(plain), dtype=torch.float64)
    for token in kept:
        found[token] = weight[token] / sum(weight[other] for other in kept)
    return found


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
def test_the_decoded_distribution_is_renormalised_over_what_is_left(decoding: Decoding) -> None:
    logits = torch.randn(50, 14, generator=torch.Generator().manual_seed(0)) * 2
    for found, plain in zip(decoding.log_probs(logits), logits.log_softmax(dim=-1), strict=True):
        assert found.exp().double() == pytest.approx(by_hand(plain, decoding), abs=1e-6)


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
def test_tokens_are_drawn_from_the_recorded_distribution(tiny_policy: LlamaForCausalLM, decoding: Decoding) -> None:
    """At the second digit of a sum, where this policy has several ideas."""
    n, begun = 20_000, TASK.prompt(31) + TASK.answer(31)[0]
    prompts, prompt_mask = pad_left([VOCABULARY.encode(begun)], VOCABULARY.pad_id)
    rollout = sample(
        Version(tiny_policy), prompts, prompt_mask, VOCABULARY, copies=n, length=1, decoding=decoding,
        generator=torch.Generator().manual_seed(0), keep_distribution=True,
    )  # fmt: skip
    plain = tiny_policy(input_ids=prompts).logits[0, -1].log_softmax(dim=-1)
    expected = by_hand(plain, decoding)
    assert rollout.distribution is not None
    assert rollout.distribution[0, 0].exp().double() == pytest.approx(expected, abs=1e-5)
    drawn = torch.bincount(rollout.responses[:, 0], minlength=VOCABULARY.size)
    assert not drawn[expected == 0].any()
    assert (expected == 0).any() == (decoding.top_k > 0 or decoding.top_p < 1)
    common = expected * n > 5
    observed = torch.cat([drawn[common], drawn[~common].sum()[None]]).double()
    wanted = torch.cat([expected[common], expected[~common].sum()[None]]) * n
    told = wanted > 0
    assert chisquare(observed[told].numpy(), wanted[told].numpy()).pvalue > 1e-4
    assert rollout.logp[:, 0].double() == pytest.approx(expected.log()[rollout.responses[:, 0]], abs=1e-4)


@pytest.fixture(scope="module", params=DECODINGS)
def decoded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """A stale run whose sampler transforms the policy's distribution."""
    stale = ("sync_interval=2", "learning_rate=0.01", "updates=4", f"name={request.param}")
    return train(small(*OVERRIDES[request.param], *stale), tmp_path_factory.mktemp("decoded") / "run")


def test_a_run_logs_what_was_drawn_from_and_what_the_training_engine_says_of_it(decoded: Recorded) -> None:
    for step, tokens in enumerate(steps_of(decoded.folder)):
        plain = distributions(decoded, step, decoded.policies[step // 2 * 2])
        token = tokens["token_id"].long()
        drawn_from = torch.stack([by_hand(state, DECODINGS[decoded.config.name]) for state in plain])
        expected = drawn_from.gather(1, token.unsqueeze(1)).squeeze(1).log()
        assert tokens["logp_behavior"].double() == pytest.approx(expected, abs=1e-4)
        assert tokens["logp_behavior_train"] == pytest.approx(recomputed_by_own_version(decoded, step), abs=2e-5)
        assert (tokens["logp_behavior"] - tokens["logp_behavior_train"]).abs().max() > 1e-3


def test_chi_square_is_infinite_only_where_the_policy_may_do_what_the_sampler_never_does(decoded: Recorded) -> None:
    for step, tokens in enumerate(steps_of(decoded.folder)):
        plain = distributions(decoded, step, decoded.policies[step // 2 * 2])
        drawn_from = torch.stack([by_hand(state, DECODINGS[decoded.config.name]) for state in plain])
        assert torch.equal(tokens["chi2_current_behavior"].isinf(), (drawn_from == 0).any(dim=1))
        assert torch.isfinite(tokens["tv_current_behavior"]).all()
        assert torch.isfinite(tokens["kl_behavior_current"]).all()


def test_a_sampler_like_the_trainer_has_nothing_to_recompute(tmp_path: Path) -> None:
    tokens = steps_of(train(small("updates=2"), tmp_path / "run").folder)[1]
    assert "logp_behavior_train" not in tokens


def test_int8_moves_no_weight_by_more_than_half_a_step(tiny_policy: LlamaForCausalLM) -> None:
    engine = Engine(tiny_policy, "int8")
    rounded = dict(engine.load(tiny_policy.state_dict(), 0).named_parameters())
    for name, weight in tiny_policy.named_parameters():
        if weight.dim() != 2:
            assert torch.equal(rounded[name], weight)
            continue
        scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-9) / 127  # padding is a row of zeros
        assert ((rounded[name] - weight).abs() <= scale / 2 * (1 + 1e-4)).all()
        steps = rounded[name] / scale
        assert steps == pytest.approx(steps.round(), abs=1e-3)
        assert not torch.equal(rounded[name], weight)


def test_a_row_of_zeros_survives_the_rounding() -> None:
    weight = torch.tensor([[0.0, 0.0], [1.0, -127.0]])
    assert torch.equal(rounded_to_int8(weight), weight)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_sampler_of_lower_precision_is_recorded_as_it_is(tmp_path: Path, dtype: str) -> None:
    """Recomputed by a copy of each version in that precision; the training engine's record stays in float32."""
    run = train(small(f"sampler.dtype={dtype}", "sync_interval=2", "learning_rate=0.01", "updates=4"), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        version = step // 2 * 2
        engine = Engine(run.policies[version], "int8" if dtype == "int8" else "bfloat16")
        coarse = distributions(run, step, engine.load(run.policies[version].state_dict(), version))
        expected = coarse.gather(1, tokens["token_id"].long().unsqueeze(1)).squeeze(1)
        # bfloat16 rounds differently with and without a cache.
        assert tokens["logp_behavior"] == pytest.approx(expected, abs=2e-5 if dtype == "int8" else 0.2)
        assert tokens["logp_behavior_train"] == pytest.approx(recomputed_by_own_version(run, step), abs=2e-5)
        assert (tokens["logp_behavior"] - tokens["logp_behavior_train"]).abs().max() > 1e-3


def test_an_engine_takes_every_version_from_the_full_precision(tiny_policy: LlamaForCausalLM) -> None:
    """Rounded weights are not rounded again: going back to a version gives the same weights."""
    engine, first = Engine(tiny_policy, "int8"), tiny_policy.state_dict()
    second = {name: value * 1.7 for name, value in first.items()}
    before = {name: value.clone() for name, value in engine.load(first, 0).state_dict().items()}
    engine.load(second, 1)
    assert all(torch.equal(before[name], value) for name, value in engine.load(first, 0).state_dict().items())
