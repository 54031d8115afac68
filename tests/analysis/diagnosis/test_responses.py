"""What should not matter to a response, and what may: its place, rank and server against length, prompt and order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis import RULES, diagnose
from ratioscope.analysis.diagnosis.exchangeable import _FEATURES, _apart, _by_level
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from tests.analysis.diagnosis.made_up import best_earn, finding_of, of_groups
from tests.making.runs import Step, plain_step, write_run


def half(number: int, rows: Any) -> float:
    return 0.5


def by_turns(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Ranks take the responses of a group by turns."""
    return (row % 4).astype(np.int32)


def by_group(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (row // 8 % 4).astype(np.int32)


@pytest.mark.parametrize(("rank", "alike"), [(by_turns, "drawn alike"), (by_group, "are not the same")])
def test_a_rank_that_scores_nothing_is_named_and_not_the_places_that_it_has(
    tmp_path: Path, rank: Callable[..., Any], alike: str
) -> None:
    evidence = of_groups(tmp_path, lambda number, rows: 0.6 * (rows["rank"] != 2), rank=rank)
    found = finding_of("responses_apart", evidence)
    assert found.sentence.startswith("The reward is 0 on rank 2 and 0.5") and alike in found.why


def test_a_server_that_cuts_responses_is_named_by_their_length(tmp_path: Path) -> None:
    def server(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(np.random.default_rng([number, 1]).random(96) < 0.3, "b", "a")

    def length(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        drawn = np.random.default_rng([number, 2]).integers(5, 60, 96)
        return np.where(server(number, row) == "b", np.minimum(drawn, 20), drawn).astype(np.int32)

    found = finding_of("responses_apart", of_groups(tmp_path / "cut", half, engine=server, n_tokens=length))
    assert "tokens on server" in found.sentence and found.metric == "response_length"
    even = of_groups(tmp_path / "even", half, engine=lambda number, row: server(number + 50, row), n_tokens=length)
    assert RULES["responses_apart"](even) is None


def test_an_order_by_length_or_by_reward_is_no_fault(tmp_path: Path) -> None:
    """As where responses are logged as they end, and the long ones are wrong; or the best one first."""

    def rising(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (10 + 5 * (row % 8)).astype(np.int32)

    as_they_end = of_groups(tmp_path / "ends", lambda number, rows: 0.9 - 0.1 * (rows["seq_id"] % 8), n_tokens=rising)
    best_first = of_groups(
        tmp_path / "best", lambda number, rows: (rows["seq_id"] % 8 < rows["group_id"] % 9).astype(float)
    )
    for evidence in (as_they_end, best_first):
        assert RULES["responses_apart"](evidence) is None


def test_what_is_drawn_otherwise_is_compared_with_its_like(tmp_path: Path) -> None:
    """The first of each group is sampled greedily, and a server has an environment for itself."""
    greedy = of_groups(
        tmp_path / "greedy",
        lambda number, rows: np.where(rows["seq_id"] % 8 == 0, 0.9, 0.3),
        temperature=lambda number, row: np.where(row % 8 == 0, 0.0, 1.0).astype(np.float32),
    )
    of_its_own = of_groups(
        tmp_path / "server",
        lambda number, rows: np.where(rows["environment"] == "code", 0.9, 0.3),
        environment=lambda number, row: np.where(row // 8 % 2, "code", "math"),
        engine=lambda number, row: np.where(row // 8 % 2, "one", "other"),
    )
    for evidence in (greedy, of_its_own):
        assert RULES["responses_apart"](evidence) is None


def seconds(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of which a fifth is stopped after 30."""
    drawn = np.random.default_rng([number, 3]).uniform(0, 37, 96)
    return np.minimum(drawn, 30).astype(np.float32)


def test_tests_that_are_stopped_and_count_as_failed_are_named(tmp_path: Path) -> None:
    stopped = of_groups(tmp_path / "a", lambda number, rows: 0.6 * (rows["seconds_tools"] < 30), seconds_tools=seconds)
    found = finding_of("reward_decided", stopped)
    assert found.sentence.startswith("All responses whose tools ran longest (30 s) have the reward 0, and they are 1")
    assert stopped.run is not None
    table = pq.read_table(stopped.run.folder / "sequences", columns=["reward", "seconds_tools"])
    rest = table["reward"].to_numpy()[table["seconds_tools"].to_numpy() < 30]
    assert found.numbers[1].value == pytest.approx(rest.mean())
    quick = of_groups(tmp_path / "b", lambda number, rows: 0.6 * (rows["seconds_tools"] > 5), seconds_tools=seconds)
    assert RULES["reward_decided"](quick) is None


def test_an_environment_that_always_pays_is_named_and_one_that_is_mastered_late_is_not(tmp_path: Path) -> None:
    def environment(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(row // 8 % 4 == 0, "proofs", "algebra")

    def chance(late: float) -> Callable[[int, Any], Any]:
        return lambda number, rows: np.where(rows["environment"] == "proofs", 1.0 if number > 5 else late, 0.4)

    always = of_groups(tmp_path / "always", chance(1.0), environment=environment)
    assert finding_of("reward_decided", always).sentence == (
        "All responses of proofs have the reward 1, and they are 25% of all."
    )
    mastered = of_groups(tmp_path / "mastered", chance(0.7), environment=environment)
    assert RULES["reward_decided"](mastered) is None


@pytest.mark.parametrize("column", ["dropped", "in_baseline"])
def test_failures_that_are_left_out_need_no_other_reward(tmp_path: Path, column: str) -> None:
    def failed(number: int, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(row % 8 < 3, "timeout", None)

    left_out = {
        "dropped": failed,
        "in_baseline": lambda number, row: row % 8 >= 3,
    }[column]

    def chance(number: int, rows: Any) -> Any:
        return 0.6 * (rows["seq_id"] % 8 >= 3)

    assert finding_of("reward_decided", of_groups(tmp_path / "in", chance, failure=failed)).sentence.startswith(
        "All responses with the failure timeout have the reward 0"
    )
    assert RULES["reward_decided"](of_groups(tmp_path / "out", chance, failure=failed, **{column: left_out})) is None


def test_the_share_of_the_variance_is_the_one_of_an_analysis_of_variance(tmp_path: Path) -> None:
    """Of balanced places it is omega squared's numerator over the variance within groups, computed from the rows."""
    evidence = of_groups(tmp_path, lambda number, rows: 0.3 + 0.05 * (rows["seq_id"] % 8))
    assert evidence.run is not None
    (units,) = _by_level(_FEATURES["place"].level, evidence.run, None, None)
    apart = _apart(_FEATURES["place"], units, "reward")
    assert apart is not None
    reward = rewards_of(evidence.run).reshape(-1, 8)
    off = reward - reward.mean(axis=1, keepdims=True)
    between = len(off) * (off.mean(axis=0) ** 2).sum()
    within = ((off**2).sum() - between) / (off.size - 8)
    assert apart.share == pytest.approx((between - 7 * within) / (off**2).sum(), rel=1e-9)
    assert apart.levels["mean"].to_numpy() == pytest.approx(reward.mean(axis=0))


def rewards_of(run: Run) -> np.ndarray[Any, Any]:
    rows = pq.read_table(run.folder / "sequences", columns=["step", "seq_id", "reward"]).sort_by(
        [("step", "ascending"), ("seq_id", "ascending")]
    )
    return rows["reward"].to_numpy().astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_finding(tmp_path: Path, seed: int) -> None:
    evidence = of_groups(tmp_path, lambda number, rows: 0.2 + 0.1 * seed, rank=by_turns, prompt_id=by_group)
    assert [RULES[rule](evidence) for rule in ("responses_apart", "prompts_in_order")] == [None, None]


def test_rewards_are_relative_in_a_step_a_group_or_a_part_of_it(tmp_path: Path) -> None:
    """Ranks of places within a part have one mean in all of them; what differs by group may still not by step."""

    def said(name: str, right: Callable[[int, Any], Any], **columns: Any) -> tuple[str, str]:
        found = finding_of("relative_reward", best_earn(right, **columns)(tmp_path / name))
        return found.sentence, found.severity.name

    by_rank = {"rank": by_turns}
    whole, part, every = "in each group", "in each rank's part of a group", "in each step"
    told = "The mean reward is 0.5 {}, whatever the policy does."
    assert said("group", lambda step, group: 4) == (told.format(whole), "NOTICE")
    assert said("part", lambda step, group: 4, **by_rank) == (told.format(part), "WARNING")
    assert said("one rank a group", lambda step, group: 4, rank=by_group) == (told.format(whole), "NOTICE")
    assert said("step", lambda step, group: 3 + 2 * (group % 2), **by_rank) == (told.format(every), "NOTICE")


def test_rewards_that_are_all_the_same_are_not_relative(tmp_path: Path) -> None:
    assert RULES["relative_reward"](best_earn(lambda step, group: 8)(tmp_path)) is None


@pytest.mark.parametrize("odd", [np.inf, np.nan, -np.inf])
def test_a_part_that_is_no_number_in_one_response_does_not_stop_the_judgement(tmp_path: Path, odd: float) -> None:
    steps = []
    for number in range(24):
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((2, 96), -1.0), number=number, group=np.arange(96) // 8)
        task, form = (rng.random(96) < rate for rate in (0.2, 0.1 + 0.8 * number / 23))
        parts = {"reward_task": task.astype(np.float32), "reward_format": form.astype(np.float32)}
        reward = parts["reward_task"] + 0.5 * parts["reward_format"]
        parts["reward_task"][3] = odd if number == 5 else parts["reward_task"][3]
        steps.append(Step(number, made.tokens, made.sequences | parts | {"reward": reward}, {}))
    run = open_run(write_run(tmp_path / "run", steps))
    assert "reward_part_rise" in {each.rule for each in diagnose(summarise(run), run)}


@pytest.mark.parametrize("chance", [0.99, 0.5])
def test_groups_of_one_reward_are_told_where_no_advantage_is_logged(tmp_path: Path, chance: float) -> None:
    """As in text and rewards, which is what many import."""
    rng = np.random.default_rng(0)
    steps = []
    for number in range(14):
        reward = (rng.random(96) < (chance if number >= 6 else 0.5)).astype(np.float32)
        made = plain_step(*np.full((2, 96), -1.0), number=number, group=np.arange(96) // 4)
        tokens = {name: column for name, column in made.tokens.items() if name != "advantage"}
        steps.append(Step(number, tokens, made.sequences | {"reward": reward}, {}))
    run = open_run(write_run(tmp_path / "run", steps))
    found = {each.rule: each for each in diagnose(summarise(run), run)}
    assert ("zero_signal" in found) is (chance > 0.9)
    if "zero_signal" in found:
        assert "have one reward for all responses (mean of 7 steps)" in found["zero_signal"].sentence
        assert found["zero_signal"].steps[0] >= 6
