"""A few strange values of each target, always the same, and all that broke once; `python -m tests.fuzzing` goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.report.build import run_report
from ratioscope.run_format.manifest import MANIFEST_NAME
from tests.fuzzing.corpus import KEPT
from tests.fuzzing.holding import answered
from tests.fuzzing.stress import CASES
from tests.fuzzing.tables import check_values
from tests.fuzzing.targets import TARGETS
from tests.making.pages import visit
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS, part_of


@pytest.mark.parametrize("name", TARGETS)
def test_strange_values_are_answered_with_numbers_or_one_sentence(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=target.few, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(target.examples)
    def ask(example: Any) -> None:
        answered(target, example)

    ask()


@pytest.mark.parametrize(("name", "example"), [(name, example) for name, kept in KEPT.items() for example in kept])
def test_what_broke_once_is_answered(name: str, example: Any) -> None:
    answered(TARGETS[name], example)


@pytest.mark.parametrize("case", ["1,000 nats", "all equal", "one token"])
def test_extreme_runs_are_diagnosed_reported_and_drawn(case: str, root: Path) -> None:
    make, steps = CASES[case]
    opened = open_folder(write_run(root / "run", map(make, range(steps))))
    check_values(opened.summary)
    assert run_report(opened, pages=["engine"]).sections
    visit("linter", run="run")


@pytest.mark.parametrize("odd", [None, True, [1], 10**400], ids=["null", "true", "list", "401 digits"])
def test_settings_of_another_kind_are_read_over(odd: Any, root: Path) -> None:
    """What another program writes below `algorithm` or `optimiser` is its own business: no page may fail by it."""
    part_of(SAMPLE_RUNS / "mismatch-grpo-seed0", root / "run", range(6))
    path = root / "run" / MANIFEST_NAME
    sound = json.loads(path.read_text())
    parts, parameters = (dict.fromkeys(sound["algorithm"][name], odd) for name in ("parts", "parameters"))
    tables = ("algorithm", "schedule", "sampler", "model", "task", "optimiser")
    for each in (
        {"algorithm": sound["algorithm"] | {"parts": parts, "parameters": parameters}},
        {name: dict.fromkeys(sound[name], odd) for name in tables},
    ):
        path.write_text(json.dumps(sound | each))
        opened = open_folder(root / "run")
        assert run_report(opened, pages=["frameworks"]).sections
        visit("overview", run="run")
