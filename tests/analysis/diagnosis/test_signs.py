"""No `why` and no `do` names a cause without its sign, and with the sign it does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratioscope.analysis.diagnosis import RULES, RunEvidence, Severity
from ratioscope.analysis.findings.finding import Finding
from tests.analysis.diagnosis.made_up import RAMP, cause_of_mismatch, faulty, finding_of, made_up
from tests.analysis.signs import SIGNS, unfounded

ENGINE = {"s_k_engine_bounded": 0.03, "s_k_version_bounded": 0.04}
BELOW = {"ratio_mean": 0.97, "ratio_mean_z": -5.0}
BEHIND = {"s_k_bounded": 0.4 * RAMP, "version_lag": 1.0}
ABOVE = {"ratio_mean": 1.1, "ratio_mean_z": 5.0}


def remark(rule: str, sentence: str, do: str = "Mend it.") -> Finding:
    return Finding(sentence, Severity.WARNING, do, rule=rule)


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_names_a_cause_that_its_evidence_does_not_show(rule: str, tmp_path: Path) -> None:
    evidence = faulty(rule, tmp_path)
    assert unfounded([finding_of(rule, evidence)], evidence.run, evidence.remarks) == []


@pytest.mark.parametrize(
    ("rule", "series", "sign", "word"),
    [
        ("engine_mismatch", ENGINE, remark("temperature", "It drew at temperature 0.7."), "temperature"),
        ("engine_mismatch", ENGINE, remark("truncated_support", "The sampler leaves tokens out."), "leaves tokens out"),
        ("engine_mismatch", ENGINE, cause_of_mismatch("one_server"), "One server differs"),
        ("engine_mismatch", ENGINE, replace(remark("on_policy_ratio", "No."), why="90% is in a prompt."), "90%"),
        ("truncated_support", BELOW, remark("truncated_support", "It leaves tokens out."), "leaves tokens out"),
        ("denominator_wrong", ABOVE, remark("recomputed", "It is computed anew."), "computed anew"),
        ("denominator_wrong", ABOVE, remark("drawn_as_logged", "They were not drawn so."), "not drawn so"),
        ("sampler_not_following", BEHIND, cause_of_mismatch("one_server"), "One server"),
    ],
)  # fmt: skip
def test_with_its_sign_a_cause_is_named(rule: str, series: dict[str, Any], sign: Finding, word: str) -> None:
    without = made_up(**series)
    bare, told = finding_of(rule, without), finding_of(rule, replace(without, remarks=[sign]))
    assert word in f"{told.why} {told.do}" and word not in f"{bare.why} {bare.do}"
    assert (bare.why, bare.do) != (told.why, told.do)


def test_a_measured_floor_of_another_number_format_is_its_sign() -> None:
    def said(floor: float) -> str:
        evidence: RunEvidence = made_up(dropped={"noise_floor_dtype": floor}, **ENGINE)
        finding = finding_of("engine_mismatch", evidence)
        return f"{finding.why} {finding.do}"

    assert "one number format" in said(0.025) and "one number format" not in said(0.001)


def test_the_patterns_find_what_was_said_without_a_sign() -> None:
    for said in (
        "number format, kernels, or decoding transforms", "temperature or top-p left out", "another version's weights",
        "Weights never arrived at the sampler", "Look at the borders of packed responses", "such as a filter",
    ):  # fmt: skip
        assert unfounded([remark("any", "It is.", said)]), said
    assert not unfounded([remark("any", "It is.", "Log noise_floor_dtype: it shows what number formats do.")])
    assert all(signs for signs in SIGNS.values())
