"""Headline numbers of the sampled and of the trained tokens, against sums over the rows by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.diagnosis.report import diagnosis_text, head_to_json
from ratioscope.catalogue import CATALOGUE, explain
from ratioscope.dashboard.sections import setting
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.metric import Population
from ratioscope.run_format import schema
from tests.making.runs import Step, plain_step, with_held_out, write_run

STEPS, RESPONSES, LENGTH = 6, 24, 10


def drawn(number: int) -> Step:
    """Responses of four prompts; the more a response is off, the likelier a mask rejects it."""
    rng = np.random.default_rng(number)
    of = np.repeat(np.arange(RESPONSES), LENGTH)
    behavior = -rng.exponential(0.8, len(of)) - 1e-3
    current = np.minimum(behavior + 0.02 * (1 + of) * rng.standard_normal(len(of)), -1e-4)
    new = np.minimum(current + 0.05 * rng.standard_normal(len(of)), -1e-4)
    train = np.minimum(behavior + 0.01 * rng.standard_normal(len(of)), -1e-4)
    return plain_step(behavior, current, new, number=number, sequence=of, group=of // 6, logp_behavior_train=train)


def marked(number: int, *, rejected: bool, dropped: bool) -> tuple[Step, NDArray[np.bool_]]:
    """A step, and which of its tokens trained."""
    step = drawn(number)
    of = step.tokens["seq_id"]
    mask = np.zeros(len(of), dtype=bool)
    if rejected:
        mask |= (of >= 18) & (step.tokens["position"] % 3 > 0)
        step.tokens["rejected"] = [("sequence ratio" if each else None) for each in mask]
    if dropped:
        step.sequences["dropped"] = [("stale" if each % 7 == 6 else None) for each in range(RESPONSES)]
        mask |= of % 7 == 6
    return step, ~mask


def by_hand(step: Step, kept: NDArray[np.bool_]) -> dict[str, float]:
    b, train, c, n = (
        np.asarray(step.tokens[name], dtype=np.float32).astype(float)[kept]
        for name in ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new")
    )
    return {
        "s_k_bounded": float(np.maximum(1 - np.exp(c - b), 0).mean()),
        "s_k_engine_bounded": float(np.maximum(1 - np.exp(train - b), 0).mean()),
        "u_k": float(np.abs(np.exp(n - b) - np.exp(c - b)).mean() / 2),
    }


@pytest.mark.parametrize("marks", [{"rejected": True}, {"dropped": True}, {"rejected": True, "dropped": True}])
def test_both_are_the_means_over_their_tokens(tmp_path: Path, marks: dict[str, bool]) -> None:
    made = [marked(number, **{"rejected": False, "dropped": False} | marks) for number in range(STEPS)]
    opened = open_folder(write_run(tmp_path / "run", [step for step, _ in made]))
    both = opened.populations
    assert both is not None
    every = [by_hand(step, np.ones(len(kept), dtype=bool)) for step, kept in made]
    trained = [by_hand(step, kept) for step, kept in made]
    assert both.share == pytest.approx(1 - np.mean([kept.mean() for _, kept in made]))
    assert list(both.medians) == ["s_k_bounded", "s_k_engine_bounded", "u_k"]
    for key, found in both.medians.items():
        expected = [float(np.median([each[key] for each in of])) for of in (every, trained)]
        assert found == pytest.approx(expected, rel=1e-6), key
        np.testing.assert_allclose(opened.summary.values[key], [each[key] for each in every], rtol=1e-6)
    assert abs(np.diff(both.medians["s_k_bounded"])) > 1e-3
    assert both.words in diagnosis_text(opened)
    assert head_to_json(opened)["populations"] == both.to_json()
    assert both.words in [caution.text for caution in setting.cautions(Subject(opened))]


@pytest.mark.parametrize("what", ["nothing is marked", "a response was held out", "dropped responses have no tokens"])
def test_there_is_one_population_where_the_log_tells_of_no_other(tmp_path: Path, what: str) -> None:
    steps: list[Any] = [drawn(number) for number in range(STEPS)]
    if what == "a response was held out":
        steps = [with_held_out(step, drawn(10 + step.number)) for step in steps]
        assert schema.HELD_OUT in steps[0].sequences["dropped"]
    if what == "dropped responses have no tokens":
        for number, step in enumerate(steps):
            step.sequences["dropped"] = ["stale" if each > 20 else None for each in range(RESPONSES)]
            steps[number] = step.rows(step.tokens["seq_id"] <= 20)
    opened = open_folder(write_run(tmp_path / "run", steps))
    assert opened.populations is None
    assert head_to_json(opened)["populations"] is None


def test_every_metric_says_what_it_is_of() -> None:
    of = {key: metric.population for key, metric in CATALOGUE.items()}
    assert {of["s_k_bounded"], of["u_k"], of["ess_seq"], of["clip_fraction"]} == {Population.SAMPLED}
    assert {of["reward"], of["response_length"]} == {Population.RESPONSES}
    assert of["eval_accuracy"] is Population.LOGGED
    for key, population in of.items():
        assert f"  of        {population.value}" in explain(key)
