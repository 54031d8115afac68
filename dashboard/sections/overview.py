"""The run at a glance: whether it learns, and how off-policy it is."""

from dataclasses import replace

from ratioscope.analysis.findings.course import course
from ratioscope.dashboard.sections import learning
from ratioscope.dashboard.sections.model import Section
from ratioscope.dashboard.sections.subject import Subject

TITLE = "At a glance"


def section(subject: Subject) -> Section:
    """What a run is judged by first; the figures have keys of their own, because Learning has the same ones."""
    charts = tuple(replace(chart, key=f"overview-{chart.key}") for chart in learning.first(subject))
    answer = subject.verdict.fine or course(subject.summary, "reward")
    return Section("overview", TITLE, "Does it learn, and how off-policy is it?", answer, charts)
