"""Every column missing, one at a time and as sources lack them: what needs it says so, the rest stays as it is."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.facts import Cause
from ratioscope.analysis.findings.finding import Outcome
from ratioscope.analysis.overview.lights import NAMES, OFF_POLICY, LightState, lights_of
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Grain, Metric
from ratioscope.notes import Kind
from tests.making.absent import (
    CASES,
    SINGLE,
    SOURCES,
    Absent,
    opened_without,
    rich_steps,
    said,
    said_of_tokens,
    without,
)
from tests.making.loops import in_one_loop
from tests.making.runs import write_run

STEPS = rich_steps()
# What never stands in a sentence: a number that is none, and an empty place.
_NO_NUMBER = re.compile(r"\b(nan|NaN|None|NaT)\b|<NA>|(?<![\w0-9])–(?![\w0-9])")
# Of these words the log is the subject.
_OF_THE_LOG = (
    "not logged",
    "is logged",
    "is unknown",
    "no tokens",
    "lacks",
    "not recomputed",
    "not judged",
    "be known",
    "Too few",
)

READ_AGAIN = ("token_id", "behavior_version", "group_id", "advantage", "reward", "policy_version")
"""What rules and checks look at in a way of its own."""

SummaryOf = Callable[[Absent], StepSummary]


@pytest.fixture(scope="module")
def summary_of(tmp_path_factory: pytest.TempPathFactory) -> SummaryOf:
    kept: dict[Absent, StepSummary] = {}

    def make(absent: Absent) -> StepSummary:
        if absent not in kept:
            folder = write_run(tmp_path_factory.mktemp("run") / "run", without(STEPS, absent))
            kept[absent] = summarise(open_run(folder))
        return kept[absent]

    return make


def names(absent: Absent) -> set[str]:
    """The missing columns; where one table still has a column, it is looked up there."""
    bare = {column.rpartition(".")[2] for column in absent.columns}
    kept = {"group_id"} if "sequences.group_id" not in absent.columns else set()
    kept |= {"n_tokens"} if not absent.texts_alone else set()
    return bare - kept


def lacks(metric: Metric, absent: Absent) -> bool:
    missing = names(absent)
    if metric.grain is Grain.STEP:
        return metric.key in missing
    if metric.key == "version_lag" and "policy_version" in missing:
        return True
    if metric.key == "zero_advantage_group_fraction" and "group_id" in missing:
        return True
    if metric.over.chain[-1].grain is Grain.TOKEN and absent.texts_alone:
        return True
    return any(set(need) <= missing for need in metric.needs)


@in_one_loop("absent", CASES)
def test_a_metric_whose_column_is_missing_says_which_and_no_other_is_touched(
    absent: Absent, summary_of: SummaryOf
) -> None:
    whole, found = summary_of(Absent(())), summary_of(absent)
    counted = "group_id" in names(absent)  # other clusters, and another order of summation
    against = {"logp_behavior"} & names(absent)
    for key, metric in CATALOGUE.items():
        values = found.values[key]
        if lacks(metric, absent):
            if metric.key == "effective_groups" and absent.texts_alone:
                continue
            assert values.isna().all() and found.low[key].isna().all() and found.high[key].isna().all(), key
            for step in found.values.index:
                note = found.note(step, key)
                assert note is not None and note.kind is Kind.NOT_LOGGED and note.text.endswith("logged"), key
        elif against and {"logp_behavior", "logp_behavior_train"} in map(set, metric.needs):
            assert values.notna().all() or key.startswith("khat"), key  # against the recomputation instead
        elif counted:
            same = np.isclose(values, whole.values[key], equal_nan=True)
            by_cluster = key.endswith("_z") or key.startswith(
                ("reliance", "effective_groups", "group_spread", "zero_advantage")
            )
            assert same.all() or by_cluster, key
        elif not absent.texts_alone:
            assert values.equals(whole.values[key]), key
            assert found.low[key].equals(whole.low[key]) and found.high[key].equals(whole.high[key]), key


def check_sentences(opened: Opened, absent: Absent, sentences: list[tuple[str, str]]) -> None:
    missing = names(absent) | ({"token_id"} if absent.texts_alone else set())
    for speaker, text in sentences:
        assert not _NO_NUMBER.search(text), (speaker, text)
        for sentence in re.split(r"(?<=\.)\s", text):
            named = [column for column in missing if "_" in column and re.search(rf"\b{column}\b", sentence)]
            assert not named or any(words in sentence for words in _OF_THE_LOG), (speaker, sentence)
    for finding in opened.findings:
        metric = CATALOGUE[finding.metric]
        assert finding.rule in ("nothing_to_judge", "trust_region_infeasible") or not lacks(metric, absent), (
            finding.rule
        )
        assert all(np.isfinite(number.value) for number in finding.numbers)


@in_one_loop("absent", {label: SINGLE[label] for label in READ_AGAIN})
def test_no_rule_and_no_check_speaks_of_a_column_that_is_not_there(absent: Absent, tmp_path: Path) -> None:
    opened = opened_without(tmp_path / str(len(list(tmp_path.iterdir()))), absent, STEPS)
    check_sentences(opened, absent, list(said(opened)))


@in_one_loop("absent", SOURCES)
def test_of_what_sources_write_every_room_says_what_it_can_and_why_not_more(absent: Absent, tmp_path: Path) -> None:
    opened = opened_without(tmp_path / str(len(list(tmp_path.iterdir()))), absent, STEPS)
    sentences = list(said(opened))
    check_sentences(opened, absent, [*sentences, *said_of_tokens(opened)])
    off_policy = lights_of(opened)[NAMES.index(OFF_POLICY)]
    assert off_policy.state is not LightState.SMALL or opened.facts().staleness.n_known
    not_checked = {remark.sentence for remark in opened.remarks if remark.outcome is Outcome.NOT_CHECKED}
    assert not_checked and all(sentence.endswith(".") for sentence in not_checked)


def test_ratios_to_the_recomputation_have_no_engine_in_them(tmp_path: Path) -> None:
    opened = opened_without(tmp_path / "run", SOURCES["trainer's recomputation"], STEPS)
    facts = opened.facts()
    assert not facts.engine_in_ratios and facts.path.part(Cause.ENGINE) is None
    assert facts.cause_of_staleness is Cause.AGE and facts.staleness.n_known == len(STEPS)
    said_once = [text for speaker, text in said(opened) if speaker == "drift"]
    assert said_once[0].count("the engine's part") == 1
