"""Whether the engine hurts: the finding renders the verdict, its numbers are those of an independent computation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.engine.measured import measure_engine
from ratioscope.analysis.engine.sentences import answer, missed_by_k3, sits_mostly
from ratioscope.analysis.engine.signature import engine_signature
from ratioscope.analysis.engine.verdict import EffectKind, EngineVerdict, _trend, engine_facts, missing_columns
from ratioscope.analysis.engine.where import where_engine_differs
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.setup import UNKNOWN
from ratioscope.analysis.frameworks.remedies import Like
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.sections.engine import first_lines, like, parts
from ratioscope.dashboard.sections.model import Chart, Paragraph
from ratioscope.dashboard.sections.subject import Subject
from tests.making.engines import engine_steps
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS


@pytest.mark.parametrize(
    ("size", "verdict", "like"),
    [(0.01, EngineVerdict.DOES_NOT, Like.ROUNDING), (0.2, EngineVerdict.HURTS, Like.WEIGHTS)],
)
def test_the_finding_renders_the_verdict(tmp_path: Path, size: float, verdict: EngineVerdict, like: Like) -> None:
    write_run(tmp_path / "run", list(engine_steps("noise", size)))
    run = open_run(tmp_path / "run")
    evidence = RunEvidence(summarise(run), run)
    finding, measured = RULES["engine_mismatch"](evidence), measure_engine(run)
    assert evidence.engine.verdict is verdict and measured is not None
    assert (finding is not None and finding.severity is Severity.WARNING) == (verdict is EngineVerdict.HURTS)
    assert engine_signature(measured, where_engine_differs(run), ()).like is like


@pytest.mark.parametrize(("kind", "size"), [("temperature", 1.2), ("top_p", 0.9)])
def test_what_the_linter_found_is_what_it_is_like(tmp_path: Path, kind: str, size: float) -> None:
    """Without the recomputed column: on data of the policy's own version the engine is all that is left."""
    write_run(tmp_path / "run", list(engine_steps(kind, size, recomputed=False)))
    opened = open_folder(tmp_path / "run")
    measured = measure_engine(opened.run)
    found = engine_facts(opened.summary, opened.facts(), measured, UNKNOWN, alarms=opened.findings)
    assert found.verdict is EngineVerdict.HURTS and found.fresh_only and measured is not None
    signs = engine_signature(measured, where_engine_differs(opened.run), opened.remarks)
    assert signs.like is (Like.TEMPERATURE if kind == "temperature" else Like.TRUNCATION)
    assert signs.number == pytest.approx(size if kind == "temperature" else measured.mean_ratio, rel=1e-3)
    said = answer(found, signs, logged(opened.run))
    assert said.startswith("The engine mismatch hurts: with the same weights") and "in 3 of 3 steps" in said
    (finding,) = [one for one in opened.findings if one.rule == "engine_mismatch"]
    assert finding.severity is Severity.WARNING
    undecided = engine_facts(opened.summary, opened.facts(), measured, UNKNOWN, broken=True)
    assert undecided.verdict is EngineVerdict.CANNOT_TELL and "broken" in answer(undecided, signs, logged(opened.run))


@pytest.mark.parametrize(
    ("framework", "sampler", "kind", "cause", "remedy"),
    [
        ("verl", {"top_p": 0.9, "top_k": -1}, "top_p", "All of the mismatch comes from top_p 0.9: the sampler",
         "actor_rollout_ref.rollout.top_p=1 (0.9 now)."),
        ("slime", {"top_p": 0.9}, "top_p", "comes from top_p 0.9: the sampler kept", "top_p=1.0 (0.9 now)."),
        ("TRL", {"temperature": 1.2}, "temperature", "at 1.2 × the trainer's (temperature 1.2 is stated)",
         "vllm serve --logprobs-mode processed_logprobs (temperature 1.2 now)."),
        ("verl", {"dtype": "int8"}, "noise", "weights made coarser by dtype int8", "dtype=float32 (int8 now)."),
        ("verl", {"dtype": "same"}, "noise", "other weights, or coarser ones", "rollout_is=token"),
        ("", {"top_p": 1.0}, "top_p", "looks like truncation", "sample without truncation"),
    ],
)  # fmt: skip
def test_the_first_lines_name_the_setting(
    tmp_path: Path, framework: str, sampler: dict[str, object], kind: str, cause: str, remedy: str
) -> None:
    """In the words of the run's framework where it has some; a setting that leaves no sign is not blamed."""
    size = {"top_p": 0.9, "temperature": 1.2, "noise": 0.2}[kind]
    write_run(tmp_path / "run", list(engine_steps(kind, size)), source={"framework": framework}, sampler=sampler)
    subject = Subject(open_folder(tmp_path / "run"))
    said = {line.lead: line.text for line in first_lines(subject) if isinstance(line, Paragraph)}
    assert cause in said["Cause:"] and remedy in said["What to set:"]
    b, t = (
        subject.opened.run.read("tokens")[name].to_numpy(float) for name in ("logp_behavior", "logp_behavior_train")
    )
    ratio, signs = np.exp(t - b), like(subject)
    assert signs is not None
    if signs.like is Like.TRUNCATION:
        other = np.maximum(ratio - 1, 0).mean() / np.maximum(1 - ratio, 0).mean()
        assert signs.rest == pytest.approx(other, abs=1e-6)


def test_what_k3_leaves_out_under_top_p_is_said() -> None:
    """KL k3 assumes a mean ratio of 1: of a sampler with top_p it showed a fiftieth of the KL, and nothing said so."""
    subject = Subject(open_folder(SAMPLE_RUNS / "mismatch-grpo-seed0"))
    tokens = subject.opened.run.read("tokens")
    log = (tokens["logp_current"].astype(float) - tokens["logp_behavior"].astype(float)).groupby(tokens["step"])
    k1, rho = -log.mean(), log.apply(lambda each: float(np.exp(each).mean()))
    k3 = k1 - 1 + rho
    assert k1.median() > 50 * k3.median()
    said = "KL k3 understates: it assumes mean ratio 1."
    (chart,) = parts(subject)
    assert isinstance(chart, Chart) and chart.takeaway.endswith(said)
    assert missed_by_k3(0.01, 0.0001, None) == ""
    signs = like(subject)
    assert signs is not None and missed_by_k3(0.01, 0.009, signs) == ""


def test_engines_that_agree_need_no_setting(tmp_path: Path) -> None:
    write_run(tmp_path / "run", list(engine_steps("noise", 0.0)), producer={"name": "ratioscope trainer"})
    assert first_lines(Subject(open_folder(tmp_path / "run"))) == []


def test_numbers_are_those_of_an_independent_computation(tmp_path: Path) -> None:
    write_run(tmp_path / "run", list(engine_steps("noise", 0.2)))
    run = open_run(tmp_path / "run")
    measured, tokens, summary = measure_engine(run), run.read("tokens"), summarise(run)
    assert measured is not None
    b, t, new, a = (
        tokens[name].to_numpy(np.float64) for name in ("logp_behavior", "logp_behavior_train", "logp_new", "advantage")
    )
    assert measured.tv == pytest.approx(np.maximum(1 - np.exp(t - b), 0).mean())
    by_step = summary.values["s_k_engine_bounded"].to_numpy(float)
    assert measured.by_step["tv"].to_numpy() == pytest.approx(by_step)
    low = summary.low["s_k_engine_bounded"].to_numpy(float)
    assert measured.by_step["low"].to_numpy() == pytest.approx(low)
    assert measured.bias == pytest.approx(np.sum(a * (np.exp(t - b) - 1)) / np.abs(a).sum())
    correction_train, correction_sampler = -(np.exp(new - t) - 1) * a, -(np.exp(new - b) - 1) * a
    for sign, skew in ((1, measured.skew_positive), (-1, measured.skew_negative)):
        moved = (correction_train - correction_sampler)[np.sign(a) == sign].sum()
        assert skew == pytest.approx(moved / np.abs(correction_sampler).sum())


def test_without_the_samplers_own_log_probs_it_says_what_to_log(tmp_path: Path) -> None:
    steps = [step.with_tokens(logp_behavior=None) for step in engine_steps("noise", 0.2, steps=1)]
    write_run(tmp_path / "run", steps)
    run = open_run(tmp_path / "run")
    summary, log = summarise(run), logged(run)
    found = engine_facts(summary, facts_of(summary), measure_engine(run), UNKNOWN, missing=missing_columns(log))
    assert found.verdict is EngineVerdict.CANNOT_TELL and found.missing == ("logp_behavior",)
    said = answer(found, None, log, "trl")
    assert said.startswith("Cannot tell: logp_behavior is not logged. Log") and "use_vllm=True" in said


def test_a_bias_beyond_its_noise_decides_alone(tmp_path: Path) -> None:
    """The trainer's engine gives more to good responses and less to bad ones: small, and all to one side."""
    steps = []
    for step in engine_steps("noise", 0.0, groups=24):
        a, b = step.tokens["advantage"], step.tokens["logp_behavior"]
        shifted = np.minimum(b + 0.02 * np.sign(a), -1e-6).astype(np.float32)
        steps.append(step.with_tokens(logp_behavior_train=shifted))
    write_run(tmp_path / "run", steps)
    run = open_run(tmp_path / "run")
    found = RunEvidence(summarise(run), run).engine
    assert found.verdict is EngineVerdict.HURTS and found.decides is not None and found.decides.kind is EffectKind.BIAS
    assert "surrogate" in answer(found, None, logged(run))


def test_a_constant_engine_has_no_trend() -> None:
    """ "Rises over the run" was said of 22 % of constant runs of 8 steps; a real rise is still told."""
    rng = np.random.default_rng(1)
    for steps in (8, 20, 100):
        told = [np.isfinite(_trend(pd.Series(rng.normal(1, 0.1, steps)))) for _ in range(300)]
        assert sum(told) < 9, (steps, sum(told))  # the 99.9 % quantile of a binomial at 1 %
        assert _trend(pd.Series(np.linspace(1, 2, steps))) == pytest.approx(1)
    assert np.isnan(_trend(pd.Series(np.ones(20)))) and np.isnan(_trend(pd.Series([1.0, 2.0])))


@pytest.mark.parametrize(
    ("absent", "why"),
    [
        (("logp_current",), "the log has no log-probability of the trainer"),
        (("behavior_version",), "the log does not say how old a token is"),
    ],
)
def test_why_it_cannot_be_told_is_what_the_log_lacks(tmp_path: Path, absent: tuple[str, ...], why: str) -> None:
    """As samplers' files, and as trainers' that count no versions."""
    write_run(tmp_path / "run", list(engine_steps("noise", 0.2, recomputed=False)))
    for file in (tmp_path / "run" / "tokens").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns([*absent]), file)
    opened = open_folder(tmp_path / "run")
    log = logged(opened.run)
    found = engine_facts(
        opened.summary, opened.facts(), measure_engine(opened.run), UNKNOWN, missing=missing_columns(log)
    )
    assert found.verdict is EngineVerdict.CANNOT_TELL and why in answer(found, None, log)


def test_where_it_sits_is_told_beside_what_was_expected_whatever_the_tokens_are() -> None:
    remarks = open_folder(SAMPLE_RUNS / "mismatch-grpo-seed0").remarks
    (placed,) = [remark for remark in remarks if remark.place]
    of = "(47.5% expected from token probability)."
    assert sits_mostly(remarks) == f"68.4% of the mismatch is in tokens '0', '1', '5' and '7' {of}"
    semicolon = replace(placed, why=placed.why.replace("'0'", "'; '"))
    assert "'; ', '1'" in sits_mostly([semicolon]) and sits_mostly([semicolon]).endswith(of)
    assert sits_mostly([]) == ""
