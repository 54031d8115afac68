"""A training reward that falls with the sampling temperature: named with it, deep falls as well as others."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.analysis.diagnosis.made_up import first, made_up
from tests.cases.faults import evaluated, rewards_by
from tests.cases.world import Columns, Log, Shape, simulate, write

AT = 14


def said(
    folder: Path, after: float, hot: Any, rising: float = 0.0, environments: tuple[str, ...] = ()
) -> list[Finding]:
    """What is found where the reward falls from 0.6 in step 14, and evaluation accuracy does not.

    Args:
        after: the chance of a reward from then on.
        hot: the temperature of responses, of their columns.
        rising: what accuracy gains.
    """

    def setup(responses: Columns) -> None:
        responses["temperature"] = np.asarray(hot(responses)) + 0.0 * responses["step"]

    def scaled(log: Log, which: str, logits: Any) -> Any:
        return logits / log.of_token("temperature")[:, None]

    log = simulate(
        Shape(91, lag=0, drift=0.01, steps=28, longest=24, shortest=6, environments=environments), setup=setup,
        reward=rewards_by(lambda step: np.where(step < AT, 0.6, after)), trainer=scaled,
        sampler=lambda call, logits: logits / call.of("temperature")[:, None],
    )  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    evaluated(log, 0.58 + rising * log.steps["step"] / 27)
    run = open_run(write(log, folder))
    return diagnose(summarise(run), run)


def raised(responses: Columns) -> Any:
    return np.where(responses["step"] >= AT, 1.4, 0.8)


def of(findings: list[Finding], rule: str) -> Finding | None:
    return next((each for each in findings if each.rule == rule), None)


def test_a_reward_that_falls_with_the_temperature_is_named_with_it(tmp_path: Path) -> None:
    found = of(said(tmp_path / "run", 0.38, raised), "reward_with_temperature")
    assert found is not None and found.severity is Severity.WARNING and found.steps == tuple(range(AT, 28))
    assert "in step 14, where the sampling temperature rose from 0.8 to 1.4" in found.sentence
    assert "Entropy rose" in found.why and "Evaluation accuracy shows no such fall" in found.why, found.why
    learns = of(said(tmp_path / "learns", 0.38, raised, rising=0.25), "reward_with_temperature")
    assert learns is not None and learns.severity is Severity.NOTICE


def test_a_deep_fall_with_it_is_not_put_down_to_scorer_or_policy(tmp_path: Path) -> None:
    found = said(tmp_path / "run", 0.08, raised)
    fall = of(found, "reward_drop") or of(found, "reward_collapse")
    assert fall is not None and fall.of_cause == "temperature_changed" and of(found, "reward_with_temperature") is None
    assert "from 0.8 to 1.4 in step 14" in fall.why and "scorer" not in fall.why and "random" not in fall.why
    constant = said(tmp_path / "constant", 0.08, lambda responses: 0.8)
    fall = of(constant, "reward_drop") or of(constant, "reward_collapse")
    assert fall is not None and fall.of_cause != "temperature_changed" and "temperature" not in fall.sentence


def test_another_time_another_environment_or_a_small_loss_is_no_fall_with_it(tmp_path: Path) -> None:
    early = said(tmp_path / "early", 0.38, lambda responses: np.where(responses["step"] >= 7, 1.4, 0.8))
    little = said(tmp_path / "little", 0.52, raised)
    each_time = said(tmp_path / "each time", 0.38, lambda responses: np.where(responses["step"] % 2, 1.4, 0.8))
    for found in (early, little, each_time):
        assert of(found, "reward_with_temperature") is None


def test_an_environment_whose_temperature_changed_is_named(tmp_path: Path) -> None:
    """A few of the responses are of it, the reward falls in all: that was not the temperature."""

    def of_chat(responses: Columns) -> Any:
        return np.where((responses["environment"] == "chat") & (responses["step"] >= AT), 1.4, 0.8)

    names = ("chat", "chat ", "maths")
    few = said(tmp_path / "few", 0.38, of_chat, environments=("chat", "maths", "code", "web", "tools"))
    assert of(few, "reward_with_temperature") is None
    most = said(
        tmp_path / "most", 0.38,
        lambda responses: np.where((responses["environment"] != "maths") & (responses["step"] >= AT), 1.4, 0.8),
        environments=names,
    )  # fmt: skip
    named = of(most, "reward_with_temperature")
    assert named is not None and "temperature of 'chat" in named.sentence


def test_an_accuracy_on_its_way_back_hides_no_reward_that_is_low() -> None:
    """One high evaluation is a best level, of which the others have not made up half."""
    accuracy = np.select([np.arange(60) == 40, np.arange(60) == 41], [0.72, 0.53], 0.59)
    low = drop_of(made_up(eval_accuracy=accuracy, reward=first(55, 0.6, 0.05)).summary, Limits())
    assert low is not None and low.metric == "reward" and low.is_low
    holds = drop_of(made_up(eval_accuracy=accuracy, reward=0.6).summary, Limits())
    assert holds is not None and holds.metric == "eval_accuracy" and not holds.is_low
