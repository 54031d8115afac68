"""Tokens by the sign of their advantage and the side of 1 that their ratio is on: who drives the gradient?

What is logged of each quadrant is `distributions.quadrants`. Apart from `clipping`, whose what-if needs torch: that
takes seconds to import, for those who only want to know what was done.
"""

import pandas as pd

from ratioscope.analysis.findings.numbers import percent

QUADRANTS = [(sign, side) for sign in ("A > 0", "A < 0") for side in ("ρ > 1", "ρ ≤ 1")]


def by_quadrant(logged: pd.DataFrame, shares: pd.DataFrame | None) -> pd.DataFrame:
    """What was logged beside `clipping.before_the_gate`, in the order of `QUADRANTS`."""
    frame = pd.DataFrame(QUADRANTS, columns=["advantage", "ratio"])
    for part in (logged, shares):
        if part is not None and len(part):
            frame = frame.merge(part, on=["advantage", "ratio"], how="left")
    return frame[frame["tokens"] > 0] if "tokens" in frame else frame.iloc[:0]


def quadrant_sentence(frame: pd.DataFrame) -> str:
    """Who drives the gradient, of `analysis.ratios.distributions.quadrants`."""
    rows = frame.to_dict("records")
    known = [row for row in rows if row["gradient"] >= 0]
    if not known:
        return "The gradient of single tokens is not logged in these steps."
    top = max(known, key=lambda row: row["gradient"])
    text = f"Tokens with {top['advantage']} and {top['ratio']} carry {percent(top['gradient'])} of the gradient"
    text += f" and are {percent(top['share'])} of the tokens with an advantage."
    clipped = [row for row in rows if row["clipped"] > 0]
    if clipped:
        most = max(clipped, key=lambda row: row["clipped"])
        text += f" Most is clipped where {most['advantage']} and {most['ratio']}: {percent(most['clipped'])}."
    return text
