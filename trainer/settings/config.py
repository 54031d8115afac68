"""What a training run is made of: the sections of its configuration, with defaults and allowed ranges.

`trainer.settings.load` reads them from TOML and from the command line.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ratioscope.trainer.algorithms.algorithm import IDLE, PARTS
from ratioscope.trainer.algorithms.algorithm import Algorithm as Declared


class SettingsGroup(BaseModel):
    # Strict: `updates=true` is a slip, not one update.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _part(words: str) -> Any:
    """A part that replaces the algorithm's own (`trainer.algorithms.parts.CHOICES`)."""
    return Field(default=None, description=f"{words}: ratioscope explain parts")


class AlgorithmChoice(SettingsGroup):
    """The algorithm, and the parts of it that are exchanged."""

    name: str = Field(default="grpo", description="what is trained with: ratioscope explain algorithms")
    parameters: dict[str, float] = Field(
        default_factory=dict, description="numbers of the algorithm's parts, each a setting by its own name"
    )
    advantage: str | None = _part("how rewards become advantages")
    selection: str | None = _part("which responses enter the loss")
    sample_weight: str | None = _part("how much each response of a group weighs")
    level: str | None = _part("whether a ratio is of a token or of a whole response")
    weight: str | None = _part("what is made of the importance ratio")
    gate: str | None = _part("which tokens the clip lets through")
    filter: str | None = _part("which tokens or responses are left out by their ratios")
    aggregation: str | None = _part("how tokens are averaged, and so what a long response weighs")
    regulariser: str | None = _part("the pull back to an earlier policy")
    step: str | None = _part("what makes an update of a gradient")
    epochs: int | None = Field(
        default=None, ge=1, description="passes over the batch per update; more make the policy leave its own data"
    )
    minibatches: int = Field(default=1, ge=1, description="optimiser steps per epoch, each on some of the prompts")
    reference_kl: float = Field(
        default=0.0, ge=0, description="weight of the KL to the initial policy, which keeps the policy near its start"
    )
    reference_kl_estimator: Literal["k1", "k2", "k3", "in_reward"] = Field(
        default="k2", description="how that KL is estimated, or in_reward: taken off the reward"
    )

    def parts(self) -> dict[str, str]:
        """The parts that are not the algorithm's own."""
        given = {part: getattr(self, part) for part in PARTS}
        return {part: choice for part, choice in given.items() if choice is not None}


class Schedule(SettingsGroup):
    """Where the off-policyness comes from (S3 B.2, S0 3.3, 4.2, 5.6)."""

    sync_interval: int = Field(
        default=1, ge=1, description="updates between two weight syncs; the sampler's data are up to one less old"
    )
    sync_offset: int = Field(
        default=0, ge=0, description="batches buffered before training starts; every batch is that many updates old"
    )
    offline: bool = Field(default=False, description="only the initial policy ever samples: data never get fresher")
    mixture: list[float] = Field(
        default_factory=list,
        description="weights with which the newest, second newest, ... version samples; a draw per mixture_unit",
    )
    mixture_unit: Literal["prompt", "response"] = Field(
        default="prompt", description="what one version of the mixture samples as a whole"
    )
    switch_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="probability that a response goes on with the newest version after a segment (partial rollouts)",
    )
    segment_length: int = Field(
        default=1, ge=1, description="tokens of a segment, after which a response may switch to the newest version"
    )
    actors: int = Field(
        default=0, ge=0, le=64, description="processes that sample while the learner trains; staleness is measured"
    )
    workers: int = Field(
        default=0, ge=0, le=64, description="processes that apply their gradients to shared weights, as in A3C"
    )
    expert_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of each group's responses that an expert wrote instead of the policy",
    )
    expert_file: str = Field(
        default="", description="JSONL file of the expert's responses; without one, the task's right answers"
    )
    epsilon_stale: float | None = Field(
        default=None, gt=0, description="tokens with |rho_k - 1| above it are dropped: their data are too old"
    )
    window: int | None = Field(
        default=None, ge=1, description="versions; responses of all but that many newest versions are dropped"
    )

    @property
    def mixes_versions(self) -> bool:
        """Whether several policy versions may sample one batch."""
        return bool(self.mixture or self.actors)

    @property
    def repeatable(self) -> bool:
        """Whether equal seeds make equal runs: processes arrive as they like."""
        return not (self.actors or self.workers)


class Sampler(SettingsGroup):
    """The batch of one update, and how the sampling engine differs from the training engine."""

    prompts: int = Field(default=12, ge=1, description="prompts per update")
    samples_per_prompt: int = Field(
        default=8, ge=1, description="responses per prompt, which are compared with each other: the group"
    )
    temperature: float = Field(
        default=1.0, gt=0, description="divides the sampler's logits; not 1 makes sampler and trainer differ"
    )
    top_k: int = Field(default=0, ge=0, description="likeliest tokens that can be sampled; 0: all")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="probability of the likeliest tokens, of which alone is sampled; 1: all"
    )
    smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the untruncated policy mixed in, so that top_k and top_p leave no token out (S0 7.3)",
    )
    dtype: Literal["same", "bfloat16", "int8"] = Field(
        default="same", description="precision of the sampler's weights; not same makes sampler and trainer differ"
    )


class Model(SettingsGroup):
    """A Llama-architecture decoder built from a transformers config, or with `path` a pretrained one."""

    path: str = Field(
        default="", description='folder or .gguf file of a causal language model, or "smollm2"; empty: the built-in one'
    )
    chat_template: bool = Field(default=True, description="put prompts into the tokenizer's chat template, if any")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="what the model computes in; its weights are trained in float32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where the model lives; auto: cuda if any"
    )
    lora_rank: int = Field(
        default=0, ge=0, description="rank of adapters, which alone are trained; 0: the whole model is trained"
    )
    lora_alpha: float = Field(default=16.0, gt=0, description="adapters are multiplied with lora_alpha / lora_rank")
    hidden_size: int = Field(default=96, ge=8, description="width of the built-in model")
    intermediate_size: int = Field(default=128, ge=8, description="width inside the built-in model's MLPs")
    layers: int = Field(default=3, ge=1, description="layers of the built-in model")
    heads: int = Field(default=4, ge=1, description="attention heads per layer of the built-in model")


class WarmStart(SettingsGroup):
    """Supervised learning before the first update, right or with the task's habit (`trainer.tasks`).

    right_share = 1 and accuracy = 0.35 make a model that knows little, instead of one that knows and says it wrongly.
    """

    right_share: float = Field(
        default=0.4, ge=0, le=1, description="share taught rightly: of sums, or of the carries of counting"
    )
    accuracy: float = Field(
        default=0.95, ge=0, le=1, description="share of responses as taught at which the start ends"
    )
    learning_rate: float = Field(default=3e-3, gt=0, description="AdamW's learning rate in the warm start")
    batch: int = Field(default=128, ge=1, description="responses per step of the warm start")
    max_steps: int = Field(
        default=5_000, ge=0, description="steps after which the warm start ends, whatever it learned"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of the warm start: its weights and its lessons")


class TaskChoice(SettingsGroup):
    """The verifiable task: addition, counting, or one of reasoning-gym's by its name."""

    name: str = Field(
        default="addition", description="addition (4 tokens), counting (30 to 100 tokens), or a task of reasoning-gym"
    )
    digits: int = Field(default=2, ge=1, le=6, description="digits of each number, for addition")
    evaluation_prompts: int = Field(
        default=512, ge=1, description="prompts held out from training, on which accuracy is measured"
    )
    size: int = Field(default=2_000, ge=2, description="number of prompts, for a task of reasoning-gym")
    seed: int = Field(default=0, ge=0, lt=2**31, description="seed of the prompts, for a task of reasoning-gym")
    response_length: int = Field(
        default=24, ge=1, description="tokens after which a response is cut; addition has its own"
    )
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="options that are passed on to the task of reasoning-gym"
    )


class Optimiser(SettingsGroup):
    """AdamW as in S3 table 2."""

    learning_rate: float = Field(
        default=1e-4, gt=0, description="step size of AdamW; too large a one collapses a policy"
    )
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of AdamW's mean of gradients")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay of AdamW's mean of squared gradients")
    weight_decay: float = Field(
        default=0.01, ge=0, description="share of each weight taken off per update, times the learning rate"
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="norm to which a larger gradient is scaled down")
    warmup_updates: int = Field(default=0, ge=0, description="updates in which the learning rate grows to its value")
    micro_batch: int = Field(
        default=0, ge=0, description="prompts in memory at once, for large models; 0: all of a minibatch"
    )
    gradient_checkpointing: bool = Field(
        default=False, description="compute activations twice instead of keeping them: less memory, more time"
    )


class Logging(SettingsGroup):
    """What is measured and logged beyond the sampled tokens' log-probabilities."""

    exact: bool = Field(
        default=False, description="per-state TV, chi-square and KL, from all probabilities instead of sampled tokens"
    )
    noise_floor_every: int = Field(
        default=0, ge=0, description="updates between measurements of the engine's own noise; 0: never"
    )
    held_out_groups: int = Field(
        default=0, ge=0, description="prompt groups an update that are sampled and logged, and never enter the loss"
    )
    probe_every: int = Field(
        default=0, ge=0, description="updates between probes of the gradient's bias and variance; 0: never"
    )
    probe_batches: int = Field(default=4, ge=2, description="independent gradient estimates of each kind in a probe")


class TrainConfig(SettingsGroup):
    """One training run."""

    name: str = Field(default="", description="name of the run; empty: schedule, algorithm and seed")
    updates: int = Field(default=150, ge=1, description="updates of the policy after which the run is finished")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of prompts and samples; equal seeds, equal runs")
    evaluate_every: int = Field(default=10, ge=1, description="updates between evaluations on the held-out prompts")
    checkpoint_every: int = Field(default=25, ge=1, description="updates between checkpoints, from which a run resumes")
    pace: float = Field(default=0.0, ge=0, description="minimum seconds per update, so that a demo can be watched")
    deterministic: bool = Field(default=False, description="computations that repeat to the bit, where torch has them")
    notes: str = Field(default="", description="sentence about the run, which its overview shows")
    tags: list[str] = Field(default_factory=list, description="words by which runs are found")
    algorithm: AlgorithmChoice = AlgorithmChoice()
    schedule: Schedule = Schedule()
    sampler: Sampler = Sampler()
    model: Model = Model()
    warm_start: WarmStart = WarmStart()
    task: TaskChoice = TaskChoice()
    optimiser: Optimiser = Optimiser()
    logging: Logging = Logging()

    @property
    def declared(self) -> Declared:
        """The algorithm that is trained: the one named, with the parts that were exchanged.

        Raises:
            RatioscopeError: no such algorithm, or no such part.
        """
        from ratioscope.trainer.algorithms.parts import (
            algorithm_of_parts,
        )  # needs torch, which a slip does not wait for

        return algorithm_of_parts(self.algorithm.name, tuple(self.algorithm.parts().items()))

    @property
    def parameters(self) -> dict[str, float]:
        """The algorithm's parameters, its defaults filled in."""
        return {**self.declared.parameters, **self.algorithm.parameters}

    @property
    def epochs(self) -> int:
        """Times that an update goes over its batch."""
        return self.algorithm.epochs or self.declared.epochs

    @property
    def engine_differs(self) -> bool:
        """Whether the sampler's distribution is not that of the training engine with the same weights."""
        sampler = self.sampler
        return (sampler.dtype, sampler.temperature, sampler.top_k, sampler.top_p) != ("same", 1.0, 0, 1.0)

    def run_name(self) -> str:
        """`name`, or a speaking one: schedule, algorithm, departures from its defaults, seed."""
        if self.name:
            return self.name
        parts = "".join(
            f"_{part}_{choice}" if choice in IDLE else f"_{choice.rpartition(':')[2]}"
            for part, choice in self.algorithm.parts().items()
        )
        parameters = parts + "".join(f"_{value:g}" for value in self.algorithm.parameters.values())
        rate = self.optimiser.learning_rate
        usual = Optimiser.model_fields["learning_rate"].default
        lr = "" if rate == usual else f"-lr{rate:g}"
        return f"{self._schedule_name()}-{self.declared.name}{parameters}{lr}-seed{self.seed}"

    def _schedule_name(self) -> str:
        schedule = self.schedule
        if schedule.offline:
            return "offline"
        words = [
            f"{label}{value:g}"
            for label, value, usual in (
                ("sync_interval", schedule.sync_interval, 1),
                ("sync_offset", schedule.sync_offset, 0),
                ("mixture", len(schedule.mixture), 0),
                ("switch", schedule.switch_probability, 0.0),
                ("actors", schedule.actors, 0),
                ("workers", schedule.workers, 0),
                ("expert", schedule.expert_share, 0.0),
            )
            if value != usual
        ]
        if self.engine_differs:
            words.append("mismatch")
        if self.model.path:
            words.insert(0, Path(self.model.path).stem + (f"_lora{self.model.lora_rank}" * bool(self.model.lora_rank)))
        return "_".join(words) or "on_policy"
