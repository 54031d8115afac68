"""Everything that `ratioscope compare` says about a set of runs, as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import pandas as pd

from analysis.comparison.aggregates import FEWEST_RESAMPLED, band_words
from analysis.comparison.alignment import Axis, End, common_end
from analysis.comparison.configuration import component_differences, differences
from analysis.comparison.grouping import LAST_VALUES, Member, settings
from analysis.comparison.prompts import PromptDifference, pairs_by_seed, prompt_difference
from analysis.comparison.ranking import over_schedules, ranking
from analysis.comparison.verdict import Answer, verdict
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError

_UNITS: Mapping[Axis, str] = {"step": "step {:.0f}", "tokens": "{:,.0f} tokens", "time": "{:.4g} seconds"}


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
        return _plain(
            {
                "metric": self.metric,
                "by": self.end.by,
                "until": self.end.until,
                "ranking": self.ranking.to_dict(orient="records"),
                "over_schedules": self.over_schedules.reset_index().to_dict(orient="records"),
                "answers": [
                    asdict(answer)
                    | {"sentence": answer.sentence, "probability_of_improvement": answer.probability_of_improvement}
                    for answer in self.answers
                ],
                "prompts": [asdict(difference) for difference in self.prompts],
                "components": self.components.reset_index().to_dict(orient="records"),
                "differences": self.differences.to_dict(orient="index"),
            }
        )

    def text(self) -> str:
        """For the terminal."""
        where = _UNITS[self.end.by].format(self.end.until)
        parts = [
            f"{CATALOGUE[self.metric].title}: mean of the last {LAST_VALUES} logged values up to {where}, which every "
            "run reaches.\nlow, high: 95 % t interval of the mean over seeds; best: probability of the best mean;\n"
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
                what = f"reward of {answer.a} minus {answer.b} is {prompts.value:.3g} [{low:.3g}, {high:.3g}]"
                count = f"{prompts.pairs:,} pairs of {prompts.prompts:,} prompts"
                lines.append(f"  on the same prompts: {what} ({count}; not about other seeds)")
        parts.append("\n".join(lines))
        if len(self.components):
            parts += ["Components in which the settings differ:", _table(self.components)]
        return "\n\n".join(parts)


def report(members: Sequence[Member], metric: str, by: Axis = "step") -> Report:
    """Compare runs.

    Raises:
        RatioscopeError: the runs are fewer than two settings, the metric is not in the catalogue or has no value in
            any run, or a run does not have the axis.
    """
    if metric not in CATALOGUE:
        raise RatioscopeError(f"There is no metric {metric!r}; see ratioscope explain metrics.")
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
    return frame.to_string(float_format=lambda value: f"{value:.3g}", na_rep="-")


def _plain(value: Any) -> Any:
    """The same for JSON: what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value
