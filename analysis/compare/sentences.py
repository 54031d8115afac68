"""What a comparison comes to in words: who leads, what is not known, what two settings say against each other.

told = standing_words(standing(settings, "eval_accuracy"))
told.sentences      # ("Best: grpo (92%, 3 seeds).", "Within 5 points: gspo.", "Worse: reinforce.")
"""

from dataclasses import dataclass
from math import isfinite, isnan
from typing import Literal, TypeVar

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.analysis.compare.contrast import MOST_SEEDS, Difference
from ratioscope.analysis.compare.standing import (
    FEWEST_SEEDS,
    Contrast,
    Rank,
    SettingGroup,
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
from ratioscope.analysis.findings.numbers import bracketed, capital
from ratioscope.analysis.findings.words import MOST_LISTED, some
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE

# Of more schedules the plot says who leads.
_MOST_SCHEDULES = 4
# Of a sentence that is read once; settings beyond them are counted, the plot has them all.
_MOST_WORDS = 25


@dataclass(frozen=True)
class StandingWords:
    """Where settings stand, in words."""

    sentences: tuple[str, ...]
    """Best, alike, no significant difference, worse; of several schedules one each."""
    several: bool
    """Whether each sentence is of a schedule of its own."""
    collapsed: str
    """Which settings collapsed, and since when; empty where none did."""
    caveat: str
    """What so few seeds cannot tell; empty where they can."""
    remarks: tuple[str, ...]
    """What was not compared, and why."""
    where: str
    """Which values "the end" are."""
    basis: str
    """What the intervals are."""

    @property
    def said(self) -> tuple[str, ...]:
        """A line each: who leads; what collapsed, and what is not known."""
        return tuple(filter(None, (*self.sentences, " ".join(filter(None, (self.collapsed, self.caveat))))))


def standing_words(found: Standing) -> StandingWords:
    """Who leads under each schedule, and what limits that."""
    several = len(found.ranked) > 1
    told = [sentence for group in found.ranked[:_MOST_SCHEDULES] for sentence in _of_group(found, group)]
    if (more := len(found.ranked) - _MOST_SCHEDULES) > 0:
        told[-1] = f"{told[-1][:-1]}; {more} more schedule{'s' * (more > 1)}: in the plot."
    told = told or [f"{_nothing_to_compare(found)}."]
    return StandingWords(
        tuple(told), several, _collapsed(found), _caveat(found), _remarks(found), _where(found), _basis(found)
    )


def best_word(metric: str) -> str:
    """What the first of a ranking is called."""
    return "Best" if CATALOGUE[metric].better in ("higher", "lower") else "Highest"


def rank_words(found: Standing) -> dict[Rank, str]:
    """What the groups of settings are called, in the order in which they are told. Worse are those of which more seeds
    would be; of too few seeds it is known where their ends lie."""
    metric = found.metric
    lower = "higher" if CATALOGUE[metric].better == "lower" else "lower"
    return {
        Rank.BEST: best_word(metric).lower(), Rank.ALIKE: f"within {margin_words(metric)}",
        Rank.UNDECIDED: "not significant", Rank.UNKNOWN: "cannot tell",
        Rank.WORSE: "worse" if found.by_seeds and best_word(metric) == "Best" else lower,
    }  # fmt: skip


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
    """Best, alike, not significant, not to be tested, worse; each in a few words.

    Args:
        most: names of each kind; 0: their number.
    """
    metric, (first, *others) = found.metric, group.rows
    word = best_word(metric) + (f" {under(group.schedule)}" if len(found.ranked) > 1 else "")
    if not isfinite(first.value):
        return [f"{word}: unknown, a run does not end with a finite number"]
    told = [f"{word}: {first.name} ({_value(metric, first.value)}, {_seeds(len(first.seeds))})"]
    if first.rank is Rank.UNKNOWN:
        reason = next((noise.reason for row in group.rows if (noise := found.noise[row.place]).reason), "no noise")
        return [*told, f"cannot tell whether the settings differ: {reason}"]
    said = rank_words(found) | {Rank.UNDECIDED: "no significant difference"}
    if len(found.ranked) == 1 and not found.by_seeds:  # of several schedules the line below says it
        said[Rank.WORSE] += " in these runs"
    for rank, words in said.items():
        rows = [row for row in others if row.rank is rank]
        finite = [_value(metric, row.value) for row in rows if isfinite(row.value)]
        if most and len(rows) > MOST_LISTED and len(finite) == len(rows):
            every = "all " if len(rows) == len(others) else ""
            told.append(f"{words}: {every}{len(rows)} others ({finite[0]} to {finite[-1]})")
        elif len(finite) == len(rows) == 1 and rank is Rank.WORSE:
            told.append(f"{words}: {rows[0].name} ({finite[0]})")
        elif rows:
            few = most or (1 if len(rows) == 1 else 0)
            named = some([row.name for row in rows], most=few) if few else f"{len(rows)} settings"
            told.append(f"{words}: {named}")
    return told


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _value(metric: str, value: float) -> str:
    return f"{100 * value:.0f}%" if CATALOGUE[metric].share and abs(value) >= 0.1 else quantity(value, metric)


def _collapsed(found: Standing) -> str:
    named = short_names(found.settings)
    told = [f"{named[found.settings.index(each.setting)]} since step {each.since}" for each in found.fallen]
    for most in range(MOST_LISTED, 0, -1):
        sentence = f"Collapsed: {some(told, '; ', most)}."
        if len(sentence.split()) <= _MOST_WORDS:
            break
    return sentence if told else ""


def _caveat(found: Standing) -> str:
    """Said where a setting that is ranked has too few seeds."""
    counts = sorted({len(row.seeds) for group in found.ranked for row in group.rows})
    if not counts or counts[0] >= FEWEST_SEEDS:
        return ""
    span = f"{counts[0]} to {counts[-1]}" if counts[0] < counts[-1] else str(counts[0])
    many = "One seed" if counts[-1] == 1 else f"{span} seeds"
    return f"{many} each: other seeds may change this order; {MORE_SEEDS}."


def _remarks(found: Standing) -> tuple[str, ...]:
    shortened = dict.fromkeys(end.shortened for end in found.ends if len(end.places))
    told = [f"{sentence}." for sentence in shortened if sentence]
    if len(named := list(dict.fromkeys(found.tasks))) > 1:
        told.append(f"Tasks or rewards differ ({some(named, '; ')}): not ranked against each other.")
    if found.without and found.ranked:
        missing = some(found.settings[place].label for place in found.without)
        told.append(f"No value of {lowered(CATALOGUE[found.metric].title)}: {missing}.")
    return tuple(told)


def _where(found: Standing) -> str:
    of = {found.tasks[row.place] for group in found.ranked for row in group.rows} or {*found.tasks}
    told = dict.fromkeys(
        f"{task}: " * (len(of) > 1) + f"the {end.values_words}"
        for task, end in zip(found.tasks, found.ends, strict=True)
        if task in of and len(end.places)
    )
    return f"The end is {'; '.join(told)}." if told else ""


def _basis(found: Standing) -> str:
    if found.by_seeds:
        return "95% over seeds (t)"
    known = [found.noise[row.place] for group in found.ranked for row in group.rows]
    known = [noise for noise in known if not noise.reason]
    if not known:
        return ""
    return f"95% of these runs, by {min(known, key=lambda noise: (noise.prompts, -noise.error)).basis}"


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

Side = Literal["a", "b"]
_Both = TypeVar("_Both")


def in_these_runs(contrast: Contrast) -> str:
    """Whether two settings differ in these runs, this pair by itself."""
    found, metric = contrast.here, contrast.metric
    if not isfinite(found.value):
        return f"Cannot tell: {why_not(contrast.over_seeds, *contrast.names, metric)}"
    side = _side(contrast, found.value)
    (first, second), ends = _seen_from(side, contrast.names), _seen_from(side, contrast.ends)
    values = [measured(end, metric, found.interval) for end in ends]
    if found.reason:
        unknown = "whether these runs differ by more than the noise of their prompts is unknown"
        return f"{first} ends with {values[0]}, {second} with {values[1]}; {unknown}: {found.reason}"
    way = "higher" if ends[0] >= ends[1] else "lower"
    told = f"{' against '.join(values)}, {_size(side, found.value, found.interval, metric)} {way}"
    if not found.differs:
        return f"{first} and {second}: no significant difference in these runs: {told} (noise of {found.basis})"
    return f"{first} ends {_how(metric) or way} than {second} in these runs: {told} (noise of {found.basis})"


def with_other_seeds(contrast: Contrast) -> str:
    """Whether other seeds would repeat it, this pair by itself."""
    found, metric = contrast.over_seeds, contrast.metric
    reason = why_not(found, *contrast.names, metric)
    if min(found.seeds) < 2 or not isfinite(found.value):
        return f"Whether other seeds would repeat it is unknown: {reason}"
    side = _side(contrast, found.value)
    wins, pairs = found.wins[0 if found.value >= 0 else 1], "pairs of seeds"
    if not found.paired:
        pairs = "pairs of runs, which share no seeds"
    told = f"{_seen_from(side, contrast.names)[0]} is ahead in {wins} of {found.wins[2]} {pairs}, by "
    told += _size(side, found.value, found.interval, metric) + _chance(side, found, metric)
    return f"With other seeds, unknown: {told}; {reason}" if reason else f"With other seeds: {told}"


def improvement(contrast: Contrast) -> tuple[float, Interval]:
    """The probability that a run of A ends better than a run of B; NaN with fewer than 4 seeds of either."""
    return _of_side(_side(contrast, 1.0), contrast.over_seeds)


def _of_side(side: Side, found: Difference) -> tuple[float, Interval]:
    """The probability that a run of this side ends higher."""
    chance, (low, high) = found.probability
    return (chance, Interval(low, high)) if side == "a" else (1 - chance, Interval(1 - high, 1 - low))


def _chance(side: Side, found: Difference, metric: str) -> str:
    """The probability that a run of this side ends better; nothing from too few seeds."""
    lower = CATALOGUE[metric].better == "lower"
    chance, interval = _of_side("b" if (side == "a") == lower else "a", found)
    return "" if isnan(chance) else f"; probability of ending {_how(metric) or 'higher'} {bracketed(chance, *interval)}"


def _side(contrast: Contrast, difference: float) -> Side:
    return "a" if (difference >= 0) != (CATALOGUE[contrast.metric].better == "lower") else "b"


def _seen_from(side: Side, both: tuple[_Both, _Both]) -> tuple[_Both, _Both]:
    """This side first."""
    return both if side == "a" else (both[1], both[0])


def _size(side: Side, value: float, interval: Interval, metric: str) -> str:
    """A difference A - B as that of this side to the other."""
    return by_how_much(value if side == "a" else -value, metric,
                       interval if side == "a" else Interval(-interval.high, -interval.low))  # fmt: skip


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
