"""A loss that is not the configured one, and a clip that looks elsewhere or is spent on mismatch, are named."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, write_run
from tests.making.samples import SAMPLE_RUNS

EPSILON, CAP = 0.2, 2.0
CLIP = {"epsilon_low": EPSILON, "epsilon_high": EPSILON}


def parts(weight: str = "ratio", gate: str = "one_side", **others: str) -> dict[str, Any]:
    """An algorithm that names its parts."""
    stated = {"weight": weight, "gate": gate, "level": "token", "advantage": "group_normalised"} | others
    return {"name": "grpo", "parts": stated, "parameters": CLIP | {"cap": CAP}}


def limited(aggregation: str = "longest_mean", **limits: int) -> dict[str, Any]:
    """One that divides the sums of responses by a limit of tokens, and names it."""
    return parts(aggregation=aggregation) | {"parameters": CLIP | limits}


def two_clips(dual: float, **others: str) -> dict[str, Any]:
    """PPO's clip, and one above a ratio of `dual` for what is worse than its group."""
    return parts(gate="dual_clip", **others) | {"parameters": CLIP | {"dual": dual}}


def of_responses(epsilon: float, **setting: str) -> dict[str, Any]:
    """A clip of this width on the ratio of whole responses."""
    both = {"epsilon_low": epsilon, "epsilon_high": epsilon} | setting
    return {"name": "grpo" if setting else "gspo", "parameters": both}


UNSTATED = {"name": "grpo", "parameters": CLIP}


class Loss(NamedTuple):
    """What the loss did, and what the manifest says of it."""

    algorithm: dict[str, Any]
    weight: str = "ratio"
    """ratio, none, or the level at which the ratio is capped."""
    clips: bool = True
    spread: float = 0.25
    """Of the log-ratios, nats, of data three versions old."""
    engine: float = 0.0
    """The same of the mismatch; then data are fresh."""
    at: float = EPSILON
    """Where the clip stops."""
    below: float = 0.0
    """The ratio below which it stops, where not as far from 1."""
    micro_batches: int = 0
    """The last of so many has a gradient alone; 0: all have one."""
    first_lost: bool = False
    """Whether the first token of each turn, or of each response, has no gradient."""
    turns: int = 0
    """Tokens of a turn; 0: no turns are logged."""
    by_response: bool = False
    """Whether each response is divided by its length."""
    scale: str = ""
    """By what each token is multiplied once more: a quarter, or the share of its rank, of the padding, or of the 64
    responses that are there."""
    short: bool = False
    """Whether each fourth step has half of the responses."""
    penalty: str = ""
    """Of the KL to a reference: k1, k2 or k3, far from it where it says so."""
    reference: bool = False
    """Whether the reference is logged."""
    moved: float = 0.0
    """Of the log-ratios of the policy at the gate to the one before the update, nats."""
    dual: float = 0.0
    """The ratio above which what is worse than its group has no gradient; 0: none."""
    open_above: bool = False
    """Whether the clip has no upper bound."""
    of_responses: bool = False
    """Whether the ratio is one of each response, the geometric mean."""
    age: int = 3
    """Updates between sampling and training."""
    cause: str = ""
    words: str = ""


FAULTS = {
    "not applied": Loss(parts("truncated", "none"), "none", False, cause="weight_not_applied", words="advantage alone"),
    "not applied, by response": Loss(
        parts("truncated", "none"), "none", False, by_response=True, cause="weight_not_applied", words="advantage alone"
    ),
    "capped lower": Loss(
        parts("truncated", "none"), "1.3", False, spread=0.5, cause="weight_capped", words="it stands at"
    ),
    "no cap": Loss(parts("truncated", "none"), "ratio", False, cause="cap_is_passed", words="are above 2, up to"),
    "no cap, often passed": Loss(
        parts("truncated", "none"), "ratio", False, spread=0.5, cause="cap_is_passed", words="are above 2, up to"
    ),
    "no cap, by response": Loss(
        parts("truncated", "none"), "ratio", False, by_response=True, cause="cap_is_passed", words="are above 2, up to"
    ),
    "a higher cap": Loss(
        parts("truncated", "none"), "3.0", False, spread=0.5, cause="cap_is_passed", words="are above 2, up to 3"
    ),
    "no clip of the weight": Loss(
        parts("upper_clipped", "none"), "ratio", False, cause="cap_is_passed", words="are above 1.2, up to"
    ),
    "another": Loss(parts("ratio", "none"), "root", False, cause="another_loss", words="gradient_weight is off"),
    "ratio twice": Loss(
        parts("ratio", "none"), "squared", False, cause="ratio_counted_twice", words="to the power of 2"
    ),
    "negated": Loss(parts(), "negated", cause="loss_negated", words="the opposite sign of the advantage in 100%"),
    "last micro-batch alone": Loss(
        parts(), micro_batches=4, cause="last_micro_batch_alone", words="in the others, without a gradient"
    ),
    "mask a token late": Loss(
        parts(), first_lost=True, cause="first_token_masked", words="first tokens of a response with an advantage"
    ),
    "mask a token late in each turn": Loss(
        parts(), first_lost=True, turns=3, cause="first_token_masked", words="first tokens of a turn with an advantage"
    ),
    "lower clip at epsilon": Loss(
        UNSTATED, spread=0.7, below=0.2, cause="lower_clip_at_epsilon", words="where the manifest says 0.8"
    ),
    "clip elsewhere": Loss(
        UNSTATED, "none", False, cause="clip_anchored_elsewhere", words="beyond 0.8 to 1.2 was clipped"
    ),
    "clip elsewhere, stated": Loss(
        parts(), "ratio", False, cause="clip_anchored_elsewhere", words="beyond 0.8 to 1.2 was clipped"
    ),
    "a quarter": Loss(
        parts(aggregation="token_mean"), scale="quarter", cause="loss_scaled", words="0.25 × what a mean over"
    ),
    "padded to the longest of each rank": Loss(
        parts(aggregation="token_mean"), scale="padded", cause="padding_in_the_mean", words="the longest of each rank"
    ),
    "padded to a limit": Loss(
        parts(aggregation="token_mean"), scale="limit", cause="padding_in_the_mean", words="padding to 16 tokens"
    ),
    "another constant": Loss(
        limited(max_tokens=100), scale="limit", cause="divided_by_another_constant", words="16 tokens a response, where"
    ),
    "another constant, short steps": Loss(
        limited(max_completion_length=5),
        scale="limit",
        short=True,
        cause="divided_by_another_constant",
        words="16 tokens a response, where 5 are configured",
    ),
    "another constant, by the name alone": Loss(
        {"name": "dr_grpo", "parameters": CLIP | {"response_length": 1000}},
        scale="limit",
        cause="divided_by_another_constant",
        words="where 1,000 are configured",
    ),
    "a short step as a full one": Loss(
        parts(aggregation="token_mean"), scale="full", short=True, cause="short_steps_divided_as_full", words="0.5 ×"
    ),
    "a short step as a full one, unstated": Loss(
        UNSTATED,
        scale="full",
        short=True,
        cause="short_steps_divided_as_full",
        words="3 of 3 steps with fewer than",
    ),
    "k1 in the loss": Loss(parts(), penalty="k1", cause="penalty_without_direction", words="or clipped, have it"),
    "k1 in the loss, by response": Loss(
        parts(regulariser="kl"),
        penalty="k1",
        by_response=True,
        cause="penalty_without_direction",
        words="bare log-ratio",
    ),
    "k3 far from the reference": Loss(
        parts(), penalty="k3 far", cause="penalty_explodes", words="of the squared gradient"
    ),
    "k3 far from the reference, by response": Loss(
        parts(), penalty="k3 far", by_response=True, cause="penalty_explodes", words="of the squared gradient"
    ),
    "mean over each rank": Loss(
        parts(aggregation="token_mean"), scale="rank", cause="mean_over_each_rank", words="one factor for each rank"
    ),
    "mean over each micro-batch": Loss(
        parts(aggregation="token_mean"), scale="micro", cause="mean_over_each_micro_batch", words="of its micro-batch"
    ),
    "mean over each micro-batch of each rank": Loss(
        parts(aggregation="token_mean"), scale="own", cause="mean_over_each_micro_batch", words="of its micro-batch"
    ),
    "a penalty that is not there": Loss(
        parts() | {"parameters": CLIP | {"reference_kl": 0.1}},
        reference=True,
        cause="penalty_not_in_loss",
        words="reference_kl is 0.1, and 100% of",
    ),
    "mean over responses": Loss(
        parts(aggregation="token_mean"), by_response=True, cause="mean_over_responses", words="of one of the shortest"
    ),
    "another, and no mean over responses": Loss(
        parts("ratio", "none", aggregation="token_mean"), "root", False, cause="another_loss", words="is off in"
    ),
    "clip at another ratio": Loss(UNSTATED, at=0.05, cause="clip_at_another_ratio", words="where the manifest says"),
    "products": Loss(
        {"name": "ours"},
        "product",
        False,
        engine=0.4,
        spread=0.0,
        cause="products_starve",
        words="the longest quarter of the responses keeps",
    ),
    "second clip left out": Loss(
        two_clips(1.6), spread=0.4, cause="large_ratios_pass", words="tokens with A < 0 beyond dual 1.6 keep their"
    ),
    "second clip left out, by response": Loss(
        two_clips(2.5), spread=0.6, by_response=True, cause="large_ratios_pass", words="of the squared gradient"
    ),
    "no upper bound": Loss(
        parts(), open_above=True, cause="bound_never_acts", words="tokens with A > 0 beyond epsilon_high 0.2 keep their"
    ),
    "a clip of tokens on responses": Loss(
        of_responses(0.2),
        of_responses=True,
        spread=0.06,
        cause="clip_of_tokens_on_responses",
        words="responses was clipped at 0.8 to 1.2",
    ),
    "a clip of tokens on responses, stated": Loss(
        parts(level="geometric"),
        of_responses=True,
        spread=0.03,
        cause="clip_of_tokens_on_responses",
        words="of their ratios are within",
    ),
    "a clip of tokens on responses, by a setting": Loss(
        of_responses(0.1, importance_sampling_level="sequence"),
        of_responses=True,
        spread=0.02,
        cause="clip_of_tokens_on_responses",
        words="responses was clipped at 0.9 to 1.1",
    ),
    "clip of responses elsewhere": Loss(
        of_responses(0.05),
        of_responses=True,
        clips=False,
        cause="clip_anchored_elsewhere",
        words="responses with a ratio beyond 0.95 to 1.05 was clipped",
    ),
    "spent on mismatch": Loss(
        UNSTATED, engine=0.2, spread=0.0, cause="clip_spent_on_numerics", words="at the same weights"
    ),
}
CONTROLS = {
    "grpo": Loss(parts()),
    "grpo, mean over the tokens": Loss(parts(aggregation="token_mean")),
    "grpo, short steps": Loss(parts(aggregation="token_mean"), short=True),
    "grpo, sequence mean, short steps": Loss(parts(), by_response=True, short=True),
    "grpo, sequence mean": Loss(parts(), by_response=True),
    "grpo, sequence mean, stated": Loss(parts(aggregation="sequence_mean"), by_response=True),
    "the limit": Loss(limited(max_tokens=16), scale="limit"),
    "the limit, short steps": Loss(limited(response_length=16), scale="limit", short=True),
    "the limit, a little more than that of the sampler": Loss(limited(max_tokens=14), scale="limit"),
    "a constant of its own, as configured": Loss(limited(max_tokens=100, loss_scale_factor=16), scale="limit"),
    "no constant": Loss(limited(max_tokens=100)),
    "a constant, and another aggregation": Loss(limited("sequence_sum", max_tokens=100), scale="limit"),
    "a constant, and no limit": Loss(limited(), scale="limit"),
    "truncated": Loss(parts("truncated", "none"), "2.0", False, spread=0.5),
    "truncated, by response": Loss(parts("truncated", "none"), "2.0", False, spread=0.5, by_response=True),
    "a cap that the weight has not": Loss(parts("ratio", "none"), "ratio", False, spread=0.5),
    "a cap of staleness alone": Loss(parts("truncated_staleness", "none"), "staleness", False, spread=0.5, moved=0.3),
    "clipped weight": Loss(parts("upper_clipped", "none"), "1.2", False, spread=0.5),
    "no weight, and none configured": Loss(parts("none", "one_side"), "none"),
    "no clip, and none configured": Loss(parts("ratio", "none"), clips=False),
    "a clip around the policy itself": Loss(parts("ratio", "incremental"), clips=False),
    "turns": Loss(parts(), turns=3),
    "nothing stated": Loss({"name": "ours"}, "none", False),
    "on policy": Loss(UNSTATED, spread=0.0),
    "a penalty of its own": Loss(parts(regulariser="squared_log_ratio"), "none"),
    "k2, declared": Loss(parts(regulariser="kl"), penalty="k2"),
    "k2 far from the reference, declared": Loss(parts(regulariser="kl"), penalty="k2 far"),
    "k3, declared, with its reference": Loss(
        parts() | {"parameters": CLIP | {"reference_kl": 0.1}}, penalty="k3", reference=True
    ),
    "a coefficient of 0": Loss(parts() | {"parameters": CLIP | {"reference_kl": 0.0}}, reference=True),
    "k3, declared": Loss(parts(regulariser="kl"), penalty="k3"),
    "k3 by response, declared": Loss(parts(regulariser="kl"), penalty="k3", by_response=True),
    "two clips": Loss(two_clips(1.6), spread=0.4, dual=1.6),
    "two clips, by response": Loss(two_clips(2.5), spread=0.6, dual=2.5, by_response=True),
    "a second clip that nothing comes near": Loss(two_clips(20.0), spread=0.4),
    "a second clip beside a penalty": Loss(
        parts(gate="dual_clip", regulariser="kl") | {"parameters": CLIP | {"dual": 1.6}},
        spread=0.4,
        dual=1.6,
        penalty="k2",
    ),
    "a clip of responses": Loss(of_responses(0.05), of_responses=True, at=0.05),
    "a clip of responses, as narrow as few ratios": Loss(of_responses(0.2), of_responses=True, at=0.2, spread=0.35),
    "a narrow clip of responses that hardly move": Loss(of_responses(0.03), of_responses=True, at=0.03, spread=0.01),
    "a wide clip of responses, on policy": Loss(of_responses(0.2), of_responses=True, spread=0.06, age=0),
    "a wide clip of responses that do not move": Loss(of_responses(0.2), of_responses=True, spread=0.001),
    "a wide clip of tokens": Loss(UNSTATED, spread=0.03),
    "mismatch inside of the clip": Loss(UNSTATED, engine=0.05, spread=0.0),
}


def steps_of(loss: Loss, seed: int) -> Iterator[Step]:
    rng = np.random.default_rng([seed, 4])
    for number in range(4, 16):
        size = 32 if loss.short and number % 4 == 3 else 64
        lengths = rng.integers(4, 80 if loss.weight == "product" else 16, size)
        sequence = np.repeat(np.arange(size), lengths)
        n = len(sequence)
        behavior = -rng.exponential(1.5, n) - 0.5
        # Ratios with a mean of 1, where products are made of them.
        below = loss.engine**2 / 2 if loss.weight == "product" else 0.0
        current = np.minimum(behavior + (loss.engine or loss.spread) * rng.standard_normal(n) - below, -1e-3)
        at = current - behavior
        reward = rng.integers(0, 2, size).astype(float)
        of_group = reward.reshape(-1, 8)
        advantage = ((of_group - of_group.mean(1, keepdims=True)) / (of_group.std(1, keepdims=True) + 1e-6)).ravel()
        of_response = (np.bincount(sequence, at) / lengths)[sequence]
        a, ratio = advantage[sequence], np.exp(of_response if loss.of_responses else at)
        moved = loss.moved * rng.standard_normal(n) if loss.moved else np.zeros(n)
        product = np.exp(np.minimum(np.bincount(sequence, at), 0.0))[sequence]
        weight = {
            "ratio": ratio,
            "none": np.ones(n),
            "squared": ratio**2,
            "root": ratio**0.5,
            "negated": -ratio,
            "product": product,
            "staleness": np.minimum(ratio, CAP) * np.exp(moved),
        }.get(loss.weight)
        if weight is None:
            weight = np.minimum(ratio, float(loss.weight))
        above = (a > 0) & (ratio > 1 + loss.at) & (not loss.open_above)
        out = above | ((a < 0) & (ratio < (loss.below or 1 - loss.at)))
        clipped = (out | ((a < 0) & (loss.dual > 0) & (ratio > loss.dual))) & loss.clips
        micro_batch = sequence * max(loss.micro_batches, 4) // size
        lost = (loss.micro_batches > 0) & (micro_batch < loss.micro_batches - 1)
        position = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        late = loss.first_lost & (position % (loss.turns or n) == 0)
        divided = size * lengths[sequence] if loss.by_response else n
        away = (4 if "far" in loss.penalty else 0.3) * rng.standard_normal(n) * (rng.random(n) < 0.3)
        pulled = {"k1": np.full(n, -1.0), "k2": away, "k3": np.expm1(away)}.get(loss.penalty[:2], np.zeros(n))
        rank = sequence % 4
        multiplied = {"quarter": np.full(n, 0.25), "rank": n / 4 / np.array([0.2, 0.22, 0.28, 0.3])[rank] / n}
        longest = sum(lengths[first::4].max() for first in range(4))
        multiplied |= {"padded": np.full(n, n / (16 * longest)), "limit": np.full(n, n / (size * 16))}
        multiplied |= {"full": np.full(n, size / 64)}
        of_micro = {"micro": micro_batch, "own": 4 * micro_batch + rank}
        multiplied |= {scale: n / np.bincount(own)[own] for scale, own in of_micro.items()}
        step = plain_step(
            behavior, current, number=number, sequence=sequence, group=sequence // 8,
            advantage=a.astype(np.float32), clipped=clipped,
            clip_side=(clipped * np.sign(ratio - 1)).astype(np.int8),
            gradient_weight=(
                np.where(clipped | lost | late, 0, a * weight / divided * multiplied.get(loss.scale, np.ones(n)))
                + 0.1 * pulled / divided
            ).astype(np.float32),
            behavior_version=np.full(n, number - (0 if loss.engine else loss.age), dtype=np.int32),
        )  # fmt: skip
        if loss.reference:
            step.tokens["logp_reference"] = np.minimum(current + away, -1e-3).astype(np.float32)
        if loss.moved:
            step.tokens["logp_gate"] = (current + moved).astype(np.float32)
        if loss.turns:
            step.tokens["turn"] = (2 * (position // loss.turns) + 1).astype(np.int16)
        step.sequences["reward"] = reward.astype(np.float32)
        step.sequences["micro_batch"] = (np.arange(size) * max(loss.micro_batches, 4) // size).astype(np.int32)
        step.sequences["rank"] = (np.arange(size) % 4).astype(np.int32)
        yield step.with_tokens(token_id=None)  # no state is shared: log-probabilities are no function of tokens here


def remarks(folder: Path, loss: Loss, seed: int = 0) -> list[Finding]:
    run = open_run(write_run(folder, steps_of(loss, seed), algorithm=loss.algorithm))
    return asked(run, "applied_loss")


@in_one_loop("name", {name: name for name in FAULTS})
def test_a_fault_is_named(tmp_path: Path, name: str) -> None:
    loss = FAULTS[name]
    found = remarks(tmp_path / name, loss)
    assert [remark.of_cause for remark in found] == [loss.cause], found[0].sentence
    assert loss.words in found[0].sentence + found[0].why
    assert found[0].severity is (Severity.NOTICE if loss.cause == "loss_scaled" else Severity.WARNING)
    assert found[0].examples


@in_one_loop("name", {name: name for name in CONTROLS})
def test_a_near_miss_is_not_named(tmp_path: Path, name: str) -> None:
    for seed in range(2):
        found = remarks(tmp_path / f"{name} {seed}", CONTROLS[name], seed)
        assert [remark.sentence for remark in found if remark.severity] == []


def test_a_whole_multiple_of_the_limit_is_a_notice(tmp_path: Path) -> None:
    """As four ranks or micro-batches make it, which a log of gradients need not count."""
    (found,) = remarks(tmp_path / "run", Loss(limited(max_tokens=64), scale="limit"))
    assert found.of_cause == "divided_by_another_constant" and found.severity is Severity.NOTICE


def test_the_rule_is_computed_without_pytorch() -> None:
    """To import it takes longer than all checks of a small run."""
    code = f"""
import sys
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
found = {{each.rule: each.outcome.value for each in lint(open_run({str(SAMPLE_RUNS / "mismatch-grpo-seed0")!r}))}}
sys.exit(str(found) if found["applied_loss"] != "passed" or "torch" in sys.modules else None)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
