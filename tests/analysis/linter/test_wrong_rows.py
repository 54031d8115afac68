"""Rows that are wrong and can be named are left out: the run is judged as if they had been deleted."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.diagnosis.report import diagnosis_text, head_to_json
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import lint
from ratioscope.analysis.linter.report import remarks_json, remarks_text
from ratioscope.analysis.overview.lights import LOG, lights_of
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.sql import ask
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.tokens.reader import read_sequence
from tests.cases.world import Call, Log, Shape, apply_loss, mixed, simulate, write

Rows = NDArray[np.bool_]
TRAINED = ("logp_behavior_train", "logp_current", "logp_new")
STALE = Shape(71, steps=12, lag=6, schedule="offset", drift=1.6)
"""A run whose data are too old: staleness is what is to be found beside the wrong rows."""


@cache
def _stale(**changed: Any) -> Log:
    return simulate(Shape(**vars(STALE) | changed))


def fresh_copy(log: Log) -> Log:
    """Columns of its own, which may be changed."""
    log = Log(**vars(log))
    log.tokens = {name: np.array(values) for name, values in log.tokens.items()}
    log.responses = {name: np.array(values) for name, values in log.responses.items()}
    return log


def other_rows(log: Log, wrong: Rows, columns: tuple[str, ...] = TRAINED) -> None:
    """Give the values of some rows to others of them."""
    for step in log.steps["step"]:
        rows = np.flatnonzero((log.tokens["step"] == step) & wrong)
        moved = np.random.default_rng(int(step)).permutation(rows)
        for name in columns:
            log.tokens[name][rows] = log.tokens[name][moved]


def rank_of_other_tokens() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = log.of_token("rank") == 1
    other_rows(log, wrong)
    return log, wrong


def server_of_other_tokens() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = log.of_token("engine") == "server-3"
    other_rows(log, wrong, ("logp_behavior",))
    return log, wrong


def steps_of_other_tokens() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = np.isin(log.tokens["step"], (3, 8))
    other_rows(log, wrong)
    return log, wrong


def server_without_values() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = log.of_token("engine") == "server-2"
    log.tokens["logp_behavior"][wrong] = 0.0
    return log, wrong


def server_with_a_constant() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = log.of_token("engine") == "server-1"
    log.tokens["logp_behavior"][wrong] = -2.5
    return log, wrong


def constant_here_and_there() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    wrong = np.random.default_rng(5).random(len(log.row)) < 0.2
    log.tokens["logp_behavior"][wrong] = -1.0
    return log, wrong


def packed_without_a_border() -> tuple[Log, Rows]:
    log = fresh_copy(_stale(longest=16, shortest=6))
    wrong = log.tokens["position"] == 0
    for name in TRAINED:
        log.tokens[name][wrong] = -3 - 5 * np.random.default_rng(6).random(wrong.sum())
    return log, wrong


def answers_of_a_tool() -> tuple[Log, Rows]:
    def draw(call: Call, logp: NDArray[Any]) -> NDArray[Any]:
        if call.position % 18 < 13:
            return logp
        said = 1 + mixed(call.of("prompt_id"), call.position, 15) % np.uint64(logp.shape[1] - 1)
        return np.where(np.arange(logp.shape[1]) == said.astype(int)[:, None], 0.0, np.full(logp.shape, -1e9))

    log = simulate(STALE, draw=draw)
    return log, log.tokens["position"] % 18 >= 13


def first_token_was_given() -> tuple[Log, Rows]:
    def draw(call: Call, logp: NDArray[Any]) -> NDArray[Any]:
        if call.position:
            return logp
        return np.where(np.arange(logp.shape[1]) == 5, 0.0, np.full(logp.shape, -1e9))

    log = simulate(Shape(**vars(STALE) | {"longest": 16, "shortest": 6}), draw=draw)
    return log, log.tokens["position"] == 0


def token_was_forced() -> tuple[Log, Rows]:
    """Token 7 at position 9, where it was not drawn before it."""

    def draw(call: Call, logp: NDArray[Any]) -> NDArray[Any]:
        late = (call.position == 9) & ~(call.written[call.rows, :9] == 7).any(axis=1)
        return np.where(late[:, None], np.where(np.arange(logp.shape[1]) == 7, 0.0, -1e9), logp)

    log = simulate(Shape(**vars(STALE) | {"longest": 16, "shortest": 12}), draw=draw)
    at = (log.tokens["position"] == 9) & (log.tokens["token_id"] == 7)
    return log, at & (log.tokens["logp_behavior"] == 0)


def repeated(log: Log, copies: Rows, moved: Callable[[dict[str, NDArray[Any]]], None]) -> tuple[Log, Rows]:
    """The log with some responses a second time, whose keys are changed."""
    n = len(copies)
    again = [np.concatenate([np.ones(len(of), dtype=bool), copies[of]]) for of in (log.row, np.arange(n))]
    doubled = {"tokens": log.tokens, "responses": log.responses}
    for which, columns in doubled.items():
        late = copies[log.row] if which == "tokens" else copies
        second = {name: np.array(values[late]) for name, values in columns.items()}
        moved(second)
        doubled[which] = {name: np.concatenate([values, second[name]]) for name, values in columns.items()}
    wrong = np.concatenate([np.zeros(len(log.row), dtype=bool), np.ones(copies[log.row].sum(), dtype=bool)])
    number = n - 1 + np.cumsum(copies)
    row = np.concatenate([log.row, number[log.row[copies[log.row]]]])
    assert len(again[0]) == len(log.row) * 2
    return Log(
        **vars(log) | doubled | {"row": row, "state": np.concatenate([log.state, log.state[copies[log.row]]])}
    ), wrong


def logged_by_two_ranks() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    copies = log.responses["seq_id"] % 5 == 0

    def renumber(columns: dict[str, NDArray[Any]]) -> None:
        columns["seq_id"] += 1000

    return repeated(log, copies, renumber)


def batches_again() -> tuple[Log, Rows]:
    log = fresh_copy(_stale())
    steps = int(log.steps["step"][-1]) + 1

    def later(columns: dict[str, NDArray[Any]]) -> None:
        columns["step"] += steps - 4
        columns["group_id"] += 10_000

    log, wrong = repeated(log, np.isin(log.responses["step"], (4, 5)), later)
    log.steps = {name: np.concatenate([values, values[4:6]]) for name, values in log.steps.items()}
    for name in ("step", "policy_version"):
        log.steps[name][-2:] = steps, steps + 1
    return log, wrong


LOGS: dict[str, tuple[Callable[[], tuple[Log, Rows]], str]] = {
    "rank": (rank_of_other_tokens, "rank 1"),
    "server": (server_of_other_tokens, "server-3, whose log-probabilities belong to other tokens"),
    "steps": (steps_of_other_tokens, "steps 3 and 8, whose log-probabilities belong to other tokens"),
    "zeros of a server": (server_without_values, "server-2, whose logp_behavior is 0"),
    "constant of a server": (server_with_a_constant, "server-1, whose logp_behavior is -2.5"),
    "scattered constant": (constant_here_and_there, "logp_behavior is -1"),
    "packed": (packed_without_a_border, "first tokens"),
    "tool": (answers_of_a_tool, "stretches whose logp_behavior"),
    "given": (first_token_was_given, "first tokens, which were not sampled"),
    "forced": (token_was_forced, "token id 7 where it was forced at position 9"),
    "two ranks": (logged_by_two_ranks, "under another number"),
    "again": (batches_again, "steps 12–13"),
}


@pytest.fixture(scope="module", params=LOGS)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Rows, Opened, str]:
    make, words = LOGS[request.param]
    log, wrong = make()
    folder = write(apply_loss(log), tmp_path_factory.mktemp("wrong") / "run", "all")
    return log, wrong, open_folder(folder), words


def by_hand(log: Log, kept: Rows) -> pd.DataFrame:
    """Staleness and update of the rows that are kept: mean (1 - ρ)+ and ½ mean |ρ' - ρ|, by step, in float64."""
    old, now, new = (
        log.tokens[name].astype(np.float32).astype(float)[kept] for name in ("logp_behavior", *TRAINED[1:])
    )
    rho, after = np.exp(now - old), np.exp(new - old)
    terms = pd.DataFrame({"s_k_bounded": np.maximum(1 - rho, 0), "u_k": np.abs(after - rho) / 2})
    return terms.groupby(log.tokens["step"][kept]).mean()


def test_the_others_are_judged_as_if_the_wrong_rows_had_been_deleted(judged: tuple[Log, Rows, Opened, str]) -> None:
    log, wrong, opened, words = judged
    assert 0.02 < wrong.mean() < 0.4
    expected, values = by_hand(log, ~wrong), opened.summary.values
    # A sure token beside a tool's answer looks like it, and a likely response may be there twice.
    precision = 0.02 if "stretches" in words or "number" in words else 1e-6
    for key in expected:
        np.testing.assert_allclose(values[key].loc[expected.index], expected[key], rtol=precision, err_msg=key)
    (said,) = (finding for finding in opened.findings if finding.rule == "rows_left_out")
    assert said.sentence.startswith("Judged without ") and words in said.sentence
    assert sum(part.share for part in opened.run.left_out) == pytest.approx(wrong.mean(), abs=0.01)
    (stale,) = (finding for finding in opened.findings if finding.rule == "staleness_high")
    worst = expected["s_k_bounded"].max()
    assert any(number.value == pytest.approx(worst, rel=precision) for number in stale.numbers), stale.numbers
    assert not {"log_broken", "log_broken_in_part"} & {finding.rule for finding in opened.findings}


def test_values_that_are_lost_at_one_position_are_no_forced_token(tmp_path: Path) -> None:
    log = fresh_copy(_stale())
    log.tokens["logp_behavior"][log.tokens["position"] == 9] = 0.0
    opened = open_folder(write(apply_loss(log), tmp_path / "run", "all"))
    (said,) = (finding for finding in opened.findings if finding.rule == "log_broken")
    assert "always at position 9" in said.sentence and "forced" not in said.sentence
    assert not opened.run.left_out and said.do.startswith("Where missing values were replaced by 0")


def test_what_is_left_out_is_said_everywhere(judged: tuple[Log, Rows, Opened, str]) -> None:
    _, wrong, opened, _ = judged
    (part,) = opened.run.left_out
    assert part.words in diagnosis_text(opened) and part.words in remarks_text(opened.remarks)
    (said,) = head_to_json(opened)["left_out"]
    assert (said["rows"], said["share"]) == (part.words, part.share)
    assert part.words in {remark["left_out"] for remark in remarks_json(opened.remarks)}
    light = next(light for light in lights_of(opened) if light.name == LOG)
    assert light.severity is Severity.WARNING
    (n,) = ask(opened.run, opened.summary, "select count(*) as n from tokens where invalid = 'left out'").table["n"]
    assert n.as_py() == pytest.approx(wrong.sum(), rel=0.05)


def test_with_the_limit_at_0_every_row_is_judged(tmp_path: Path) -> None:
    log, _ = rank_of_other_tokens()
    folder = write(apply_loss(log), tmp_path / "run", "all")
    (tmp_path / "ratioscope.toml").write_text("[thresholds]\nleft_out = 0\n", encoding="utf-8")
    opened = open_folder(folder)
    assert not opened.run.left_out
    every = by_hand(log, np.ones(len(log.row), dtype=bool))
    np.testing.assert_allclose(opened.summary.values["s_k_bounded"], every["s_k_bounded"], rtol=1e-6)


def test_more_than_half_is_not_left_out(tmp_path: Path) -> None:
    log = fresh_copy(_stale())
    log.tokens["logp_behavior"][np.random.default_rng(5).random(len(log.row)) < 0.6] = -1.0
    opened = open_folder(write(apply_loss(log), tmp_path / "run", "all"))
    assert not opened.run.left_out
    assert {"log_broken"} == {finding.rule for finding in opened.findings if finding.severity is Severity.CRITICAL}


def test_the_rest_keeps_what_it_is_asked_for_again(tmp_path: Path) -> None:
    log, _ = rank_of_other_tokens()
    folder = write(apply_loss(log), tmp_path / "run", "all")
    whole, rest = open_run(folder), open_folder(folder).run
    assert rest.left_out and not whole.left_out
    values = [summarise(each).values["n_tokens"].sum() for each in (whole, rest, whole, rest)]
    assert values[0] == values[2] > values[1] == values[3]
    for run in (whole, rest):
        with relations(run) as connection:
            ((n,),) = connection.execute("select count(*) from token").fetchall()
        assert n == summarise(run).values["n_tokens"].sum()
    window = Window.of(rest, 3, 4)
    with relations(window.run(), 3, 4) as connection:
        ranks = connection.execute("select distinct rank from token join sequence using (step, seq_id)").fetchall()
    assert (1,) not in ranks and len(ranks) == 3
    wrong = whole.read("sequences").query("step == 3 and rank == 1").iloc[0]
    assert len(read_sequence(rest, 3, int(wrong["seq_id"])).tokens) == wrong["n_tokens"]  # for who looks at it
    found = lint(rest, limits=Limits())
    assert {each.wrong_rows for each in found if each.wrong_rows} == {*rest.left_out}


@pytest.mark.parametrize(("own", "named"), [(40, True), (1, False)])
def test_branches_of_a_tree_are_copies_by_what_is_their_own(tmp_path: Path, own: int, named: bool) -> None:
    """The second one masks what it shares with the first one: the last tokens alone may be equal by chance."""
    log, copies = logged_by_two_ranks()
    rejected = copies & (log.tokens["position"] < log.lengths()[log.row] - own)
    log.tokens["rejected"] = np.array([None, "shared prefix"], dtype=object)[rejected.astype(int)]
    found = {each.rule for each in lint(open_run(write(log, tmp_path / "run", "all"))) if each.severity}
    assert ("repeated" in found) is named
