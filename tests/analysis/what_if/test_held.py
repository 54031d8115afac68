"""Large ratios that a gate holds harm no gradient: only where the manifest states it and every token shows it."""

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import RunEvidence, Severity
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if.gate_bounds import bounds_of, ends_above
from ratioscope.analysis.what_if.held import held_ratio, measured_setup
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tokens import rows_of
from tests.analysis.diagnosis.made_up import finding_of, made_up
from tests.making.runs import plain_step, write_run

BAND = {"epsilon_low": 0.2, "epsilon_high": 0.3}
DUAL = BAND | {"dual": 2.5}


def gradients(
    folder: Path, gate: str = "dual_clip", weight: str = "ratio", ends: float = 2.5, passing: int = 0,
    without: tuple[str, ...] = (), **more: Any,
) -> Path:  # fmt: skip
    """Six steps of tokens with large ratios, of which none with A < 0 above `ends`, but for a few, has a gradient."""
    rng, steps = np.random.default_rng(5), []
    for number in range(6):
        at = 0.9 * rng.standard_normal(400)
        advantage, ratio = np.where(np.arange(400) % 2, 1.0, -1.0), np.exp(at)
        out = np.where(advantage > 0, ratio > 1.3, (ratio < 0.8) | (ratio > ends))
        out &= ~(np.isin(np.arange(400), np.argsort(ratio * (advantage < 0))[400 - passing :]) & (number == 3))
        columns = {"clipped": out, "gradient_weight": np.where(out, 0.0, advantage * ratio).astype(np.float32)}
        step = plain_step(
            at * 0 - 4.0, at - 4.0, number=number, sequence=np.arange(400) // 10, advantage=advantage.astype(np.float32)
        )
        steps.append(step.with_tokens(**{name: values for name, values in columns.items() if name not in without}))
    stated = {"gate": gate, "weight": weight, "level": "token"} | more
    return write_run(folder, steps, algorithm={"parts": stated, "parameters": DUAL | {"cap": 2.0, "epochs": 1}})


@pytest.mark.parametrize(
    ("gate", "parameters", "ends"),
    [
        ("dual_clip", DUAL, (log(1.3), log(2.5))),
        ("two_side", BAND, (log(1.3), log(1.3))),
        ("masked", {"cap": 4.0}, (log(4.0), log(4.0))),
        ("one_side", BAND, None),
        ("ring", BAND | {"outer_low": 0.6, "outer_high": 2.0}, None),
        ("incremental", {"epsilon": 0.2}, None),
        ("soft", {"tau_positive": 1.0, "tau_negative": 1.05}, None),
        ("none", {}, None),
    ],
)
def test_where_a_gate_keeps_nothing_above(
    gate: str, parameters: dict[str, float], ends: tuple[float, float] | None
) -> None:
    found = ends_above(Rule(gate, parameters))
    assert found == (None if ends is None else pytest.approx(ends, abs=1e-6))


def test_each_bound_stops_its_own_tokens() -> None:
    at = np.array([-1.0, 0.5, 1.5, -1.0, 0.5, 1.5, 0.0])
    n, zeros = len(at), np.zeros(len(at))
    columns = {"step": zeros, "group_id": zeros, "seq_id": np.arange(n), "logp_behavior": zeros - 3}
    columns |= {"logp_current": at - 3, "logp_gate": at - 3, "advantage": np.array([-1, -1, -1, 1, 1, 1, -1.0])}
    found = bounds_of(Rule("dual_clip", DUAL), rows_of(columns), 1e-3)
    stops = {(each.parameter, each.good, each.above): each.stops.nonzero()[0].tolist() for each in found}
    assert {key: rows for key, rows in stops.items() if rows} == {
        ("epsilon_low", False, False): [0], ("dual", False, True): [2], ("epsilon_high", True, True): [4, 5],
    }  # fmt: skip
    assert bounds_of(Rule("soft", {"tau_positive": 1.0, "tau_negative": 1.0}), rows_of(columns), 1e-3) == []
    # A band of 0.6 in logs keeps 0.5, and what is beyond it by less than the margin is not told.
    log_band = bounds_of(Rule("one_side_log", {"epsilon_log": 0.999}), rows_of(columns), 0.01)
    assert not any(each.stops[0] for each in log_band) and any(each.stops[5] for each in log_band)


def test_what_a_gate_holds(tmp_path: Path) -> None:
    held = held_ratio(open_run(gradients(tmp_path / "held")))
    assert held is not None and 2.3 < held <= 2.5
    by_flag = held_ratio(open_run(gradients(tmp_path / "flag", without=("gradient_weight",))))
    assert by_flag == held
    others: dict[str, dict[str, Any]] = {
        "one passes": {"passing": 1},
        "no second clip": {"ends": 1e9},
        "a later one": {"ends": 4.0},
        "one side": {"gate": "one_side"},
        "bounded weight": {"weight": "truncated"},
        "no weight": {"weight": "none"},
        "of responses": {"level": "geometric"},
        "nothing logged": {"without": ("clipped", "gradient_weight")},
        "unknown": {"gate": "dual_clip_on_recomputed"},
    }
    for name, how in others.items():
        assert held_ratio(open_run(gradients(tmp_path / name, **how))) is None, name


def test_a_tail_that_the_gate_holds_is_a_notice(tmp_path: Path) -> None:
    heavy = made_up(khat_token=1.2, top1pct_share=0.5, ess_token=0.1, chi2_token=5.0, log1p_chi2_seq=1.0).summary
    held = RunEvidence(heavy, open_run(gradients(tmp_path / "held")))
    passed = RunEvidence(heavy, open_run(gradients(tmp_path / "passed", passing=1)))
    says = {
        "heavy_tail": "Nothing for the loss, whose clip holds large ratios.",
        "ess_collapse": "Nothing for the loss, whose clip holds large ratios.",
        "variance_regime": "enters the gradient, where the largest ratio is 2.",
    }
    for rule, words in says.items():
        notice, loud = finding_of(rule, held), finding_of(rule, passed)
        assert (notice.severity, loud.severity > Severity.NOTICE) == (Severity.NOTICE, True), rule
        assert words in f"{notice.why} {notice.do}" and words not in f"{loud.why} {loud.do}"
        assert "runcate" in loud.do and "runcate" not in notice.do
    setup = measured_setup(open_run(tmp_path / "held"))
    assert setup.bounded and not setup.truncate and not measured_setup(None).bounded
