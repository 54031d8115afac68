"""What no single setting can tell: do the settings of a run fit together? Each slip is one sentence."""

from collections.abc import Iterable

import torch

from ratioscope.errors import RatioscopeError
from ratioscope.rules.gates import GATES
from ratioscope.rules.parameters import Judged
from ratioscope.trainer.algorithms import own, parameters, parts
from ratioscope.trainer.algorithms.advantages import TOKEN_ADVANTAGES
from ratioscope.trainer.algorithms.algorithm import IDLE
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.model import adapters, policy, pretrained
from ratioscope.trainer.sampling import experts
from ratioscope.trainer.settings import elsewhere
from ratioscope.trainer.settings.config import Optimiser, Schedule, TrainConfig
from ratioscope.trainer.tasks import gym
from ratioscope.trainer.tasks.counting import Counting

_CHECKPOINTING = "optimiser.gradient_checkpointing"
OWN_TASKS = ("addition", "counting")
"""Tasks that the built-in model is taught; others are reasoning-gym's."""
_SIZES = ("hidden_size", "intermediate_size", "layers", "heads")


def check_settings(config: TrainConfig) -> None:
    """Hold a configuration against itself and against what is installed, before anything is loaded or written.

    Raises:
        RatioscopeError: naming the key, its value, and what is allowed.
    """
    _check_algorithm(config)
    _check_passes(config)
    _check_schedule(config)
    _check_workers(config)
    _check_experts(config)
    _check_model_and_task(config)


def _check_algorithm(config: TrainConfig) -> None:
    algorithm, settings = config.declared, config.algorithm
    known = {*parameters.FOR_ALL, *algorithm.parameters}
    for name in settings.parameters:
        if name not in known:
            takes, takers = ", ".join(algorithm.parameters) or "no parameters", ", ".join(parts.takers(name))
            others = f" ({name} is one of {takers})" if takers else ""
            raise RatioscopeError(
                f"{algorithm.name} has no parameter {name!r}{elsewhere.setting(name)}; it takes {takes}{others}."
            )
    parameters.check(algorithm.name, config.parameters)
    for part, choice in algorithm.parts().items():
        if own.is_own(choice):
            parts.try_out(part, choice, config.parameters)
    if algorithm.level not in IDLE and algorithm.weight in IDLE and algorithm.gate in IDLE:
        raise RatioscopeError(
            f"algorithm.level={algorithm.level} has no effect on {algorithm.name}, whose weight and gate are none."
        )
    if algorithm.sample_weight not in IDLE and algorithm.advantage in TOKEN_ADVANTAGES:
        raise RatioscopeError(
            f"algorithm.sample_weight={algorithm.sample_weight} weighs the responses of a group, and "
            f"algorithm.advantage={algorithm.advantage} does not compare them; use one or the other."
        )


def _check_passes(config: TrainConfig) -> None:
    algorithm, prompts = config.declared, config.sampler.prompts
    minibatches, micro_batch = config.algorithm.minibatches, config.optimiser.micro_batch
    if prompts % minibatches:
        raise RatioscopeError(
            f"sampler.prompts={prompts} cannot be divided into algorithm.minibatches={minibatches} equal parts."
        )
    if micro_batch and (prompts // minibatches) % micro_batch:
        raise RatioscopeError(
            f"A minibatch of {prompts // minibatches} prompts cannot be divided into parts of "
            f"optimiser.micro_batch={micro_batch} prompts."
        )
    if algorithm.step == "trust_region" and (config.epochs, minibatches) != (1, 1):
        raise RatioscopeError(
            f"{algorithm.name} takes one step on the whole batch: algorithm.epochs={config.epochs} and "
            f"algorithm.minibatches={minibatches} must be 1."
        )
    wanted = ALGORITHMS["trpo"].parts() | {"advantage": algorithm.advantage, "selection": algorithm.selection}
    given: dict[str, float | str] = {
        "optimiser.micro_batch": micro_batch,
        "algorithm.reference_kl": config.algorithm.reference_kl,
        "entropy_coefficient": config.parameters.get("entropy_coefficient", 0),
        "algorithm.advantage": algorithm.advantage if algorithm.has_critic else "",
    }
    given |= {f"algorithm.{part}": choice for part, choice in algorithm.parts().items() if choice != wanted[part]}
    refused = next((f"{key}={value}" for key, value in given.items() if value), None)
    if algorithm.step == "trust_region" and refused:
        raise RatioscopeError(
            f"{algorithm.name} judges its step by the token mean over the whole batch; it does not take {refused}."
        )
    if algorithm.sees_whole_steps and micro_batch:
        raise RatioscopeError(
            f"{algorithm.name} looks at all tokens of an optimiser step together; it does not take "
            f"optimiser.micro_batch={micro_batch}."
        )
    if algorithm.gate in GATES and GATES[algorithm.gate].judged is Judged.STEP and config.epochs * minibatches == 1:
        raise RatioscopeError(
            f"algorithm.epochs=1 leaves the clip of {algorithm.name} without effect. It is centred at the policy "
            "before the update, which has not moved in the first pass. Use at least 2 epochs or minibatches."
        )
    alone = algorithm.has_critic or algorithm.advantage in ("reward_to_go", "greedy_baseline")
    if not alone and config.sampler.samples_per_prompt < 2:
        raise RatioscopeError(
            f"{algorithm.name} compares the responses to a prompt: sampler.samples_per_prompt="
            f"{config.sampler.samples_per_prompt} must be at least 2."
        )


def _check_schedule(config: TrainConfig) -> None:
    schedule = config.schedule
    if schedule.mixture and (min(schedule.mixture) < 0 or sum(schedule.mixture) <= 0):
        raise RatioscopeError(
            f"schedule.mixture={schedule.mixture} must hold weights of at least 0, and not only zeros."
        )
    newest = next((place for place, weight in enumerate(schedule.mixture) if weight > 0), 0)
    if schedule.window is not None and newest >= schedule.window:
        raise RatioscopeError(
            f"schedule.window={schedule.window} leaves nothing of schedule.mixture={schedule.mixture}: its newest "
            f"version is {newest} behind the newest."
        )
    if schedule.switch_probability > 0 and len(schedule.mixture) < 2:
        raise RatioscopeError(
            f"schedule.switch_probability={schedule.switch_probability:g} needs old versions to switch away from: "
            "set schedule.mixture, for example [0, 1]."
        )
    if schedule.offline and (schedule.mixture or schedule.actors):
        raise RatioscopeError("schedule.offline=true has one version only; it goes with neither mixture nor actors.")
    if schedule.actors and config.logging.probe_every:
        raise RatioscopeError(
            f"logging.probe_every={config.logging.probe_every} samples by the schedule, which does not apply to "
            "actors; set it to 0."
        )
    others = schedule.mixture or schedule.sync_interval > 1 or schedule.sync_offset
    if schedule.actors and others:
        raise RatioscopeError(
            f"schedule.actors={schedule.actors} measures the lag that sync_interval, sync_offset and mixture set; "
            "use one or the other."
        )
    if schedule.actors and config.declared.selection == "mixed_groups":
        raise RatioscopeError(f"{config.declared.name} samples again until it has signal, which actors cannot do.")


def _check_workers(config: TrainConfig) -> None:
    schedule, usual = config.schedule, Schedule()
    if not schedule.workers:
        return
    given = {
        **{f"schedule.{key}": value for key, value in schedule if key != "workers" and value != getattr(usual, key)},
        "logging.probe_every": config.logging.probe_every,
        "logging.held_out_groups": config.logging.held_out_groups,
        "logging.noise_floor_every": config.logging.noise_floor_every,
        "algorithm.reference_kl": config.algorithm.reference_kl,
        "deterministic": config.deterministic,
    }
    refused = next((f"{key}={value}" for key, value in given.items() if value), None)
    if refused or config.engine_differs:
        raise RatioscopeError(
            f"schedule.workers={schedule.workers} sample with a copy of the shared weights and apply their gradients "
            f"as they come; {refused or 'a sampler that differs from the policy'} does not go with it."
        )
    algorithm, passes = config.declared, config.epochs * config.algorithm.minibatches
    if algorithm.step != "adamw" or algorithm.regulariser == "adaptive_kl" or passes > 1:
        raise RatioscopeError(
            f"schedule.workers={schedule.workers}: each applies one gradient of AdamW a batch, and {algorithm.name} "
            f"{f'makes {passes} passes' if passes > 1 else 'steps otherwise'}; take another algorithm, such as a3c."
        )
    if policy.device_of(config.model).type != "cpu":
        raise RatioscopeError(f"schedule.workers={schedule.workers} share the memory of the CPU: set model.device=cpu.")


def _check_experts(config: TrainConfig) -> None:
    schedule, copies = config.schedule, config.sampler.samples_per_prompt
    if not schedule.expert_share:
        return
    given = f"schedule.expert_share={schedule.expert_share:g}"
    if not round(schedule.expert_share * copies):
        raise RatioscopeError(f"{given} of sampler.samples_per_prompt={copies} is no response.")
    by_version = {
        "schedule.actors": schedule.actors,
        "schedule.window": schedule.window,
        "schedule.epsilon_stale": schedule.epsilon_stale,
        "schedule.mixture": schedule.mixture,
        "logging.held_out_groups": config.logging.held_out_groups,
        "logging.probe_every": config.logging.probe_every,
        "a sampler that differs from the policy": config.engine_differs,
    }
    if refused := next((key for key, value in by_version.items() if value), None):
        raise RatioscopeError(f"{given}: the expert is no version of the policy; {refused} does not go with it.")
    parts = {part: getattr(config.declared, part) for part in ("weight", "gate", "filter", "regulariser")}
    divides = [f"{part}={choice}" for part, choice in parts.items() if choice not in ("none", "adaptive_kl")]
    if config.algorithm.reference_kl and config.algorithm.reference_kl_estimator != "in_reward":
        divides.append("algorithm.reference_kl")
    if divides and not experts.tell_their_probability(schedule):
        raise RatioscopeError(
            f"{given}: {divides[0]} of {config.declared.name} needs the expert's log-probabilities; give them in "
            "schedule.expert_file, or take an algorithm without ratios, such as reinforce."
        )


def _check_model_and_task(config: TrainConfig) -> None:
    task, model = config.task, config.model
    if model.device == "cuda" and not torch.cuda.is_available():
        raise RatioscopeError("model.device=cuda: PyTorch finds no CUDA device here; leave it out, or set cpu.")
    if model.lora_rank and not model.path:
        raise RatioscopeError(
            f"model.lora_rank={model.lora_rank} is for a pretrained model (model.path): the built-in one is tiny, and "
            "is trained whole."
        )
    if model.lora_rank:
        adapters.check_installed(model.lora_rank)
    if model.path:
        pretrained.check_path(model.path)
    elif task.name not in OWN_TASKS:
        raise RatioscopeError(
            f"task.name={task.name!r} needs a pretrained model: set model.path (a folder, a .gguf file, or smollm2)."
        )
    if task.name == "counting":
        prompts, available = Counting.size, "task.name=counting has"
        if task.response_length < Counting.shortest_answer:
            raise RatioscopeError(
                f"task.response_length={task.response_length} cuts every right response of task.name=counting, which "
                f"have {Counting.shortest_answer} to {Counting.longest_answer} tokens."
            )
    elif task.name == "addition":
        prompts = 10 ** (2 * task.digits)
        available = f"task.digits={task.digits} makes"
    else:
        gym.check(task.name, task.options)
        prompts, available = task.size, "task.size makes"
    held_out = config.logging.held_out_groups
    if task.evaluation_prompts + config.sampler.prompts + held_out > prompts:
        aside = f", sampler.prompts={config.sampler.prompts} and logging.held_out_groups={held_out}."
        raise RatioscopeError(
            f"{available} {prompts} prompts, too few for task.evaluation_prompts={task.evaluation_prompts}"
            + (aside if held_out else f" and sampler.prompts={config.sampler.prompts}.")
        )
    if not model.path and model.hidden_size % (2 * model.heads):
        raise RatioscopeError(
            f"model.hidden_size={model.hidden_size} must be a multiple of twice model.heads={model.heads}."
        )


def check_given(config: TrainConfig, given: Iterable[str]) -> None:
    """Refuse settings that somebody gave, dotted paths, and that would change nothing: they expect something of them.

    Raises:
        RatioscopeError: naming the setting and what leaves it without effect.
    """
    gym = config.task.name not in OWN_TASKS
    trpo = config.declared.step == "trust_region"
    of_adamw = [f"optimiser.{n}" for n in Optimiser.model_fields if n not in ("micro_batch", "gradient_checkpointing")]
    model, schedule = config.model, config.schedule
    # Where they have no effect, what that is, and the settings or sections.
    cases = (
        (config.task.name != "addition", f"task.name={config.task.name}", ("task.digits",)),
        (config.task.name == "addition", "task.name=addition", ("task.response_length",)),
        (not gym, f"task.name={config.task.name}", ("task.size", "task.seed", "task.options")),
        (bool(model.path), f"model.path={model.path}", (*(f"model.{name}" for name in _SIZES), "warm_start")),
        (not model.path, "the built-in model", ("model.chat_template",)),
        (not model.lora_rank, "model.lora_rank=0", ("model.lora_alpha",)),
        (not schedule.switch_probability, "schedule.switch_probability=0", ("schedule.segment_length",)),
        (not schedule.mixture, "schedule.mixture=[]", ("schedule.mixture_unit",)),
        (not schedule.mixes_versions, "one version at a time (no mixture, no actors)", ("schedule.window",)),
        (not schedule.expert_share, "schedule.expert_share=0", ("schedule.expert_file",)),
        (schedule.offline, "schedule.offline=true", ("schedule.sync_interval", "schedule.sync_offset")),
        (not config.algorithm.reference_kl, "algorithm.reference_kl=0", ("algorithm.reference_kl_estimator",)),
        (not config.logging.probe_every, "logging.probe_every=0", ("logging.probe_batches",)),
        (trpo, f"algorithm={config.declared.name}", of_adamw),
        (trpo and not config.logging.probe_every, f"algorithm={config.declared.name}", (_CHECKPOINTING,)),
    )
    idle = {path: where for holds, where, paths in cases if holds for path in paths}
    for path in given:
        section, _, name = path.partition(".")
        where = idle.get(section) or idle.get(path) or (idle.get("task.options") if "task.options." in path else None)
        if where and name:
            raise RatioscopeError(f"{path} has no effect with {where}; leave it out.")
