"""The linter on logs that the trainer wrote with a fault, and on logs that were damaged afterwards."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import Manifest
from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import CHECKS, Outcome, lint, remarks_json
from ratioscope.analysis.linter.noise_floor import HEALTHY_LOG_RATIO, HEALTHY_TV
from ratioscope.analysis.runs.store import open_run
from ratioscope.notes import is_unreliable
from ratioscope.run_format import schema
from ratioscope.run_format.seals import sealed
from tests.analysis.linter.damages import FAULTS, NAN, one_sequence
from tests.analysis.linter.remarks import answer, asked, found, numbers, problems, rows, the
from tests.cases.world import Shape, share, simulate
from tests.cases.world import write as write_case
from tests.making.faults import KEY, at, damage, everywhere, versions_off_by_one
from tests.making.runs import Step, plain_step, write_run
from tests.making.samples import run_of
from tests.making.training import small, train

STALE = ("sync_interval=4", "learning_rate=0.003")

# Logs of the trainer: on-policy, stale, with a filter of each kind, and with a sampler that is not the trainer.
TRAINED: dict[str, tuple[str, ...]] = {
    "on-policy": (),
    "stale": STALE,
    "red_drop": ("algorithm=red_drop", *STALE),
    "epsilon_stale": ("epsilon_stale=0.1", "sync_interval=4", "learning_rate=0.01"),
    "window": ("mixture=[1,1,1]", "window=2", "sync_interval=2"),
    "dapo": ("algorithm=dapo",),
    "temperature 0.7": ("temperature=0.7",),
    "temperature 1.2, stale": ("temperature=1.2", *STALE),
    "top-p 0.9": ("top_p=0.9",),
    "top-k 3, stale": ("top_k=3", *STALE),
    "bfloat16": ("sampler.dtype=bfloat16", "noise_floor_every=2"),
    "int8": ("sampler.dtype=int8", "noise_floor_every=2"),
}
CLEAN = ("on-policy", "stale", "red_drop", "epsilon_stale", "window", "dapo")

Trained = Callable[[str], Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """The folder of one of `TRAINED`, trained when it is first asked for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folders: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in folders:
            folders[name] = train(small(*TRAINED[name]), tmp_path_factory.mktemp("linted") / "run").folder
        return folders[name]

    yield of
    torch.set_num_threads(before)


# Clean logs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_a_clean_log_of_the_trainer(trained: Trained, name: str) -> None:
    """Whatever filters leave out is explained by what the trainer logs of it."""
    remarks = lint(open_run(trained(name)))
    assert problems(remarks) == set()
    assert not any(word in remark.sentence for remark in remarks for word in ("nan", "inf ", "None"))
    assert set(found(remarks)) <= {"mean_ratio"}  # a handful of responses under restless training


def test_every_check_says_something_of_every_log(trained: Trained) -> None:
    told: list[tuple[int, int]] = []
    remarks = lint(open_run(trained("stale")), progress=lambda done, of: told.append((done, of)))
    assert {remark.rule for remark in remarks} == set(CHECKS)
    assert all(remark.sentence.endswith(".") for remark in remarks)
    assert all(check.about for check in CHECKS.values())
    assert [done for done, _ in told] == list(range(len(CHECKS) + 1))
    assert {of for _, of in told} == {len(CHECKS)}


# One run of each schedule, sampler, filter and model: what a log's columns mean depends on these and not on the loss.
SAMPLES = (
    "mismatch-grpo-seed0", "offline-grpo-seed0", "smollm2_sync_interval4-grpo-lr5e-06-seed0",
    "sync_interval20-grpo-seed1", "sync_interval20-red_drop-seed0", "sync_interval20-red_weight-seed0",
    "sync_interval5_mixture4-adaptive_clip-seed0", "sync_offset10-reinforce-seed0", "trl-smollm2-gcd",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_runs_are_what_they_claim_to_be(name: str) -> None:
    """Thirty steps of each; another sampling engine, in int8 and with a stated top-p of .95, is worth notices."""
    mismatch = name == "mismatch-grpo-seed0"
    remarks = lint(run_of(name), last=29)
    assert problems(remarks) == set()
    assert ("truncated_support" in found(remarks)) == mismatch
    assert set(found(remarks)) <= (
        {"mean_ratio", "on_policy_ratio", "truncated_support"} if mismatch else {"mean_ratio"}
    )


def test_a_collapsed_sample_run_has_a_tail_too_heavy_for_its_mean_ratio() -> None:
    """REINFORCE on stale data: the mean ratio is .94 because the sampler never sees what became likely."""
    remarks = lint(run_of("sync_interval20-reinforce-lr0.0003-seed0"))
    remark = the(remarks, "mean_ratio")
    assert problems(remarks) == set()
    assert "a heavy tail, which the standard error does not cover" in remark.sentence
    assert all(np.isnan(number.low) for number in remark.numbers)
    assert is_unreliable(remark.numbers[0].note)  # why there is no interval


# Faults that the trainer makes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("temperature 0.7", 0.7), ("temperature 1.2, stale", 1.2)])
def test_the_samplers_temperature_is_found_and_estimated(trained: Trained, name: str, value: float) -> None:
    remarks = lint(open_run(trained(name)))
    assert problems(remarks) == {"temperature", "on_policy_ratio"}
    (ratio,) = (number for number in the(remarks, "temperature").numbers if number.label == "temperature ratio")
    assert ratio.value == pytest.approx(value, abs=1e-4)
    assert ratio.low <= ratio.value <= ratio.high
    assert the(remarks, "truncated_support").outcome is Outcome.PASSED  # a temperature leaves out no token


def test_a_temperature_under_staleness_is_only_suspected(trained: Trained, tmp_path: Path) -> None:
    """Without the recomputation by the trainer, and with no on-policy step, sharpening looks alike."""
    folder = damage(
        trained("temperature 0.7"),
        tmp_path / "run",
        "tokens",
        lambda frame: versions_off_by_one(frame).assign(logp_behavior_train=None),
    )
    remark = answer(open_run(folder), "temperature")
    assert remark.severity is Severity.NOTICE
    assert "suspected" in remark.sentence
    assert numbers(remark)["temperature ratio"] == pytest.approx(0.7, abs=1e-4)


def test_a_line_that_no_temperature_makes_is_said_to_be_one(trained: Trained, tmp_path: Path) -> None:
    """A sampler of fifty times the trainer's temperature would draw at random; the log-ratio is a line all the same."""
    flat = lambda frame: frame.assign(logp_behavior=np.float32(0.02) * frame["logp_current"])  # noqa: E731
    remark = answer(open_run(damage(trained("on-policy"), tmp_path / "run", "tokens", flat)), "temperature")
    assert remark.outcome is Outcome.PASSED and "no temperature" in remark.sentence
    assert numbers(remark)["slope, same weights"] == pytest.approx(0.98 / 0.51, rel=1e-4)


@pytest.mark.parametrize("name", ["top-p 0.9", "top-k 3, stale"])
def test_truncated_support_is_found_with_the_mass_that_was_kept(trained: Trained, name: str) -> None:
    """A little that the manifest states is no reason for care, as the diagnosis has it; a lot or a silent one is."""
    run = open_run(trained(name))
    remarks = lint(run)
    assert problems(remarks) == {"on_policy_ratio"} and the(remarks, "truncated_support").severity is Severity.NOTICE
    assert the(lint(run, limits=Limits(missing_mass=0.0)), "truncated_support").severity is Severity.WARNING
    kept = next(number for number in the(remarks, "truncated_support").numbers if "mean ratio" in number.label)
    tokens = rows(trained(name))
    expected = np.exp(tokens["logp_behavior_train"].astype(float) - tokens["logp_behavior"]).mean()
    assert kept.value == pytest.approx(expected, abs=1e-9)
    assert kept.low < kept.value < kept.high < 1


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_another_precision_is_an_engine_mismatch_and_nothing_else(trained: Trained, name: str) -> None:
    remarks = lint(open_run(trained(name)))
    assert set(found(remarks)) == {"on_policy_ratio"}
    remark = the(remarks, "on_policy_ratio")
    tokens, steps = rows(trained(name)), rows(trained(name), "steps")
    log_ratio = tokens["logp_behavior_train"].astype(float) - tokens["logp_behavior"]
    staleness = (np.expm1(log_ratio).abs() / 2).groupby(tokens["step"]).mean()
    assert numbers(remark)["largest ½ mean |ρ - 1| on the same weights"] == pytest.approx(staleness.max(), rel=1e-9)
    assert numbers(remark)["largest |log ratio| there"] == pytest.approx(log_ratio.abs().max(), rel=1e-9)
    precision = staleness.max() <= 1.5 * steps["noise_floor_dtype"].max()
    assert precision == ("precision." in remark.sentence)
    usual = staleness.max() <= HEALTHY_TV and log_ratio.abs().max() <= HEALTHY_LOG_RATIO
    assert (remark.severity is Severity.NOTICE) == (precision or usual)
    worst = tokens.loc[log_ratio.abs().idxmax()]
    assert remark.examples[0] == tuple(worst[KEY])


def test_float32_noise_on_policy_is_at_the_floor(trained: Trained) -> None:
    remark = answer(open_run(trained("on-policy")), "on_policy_ratio")
    assert remark.outcome is Outcome.PASSED
    assert 0 < numbers(remark)["largest ½ mean |ρ - 1| on the same weights"] < 1e-5


# Logs that were damaged -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else_is_blamed(trained: Trained, tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    clean = trained(fault.run)
    damaged = damage(clean, tmp_path / "run", fault.table, fault.change)
    remarks = lint(open_run(damaged))
    assert found(remarks)[fault.check] is fault.severity or fault.severity is None
    assert problems(remarks) | {fault.check} == {fault.check} | fault.consequences
    assert set(found(remarks)) - problems(remarks) - {fault.check} <= {"mean_ratio", "on_policy_ratio"}
    assert any(fault.words in remark.sentence for remark in remarks if remark.rule == fault.check)
    changed = changed_rows(clean, damaged, fault.table)
    for remark in remarks:
        if remark.rule == fault.check and remark.severity:
            assert remark.do
            assert set(remark.steps) <= {key[0] for key in changed}
            for example in remark.examples:
                assert any(
                    all(part in (None, own) for part, own in zip(example, key, strict=False)) for key in changed
                ), example


def changed_rows(clean: Path, damaged: Path, table: str) -> set[tuple[int, ...]]:
    """Keys of the rows that are not in both runs, or not as often, as far as the table has them."""
    key = [column for column in KEY if column in schema.TABLES[table].key]
    counted = []
    for frame in (rows(clean, table), rows(damaged, table)):
        contents = pd.util.hash_pandas_object(frame, index=False)
        counted.append(Counter(zip(*(frame[column] for column in key), contents, strict=True)))
    different = (counted[0] - counted[1]) + (counted[1] - counted[0])
    return {tuple(map(int, row[: len(key)])) for row in different}


def test_counts_and_shares_are_those_of_the_rows(trained: Trained, tmp_path: Path) -> None:
    fault = FAULTS["NaN"]
    damaged = damage(trained("stale"), tmp_path / "run", "tokens", fault.change)
    tokens = rows(damaged)
    bad = tokens["logp_current"].isna()
    remark = answer(open_run(damaged), "invalid_values")
    assert numbers(remark) == {
        "rows": bad.sum(),
        "largest share of a step's rows": pytest.approx(bad.groupby(tokens["step"]).mean().max()),
    }
    assert [tuple(example) for example in remark.examples] == [tuple(row) for row in tokens[bad][KEY].to_numpy()[:3]]


def test_one_bad_row_among_many_is_not_critical(tmp_path: Path) -> None:
    """Up to 0.1 % of a step's rows may be invalid before its moments are a selection."""
    n = 2_000
    behavior = -np.random.default_rng(0).exponential(1.0, n) - 0.01
    current = behavior.copy()
    current[:2] = np.nan
    of_two = open_run(write_run(tmp_path / "two", [plain_step(behavior, current)]))
    current[2] = np.nan
    of_three = open_run(write_run(tmp_path / "three", [plain_step(behavior, current)]))
    assert answer(of_two, "invalid_values").severity is Severity.WARNING
    assert answer(of_three, "invalid_values").severity is Severity.CRITICAL


def test_tiny_log_probs_of_a_certain_policy_are_not_zero_filled(tmp_path: Path) -> None:
    """Float32 rounds the log-probability of a certain token to -0.0 and that of a nearly certain one to -1e-7."""
    rng = np.random.default_rng(0)
    behavior = np.where(rng.random(600) < 0.5, -0.0, -rng.exponential(1e-7, 600))
    sequence = np.repeat(np.arange(150), 4)
    step = plain_step(behavior, np.roll(behavior, 1), sequence=sequence, group=sequence // 5)
    assert answer(open_run(write_run(tmp_path / "run", [step])), "zero_filled").outcome is Outcome.PASSED


# Ranges, missing columns, empty runs ----------------------------------------------------------------------------------


def test_a_range_is_all_that_is_looked_at(trained: Trained, tmp_path: Path) -> None:
    damaged = damage(trained("stale"), tmp_path / "run", "tokens", at(one_sequence, advantage=NAN))
    assert problems(lint(open_run(damaged), first=4)) == set()
    assert problems(lint(open_run(damaged), last=2)) == set()
    assert problems(lint(open_run(damaged), first=3, last=3)) == {"invalid_values"}


def test_what_is_not_logged_is_not_checked(tmp_path: Path) -> None:
    behavior = -np.random.default_rng(0).exponential(1.0, 60) - 0.01
    step = plain_step(behavior, behavior, sequence=np.arange(60) // 3, group=np.zeros(60))
    remarks = lint(open_run(write_run(tmp_path / "run", [step])))
    unchecked = {remark.rule for remark in remarks if remark.outcome is Outcome.NOT_CHECKED}
    assert unchecked == {
        "advantages", "applied_loss", "copied_columns", "drawn_as_logged", "entropy_agrees", "masks", "mean_ratio",
        "mismatch_cause", "prompts", "reference",
        "recomputed", "response_mask", "selection", "shifted", "swapped", "temperature", "truncated_support",
    }  # fmt: skip


def test_an_empty_run_has_nothing_to_check(tmp_path: Path) -> None:
    remarks = lint(open_run(write_run(tmp_path / "run", [])))
    assert {remark.outcome for remark in remarks} == {Outcome.NOT_CHECKED}


def test_a_file_that_was_left_out_is_a_problem(trained: Trained, tmp_path: Path) -> None:
    folder = damage(trained("stale"), tmp_path / "run", "tokens", lambda frame: frame)
    torn = next((folder / "tokens").iterdir())
    torn.write_bytes(torn.read_bytes()[:50])
    remark = answer(open_run(folder), "files")
    assert torn.name in remark.sentence
    assert remark.severity is Severity.WARNING


def test_a_greedy_sampler_is_certain_by_definition(trained: Trained, tmp_path: Path) -> None:
    folder = damage(trained("stale"), tmp_path / "run", "tokens", at(everywhere, logp_behavior=0.0))
    assert answer(open_run(folder), "zero_filled").severity is Severity.CRITICAL
    manifest = Manifest.read(folder)
    manifest.sampler["top_k"] = 1
    manifest.write(folder)
    assert answer(open_run(folder), "zero_filled").severity is Severity.NOTICE


def test_steps_logged_at_intervals_are_not_missing(tmp_path: Path) -> None:
    def step(number: int) -> object:
        return plain_step(-1.0 - np.arange(4) / 7, -1.0 - np.arange(4) / 7, number=number)

    regular = write_run(tmp_path / "run", [step(n) for n in (0, 10, 20, 30)])
    assert answer(open_run(regular), "steps").outcome is Outcome.PASSED
    gap = answer(open_run(write_run(tmp_path / "gap", [step(n) for n in (0, 10, 30, 40)])), "steps")
    assert gap.steps == (20,)


def test_footers_that_miscount_are_found(trained: Trained, tmp_path: Path) -> None:
    """A producer that seals what it did not count; without a seal the counts would not be believed."""
    folder = damage(trained("stale"), tmp_path / "run", "tokens", lambda frame: frame)
    assert answer(open_run(folder), "footers").outcome is Outcome.PASSED
    file = next((folder / "tokens").iterdir())
    table = pq.read_table(file)
    values = table["logp_current"].to_numpy().copy()
    values[:3] = np.inf
    place = table.schema.get_field_index("logp_current")
    written = pa.BufferOutputStream()
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values)), written)
    file.write_bytes(b"".join(sealed(memoryview(written.getvalue()))))
    remark = answer(open_run(folder), "footers")
    assert remark.severity is Severity.CRITICAL and remark.columns == ("logp_current",)
    assert numbers(remark) == {"values": 3}


def test_to_json_has_no_undefined_numbers(trained: Trained) -> None:
    remarks = lint(open_run(trained("temperature 0.7")))
    values = [number for remark in remarks_json(remarks) for number in remark["numbers"]]
    assert all(number.keys() == {"label", "value", "interval", "note"} for number in values)
    flat = [value for number in values for value in (number["value"], *(number["interval"] or ()))]
    assert all(value is None or np.isfinite(value) for value in flat)
    assert [remark["check"] for remark in remarks_json(remarks)] == [remark.rule for remark in remarks]


def test_the_limits_of_the_mean_ratio_are_those_of_the_diagnosis() -> None:
    run = run_of("mismatch-grpo-seed0")
    assert answer(run, "mean_ratio").outcome is Outcome.FOUND
    for moved in (Limits(mean_ratio_z=90.0), Limits(mean_ratio_trifle=0.1)):
        assert answer(run, "mean_ratio", limits=moved).outcome is Outcome.PASSED
    assert answer(run, "truncated_support", limits=moved).outcome is Outcome.PASSED


def test_the_within_state_slope_is_that_of_a_brute_force_regression(trained: Trained) -> None:
    """States as the token texts before them, demeaned one by one."""
    folder = trained("temperature 0.7")
    tokens = rows(folder).sort_values(KEY)
    ids = tokens.groupby(["step", "seq_id"])["token_id"]
    tokens["prefix"] = ids.transform(lambda ids: [tuple(ids.iloc[:place]) for place in range(len(ids))])
    tokens["x"] = (tokens["logp_behavior_train"].astype(float) + tokens["logp_behavior"]) / 2
    tokens["y"] = tokens["logp_behavior_train"].astype(float) - tokens["logp_behavior"]
    states = tokens.groupby(["step", "group_id", "behavior_version", "prefix"])[["x", "y"]]
    within = states.transform(lambda values: values - values.mean())
    slope = (within["x"] * within["y"]).sum() / (within["x"] ** 2).sum()
    measured = numbers(answer(open_run(folder), "temperature"))["slope, same weights"]
    assert measured == pytest.approx(slope, rel=1e-9)


def test_an_update_that_moves_most_on_its_own_batch_does_not_make_the_record_recomputed(tmp_path: Path) -> None:
    """The next batch's tokens were not fitted and move a fraction as much: the sampler's record is its own."""
    rng = np.random.default_rng(0)

    def step(number: int) -> Step:
        behavior = -rng.exponential(1.0, 400) - 0.01
        moved = 0.0 if number == 0 else 0.003
        current = np.minimum(behavior + moved * rng.standard_normal(400), -1e-4)
        new = np.minimum(current + 0.03 * rng.standard_normal(400), -1e-4)
        version = np.full(400, max(number - 1, 0), dtype=np.int32)
        return plain_step(behavior, current, new, number=number, behavior_version=version)

    run = open_run(write_run(tmp_path / "run", [step(number) for number in range(6)]))
    assert answer(run, "recomputed").outcome is Outcome.PASSED


def test_a_learning_rate_of_0_makes_no_copies(tmp_path: Path) -> None:
    """At the start of a warm-up the first update moves nothing, so the next batch is of the current policy, too."""
    rng = np.random.default_rng(0)

    def step(number: int, moved: float) -> Step:
        behavior = -rng.exponential(1.0, 400) - 0.01
        new = np.minimum(behavior + moved * rng.standard_normal(400), -1e-4)
        version = np.full(400, max(number - 1, 0), dtype=np.int32)
        return plain_step(behavior, behavior, new, number=number, behavior_version=version)

    started = lint(open_run(write_run(tmp_path / "started", [step(0, 0.0), step(1, 0.01)])))
    assert problems(started) == set()
    frozen = open_run(write_run(tmp_path / "frozen", [step(number, 0.0) for number in range(6)]))
    assert answer(frozen, "copied_columns").sentence.startswith("The policy does not move")


def test_kernels_that_depend_on_the_batch_are_no_other_tokens(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(30), 8)
    token = np.tile([0, 0, 0, 0, 1, 1, 2, 3], 30).astype(np.int32)
    current = np.log(np.array([0.5, 0.25, 0.12, 0.1]))[token]

    def outcome(name: str, noise: float) -> list[Outcome]:
        behavior = current + noise * rng.standard_normal(len(token))
        step = plain_step(behavior, current, group=group, token_id=token)
        return [remark.outcome for remark in asked(open_run(write_run(tmp_path / name, [step])), "own_token")]

    assert outcome("noisy", 0.02) == [Outcome.PASSED] and outcome("wrong", 0.5) == [Outcome.FOUND]


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "no-ids"])
def test_equal_responses_are_no_prompts(tmp_path: Path, greedy: bool) -> None:
    sequence = np.repeat(np.arange(40), 9)
    token = np.tile(np.arange(9), 40) if greedy else np.zeros(360)
    logp = np.full(360, -1.0) - 0.01 * np.tile(np.arange(9), 40)
    step = plain_step(logp, logp, sequence=sequence, group=sequence // 4, token_id=token.astype(np.int32))
    said = asked(open_run(write_run(tmp_path / "run", [step])), "response_mask")[0]
    assert said.columns == (("logp_behavior",) if greedy else ("token_id",))
    assert ("drawn one by one" in said.sentence) == greedy


def test_a_clamped_column_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logp = -rng.exponential(1.0, 600) - 0.01
    steps = [plain_step(np.maximum(logp, -3), logp), plain_step(logp, logp)]
    runs = [open_run(write_run(tmp_path / str(number), [step])) for number, step in enumerate(steps)]
    found_in = [
        [remark.columns for remark in asked(run, "constant_columns") if "a bound" in remark.sentence] for run in runs
    ]
    assert found_in == [[("logp_behavior",)], []]


def test_an_update_of_few_tokens_is_no_copy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logp = -rng.exponential(1.0, 2000) - 0.01
    step = plain_step(logp, logp, logp - 1e-3 * (np.arange(2000) % 125 == 0))
    assert not answer(open_run(write_run(tmp_path / "run", [step])), "copied_columns").is_problem


@pytest.mark.parametrize("right_behind", [0, 5], ids=["packed", "anywhere"])
def test_a_border_of_packed_responses_is_named_where_nothing_stands_before(tmp_path: Path, right_behind: int) -> None:
    log = simulate(Shape(580, steps=16))
    wrong = (log.tokens["position"] == 0) & (log.of_token("seq_id") % 12 != right_behind)
    for name in ("logp_behavior_train", "logp_current", "logp_new"):
        log.tokens[name][wrong] = -3 - 5 * share(log.row[wrong], 24)
    said = asked(open_run(write_case(log, tmp_path / "run")), "own_token")
    assert said and all(each.outcome is Outcome.FOUND for each in said)
    for each in said:
        assert ("packed" in each.do) == (right_behind == 0), each.do
        assert ("Recompute these tokens" in each.do) == (right_behind == 5)
