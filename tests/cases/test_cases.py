"""The cases: the generator is exact, the rows are whole, and no verdict is worse than the recorded one."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.findings.mark import MARKS
from ratioscope.analysis.runs.store import open_run
from tests.cases import ranges, score
from tests.cases.case import FAMILIES, Case, says
from tests.cases.faults import FAULTS
from tests.cases.healthy import HEALTHY, SICK
from tests.cases.world import COLUMN_SETS, END, Call, Log, Shape, compared, simulate, write
from tests.making.loops import in_one_loop

SMALL = Shape(7, steps=6, groups=4, responses=4, longest=30)
RECORDED = score.recorded()
# As many logs as there is time for, the smallest: faults and sick ones, healthy ones.
FAULTS_JUDGED, HEALTHY_JUDGED = 36, 14
_REPORTS = re.compile(r"[\w-]+ #\d+(, #\d+)*(; [\w-]+ #\d+(, #\d+)*)*")


def smallest(healthy: bool, count: int) -> list[str]:
    """Names of the logs with the fewest tokens."""
    found = [name for name, (case, _) in score.logs().items() if (case.family == "healthy") is healthy]
    return sorted(found, key=lambda name: (RECORDED[name].tokens, name))[:count] if RECORDED else []


def means(log: Log, column: str) -> tuple[float, float]:
    """Mean ratio of a column to the sampler's less 1, and its standard error: a response's tokens are a martingale."""
    ratio = np.exp(log.tokens[column] - log.tokens["logp_behavior"])
    return float(ratio.mean() - 1), float(ratio.std() / np.sqrt(len(ratio)))


def test_there_are_enough_cases() -> None:
    assert len(FAULTS) >= 45
    assert len(HEALTHY) >= 60
    assert len(SICK) >= 20
    registers = (FAULTS, HEALTHY, SICK, *score.HELD_OUT.values())
    assert len(score.CASES) == sum(map(len, registers))


def test_every_row_says_what_it_is() -> None:
    for case in score.CASES.values():
        assert case.family in FAMILIES, case.name
        assert case.truth.endswith("."), case.name
        assert set(case.columns) <= COLUMN_SETS.keys(), case.name
        assert not case.report or _REPORTS.fullmatch(case.report), case.name
        for pattern in (*case.needs, *case.never):
            assert pattern == pattern.lower() or "\\D" in pattern, case.name
            says(pattern, "")
    faults = [case for case in score.CASES.values() if score.kind_of(case).endswith("faults")]
    assert [case.name for case in faults if not case.needs or not case.never] == []
    assert [case.name for case in SICK.values() if not case.never] == []


def test_held_out_cases_are_counted_apart() -> None:
    held_out = {score.kind_of(case) for cases in score.HELD_OUT.values() for case in cases.values()}
    assert held_out == score.FIRST_SCORE.keys()
    assert not {score.kind_of(case) for case in (FAULTS | HEALTHY | SICK).values()} & held_out


@in_one_loop("case", dict([*HEALTHY.items()][1::7]))
def test_the_mean_ratio_of_a_healthy_run_is_one(case: Case) -> None:
    log = case.make()
    for column in ("logp_current", "logp_behavior_train", "logp_new"):
        above, error = means(log, column)
        assert abs(above) <= 4.5 * error + 1e-12, column


def test_the_sampler_drew_from_what_is_logged() -> None:
    """Tokens are as surprising as the policy's entropy says, where sampler and policy are one."""
    log = simulate(Shape(8, lag=0, noise=0.0, steps=12))
    surprise = -log.tokens["logp_current"] - log.tokens["entropy"]
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(len(surprise))
    assert np.array_equal(log.tokens["logp_current"], log.tokens["logp_behavior"])


def test_most_states_are_nearly_certain_and_some_are_open() -> None:
    logp = simulate(Shape(9)).tokens["logp_behavior"]
    assert 0.4 < (logp > -0.05).mean() < 0.9
    assert 0.1 < (logp < -0.5).mean() < 0.5


def test_a_run_is_the_same_each_time() -> None:
    one, other = simulate(SMALL), simulate(SMALL)
    for table in ("tokens", "responses", "steps"):
        ours, theirs = getattr(one, table), getattr(other, table)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not np.array_equal(ours[name], theirs[name])] == []


def test_a_fault_is_only_where_its_hook_is() -> None:
    """A hook of the sampler leaves the trainer's values of the same tokens alone."""
    changed: list[int] = []

    def sampler(call: Call, logits: np.ndarray) -> np.ndarray:
        changed.append(call.position)
        return logits + 0.5 * call.noise()

    log = simulate(SMALL, sampler=sampler)
    plain = log.policy.logits(log.policy.weights[log.tokens["step"]], log.state)
    logp = plain - np.log(np.exp(plain).sum(axis=1, keepdims=True))
    assert np.allclose(logp[np.arange(len(logp)), log.tokens["token_id"]], log.tokens["logp_current"])
    assert sorted(changed) == list(range(len(changed)))


def test_responses_end_with_their_end_or_at_the_limit() -> None:
    log = simulate(SMALL)
    last = np.append(log.row[1:] != log.row[:-1], True)
    ended = log.tokens["token_id"][last] == END
    assert np.array_equal(ended, ~log.responses["truncated"])
    assert (log.lengths()[~ended] == SMALL.longest).all()
    assert not (log.tokens["token_id"][~last] == END).any()


@pytest.mark.parametrize("columns", COLUMN_SETS)
def test_every_set_of_columns_is_a_run(columns: str, tmp_path: Path) -> None:
    log = simulate(SMALL)
    run = open_run(write(log, tmp_path / "run", columns))
    assert (run.status, run.problems, run.last_step) == ("finished", (), SMALL.steps - 1)
    tokens = run.read("tokens")
    assert len(tokens) == (0 if "tokens" in COLUMN_SETS[columns] else len(log.row))
    left_out = [name for name in COLUMN_SETS[columns] if name in tokens]
    assert [name for name in left_out if tokens[name].notna().any()] == []


def test_leaving_out_responses_keeps_the_tables_together() -> None:
    log = simulate(SMALL)
    there = log.responses["seq_id"] % 3 > 0
    log.keep(there[log.row], there)
    assert np.array_equal(log.lengths(), log.responses["n_tokens"])
    assert np.array_equal(log.of_token("seq_id"), log.tokens["seq_id"])


def test_advantages_compare_those_with_one_key() -> None:
    found = compared(np.array([1.0, 0, 3, 3]), np.array([4, 4, 9, 9]), "group_mean")
    assert found.tolist() == [0.5, -0.5, 0, 0]


def test_a_pattern_is_all_of_its_parts() -> None:
    assert says("server-2 & hold|sit", "server-2 of four: half of it sits there")
    assert not says("server-2 & hold|sit", "half of it sits in long responses")


def test_every_log_has_a_recorded_verdict() -> None:
    assert RECORDED.keys() == score.logs().keys(), "run `python -m tests.cases score OUT --record`"


@pytest.mark.parametrize("name", smallest(False, FAULTS_JUDGED) + smallest(True, HEALTHY_JUDGED))
def test_a_verdict_is_no_worse_than_the_recorded_one(name: str, tmp_path: Path) -> None:
    """Better ones are recorded with `python -m tests.cases score OUT --record`, then `make docs`."""
    found, known = score.verdict_of(name, tmp_path), RECORDED[name]
    places = [score.BEST_FIRST.index(each.verdict) for each in (found, known)]
    assert places[0] <= places[1], f"{found.verdict}, was {known.verdict}: {found.rule}: {found.sentence}"


def test_the_marks_have_been_read_off_logs_without_a_fault() -> None:
    """Every mark, with the limit that it has; what is above it there stands beside marks that are not."""
    recorded = json.loads(ranges.RECORDED.read_text(encoding="utf-8"))
    assert {name: each["limit"] for name, each in recorded.items()} == {
        mark.name: mark.limit for mark in MARKS.values()
    }
    read = [each for each in recorded.values() if each["healthy"]["logs"] or each["sick but true"]["logs"]]
    assert len(read) > 0.7 * len(recorded)
