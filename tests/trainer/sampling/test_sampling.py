"""Sampling against the model run token by token, one sequence at a time, without padding and without a cache."""

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from ratioscope.trainer.model.policy import build, entropy_of, evaluate
from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.sampling.rollout import Rollout, pad_left
from ratioscope.trainer.sampling.sample import Decoding, Version, sample, sample_evaluation
from ratioscope.trainer.settings.config import Model
from ratioscope.trainer.tasks.addition import Addition

TASK = Addition(1, 20)
VOCABULARY = CharacterVocabulary(TASK.characters)
ENCODED = [VOCABULARY.encode(TASK.prompt(prompt_id)) for prompt_id in range(30, 42)]
# A policy accepts prompts of any length up to the longest that it was made for.
RAGGED = [VOCABULARY.encode(text) for text in ("7=", "3+4=", "12+5=", "1+2+3=")]


def draw(
    model: LlamaForCausalLM, encoded: list[list[int]], *, seed: int = 0, copies: int = 1, temperature: float = 1.0
) -> Rollout:
    prompts, prompt_mask = pad_left(encoded, VOCABULARY.pad_id)
    return sample(
        Version(model),
        prompts,
        prompt_mask,
        VOCABULARY,
        copies=copies,
        length=TASK.response_length,
        decoding=Decoding(temperature),
        generator=torch.Generator().manual_seed(seed),
    )


def distributions(model: LlamaForCausalLM, prompt: list[int], response: list[int], temperature: float) -> Tensor:
    """Log-probabilities of every token at each place of one response, (length, vocabulary)."""
    rows = []
    for place in range(len(response)):
        logits = model(input_ids=torch.tensor([prompt + response[:place]])).logits[0, -1]
        rows.append((logits / temperature).log_softmax(dim=-1))
    return torch.stack(rows)


def one_by_one(model: LlamaForCausalLM, rollout: Rollout, temperature: float = 1.0) -> Tensor:
    """What `rollout.logp` must be on the tokens that count, (n_tokens,)."""
    found = []
    for row, kept in enumerate(rollout.mask):
        prompt = rollout.prompts[row][rollout.prompt_mask[row].bool()].tolist()
        response = rollout.responses[row][kept].tolist()
        table = distributions(model, prompt, response, temperature)
        found += [table[place, token] for place, token in enumerate(response)]
    return torch.stack(found)


def texts(rollout: Rollout) -> list[str]:
    """The sampled characters of each response, the end mark included."""
    rows = zip(rollout.responses, rollout.mask, strict=True)
    return [VOCABULARY.decode(tokens[kept].tolist()) for tokens, kept in rows]


@pytest.fixture(scope="module")
def roomy_policy(one_thread: None) -> LlamaForCausalLM:
    """An untrained policy that accepts the ragged prompts; large weights keep its choices far from even."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = build(
            Model(hidden_size=32, intermediate_size=64, layers=2, heads=2), VOCABULARY, 6 + TASK.response_length
        )
        for weight in model.parameters():
            weight.data *= 8 if weight.dim() > 1 else 1
    return model.requires_grad_(False)


@pytest.mark.parametrize("copies", [1, 5])
def test_recorded_log_probs_are_those_of_the_training_pass(tiny_policy: LlamaForCausalLM, copies: int) -> None:
    rollout = draw(tiny_policy, ENCODED, copies=copies)
    assert rollout.logp[rollout.mask] == pytest.approx(evaluate(tiny_policy, rollout).logp, abs=1e-5)
    assert rollout.logp[rollout.mask] == pytest.approx(one_by_one(tiny_policy, rollout), abs=1e-5)


@pytest.mark.parametrize("copies", [1, 3])
def test_padding_on_the_left_changes_no_log_prob(roomy_policy: LlamaForCausalLM, copies: int) -> None:
    rollout = draw(roomy_policy, RAGGED, copies=copies)
    expected = one_by_one(roomy_policy, rollout)
    assert rollout.logp[rollout.mask] == pytest.approx(expected, abs=1e-4)
    assert evaluate(roomy_policy, rollout).logp == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_log_probs_are_of_the_tempered_distribution(tiny_policy: LlamaForCausalLM, temperature: float) -> None:
    rollout = draw(tiny_policy, ENCODED, temperature=temperature)
    recorded = rollout.logp[rollout.mask]
    assert recorded == pytest.approx(one_by_one(tiny_policy, rollout, temperature), abs=1e-5)
    assert (recorded - evaluate(tiny_policy, rollout).logp).abs().max() > 0.05


def test_a_smoothed_sampler_leaves_no_token_out_and_bounds_the_ratio() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.5, -2.0]])
    own = logits.softmax(dim=-1)
    cut = Decoding(temperature=0.5, top_k=2)
    found = cut._replace(smoothing=0.25).log_probs(logits).exp()
    assert found.tolist() == [pytest.approx((0.75 * cut.log_probs(logits).exp() + 0.25 * own)[0].tolist())]
    assert float(found.sum()) == pytest.approx(1) and bool((own / found <= 4).all())


def test_entropy_is_that_of_the_whole_distribution(tiny_policy: LlamaForCausalLM) -> None:
    rollout = draw(tiny_policy, ENCODED)
    expected = []
    for row, kept in enumerate(rollout.mask):
        table = distributions(tiny_policy, rollout.prompts[row].tolist(), rollout.responses[row][kept].tolist(), 1.0)
        expected += [-sum(p * p.log() for p in places.exp() if p > 0) for places in table]
    found = entropy_of(evaluate(tiny_policy, rollout).distribution)
    assert found == pytest.approx(torch.stack(expected), abs=1e-5)


def test_copies_of_a_prompt_are_neighbours(tiny_policy: LlamaForCausalLM) -> None:
    rollout = draw(tiny_policy, ENCODED, copies=4)
    shown = [VOCABULARY.decode(prompt) for prompt in rollout.prompts.tolist()]
    assert shown == [VOCABULARY.decode(prompt) for prompt in ENCODED for _ in range(4)]


@pytest.mark.parametrize("temperature", [1.0, 1.5])
@pytest.mark.parametrize("how", ["copies of one prompt", "a prompt given many times"])
def test_responses_come_as_often_as_their_probability_says(
    tiny_policy: LlamaForCausalLM, how: str, temperature: float
) -> None:
    n, prompt = 4_000, ENCODED[1]
    if how == "copies of one prompt":
        rollout = draw(tiny_policy, [prompt], copies=n, temperature=temperature)
    else:
        rollout = draw(tiny_policy, [prompt] * n, temperature=temperature)
    responses = texts(rollout)
    probability = {text: float(rollout.logp[row][rollout.mask[row]].sum().exp()) for row, text in enumerate(responses)}
    assert sum(probability.values()) <= 1 + 1e-4
    assert sum(p > 0.02 for p in probability.values()) >= 3
    for text, p in probability.items():
        assert abs(responses.count(text) / n - p) < 5 * (p * (1 - p) / n) ** 0.5 + 2 / n


def test_a_response_ends_with_its_end_mark_or_where_there_is_no_room(tiny_policy: LlamaForCausalLM) -> None:
    rollout = draw(tiny_policy, ENCODED, copies=50, temperature=2.0)
    ended = 0
    for response, kept in zip(rollout.responses.tolist(), rollout.mask.tolist(), strict=True):
        length = sum(kept)
        assert kept == [True] * length + [False] * (TASK.response_length - length)
        assert VOCABULARY.end_id not in response[: length - 1]
        assert length == TASK.response_length or response[length - 1] == VOCABULARY.end_id
        assert set(response[length:]) <= {VOCABULARY.pad_id}
        ended += length < TASK.response_length
    assert 0 < ended < len(rollout.mask)


def test_the_same_seed_draws_the_same_and_another_one_does_not(tiny_policy: LlamaForCausalLM) -> None:
    assert texts(draw(tiny_policy, ENCODED, copies=4)) == texts(draw(tiny_policy, ENCODED, copies=4))
    assert texts(draw(tiny_policy, ENCODED, copies=4)) != texts(draw(tiny_policy, ENCODED, seed=1, copies=4))


def test_evaluation_is_the_share_of_held_out_prompts_answered_right(tiny_policy: LlamaForCausalLM) -> None:
    rollout, accuracy = sample_evaluation(tiny_policy, TASK, VOCABULARY, torch.Generator().manual_seed(0))
    prompts = [VOCABULARY.decode(prompt) for prompt in rollout.prompts.tolist()]
    assert prompts == [TASK.prompt(prompt_id) for prompt_id in TASK.evaluation_ids]
    right = 0
    for prompt, response in zip(prompts, texts(rollout), strict=True):
        first, second = prompt.removesuffix("=").split("+")
        right += response == f"{int(first) + int(second):02}\n"
    assert accuracy == pytest.approx(right / len(prompts))
    assert 0 < right < len(prompts)
