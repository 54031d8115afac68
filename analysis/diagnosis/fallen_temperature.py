"""A training reward that falls where the sampling temperature is changed: responses are drawn otherwise from then on.

changed = reward_with_temperature(evidence)     # None: no temperature was changed, or the reward did not fall there
"""

from dataclasses import dataclass
from math import sqrt

import pandas as pd

from ratioscope.analysis.diagnosis.around import CLEAR, fall_seen, noise_of_one
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.relations import relations
from ratioscope.run_format import schema

_MOVED = 0.1
"""Of a temperature, by which it is changed: it is a setting, which has no noise."""
_FEWEST = 5
"""Steps on either side, over which a reward is averaged where it is to fall at once."""
_AT_ONCE = 0.5
"""Of what is lost, that must be lost between the steps right before and right after."""


@dataclass(frozen=True)
class ChangedTemperature:
    """A step from which on an environment, or all, is sampled at another temperature, and what the reward did there."""

    step: int
    environment: str
    """The one with most of the responses whose temperature changed; "" where there are none, or it is all of them."""
    was: float
    now: float
    """The temperature before and after."""
    before: float
    after: float
    """Mean reward before and after; at the mixture of environments afterwards."""
    first: int
    """The first step of those before, from the start or the change before on."""
    low: tuple[int, ...]
    """The steps since, up to the next change."""

    @property
    def words(self) -> str:
        """What became of the temperature, as inside of a sentence."""
        whose = f" of {self.environment!r}" if self.environment else ""
        verb = "rose" if self.now > self.was else "fell"
        return f"the sampling temperature{whose} {verb} from {number(self.was)} to {number(self.now)}"

    @property
    def lost(self) -> float:
        return self.before - self.after


def reward_with_temperature(evidence: RunEvidence) -> ChangedTemperature | None:
    """The change of a temperature with which the reward fell most, at once and beyond its noise."""

    def look() -> ChangedTemperature | None:
        if evidence.run is None or not evidence.log.meets(("sequences.temperature",)):
            return None
        with relations(evidence.run, tables=(schema.SEQUENCES,)) as connection:
            rows = connection.execute(
                """
                select step, coalesce(environment, '') as environment, avg(reward::double) as reward,
                    avg(temperature::double) as temperature, count(*) as n
                from sequence where isfinite(reward) and isfinite(temperature) and dropped is null
                group by all order by step
                """
            ).df()
        found = _changes(rows)
        return max(found, key=lambda each: each.lost, default=None)

    return evidence.once("reward with the temperature", look)


def _changes(rows: pd.DataFrame) -> list[ChangedTemperature]:
    """Changes of a temperature with which the reward fell.

    Args:
        rows: one a step and environment: step, environment, reward, temperature, n.
    """
    temperature, reward, n = (
        rows.pivot(index="step", columns="environment", values=name) for name in ("temperature", "reward", "n")
    )
    temperature = temperature.ffill()
    moved = (temperature / temperature.shift(1) - 1).abs() > _MOVED
    at = [place for place, any_moved in enumerate(moved.any(axis=1)) if any_moved]
    found = []
    for first, place, end in zip([0, *at], at, [*at[1:], len(reward)], strict=False):
        well, low = _level(reward.iloc[first:end], n.iloc[first:end].fillna(0.0), place - first)
        if min(len(well), len(low)) < _FEWEST:
            continue
        spread = noise_of_one(pd.concat([well, low]), min(len(well), len(low)))
        lost = float(well.mean() - low.mean())
        near = float(well.tail(_FEWEST).mean() - low.head(_FEWEST).mean())
        clear = lost > CLEAR * spread * sqrt(1 / len(well) + 1 / len(low))
        if not (clear and near > max(_AT_ONCE * lost, CLEAR / 2 * spread * sqrt(2 / _FEWEST))):
            continue
        which, of = moved.iloc[place], n.iloc[place:end].sum()
        part = _level(reward.loc[:, which].iloc[first:end], n.loc[:, which].iloc[first:end].fillna(0.0), place - first)
        lost_there = float(part[0].mean() - part[1].mean()) * float(of[which].sum() / of.sum())
        if not lost_there > _AT_ONCE * lost:  # it was lost where no temperature changed
            continue
        most = str(of[which].idxmax())
        alone = len(temperature.columns) == 1 or _one(temperature.iloc[place - 1 : place + 1])
        said = "" if alone else most
        was, now = (float(temperature[most].iloc[each]) for each in (place - 1, place))
        steps = tuple(int(step) for step in low.index)
        means = float(well.mean()), float(low.mean())
        found.append(ChangedTemperature(int(reward.index[place]), said, was, now, *means, int(well.index[0]), steps))
    return found


def _level(reward: pd.DataFrame, n: pd.DataFrame, place: int) -> "tuple[pd.Series[float], pd.Series[float]]":
    """The reward before and after a place, at the mixture of environments after it."""
    usual, later = reward.mean(), n.iloc[place:].sum()
    level = (reward - usual).mul(n).sum(axis=1) / n.sum(axis=1) + float((usual * later).sum() / later.sum())
    return level.iloc[:place].dropna(), level.iloc[place:].dropna()


def _one(temperatures: pd.DataFrame) -> bool:
    """Whether all environments have one temperature, in each of some steps."""
    return bool((temperatures.max(axis=1) - temperatures.min(axis=1) < _MOVED * temperatures.min(axis=1)).all())


@mark(needs=(("sequences.temperature",), ("sequences.reward",)), limit=_AT_ONCE)
def temperature_changed(evidence: RunEvidence) -> MarkReading | None:
    """The training reward falls where the sampling temperature changes; share of the fall that is lost there."""
    fall, changed = fall_seen(evidence), reward_with_temperature(evidence)
    if fall is None or fall.metric != "reward":
        return None
    if changed is None or not fall.best_step - fall.window < changed.step <= fall.found:
        return MarkReading(0.0, "")
    return MarkReading(
        changed.lost / (fall.best - fall.after),
        f"{changed.words} in step {changed.step}, and the reward fell from {number(changed.before, digits=2)} to "
        f"{number(changed.after, digits=2)} with it",
        (changed.step,), ("temperature",),
    )  # fmt: skip
