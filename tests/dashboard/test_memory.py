"""What the server keeps of a run that is being written: its latest states, however many there were."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
import streamlit as st

from ratioscope import RunRecorder
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.store import Run, discover, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.blocks import PageSubject
from ratioscope.dashboard.figures.kept import over_steps_json
from ratioscope.dashboard.sections.compare.comparison import ComparedMeasure
from ratioscope.dashboard.views.compare import data
from tests.making.runs import random_step

STATES, KEPT = 4, 2


@pytest.fixture
def states(tmp_path: Path) -> Iterator[Iterator[Path]]:
    """The folder of a run, once for each step that is written to it."""
    st.cache_resource.clear()
    rng = np.random.default_rng(0)

    def written() -> Iterator[Path]:
        with RunRecorder(tmp_path / "run", algorithm={"name": "grpo"}, seed=0) as recorder:
            for number in range(STATES):
                step = random_step(rng, number)
                recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
                recorder.flush()
                yield tmp_path / "run"

    yield written()
    st.cache_resource.clear()


def alive(seen: list["ref[object]"]) -> int:
    gc.collect()
    return sum(each() is not None for each in seen)


def test_charts_keep_no_state_of_a_run(states: Iterator[Path]) -> None:
    seen: list[ref[object]] = []
    for folder in states:
        summary = summarise(open_run(folder))
        drawn = over_steps_json(summary, ["s_k_bounded"], theme.LIGHT)
        assert over_steps_json(summary, ["s_k_bounded"], theme.LIGHT) is drawn
        seen.append(ref(summary))
        del summary
    assert len(seen) == STATES
    assert alive(seen) == 0


def test_results_of_a_page_are_of_the_latest_states(states: Iterator[Path]) -> None:
    seen: list[ref[object]] = []

    def result(run: Run, first: int, last: int) -> set[int]:
        found = {first, run.last_step}
        seen.append(ref(found))
        return found

    for number, folder in enumerate(states):
        subject = PageSubject(open_folder(folder))
        steps = subject.window().steps  # which are others in each state
        assert subject.compute(result, *steps) == {0, number}
        assert subject.compute(result, *steps) is subject.compute(result, *steps)
    assert len(seen) == STATES
    assert alive(seen) <= KEPT


def test_comparisons_keep_the_latest_states(states: Iterator[Path]) -> None:
    seen: list[ref[object]] = []
    for number, folder in enumerate(states):
        (listed,) = discover([folder.parent])
        member = data.member(listed)
        assert member.summary.last_step == number
        assert data.member(listed) is member
        compared, _ = data.comparison([member], ComparedMeasure("reward"))
        assert compared.compute(last_steps) == [number]
        seen.append(ref(member.summary))
        del member, compared
    assert len(seen) == STATES
    assert alive(seen) <= KEPT


def last_steps(settings: Sequence[Setting]) -> list[int]:
    return [member.summary.last_step for setting in settings for member in setting.members]


def test_a_viewer_with_many_ranges_of_steps_has_the_last_ones_kept(states: Iterator[Path]) -> None:
    *_, folder = states
    subject, made = PageSubject(open_folder(folder)), []

    def result(_: Run, first: int) -> int:
        made.append(first)
        return first

    for first in (*range(40), 39, 0):
        assert subject.compute(result, first) == first
    assert made == [*range(40), 0]
