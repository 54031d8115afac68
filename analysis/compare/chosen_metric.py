"""By what runs are compared: the metric that was asked for, or where no two settings have it the next sensible one."""

from collections.abc import Sequence
from typing import NamedTuple

from ratioscope.analysis.compare.grouping import Setting, check_metric
from ratioscope.analysis.compare.wording import lowered
from ratioscope.catalogue import CATALOGUE

# What a run is for, best measured first.
SENSIBLE = ("eval_accuracy", "reward")


class Chosen(NamedTuple):
    """A metric, and what to say where it is not the one that was asked for."""

    metric: str
    instead: str
    """A sentence; empty where it is."""


def chosen_metric(settings: Sequence[Setting], asked: str | None = None) -> Chosen:
    """The metric that was asked for, if two settings have a value of it; else the next of `SENSIBLE` that two have.

    Args:
        asked: None: nothing in particular, which is evaluation accuracy.

    Raises:
        RatioscopeError: there is no such metric.
    """
    wanted = asked or SENSIBLE[0]
    check_metric(wanted)
    counts = {metric: _with_values(settings, metric) for metric in dict.fromkeys((wanted, *SENSIBLE))}
    enough = min(2, len(settings))
    metric = next((metric for metric, count in counts.items() if count >= enough), wanted)
    if metric == wanted:
        return Chosen(metric, "")
    who = "No run has" if not counts[wanted] else "The runs of one setting only have"
    title, other = (lowered(CATALOGUE[key].title) for key in (wanted, metric))
    reason = missing_reason(settings, wanted)
    return Chosen(metric, f"{who} a value of {title}{reason and f' ({reason})'}: compared by {other}.")


def _with_values(settings: Sequence[Setting], metric: str) -> int:
    """How many settings have a value."""
    return sum(any(member.summary.values[metric].notna().any() for member in each.members) for each in settings)


def missing_reason(settings: Sequence[Setting], metric: str) -> str:
    """Why the metric is missing, as the summary of the first run that says so has it; "" where none does."""
    notes = (member.summary.last_note(metric) for setting in settings for member in setting.members)
    note = next(filter(None, notes), None)
    return note.text if note else ""
