"""Everything that `ratioscope compare` says about a set of runs, as text and as JSON."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import pandas as pd

from ratioscope.analysis.compare.aggregates import band_words
from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.chosen_metric import Chosen, chosen_metric
from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import Member, grouped_settings
from ratioscope.analysis.compare.verdicts.best import Best, best_settings
from ratioscope.analysis.compare.verdicts.collapses import Collapse
from ratioscope.analysis.compare.verdicts.separation import Separation
from ratioscope.analysis.compare.verdicts.standing import Contest, Standing, standing
from ratioscope.analysis.compare.verdicts.verdict import ComparisonAnswer
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.plain import json_value
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.notes import remark
from ratioscope.run_format.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class ComparisonReport:
    """Settings ranked, the best one of each schedule against each of the others, and in what they differ."""

    chosen: Chosen
    standing: Standing
    components: pd.DataFrame
    differences: pd.DataFrame

    @property
    def answers(self) -> tuple[ComparisonAnswer, ...]:
        """The best of each schedule against each of the others."""
        return tuple(answer for contest in self.standing.contests for answer in contest.answers)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it comes to, most important first."""
        remarks = (f"{remark}." for remark in self.standing.remarks)
        return tuple(filter(None, (self.chosen.instead, *self.best.said, *remarks)))

    @cached_property
    def best(self) -> Best:
        """A row for each setting, best first."""
        return best_settings(self.standing)

    def to_json(self) -> dict[str, Any]:
        """The stable shape of `ratioscope compare --json`: undefined is null."""
        found = self.standing
        marks = {row.place: {"leads": row.leads, "letters": row.letters or None} for row in self.best.rows}
        return json_value(
            {
                "schema_version": SCHEMA_VERSION,
                "metric": found.metric,
                "instead": self.chosen.instead or None,
                "by": found.ends[0].by,
                "until": found.until,
                "sentences": list(self.sentences),
                "ranking": [
                    _ranked(row) | marks.get(int(place), {"leads": False, "letters": None})
                    for place, row in zip(found.ranking.index, found.ranking.to_dict(orient="records"), strict=True)
                ],
                "over_schedules": [
                    _pooled(row) for row in found.over_schedules.reset_index().to_dict(orient="records")
                ],
                "groups": [_grouped(found, contest) for contest in found.contests],
                "collapsed": [_fallen(collapse) for collapse in found.fallen if collapse.by_rule],
                "answers": [answer.to_json() for answer in self.answers],
                "prompts": [answer.prompts.to_json(answer.a, answer.b) for answer in self.answers if answer.prompts],
                "components": self.components.reset_index().to_dict(orient="records"),
                "differences": self.differences.to_dict(orient="index"),
            }
        )

    def text(self) -> str:
        """For the terminal: who leads, then a table, best first."""
        parts = ["\n".join(map(one_line, self.sentences)), self._table()]
        if len(self.components):
            few = len(self.components.columns) <= _SIDE_BY_SIDE
            parts += [
                "Components in which the settings differ:",
                _table(self.components if few else self.components.rename_axis(None).T),
            ]
        return "\n\n".join(filter(None, parts))

    def _table(self) -> str:
        found, share = self.best, 100 if CATALOGUE[self.best.metric].share else 1
        head = [f"{CATALOGUE[found.metric].title} at the end, best first.", self.standing.where]
        head += [f"Intervals: {found.basis}." if found.basis else ""]
        if any(row.letters for row in found.rows):
            head += ["Settings of one schedule that share a letter do not differ significantly."]
        rows = []
        for group in found.groups:
            rows += [(one_line(group.schedule), "", "", "", "")] if group.schedule else []
            for row in group.rows:
                low, high = (share * end for end in row.interval)
                value, *ends = (number(each, low, high) for each in (share * row.value, low, high))
                within = f"[{', '.join(ends)}]" if isfinite(row.interval.low) else ""
                name = f"{'  ' * bool(group.schedule)}{one_line(row.name)}"
                rows.append((name, f"{value}{'%' * (share > 1)}", within, str(len(row.seeds)), row.letters))
        if not rows:
            return ""
        rows = [("", "mean", "95%", "seeds", "group"), *rows]
        kept = [column for column in range(5) if any(row[column] for row in rows[1:])]
        widths = {column: max(len(row[column]) for row in rows) for column in kept}
        lines = ["  ".join(row[column].ljust(widths[column]) for column in kept).rstrip() for row in rows]
        return "\n".join([*filter(None, head), *lines])


# Settings that stand side by side in a terminal; more are a row each.
_SIDE_BY_SIDE = 4


def report(members: Sequence[Member], metric: str | None = None, by: Axis = "step") -> ComparisonReport:
    """Compare runs.

    Args:
        metric: see `chosen_metric`.

    Raises:
        RatioscopeError: the runs are fewer than two settings, the metric is not in the catalogue, no run has a value of
            it or of a sensible one, or a run does not have the axis.
    """
    groups = grouped_settings(members)
    chosen = chosen_metric(groups, metric)
    if len(groups) < 2:
        raise RatioscopeError(
            f"{len(members)} run{'s' * (len(members) != 1)} of 1 setting cannot be compared; name runs that differ in "
            "more than their seed. Settings are told apart by algorithm, schedule, sampler, optimiser, model and "
            "task in run.json, which RunRecorder takes as arguments."
        )
    stands = standing(groups, chosen.metric, by)
    if not any(len(end.places) for end in stands.ends):
        raise RatioscopeError(f"None of the runs has a value of {chosen.metric}; choose another metric.")
    return ComparisonReport(chosen, stands, component_differences(groups), differences(members))


def _table(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format=number, na_rep="-")


def _ranked(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row of `ranking`, its estimates with their intervals."""
    mean = Number("mean over seeds", row["mean"], row["low"], row["high"], remark("95% t interval over seeds"))
    band = remark(band_words(row["seeds"]))
    middle = Number("mean of the middle half", row["iqm"], row["iqm_low"], row["iqm_high"], band)
    names = {key: row[key] for key in ("setting", "schedule", "task", "seeds")}
    return names | {"mean": mean.to_json(), "iqm": middle.to_json(), "best": row["best"]}


def _grouped(found: Standing, contest: Contest) -> dict[str, Any]:
    """What differs from what under one schedule, Holm's correction over all pairs that were tested."""

    def one(separation: Separation) -> dict[str, Any]:
        return {
            "apart": [[found.settings[place].label for place in pair] for pair in sorted(separation.apart)],
            "letters": {found.settings[place].label: letters for place, letters in separation.letters.items()},
            "tested": separation.tested,
            "judged_together": separation.family,
        }

    return {
        "schedule": contest.schedule,
        "here": one(contest.here),
        "with_other_seeds": one(contest.with_other_seeds),
    }


def _fallen(collapse: Collapse) -> dict[str, Any]:
    fallen, of = collapse.seeds
    return {
        "setting": collapse.setting.label, "metric": collapse.metric, "best": collapse.best, "after": collapse.after,
        "since": collapse.since, "end": collapse.end, "seeds_fallen": fallen, "seeds": of,
    }  # fmt: skip


def _pooled(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row of `over_schedules`, its estimates with their intervals."""
    note = remark("stratified bootstrap")
    labels = {"mean": "mean over runs", "iqm": "mean of the middle half"}
    estimates = {
        key: Number(label, row[key], row[f"{key}_low"], row[f"{key}_high"], note).to_json()
        for key, label in labels.items()
    }
    return {"variant": row["variant"], "seeds": row["seeds"], **estimates}
