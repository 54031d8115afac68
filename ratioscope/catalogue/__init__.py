"""What every number means: one entry a metric, read by tooltips, `ratioscope explain`, findings and axis titles.

Keys are those of the step summary. `source` names section or equation of one of `SOURCES`; "usual" is textbook
knowledge. `moment` says which moment of the ratio an estimate needs, and with that when its sample value can be trusted
(`ratioscope.metric`).
"""

from ratioscope.catalogue import divergences, learning, weights
from ratioscope.metric import KHAT_LIMIT, SOURCES, Metric, Moment, Threshold

CATALOGUE: dict[str, Metric] = {
    entry.key: entry for entry in (*divergences.ENTRIES, *weights.ENTRIES, *learning.ENTRIES)
}


EPSILON = Threshold(
    "epsilon", "ε", 0.2, "S0 summary, key parameters", "clip width of an update; an update may drift by ε/2"
)
EPSILON_STALE = Threshold(
    "epsilon_stale",
    "ε_stale",
    0.4,
    "S0 5.6, key parameters",
    "largest deviation of a usable ratio from 1; staleness should stay below ε_stale/2",
)
THRESHOLDS = {threshold.name: threshold for threshold in (EPSILON, EPSILON_STALE)}


def explain(key: str) -> str:
    """A catalogue entry as text, for the command line."""
    entry = CATALOGUE[key]
    lines = [
        f"{entry.title} ({entry.key})",
        "",
        entry.definition,
        f"  formula   {entry.formula}",
        f"  source    {entry.source}",
    ]
    for label, text in (("unit", entry.unit), ("better", entry.better), ("read", entry.reading), ("do", entry.remedy)):
        if text:
            lines.append(f"  {label:<9} {text}")
    if entry.moment is not Moment.BOUNDED:
        lines.append(f"  trust     unreliable when {' or '.join(entry.khat)} exceeds {KHAT_LIMIT[entry.moment]:g}")
    lines += [f"  {name}        {title}" for name, title in SOURCES.items() if name in entry.source]
    return "\n".join(lines)
