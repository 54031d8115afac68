"""What a mismatch is like within its place, and over the labelled versions: faults, and near misses of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.linter.place import places
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Call, Log, Policy, Shape, log_softmax, share, simulate, write

Array = NDArray[Any]
Sampler = Callable[[Call, Array], Array]


def said(log: Log, folder: Path, columns: str = "all") -> Finding:
    return asked(open_run(write(log, folder, columns)), "mismatch_cause")[0]


def chat(call: Call) -> Array:
    return np.asarray(call.of("environment") == "chat")[:, None]


def other(call: Call) -> Array:
    """Logits of the same policy elsewhere, as if the context were another."""
    return call.policy.logits(call.policy.weights[call.version], (call.state * 7 + 3) % len(call.policy.base))


def cut(logits: Array, mass: float = 0.8) -> Array:
    """Without the least likely tokens beyond a mass."""
    order = np.argsort(-logits, axis=1)
    heaps = np.cumsum(np.take_along_axis(np.exp(log_softmax(logits)), order, axis=1), axis=1)
    kept = np.zeros(logits.shape, dtype=bool)
    np.put_along_axis(kept, order, np.hstack([np.full((len(logits), 1), True), heaps[:, :-1] < mass]), axis=1)
    return np.where(kept, logits, -1e9)


@pytest.mark.parametrize(
    ("sampler", "cause", "words"),
    [
        (lambda call, logits: np.where(chat(call), logits / 0.6, logits), "temperature_of_one_part", "at 0.6 × the"),
        (lambda call, logits: np.where(chat(call), logits / 1.4, logits), "temperature_of_one_part", "at 1.4 × the"),
        (
            lambda call, logits: np.where(chat(call), cut(logits), logits),
            "truncation_of_one_part",
            "the mean ratio is 0",
        ),
        (lambda call, logits: np.where(chat(call), 0.8 * logits + 0.2 * other(call), logits), "one_environment", ""),
        (lambda call, logits: logits + np.where(chat(call), 0.5, 0.01) * call.noise(), "one_environment", ""),
    ],
    ids=["cold", "hot", "truncated", "another context", "noise"],
)
def test_what_one_environment_is_drawn_with_is_named(sampler: Sampler, cause: str, words: str, tmp_path: Path) -> None:
    found = said(simulate(Shape(1601, lag=1, environments=("chat", "maths")), sampler=sampler), tmp_path / "run")
    assert found.of_cause == cause, found.sentence
    assert words in found.sentence and "environment chat" in found.sentence, found.sentence


def test_what_one_server_is_drawn_with_is_named(tmp_path: Path) -> None:
    """And a temperature of all servers alike is that of none of them."""

    def tempered(servers: tuple[str, ...]) -> Sampler:
        return lambda call, logits: np.where(np.isin(call.of("engine"), servers)[:, None], logits / 0.7, logits)

    shape = Shape(1602, lag=1, responses=10)
    found = said(simulate(shape, sampler=tempered(("server-2",))), tmp_path / "one")
    assert found.of_cause == "temperature_of_one_part" and "in server-2 the" in found.sentence, found.sentence
    everywhere = said(simulate(shape, sampler=tempered(tuple(f"server-{at}" for at in range(4)))), tmp_path / "all")
    assert everywhere.of_cause != "temperature_of_one_part", everywhere.sentence


def conversation(part: Callable[[Log], Array], lengths: int = 0) -> Log:
    """Of turns of 14 tokens, or of about as many, of a length of their own in each response; the trainer's context is
    another one in part."""

    def trainer(log: Log, which: str, logits: Array) -> Array:
        if lengths:
            size = (
                14
                - lengths
                + (share(log.responses["step"], log.responses["seq_id"], 5) * (2 * lengths + 1)).astype(int)
            )
            log.tokens["turn"] = 2 * (log.tokens["position"] // size[log.row]) + 1
            log.responses["n_turns"] = 1 + (log.lengths() - 1) // size
        policy, step = log.policy, log.tokens["step"]
        version = {"train": log.tokens["behavior_version"], "reference": 0 * step, "new": step + 1}.get(which, step)
        elsewhere = policy.logits(policy.weights[version], (log.state * 7 + 3) % len(policy.base))
        by = part(log)[:, None]
        return np.asarray((1 - by) * logits + by * elsewhere)

    shape = Shape(1603, longest=80, shortest=40, closing=0.025, lag=1, drift=0.02, turns=14)
    return simulate(shape, trainer=trainer)


@pytest.mark.parametrize("lengths", [0, 6])
@pytest.mark.parametrize("turn", [3, 7])
def test_another_history_from_a_turn_on_is_named(turn: int, lengths: int, tmp_path: Path) -> None:
    found = said(conversation(lambda log: np.where(log.tokens["turn"] >= turn, 0.15, 0.0), lengths), tmp_path / "run")
    assert found.of_cause == "turns_of_another_history" and f"turns {turn} to" in found.sentence, found.sentence


@pytest.mark.parametrize(
    ("part", "lengths"),
    [
        (lambda log: 0.002 * log.tokens["position"], 0),
        (lambda log: 0.0005 * np.exp(log.tokens["position"] / 14), 0),
        (lambda log: np.where(log.tokens["position"] >= 28, 0.15, 0.0), 6),
        (lambda log: np.where(log.tokens["position"] % 14 < 4, 0.3, 0.0), 0),
        (lambda log: np.where(log.tokens["turn"] == 5, 0.15, 0.0), 0),
    ],
    ids=["grows", "grows fast", "a position", "begins of turns", "one turn in the middle"],
)
def test_what_else_turns_differ_by_is_no_history(part: Callable[[Log], Array], lengths: int, tmp_path: Path) -> None:
    found = said(conversation(part, lengths), tmp_path / "run")
    assert found.of_cause != "turns_of_another_history", found.sentence


def test_neighbouring_levels_are_named_by_the_first_and_the_last(tmp_path: Path) -> None:
    found = places(_frame(lambda frame: frame["version_lag"].between(2, 4)))[0]
    assert found.words == "ages 2 to 4" and found.clause.split(" (")[0].endswith("in ages 2 to 4")
    assert places(_frame(lambda frame: frame["version_lag"].isin([1, 3, 5, 7])))[0].words == "4 of 8 ages"
    assert places(_frame(lambda frame: frame["version_lag"].isin([1, 4])))[0].words == "age in versions 1 and 4"
    assert places(_frame(lambda frame: frame["prompt_id"].isin([1, 3, 5, 6])))[0].words == "4 of 20 prompts"


def _frame(there: "Callable[[pd.DataFrame], pd.Series[bool]]") -> pd.DataFrame:
    """As `LogEvidence.fresh`, with a large mismatch at some tokens."""
    rng, n = np.random.default_rng(0), 16_000
    frame = pd.DataFrame(
        {"step": np.repeat(np.arange(8), n // 8), "group_id": np.arange(n) // 50, "seq_id": np.arange(n) // 25,
         "position": np.arange(n) % 25, "last_position": 24, "token_id": rng.integers(0, 50, n), "visit": 0,
         "version_lag": rng.integers(0, 8, n // 50).repeat(50), "prompt_id": rng.integers(0, 20, n // 50).repeat(50)}
    )  # fmt: skip
    for name in ("turn", "routing_agreement", "segment_id", "history_break", "later_half", "behind_change",
                 "before_change", "absolute", "engine", "rank", "environment", "adapter"):  # fmt: skip
        frame[name] = None
    frame["logp_behavior"] = -rng.exponential(0.5, n)
    size = np.where(there(frame), 0.6, 0.03)
    frame["fresh"] = -np.expm1(frame["logp_behavior"]) * size * rng.standard_normal(n)
    return frame


# Over the versions ----------------------------------------------------------------------------------------------------


def followed(weights: Callable[[Array, Array], Array], shape: Shape, noise: float = 0.005) -> Log:
    """A sampler that has the weights of these versions: of what it is labelled with, and the step."""

    def sampler(call: Call, _: Array) -> Array:
        served = call.served(call.policy.weights[weights(call.version, call.of("step"))])
        return served + noise * call.noise()

    return simulate(shape, sampler=sampler)


@pytest.mark.parametrize("columns", ["all", "verl"])
@pytest.mark.parametrize(("period", "first"), [(6, 0), (4, 3), (2, 0)])
def test_weights_that_are_sent_every_few_steps_are_named(period: int, first: int, columns: str, tmp_path: Path) -> None:
    def sent(version: Array, _: Array) -> Array:
        return np.maximum((version - first) // period * period + first, 0)

    found = said(followed(sent, Shape(1604, steps=28, lag=0, drift=0.06)), tmp_path / "run", columns)
    assert found.of_cause == "weights_sent_each_period", found.sentence
    assert f"falls back every {period} steps" in found.sentence, found.sentence


@pytest.mark.parametrize(
    ("weights", "lag"),
    [
        (lambda version, step: np.maximum(version - 3, 0), 0),
        (lambda version, step: np.where(version < 12, version // 12 * 12, version), 0),
        (lambda version, step: np.where(share(version, 3) < 0.4, np.maximum(version - 2, 0), version), 0),
        (lambda version, step: 0 * version, 1),
        (lambda version, step: version, 3),
    ],
    ids=["too young", "one restart", "by chance", "never", "healthy"],
)
def test_what_comes_and_goes_otherwise_is_no_period(
    weights: Callable[[Array, Array], Array], lag: int, tmp_path: Path
) -> None:
    found = said(followed(weights, Shape(1605, steps=28, lag=lag, drift=0.06)), tmp_path / "run")
    assert found.of_cause != "weights_sent_each_period", found.sentence


@pytest.mark.parametrize(("columns", "lag"), [("all", 1), ("all", 0), ("verl", 1)])
def test_a_sampler_that_no_longer_follows_is_named(columns: str, lag: int, tmp_path: Path) -> None:
    shape = Shape(1606, steps=28, lag=lag, drift=0.05)
    found = said(followed(lambda version, _: np.minimum(version, 12), shape), tmp_path / "run", columns)
    assert found.of_cause == "sampler_stops_following" and "up to the weights of step 12" in found.sentence, (
        found.sentence
    )


@pytest.mark.parametrize("columns", ["all", "verl"])
def test_a_policy_that_begins_to_move_is_no_sampler_that_stops(columns: str, tmp_path: Path) -> None:
    """Its weights never arrived."""

    def frozen(call: Call, _: Array) -> Array:
        return call.served(call.policy.weights[0 * call.version]) + 0.005 * call.noise()

    def path(policy: Policy) -> None:
        policy.weights[12:] = policy.weights[:-12].copy()
        policy.weights[:12] = 0

    log = simulate(Shape(1607, steps=28, lag=1, drift=0.05), prepare=path, sampler=frozen)
    found = said(log, tmp_path / "late", columns)
    assert found.of_cause != "sampler_stops_following", found.sentence


@pytest.mark.parametrize(
    "weights",
    [
        lambda version, step: 0 * version,
        lambda version, step: np.maximum(version - 3, 0),
        lambda version, step: np.where(version < 18, np.minimum(version, 10), version),
        lambda version, step: np.where(version >= 12, 0, version),
    ],
    ids=["never", "too young", "comes back", "reloaded from the start"],
)
def test_what_else_begins_at_a_step_is_no_stop(weights: Callable[[Array, Array], Array], tmp_path: Path) -> None:
    found = said(followed(weights, Shape(1608, steps=28, lag=1, drift=0.05)), tmp_path / "run")
    assert found.of_cause != "sampler_stops_following", found.sentence


@pytest.mark.parametrize("by", [2, -2])
def test_labels_that_are_too_old_are_told_from_those_that_are_too_young(by: int, tmp_path: Path) -> None:
    """A third of the data is of weights that are two versions newer than labelled, or two versions older."""

    def weights(version: Array, step: Array) -> Array:
        wrong = share(version, step, 3) < 0.34
        return np.where(wrong, np.clip(version + by, 0, step), version)

    found = said(followed(weights, Shape(1609, lag=4, drift=0.1)), tmp_path / "run")
    assert (found.of_cause == "labels_too_old") == (by > 0), found.sentence
    assert by > 0 or "too old" not in found.sentence
    assert by < 0 or "too young" not in found.sentence


@pytest.mark.parametrize("pass_noise", [0.0, 0.1])
def test_labels_that_are_right_are_not_called_too_old(pass_noise: float, tmp_path: Path) -> None:
    """Nor where the trainer's own passes differ, and the recomputed one most."""
    rng = np.random.default_rng(4)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        size = pass_noise * {"train": 1.0, "current": 0.3}.get(which, 0.0)
        return np.asarray(logits + size * rng.standard_normal(logits.shape))

    found = said(simulate(Shape(1610, lag=3, drift=0.005, noise=0.01), trainer=trainer), tmp_path / "run")
    assert found.of_cause != "labels_too_old", found.sentence
