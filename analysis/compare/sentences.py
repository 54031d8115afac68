"""What a comparison comes to in words: who leads, what is not known, what two settings say against each other.

told = standing_words(standing(settings, "eval_accuracy"))
told.sentences      # ("Best: grpo (92%, 3 seeds), tied within 5 points with gspo.", "Worse: reinforce (67%).")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.analysis.compare.collapses import Collapse
from ratioscope.analysis.compare.contrast import MOST_SEEDS, Difference
from ratioscope.analysis.compare.grouping import unnamed_values
from ratioscope.analysis.compare.margins import in_points, orientation
from ratioscope.analysis.compare.standing import (
    FEWEST_SEEDS,
    Contrast,
    Rank,
    SettingGroup,
    SettingRow,
    Standing,
    short_names,
)
from ratioscope.analysis.compare.wording import (
    MORE_SEEDS,
    by_how_much,
    lowered,
    margin_words,
    measured,
    quantity,
    under,
)
from ratioscope.analysis.findings.fall import LEVEL_WORDS
from ratioscope.analysis.findings.numbers import bracketed, capital
from ratioscope.analysis.findings.words import MOST_LISTED, some
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE

# Of more schedules it is told who leads; plot and table say by how much. Up to so many have a line each.
_MOST_SCHEDULES, _MOST_LINES = 2, 4
# Of a sentence that is read once; settings beyond them are counted, the plot has them all.
_MOST_WORDS = 25


@dataclass(frozen=True)
class StandingWords:
    """Where settings stand, in words."""

    sentences: tuple[str, ...]
    """Best with those that are tied with it, worse; of several schedules one each."""
    collapsed: str
    """Which settings collapsed, by what rule, and since when; empty where none did."""
    caveat: str
    """What so few seeds cannot tell; empty where they can."""
    remarks: tuple[str, ...]
    """What was not compared, and why; what settings have that does not name them."""
    measure: str
    """What is compared: the metric, and which values "the end" are."""
    basis: str
    """What the intervals are."""

    @property
    def said(self) -> tuple[str, ...]:
        """A line each: who leads; what collapsed, and what is not known."""
        return tuple(filter(None, (*self.sentences, " ".join(filter(None, (self.collapsed, self.caveat))))))


def standing_words(found: Standing) -> StandingWords:
    """Who leads under each schedule, and what limits that."""
    if len(found.ranked) > _MOST_SCHEDULES:
        told = _leaders(found)
    else:
        told = [sentence for group in found.ranked for sentence in _of_group(found, group)]
    told = told or [f"{_nothing_to_compare(found)}."]
    return StandingWords(
        tuple(told), _collapsed(found), _caveat(found), _remarks(found), _measure(found), _basis(found)
    )


def best_word(metric: str) -> str:
    """What the first of a ranking is called."""
    return "Best" if CATALOGUE[metric].better in ("higher", "lower") else "Highest"


def rank_words(found: Standing) -> dict[int, str]:
    """How each setting that has a rival stands to the best of its group, by its place.

    Worse are those of which more seeds would be; of too few seeds it is known where their ends lie.
    """
    best = best_word(found.metric).lower()
    first = {"higher": "highest", "lower": "lowest"}.get(CATALOGUE[found.metric].better, best)
    called = {
        Rank.ALIKE: f"within {margin_words(found.metric)}",
        Rank.UNDECIDED: "within noise", Rank.UNKNOWN: "cannot tell", Rank.WORSE: _worse(found),
    }  # fmt: skip
    fell = {found.settings.index(each.setting) for each in found.fallen}
    return {
        row.place: "collapsed"
        if row.place in fell and row.rank is Rank.WORSE
        else called.get(row.rank, first if group.tied else best)
        for group in found.groups
        for row in group.rows
        if row.rank
    }


def _worse(found: Standing) -> str:
    if found.by_seeds and best_word(found.metric) == "Best":
        return "worse"
    return "higher" if CATALOGUE[found.metric].better == "lower" else "lower"


def _leaders(found: Standing) -> list[str]:
    """The best of each schedule: of few a sentence each, of more as far as there is room in one."""
    known = [group for group in found.ranked if isfinite(group.rows[0].value)]
    best = [f"{group.rows[0].name} ({_value(found.metric, group.rows[0].value)})" for group in known]
    if len(found.ranked) <= _MOST_LINES:
        return [f"{_leading(found, group)} {under(group.schedule)}: {leads}{_rivals(found, group)}."
                for group, leads in zip(known, best, strict=True)]  # fmt: skip
    told = [f"{leads} {under(group.schedule)}" for group, leads in zip(known, best, strict=True)]
    for most in range(len(told), 0, -1):
        more = len(found.ranked) - most
        end = f"; {more} more schedule{'s' * (more > 1)} below" if more else ""
        sentence = f"{best_word(found.metric)}: {'; '.join(told[:most])}{end}."
        if len(sentence.split()) <= _MOST_WORDS:
            return [sentence]
    return [f"{best_word(found.metric)} of each schedule: below."]


def _leading(found: Standing, group: SettingGroup) -> str:
    """What the first of a group is called in a sentence: it is no winner where others are as good."""
    return "No clear winner" if group.tied and best_word(found.metric) == "Best" else best_word(found.metric)


def _rivals(found: Standing, group: SettingGroup) -> str:
    """Who is as good as its best up to noise; where it is alone, by how many points it leads, if these are points."""
    if group.tied:
        alike = all(row.rank is Rank.ALIKE for row in group.tied)
        within = margin_words(found.metric) if alike else "noise"
        return f", {group.tied[0].name if len(group.tied) == 1 else f'{len(group.tied)} others'} within {within}"
    first, *others = group.rows
    if not others or others[0].rank is not Rank.WORSE or not in_points(found.metric):
        return ""
    return f", {100 * abs(first.value - others[0].value):.0f} points ahead"


def _of_group(found: Standing, group: SettingGroup) -> list[str]:
    """Of a single group a sentence for each part, with as many names as have room; of several groups one in all, with
    the name of the best."""
    several = len(found.ranked) > 1
    for most in (0,) if several else range(MOST_LISTED, -1, -1):
        parts = _parts(found, group, most)
        told = ["; ".join(parts)] if several else list(map(capital, parts))
        if max(len(sentence.split()) for sentence in told) <= _MOST_WORDS:
            break
    return [f"{sentence}." for sentence in told]


def _parts(found: Standing, group: SettingGroup, most: int) -> list[str]:
    """The best with those that are tied with it, those that cannot be tested, and the worse; each in a few words.

    Args:
        most: names of each kind; 0: their number.
    """
    metric, (first, *others), several = found.metric, group.rows, len(found.ranked) > 1
    word = best_word(metric) + (f" {under(group.schedule)}" if several else "")
    if not isfinite(first.value):
        return [f"{word}: unknown, a run does not end with a finite number"]
    told = f"{word}: {first.name} ({_value(metric, first.value)}{'' if several else f', {_seeds(len(first.seeds))}'})"
    if first.rank is Rank.UNKNOWN:
        reason = next((noise.reason for row in group.rows if (noise := found.noise[row.place]).reason), "no noise")
        return [told, f"cannot tell whether the settings differ: {reason}"]
    # Of several schedules the line below says that it is so in these runs.
    here = "" if several or found.by_seeds else " in these runs"
    further = [(Rank.UNKNOWN, "cannot tell"), (Rank.WORSE, f"{_worse(found)}{here}")]
    alike = [row for row in group.tied if row.rank is Rank.ALIKE]
    if alike and not (several and len(alike) < len(group.tied)):
        told += f", tied within {margin_words(metric)} with {_named(alike, others, metric, most)}"
        further.insert(0, (Rank.UNDECIDED, "undecided"))
    elif group.tied:
        told += f", no significant difference to {_named(group.tied, others, metric, most)}"
    parts = [told]
    for rank, words in further:
        if rows := [row for row in others if row.rank is rank]:
            parts.append(f"{words}: {_named(rows, others, metric, most)}")
    return parts


def _named(rows: Sequence[SettingRow], others: Sequence[SettingRow], metric: str, most: int) -> str:
    """Settings by their names, as far as there is room; a single one with where it ends.

    Args:
        others: all but the best of the group.
        most: names; 0: their number.
    """
    if len(rows) > 1 and (not most or len(rows) > MOST_LISTED):
        return f"{'all ' * (len(rows) == len(others))}{len(rows)} others"
    named = some([row.name for row in rows], most=most or 1)
    if len(rows) > 1 or not isfinite(rows[0].value):
        return named
    end = _value(metric, rows[0].value)
    return f"{named}, {end}" if named.endswith(")") else f"{named} ({end})"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _value(metric: str, value: float) -> str:
    return f"{100 * value:.0f}%" if CATALOGUE[metric].share and abs(value) >= 0.1 else quantity(value, metric)


def _collapsed(found: Standing) -> str:
    """What counts as a collapse, and each setting from where to where it fell, and since when."""
    if not found.fallen:
        return ""
    named = short_names(found.settings)
    told = [f"{named[found.settings.index(each.setting)]} {_fall(each, found.metric)}" for each in found.fallen]
    lost = f"{100 * min(each.lost for each in found.fallen):.3g}%"
    for most in range(MOST_LISTED, 0, -1):
        sentence = f"Collapsed (lost {lost} or more of its best): {some(told, '; ', most)}."
        if len(sentence.split()) <= _MOST_WORDS:
            break
    return sentence


def _fall(collapse: Collapse, metric: str) -> str:
    """From the best to the end; of another metric than the one that is compared, by its name."""
    what = "" if collapse.metric == metric else f"{LEVEL_WORDS[collapse.metric]} "
    levels = (_value(collapse.metric, level) for level in (collapse.best, collapse.end))
    return f"{what}{' → '.join(levels)}, low since step {collapse.since}"


def _caveat(found: Standing) -> str:
    """Said where a setting that is ranked has too few seeds."""
    counts = sorted({len(row.seeds) for group in found.ranked for row in group.rows})
    if not counts or counts[0] >= FEWEST_SEEDS:
        return ""
    span = f"{counts[0]}–{counts[-1]}" if counts[0] < counts[-1] else str(counts[0])
    many = "One seed" if counts[-1] == 1 else f"{span} seeds"
    return f"{many} each: others may change this order; {MORE_SEEDS}."


def _remarks(found: Standing) -> tuple[str, ...]:
    shortened = dict.fromkeys(end.shortened for end in found.ends if len(end.places))
    told = [f"{sentence}." for sentence in shortened if sentence]
    if len(named := list(dict.fromkeys(found.tasks))) > 1:
        told.append(f"Tasks or rewards differ ({some(named, '; ')}): not ranked against each other.")
    if found.without and found.ranked:
        missing = some(found.settings[place].label for place in found.without)
        told.append(f"No value of {lowered(CATALOGUE[found.metric].title)}: {missing}.")
    if unnamed := unnamed_values(found.settings):
        told.append(f"Unless named: {unnamed}.")
    return tuple(told)


def _measure(found: Standing) -> str:
    of = {found.tasks[row.place] for group in found.ranked for row in group.rows} or {*found.tasks}
    told = dict.fromkeys(
        f"{task}: " * (len(of) > 1) + end.values_words
        for task, end in zip(found.tasks, found.ends, strict=True)
        if task in of and len(end.places)
    )
    return f"{CATALOGUE[found.metric].title} at the end" + (f" ({'; '.join(told)})" if told else "")


def _basis(found: Standing) -> str:
    if found.by_seeds:
        return "95% over seeds (t)"
    known = [found.noise[row.place] for group in found.ranked for row in group.rows]
    known = [noise for noise in known if not noise.reason]
    if not known:
        return ""
    return f"95% by {min(known, key=lambda noise: (noise.prompts, -noise.error)).basis}, not seeds"


def _nothing_to_compare(found: Standing) -> str:
    title, known = CATALOGUE[found.metric].title, len(found.settings) - len(found.without)
    if not known:
        return f"{title} has no value in any of these runs: nothing to compare. Choose another metric"
    if known > 1:
        return f"{title} at the end: no two of these settings have the same task and reward"
    if len(found.settings) > 1:
        return f"{title} has values in one setting only: nothing to compare yet"
    return "One setting is chosen: nothing to compare yet"


# Two settings -----------------------------------------------------------------------------------------------------


def in_these_runs(contrast: Contrast) -> str:
    """Whether two settings differ in these runs, this pair by itself."""
    metric = contrast.metric
    if not isfinite(contrast.here.value):
        return f"Cannot tell: {why_not(contrast.over_seeds, *contrast.names, metric)}"
    contrast = _better_first(contrast, contrast.here.value)
    found, (first, second), ends = contrast.here, contrast.names, contrast.ends
    values = [measured(end, metric, found.interval) for end in ends]
    if found.reason:
        unknown = "whether these runs differ by more than the noise of their prompts is unknown"
        return f"{first} ends with {values[0]}, {second} with {values[1]}; {unknown}: {found.reason}"
    way = "higher" if ends[0] >= ends[1] else "lower"
    told = f"{' against '.join(values)}, {by_how_much(found.value, metric, found.interval)} {way}"
    if not found.differs:
        return f"{first} and {second}: no significant difference in these runs: {told} (noise of {found.basis})"
    return f"{first} ends {_how(metric) or way} than {second} in these runs: {told} (noise of {found.basis})"


def with_other_seeds(contrast: Contrast) -> str:
    """Whether other seeds would repeat it, this pair by itself."""
    metric = contrast.metric
    reason = why_not(contrast.over_seeds, *contrast.names, metric)
    if min(contrast.over_seeds.seeds) < 2 or not isfinite(contrast.over_seeds.value):
        return f"Whether other seeds would repeat it is unknown: {reason}"
    contrast = _better_first(contrast, contrast.over_seeds.value)
    found, pairs = contrast.over_seeds, "pairs of seeds"
    if not found.paired:
        pairs = "pairs of runs, which share no seeds"
    won = found.wins[0 if orientation(metric) > 0 else 1]
    told = f"{contrast.names[0]} is ahead in {won} of {found.wins[2]} {pairs}, by "
    told += by_how_much(found.value, metric, found.interval)
    chance, interval = improvement(contrast)
    if not isnan(chance):
        told += f"; probability of ending {_how(metric) or 'higher'} {bracketed(chance, *interval)}"
    return f"With other seeds, unknown: {told}; {reason}" if reason else f"With other seeds: {told}"


def improvement(contrast: Contrast) -> tuple[float, Interval]:
    """The probability that a run of A ends better than a run of B; NaN with fewer than 4 seeds of either."""
    return (contrast if orientation(contrast.metric) > 0 else contrast.flipped).over_seeds.probability


def _better_first(contrast: Contrast, difference: float) -> Contrast:
    return contrast if (difference >= 0) == (orientation(contrast.metric) > 0) else contrast.flipped


def why_not(found: Difference, a: str, b: str, metric: str) -> str:
    """Why the seeds cannot tell the settings A and B apart, and what to do; empty when they can."""
    for name, seeds in zip((a, b), found.seeds, strict=True):
        if seeds == 0:
            return f"{name} has no value of {metric}"
    if not isfinite(found.value):
        return f"{metric} is not finite at the end of a run"
    if min(found.seeds) < 2:
        return f"there is one seed of each; {MORE_SEEDS}" if max(found.seeds) < 2 else "one of them has a single seed"
    low, high = found.interval
    if not isfinite(low):
        return "every seed gives the same, so the spread is not known; run more seeds of each"
    if low > 0 or high < 0:
        return ""
    if min(found.seeds) < FEWEST_RESAMPLED:
        return f"{min(found.seeds)} seeds leave that interval; run more of each"
    if found.seeds_needed is None:
        return f"a difference as small as this needs more than {MOST_SEEDS:,} seeds of each"
    needed = found.seeds_needed
    most = f"more than {MOST_SEEDS:,}" if needed.high is None else f"{needed.high:,}"
    return (
        f"a difference of this size needs about {needed.about:,} seeds of each, {needed.low:,} to {most} as the spread "
        "is known (power 0.8)"
    )


def _how(metric: str) -> str:
    """ "better", with "(lower)" where that is not what one expects; empty for a metric of which neither is better."""
    return {"higher": "better", "lower": "better (lower)"}.get(CATALOGUE[metric].better, "")
