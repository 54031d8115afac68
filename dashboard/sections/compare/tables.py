"""The tables of a comparison: how algorithms and runs differ, which is best, what one change does."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from ratioscope.analysis.compare import (
    Member,
    Setting,
    SingleChange,
    components,
    differences,
    margin_words,
    single_changes,
)
from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.formats import interval, metric_value, plain_number, share
from ratioscope.dashboard.sections.compare import pair
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.dashboard.sections.model import Paragraph, Piece, Table

# Keys of a configuration that `parts` shows.
_OF_PARTS = ("algorithm.parts.", "algorithm.parameters.")


def parts(settings: Sequence[Setting], *, alike: bool = False) -> list[Piece]:
    """The parts and parameters in which the algorithms differ, one column per variant; nothing for a single one.

    Args:
        alike: also those in which they do not.
    """
    variants = {setting.variant: setting for setting in reversed(settings)}
    variants = {name: variants[name] for name in dict.fromkeys(setting.variant for setting in settings)}
    table = components(list(variants.values()))
    if len(variants) < 2 or not len(table):
        return []
    rows = [(str(name), *map(str, row)) for name, row in zip(table.index, table.to_numpy(), strict=True)]
    differs = [len(set(row[1:])) > 1 for row in rows]
    if alike:
        marked = [(row[0], "yes" if here else "", *row[1:]) for row, here in zip(rows, differs, strict=True)]
        return [Table("Parts of the algorithms", ("Component", "Differs", *variants), tuple(marked))]
    if not any(differs):
        return [Paragraph("The algorithms have the same parts and parameters.")]
    rows = [row for row, here in zip(rows, differs, strict=True) if here]
    return [Table("Parts of the algorithms that differ", ("Component", *variants), tuple(rows))]


def other_settings(members: Sequence[Member]) -> list[Piece]:
    """Settings that differ, other than the parts of the algorithm; one column per run."""
    table = differences(members)
    if not len(table):
        return [Paragraph("The runs differ at most in their seed.")]
    rows = [(str(name), *map(str, row)) for name, row in zip(table.index, table.to_numpy(), strict=True)]
    rows = [row for row in rows if not row[0].startswith(_OF_PARTS)]
    return [Table("Other settings that differ", ("Setting", *map(str, table.columns)), tuple(rows))] if rows else []


def ranking(comparison: Comparison) -> Table:
    """The settings, best first; columns that say nothing here are left out."""
    metric, found = comparison.measure.metric, comparison.standing
    explained = {
        "Task": "",
        "Setting": "",
        "Schedule": "",
        "Group": "Settings of one schedule that share a letter do not differ significantly; all pairs judged together.",
        "Seeds": "Seeds with a value.",
        "Mean": "Over the seeds.",
        "95% of these runs": "The noise of the prompts; other seeds may differ by more.",
        "95% over seeds": "t interval of the mean.",
        "IQM": "Mean of the middle half of the seeds.",
        "Band of the IQM": "Bootstrap, from 4 seeds on.",
        "P(best)": "Probability that no other setting has a better mean, from 4 seeds on.",
    }
    letters = {row.place: row.letters for row in comparison.best.rows}
    rows = []
    for place, row in zip(map(int, found.ranking.index), found.ranking.to_dict("records"), strict=True):
        low, high = found.noise[place].interval
        many = row["seeds"] >= FEWEST_RESAMPLED
        middle = _cells(metric, row["iqm"], row["iqm_low"], row["iqm_high"]) if many else ("", "")
        rows.append(
            (row["task"], str(row["setting"]), str(row["schedule"]), letters.get(place, ""), str(row["seeds"]),
             metric_value(metric, row["mean"], *((low, high) if isfinite(low) else (row["low"], row["high"]))),
             interval(metric, low, high) if isfinite(low) else "",
             _interval(metric, row["low"], row["high"]) if row["seeds"] > 1 else "one seed",
             *middle, share(row["best"]) if isfinite(row["best"]) else "")
        )  # fmt: skip
    several = max((len(contest.here.order) for contest in found.contests), default=0) > 2
    kept = [
        column
        for column, head in enumerate(explained)
        if any(row[column] for row in rows) and (head != "Group" or several)
    ]
    shown = tuple(tuple(row[column] or "–" for column in kept) for row in rows)
    heads = tuple(head for column, head in enumerate(explained) if column in kept)
    title = f"{'Where the runs end' if len(set(found.tasks)) > 1 else 'Ranking'}: {CATALOGUE[metric].title} at the end"
    return Table(title, heads, shown, "", _helps({head: explained[head] for head in heads}))


def contests(comparison: Comparison) -> list[Table]:
    """One row for each setting but the best of its schedule, against the best; no table where there is none."""
    metric, found = comparison.measure.metric, comparison.standing
    explained = {
        "Schedule": "",
        "Best": "",
        "Other": "",
        "Difference": "Mean of the best minus mean of the other.",
        "95% of these runs": "The noise of the prompts, this pair by itself.",
        "These runs": "Whether they differ; all pairs are judged together (Holm).",
        "95% over seeds": "t interval, paired where both share seeds; this pair by itself.",
        "Best ahead in": "Of the pairs of seeds; of all pairs of runs where seeds are not shared.",
        "P(improvement)": "Probability that a run of the best ends better than a run of the other, from 4 seeds on.",
        "Other seeds": "Whether they would repeat it; all pairs are judged together (Holm).",
        "Why, or what to do": "",
    }
    rows = []
    for contest in found.contests:
        for places, answer in zip(contest.pairs, contest.answers, strict=True):
            over = answer.difference
            wins = over.wins[1 if CATALOGUE[metric].better == "lower" else 0]
            repeats = "differ" if places in contest.with_other_seeds.apart else "unknown"
            reason = answer.reason if repeats == "unknown" else ""
            if repeats == "unknown" and answer.better:
                reason = f"not among {contest.with_other_seeds.family} pairs that are judged together; run more seeds"
            rows.append(
                (contest.schedule or "all", answer.a, answer.b,
                 *_difference(metric, answer.runs.value, *answer.runs.interval),
                 "unknown" if answer.runs.reason else "differ" if places in contest.here.apart else "not told apart",
                 pair.between(metric, *over.interval) or "none",
                 f"{wins} of {over.wins[2]}" if min(over.seeds) > 1 else "–",
                 plain_number(answer.probability_of_improvement), repeats, reason)
            )  # fmt: skip
    title = "The best of each schedule against the others"
    kept = [column for column in range(len(explained)) if any(row[column] not in ("–", "none") for row in rows)]
    heads = tuple(head for column, head in enumerate(explained) if column in kept)
    shown = tuple(tuple(row[column] for column in kept) for row in rows)
    note = "; ".join(dict.fromkeys(answer.runs.reason for each in found.contests for answer in each.answers))
    note = f"Of these runs: {note}." if note else ""
    return [Table(title, heads, shown, note, _helps({head: explained[head] for head in heads}))] if rows else []


def over_schedules(comparison: Comparison) -> list[Table]:
    """Variants that ran under every schedule; no table where there is none, or one schedule only."""
    metric = comparison.measure.metric
    rows = tuple(
        (str(name), f"{int(row['seeds'])}",
         *_cells(metric, row["mean"], row["mean_low"], row["mean_high"]),
         *_cells(metric, row["iqm"], row["iqm_low"], row["iqm_high"]))
        for name, row in comparison.standing.over_schedules.iterrows()
    )  # fmt: skip
    note = (
        "Variants that ran under every schedule, runs pooled. Intervals resample seeds within each schedule; with "
        "one seed in a schedule there is no interval."
    )
    head = ("Variant", "Runs", "Mean", "95%", "IQM", "95% of the IQM")
    return [Table("Over all schedules", head, rows, note)] if rows else []


def changes(comparison: Comparison) -> list[Table]:
    """What one change of an algorithm does; no table where no two settings differ in one component only."""
    metric = comparison.measure.metric
    found = comparison.compute(single_changes, metric, comparison.measure.by)
    if not found:
        return []
    rows = tuple(row for change in found for row in _changed(change, metric))
    note = (
        "After minus before. Ends: value at the end; speed: mean over the first half; fall: drop from "
        f"the best running mean to the end. Alike: the interval lies within {margin_words(metric, found[0].margin)}."
    )
    head = ("Change", "Schedule", "Before, after", "Ends", "95%", "Speed", "Fall", "Verdict")
    return [Table("What one change of an algorithm does", head, rows, note)]


def _changed(change: SingleChange, metric: str) -> Iterator[tuple[str, ...]]:
    """A row for each schedule, and one for all of them together where there are several."""
    for place in change.schedules:
        yield (change.what, place.schedule, f"{change.of}, {change.to}",
               *_difference(metric, place.end.value, *place.end.interval),
               pair.difference_words(metric, place.speed.value, *place.speed.interval),
               pair.difference_words(metric, place.fall.value, *place.fall.interval), place.verdict)  # fmt: skip
    if len(change.schedules) > 1:
        yield (change.what, f"all, {change.end.basis}", f"{change.of}, {change.to}",
               *_difference(metric, change.end.value, *change.end.interval),
               pair.difference_words(metric, change.speed.value, *change.speed.interval),
               pair.difference_words(metric, change.fall.value, *change.fall.interval), change.verdict)  # fmt: skip


def _helps(explained: Mapping[str, str]) -> dict[str, str]:
    return {head: words for head, words in explained.items() if words}


def _difference(metric: str, value: float, low: float, high: float) -> tuple[str, str]:
    return pair.difference_words(metric, value, low, high), pair.between(metric, low, high) or "none"


def _cells(metric: str, value: float, low: float, high: float) -> tuple[str, str]:
    """An estimate and its interval, in two cells."""
    return metric_value(metric, value, low, high), _interval(metric, low, high)


def _interval(metric: str, low: float, high: float) -> str:
    return interval(metric, low, high) if isfinite(low) else "none"
