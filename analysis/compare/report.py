"""Everything that `ratioscope compare` says about a set of runs, as text and as JSON."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED, band_words
from ratioscope.analysis.compare.alignment import Axis, End, common_end
from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import LAST_VALUES, Member, check_metric, settings
from ratioscope.analysis.compare.prompts import PromptDifference, pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.ranking import over_schedules, ranking
from ratioscope.analysis.compare.verdicts.verdict import Answer, verdict
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import bracketed, number
from ratioscope.analysis.findings.plain import plain
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.notes import remark
from ratioscope.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class Report:
    """Settings ranked, the best one against each of the others, and in what they differ.

    The best is chosen by the data that it is then compared on: of many settings with few seeds the luckiest leads.
    """

    metric: str
    end: End
    ranking: pd.DataFrame
    over_schedules: pd.DataFrame
    answers: tuple[Answer, ...]
    prompts: tuple[PromptDifference, ...]
    """Reward on common prompts, for each answer."""
    components: pd.DataFrame
    differences: pd.DataFrame

    def to_json(self) -> dict[str, Any]:
        """The stable shape of `ratioscope compare --json`: undefined is null."""
        return plain(
            {
                "schema_version": SCHEMA_VERSION,
                "metric": self.metric,
                "by": self.end.by,
                "until": self.end.until,
                "ranking": [_ranked(row) for row in self.ranking.to_dict(orient="records")],
                "over_schedules": [_pooled(row) for row in self.over_schedules.reset_index().to_dict(orient="records")],
                "answers": [answer.to_json() for answer in self.answers],
                "caveat": self.caveat if len(self.answers) > 1 else None,
                "prompts": [
                    difference.to_json(answer.a, answer.b)
                    for answer, difference in zip(self.answers, self.prompts, strict=True)
                ],
                "components": self.components.reset_index().to_dict(orient="records"),
                "differences": self.differences.to_dict(orient="index"),
            }
        )

    @property
    def caveat(self) -> str:
        """What several answers at once are not."""
        n = len(self.answers)
        return f"{n} answers at 95 % each, after choosing the best of {n + 1}: one of them may well be chance"

    def text(self) -> str:
        """For the terminal."""
        parts = [
            f"{CATALOGUE[self.metric].title}: mean of the last {LAST_VALUES} logged values up to {self.end.words}, "
            "which every run reaches.\n"
            "low, high: 95 % t interval of the mean over seeds; best: probability of the best mean;\n"
            f"iqm: mean of the middle half (of all, with fewer than {FEWEST_RESAMPLED} seeds), with the band named.",
            _table(self.ranking.assign(band=self.ranking["seeds"].map(band_words)).set_index("setting")),
        ]
        if len(self.over_schedules):
            parts += ["Over all schedules (stratified bootstrap):", _table(self.over_schedules)]
        lines = []
        for answer, prompts in zip(self.answers, self.prompts, strict=True):
            lines.append(answer.sentence)
            if prompts.pairs:
                low, high = prompts.interval
                what = f"reward of {answer.a} minus {answer.b} is {bracketed(prompts.value, low, high)}"
                count = f"{prompts.pairs:,} pairs of {prompts.prompts:,} prompts"
                lines.append(f"  on the same prompts: {what} ({count}; not about other seeds)")
        if len(self.answers) > 1:
            lines.append(f"({self.caveat})")
        parts.append("\n".join(lines))
        if len(self.components):
            parts += ["Components in which the settings differ:", _table(self.components)]
        return "\n\n".join(parts)


def default_metric(members: Sequence[Member]) -> str:
    """What runs are compared by where nothing is asked for: evaluation accuracy, where no run logs it the reward."""
    logged = any(member.summary.values["eval_accuracy"].notna().any() for member in members)
    return "eval_accuracy" if logged else "reward"


def report(members: Sequence[Member], metric: str, by: Axis = "step") -> Report:
    """Compare runs.

    Raises:
        RatioscopeError: the runs are fewer than two settings, the metric is not in the catalogue or has no value in
            any run, or a run does not have the axis.
    """
    check_metric(metric)
    groups = settings(members)
    if len(groups) < 2:
        raise RatioscopeError(
            f"{len(members)} run{'s' * (len(members) != 1)} of {len(groups)} setting cannot be compared; "
            "name runs that differ in more than their seed."
        )
    end = common_end(groups, metric, by)
    if not len(end.places):
        raise RatioscopeError(f"None of the runs has a value of {metric}; choose another metric.")
    ranked = ranking(groups, metric, end)
    best, *others = [groups[int(place)] for place in ranked.index]
    return Report(
        metric, end, ranked, over_schedules(groups, metric, end),
        tuple(verdict(best, other, metric, end) for other in others),
        tuple(prompt_difference(pairs_by_seed(best, other)) for other in others),
        component_differences(groups), differences(members),
    )  # fmt: skip


def _table(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format=number, na_rep="-")


def _ranked(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row of `ranking`, its estimates with their intervals."""
    mean = Number("mean over seeds", row["mean"], row["low"], row["high"], remark("95 % t interval over seeds"))
    band = remark(band_words(row["seeds"]))
    middle = Number("mean of the middle half", row["iqm"], row["iqm_low"], row["iqm_high"], band)
    names = {key: row[key] for key in ("setting", "schedule", "seeds")}
    return names | {"mean": mean.to_json(), "iqm": middle.to_json(), "best": row["best"]}


def _pooled(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row of `over_schedules`, its estimates with their intervals."""
    note = remark("stratified bootstrap")
    labels = {"mean": "mean over runs", "iqm": "mean of the middle half"}
    estimates = {
        key: Number(label, row[key], row[f"{key}_low"], row[f"{key}_high"], note).to_json()
        for key, label in labels.items()
    }
    return {"variant": row["variant"], "seeds": row["seeds"], **estimates}
