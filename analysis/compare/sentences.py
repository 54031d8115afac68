"""What a comparison comes to in words: who leads, what is not known, what two settings say against each other.

told = standing_words(standing(settings, "eval_accuracy"))
told.sentences      # ("Best: grpo (92%, 3 seeds), tied with gspo.", "Worse: reinforce (67%).")

A setting is the best of its group, tied with it, undecided or worse (`Rank`): these words stand in sentences, plot and
tables, and `StandingWords.terms` says once what they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan

import pandas as pd

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.analysis.compare.alignment import logged_values
from ratioscope.analysis.compare.chosen_metric import SENSIBLE
from ratioscope.analysis.compare.collapses import Collapse
from ratioscope.analysis.compare.contrast import MOST_SEEDS, Difference
from ratioscope.analysis.compare.grouping import SCHEDULE_UNKNOWN, differing_besides
from ratioscope.analysis.compare.margins import margin, orientation
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
    under,
)
from ratioscope.analysis.findings.fall import LEVEL_WORDS
from ratioscope.analysis.findings.numbers import bracketed, capital
from ratioscope.analysis.findings.words import MOST_LISTED, some
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE

# Each has a line; of more schedules it is told who leads.
_MOST_SCHEDULES = 4
# Of a sentence that is read once; settings beyond them are counted, the plot has them all.
_MOST_WORDS = 25
_COLLAPSED = "collapsed"


@dataclass(frozen=True)
class StandingWords:
    """Where settings stand, in words."""

    sentences: tuple[str, ...]
    """Best with those that are tied with it, undecided, worse; of several schedules one each."""
    terms: str
    """What those words are here, and by what they are judged; empty where nothing was."""
    collapsed: str
    """Which settings collapsed, and by what rule; empty where none did."""
    caveat: str
    """What so few seeds cannot tell, what else differs than algorithm and schedule, that settings start apart; or
    empty."""
    remarks: tuple[str, ...]
    """What was not compared, and why."""
    measure: str
    """What is compared: the metric, and which values "the end" are."""
    basis: str
    """What the intervals are."""

    @property
    def said(self) -> tuple[str, ...]:
        """A line each: who leads; what is not known; what the words are, and what collapsed."""
        return tuple(filter(None, (*self.sentences, self.caveat, " ".join(filter(None, (self.terms, self.collapsed))))))


def standing_words(found: Standing) -> StandingWords:
    """Who leads under each schedule, and what limits that."""
    if len(found.ranked) > _MOST_SCHEDULES:
        told = _leaders(found)
    else:
        told = [sentence for group in found.ranked for sentence in _of_group(found, group)]
    told = told or [f"{_nothing_to_compare(found)}."]
    return StandingWords(
        tuple(told), _terms(found), _collapsed(found), _caveat(found), _remarks(found), _measure(found), _basis(found)
    )


def best_word(metric: str) -> str:
    """What the first of a ranking is called."""
    return "Best" if CATALOGUE[metric].better else "Highest"


def rank_words(found: Standing) -> dict[int, str]:
    """How each setting that has a rival stands to the best of its group, by its place."""
    worse = worse_word(found.metric)
    called = {Rank.BEST: best_word(found.metric).lower(), Rank.WORSE: worse}
    fell = {found.settings.index(each.setting) for each in found.fallen}
    return {
        row.place: f"{worse}, {_COLLAPSED}"
        if row.place in fell and row.rank is Rank.WORSE
        else called.get(row.rank, row.rank)
        for group in found.groups
        for row in group.rows
        if row.rank
    }


def worse_word(metric: str) -> str:
    """What those are called that end behind the best."""
    return "worse" if best_word(metric) == "Best" else "lower"


def letter_words(metric: str) -> str:
    """What the letters of a ranking are."""
    return f"Of settings that share a letter none is {worse_word(metric)} than another, all pairs judged together."


def _terms(found: Standing) -> str:
    """The words of `rank_words` that are used, once in a line."""
    used = {row.rank for group in found.ranked for row in group.rows}
    if Rank.BEST not in used:
        return ""
    first, either = f"the {best_word(found.metric).lower()}", Rank.UNDECIDED in used
    told = [f"tied: within {margin_words(found.metric)} of {first}"] if either or Rank.TIED in used else []
    told += [f"{worse_word(found.metric)}: behind {'it' if told else first}"] * (either or Rank.WORSE in used)
    told += ["undecided: neither"] if either else []
    return f"{capital('; '.join(told))} (95%{' over seeds' if found.by_seeds else ', these seeds'})."


def _leaders(found: Standing) -> list[str]:
    """The best of each schedule, of as many as there is room for in a sentence."""
    known = [group for group in found.ranked if isfinite(group.rows[0].value)]
    told = [
        f"{group.rows[0].name} ({_value(found.metric, group.rows[0].value)}) {under(group.schedule)}" for group in known
    ]
    for most in range(len(told), 0, -1):
        more = len(found.ranked) - most
        end = f"; {more} more schedule{'s' * (more > 1)} below" if more else ""
        sentence = f"{best_word(found.metric)}: {'; '.join(told[:most])}{end}."
        if len(sentence.split()) <= _MOST_WORDS:
            return [sentence]
    return [f"{best_word(found.metric)} of each schedule: below."]


def _of_group(found: Standing, group: SettingGroup) -> list[str]:
    """Of a single group a sentence for each part, with as many names as have room; of several groups one in all, with
    the name of the best: the plot has the others."""
    several = len(found.ranked) > 1
    for most in (0,) if several else range(MOST_LISTED, -1, -1):
        parts = _parts(found, group, most)
        told = ["; ".join(parts)] if several else list(map(capital, parts))
        if max(len(sentence.split()) for sentence in told) <= _MOST_WORDS:
            break
    return [f"{sentence}." for sentence in told]


def _parts(found: Standing, group: SettingGroup, most: int) -> list[str]:
    """The best with those that are tied with it, the undecided and the worse; each in a few words, or of several groups
    by their numbers.

    Args:
        most: names of each kind; 0: their number.
    """
    metric, (first, *others), several = found.metric, group.rows, len(found.ranked) > 1
    word = best_word(metric) + (f" {under(group.schedule)}" if several else "")
    if not isfinite(first.value):
        return [f"{word}: unknown, a run does not end with a finite number"]
    told = f"{word}: {first.name} ({_value(metric, first.value)}{'' if several else f', {_seeds(len(first.seeds))}'})"
    if first.rank is not Rank.BEST:
        reason = next((noise.reason for row in group.rows if (noise := found.noise[row.place]).reason), "no noise")
        return [told, f"undecided whether the settings differ: {reason}"]
    kinds = {rank: [row for row in others if row.rank is rank] for rank in Rank}
    named = {rank: _named(rows, others, metric, most) for rank, rows in kinds.items() if rows}
    told += f", tied with {named[Rank.TIED]}" if Rank.TIED in named else ""
    further = {Rank.UNDECIDED: "undecided", Rank.WORSE: worse_word(metric)}
    fell = {found.settings.index(each.setting) for each in found.fallen}
    collapsed = sum(row.place in fell for row in kinds[Rank.WORSE])
    if several and len(others) > 1:
        counts = [f"{len(kinds[rank])} {words}" for rank, words in further.items() if kinds[rank]]
        of_them = f" ({collapsed} {_COLLAPSED})" if collapsed else ""
        return [told, *([", ".join(counts) + of_them] if counts else [])]
    if collapsed:
        named[Rank.WORSE] += f" ({collapsed} {_COLLAPSED})" if len(kinds[Rank.WORSE]) > 1 else f", {_COLLAPSED}"
    return [told, *(f"{words}: {named[rank]}" for rank, words in further.items() if rank in named)]


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
    return f"{100 * value:.0f}%" if CATALOGUE[metric].share and abs(value) >= 0.1 else measured(value, metric)


def _collapsed(found: Standing) -> str:
    """What counts as a collapse, and where their ranks do not say it which settings did, from where to where."""
    if not found.fallen:
        return ""
    lost = f"{100 * min(each.lost for each in found.fallen):.3g}%"
    named, called = short_names(found.settings), rank_words(found)
    if all(called.get(found.settings.index(each.setting), "").endswith(_COLLAPSED) for each in found.fallen):
        return f"Collapsed: lost {lost}+ of its best."
    told = [f"{named[found.settings.index(each.setting)]} {_fall(each, found.metric)}" for each in found.fallen]
    for most in range(MOST_LISTED, 0, -1):
        sentence = f"Collapsed ({lost}+ below its own best): {some(told, '; ', most)}."
        if len(sentence.split()) <= _MOST_WORDS:
            break
    return sentence


def _fall(collapse: Collapse, metric: str) -> str:
    """From the best to the end; of another metric than the one that is compared, by its name."""
    what = "" if collapse.metric == metric else f"{LEVEL_WORDS[collapse.metric]} "
    return what + " → ".join(_value(collapse.metric, level) for level in (collapse.best, collapse.end))


def _caveat(found: Standing) -> str:
    """Said where a setting that is ranked has too few seeds, where rivals differ in more than their names tell, and
    where they start apart."""
    rivals = [[found.settings[row.place] for row in group.rows] for group in found.ranked]
    besides = [*filter(None, [_starts(found)]), *differing_besides(found.settings, rivals)]
    counts, seeds = sorted({len(row.seeds) for group in found.ranked for row in group.rows}), []
    if counts and counts[-1] == 1:
        seeds.append(f"seeds (one each; {MORE_SEEDS})")
    elif counts and counts[0] < FEWEST_SEEDS:
        seeds.append(f"seeds (under {FEWEST_SEEDS} {'each' if counts[-1] < FEWEST_SEEDS else 'in some'})")
    return f"Not known: the effect of {some([*seeds, *besides])}." if seeds or besides else ""


def _remarks(found: Standing) -> tuple[str, ...]:
    shortened = dict.fromkeys(end.shortened for end in found.ends if len(end.places))
    told = [f"{sentence}." for sentence in shortened if sentence]
    if len(named := list(dict.fromkeys(found.tasks))) > 1:
        told.append(f"Tasks or rewards differ ({some(named, '; ')}): not ranked against each other.")
    if found.without and found.ranked:
        missing = some(found.settings[place].label for place in found.without)
        told.append(f"No value of {lowered(CATALOGUE[found.metric].title)}: {missing}.")
    return tuple(told)


def _starts(found: Standing) -> str:
    """Where settings begin, if further apart than the seeds of one do, and than what counts as tied; or empty."""
    metric, by = found.metric, found.ends[0].by
    if metric not in SENSIBLE:  # of other metrics it is no head start
        return ""
    firsts = [
        pd.Series({each.unit: logged.iloc[0] for each in found.settings[row.place].members
                   if len(logged := logged_values(each, metric, by))})
        for group in found.ranked for row in group.rows
    ]  # fmt: skip
    means, apart = [each.mean() for each in firsts], [each.max() - each.min() for each in firsts if len(each) > 1]
    if not apart or not max(means) - min(means) > max(*apart, margin(metric, max(means))):
        return ""
    low, high = (_value(metric, end) for end in (min(means), max(means)))
    return f"starts ({low}–{high})"


def _measure(found: Standing) -> str:
    of = {found.tasks[row.place] for group in found.ranked for row in group.rows} or {*found.tasks}
    told = dict.fromkeys(
        f"{task}: " * (len(of) > 1) + end.values_words
        for task, end in zip(found.tasks, found.ends, strict=True)
        if task in of and len(end.places)
    )
    schedules = {found.settings[row.place].schedule for group in found.ranked for row in group.rows}
    common = schedules - {SCHEDULE_UNKNOWN} if len(schedules) == 1 else ()
    said = "; ".join((*told, *common))
    return f"{CATALOGUE[found.metric].title} at the end" + (f" ({said})" if said else "")


def _basis(found: Standing) -> str:
    if found.by_seeds:
        return "95% over seeds (t)"
    known = [found.noise[row.place] for group in found.ranked for row in group.rows]
    known = [noise for noise in known if not noise.reason]
    if not known:
        return ""
    least = min(known, key=lambda noise: (noise.prompts, -noise.error))
    swing = " and successive evaluations" * (bool(least.prompts) and any(noise.error > 0 for noise in known))
    return f"95% by {least.basis}{swing}, not seeds"


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
        return f"Undecided: {why_not(contrast.over_seeds, *contrast.names, metric)}"
    contrast = _better_first(contrast, contrast.here.value)
    found, (first, second), ends = contrast.here, contrast.names, contrast.ends
    values = [measured(end, metric, found.interval) for end in ends]
    if found.reason:
        told = f"{first} ends with {values[0]}, {second} with {values[1]}"
        return f"{told}; which is {worse_word(metric)} is undecided: {found.reason}"
    way = "higher" if ends[0] >= ends[1] else "lower"
    told = f"{' against '.join(values)}, {by_how_much(found.value, metric, found.interval)} {way}"
    if not found.differs:
        return f"Of {first} and {second} neither is {worse_word(metric)} in these runs: {told} (noise of {found.basis})"
    return f"{first} ends {_how(metric) or way} than {second} in these runs: {told} (noise of {found.basis})"


def with_other_seeds(contrast: Contrast) -> str:
    """Whether other seeds would repeat it, this pair by itself."""
    metric = contrast.metric
    reason = why_not(contrast.over_seeds, *contrast.names, metric)
    if min(contrast.over_seeds.seeds) < 2 or not isfinite(contrast.over_seeds.value):
        return f"Whether other seeds would repeat it is undecided: {reason}"
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
    return f"With other seeds, undecided: {told}; {reason}" if reason else f"With other seeds: {told}"


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
