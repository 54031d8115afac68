"""A mismatch of few whole responses is named; one of single tokens, of a part that has a name, or of many is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Array, Call, Columns, Log, Shape, chances, mixed, share, simulate, write
from tests.making.loops import in_one_loop

SHAPE = Shape(71, lag=1, drift=0.02, steps=12)
Some = NDArray[np.bool_]
Which = Callable[[Columns], Some]
Sampler = Callable[[Call, Array], Array]


def one_of_eight(responses: Columns) -> Some:
    return np.asarray(share(responses["step"], responses["seq_id"], 72) < 0.12)


def spoiled(which: Which) -> Sampler:
    """Behind the first three to fourteen tokens of these responses, noise stands for what the model computes."""

    def sampler(call: Call, logits: Array) -> Array:
        rows = {name: call.of(name) for name in ("step", "seq_id", "group_id", "engine", "prompt_id")}
        begins = 3 + mixed(rows["step"], rows["seq_id"], 73) % np.uint64(12)
        return np.where((which(rows) & (call.position >= begins))[:, None], 2.0 * call.noise(), logits)

    return sampler


def said(folder: Path, sampler: Sampler, worthless: Which | None = None, without: tuple[str, ...] = ()) -> Finding:
    """What is said of the mismatch.

    Args:
        worthless: responses that earn nothing.
        without: columns that are not logged.
    """

    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < chances(log)
        return {"reward": (right & ~worthless(log.responses) if worthless else right).astype(float)}

    log = simulate(SHAPE, sampler=sampler, reward=reward)
    for name in without:
        log.tokens.pop(name, None)
        log.responses.pop(name, None)
    return asked(open_run(write(log, folder)), "mismatch_cause")[0]


def test_requests_that_the_engine_corrupts_are_named(tmp_path: Path) -> None:
    found = said(tmp_path / "run", spoiled(one_of_eight), one_of_eight)
    assert found.of_cause == "requests_corrupted", found.sentence
    assert "% of the responses hold 9" in found.sentence and " (median) on, " in found.sentence, found.sentence
    assert "they earn 0, others of their groups 0." in found.why and "Leave these responses out" in found.do
    alone = said(tmp_path / "alone", spoiled(one_of_eight), one_of_eight, ("group_id",))
    assert alone.of_cause == "requests_corrupted" and "others of their steps 0." in alone.why, alone.why


def test_what_earns_as_others_do_is_not_called_corrupted(tmp_path: Path) -> None:
    found = said(tmp_path / "run", spoiled(one_of_eight))
    assert found.of_cause == "some_responses", found.sentence
    assert "Leave these responses out" not in found.do


def single_tokens(call: Call, logits: Array) -> Array:
    """One token of eight is far apart, wherever it is."""
    far = share(call.of("step"), call.of("seq_id"), call.position, 74) < 0.12
    return np.where(far[:, None], 2.0 * call.noise(), logits)


def uneven(call: Call, logits: Array) -> Array:
    """Responses differ in how exactly they are computed."""
    size = np.exp(0.6 * np.random.default_rng(75).standard_normal(100_000))
    return logits + (0.1 * size[call.of("step") * 100 + call.of("seq_id")])[:, None] * call.noise()


NEAR_MISSES: dict[str, Sampler] = {
    "single tokens": single_tokens,
    "uneven": uneven,
    "later ones": lambda call, logits: logits + 0.01 * call.position * call.noise(),
    "a server": spoiled(lambda rows: np.asarray(rows["engine"] == "server-2")),
    "two steps": spoiled(lambda rows: np.isin(rows["step"], [4, 5])),
    "half of all": spoiled(lambda rows: np.asarray(share(rows["step"], rows["seq_id"], 76) < 0.5)),
    "five": spoiled(lambda rows: np.asarray((rows["seq_id"] == 3) & (rows["step"] % 3 == 0))),
}


@in_one_loop("sampler", NEAR_MISSES)
def test_a_near_miss_is_not_named(tmp_path: Path, sampler: Sampler) -> None:
    found = said(tmp_path / str(id(sampler)), sampler, one_of_eight)
    assert found.of_cause not in ("requests_corrupted", "some_responses"), found.sentence


def test_responses_of_one_token_say_nothing(tmp_path: Path) -> None:
    shape = Shape(77, groups=40, longest=1, noise=0.3, sure=0.2)
    found = asked(open_run(write(simulate(shape), tmp_path / "run")), "mismatch_cause")[0]
    assert found.of_cause not in ("requests_corrupted", "some_responses"), found.sentence


@pytest.mark.parametrize("known", [True, False])
def test_old_responses_are_not_called_corrupted_where_no_age_is_known(tmp_path: Path, known: bool) -> None:
    without = () if known else ("behavior_version", "behavior_version_min", "behavior_version_max",
                                "logp_behavior_train")  # fmt: skip
    found = said(tmp_path / "run", spoiled(one_of_eight), one_of_eight, without)
    assert (found.of_cause == "requests_corrupted") is known, found.sentence
