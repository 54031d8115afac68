"""What the list shows of a run besides its manifest: tokens, reward, worst finding.

What was found is kept on disk: the next server reads a few hundred bytes a run and opens no table. Who finds out, and
when, is `reader`'s.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import pandas as pd

from ratioscope.analysis.compare.grouping import end_value
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.course import level_moved, level_trend
from ratioscope.analysis.findings.fall import averaged_over, finite_values, level_of
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.findings.limits import limits_of
from ratioscope.analysis.overview.lights import lights_of
from ratioscope.analysis.overview.sentences import cause_ahead
from ratioscope.analysis.overview.sentences import overview_headline as answer_of
from ratioscope.analysis.runs.store import run_signature
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures.base import reduce
from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import entry_of

REWARD_POINTS = 40


@dataclass(frozen=True)
class Headline:
    """What a line of the list shows; a run without steps has an empty one."""

    tokens: int = 0
    reward: tuple[float, ...] = ()
    """Mean reward by step, at most REWARD_POINTS of them, the extremes kept."""
    last_reward: float | None = None
    """Mean of the last five steps that have one."""
    level: tuple[float, ...] = ()
    """What the run is for by step, evaluation accuracy or else means of the reward; as many of them."""
    level_end: float | None = None
    """Where it ends, the mean of its last values: what a comparison of runs compares."""
    change: str = ""
    """From where to where it went, in words; "": too few values."""
    level_metric: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each that has one."""
    lights: tuple[tuple[str, str], ...] = ()
    """State and sentence of each light, in the order of `lights.NAMES`; the state by its name in `LightState`."""
    severity: int = 0
    """Of the worst finding or light; 0: nothing is wrong."""
    rule: str = ""
    """Of the worst finding, or the cause that a check found in the run; where a light is worse, that in words."""
    sentence: str = ""
    """That finding in words, Markdown."""
    answer: str = ""
    """What the run's Overview says first, plain text."""
    last_step: int = -1
    """The last step that was on disk."""
    problem: str = ""
    """Why the run's tables cannot be read; empty when they can."""

    @property
    def worst(self) -> tuple[Severity | None, str]:
        return (Severity(self.severity) if self.severity else None, self.rule)

    @classmethod
    def read(cls, contents: str | bytes) -> Self:
        """From JSON of its fields."""
        fields = json.loads(contents)
        lights = tuple((state, sentence) for state, sentence in fields["lights"])
        return cls(**fields | {name: tuple(fields[name]) for name in ("reward", "level")} | {"lights": lights})


def read_headline(folder: Path, *, compute: bool = True) -> Headline | None:
    """The headline of a run, from disk where it is known there; None when it is not and may not be computed."""
    try:
        limits = limits_of(folder)
        kept = entry_of("headlines", str(folder.resolve()), run_signature(folder), repr(limits))
        known = kept.read(Headline.read)
        if known is not None:
            return known
        if not compute:
            return None
        opened = open_folder(folder, limits=limits)
    except RatioscopeError as error:
        return Headline(problem=str(error))
    findings, values = opened.findings, opened.summary.values
    shown = lights_of(opened) if len(values) else ()
    worst = max(shown, key=lambda light: light.severity, default=None)
    ahead = cause_ahead(findings, opened.problems)
    lead = ahead or (findings[0] if findings else None)
    severity = lead.severity if lead else Severity.NONE
    rule = ahead.of_cause if ahead else lead.rule if lead else ""
    if worst is not None and worst.severity > severity:
        severity, rule = worst.severity, f"{worst.name.lower()} {worst.state.word}"
    reward, trend = finite_values(opened.summary, "reward"), level_trend(opened.summary)
    metric = trend.metric if trend else ""
    window = averaged_over(metric, len(reward))
    level = level_of(opened.summary, metric, window) if metric else pd.Series(dtype=float)
    ends = finite_values(opened.summary, metric) if metric else level
    logged = {key: finite_values(opened.summary, key) for key in CATALOGUE}
    found = Headline(
        tokens=int(values["n_tokens"].sum()),
        reward=_points(reward),
        last_reward=float(reward.tail(5).mean()) if len(reward) else None,
        level=_points(level),
        level_end=end_value(ends) if len(ends) else None,
        change=level_moved(opened.summary, limits),
        level_metric=metric,
        metrics={key: _points(series.tail(1))[0] for key, series in logged.items() if len(series)},
        lights=tuple((light.state.name, light.sentence) for light in shown),
        severity=int(severity),
        rule=rule,
        sentence=lead.sentence if lead else "",
        answer=answer_of(opened.facts(), findings, opened.remarks),
        last_step=opened.summary.last_step,
    )
    if opened.run.status != "running":
        kept.put(json.dumps(asdict(found)).encode())
    return found


def _points(series: "pd.Series[float]") -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in reduce(series, REWARD_POINTS))


def found(folder: Path) -> Headline:
    """The headline of a run, whatever is wrong with it: the others are read, and it is not read for ever."""
    try:
        return read_headline(folder) or Headline()
    except Exception as error:  # noqa: BLE001 - one run that cannot be read must not end the list
        return Headline(problem=f"{folder}: cannot be read ({type(error).__name__}).")
