"""The definition switch: every number of every framework against a plain loop, and against ours where they agree."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.frameworks import DIALECTS, TheirNumber, report, theirs
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.frameworks.translation import translate
from ratioscope.analysis.frameworks.writing import translation_text
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from tests.making.runs import Step, plain_step, random_step, write_run
from tests.making.samples import run_of, summary_of
from tests.oracles.dialects import OF_LOSSES, ORACLE, Batch


def gated_step(rng: np.random.Generator, number: int, spread: float) -> Step:
    """A random step whose last gradient pass was away from its start."""
    step = random_step(rng, number, groups=5, responses=4, spread=spread)
    current = step.tokens["logp_current"]
    gate = np.minimum(current + spread * rng.standard_normal(len(current)), 0)
    return step.with_tokens(logp_gate=gate.astype(np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quiet, stale and wild steps; in the wild ones log-ratios of +-25 lie beyond the frameworks' clamps."""
    rng = np.random.default_rng(0)
    steps = [gated_step(rng, 0, 0.05), gated_step(rng, 1, 0.4), gated_step(rng, 2, 0.8)]
    wild = steps[2].tokens
    behavior, current = wild["logp_behavior"].copy(), wild["logp_current"].copy()
    behavior[3], current[3], behavior[5], current[5] = -26, -1, -1, -26
    steps[2] = steps[2].with_tokens(logp_behavior=behavior, logp_current=current)
    return write_run(tmp_path_factory.mktemp("dialects") / "run", steps)


def assumed(framework: str) -> list[TheirNumber]:
    """The numbers that the framework logs with the loss that is assumed where a run names none."""
    dialect = DIALECTS[framework]
    return [row for row in dialect.rows if not row.losses or dialect.default_loss in row.losses]


def test_every_row_has_an_oracle() -> None:
    for framework, dialect in DIALECTS.items():
        names = [row.name for row in assumed(framework)]
        assert names == list(ORACLE[framework])
        others = {name for of, _, rows in OF_LOSSES.values() if of == framework for name in rows}
        assert {row.name for row in dialect.rows} == {*names} | others


@pytest.mark.parametrize("framework", DIALECTS)
def test_every_number_is_that_of_a_plain_loop(folder: Path, framework: str) -> None:
    frame = report(open_run(folder), framework)
    assert len(frame) == 3 * len(DIALECTS[framework].rows)
    for _, row in frame.iterrows():
        if row["name"] in ORACLE[framework]:
            expected = ORACLE[framework][row["name"]](Batch(folder, row["step"]))
            assert row["value"] == pytest.approx(expected, rel=1e-6, abs=1e-12), (row["step"], row["name"])
        else:
            assert math.isnan(row["value"]) and row["note"].endswith("does not log it so")


@pytest.mark.parametrize("loss", OF_LOSSES)
def test_numbers_are_those_of_the_loss_that_the_run_names(tmp_path: Path, loss: str) -> None:
    framework, manifest, oracle = OF_LOSSES[loss]
    rng = np.random.default_rng(7)
    steps = [gated_step(rng, number, spread) for number, spread in enumerate((0.05, 0.4))]
    folder = write_run(tmp_path / "run", steps, **manifest)
    frame = report(open_run(folder), framework).set_index(["step", "name"])
    seen = set()
    for step in range(2):
        batch = Batch(folder, step)
        for name, expected in oracle.items():
            assert frame.loc[(step, name), "value"] == pytest.approx(expected(batch), rel=1e-6, abs=1e-12), name
            seen |= {expected(batch)}
    assert len(seen) > 1
    dialect = DIALECTS[framework]
    named = dialect.as_run(open_run(folder).manifest).loss
    for row in dialect.rows:
        logged = not row.losses or named in row.losses
        assert logged or frame.loc[(0, row.name), "note"] == f"the loss {named} does not log it so"


def accumulated(folder: Path, schedule: dict[str, int], *, logged: bool = True, parts: int = 4, ranks: int = 0) -> Path:
    """A run of TRL with three updates of several micro-batches of unequal lengths."""
    rng = np.random.default_rng(3)
    steps = []
    for number in range(3):
        step = gated_step(rng, number, 0.4)
        n = len(step.sequences["seq_id"])
        micro_batch = np.arange(n, dtype=np.int32) * parts // n
        if ranks:
            step = step.with_sequences(rank=np.arange(n, dtype=np.int32) % 3 % ranks)
        steps.append(step.with_sequences(micro_batch=micro_batch) if logged else step)
    algorithm = {"name": "dapo", "parts": {"level": "token"}, "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2}}
    return write_run(folder, steps, algorithm=algorithm, schedule=schedule, source={"framework": "TRL"})


def test_micro_batches_are_averaged_as_trl_does(tmp_path: Path) -> None:
    """Each number from its own loop over the tokens of one micro-batch, then the mean: what TRL's log() does."""
    folder = accumulated(tmp_path / "run", {"gradient_accumulation_steps": 4, "steps_per_generation": 2})
    frame = report(open_run(folder), "trl").set_index(["step", "name"])
    differs = set()
    for row in assumed("trl"):
        for step in range(3):
            whole = Batch(folder, step)
            of = {one["seq_id"]: one["micro_batch"] for one in whole.logged}
            size = 1 if row.averaged and row.averaged.value == "micro-batches" else 2
            keys = [{key for key, number in of.items() if number // size == part} for part in range(4 // size)]
            parts = [Batch(folder, step, lambda token, those=those: token["seq_id"] in those) for those in keys]  # type: ignore[misc]
            values = [ORACLE["trl"][row.name](part) for part in parts]
            once = ORACLE["trl"][row.name](whole)
            expected = float(np.mean(values)) if row.averaged and row.name != "completions/mean_length" else once
            assert frame.loc[(step, row.name), "value"] == pytest.approx(expected, rel=1e-6, abs=1e-12), row.name
            differs |= {row.name} if abs(expected - once) > 1e-6 else set()
    assert {"clip_ratio/high_max", "entropy", "kl", "sampling/sampling_logp_difference/max"} <= differs


def test_without_micro_batches_in_the_log_an_average_over_them_has_no_value(tmp_path: Path) -> None:
    folder = accumulated(tmp_path / "run", {"gradient_accumulation_steps": 4}, logged=False)
    frame = report(open_run(folder), "trl", 0, 0).set_index("name")
    for row in assumed("trl"):
        value, note = frame.loc[row.name, ["value", "note"]]
        if row.averaged and row.averaged.value == "micro-batches":
            assert math.isnan(value) and frame.loc[row.name, "missing"] == "micro_batch", row.name
            assert note == "the mean of 4 micro-batches, and micro_batch is not logged"
        else:
            assert not math.isnan(value), row.name
    other = report(open_run(folder), "verl", 0, 0)
    assert not (other["missing"] == "micro_batch").any()


def test_a_share_of_the_processes_and_a_part_of_a_generation_have_no_such_number(tmp_path: Path) -> None:
    share = accumulated(tmp_path / "share", {"processes": 4, "processes_recorded": 1})
    frame = report(open_run(share), "trl", 0, 0)
    assert frame["value"].isna().all()
    assert set(frame["note"]) == {
        "the loss dapo does not log it so", "the log has 1 of 4 processes, theirs is of all"
    }  # fmt: skip
    whole = accumulated(tmp_path / "whole", {"processes": 4, "processes_recorded": 4})
    notes = report(open_run(whole), "trl", 0, 0).set_index("name")["note"]
    why = "a mean of the means of 4 processes, and rank is not logged"
    assert notes["sampling/sampling_logp_difference/mean"] == why
    part = accumulated(tmp_path / "part", {"gradient_accumulation_steps": 1, "steps_per_generation": 4})
    notes = report(open_run(part), "trl", 0, 0).set_index("name")["note"]
    assert notes["sampling/sampling_logp_difference/max"] == "logged once a generation, and generations span steps"


def test_a_mean_of_the_means_of_processes_needs_the_rank_of_each_response(tmp_path: Path) -> None:
    names = ("sampling/sampling_logp_difference/mean", "sampling/importance_sampling_ratio/mean")
    for processes, told in ((2, ""), (4, "a mean of the means of 4 processes, and rank names 2")):
        schedule = {"processes": processes, "processes_recorded": processes}
        folder = accumulated(tmp_path / str(processes), schedule, ranks=2)
        frame = report(open_run(folder), "trl").set_index(["step", "name"])
        for step, name in product(range(3), names):
            value, note, missing = frame.loc[(step, name), ["value", "note", "missing"]]
            of = {one["seq_id"]: one["rank"] for one in Batch(folder, step).logged}
            keys = [{key for key, rank in of.items() if rank == one} for one in (0, 1)]
            parts = [Batch(folder, step, lambda token, those=those: token["seq_id"] in those) for those in keys]  # type: ignore[misc]
            values = [ORACLE["trl"][name](part) for part in parts]
            if told:
                assert math.isnan(value) and (note, missing) == (told, "rank")
            else:
                assert value == pytest.approx(np.mean(values), rel=1e-6) and missing == ""
                assert abs(np.mean(values) - ORACLE["trl"][name](Batch(folder, step))) > 1e-6


def test_numbers_of_each_environment_are_those_of_its_responses(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(2), np.array(["gsm8k", "code/hard", None], dtype=object)
    step = gated_step(rng, 0, 0.3)
    n = len(step.sequences["seq_id"])
    folder = write_run(tmp_path / "run", [step.with_sequences(environment=list(names[np.arange(n) % 3]))])
    frame = theirs(open_run(folder), "prime_rl").set_index("name")["value"]
    of = {one["seq_id"]: one["environment"] for one in Batch(folder, 0).logged}
    for environment in ("gsm8k", "code/hard"):
        those = Batch(folder, 0, lambda token, e=environment: of[token["seq_id"]] == e)  # type: ignore[misc]
        for name in ("mismatch_kl/all/mean", "mismatch_kl/all/std", "mismatch_kl/all/max", "entropy/all/mean"):
            expected = ORACLE["prime_rl"][name](those)
            assert frame[name.replace("/all/", f"/{environment}/")] == pytest.approx(expected, rel=1e-6)
    assert len(frame) == len(DIALECTS["prime_rl"].rows) + 2 * 4
    row = DIALECTS["prime_rl"].row("mismatch_kl/code/hard/mean")
    assert row is not None and (row.ours, row.instead, row.same) == ("", "kl_k3", False)
    assert DIALECTS["prime_rl"].row("mismatch_kl/mean") is None


@pytest.mark.parametrize("names", [("all", "code"), ("", "/"), ("all", ""), ("a'b\"c", "\x1b[31m|<b>"), ("/all/", "%")])
def test_environments_of_any_name_are_told_from_the_numbers_of_all(tmp_path: Path, names: tuple[str, str]) -> None:
    step = gated_step(np.random.default_rng(2), 0, 0.3)
    n = len(step.sequences["seq_id"])
    run = open_run(write_run(tmp_path / "run", [step.with_sequences(environment=[names[i % 2] for i in range(n)])]))
    frame = report(run, "prime_rl")
    own = [row.name for row in DIALECTS["prime_rl"].rows]
    others = [one_line(name) for name in names if name not in ("", "all")]
    assert not frame["name"].duplicated().any() and [*frame["name"][: len(own)]] == own
    assert len(frame) == len(own) + 4 * len(others)
    assert {f"mismatch_kl/{name}/mean" for name in others} <= {*frame["name"]}
    found = translate(run, "prime_rl")
    assert {line.name for line in found.lines} == {*frame["name"]} and translation_text(found)


@pytest.mark.parametrize(
    ("loss", "thresholds"),
    [
        ("dppo", {"dppo_mask_low": 0.2, "dppo_mask_high": 0.2}),
        ("icepop", {"ratio_low": 0.2, "ratio_high": 5.0}),
        ("ipo", {"eps": 0.3}),
    ],
)
def test_a_loss_without_thresholds_has_its_own_defaults(
    tmp_path: Path, loss: str, thresholds: dict[str, float]
) -> None:
    def masked(place: str, **parameters: float) -> float:
        algorithm = {"name": f"grpo ({loss} loss)", "parameters": parameters}
        step = gated_step(np.random.default_rng(7), 0, 0.8)
        folder = write_run(tmp_path / place, [step], source={"framework": "prime-rl"}, algorithm=algorithm)
        as_run = DIALECTS["prime_rl"].as_run(open_run(folder).manifest)
        assert as_run.loss == loss and as_run.parameters == thresholds | parameters
        return float(report(open_run(folder), "prime_rl").set_index("name")["value"]["is_masked/mean"])

    assert masked("none") == masked("all", **thresholds) > 0
    low = next(iter(thresholds))
    masked("one", **{low: 2 * thresholds[low]})


@pytest.mark.parametrize("framework", DIALECTS)
def test_every_row_says_what_it_is_and_why_it_differs(framework: str) -> None:
    dialect = DIALECTS[framework]
    assert len({row.name for row in dialect.rows}) == len(dialect.rows)
    for row in dialect.rows:
        assert row.formula and row.why.endswith("."), row.name
        assert row.nearest in CATALOGUE and bool(row.ours) != bool(row.instead), row.name
        assert row.ours or not row.same, row.name
    assert dialect.settings and dialect.framework is FRAMEWORKS[framework]
    assert dialect.not_reproducible and all(dialect.not_reproducible.values())
    assert not dialect.not_reproducible.keys() & {row.name for row in dialect.rows}


# Not defined as ours, and the same as long as no weight reaches the threshold.
UNTRUNCATED = {f"rollout_corr/rollout_is_{name}" for name in ("mean", "max", "min")}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A step in which no clamp is near and every metric has a value other than 0."""
    step = gated_step(np.random.default_rng(0), 5, 0.05)
    return open_run(write_run(tmp_path_factory.mktemp("quiet") / "run", [step]))


@pytest.mark.parametrize("framework", DIALECTS)
def test_ours_and_theirs_agree_where_nothing_clamps_if_and_only_if_defined_alike(quiet: Run, framework: str) -> None:
    frame = report(quiet, framework).set_index("name")
    assert (frame["clamped"] == 0).all()
    for row in DIALECTS[framework].rows:
        if row.ours:
            agree = abs(frame.loc[row.name, "difference"]) < 1e-12
            assert agree == (row.same or row.name in UNTRUNCATED), row.name
            assert not row.same or frame.loc[row.name, "our_value"] != 0, row.name


def test_signs(folder: Path) -> None:
    run = open_run(folder)
    verl, areal = (report(run, framework, 0, 1).set_index(["step", "name"])["value"] for framework in ("verl", "areal"))
    for step in (0, 1):
        assert verl[step, "actor/ppo_kl"] == pytest.approx(-areal[step, "approx_kl/avg"], rel=1e-12)
        assert verl[step, "rollout_corr/kl"] == pytest.approx(-areal[step, "behave_approx_kl/avg"], rel=1e-12)
        assert verl[step, "actor/ppo_kl"] != 0


def test_saturated_values_are_flagged(folder: Path) -> None:
    frame = report(open_run(folder), "verl", 2, 2).set_index("name")
    saturated = frame.loc["rollout_corr/chi2_token"]
    assert saturated["clamped"] == 2
    assert saturated["note"] == "saturated: their bound changes 2 of the terms"
    assert saturated["our_value"] / saturated["value"] == pytest.approx(math.exp(10), rel=1e-3)  # e^50 against e^40
    assert frame.loc["rollout_corr/k3_kl", "clamped"] == 0


def test_parameters_are_stated_and_can_be_set(folder: Path) -> None:
    run = open_run(folder)
    assert DIALECTS["verl"].parameters["rollout_is_threshold"] == 2.0
    loose = report(run, "verl", 1, 1, parameters={"rollout_is_threshold": 1e9}).set_index("name")
    assert loose.loc["rollout_corr/rollout_is_mean", "difference"] == pytest.approx(0, abs=1e-12)
    with pytest.raises(RatioscopeError, match="'clip_max' is not a parameter of verl"):
        report(run, "verl", parameters={"clip_max": 2.0})
    with pytest.raises(RatioscopeError, match="'veRL' is not a framework whose numbers are known; did you mean verl"):
        report(run, "veRL")


def test_what_is_not_logged_is_undefined_with_its_reason(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(1)).with_tokens(logp_reference=None, entropy=None)
    run = open_run(write_run(tmp_path / "run", [step]))
    summary = summarise(run)
    frame = pd.concat([report(run, framework, summary=summary).assign(framework=framework) for framework in DIALECTS])
    needs = {(framework, row.name): row.needs for framework in DIALECTS for row in assumed(framework)}
    missing = {"reference": "logp_reference", "entropy": "entropy"}
    for _, row in frame.iterrows():
        if (row["framework"], row["name"]) not in needs:
            continue
        reasons = [missing[column] for column in needs[row["framework"], row["name"]] if column in missing]
        assert np.isnan(row["value"]) == bool(reasons), row["name"]
        assert not reasons or row["note"] == f"{reasons[0]} not logged in this step"


@pytest.fixture(scope="module")
def with_gates(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Every framework's report of a step in which each token has its logp_gate."""
    run = open_run(write_run(tmp_path_factory.mktemp("gated") / "run", [gated_step(np.random.default_rng(4), 0, 0.3)]))
    return _reports(run)


def _reports(run: Run) -> pd.DataFrame:
    summary = summarise(run)
    frames = {framework: report(run, framework, summary=summary).set_index("name") for framework in DIALECTS}
    return pd.concat(frames)


@pytest.mark.parametrize("bad", [np.nan, 0.5, np.inf])
def test_a_token_without_a_gate_is_left_out_of_what_needs_one_and_counted(
    tmp_path: Path, with_gates: pd.DataFrame, bad: float
) -> None:
    """Numbers of the gate are those of the other tokens, all others those of a log with a gate."""
    step = gated_step(np.random.default_rng(4), 0, 0.3)
    gate = step.tokens["logp_gate"].copy()
    gate[[2, 7]] = bad
    folder = write_run(tmp_path / "bad", [step.with_tokens(logp_gate=gate)])
    frame, batch = _reports(open_run(folder)), Batch(folder, 0, lambda row: row["logp_gate"] <= 1e-4)
    for framework in DIALECTS:
        for row in assumed(framework):
            value, note = frame.loc[(framework, row.name), ["value", "note"]]
            if "gate" in row.needs:
                expected = ORACLE[framework][row.name](batch)
                assert value == pytest.approx(expected, rel=1e-6, abs=1e-12), (framework, row.name)
                assert note.endswith("2 tokens left out: their logp_gate is not a log-probability")
            else:
                assert (value, note) == tuple(with_gates.loc[(framework, row.name), ["value", "note"]])


@pytest.mark.parametrize("log_ratio", [1000.0, -1000.0, -np.inf], ids=["huge", "tiny", "zero"])
def test_extreme_ratios_pass_without_exceptions(tmp_path: Path, log_ratio: float) -> None:
    behavior = np.array([-1000.0 if log_ratio > 0 else 0.0, -1.0, -2.0, -1.0])
    current = np.array([min(log_ratio, 0.0), -1.1, -2.0, -1.0])
    run = open_run(write_run(tmp_path / "run", [plain_step(behavior, current)]))
    summary = summarise(run)
    for framework in DIALECTS:
        frame = report(run, framework, summary=summary)
        assert (np.isfinite(frame["value"]) | (frame["note"] != "")).all()


def test_zero_turns_into_the_largest_weight_and_back(tmp_path: Path) -> None:
    """NeMo-RL's repair: a weight beyond float32 counts as 0; TRL masks the sequence that has it."""
    run = open_run(write_run(tmp_path / "run", [plain_step([-1000.0, -1.0], [0.0, -1.0])]))
    nemo = report(run, "nemo_rl").set_index("name").loc["sampling_importance_ratio"]
    assert (nemo["value"], nemo["clamped"]) == (0.5, 1)
    trl = report(run, "trl").set_index("name")["value"]
    assert trl["sampling/importance_sampling_ratio/min"] == 0
    assert trl["sampling/importance_sampling_ratio/max"] == 1


def test_a_sample_run_is_reported() -> None:
    name = "smollm2_sync_interval4-grpo-lr5e-06-seed0"
    run, summary = run_of(name), summary_of(name)
    for framework in DIALECTS:
        frame = report(run, framework, 3, 5, summary=summary)
        assert sorted(set(frame["step"])) == [3, 4, 5]
        assert (np.isfinite(frame["value"]) | (frame["note"] != "")).all()


def test_a_range_without_tokens_has_no_rows(folder: Path) -> None:
    assert report(open_run(folder), "verl", 7, 9).empty
