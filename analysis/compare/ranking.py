"""Settings in order of their end, and variants over all schedules that they were run under."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.aggregates import DRAWS, FEWEST_RESAMPLED, StatisticName, aggregate, t_interval
from ratioscope.analysis.compare.alignment import End, common_end, ends
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.possible import possible
from ratioscope.catalogue import CATALOGUE
from ratioscope.tails import Array


def ranking(settings: Sequence[Setting], metric: str, end: End | None = None) -> pd.DataFrame:
    """The settings by the mean over seeds of what they end with (`ends`), best first.

    Args:
        end: where the runs are compared; None: at the last step that every run reaches.

    Returns:
        Indexed by the setting's place in `settings`: setting, schedule, seeds; mean with low and high (95 % t
        interval over seeds); iqm with iqm_low and iqm_high (`aggregate`); best, the probability that no other setting
        has a better mean (`probability_best`).

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    end = end or common_end(settings, metric)
    values = _ends(settings, metric, end)
    best = probability_best(values, lower_is_better=_lower_is_better(metric))
    rows, limits = [], possible(metric, settings, np.concatenate([[], *values]))
    for setting, seeds, probability in zip(settings, values, best, strict=True):
        mean, *within = t_interval(seeds)
        low, high = map(float, np.clip(within, *limits))  # a mean that is infinite stays so
        middle = aggregate(pd.DataFrame([seeds]), "iqm").iloc[0]
        rows.append(
            {
                "setting": setting.variant, "schedule": setting.schedule, "seeds": len(seeds),
                "mean": float(mean), "low": low, "high": high,
                "iqm": middle["value"], "iqm_low": middle["low"], "iqm_high": middle["high"],
                "best": probability,
            }
        )  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.sort_values("mean", ascending=_lower_is_better(metric), kind="stable")


def probability_best(values: Sequence[Array], *, lower_is_better: bool = False) -> Array:
    """The probability that a setting has the best mean of all, (n_settings,); ties are shared.

    Each setting's mean is drawn from the Student t distribution that its 95 % interval comes from (a parametric
    bootstrap): resampling two or three seeds would be far too sure. Settings are drawn independently.

    Args:
        values: the ends of each setting, one a seed.

    Returns:
        NaN for a setting of fewer than 4 seeds, which are too few to speak of probabilities; the others are compared
        among themselves.
    """
    result = np.full(len(values), np.nan)
    known = [place for place, seeds in enumerate(values) if len(seeds) >= FEWEST_RESAMPLED and np.isfinite(seeds).all()]
    if not known:
        return result
    generator = np.random.default_rng(0)
    # In the order of the numbers, so that the order of the settings does not change the draws.
    known.sort(key=lambda place: tuple(values[place]))
    drawn = np.stack(
        [
            seeds.mean() + generator.standard_t(len(seeds) - 1, 10 * DRAWS) * seeds.std(ddof=1) / len(seeds) ** 0.5
            for seeds in (values[place] for place in known)
        ]
    )
    drawn = -drawn if lower_is_better else drawn
    first = drawn == drawn.max(axis=0)
    result[known] = (first / first.sum(axis=0)).mean(axis=1)
    return result


def over_schedules(settings: Sequence[Setting], metric: str, end: End | None = None) -> pd.DataFrame:
    """Each variant over all schedules, best mean first: its runs' ends pooled, resampled inside their schedules.

    Only variants that were run under every schedule take part: otherwise the schedules would decide.

    Returns:
        Indexed by variant: seeds (runs in all); mean, mean_low, mean_high; iqm, iqm_low, iqm_high, with 95 % of a
        stratified bootstrap, NaN where a schedule has a single seed. Empty unless two variants share two schedules.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    end = end or common_end(settings, metric)
    schedules = {setting.schedule for setting in settings}
    variants: dict[str, list[Setting]] = {}
    for setting in settings:
        variants.setdefault(setting.variant, []).append(setting)
    complete = {name: blocks for name, blocks in variants.items() if {s.schedule for s in blocks} == schedules}
    if len(schedules) < 2 or len(complete) < 2:
        return pd.DataFrame(columns=_OVER_SCHEDULES, index=pd.Index([], name="variant"))
    rows = []
    for blocks in complete.values():
        values = _ends(blocks, metric, end)
        strata = np.repeat(np.arange(len(blocks)), [len(seeds) for seeds in values]).tolist()
        pooled = pd.DataFrame([np.concatenate(values)])
        numbers = [aggregate(pooled, name, strata)[["value", "low", "high"]].iloc[0] for name in _STATISTICS]
        rows.append([len(strata), *np.concatenate(numbers).tolist()])
    frame = pd.DataFrame(rows, columns=_OVER_SCHEDULES, index=pd.Index(list(complete), name="variant"))
    return frame.sort_values("mean", ascending=_lower_is_better(metric), kind="stable")


_STATISTICS: tuple[StatisticName, ...] = ("mean", "iqm")
_OVER_SCHEDULES = ["seeds", *(f"{name}{end}" for name in _STATISTICS for end in ("", "_low", "_high"))]


def _ends(settings: Sequence[Setting], metric: str, end: End) -> list[Array]:
    return [np.asarray(ends(setting, metric, end), dtype=float) for setting in settings]


def _lower_is_better(metric: str) -> bool:
    return CATALOGUE[metric].better == "lower"
