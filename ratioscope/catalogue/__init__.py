"""What every number means: one entry per metric, read by tooltips, `ratioscope explain`, findings and axis titles.

Keys of `CATALOGUE` are those of the step summary; `ENTRIES` has those of the theory pages as well. `source` names section or equation of one of `ratioscope.sources.SOURCES`; "usual" is textbook
knowledge. `moment` says which moment of the ratio an estimate needs, and with that when its sample value can be trusted
(`ratioscope.metric`).
"""

from ratioscope.catalogue import divergences, learning, theory, total_variation, weights
from ratioscope.catalogue.thresholds import EPSILON, EPSILON_STALE, THRESHOLDS
from ratioscope.catalogue.typeset import formula_text
from ratioscope.metric import MOST_RELIANCE, MOST_SPREAD, Metric, Moment
from ratioscope.sources import SOURCES, titled

__all__ = ["CATALOGUE", "ENTRIES", "EPSILON", "EPSILON_STALE", "THRESHOLDS", "explain"]

CATALOGUE: dict[str, Metric] = {
    entry.key: entry for entry in (*total_variation.ENTRIES, *divergences.ENTRIES, *weights.ENTRIES, *learning.ENTRIES)
}
ENTRIES = CATALOGUE | {entry.key: entry for entry in theory.ENTRIES}


def explain(key: str) -> str:
    """A catalogue entry as text, for the command line."""
    entry = ENTRIES[key]
    lines = [
        f"{entry.title} ({entry.key})",
        "",
        entry.definition,
        f"  formula   {formula_text(entry.formula)}",
        f"  source    {titled(entry.source)}",
    ]
    for label, text in (("unit", entry.unit), ("better", entry.better), ("read", entry.reading), ("do", entry.remedy)):
        if text:
            lines.append(f"  {label:<9} {text}")
    if key in CATALOGUE:
        lines.append(f"  of        {entry.population.value}")
    if entry.moment is Moment.SECOND:
        lines.append(f"  trust     unreliable when {entry.reliance} exceeds {MOST_RELIANCE:g}")
    if entry.spread:
        lines.append(f"  trust     unreliable in all steps of a run when {entry.spread} often exceeds {MOST_SPREAD:g}")
    cited = [source for name, source in SOURCES.items() if name in entry.source]
    lines += [f"            {' '.join(filter(None, (source.title, source.address)))}" for source in cited]
    return "\n".join(lines)
