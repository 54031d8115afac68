"""The run at a glance: whether it learns, and how off-policy it is."""

from dataclasses import replace

from ratioscope.analysis.diagnosis.why import mark_words, no_sign, speaking, why
from ratioscope.analysis.findings.course import course
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.sections import learning
from ratioscope.dashboard.sections.model import Chart, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject


def answer(subject: Subject) -> str:
    """What is fine, or how the reward went."""
    return subject.verdict.fine or course(subject.summary, "reward")


def charts(subject: Subject) -> list[Chart]:
    """What a run is judged by first; the figures have keys of their own, because Learning has the same ones."""
    return [replace(chart, key=f"overview-{chart.key}") for chart in learning.first(subject)]


def causes(subject: Subject) -> list[Table]:
    """For each family the causes that a sign speaks for, against their signs."""
    found = subject.compute(why, *subject.opened.checked.steps, subject.opened.limits)
    return [
        Table(
            family["family"][0].upper() + family["family"][1:],
            ("Sign", "Cause", "Named"),
            tuple(
                (mark_words(mark), each["words"], "yes" if each["stands"] else "no")
                for each in speaking(family["causes"])
                for mark in each["marks"]
            ),
            no_sign(len(family["causes"]), len(speaking(family["causes"]))),
        )
        for family in found
    ]


PAGE = Page(
    "overview", "Overview", "Does it learn, how off-policy is it, can its log be trusted?", 10,
    ":material/monitor_heart:", own=True,
    heading=("At a glance", "Does it learn, and how off-policy is it?"),
    asks=("reward", "staleness", "update", "clipping", "entropy"),
    answer=answer,
    tiles=("reward", "eval_accuracy", "s_k_bounded", "u_k"),
    reported=CATALOGUE.keys(),
    report=[charts],
)  # fmt: skip
