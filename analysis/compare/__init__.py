"""Ablations: is A better than B, in what do they differ, and how sure can one be?

groups = grouped_settings(Member(run_id, run, summarise(run)) for ...)   # runs that differ in their seed only
align(members, "eval_accuracy", by="tokens").frame               # or by="step", by="time"
aggregate(frame, "iqm")                                          # interquartile mean with its bootstrap band
curves(groups, "reward", "tokens", "iqm", window=3)              # what a chart shows: smoothed, aggregated, with bands
found = standing(groups, "eval_accuracy")                        # a row a setting, a contrast a pair, judged together
standing_words(found).sentences                                       # best, tied with it, undecided, worse
found.contrast(0, 1).over_seeds                                  # setting 0 minus setting 1, with its interval
difference_over(a, b, "eval_accuracy", by="tokens")              # A - B along the axis with its band, and the runs
component_differences(groups)                                    # which parts of the algorithms differ
chosen_metric(groups, "eval_accuracy")                           # or the next sensible one where no run has it
prompt_difference(pairs_by_seed(a, b))                           # reward on the prompts that both saw
"""

from ratioscope.analysis.compare.aggregates import aggregate, band_words
from ratioscope.analysis.compare.alignment import AXES, Axis, align, ends
from ratioscope.analysis.compare.chosen_metric import Chosen, chosen_metric
from ratioscope.analysis.compare.configuration import configuration, configuration_of
from ratioscope.analysis.compare.contrast import (
    difference_over,
)
from ratioscope.analysis.compare.curves import NOTHING, SettingCurve, attribute, attributes, curves, smoothed
from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import (
    Member,
    Setting,
    end_value,
    grouped_settings,
    schedule_words,
)
from ratioscope.analysis.compare.prompts import PromptDifference, pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.report import report
from ratioscope.analysis.compare.sentences import (
    StandingWords,
    in_these_runs,
    letter_words,
    rank_words,
    standing_words,
    with_other_seeds,
)
from ratioscope.analysis.compare.standing import (
    Rank,
    SettingGroup,
    SettingRow,
    Standing,
    short_names,
    standing,
)
from ratioscope.analysis.compare.wording import MORE_SEEDS, points

__all__ = [
    "AXES",
    "MORE_SEEDS",
    "NOTHING",
    "Axis",
    "Chosen",
    "Member",
    "PromptDifference",
    "Rank",
    "Setting",
    "SettingCurve",
    "SettingGroup",
    "SettingRow",
    "Standing",
    "StandingWords",
    "aggregate",
    "align",
    "attribute",
    "attributes",
    "band_words",
    "chosen_metric",
    "component_differences",
    "configuration",
    "configuration_of",
    "curves",
    "difference_over",
    "differences",
    "end_value",
    "ends",
    "grouped_settings",
    "in_these_runs",
    "letter_words",
    "pairs_by_seed",
    "points",
    "prompt_difference",
    "rank_words",
    "report",
    "schedule_words",
    "short_names",
    "smoothed",
    "standing",
    "standing_words",
    "with_other_seeds",
]
