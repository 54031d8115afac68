"""A small world in which logs are made: a tabular policy whose weights move, a sampler that serves it, a loss.

log = simulate(Shape(seed=3))                               # a healthy run, all columns
log = simulate(Shape(seed=3), sampler=lambda call, logits: logits + 0.1 * call.noise())
write(log, Path("runs/mine"), columns="verl")               # the columns that a framework gives

States are made of prompt, position and the token before; most have one token that is nearly certain, as those of a
language model have, some are open, and in a few the response may end. Weights are few numbers on a smooth path, and a
version's logits are linear in them. Every token is drawn from the probabilities that are logged as the sampler's, so
that the mean ratio is 1 exactly where no hook makes it another one. Hooks put a fault where programs have it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope import Manifest
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow, write_table_file

Array = NDArray[np.float64]
Columns = dict[str, Any]

END = 0
"""The token that ends a response."""
TENSORS = 4
"""Weights of the policy: each moves logits of all states in a direction of its own."""
EPSILON = 0.2
SERVERS, RANKS = 4, 4
EVALUATION_PROMPTS = 200


@dataclass(frozen=True)
class Shape:
    """Sizes of a run, and how far its policy, its engines and its rewards move."""

    seed: int
    steps: int = 24
    groups: int = 8
    responses: int = 6
    vocabulary: int = 24
    states: int = 1500
    shortest: int = 12
    longest: int = 64
    closing: float = 0.06
    """Share of the states behind `shortest` in which a response may end."""
    sure: float = 0.65
    """Share of the states in which one token is nearly certain."""
    lag: int = 2
    """Updates by which the oldest data is late."""
    schedule: str = "groups"
    """Who is late: each group by its own number of updates, all by the same ("offset"), all since the last "sync", or
    the first part of each response ("partial")."""
    drift: float = 0.03
    """Standard deviation of an update, in logits."""
    noise: float = 0.01
    """That of the sampler's engine, drawn anew at each call."""
    bias: float = 0.0
    """That of the sampler's engine, the same at each visit of a state."""
    prompts: int = 0
    """How many there are, of which each step takes some; 0: each group has a new one."""
    turns: int = 0
    """Tokens of a turn; 0: no conversation."""
    level: float = 0.5
    trend: float = 0.15
    """By how much reward and accuracy rise in the run."""
    graded: bool = False
    advantage: str = "group_normalised"
    environments: tuple[str, ...] = ()


def mixed(*keys: Any) -> NDArray[np.uint64]:
    """A well mixed number of some integers: the same one each time."""
    mixture = np.uint64(0x2545F4914F6CDD1D)
    with np.errstate(over="ignore"):
        for key in keys:
            mixture = (mixture ^ np.asarray(key).astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
            mixture = mixture ^ (mixture >> np.uint64(33))
            mixture = mixture * np.uint64(0xC4CEB9FE1A85EC53)
            mixture = mixture ^ (mixture >> np.uint64(29))
    return np.asarray(mixture)


def share(*keys: Any) -> Array:
    """A uniform number in [0, 1) of some integers."""
    return (mixed(*keys) >> np.uint64(11)).astype(float) / 2**53


def log_softmax(logits: Array) -> Array:
    """Log-probabilities along the last axis."""
    moved = logits - logits.max(axis=-1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))


class Policy:
    """Logits of every state as a linear function of few weights, and the path that the weights take."""

    def __init__(self, shape: Shape) -> None:
        rng = np.random.default_rng([shape.seed, 1])
        n, size = shape.states, shape.vocabulary
        spread = np.where(rng.random(n) < 0.5, 1.2, 3.0)
        self.base = spread[:, None] * rng.standard_normal((n, size))
        sure = np.flatnonzero(rng.random(n) < shape.sure)
        self.base[sure, rng.integers(1, size, len(sure))] += rng.gamma(4.0, 3.5, len(sure)) + 4
        self.n_closing = max(20, n // 15)
        ends = np.array([0.15, 0.4, 0.75, 0.95, 0.995])[rng.integers(0, 5, self.n_closing)]
        rest = np.log(np.exp(self.base[: self.n_closing, 1:]).sum(axis=1))
        self.base[:, END] = -35.0
        self.base[: self.n_closing, END] = rest + np.log(ends / (1 - ends))
        self.directions = rng.standard_t(5, (TENSORS, n, size)) / np.sqrt(5 / 3) / np.sqrt(TENSORS)
        moves = rng.standard_normal((shape.steps + 2, TENSORS))
        for at in range(1, len(moves)):  # an optimiser has momentum
            moves[at] = 0.6 * moves[at - 1] + 0.8 * moves[at]
        self.weights = shape.drift * np.concatenate([np.zeros((1, TENSORS)), np.cumsum(moves, axis=0)])
        """(n_versions, TENSORS): version 0 is where training began."""

    def logits(self, weights: Array, state: NDArray[Any]) -> Array:
        """(n, vocabulary) for weights of (TENSORS,) or (n, TENSORS)."""
        moved = self.base[state].copy()
        for tensor in range(TENSORS):
            moved += weights[..., tensor, None] * self.directions[tensor][state]
        return moved


@dataclass
class Call:
    """One position of all responses that are being written, as a hook of the sampler sees it."""

    policy: Policy
    rng: np.random.Generator
    responses: Columns
    written: NDArray[Any]
    """(n_responses, longest): tokens so far."""
    rows: NDArray[Any]
    position: int
    state: NDArray[Any]
    version: NDArray[Any]

    def of(self, name: str) -> NDArray[Any]:
        """A column of the responses that are being written."""
        return np.asarray(self.responses[name])[self.rows]

    def noise(self) -> Array:
        """Independent standard normal numbers, one a token of the vocabulary."""
        return self.rng.standard_normal((len(self.rows), self.policy.base.shape[1]))

    def served(self, weights: Array) -> Array:
        """Logits of other weights in these states."""
        return self.policy.logits(weights, self.state)


@dataclass
class Log:
    """The three tables of a run as arrays, one entry a row, with what a fault may need to change them."""

    shape: Shape
    policy: Policy
    tokens: Columns
    responses: Columns
    steps: Columns
    row: NDArray[Any]
    """Of each token, the row of its response."""
    state: NDArray[Any]
    manifest: dict[str, Any] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def of_token(self, name: str) -> NDArray[Any]:
        """A column of the responses, at each token."""
        return np.asarray(self.responses[name])[self.row]

    def keep(self, tokens: NDArray[Any], responses: NDArray[Any] | None = None) -> "Log":
        """Leave out rows of the tokens table, and of the responses table."""
        self.tokens = {name: values[tokens] for name, values in self.tokens.items()}
        self.row, self.state = self.row[tokens], self.state[tokens]
        if responses is not None:
            self.row = (np.cumsum(responses) - 1)[self.row]
            self.responses = {name: values[responses] for name, values in self.responses.items()}
        return self

    def lengths(self) -> NDArray[Any]:
        """Tokens of each response."""
        return np.bincount(self.row, minlength=len(self.responses["step"]))


Sampler = Callable[[Call, Array], Array]
"""Logits that the sampler computes, from those of the version that it serves."""
Draw = Callable[[Call, Array], Array]
"""Log-probabilities that are drawn from, from those that the sampler computed."""
Trainer = Callable[[Log, str, Array], Array]
"""Logits that the trainer computes for a column ("train", "current", "new", "reference"), from the true ones."""
Reward = Callable[["Log"], Columns]
"""Columns of the responses, `reward` among them."""


def simulate(
    shape: Shape,
    *,
    sampler: Sampler | None = None,
    draw: Draw | None = None,
    logs_raw: bool = False,
    trainer: Trainer | None = None,
    reward: Reward | None = None,
    prepare: Callable[[Policy], None] | None = None,
    closing: Callable[[Columns], Array] | None = None,
    setup: Callable[[Columns], None] | None = None,
    entropy_at: float = 1.0,
) -> Log:
    """Make the log of a run.

    Args:
        sampler, draw, trainer, reward: hooks, of the types above.
        logs_raw: the sampler logs what it computed, not what it drew from.
        prepare: changes the policy before anything is sampled: its path, or what its weights move.
        closing: the share of closing states by response.
        setup: changes columns of the responses before anything is sampled.
        entropy_at: temperature of the logged entropy.
    """
    policy = Policy(shape)
    if prepare is not None:
        prepare(policy)
    rng = np.random.default_rng([shape.seed, 2])
    responses = _responses(shape, rng)
    if setup is not None:
        setup(responses)
    n = len(responses["step"])
    rates = np.full(n, shape.closing) if closing is None else closing(responses)
    written = np.zeros((n, shape.longest), dtype=np.int64)
    states, versions = np.zeros_like(written), np.zeros_like(written)
    logged = np.full(written.shape, np.nan)
    lengths = np.full(n, shape.longest)
    rows = np.arange(n)
    bias = np.random.default_rng([shape.seed, 3]).standard_normal(policy.base.shape) * shape.bias
    for position in range(shape.longest):
        before = written[rows, position - 1] if position else np.full(len(rows), shape.vocabulary)
        key = (responses["prompt_id"][rows], np.full(len(rows), position), before)
        ends = (share(*key, 7) < rates[rows]) & (position + 1 >= shape.shortest)
        body = policy.n_closing + mixed(*key) % np.uint64(shape.states - policy.n_closing)
        state = np.where(ends, mixed(*key, 9) % np.uint64(policy.n_closing), body).astype(np.int64)
        version = responses["behavior_version_min"][rows] + (responses["switch"][rows] <= position)
        call = Call(policy, rng, responses, written, rows, position, state, version)
        logits = policy.logits(policy.weights[version], state)
        logits = logits + bias[state] + shape.noise * call.noise()
        computed = log_softmax(logits if sampler is None else sampler(call, logits))
        drawn = computed if draw is None else log_softmax(draw(call, computed))
        heaps = np.cumsum(np.exp(drawn), axis=1)
        token = (heaps < rng.random((len(rows), 1)) * heaps[:, -1:]).sum(axis=1)
        written[rows, position], states[rows, position], versions[rows, position] = token, state, version
        logged[rows, position] = (computed if logs_raw else drawn)[np.arange(len(rows)), token]
        lengths[rows[token == END]] = position + 1
        rows = rows[token != END]
        if not len(rows):
            break
    row = np.repeat(np.arange(n), lengths)
    position = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = (row, position)
    responses["n_tokens"] = lengths
    responses["truncated"] = written[np.arange(n), lengths - 1] != END
    responses["finish_reason"] = np.where(responses["truncated"], "length", "stop").astype(object)
    responses["response"] = np.array([" ".join(f"w{token}" for token in line[:8]) for line in written], dtype=object)
    partial = responses.pop("switch") < lengths
    responses["behavior_version_max"] = responses["behavior_version_min"] + partial
    tokens: Columns = {
        "step": responses["step"][row], "seq_id": responses["seq_id"][row], "group_id": responses["group_id"][row],
        "position": position, "token_id": written[at], "behavior_version": versions[at], "logp_behavior": logged[at],
    }  # fmt: skip
    if shape.turns:
        tokens["turn"] = 2 * (position // shape.turns) + 1
        responses["n_turns"] = 1 + (lengths - 1) // shape.turns
    log = Log(shape, policy, tokens, responses, {}, row, states[at], {}, np.random.default_rng([shape.seed, 4]))
    _score(log, trainer, entropy_at)
    log.responses |= (reward or success)(log)
    log.steps = _steps(log)
    log.manifest = _manifest(shape)
    set_advantages(log, compared(log.responses["reward"], log.responses["group_id"], shape.advantage))
    return log


def _responses(shape: Shape, rng: np.random.Generator) -> Columns:
    """Columns of the responses that are known before they are written."""
    n_groups = shape.steps * shape.groups
    of_group = np.arange(n_groups) // shape.groups
    match shape.schedule:
        case "groups":
            late = rng.integers(0, shape.lag + 1, n_groups)
        case "sync":
            late = of_group % (shape.lag + 1)
        case _:
            late = np.full(n_groups, shape.lag)
    version = np.maximum(of_group - late, 0)
    prompt = np.arange(n_groups)
    if shape.prompts:
        prompt = np.concatenate([rng.permutation(shape.prompts)[: shape.groups] for _ in range(shape.steps)])
    group = np.repeat(np.arange(n_groups), shape.responses)
    n = len(group)
    each = np.arange(n) % (shape.groups * shape.responses)
    switch = np.full(n, shape.longest + 1)
    if shape.schedule == "partial":
        newest = np.minimum(version + 1, of_group)
        switch = np.where((newest > version)[group], rng.integers(2, shape.longest, n), switch)
    found: Columns = {
        "step": of_group[group], "seq_id": each, "group_id": group, "prompt_id": 1000 + prompt[group],
        "behavior_version_min": version[group], "switch": switch,
        "engine": np.array([f"server-{at}" for at in range(SERVERS)], dtype=object)[rng.integers(0, SERVERS, n)],
        "rank": each * RANKS // (shape.groups * shape.responses),
    }  # fmt: skip
    found["prompt"] = np.array([f"Task {prompt}: solve it." for prompt in found["prompt_id"]], dtype=object)
    if shape.environments:
        kinds = np.array(shape.environments, dtype=object)
        found["environment"] = kinds[(mixed(found["prompt_id"], 5) % np.uint64(len(kinds))).astype(int)]
    return found


def _score(log: Log, trainer: Trainer | None, entropy_at: float) -> None:
    """Add the trainer's columns: the sampling version, the policy before and after the update, its entropy."""
    tokens, weights = log.tokens, log.policy.weights
    step = tokens["step"]
    versions = {"train": tokens["behavior_version"], "current": step, "new": step + 1, "reference": np.zeros_like(step)}
    names = {"train": "logp_behavior_train"}
    for which, version in versions.items():
        logits = log.policy.logits(weights[version], log.state)
        if trainer is not None:
            logits = trainer(log, which, logits)
        logp = log_softmax(logits)
        tokens[names.get(which, f"logp_{which}")] = logp[np.arange(len(step)), tokens["token_id"]]
        if which == "current":
            warm = log_softmax(logits / entropy_at)
            tokens["entropy"] = -(np.exp(warm) * warm).sum(axis=1)


def chances(log: Log) -> Array:
    """How likely each response is right: by its prompt, and by how far training is."""
    shape = log.shape
    ease = shape.level + 0.5 * (share(log.responses["prompt_id"], shape.seed, 6) - 0.5)
    done = log.responses["step"] / max(shape.steps - 1, 1)
    return np.clip(ease + shape.trend * (done - 0.5), 0.02, 0.98)


def success(log: Log) -> Columns:
    """Right or wrong; graded, how right."""
    chance = chances(log)
    if log.shape.graded:
        return {"reward": np.clip(chance + 0.2 * log.rng.standard_normal(len(chance)), 0, 1)}
    return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}


def _steps(log: Log) -> Columns:
    shape = log.shape
    step = np.arange(shape.steps)
    chance = shape.level + shape.trend * (step / max(shape.steps - 1, 1) - 0.5)
    right = log.rng.binomial(EVALUATION_PROMPTS, np.clip(chance, 0.01, 0.99))
    return {
        "step": step, "policy_version": step, "loss": 0.02 * log.rng.standard_normal(shape.steps),
        "grad_norm": 0.4 * np.exp(0.15 * log.rng.standard_normal(shape.steps)),
        "learning_rate": np.full(shape.steps, 2e-6), "eval_accuracy": right / EVALUATION_PROMPTS,
    }  # fmt: skip


def _manifest(shape: Shape) -> dict[str, Any]:
    parts = {"advantage": shape.advantage, "level": "token", "weight": "ratio", "gate": "one_side",
             "aggregation": "token_mean"}  # fmt: skip
    parameters = {"epsilon_low": EPSILON, "epsilon_high": EPSILON}
    return {
        "algorithm": {"name": "grpo", "parts": parts, "parameters": parameters},
        "task": {"name": "synthetic", "evaluation_prompts": EVALUATION_PROMPTS},
        "sampler": {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        "optimiser": {"name": "adamw", "learning_rate": 2e-6},
        "planned_updates": shape.steps,
        "seed": shape.seed,
    }


def compared(reward: Array, key: NDArray[Any], kind: str = "group_normalised") -> Array:
    """Rewards above the mean of those with the same key, in their standard deviations where they are normalised."""
    _, of_key = np.unique(key, return_inverse=True)
    size = np.bincount(of_key)
    above = reward - (np.bincount(of_key, reward) / size)[of_key]
    if kind != "group_normalised":
        return above
    deviation = np.sqrt(np.bincount(of_key, above**2) / np.maximum(size - 1, 1))
    return above / (deviation[of_key] + 1e-4)


def set_advantages(log: Log, advantage: Array) -> Log:
    """Advantages of (n_responses,) or (n_tokens,), and the loss with them."""
    log.tokens["advantage"] = np.asarray(advantage)[log.row] if len(advantage) != len(log.row) else advantage
    return apply_loss(log)


def apply_loss(log: Log) -> Log:
    """What PPO's clip on the ratio to the sampler does with the columns as they are: one pass over the batch."""
    tokens = log.tokens
    advantage = np.asarray(tokens["advantage"], dtype=float)
    ratio = np.exp(np.clip(tokens["logp_current"] - tokens["logp_behavior"], -700, 80))
    above = (advantage > 0) & (ratio > 1 + EPSILON)
    below = (advantage < 0) & (ratio < 1 - EPSILON)
    tokens["clipped"] = above | below
    tokens["clip_side"] = above.astype(int) - below.astype(int)
    tokens["gradient_weight"] = (
        np.where(above | below, 0.0, advantage * ratio) / np.bincount(tokens["step"])[tokens["step"]]
    )
    return log


# What is logged ---------------------------------------------------------------------------------------------------

_NOT_RECOMPUTED = ("logp_behavior_train", "logp_new", "logp_reference")
_NO_SCALARS = ("loss", "grad_norm", "learning_rate", "eval_accuracy")
_NO_TRAINER = (*_NOT_RECOMPUTED, "logp_current", "entropy", "clipped", "clip_side", "gradient_weight", "rank",
               *_NO_SCALARS)  # fmt: skip
COLUMN_SETS: dict[str, tuple[str, ...]] = {
    "all": ("logp_reference",),
    "with reference": (),
    "trl": ("logp_new", "logp_reference", "engine", "rank"),
    "verl": (*_NOT_RECOMPUTED, "clipped", "clip_side", "gradient_weight", "behavior_version"),
    "prime-rl": (*_NOT_RECOMPUTED, "clip_side", "gradient_weight", "eval_accuracy"),
    "no versions": ("logp_reference", "behavior_version", "behavior_version_min", "behavior_version_max",
                    "policy_version"),
    "no groups": ("logp_reference", "group_id", "prompt_id", "prompt"),
    "text": ("tokens", "engine", "rank", "behavior_version_min", "behavior_version_max", "policy_version",
             *_NO_SCALARS),
    "sampler": (*_NO_TRAINER, "advantage"),
    "with advantages": _NO_TRAINER,
}  # fmt: skip
"""Columns, and tables, that a log of this kind does not have."""
FRAMEWORKS = ("trl", "verl", "prime-rl")
WITHOUT_A_TRAINER = ("text", "sampler", "with advantages")
"""What strangers import: text and rewards, or the sampler's tokens and values, at most with advantages."""
DECIMALS = 4
"""Of log-probabilities in prime-rl's files."""


def write(log: Log, folder: Path, columns: str = "all") -> Path:
    """Write a log as a finished run, with the columns of a set."""
    left_out = COLUMN_SETS[columns]
    manifest = {"name": folder.name, "run_id": folder.name, "status": "finished"} | log.manifest
    tables = {"tokens": log.tokens, "sequences": log.responses, "steps": log.steps}
    if columns in FRAMEWORKS + WITHOUT_A_TRAINER:
        manifest["source"] = {"framework": columns if columns in FRAMEWORKS else ""}
        manifest["algorithm"] = {key: value for key, value in log.manifest["algorithm"].items() if key != "parts"}
    if columns == "prime-rl":
        manifest["log_probability_decimals"] = DECIMALS
        tables["tokens"] = {
            name: np.round(values, DECIMALS) if name.startswith("logp_") else values
            for name, values in log.tokens.items()
        }
    folder.mkdir(parents=True, exist_ok=True)
    Manifest(**manifest).write(folder)
    last = int(log.steps["step"][-1])
    start = datetime(2026, 1, 5, tzinfo=UTC)
    clock = [start + timedelta(minutes=int(step)) for step in log.steps["step"]]
    tables["steps"] = {"wall_time": np.array(clock, dtype=object)} | tables["steps"]
    for name, table in tables.items():
        if name in left_out:
            continue
        kept = {column: values for column, values in table.items() if column not in left_out}
        file = folder / name / str(schema.FileName(0, last, 0))
        file.parent.mkdir(exist_ok=True)
        write_table_file(file, pa.concat_tables(_by_step(name, kept), promote_options="default"))
    return folder


def _by_step(name: str, columns: Mapping[str, Any]) -> list[pa.Table]:
    """One Arrow table a step; masked values are null."""
    step = columns["step"]
    order = np.argsort(step, kind="stable")
    numbers, starts = np.unique(step[order], return_index=True)
    found = []
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        chosen = {column: values[rows] for column, values in columns.items() if column != "step"}
        chosen = {column: list(values) if values.dtype == object else values for column, values in chosen.items()}
        found.append(to_arrow(schema.TABLES[name], chosen, number))
    return found
