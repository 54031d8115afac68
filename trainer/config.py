"""What a training run is made of, read from TOML presets with `key=value` overrides on top."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ratioscope.errors import RatioscopeError
from trainer.algorithms import ALGORITHMS

PRESETS = Path(__file__).parent / "presets"


class _Section(BaseModel):
    # Strict: `updates=true` is a slip, not one update.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Algorithm(_Section):
    """Which declaration of `trainer.algorithms`, and where it departs from its defaults."""

    name: str = "grpo"
    parameters: dict[str, float] = Field(default_factory=dict)
    passes: int | None = Field(default=None, ge=1, description="gradient passes an update; default: the algorithm's")


class Schedule(_Section):
    """Where the off-policyness comes from (S3 B.2)."""

    sync_interval: int = Field(default=1, ge=1, description="m: weights reach the sampler every m updates")
    sync_offset: int = Field(default=0, ge=0, description="n: batches buffered before training starts")
    offline: bool = Field(default=False, description="only the initial policy ever samples")


class Sampler(_Section):
    """The batch of one update; `temperature` divides the logits."""

    prompts: int = Field(default=12, ge=1)
    samples_per_prompt: int = Field(default=8, ge=2)
    temperature: float = Field(default=1.0, gt=0)


class Model(_Section):
    """A Llama-architecture decoder, built from a transformers config."""

    hidden_size: int = Field(default=96, ge=8)
    intermediate_size: int = Field(default=128, ge=8)
    layers: int = Field(default=3, ge=1)
    heads: int = Field(default=4, ge=1)


class WarmStart(_Section):
    """Supervised learning before the first update, until the sampled accuracy reaches `accuracy`."""

    accuracy: float = Field(default=0.35, ge=0, le=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    batch: int = Field(default=128, ge=1)
    max_steps: int = Field(default=5_000, ge=0)
    seed: int = Field(default=0, ge=0, lt=2**63)


class Task(_Section):
    """The verifiable task; prompts beyond the evaluation split are for training."""

    name: Literal["addition"] = "addition"
    digits: int = Field(default=2, ge=1, le=6)
    evaluation_prompts: int = Field(default=512, ge=1)


class Optimiser(_Section):
    """AdamW as in S3 table 2."""

    learning_rate: float = Field(default=1e-4, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)


class TrainConfig(_Section):
    """One training run."""

    name: str = Field(default="", description="name of the run; default: algorithm, schedule and seed")
    updates: int = Field(default=150, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    evaluate_every: int = Field(default=10, ge=1)
    checkpoint_every: int = Field(default=25, ge=1)
    pace: float = Field(default=0.0, ge=0, description="least seconds an update takes; a demo is for watching")
    notes: str = ""
    tags: list[str] = Field(default_factory=list)
    algorithm: Algorithm = Algorithm()
    schedule: Schedule = Schedule()
    sampler: Sampler = Sampler()
    model: Model = Model()
    warm_start: WarmStart = WarmStart()
    task: Task = Task()
    optimiser: Optimiser = Optimiser()

    def run_name(self) -> str:
        """`name`, or a speaking one: algorithm, departures from its defaults, schedule, seed."""
        if self.name:
            return self.name
        parameters = "".join(f"_{value:g}" for value in self.algorithm.parameters.values())
        schedule = self.schedule
        if schedule.offline:
            lag = "offline"
        else:
            lag = "_".join(
                f"{label}{value}"
                for label, value, usual in (
                    ("sync_interval", schedule.sync_interval, 1),
                    ("sync_offset", schedule.sync_offset, 0),
                )
                if value != usual
            )
        return f"{lag or 'on_policy'}-{self.algorithm.name}{parameters}-seed{self.seed}"


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(preset: str, overrides: Iterable[str] = ()) -> TrainConfig:
    """A preset by name or by path, with `key=value` overrides.

    A key is a dotted path (`schedule.sync_interval`) or a name that only one section has (`sync_interval`);
    a parameter of the algorithm (`epsilon_low`) is one, too; `algorithm=grpo` means `algorithm.name=grpo`.

    Raises:
        RatioscopeError: no such preset, bad TOML, unknown key, or a value that does not fit.
    """
    path = Path(preset) if preset.endswith(".toml") else PRESETS / f"{preset}.toml"
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RatioscopeError(f"There is no preset {preset!r}; there are: {', '.join(preset_names())}.") from None
    except (OSError, ValueError) as error:  # not readable, not UTF-8, not TOML
        raise RatioscopeError(f"{path}: cannot be read as TOML ({error}).") from None
    return build(values, overrides)


def build(values: dict[str, Any], overrides: Iterable[str] = ()) -> TrainConfig:
    """A checked configuration from nested values and `key=value` overrides; raises as `load`."""
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            raise RatioscopeError(f"{override!r} is not of the form key=value.")
        section, _, leaf = _resolve(key).rpartition(".")
        place = values
        for part in filter(None, section.split(".")):
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise RatioscopeError(f"{override!r} cannot be set: {part} is {place!r}, not a section.")
        place[leaf] = _parse(text)
    try:
        config = TrainConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RatioscopeError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r:.80})."
        ) from None
    _check_algorithm(config.algorithm)
    _check_sizes(config)
    return config


def _check_algorithm(algorithm: Algorithm) -> None:
    if algorithm.name not in ALGORITHMS:
        raise RatioscopeError(f"There is no algorithm {algorithm.name!r}; there are: {', '.join(ALGORITHMS)}.")
    known = ALGORITHMS[algorithm.name].parameters
    for name in algorithm.parameters:
        if name not in known:
            takes = ", ".join(known) or "no parameters"
            raise RatioscopeError(f"{algorithm.name} has no parameter {name!r}; it takes {takes}.")


def _check_sizes(config: TrainConfig) -> None:
    task, model, prompts = config.task, config.model, 10 ** (2 * config.task.digits)
    if task.evaluation_prompts + config.sampler.prompts > prompts:
        raise RatioscopeError(
            f"task.digits={task.digits} makes {prompts} prompts, too few for task.evaluation_prompts="
            f"{task.evaluation_prompts} and sampler.prompts={config.sampler.prompts}."
        )
    if model.hidden_size % (2 * model.heads):
        raise RatioscopeError(
            f"model.hidden_size={model.hidden_size} must be a multiple of twice model.heads={model.heads}."
        )


def _resolve(key: str) -> str:
    """The dotted path that a key stands for."""
    sections = {name: field.annotation for name, field in TrainConfig.model_fields.items()}
    paths = [name for name, kind in sections.items() if not _is_section(kind)]
    paths += [f"{name}.{leaf}" for name, kind in sections.items() if _is_section(kind) for leaf in _fields(kind)]
    parameters = {name for algorithm in ALGORITHMS.values() for name in algorithm.parameters}
    if key == "algorithm":
        return "algorithm.name"
    if key in paths or key.startswith("algorithm.parameters."):
        return key
    if key in parameters:
        return f"algorithm.parameters.{key}"
    matches = [path for path in paths if path.rpartition(".")[2] == key]
    if len(matches) == 1:
        return matches[0]
    if matches:
        # The optimiser's is what people mean by learning_rate; the warm start's has to be spelled out.
        usual = [match for match in matches if not match.startswith("warm_start.")]
        if len(usual) == 1:
            return usual[0]
        raise RatioscopeError(f"{key!r} is ambiguous: {' or '.join(matches)}.")
    raise RatioscopeError(f"There is no setting {key!r}; settings are: {', '.join(sorted([*paths, *parameters]))}.")


def _fields(section: Any) -> list[str]:
    return list(section.model_fields)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Section)


def _parse(text: str) -> Any:
    """A TOML value where the text is one, a number that TOML spells otherwise (".5"), or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    try:
        return float(text)
    except ValueError:
        return text
