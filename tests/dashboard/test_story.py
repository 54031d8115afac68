"""The picture of a run's story: panels over the same steps, the finding shaded, what is small on a logarithmic axis."""

from itertools import pairwise

import numpy as np
import plotly.io
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.fall import setback_of
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.story import Panel, story
from ratioscope.dashboard.sections import overview
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.theme import LIGHT
from tests.making.samples import SAMPLE_RUNS

SET_BACK = "sync_interval20-reinforce-seed0"


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject(open_folder(SAMPLE_RUNS / SET_BACK))


def test_panels_share_the_steps_and_lie_below_each_other(subject: Subject) -> None:
    panels = [Panel(("reward", "eval_accuracy")), Panel(("s_k_bounded",)), Panel(("ratio_min",))]
    fig = story(panels, subject.summary, LIGHT, finding=subject.verdict.lead)
    layout = fig.to_plotly_json()["layout"]
    ends = [tuple(layout[name]["domain"]) for name in ("yaxis", "yaxis4", "yaxis7")]
    assert all(0 <= low < high <= 1 for low, high in ends) and ends == sorted(ends, reverse=True)
    assert all(above[0] >= below[1] for above, below in pairwise(ends))
    assert {trace.xaxis for trace in fig.data} <= {None, "x"} and "xaxis2" not in layout
    drawn = {trace.meta: trace.yaxis for trace in fig.data if trace.meta}
    assert drawn == {"reward": "y", "eval_accuracy": "y", "s_k_bounded": "y4", "ratio_min": "y7"}
    assert layout["yaxis7"]["type"] == "log" and "type" not in layout["yaxis4"]
    assert layout["hoversubplots"] == "axis"


def test_the_smallest_ratio_is_drawn_however_small_it_is(subject: Subject) -> None:
    """On a logarithmic axis values below 1e-9 were left out as rounding: of a ratio they are the finding."""
    fig = story([Panel(("reward",)), Panel(("ratio_min",))], subject.summary, LIGHT)
    (line,) = (trace for trace in fig.data if trace.meta == "ratio_min")
    smallest = float(subject.summary.values["ratio_min"].min())
    assert smallest < 1e-9
    assert np.nanmin(np.asarray(line.y, float)) == pytest.approx(smallest, rel=1e-6)


def test_every_stretch_of_the_finding_is_shaded(subject: Subject) -> None:
    lead = subject.verdict.lead
    assert lead is not None and lead.rule == "reward_setback"
    fig = story([Panel((lead.metric,)), Panel(("s_k_bounded",))], subject.summary, LIGHT, finding=lead)
    shades = [shape for shape in fig.layout.shapes if shape.type == "rect"]
    stretches = {(34.5, 80.5), (94.5, 105.5), (119.5, 125.5), (144.5, 145.5)}
    assert {(shade.x0, shade.x1) for shade in shades} == stretches
    assert min(lead.steps) == 35 and max(lead.steps) == 145
    level, staleness = sorted({float(shade.fillcolor.rpartition(",")[2].rstrip(")")) for shade in shades})[::-1]
    assert level > 2 * staleness  # where it falls, and where one looks for why
    above, below = sorted({(shade.y0, shade.y1) for shade in shades})[::-1]
    assert 1 > above[1] > above[0] > below[1] > below[0] == 0


def test_the_overview_of_a_sick_run_tells_level_staleness_and_cause(subject: Subject) -> None:
    (told,) = overview.told(subject)
    assert told.metrics == ("eval_accuracy", "s_k_bounded", "ratio_min")
    assert [chart.key for chart in overview.charts(subject)] == ["story"]


def test_the_picture_says_at_its_marks_what_they_are(subject: Subject) -> None:
    """It said "shaded: the finding", shaded some of the low values and not others, and had dots without a legend."""
    (told,) = overview.told(subject)
    figure = plotly.io.from_json(told.figure)
    accuracy = subject.summary.values["eval_accuracy"].dropna()
    fall = setback_of(subject.summary, subject.opened.limits)
    assert fall is not None
    low = accuracy.index[(accuracy < fall.limit) & (accuracy.index > fall.best_step)]
    shaded = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert {step for step in accuracy.index if any(first < step < last for first, last in shaded)} == {*low}
    assert figure.layout.xaxis.title.text == "step (band: 95%; shaded: low accuracy)"
    assert "concerned" not in {trace.name for trace in figure.data}
    named = {str(note.text) for note in figure.layout.annotations}
    assert {f"before {fall.best:.1%}", f"low &lt; {fall.limit:.1%}"} <= named
    assert figure.layout.yaxis.tickformat == "~p"


def test_a_quiet_run_begins_with_its_learning_curve() -> None:
    quiet = Subject(open_folder(SAMPLE_RUNS / "sync_interval20-grpo-seed0"))
    assert overview.charts(quiet)[0].metrics[0] == "reward"


@pytest.mark.parametrize("heights", [(1.0,), (1.5, 1.0), (1.5, 1.0, 1.0, 1.0)])
def test_domains_fill_the_figure(heights: tuple[float, ...]) -> None:
    found = base.domains(heights, 0.09)
    assert found[0][1] == pytest.approx(0.91) and found[-1][0] == pytest.approx(0, abs=1e-9)
    assert [high - low for low, high in found] == pytest.approx(
        [height / sum(heights) * (1 - 0.09 * len(heights)) for height in heights]
    )
