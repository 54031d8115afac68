"""The tables of a comparison: how algorithms and runs differ, and which is best."""

from collections.abc import Mapping, Sequence
from math import isfinite

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.compare.sentences import letter_words, rank_words
from ratioscope.analysis.compare.standing import Standing
from ratioscope.analysis.compare.wording import points
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.formats import interval, metric_value
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.dashboard.sections.model import Paragraph, Piece, Table

# Keys of a configuration that `parts` shows.
_OF_PARTS = ("algorithm.parts.", "algorithm.parameters.")


def parts(settings: Sequence[Setting]) -> list[Piece]:
    """The parts and parameters in which the algorithms differ, one column per variant."""
    variants = {setting.variant: setting for setting in reversed(settings)}
    variants = {name: variants[name] for name in dict.fromkeys(setting.variant for setting in settings)}
    table = component_differences(list(variants.values()))
    rows = [(str(name), *map(str, row)) for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return [Table("Parts of the algorithms that differ", ("Component", *variants), tuple(rows))] if rows else []


def other_settings(members: Sequence[Member]) -> list[Piece]:
    """Settings that differ, other than the parts of the algorithm; one column per run."""
    table = differences(members)
    if not len(table):
        return [Paragraph("The runs differ at most in their seed.")]
    rows = [(str(name), *map(str, row)) for name, row in zip(table.index, table.to_numpy(), strict=True)]
    rows = [row for row in rows if not row[0].startswith(_OF_PARTS)]
    return [Table("Other settings that differ", ("Setting", *map(str, table.columns)), tuple(rows))] if rows else []


def ranking(comparison: Comparison, against: Mapping[int, int] | None = None) -> Table:
    """The settings, best first, and each minus another one; columns that say nothing here are left out.

    Args:
        against: of settings by their places those that they are held against; None: the best of their group.
    """
    metric, found, called = comparison.measure.metric, comparison.standing, rank_words(comparison.standing)
    best_of = {row.place: group.rows[0].place for group in found.ranked for row in group.rows[1:]}
    named = against is not None and len(set(against.values())) > 1
    minus = "the setting in brackets" if named else "the best of the same schedule"
    against = best_of if against is None else {at: other for at, other in against.items() if at not in found.without}
    if len(others := set(against.values())) == 1:
        minus = comparison.labels[others.pop()]
    several = any(len(row.seeds) > 1 for row in found.rows)
    explained = {
        "Task": "",
        "Setting": "",
        "Schedule": "",
        "To the best": comparison.words.terms,
        "Group": letter_words(metric),
        "Seeds": "Seeds with a value.",
        ("Mean" if several else "End"): "Over the seeds." if several else "",
        "95%": comparison.words.basis,
        "Difference": f"End minus that of {minus}.",
        "95% of it": "This pair by itself; over seeds paired where both share seeds.",
        "To the baseline": "All pairs are judged together (Holm); settings of different schedules are not.",
        "IQM": "Mean of the middle half of the seeds, from 4 seeds on.",
        "Band of the IQM": "Bootstrap.",
    }
    rows = []
    for row in found.rows:
        setting, middle, held = found.settings[row.place], ("", ""), ("", "", "")
        if len(row.seeds) >= FEWEST_RESAMPLED:
            middle = _cells(metric, row.middle[0], *row.middle[1])
        if row.place in against:
            contrast = found.contrast(row.place, against[row.place])
            difference, differs = found.deciding(contrast)
            stands = {None: "not judged", False: "neither", True: _way(found, difference.value)}[differs]
            name = f" ({contrast.names[1]})" if named else ""
            held = (f"{_difference_words(metric, difference.value, *difference.interval)}{name}",
                    _between(metric, *difference.interval), stands)  # fmt: skip
        rows.append(
            (found.tasks[row.place], setting.variant, setting.schedule, called.get(row.place, ""),
             row.letters, str(len(row.seeds)), metric_value(metric, row.value, *row.interval),
             interval(metric, *row.interval) if isfinite(row.interval.low) else "", *held, *middle)
        )  # fmt: skip
    # Two settings have no groups, and what the best is held against is said by its rank.
    silent = {"Group"} if max((len(group.rows) for group in found.ranked), default=0) < 3 else set()
    silent |= {"Schedule"} if len({row[2] for row in rows}) == 1 and len(rows) > 1 else set()
    silent |= {"To the baseline"} if against.items() <= best_of.items() else set()
    kept = [place for place, head in enumerate(explained) if head not in silent and any(row[place] for row in rows)]
    heads = tuple(head for place, head in enumerate(explained) if place in kept)
    shown = tuple(tuple(row[place] or "–" for place in kept) for row in rows)
    title = f"{'Where the runs end' if len(set(found.tasks)) > 1 else 'Ranking'}: {CATALOGUE[metric].title} at the end"
    note = f"Difference: minus {minus}." if "Difference" in heads else ""
    return Table(title, heads, shown, note, {head: explained[head] for head in heads if explained[head]})


def _way(found: Standing, value: float) -> str:
    """Better or worse, for a metric that has a better way."""
    better = CATALOGUE[found.metric].better
    if not better:
        return "higher" if value > 0 else "lower"
    return "better" if (value > 0) == (better == "higher") else "worse"


def _difference_words(metric: str, value: float, low: float, high: float) -> str:
    """A difference with the digits that its interval supports: "25.2 points", of what is no share a number."""
    if not CATALOGUE[metric].share or not isfinite(value):
        return metric_value(metric, value, low, high)
    return f"{points(value)} points"


def _between(metric: str, low: float, high: float) -> str:
    """The interval of a difference; "" where there is none."""
    if not isfinite(low):
        return ""
    return f"{points(low)} to {points(high)}" if CATALOGUE[metric].share else interval(metric, low, high)


def _cells(metric: str, value: float, low: float, high: float) -> tuple[str, str]:
    """An estimate and its interval, in two cells."""
    return metric_value(metric, value, low, high), interval(metric, low, high) if isfinite(low) else "none"
