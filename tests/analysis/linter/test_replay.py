"""What a replay buffer brings again is neither a copy nor an old sampler."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.mismatch_over_steps import sampler_is_frozen
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run, open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Call, Log, Policy, Shape, log_softmax, simulate, write


def again(log: Log, source: np.ndarray) -> Log:
    """Each response is that of a row of the log, with the trainer's values of its own step."""
    length = log.lengths()
    begins = np.cumsum(length) - length
    at = np.concatenate([np.arange(begins[row], begins[row] + length[row]) for row in source])
    log.row, log.state = np.repeat(np.arange(len(source)), length[source]), log.state[at]
    log.tokens = {name: values[at] for name, values in log.tokens.items()}
    places = ("step", "seq_id", "group_id", "rank")
    log.responses = {name: each if name in places else each[source] for name, each in log.responses.items()}
    for name in places[:3]:
        log.tokens[name] = log.of_token(name)
    now = log_softmax(log.policy.logits(log.policy.weights[log.tokens["step"]], log.state))
    log.tokens["logp_current"] = now[np.arange(len(at)), log.tokens["token_id"]]
    return log


def replayed(folder: Path, *, earlier: bool, frozen: bool = False) -> Run:
    """A run of which a third of the groups are others' again, two at a time: of an earlier step, or of their own."""

    def first(call: Call, logits: np.ndarray) -> np.ndarray:
        return call.served(call.policy.weights[0 * call.version]) if frozen else logits

    def moves(policy: Policy) -> None:
        policy.weights *= 3

    shape = Shape(77, steps=20, groups=9, responses=4, lag=0, noise=0.0, prompts=30 if frozen else 0)
    log = simulate(shape, sampler=first, prepare=moves)
    group = np.arange(len(log.responses["step"])) // 4
    taken = np.unique(group)
    for place in taken[taken % 9 >= 6]:
        step, of = divmod(int(place), 9)
        if step >= 4:
            taken[place] = 9 * (step % 4 if earlier else step) + of // 8 + step % 3
    source = (4 * taken[:, None] + np.arange(4)).ravel()
    return open_run(write(again(log, source), folder, "trl"))


@pytest.mark.parametrize("earlier", [True, False])
def test_responses_of_a_buffer_may_be_there_twice(earlier: bool, tmp_path: Path) -> None:
    (remark,) = asked(replayed(tmp_path / "run", earlier=earlier), "repeated")
    assert remark.is_problem is not earlier, remark.sentence


@pytest.mark.parametrize("frozen", [True, False])
def test_a_sampler_of_responses_that_come_again_is_not_frozen(frozen: bool, tmp_path: Path) -> None:
    run = replayed(tmp_path / "run", earlier=True, frozen=frozen)
    with relations(run) as connection:
        found = sampler_is_frozen(LogEvidence(run, connection))
    assert found.present is frozen
