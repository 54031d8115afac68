"""Ablations: is A better than B, in what do they differ, and how sure can one be?

groups = settings(Member(run_id, run, summarise(run)) for ...)   # runs that differ in their seed only
groups[0].mean("eval_accuracy")                                  # mean over seeds with its band, by step
align(members, "eval_accuracy", by="tokens").frame               # or by="step", by="time"
aggregate(frame, "iqm")                                          # interquartile mean with its bootstrap band
difference_over(a, b, "eval_accuracy", by="tokens")              # A - B along the axis with its band, and the runs
verdict(a, b).here, verdict(a, b).with_other_seeds               # do these runs differ; would other seeds repeat it
ranking(groups, "eval_accuracy")                                 # best first
curves(groups, "reward", "tokens", "iqm", window=3)               # what a chart shows: smoothed, aggregated, with bands
found = standing(groups, "eval_accuracy")                        # every pair under one schedule, judged together
best_settings(found).sentences                                   # who leads, who is worse, what is not significant
component_differences(groups)                                    # which parts of the algorithms differ
single_changes(groups, "eval_accuracy")                          # what one change of an algorithm does
chosen_metric(groups, "eval_accuracy")                           # or the next sensible one where no run has it
prompt_difference(pairs_by_seed(a, b))                           # reward on the prompts that both saw
"""

from ratioscope.analysis.compare.aggregates import aggregate, band_words, t_interval, welch_interval
from ratioscope.analysis.compare.alignment import AXES, AlignedMetric, Axis, End, align, common_end, ends
from ratioscope.analysis.compare.changed_component import Component
from ratioscope.analysis.compare.chosen_metric import Chosen, chosen_metric
from ratioscope.analysis.compare.configuration import configuration, configuration_of, differing_keys
from ratioscope.analysis.compare.contrast import (
    Difference,
    difference_over,
    difference_over_runs,
    end_difference,
    probability_of_improvement,
    seeds_needed,
)
from ratioscope.analysis.compare.curves import NOTHING, SettingCurve, attribute, attributes, curves, labels, smoothed
from ratioscope.analysis.compare.differences import component_differences, components, differences
from ratioscope.analysis.compare.grouping import (
    LAST_VALUES,
    Member,
    Setting,
    end_value,
    grouped_settings,
    schedule_words,
)
from ratioscope.analysis.compare.prompts import PromptDifference, pairs_by_seed, prompt_difference, prompt_rewards
from ratioscope.analysis.compare.ranking import over_schedules, probability_best, ranking
from ratioscope.analysis.compare.report import ComparisonReport, report
from ratioscope.analysis.compare.single_changes import ChangeEffect, SingleChange, UnderSchedule, single_changes
from ratioscope.analysis.compare.verdicts.best import (
    Best,
    SettingGroup,
    SettingRow,
    best_settings,
    plainest,
    short_names,
)
from ratioscope.analysis.compare.verdicts.collapses import Collapse, collapses
from ratioscope.analysis.compare.verdicts.standing import Contest, Standing, standing
from ratioscope.analysis.compare.verdicts.verdict import ComparisonAnswer, ends_better
from ratioscope.analysis.compare.verdicts.wording import MORE_SEEDS, margin_words, points

__all__ = [
    "AXES",
    "LAST_VALUES",
    "MORE_SEEDS",
    "NOTHING",
    "AlignedMetric",
    "Axis",
    "Best",
    "ChangeEffect",
    "Chosen",
    "Collapse",
    "ComparisonAnswer",
    "ComparisonReport",
    "Component",
    "Contest",
    "Difference",
    "End",
    "Member",
    "PromptDifference",
    "Setting",
    "SettingCurve",
    "SettingGroup",
    "SettingRow",
    "SingleChange",
    "Standing",
    "UnderSchedule",
    "aggregate",
    "align",
    "attribute",
    "attributes",
    "band_words",
    "best_settings",
    "chosen_metric",
    "collapses",
    "common_end",
    "component_differences",
    "components",
    "configuration",
    "configuration_of",
    "curves",
    "difference_over",
    "difference_over_runs",
    "differences",
    "differing_keys",
    "end_difference",
    "end_value",
    "ends",
    "ends_better",
    "grouped_settings",
    "labels",
    "margin_words",
    "over_schedules",
    "pairs_by_seed",
    "plainest",
    "points",
    "probability_best",
    "probability_of_improvement",
    "prompt_difference",
    "prompt_rewards",
    "ranking",
    "report",
    "schedule_words",
    "seeds_needed",
    "short_names",
    "single_changes",
    "smoothed",
    "standing",
    "t_interval",
    "welch_interval",
]
