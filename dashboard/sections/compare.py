"""What a report says of several runs together: how they were set, who is better, what one change does."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import isfinite

import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.compare import (
    Member,
    Setting,
    SingleChange,
    Standing,
    band_words,
    component_differences,
    curves,
    difference_over,
    differences,
    labels,
    single_changes,
    smoothed,
    standing,
)
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.formats import number, plain, share
from ratioscope.dashboard.sections.model import Block, Chart, Section, Table
from ratioscope.dashboard.sections.subject import Subject, chart
from ratioscope.dashboard.theme import LIGHT, Mode

# As S3 draws its curves.
_WINDOW = 3
# Whose extremes the section opens with.
_ANSWER = ("s_k", "clip_fraction")
# Beside the metric that is compared: what moves, what is thrown away, what it costs.
_CONTEST = ("Schedule", "Best", "Other", "Difference", "95 %", "P(improvement)", "Verdict", "Why, or what to do")
_CHANGES = ("Change", "Schedule", "Before, after", "Ends", "95 %", "Speed", "Fall", "Verdict")
_OTHERS = ("reward", "s_k", "u_k", "clip_fraction", "khat_token", "ess_token", "entropy", "response_length")


def member_of(subject: Subject) -> Member:
    """The run as the comparison takes it."""
    return Member(subject.opened.run_id, subject.opened.run, subject.summary, subject.opened.limits)


def comparison_sections(groups: Sequence[Setting], subjects: Sequence[Subject], metric: str) -> Iterator[Section]:
    """The sections that stand before those of the single runs."""
    found = standing(groups, metric)
    yield _runs(groups, subjects)
    yield _standing(groups, found, metric)
    yield _others(groups, metric)


def _runs(groups: Sequence[Setting], subjects: Sequence[Subject]) -> Section:
    """What was run, and in what it differs."""
    called = dict(zip((id(group) for group in groups), labels(groups), strict=True))
    of = {member.run_id: called[id(group)] for group in groups for member in group.members}
    rows = []
    for subject in subjects:
        opened, worst = subject.opened, next(iter(subject.opened.findings), None)
        seed = opened.run.manifest.seed
        rows.append(
            (opened.run_id, of[opened.run_id], "–" if seed is None else str(seed), f"{len(subject.summary.values):,}",
             f"{subject.summary.values['n_tokens'].sum():,.0f}", opened.run.status,
             f"{worst.severity.word}: {worst.rule.replace('_', ' ')}" if worst else "none")
        )  # fmt: skip
    blocks: list[Block] = [
        Table("Runs", ("Run", "Setting", "Seed", "Steps", "Tokens", "Status", "Worst finding"), tuple(rows))
    ]
    variants = {group.variant: group for group in reversed(groups)}
    parts = component_differences(list(variants.values()))
    if len(parts):
        blocks.append(_frame("Parts of the algorithms that differ", "Component", parts, list(variants)))
    told = differences([member_of(subject) for subject in subjects])
    told = told[[not str(key).startswith("algorithm.") for key in told.index]]
    if len(told) and len(subjects) <= 6:
        blocks.append(_frame("Other settings that differ", "Setting", told))
    seeds = sorted({len({member.unit for member in group.members}) for group in groups})
    answer = f"{len(subjects)} runs of {len(groups)} settings, {' or '.join(map(str, seeds))} seed"
    answer += f"{'s' * (seeds != [1])} each, under {len({group.schedule for group in groups})} schedule"
    answer += f"{'s' * (len({group.schedule for group in groups}) != 1)}."
    return Section("runs", "What was compared", "What was run, and in what do the runs differ?", answer, tuple(blocks))


def _frame(title: str, first: str, frame: pd.DataFrame, called: Sequence[str] = ()) -> Table:
    """A table of the analysis, its columns called otherwise where names are given."""
    rows = [(str(name), *map(str, row)) for name, row in zip(frame.index, frame.to_numpy(), strict=True)]
    return Table(title, (first, *(called or map(str, frame.columns))), tuple(rows))


def _standing(groups: Sequence[Setting], found: Standing, metric: str) -> Section:
    """The curves, the ranking, the best against the others."""
    title = CATALOGUE[metric].title
    answer = " ".join(found.sentences)
    blocks: list[Block] = []
    if len(found.without) < len(groups):
        blocks += [
            _multiples(groups, metric, f"{title}, mean over seeds", _span(found, metric)),
            _ranking(found, metric),
        ]
        if rows := _contests(found, metric):
            blocks.append(Table("The best of each schedule against the others", _CONTEST, rows, found.caveat))
        if found.contests and len(groups) == 2:
            blocks += _difference(groups, found, metric)
        if changes := single_changes(groups, metric):
            rows = tuple(row for change in changes for row in _changed(change, metric))
            note = (
                "After minus before, at the end of the runs; speed: of the mean over the first half; fall: of the fall "
                "from the best running mean to the end. Alike: the interval lies within "
                f"±{number(metric, changes[0].margin)}."
            )
            blocks.append(Table("What one change of an algorithm does", _CHANGES, rows, note))
    return Section("standing", "Is the difference real?", "Is the difference real?", answer, tuple(blocks))


def _span(found: Standing, metric: str) -> str:
    """From where to where the settings end."""
    known = found.ranking.dropna(subset=["mean"]).sort_values("mean")
    (low, least), (high, most) = (
        (number(metric, float(row["mean"])), f"{row['setting']}, {row['schedule']}")
        for row in (known.iloc[0], known.iloc[-1])
    )
    if len(known) == 1:
        return f"{most} ends with {high}."
    return f"The settings end between {low} ({least}) and {high} ({most})."


def _ranking(found: Standing, metric: str) -> Table:
    rows = []
    for row in found.ranking.to_dict("records"):
        mean = number(metric, row["mean"])
        interval = _interval(metric, row["low"], row["high"]) if row["seeds"] > 1 else "one seed"
        best = share(row["best"]) if isfinite(row["best"]) else "–"
        rows.append((str(row["setting"]), str(row["schedule"]), str(row["seeds"]), mean, interval,
                     number(metric, row["iqm"]), best))  # fmt: skip
    head = ("Setting", "Schedule", "Seeds", "Mean", "95 % over seeds", "IQM", "P(best)")
    return Table(f"Ranking by {CATALOGUE[metric].title.lower()} at the end", head, tuple(rows), found.where)


def _contests(found: Standing, metric: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (contest.schedule or "all", answer.a, answer.b, number(metric, answer.difference.value),
         _interval(metric, *answer.difference.interval), plain(answer.probability_of_improvement),
         {"a": "the best is better", "b": "the other is better", None: "cannot tell"}[answer.better], answer.reason)
        for contest in found.contests
        for answer in contest.answers
    )  # fmt: skip


def _changed(change: SingleChange, metric: str) -> Iterator[tuple[str, ...]]:
    """A row for each schedule, and one for all of them together where there are several."""
    for place in change.schedules:
        yield (change.what, place.schedule, f"{change.of}, {change.to}", number(metric, place.end.value),
               _interval(metric, *place.end.interval), number(metric, place.speed.value),
               number(metric, place.fall.value), place.verdict)  # fmt: skip
    if len(change.schedules) > 1:
        yield (change.what, f"all, {change.end.basis}", f"{change.of}, {change.to}", number(metric, change.end.value),
               _interval(metric, *change.end.interval), number(metric, change.speed.value),
               number(metric, change.fall.value), change.verdict)  # fmt: skip


def _difference(groups: Sequence[Setting], found: Standing, metric: str) -> list[Block]:
    """A minus B along the steps, of two settings."""
    first, second = found.contests[0].pairs[0]
    pair = groups[first], groups[second]
    running_a, running_b = smoothed(pair, metric, _WINDOW)
    table, _ = difference_over(running_a, running_b, metric, "step")
    if not len(table):
        return []
    sentence = f"{found.contests[0].answers[0].sentence}."
    title = f"{CATALOGUE[metric].title}: {pair[0].variant} minus {pair[1].variant}"
    return [chart(LIGHT, "difference", title, partial(figures.difference, table, metric), sentence, table, (metric,))]


def _others(groups: Sequence[Setting], metric: str) -> Section:
    """The other metrics, panel by panel on equal axes."""
    blocks, sentences = [], []
    for key in _OTHERS:
        known = [(label, group) for label, group in zip(labels(groups), groups, strict=True) if _with(group, key)]
        if key == metric or not known:
            continue
        peaks = sorted(
            (max(float(member.summary.values[key].max()) for member in _with(group, key)), label)
            for label, group in known
        )
        (low, least), (high, most) = peaks[0], peaks[-1]
        said = f"{CATALOGUE[key].title} goes up to {number(key, high)} in {most}"
        said += "." if most == least else f", and to {number(key, low)} at most in {least}."
        blocks.append(_multiples([group for _, group in known], key, CATALOGUE[key].title, said))
        if key in _ANSWER:
            sentences.append(said)
    answer = " ".join(sentences)
    return Section("course", "How the runs went", "What moved, what was thrown away, what did it cost?", answer,
                   tuple(blocks))  # fmt: skip


def _with(group: Setting, key: str) -> list[Member]:
    """The runs of a setting that have the metric."""
    return [member for member in group.members if member.summary.values[key].notna().any()]


def _multiples(groups: Sequence[Setting], metric: str, title: str, takeaway: str) -> Chart:
    """A panel a schedule, equal axes."""
    facets: dict[str, list[Setting]] = {}
    for group in groups:
        facets.setdefault(group.schedule, []).append(group)

    def draw(mode: Mode) -> go.Figure:
        return figures.small_multiples(facets, metric, mode, smoothing=_WINDOW)

    found = curves(list(groups), metric, window=_WINDOW)
    frames = [
        curve.frame.assign(setting=label).reset_index() for label, curve in zip(labels(groups), found, strict=True)
    ]
    seeds = sorted({int(curve.frame["seeds"].max()) for curve in found if len(curve.frame)})
    bands = "; ".join(dict.fromkeys(map(band_words, seeds)))
    said = f"{takeaway} Running mean over {_WINDOW} logged values; bands: {bands}."
    data = pd.concat(frames, ignore_index=True)
    return chart(LIGHT, f"compare-{metric}", title, draw, said, data, (metric,))


def _interval(metric: str, low: float, high: float) -> str:
    return f"{number(metric, low)} to {number(metric, high)}" if isfinite(low) else "none"
