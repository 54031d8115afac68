"""Every injected fault is found and blamed on what is wrong; the log that they are made of is healthy."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from ratioscope.analysis.diagnosis import Severity, diagnose
from ratioscope.analysis.linter import Finding, lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.analysis.linter.damaging import Tables, read, write
from tests.analysis.linter.injected import INJECTED, RUNS, Injected
from tests.analysis.signs import unfounded
from tests.making.training import small, train


class Source(NamedTuple):
    """A log of the trainer, in files and in frames."""

    folder: Path
    tables: Tables


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Source]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folders = {name: tmp_path_factory.mktemp("faults") / "run" for name in RUNS}
    for name, overrides in RUNS.items():
        train(small(*overrides), folders[name])
    yield {name: Source(folder, read(folder)) for name, folder in folders.items()}
    torch.set_num_threads(before)


def test_the_log_that_is_damaged_is_healthy(sources: dict[str, Source], tmp_path: Path) -> None:
    source = sources["base"]
    remarks = lint(open_run(write(source.tables, source.folder, tmp_path / "run", {})))
    assert [remark for remark in remarks if remark.is_problem] == []


def test_there_are_as_many_faults_as_asked_for() -> None:
    assert len(INJECTED) >= 46
    assert all(fault.how and fault.found and fault.blamed for fault in INJECTED.values())
    assert sum(bool(fault.missed) for fault in INJECTED.values()) <= 1


@pytest.mark.parametrize("name", INJECTED)
def test_a_fault_is_found_and_blamed(sources: dict[str, Source], tmp_path: Path, name: str) -> None:
    fault = INJECTED[name]
    found = _found(fault, sources[fault.run], tmp_path / "run")
    assert found == (not fault.missed), fault.how


def _found(fault: Injected, source: Source, folder: Path) -> bool:
    """Whether the first thing that is said of the log names the fault and what is wrong."""
    tables = {table: frame.copy() for table, frame in source.tables.items()}
    fault.damage(tables)
    run = open_run(write(tables, source.folder, folder, fault.manifest))
    remarks = lint(run)
    assert unfounded(remarks, run, remarks) == []
    said = [remark for remark in remarks if remark.severity and remark.severity >= fault.least]
    first_says = said and (said[0].rule in fault.found or fault.least is Severity.NOTICE)
    if first_says and any(_blames(remark, fault) for remark in said):
        return True
    findings = diagnose(summarise(run), run, remarks=remarks)
    return bool(findings) and findings[0].rule in fault.found and findings[0].severity >= fault.least


def _blames(remark: Finding, fault: Injected) -> bool:
    return remark.rule in fault.found and bool({*remark.columns} & {*fault.blamed})
