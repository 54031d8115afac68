"""Everything that `ratioscope compare` says about a set of runs, as text and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import pandas as pd

from ratioscope.analysis.compare.aggregates import band_words
from ratioscope.analysis.compare.alignment import Axis, End
from ratioscope.analysis.compare.chosen_metric import Chosen, chosen_metric
from ratioscope.analysis.compare.collapses import Collapse
from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import Member, grouped_settings
from ratioscope.analysis.compare.prompts import pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.sentences import (
    StandingWords,
    improvement,
    in_these_runs,
    letter_words,
    rank_words,
    standing_words,
    why_not,
    with_other_seeds,
)
from ratioscope.analysis.compare.standing import Contrast, SettingRow, Standing, short_names, standing
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.findings.words import some
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.notes import Kind, Note, remark
from ratioscope.run_format.schema import SCHEMA_VERSION

# What the training reward says something of, too.
_JUDGED_BY_REWARD = ("eval_accuracy", "reward")
_SEEDS = remark("95% t interval over seeds")


@dataclass(frozen=True)
class ComparisonReport:
    """Settings ranked, the best one of each schedule against each of the others, and in what they differ."""

    chosen: Chosen
    standing: Standing
    components: pd.DataFrame
    differences: pd.DataFrame

    @cached_property
    def words(self) -> StandingWords:
        """Who leads, in words."""
        return standing_words(self.standing)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it comes to, most important first."""
        return tuple(filter(None, (self.chosen.instead, *self.words.said, *self.words.remarks)))

    def to_json(self) -> dict[str, Any]:
        """The stable shape of `ratioscope compare --json`: undefined is null."""
        found = self.standing
        return json_value(
            {
                "schema_version": SCHEMA_VERSION,
                "metric": found.metric,
                "instead": self.chosen.instead or None,
                "by": found.ends[0].by,
                "until": found.until,
                "sentences": list(self.sentences),
                "ranking": [_ranked(found, row) for row in found.rows],
                "judged_by": "seeds" if found.by_seeds else "these runs",
                "pairs": [_pair(found, contrast) for contrast in found.contrasts],
                "answers": [_answer(contrast) for contrast in found.against_best],
                "prompts": list(_prompts(found)),
                "collapsed": [_fallen(collapse) for collapse in found.fallen],
                "components": self.components.reset_index().to_dict(orient="records"),
                "differences": self.differences.to_dict(orient="index"),
            }
        )

    def notes(self) -> tuple[str, ...]:
        """What the numbers of `table` are."""
        words = self.words
        told = [f"{words.measure}, best first.", f"Intervals: {words.basis}." if words.basis else ""]
        if any(row.letters for row in self.standing.rows):
            told.append(letter_words(self.standing.metric))
        return tuple(map(one_line, filter(None, told)))

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Head and a row for each setting, best first; a schedule has a row of its own. Empty columns are left out."""
        found, share, called = self.standing, CATALOGUE[self.standing.metric].share, rank_words(self.standing)
        mean = "mean" if any(len(row.seeds) > 1 for row in found.rows) else "end"
        rows = [("", mean, "95%", "seeds", "group", "to the best")]
        for group in found.groups:
            rows += [(one_line(group.schedule), "", "", "", "", "")] if group.schedule else []
            for row in group.rows:
                value, low, high = (100 * each if share else each for each in (row.value, *row.interval))
                told = [number(each, low, high) for each in (value, low, high)]
                rows.append(
                    (f"{'  ' * bool(group.schedule)}{one_line(row.name)}", f"{told[0]}{'%' * share}",
                     f"[{', '.join(told[1:])}]" if isfinite(row.interval.low) else "", str(len(row.seeds)), row.letters,
                     called.get(row.place, ""))
                )  # fmt: skip
        kept = [column for column in range(6) if any(row[column] for row in rows[1:])]
        return tuple(tuple(row[column] for column in kept) for row in rows)

    def parts(self) -> Iterator[str]:
        """A line for each component in which the algorithms differ: who has which value, the commonest one last."""
        named = short_names(self.standing.settings)
        for component, row in self.components.iterrows():
            of_algorithm: dict[str, set[str]] = {}
            for setting, value in zip(self.standing.settings, row, strict=True):
                of_algorithm.setdefault(setting.algorithm, set()).add(value)
            having: dict[str, list[str]] = {}
            for setting, name, value in zip(self.standing.settings, named, row, strict=True):
                alike = len(of_algorithm) > 1 and len(of_algorithm[setting.algorithm]) == 1
                having.setdefault(value, []).append(setting.algorithm if alike else name)
            told = [
                f"{value} ({some(names)})"
                for value, names in sorted(((v, list(dict.fromkeys(n))) for v, n in having.items()), key=_length)
            ]
            yield f"  {one_line(str(component))}: {one_line('; '.join(told))}"


def _length(having: tuple[str, list[str]]) -> int:
    return len(having[1])


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
    if not stands.rows:
        raise RatioscopeError(f"None of the runs has a value of {chosen.metric}; choose another metric.")
    return ComparisonReport(chosen, stands, component_differences(groups), differences(members))


def _ranked(found: Standing, row: SettingRow) -> dict[str, Any]:
    """A setting, its estimates with their intervals."""
    setting, (middle, band) = found.settings[row.place], row.middle
    half = Number("mean of the middle half", middle, *band, remark(band_words(len(row.seeds))))
    noise = found.noise[row.place]
    note = Note(Kind.UNDEFINED, noise.reason) if noise.reason else remark(f"noise of {noise.basis}")
    return {
        "setting": setting.variant, "schedule": setting.schedule, "task": found.tasks[row.place],
        "seeds": len(row.seeds), "mean": Number("mean over seeds", row.value, *row.over_seeds, _SEEDS).to_json(),
        "here": Number("mean of these runs", row.value, *row.here, note).to_json(), "iqm": half.to_json(),
        "rank": row.rank, "letters": row.letters or None,
    }  # fmt: skip


def _pair(found: Standing, contrast: Contrast) -> dict[str, Any]:
    """Whether two settings of one schedule differ, all pairs judged together."""
    setting = found.settings[contrast.a]
    return {
        "schedule": setting.schedule, "a": contrast.names[0], "b": contrast.names[1],
        "difference": contrast.here.value, "differ_here": contrast.differs_here,
        "differ_with_other_seeds": contrast.differs_over_seeds,
    }  # fmt: skip


def _answer(contrast: Contrast) -> dict[str, Any]:
    """The best minus another, by itself; every estimate has value, interval and note."""
    (a, b), found, seeds = contrast.names, contrast.over_seeds, remark("bootstrap over seeds")
    label, (chance, interval) = f"{a} minus {b}", improvement(contrast)
    probability = Number(f"probability that {a} ends better", chance, *interval, seeds)
    return {
        "a": a,
        "b": b,
        "metric": contrast.metric,
        "sentence": f"{in_these_runs(contrast)}. {with_other_seeds(contrast)}",
        "ends": list(contrast.ends),
        "here": contrast.here.to_json(label),
        "reason": why_not(found, a, b, contrast.metric),
        "difference": Number(label, found.value, *found.interval, _SEEDS).to_json(),
        "probability_of_improvement": probability.to_json(),
        "seeds": list(found.seeds),
        "paired": found.paired,
        "pairs_of_seeds": dict(zip(("a_above", "b_above", "all"), found.wins, strict=True)),
        "seeds_needed": None if found.seeds_needed is None else found.seeds_needed._asdict(),
    }


def _prompts(found: Standing) -> Iterator[dict[str, Any]]:
    """Training reward of the best minus each of the others on the prompts that both saw in the steps of the end."""
    if found.metric in _JUDGED_BY_REWARD:
        for each in found.against_best:
            pair = pairs_by_seed(found.settings[each.a], found.settings[each.b])
            yield prompt_difference(pair, *_steps(found.ends[each.a])).to_json(*each.names)


def _steps(end: End) -> tuple[int | None, int | None]:
    """By tokens and time all steps."""
    return (int(end.places[0]), int(end.until)) if end.by == "step" and len(end.places) else (None, None)


def _fallen(collapse: Collapse) -> dict[str, Any]:
    fallen, of = collapse.seeds
    return {
        "setting": collapse.setting.label, "metric": collapse.metric, "best": collapse.best, "after": collapse.after,
        "since": collapse.since, "end": collapse.end, "seeds_fallen": fallen, "seeds": of,
    }  # fmt: skip
