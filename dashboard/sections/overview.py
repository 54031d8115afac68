"""The run at a glance: whether it learns, and how off-policy it is."""

from dataclasses import replace
from functools import partial
from math import isfinite, nan

from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.diagnosis.why import mark_words, no_sign, speaking, why
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.findings.facts import STALENESS
from ratioscope.analysis.findings.fall import LEVEL_WORDS, Fall, finite_values
from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.overview.verdict import level_low
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures.series import Limit, learning_curves
from ratioscope.dashboard.figures.story import Panel, story
from ratioscope.dashboard.sections import learning
from ratioscope.dashboard.sections.model import Chart, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, chart, with_intervals

_MOST_PANELS = 4
_HEIGHTS = {1: 260, 2: 380, 3: 490, 4: 560}
"""In pixels, by the number of panels."""


def answer(subject: Subject) -> str:
    """What is fine, or how the reward went."""
    return subject.verdict.fine or course(subject.summary, "reward")


def charts(subject: Subject) -> list[Chart]:
    """What a run is judged by first; the figures have keys of their own, because Learning has the same ones."""
    if subject.verdict.lead is not None and (picture := told(subject)):
        return picture
    return [replace(chart, key=f"overview-{chart.key}") for chart in learning.first(subject)]


def told(subject: Subject) -> list[Chart]:
    """What a run is for, its staleness, and what the finding and its likely cause are about, in one picture; none where
    nothing of it is logged."""
    verdict, limits = subject.verdict, subject.opened.limits
    low = level_low(subject.opened.summary, limits, verdict.lead) if verdict.lead else None
    level = (low.metric,) if low else tuple(learning_curves(subject.shown)[0][1])
    best = "before" if isinstance(low, Fall) else "best"  # it may have been better later on
    drawn = [
        Panel(level, (Limit(low.best, best), Limit(low.limit, "low &lt;")) if low else ()),
        Panel((STALENESS,), (Limit(limits.staleness, "limit"),)),
    ]
    concerned = [finding for finding in (verdict.lead, verdict.cause) if finding is not None]
    limit_of = {finding.metric: finding.limit for finding in concerned}
    for key in dict.fromkeys(filter(None, (*limit_of, verdict.lead.cause if verdict.lead else ""))):
        if not any(key in panel.keys for panel in drawn):
            known = isfinite(limit_of.get(key, nan))
            drawn.append(Panel((key,), (Limit(limit_of[key], "limit"),) if known else ()))
    drawn = [replace(panel, keys=tuple(keys)) for panel in drawn if (keys := subject.known(panel.keys))][:_MOST_PANELS]
    if not drawn:
        return []
    keys = [key for panel in drawn for key in panel.keys]
    marked = f"low {LEVEL_WORDS[low.metric]}" if low else rule_words(verdict.lead.rule) if verdict.lead else ""
    finding = verdict.lead
    if finding and isinstance(low, Fall) and low.window == 1:  # all values that are so low, not only those of the fall
        values = finite_values(subject.opened.summary, low.metric).loc[low.best_step :]
        finding = replace(finding, steps=tuple(map(int, values.index[values < low.limit])))
    return [chart(
        subject.mode, "story", "Evidence",
        partial(story, drawn, subject.shown, finding=finding, marked=marked, height=_HEIGHTS[len(drawn)],
                steps=subject.steps, smoothing=subject.smoothing),
        course(subject.summary, *keys), with_intervals(subject.shown, keys), keys, by_step=True,
    )]  # fmt: skip


def causes(subject: Subject) -> list[Table]:
    """For each family the causes that a sign speaks for, against their signs."""
    found = subject.compute(why, *subject.opened.checked.steps, subject.opened.limits)
    return [
        Table(
            capital(family["family"]),
            ("Sign", "Cause", "Named"),
            tuple(
                (mark_words(mark), each["words"], "yes" if each["stands"] else "no")
                for each in speaking(family["causes"])
                for mark in each["marks"]
            ),
            no_sign(len(family["causes"]), len(speaking(family["causes"]))),
            sentences=True,
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
    limits=("reward_fall", "epsilon_stale", "epsilon"),
    reported=CATALOGUE.keys(),
    report=[charts],
)  # fmt: skip
