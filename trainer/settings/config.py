"""What a training run is made of: the sections of its configuration, with defaults and allowed ranges.

`trainer.settings.load` reads them from TOML and from the command line.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ratioscope.trainer.algorithms.algorithm import IDLE, PARTS
from ratioscope.trainer.algorithms.algorithm import Algorithm as Declared
from ratioscope.trainer.algorithms.parts import algorithm_of_parts


class SettingsGroup(BaseModel):
    # Strict: `updates=true` is a slip, not one update.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AlgorithmChoice(SettingsGroup):
    """Which declaration of `trainer.algorithms`, and where it departs from its defaults."""

    name: str = "grpo"
    parameters: dict[str, float] = Field(default_factory=dict)
    # Parts that replace the algorithm's own (`trainer.algorithms.parts.CHOICES`).
    advantage: str | None = None
    selection: str | None = None
    sample_weight: str | None = None
    level: str | None = None
    weight: str | None = None
    gate: str | None = None
    filter: str | None = None
    aggregation: str | None = None
    regulariser: str | None = None
    step: str | None = None
    epochs: int | None = Field(default=None, ge=1, description="passes over the batch per update")
    minibatches: int = Field(default=1, ge=1, description="optimiser steps per epoch, each on some of the prompts")
    reference_kl: float = Field(default=0.0, ge=0, description="weight of the KL to the initial policy")
    reference_kl_estimator: Literal["k1", "k2", "k3", "in_reward"] = "k2"

    def parts(self) -> dict[str, str]:
        """The parts that are not the algorithm's own."""
        given = {part: getattr(self, part) for part in PARTS}
        return {part: choice for part, choice in given.items() if choice is not None}


class Schedule(SettingsGroup):
    """Where the off-policyness comes from (S3 B.2, S0 3.3, 4.2, 5.6)."""

    sync_interval: int = Field(default=1, ge=1, description="m: weights reach the sampler every m updates")
    sync_offset: int = Field(default=0, ge=0, description="n: batches buffered before training starts")
    offline: bool = Field(default=False, description="only the initial policy ever samples")
    mixture: list[float] = Field(
        default_factory=list, description="weights of the newest, second newest, ... version; a draw per mixture_unit"
    )
    mixture_unit: Literal["prompt", "response"] = "prompt"
    switch_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="probability that a response continues with the newest version after a segment",
    )
    segment_length: int = Field(default=1, ge=1, description="tokens per segment")
    actors: int = Field(default=0, ge=0, le=64, description="processes that sample while the learner trains")
    workers: int = Field(default=0, ge=0, le=64, description="processes that apply their gradients to shared weights")
    expert_share: float = Field(default=0.0, ge=0, le=1, description="of each group's responses that an expert wrote")
    expert_file: str = Field(default="", description="JSONL of the expert's; default: the task's right answers")
    epsilon_stale: float | None = Field(default=None, gt=0, description="drop tokens with |rho_k - 1| above it")
    window: int | None = Field(default=None, ge=1, description="W: drop responses of all but the newest W versions")

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

    prompts: int = Field(default=12, ge=1)
    samples_per_prompt: int = Field(default=8, ge=1)
    temperature: float = Field(default=1.0, gt=0, description="divides the logits")
    top_k: int = Field(default=0, ge=0, description="only the k likeliest tokens; 0: all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="only the likeliest tokens that make up this mass")
    smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the untruncated policy in what is sampled from (S0 7.3)"
    )
    dtype: Literal["same", "bfloat16", "int8"] = Field(default="same", description="precision of the sampler's weights")


class Model(SettingsGroup):
    """A Llama-architecture decoder built from a transformers config, or with `path` a pretrained one."""

    path: str = Field(default="", description='folder or .gguf file of a causal language model, or "smollm2"')
    chat_template: bool = Field(default=True, description="put prompts into the tokenizer's chat template, if any")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="what the model computes in; its weights are trained in float32"
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    lora_rank: int = Field(default=0, ge=0, description="of adapters, which alone are trained; 0: the whole model is")
    lora_alpha: float = Field(default=16.0, gt=0, description="adapters are multiplied with lora_alpha / lora_rank")
    hidden_size: int = Field(default=96, ge=8)
    intermediate_size: int = Field(default=128, ge=8)
    layers: int = Field(default=3, ge=1)
    heads: int = Field(default=4, ge=1)


class WarmStart(SettingsGroup):
    """Supervised learning before the first update: some answers are right, of the others the digits are reversed.

    right_share = 1 and accuracy = 0.35 make a model that knows little, instead of one that knows and says it wrongly.
    """

    right_share: float = Field(default=0.4, ge=0, le=1, description="of the answers taught; the others are reversed")
    accuracy: float = Field(default=0.95, ge=0, le=1, description="share of answers as taught at which it ends")
    learning_rate: float = Field(default=3e-3, gt=0)
    batch: int = Field(default=128, ge=1)
    max_steps: int = Field(default=5_000, ge=0)
    seed: int = Field(default=0, ge=0, lt=2**63)


class TaskChoice(SettingsGroup):
    """The verifiable task: addition, or one of reasoning-gym's by its name."""

    name: str = "addition"
    digits: int = Field(default=2, ge=1, le=6, description="of each number, for addition")
    evaluation_prompts: int = Field(default=512, ge=1)
    size: int = Field(default=2_000, ge=2, description="number of prompts, for a task of reasoning-gym")
    seed: int = Field(default=0, ge=0, lt=2**31, description="of the prompts of a task of reasoning-gym")
    response_length: int = Field(
        default=24, ge=1, description="largest number of tokens of a response, for reasoning-gym"
    )
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="passed on to the task of reasoning-gym"
    )


class Optimiser(SettingsGroup):
    """AdamW as in S3 table 2."""

    learning_rate: float = Field(default=1e-4, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    warmup_updates: int = Field(default=0, ge=0, description="updates in which the learning rate grows to its value")
    micro_batch: int = Field(default=0, ge=0, description="prompts in memory at once; 0: all of a minibatch")
    gradient_checkpointing: bool = Field(default=False, description="less memory, more time: activations twice")


class Logging(SettingsGroup):
    """What is measured and logged beyond the sampled tokens' log-probabilities."""

    exact: bool = Field(default=False, description="per-state TV, chi-square and KL from full distributions")
    noise_floor_every: int = Field(default=0, ge=0, description="updates between noise-floor measurements; 0: never")
    held_out_groups: int = Field(
        default=0, ge=0, description="prompt groups an update that are sampled and logged, and never enter the loss"
    )
    probe_every: int = Field(default=0, ge=0, description="updates between gradient probes; 0: never")
    probe_batches: int = Field(default=4, ge=2, description="independent gradient estimates of each kind in a probe")


class TrainConfig(SettingsGroup):
    """One training run."""

    name: str = Field(default="", description="name of the run; default: algorithm, schedule and seed")
    updates: int = Field(default=150, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    evaluate_every: int = Field(default=10, ge=1)
    checkpoint_every: int = Field(default=25, ge=1)
    pace: float = Field(default=0.0, ge=0, description="minimum seconds per update, so that a demo can be watched")
    deterministic: bool = Field(default=False, description="algorithms that repeat to the bit, where torch has them")
    notes: str = ""
    tags: list[str] = Field(default_factory=list)
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
