"""How often the linter suspects a log that is clean: hundreds of synthetic ones with E rho = 1 by construction."""

from collections import Counter
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.linter import CHECKS, Example, Outcome, lint
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.sample import Sample
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from tests.making.faults import KINDS, clean_steps
from tests.making.runs import write_run


class Window(LogEvidence):
    """Some steps of a log that was scanned as a whole: hundreds of logs for the price of one."""

    doubt = ""

    def __init__(self, whole: LogEvidence, first: int, last: int) -> None:
        self.run, self._whole, self._steps = whole.run, whole, (first, last)
        self.limits = whole.limits
        self.steps = self._part(whole.steps)

    @cached_property
    def groups(self) -> pd.DataFrame:
        return self._part(self._whole.groups)

    @cached_property
    def states(self) -> pd.DataFrame:
        return self._part(self._whole.states)

    @cached_property
    def sample(self) -> Sample:
        rows = self._whole.sample.rows
        return Sample(rows[rows["step"].between(*self._steps)].reset_index(drop=True))

    def frame(self, sql: str) -> pd.DataFrame:
        """A query over all steps, which every window asks alike."""
        return self._whole.once(sql, lambda: self._whole.frame(sql)).copy()

    def rows_where(self, condition: str, order: str = "") -> tuple[Example, ...]:
        return ()

    def _part(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["step"].between(*self._steps)]


LOGS = 200
STATISTICAL = ("temperature", "truncated_support", "mean_ratio")
# At most 2 % of clean logs may be suspected by a check; in this sample it is 0 to 2 of 200.
LARGEST_FALSE_ALARM_RATE = 0.02


def test_false_alarms_are_rare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 clean logs of 1 to 4 steps, drawn from known distributions, so that E rho = 1: on-policy, and stale."""
    rng = np.random.default_rng(7)
    logs: list[tuple[str, int, int]] = []
    for number in range(LOGS):
        first = logs[-1][2] + 1 if logs else 10
        logs.append((KINDS[number % len(KINDS)], first, first + int(rng.integers(0, 4))))
    steps = (
        step
        for kind, first, last in logs
        for step in clean_steps(
            rng,
            kind,
            steps=last - first + 1,
            groups=int(rng.integers(8, 15)),
            longest=int(rng.integers(2, 5)),
            first=first,
        )
    )
    run = open_run(write_run(tmp_path / "run", steps))
    alarms: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    with relations(run) as connection:
        whole = LogEvidence(run, connection)
        for _, first, last in logs:
            window = Window(whole, first, last)
            for name in STATISTICAL:
                outcomes = {remark.outcome for remark in CHECKS[name](window)}
                alarms[name] += Outcome.FOUND in outcomes
                checked[name] += Outcome.NOT_CHECKED not in outcomes
    with capsys.disabled():
        print("\nfalse alarms:", ", ".join(f"{name} {alarms[name]} of {checked[name]}" for name in STATISTICAL))
    assert checked["mean_ratio"] == LOGS
    assert checked["temperature"] > 0.9 * LOGS
    assert checked["truncated_support"] >= LOGS / 2  # those on the same weights
    assert max(alarms[name] / checked[name] for name in STATISTICAL) <= LARGEST_FALSE_ALARM_RATE


@pytest.mark.parametrize("kind", KINDS)
def test_no_check_fires_on_a_clean_synthetic_log(tmp_path: Path, kind: str) -> None:
    steps = clean_steps(np.random.default_rng(0), kind, steps=4, groups=12, longest=6)
    remarks = lint(open_run(write_run(tmp_path / "run", steps)))
    assert [remark.rule for remark in remarks if remark.is_problem] == []
    # Another engine on the same weights is what a noisy engine is; of the usual size it is good to know.
    noticed = {remark.rule for remark in remarks if remark.severity}
    assert ("on_policy_ratio" in noticed) == (kind == "noisy engine")
