"""Is the difference real? What page and report say of several runs: their settings, and which is better."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.formats import metric_value
from ratioscope.dashboard.sections.compare import tables
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.curves import looks, multiples, span
from ratioscope.dashboard.sections.compare.dots import dots
from ratioscope.dashboard.sections.compare.pair import pair_difference
from ratioscope.dashboard.sections.model import Block, Section, Table
from ratioscope.dashboard.sections.subject import Subject

QUESTION = "Is the difference real?"
# Whose extremes the section on the course opens with.
_ANSWER = (STALENESS, "clip_fraction")
# Beside the metric that is compared: what moves, what is thrown away, what it costs.
_OTHERS = ("reward", STALENESS, UPDATE_METRIC, "clip_fraction", "khat_token", "ess_token", "entropy", "response_length")
# Of more runs a table of their settings is wider than paper.
_MOST_COLUMNS = 6


def member_of(subject: Subject) -> Member:
    """The run as the comparison takes it."""
    return Member(subject.opened.run_id, subject.opened.run, subject.summary, subject.opened.limits)


def comparison_sections(
    comparison: Comparison, subjects: Sequence[Subject], *, brief: bool = False
) -> Iterator[Section]:
    """The sections that stand before those of the single runs.

    Args:
        brief: without the settings that belong to no algorithm, and with the two courses that answers are about.
    """
    yield _standing(comparison)
    yield _runs(comparison, subjects, brief=brief)
    yield _course(comparison, _ANSWER if brief else _OTHERS)


def _runs(comparison: Comparison, subjects: Sequence[Subject], *, brief: bool) -> Section:
    """What was run, and how the runs differ."""
    groups = comparison.settings
    blocks: list[Block] = [_table_of_runs(comparison, subjects), *tables.parts(groups)]
    if len(subjects) <= _MOST_COLUMNS and not brief:
        blocks += tables.other_settings([member_of(subject) for subject in subjects])
    seeds = sorted({len({member.unit for member in group.members}) for group in groups})
    schedules = len({group.schedule for group in groups})
    answer = (
        f"{len(subjects)} runs of {len(groups)} settings, {' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])} "
        f"each, under {schedules} schedule{'s' * (schedules != 1)}."
    )
    return Section("runs", "What was compared", "What was run, and how do the runs differ?", answer, tuple(blocks))


def _table_of_runs(comparison: Comparison, subjects: Sequence[Subject]) -> Table:
    named = zip(comparison.labels, comparison.settings, strict=True)
    setting_of = {member.run_id: label for label, setting in named for member in setting.members}
    rows = []
    for subject in subjects:
        opened, worst = subject.opened, next(iter(subject.opened.findings), None)
        seed = opened.run.manifest.seed
        rows.append(
            (opened.run_id, setting_of[opened.run_id], "–" if seed is None else str(seed),
             f"{len(subject.summary.values):,}", f"{subject.summary.values['n_tokens'].sum():,.0f}", opened.run.status,
             f"{worst.severity.word}: {rule_words(worst.rule)}" if worst else "none")
        )  # fmt: skip
    return Table("Runs", ("Run", "Setting", "Seed", "Steps", "Tokens", "Status", "Worst finding"), tuple(rows))


def _standing(comparison: Comparison) -> Section:
    """The ends, the ranking, the curves; who leads is the report's verdict."""
    found, blocks = comparison.standing, list[Block]()
    if found.rows:
        blocks += [dots(comparison, most=len(found.rows) + len(found.groups)), tables.ranking(comparison)]
        blocks += [multiples(comparison, span(comparison))]
        if len(comparison.settings) == 2 and found.ranked:
            blocks += pair_difference(comparison, found.contrasts[0].b, found.contrasts[0].a)
    return Section("standing", QUESTION, QUESTION, "", tuple(blocks))


def _course(comparison: Comparison, keys: Sequence[str]) -> Section:
    """The other metrics, panel by panel on equal axes."""
    blocks, sentences, styled = [], [], looks(comparison, Look())
    for key in keys:
        known = {place: runs for place, setting in enumerate(comparison.settings) if (runs := _with(setting, key))}
        if key == comparison.measure.metric or not known:
            continue
        said = _extremes(key, [(comparison.labels[place], runs) for place, runs in known.items()])
        kept = Comparison([comparison.settings[place] for place in known], replace(comparison.measure, metric=key))
        shown = {at: styled[place] for at, place in enumerate(known) if place in styled}
        blocks.append(multiples(kept, said, shown))
        if key in _ANSWER:
            sentences.append(said)
    answer = " ".join(sentences)
    return Section("course", "How the runs went", "What changed, what was clipped, and what did it cost?", answer,
                   tuple(blocks))  # fmt: skip


def _extremes(key: str, known: Sequence[tuple[str, Sequence[Member]]]) -> str:
    """The worst value of the most and of the least extreme setting: the lowest of what should stay high."""
    falls = CATALOGUE[key].better == "higher" and key != "reward"
    edge = np.nanmin if falls else np.nanmax
    found = [(float(edge([edge(member.summary.values[key]) for member in runs])), label) for label, runs in known]
    (first, one), (last, other) = min(found), max(found)
    if not falls:
        (first, one), (last, other) = (last, other), (first, one)
    verb = "falls to" if falls else "reaches at most"
    said = f"{CATALOGUE[key].title} {verb} {metric_value(key, first)} in {one}"
    if one == other:
        return f"{said}."
    return f"{said}, and {'is 0 throughout' if last == 0 and not falls else metric_value(key, last)} in {other}."


def _with(setting: Setting, key: str) -> list[Member]:
    """The runs of a setting that have the metric."""
    return [member for member in setting.members if member.summary.values[key].notna().any()]
