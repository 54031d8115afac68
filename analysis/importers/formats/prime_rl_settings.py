"""prime-rl: what its resolved configs and its metrics say of a run, in every layout of its traces."""

from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.source import Reading
from ratioscope.analysis.importers.values import as_number, at, config, known_values, moment

MAX_OFF_POLICY_STEPS = 8
"""prime-rl's default: how many steps after its sampling a response may still be trained on."""

# Where the launcher has put the resolved configs: of the newest attempt, of the run (August 2026), before that.
_CONFIGS = ("configs/latest/resolved", "configs/resolved", "configs")


def resolved_settings(root: Path, component: str) -> dict[str, Any]:
    """The resolved config of `trainer`, `orchestrator` or `inference`; {} where the run does not say."""
    for folder in _CONFIGS:
        found = config(root / folder / f"{component}.json") or at(config(root / folder / "rl.json"), component)
        if isinstance(found, dict) and found:
            return found
    return {}


def window(root: Path) -> int:
    """How many steps after its sampling a response of this run may still be trained on."""
    given = whole(resolved_settings(root, "orchestrator").get("max_off_policy_steps"))
    return MAX_OFF_POLICY_STEPS if given is None else given


def manifest(root: Path, *, scored: bool, decimals: int | None) -> dict[str, Any]:
    """What the resolved configs say, which the launcher writes.

    Args:
        scored: the trainer's log-probabilities are there, which are the policy's at the start of the one update.
        decimals: what the files keep of a log-probability; None: every digit.
    """
    trainer, orchestrator = resolved_settings(root, "trainer"), resolved_settings(root, "orchestrator")
    loss = at(trainer, "loss") or {}
    train = at(orchestrator, "train") or {}
    sampling = at(train, "sampling") or {}
    thresholds = {key: value for key, value in loss.items() if key != "type" and as_number(value) is not None}
    algorithm = at(orchestrator, "algo", "type")
    environments = [str(name) for name in map(_name_of_source, at(train, "source") or []) if name]
    found = known_values(
        algorithm=known_values(
            name=f"{algorithm or 'prime-rl'} ({loss['type']} loss)" if loss.get("type") else algorithm,
            parameters=known_values(epochs=1 if scored else None, minibatches=1 if scored else None, **thresholds),
        ),
        schedule=known_values(
            max_off_policy_steps=whole(orchestrator.get("max_off_policy_steps")),
            groups_span_steps=True,  # a batch is cut at so many responses, whatever group they are of
        ),
        sampler=known_values(
            samples_per_prompt=whole(orchestrator.get("group_size")),
            temperature=as_number(sampling.get("temperature")),
            top_p=as_number(sampling.get("top_p")),
            top_k=whole(sampling.get("top_k")),
        ),
        model=known_values(path=at(trainer, "model", "name")),
        task=known_values(name=", ".join(environments) or None),
        optimiser=known_values(
            name=at(trainer, "optim", "type"),
            learning_rate=as_number(at(trainer, "optim", "lr")),
            weight_decay=as_number(at(trainer, "optim", "weight_decay")),
            max_grad_norm=as_number(at(trainer, "optim", "max_norm")),
        ),
        planned_updates=whole(trainer.get("max_steps")),
        log_probability_decimals=decimals,
    )
    if resolved_settings(root, "inference"):
        found["sampled_with"] = "processed"  # its own server is set to processed_logprobs (configs/inference.py)
    return found


def _name_of_source(source: Any) -> Any:
    return at(source, "name") or at(source, "env", "id") or at(source, "env", "taskset", "id")


def whole(value: Any) -> int | None:
    """A whole number that is one; None otherwise."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def scalars(file: Path, reading: Reading) -> dict[int, dict[str, Any]]:
    """The trainer's numbers by step that is wanted, from the file monitor; those of a step are several lines."""
    found: dict[int, dict[str, Any]] = {}
    if not file.is_file():
        return found
    for step, row in lines.of_steps(file, reading):
        values = {column: as_number(row.get(name)) for name, column in _METRICS.items() if name in row}
        if "optim/lr" in row:
            values["wall_time"] = moment(row.get("time"))  # type: ignore[assignment]
        found.setdefault(step, {}).update({key: value for key, value in values.items() if value is not None})
    return found


_METRICS = {
    "loss/mean": "loss",
    "optim/grad_norm": "grad_norm",
    "optim/lr": "learning_rate",
    "time/forward_backward": "seconds_training",
    "time/wait_for_batch": "extra_seconds_waiting_for_batch",
    "mismatch_kl/all/mean": "extra_mismatch_kl",
}
