"""What a run logs: decided from the footers, and said in one sentence for each question."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.findings.logged import NO_GROUPS, QUESTIONS, RECOMPUTED, Logged, logged
from ratioscope.analysis.runs.store import open_run
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema
from tests.making.runs import Step, random_step, write_run


def log_of(folder: Path, step: Step, **manifest: object) -> Logged:
    return logged(open_run(write_run(folder, [step], **manifest)))


def test_what_is_there_is_not_missing(tmp_path: Path) -> None:
    log = log_of(tmp_path / "run", random_step(np.random.default_rng(0)))
    assert log.has_tokens and log.has_ratios and log.has_update and log.has_advantages and log.has_groups
    assert log.has_versions and log.has_rewards and log.engine_in_ratios and log.cautions == ()
    open_ = {question for question in QUESTIONS if log.missing(question)}
    assert open_ == {"probes", "filters"}
    assert log.sentence("staleness") == "" and log.sentence("probes").endswith("estimator is not logged.")


def test_a_sentence_names_the_column_and_what_the_manifest_says_of_it(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0)).with_tokens(logp_current=None)
    log = log_of(tmp_path / "run", step, missing={"logp_current": "it is written behind a flag."})
    said = "How far the policy is from its data is unknown: logp_current is not logged (it is written behind a flag)."
    assert log.sentence("staleness") == said and not log.has_ratios and not log.has_update
    assert log.missing("clipping") is None and log.missing("new") is None


def test_ratios_to_the_training_engine_and_no_groups_are_said_once(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0)).with_tokens(logp_behavior=None, group_id=None)
    step = replace(step, sequences={name: of for name, of in step.sequences.items() if name != "group_id"})
    log = log_of(tmp_path / "run", step, assumed=["Steps are numbered by file."])
    assert log.has_ratios and not log.engine_in_ratios and not log.has_groups
    assert log.cautions == (RECOMPUTED, NO_GROUPS, "Steps are numbered by file.")


def test_texts_alone(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0))
    with_texts = replace(step, tokens=None, sequences=step.sequences | {"response": ["x"] * 12})  # type: ignore[arg-type]
    log = log_of(tmp_path / "run", with_texts)
    assert not log.has_tokens and log.missing("reward") is None and log.missing("texts") is None
    assert log.sentence("staleness") == "How far the policy is from its data is unknown: no tokens are logged."


def test_a_source_that_rounds_says_by_how_much(tmp_path: Path) -> None:
    log = log_of(tmp_path / "run", random_step(np.random.default_rng(0)), log_probability_decimals=4)
    assert log.rounding == 5e-5 and "4 decimals" in log.cautions[0]


def test_every_question_asks_for_declared_columns_and_metrics() -> None:
    for question in QUESTIONS.values():
        for column in (column for need in question.needs for column in need):
            table, _, name = column.rpartition(".")
            assert schema.ALL_TABLES[table or "tokens"].column(name), column
        assert not question.metric or question.metric in CATALOGUE
    with pytest.raises(RatioscopeError, match="question"):
        Logged({}, {}).missing("sense")
