"""Attribution and the worst sequences: against plain loops over the Parquet files, and at the edges."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.intervals import cluster_interval
from ratioscope.analysis.tokens.attribution import OWNED_SUMS, OWNERS, attribution_sentence, shares
from ratioscope.analysis.tokens.worst_sequences import (
    CRITERIA,
    group_of,
    sequence_tokens,
    worst_sequences,
)
from ratioscope.errors import RatioscopeError, RunFormatError
from ratioscope.notes import is_unreliable
from ratioscope.run_format import schema
from tests.making.runs import Step, plain_step, random_step, write_files, write_run
from tests.making.samples import run_of
from tests.oracles.brute_force import is_valid, rows_of

HOSTILE = "<script>alert('1')</script> **{0}** %s \"; drop table token; -- $term \\ '"

Row = dict[str, Any]


def with_prompts(step: Step) -> Step:
    """Prompts that occur in several steps; the text is hostile, and one sequence was left out of the loss."""
    groups = step.sequences["group_id"]
    columns: Row = {
        **step.sequences,
        "prompt_id": groups % 3,
        "prompt": [f"{HOSTILE} {group % 3}" for group in groups],
        "response": [f"{HOSTILE} {sequence}" for sequence in step.sequences["seq_id"]],
    }
    dropped: Row = {"seq_id": 999, "group_id": 1, "n_tokens": 4, "reward": -3.0, "prompt_id": 1, "prompt": "p"}
    dropped["response"] = "left out"
    return replace(step, sequences={name: [*values, dropped[name]] for name, values in columns.items()})


def some_steps() -> list[Step]:
    rng = np.random.default_rng(3)
    steps = [with_prompts(random_step(rng, number, groups=6)) for number in range(3)]
    behavior = steps[1].tokens["logp_behavior"].copy()
    behavior[4] = np.nan  # one token that cannot be used
    steps[1] = steps[1].with_tokens(logp_behavior=behavior)
    return steps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("attribution") / "run"
    return open_run(write_run(folder, some_steps(), vocabulary=lambda token: f"{HOSTILE}{token}"))


def usable(run: Run) -> list[Row]:
    rows = [dict(row) for row in rows_of(run.folder, "tokens") if is_valid(row)]
    prompts = {(row["step"], row["seq_id"]): row["prompt_id"] for row in rows_of(run.folder, "sequences")}
    for row in rows:
        row["rho"] = math.exp(row["logp_current"] - row["logp_behavior"])
        row["rho_new"] = math.exp(row["logp_new"] - row["logp_behavior"])
        row["prompt_id"] = prompts[row["step"], row["seq_id"]]
    return rows


TERMS: dict[str, Callable[[Row], float]] = {
    "rho_squared": lambda row: row["rho"] ** 2,
    "chi2": lambda row: (row["rho"] - 1) ** 2,
    "deviation": lambda row: abs(row["rho"] - 1),
    "kl": lambda row: row["rho"] - 1 - math.log(row["rho"]),
    "update": lambda row: abs(row["rho_new"] - row["rho"]),
}
KEYS: dict[str, Callable[[Row], str]] = {
    "token": lambda row: str(row["token_id"]),
    "token_position": lambda row: f"{row['token_id']}/{row['position']}",
    "position": lambda row: str(row["position"]),
    "prompt": lambda row: str(row["prompt_id"]),
    "version": lambda row: str(row["behavior_version"]),
    "version_lag": lambda row: str(row["step"] - row["behavior_version"]),
    "step": lambda row: str(row["step"]),
    "sequence": lambda row: f"{row['step']}/{row['seq_id']}",
    "group": lambda row: f"{row['step']}/{row['group_id']}",
    "advantage": lambda row: str((row["advantage"] > 0) - (row["advantage"] < 0)),
}


# Every measure with one owner, every owner with one measure, and both kinds of owners among the largest terms.
CASES = [
    *((measure, "token_position", None) for measure in TERMS),
    ("rho_squared", "token_position", 0.1),
    *(("chi2", owner, None) for owner in KEYS if owner != "token_position"),
    ("deviation", "prompt", 0.1),
]


@pytest.mark.parametrize(("measure", "owner", "among_top"), CASES)
def test_shares_are_those_of_a_plain_loop(run: Run, measure: str, owner: str, among_top: float | None) -> None:
    result = shares(run, measure, owner, top=None, among_top=among_top)
    rows = sorted(usable(run), key=lambda row: (-TERMS[measure](row), row["step"], row["seq_id"], row["position"]))
    counted = rows if among_top is None else rows[: math.ceil(among_top * len(rows))]
    total = math.fsum(map(TERMS[measure], counted))
    owned = defaultdict(list)
    for row in counted:
        owned[KEYS[owner](row)].append(row)
    everything = [KEYS[owner](row) for row in rows]
    assert sorted(result.frame["owner"]) == sorted(owned)
    assert result.n_owners == len(owned) and result.n_tokens == len(rows)
    for _, line in result.frame.iterrows():
        mine = owned[line["owner"]]
        assert line["tokens_counted"] == len(mine) and line["tokens"] == everything.count(line["owner"])
        share = math.fsum(map(TERMS[measure], mine)) / total
        assert line["share"] == pytest.approx(share, rel=1e-9)
        assert line["share_ratio"] == pytest.approx(share / (line["tokens"] / len(rows)), rel=1e-9)
        example = (mine[0]["step"], mine[0]["seq_id"], mine[0]["position"])  # the largest comes first
        assert (line["step"], line["seq_id"], line["position"]) == example
    assert result.frame["share"].sum() == pytest.approx(1, rel=1e-12)
    assert result.frame["share"].is_monotonic_decreasing
    largest = sorted(result.frame["share"], reverse=True)
    assert result.half is not None
    assert sum(largest[: result.half]) >= 0.5 - 1e-9 > sum(largest[: result.half - 1]) - 2e-9
    everyone = math.fsum(map(TERMS[measure], rows))
    for fraction, share in result.top.items():
        top = rows[: math.ceil(fraction * len(rows))]
        assert share == pytest.approx(math.fsum(map(TERMS[measure], top)) / everyone, rel=1e-9)


def test_the_measures_and_owners_of_the_tests_are_all_there_are() -> None:
    assert list(TERMS) == list(OWNED_SUMS) and list(KEYS) == list(OWNERS)


def test_intervals_are_cluster_robust_over_prompt_groups(run: Run) -> None:
    result = shares(run, "deviation", "advantage")
    part: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in usable(run):
        part[row["step"], row["group_id"]][KEYS["advantage"](row)] += TERMS["deviation"](row)
    total = np.array([sum(owners.values()) for owners in part.values()])
    for _, line in result.frame.iterrows():
        own = np.array([owners[line["owner"]] for owners in part.values()])
        low, high = cluster_interval(own, total)
        assert (line["low"], line["high"]) == pytest.approx((max(low, 0), min(high, 1)), rel=1e-9)


def test_an_owner_inside_one_prompt_group_has_no_interval(run: Run) -> None:
    for owner in ("sequence", "group"):
        assert shares(run, "deviation", owner).frame[["low", "high"]].isna().all(axis=None)


def test_a_heavy_tail_withholds_intervals_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log_ratio = rng.pareto(1.0, 600)
    step = plain_step(-log_ratio - 1, np.full(600, -1.0), group=np.arange(600) // 10)
    result = shares(open_run(write_run(tmp_path / "run", [step])), "rho_squared", "token")
    assert result.frame[["low", "high"]].isna().all(axis=None)
    assert is_unreliable(result.doubt) and str(result.doubt).startswith("unreliable: the largest ρ alone ")
    assert str(result.doubt) in result.notes
    assert attribution_sentence(result).endswith("the shares describe these tokens only.")


def test_the_order_of_rows_and_files_does_not_matter(tmp_path: Path) -> None:
    steps = some_steps()
    rng = np.random.default_rng(5)
    mixed = [step.rows(rng.permutation(len(step.tokens["seq_id"]))) for step in steps]
    layout = [("tokens", number, [step]) for number, step in enumerate(mixed)]
    layout += [("sequences", 0, steps), ("steps", 0, steps)]
    runs = [open_run(write_run(tmp_path / "a", steps)), open_run(write_files(tmp_path / "b", layout))]
    for measure, among_top in (("chi2", None), ("update", 0.05)):
        frames = [shares(run, measure, "token_position", top=None, among_top=among_top).frame for run in runs]
        first, second = (frame.sort_values("owner", ignore_index=True) for frame in frames)
        pd.testing.assert_frame_equal(first, second, rtol=1e-12)
    for criterion in ("smallest_weight", "largest_chi2", "lowest_reward"):
        pd.testing.assert_frame_equal(*(worst_sequences(run, criterion) for run in runs), rtol=1e-9)


def test_ratios_beyond_the_floating_point_range(tmp_path: Path) -> None:
    """Log-ratios of 1,000, 1,000 - log 2 and -1,000: the terms overflow, their shares do not."""
    step = plain_step([-1000, -1000, 0], [0, -math.log(2), -1000], sequence=[7, 8, 9])
    run = open_run(write_run(tmp_path / "run", [step]))
    for measure, ratio in {"rho_squared": 4, "chi2": 4, "deviation": 2, "kl": 2}.items():
        result = shares(run, measure, "sequence")
        expected = {"0/7": ratio / (ratio + 1), "0/8": 1 / (ratio + 1), "0/9": 0.0}
        assert dict(result.frame[["owner", "share"]].to_numpy()) == pytest.approx(expected, rel=1e-6)
        assert result.frame["largest_log_ratio"].iloc[0] == 1000
    for criterion in ("largest_weight", "largest_ratio", "largest_deviation", "largest_chi2"):
        worst = worst_sequences(run, criterion)
        assert list(worst["seq_id"]) == [7, 8, 9]  # the shown values are infinite, the order is right
        assert np.isinf(worst["value"].iloc[0])
    assert list(worst_sequences(run, "smallest_weight")["seq_id"]) == [9, 8, 7]


def test_a_ratio_of_zero(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1, -1], [-np.inf, -1.5])]))
    assert shares(run, "deviation", "sequence").frame["owner"].iloc[0] == "0/0"
    infinite = shares(run, "kl", "sequence")
    assert infinite.frame["share"].isna().all() and infinite.half is None
    assert attribution_sentence(infinite) == "Σ(ρ − 1 − log ρ) is infinite: a ratio is 0."


def test_on_policy_data_have_nothing_to_own(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1, -2], [-1, -2])]))
    result = shares(run, "chi2", "token", among_top=0.5)
    assert result.frame["share"].isna().all()
    assert attribution_sentence(result) == "Σ(ρ − 1)² is 0: there is nothing to attribute."
    assert shares(run, "rho_squared", "token").frame["share"].tolist() == [0.5, 0.5]


def test_what_is_not_logged(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0)).with_tokens(
        logp_new=None, entropy=None, clipped=None, clip_side=None, gate=None
    )
    run = open_run(write_run(tmp_path / "run", [step]))
    result = shares(run, "update", "token")
    assert result.frame.empty and result.n_tokens == 0
    assert attribution_sentence(result).startswith("Σ|ρₖ₊₁ − ρₖ| has no token here: ")
    prompts = shares(run, "chi2", "prompt")
    assert prompts.frame["label"].tolist() == ["not logged"] and prompts.frame["share"].isna().all()
    assert attribution_sentence(prompts) == "Prompt is unknown: neither prompt_id nor prompt is logged."
    for criterion in ("most_clipped", "lowest_entropy"):
        assert worst_sequences(run, criterion).empty
    assert len(worst_sequences(run, "largest_chi2", limit=5)) == 5


def test_hostile_text_is_data(run: Run) -> None:
    tokens = shares(run, "chi2", "token", top=None).frame
    assert dict(tokens[["owner", "label"]].to_numpy()) == {str(token): f"{HOSTILE}{token}" for token in range(7)}
    prompts = shares(run, "chi2", "prompt", top=None).frame
    assert set(prompts["label"]) <= {*(f"{HOSTILE} {prompt}" for prompt in range(3)), "p"}
    assert HOSTILE[:50] in attribution_sentence(shares(run, "chi2", "token", among_top=0.01))
    worst = worst_sequences(run, "largest_chi2").iloc[0]
    assert worst["response"] == f"{HOSTILE} {worst['seq_id']}"
    assert sequence_tokens(run, 0, 2)["text"].str.startswith(HOSTILE).all()


def test_without_a_vocabulary_tokens_go_by_their_id(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [random_step(np.random.default_rng(0))]))
    frame = shares(run, "chi2", "token").frame
    assert (frame["label"] == "token " + frame["owner"]).all()
    assert sequence_tokens(run, 0, 0)["text"].isna().all()


def test_a_broken_vocabulary_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [random_step(np.random.default_rng(0))]))
    (run.folder / "vocabulary.parquet").write_bytes(b"no Parquet")
    with pytest.raises(RunFormatError, match="remove it to see token ids instead"):
        shares(run, "chi2", "token")
    pq.write_table(pa.table({"token_id": [1]}), run.folder / "vocabulary.parquet")
    with pytest.raises(RunFormatError, match="lacks the required column text"):
        sequence_tokens(run, 0, 0)


def test_sentences(tmp_path: Path) -> None:
    """One token of ten has ratio 3, the others 1.5: 9 of 9 + 9 * 2.25 = 30.8 %."""
    behavior = np.full(10, -3.0)
    current = behavior + np.log([3.0, *[1.5] * 9])
    step = plain_step(behavior, current, sequence=[0] * 10, token_id=np.arange(10, dtype=np.int32))
    run = open_run(write_run(tmp_path / "run", [step], vocabulary=lambda token: f" {token}"))
    top = shares(run, "rho_squared", "token_position", among_top=0.1)
    text = "10% of the tokens carry 30.8% of Σρ²; 100% of that is the token ' 0' at position 0."
    assert attribution_sentence(top).startswith(
        f"{text} Unreliable: the largest ρ alone moves it by 0.98 standard errors"
    )
    every = shares(run, "rho_squared", "token")
    text = "30.8% of Σρ² is the token ' 0', with 10% of the tokens; 4 of 10 carry half of it."
    assert attribution_sentence(every).startswith(f"{text} Unreliable: ")


def log_ratios(rows: list[Row]) -> list[float]:
    return [row["logp_current"] - row["logp_behavior"] for row in rows]


def log_weight(rows: list[Row]) -> float:
    return math.fsum(log_ratios(rows))


def mean_deviation(rows: list[Row]) -> float:
    return math.fsum(abs(math.exp(x) - 1) for x in log_ratios(rows)) / len(rows)


def sum_of_squares(rows: list[Row]) -> float:
    return math.fsum((math.exp(x) - 1) ** 2 for x in log_ratios(rows))


def average(name: str) -> Callable[[list[Row]], float]:
    return lambda rows: math.fsum(row[name] for row in rows) / len(rows)


def lag(rows: list[Row]) -> float:
    return float(max(row["step"] - row["behavior_version"] for row in rows))


def farthest_advantage(rows: list[Row]) -> float:
    return float(max((row["advantage"] for row in rows), key=abs))


OF_TOKENS: dict[str, tuple[Callable[[list[Row]], float], Callable[[list[Row]], float]]] = {
    "largest_log_weight": (lambda rows: abs(log_weight(rows)), log_weight),
    "largest_weight": (log_weight, lambda rows: math.exp(log_weight(rows))),
    "smallest_weight": (lambda rows: -log_weight(rows), lambda rows: math.exp(log_weight(rows))),
    "largest_ratio": (lambda rows: max(log_ratios(rows)), lambda rows: math.exp(max(log_ratios(rows)))),
    "smallest_ratio": (lambda rows: -min(log_ratios(rows)), lambda rows: math.exp(min(log_ratios(rows)))),
    "largest_deviation": (mean_deviation, mean_deviation),
    "largest_chi2": (sum_of_squares, sum_of_squares),
    "geometric": (
        lambda rows: abs(log_weight(rows)) / len(rows),
        lambda rows: math.exp(log_weight(rows) / len(rows)),
    ),
    "most_clipped": (average("clipped"), average("clipped")),
    "largest_advantage": (lambda rows: abs(farthest_advantage(rows)), farthest_advantage),
    "lowest_entropy": (lambda rows: -average("entropy")(rows), average("entropy")),
    "highest_entropy": (average("entropy"), average("entropy")),
    "oldest_version": (lag, lag),
}
OF_WEIGHTS = ("largest_log_weight", "largest_weight", "smallest_weight", "geometric")
OF_RESPONSES = {
    "lowest_reward": ("reward", -1),
    "highest_reward": ("reward", 1),
    "longest": ("n_tokens", 1),
    "first": ("n_tokens", 0),
}


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_worst_sequences_are_those_of_a_plain_loop(run: Run, criterion: str) -> None:
    expected: list[tuple[float, int, int, float]] = []
    if criterion in OF_RESPONSES:
        name, sign = OF_RESPONSES[criterion]
        logged = rows_of(run.folder, "sequences")
        expected = [(sign * row[name], row["step"], row["seq_id"], row[name]) for row in logged]
    else:
        rank, value = OF_TOKENS[criterion]
        sequences = defaultdict(list)
        for row in rows_of(run.folder, "tokens"):
            sequences[row["step"], row["seq_id"]].append(row)
        for (step, seq_id), rows in sequences.items():
            chosen = [row for row in rows if is_valid(row)]
            if chosen and (len(chosen) == len(rows) or criterion not in OF_WEIGHTS):
                expected.append((rank(chosen), step, seq_id, value(chosen)))
    found = worst_sequences(run, criterion, limit=1000)
    by_place = {(step, seq_id): (rank, value) for rank, step, seq_id, value in expected}
    places = list(zip(found["step"], found["seq_id"], strict=True))
    assert sorted(places) == sorted(by_place)
    assert list(found["value"]) == pytest.approx([by_place[place][1] for place in places], rel=1e-6, abs=1e-9)
    ranks = [by_place[place][0] for place in places]
    assert all(a >= b - 1e-6 * abs(b) - 1e-12 for a, b in pairwise(ranks))


def test_a_range_of_steps_and_a_limit(run: Run) -> None:
    worst = worst_sequences(run, "largest_chi2", 1, 1, limit=3)
    assert len(worst) == 3 and set(worst["step"]) == {1}
    assert shares(run, "chi2", "step", 1, 2, top=1).n_owners == 2


def test_one_sequence_and_its_group(run: Run) -> None:
    tokens = sequence_tokens(run, 1, 4)
    rows = [row for row in rows_of(run.folder, "tokens") if (row["step"], row["seq_id"]) == (1, 4)]
    assert list(tokens["position"]) == sorted(row["position"] for row in rows)
    assert {column.name for column in schema.TOKENS.columns} | {"log_rho", "text", "invalid"} <= set(tokens.columns)
    group = group_of(run, 1, 4)
    assert list(group["seq_id"]) == [3, 4, 5, 999] and set(group["group_id"]) == {1}
    left_out = group.iloc[-1]
    assert left_out["n_tokens"] == 4 and np.isnan(left_out["log_w"])
    assert list(group_of(run, 1, 999)["seq_id"]) == [3, 4, 5, 999]


def test_an_unusable_token_is_shown_and_leaves_the_weight_undefined(run: Run) -> None:
    broken = next(row for row in rows_of(run.folder, "tokens") if math.isnan(row["logp_behavior"]))
    tokens = sequence_tokens(run, broken["step"], broken["seq_id"]).set_index("position")
    assert tokens.loc[broken["position"], "invalid"] == "nan"
    group = group_of(run, broken["step"], broken["seq_id"]).set_index("seq_id")
    assert np.isnan(group.loc[broken["seq_id"], "log_w"]) and group.loc[broken["seq_id"], "n_unusable"] == 1


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: sequence_tokens(run, 0, 12345), "there is no response 12345 in step 0"),
        (lambda run: sequence_tokens(run, 99, 0), "take one of the steps up to 2"),
        (lambda run: group_of(run, 99, 0), "there is no response 0 in step 99"),
        (lambda run: shares(run, "weight", "token"), "'weight' is not a measure; there are: rho_squared, "),
        (lambda run: shares(run, "chi2", "word"), "'word' is not an owner; there are: token, "),
        (lambda run: shares(run, "chi2", "token", among_top=0.0), "above 0 and at most 1"),
        (lambda run: worst_sequences(run, "zzz"), "'zzz' is not a criterion; there are: largest_log_weight, "),
    ],
)
def test_mistakes_are_errors_of_one_sentence(run: Run, ask: Callable[[Run], Any], message: str) -> None:
    with pytest.raises(RatioscopeError) as caught:
        ask(run)
    assert message in str(caught.value) and str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_an_empty_range(run: Run) -> None:
    result = shares(run, "chi2", "token", 7, 9)
    assert result.frame.empty and result.half is None and all(math.isnan(share) for share in result.top.values())
    assert worst_sequences(run, "largest_chi2", 7, 9).empty


@pytest.mark.parametrize("owner", ["token_position", "prompt"])
def test_a_sample_run(owner: str) -> None:
    result = shares(run_of("sync_interval20-reinforce-seed0"), "rho_squared", owner, 100, 120, top=None)
    assert result.frame["share"].sum() == pytest.approx(1, rel=1e-9)
    assert attribution_sentence(result)
