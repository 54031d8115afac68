"""Alerts: each finding of a run is news once, and again only when it has become worse."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.news import (
    LONGEST_TEXT,
    alert_json,
    news,
    reported_after,
    reported_from_json,
    reported_to_json,
    run_key,
)
from ratioscope.analysis.runs.store import open_run
from tests.making.runs import random_step, write_run

RULES = ("staleness_high", "heavy_tail", "clip_zero")


def finding(rule: str, severity: Severity) -> Finding:
    return Finding(
        sentence="It is so.", severity=severity, metric="s_k", steps=(3, 4, 9), numbers=(), why="Because.", do="Stop.",
        source="S0", limit=0.2, rule=rule,
    )  # fmt: skip


looks = st.lists(st.dictionaries(st.sampled_from(RULES), st.sampled_from([*Severity][1:])), max_size=12)


@given(looks, st.sampled_from([*Severity][1:]))
def test_a_rule_speaks_when_it_is_worse_than_ever_and_only_then(
    looks: list[dict[str, Severity]], at_least: Severity
) -> None:
    reported: dict[str, Severity] = {}
    worst: dict[str, Severity] = {}
    for look in looks:
        said = news([finding(rule, severity) for rule, severity in look.items()], reported, at_least)
        expected = {
            rule: severity for rule, severity in look.items() if severity >= at_least and severity > worst.get(rule, 0)
        }
        assert {one.rule: one.severity for one in said} == expected
        worst |= expected
        for one in said:
            reported = reported_after(reported, one)
        assert reported == worst == reported_from_json(json.loads(json.dumps(reported_to_json(reported))))


@pytest.mark.parametrize("contents", [None, [], "x", {"clip_zero": "grave"}, {"clip_zero": 3}, {"clip_zero": None}])
def test_what_cannot_be_understood_was_not_told(contents: object) -> None:
    assert reported_from_json(contents) == {}


def test_an_alert_says_what_the_finding_says_and_no_more(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "mine", [random_step(np.random.default_rng(0))]))
    assert alert_json(run, finding("clip_zero", Severity.WARNING)) == {
        "run": "mine", "rule": "clip_zero", "severity": "warning", "sentence": "It is so.", "metric": "s_k",
        "limit": 0.2, "steps": [3, 9], "why": "Because.", "do": "Stop.", "source": "S0",
    }  # fmt: skip
    run.manifest.name = "n" * 5_000
    undefined = replace(finding("clip_zero", Severity.NOTICE), limit=float("nan"), steps=(), why="w" * 5_000)
    alert = json.loads(json.dumps(alert_json(run, undefined), allow_nan=False))
    assert (alert["limit"], alert["steps"]) == (None, None)
    assert len(alert["run"]) == len(alert["why"]) == LONGEST_TEXT


def test_another_run_in_the_same_folder_is_told_of_anew(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "mine", [random_step(np.random.default_rng(0))]))
    key = run_key(run)
    assert run_key(open_run(tmp_path / "mine" / ".." / "mine")) == key
    run.manifest.run_id = "another"
    assert run_key(run) != key
