"""How ratios grow with the length: the first t tokens of every response, for t = 1, 2, ... (S1 7).

table = growth(open_run("runs/x"), 10, 20)
table.rows      # one row a number of tokens and kind of ratio: quantiles, spread with interval, what theory says
table.answer    # "The product over 64 tokens spreads 7.9 × as much as one token's ratio; independent tokens: 8.0 ×."

Cutting responses off at t tokens compares the same responses at every length, which buckets of finished responses
(`analysis.ratios.lengths`) cannot: those that end late differ in more than their length.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.drift.pairs import PAIRS, create_units
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.ratios.lengths import FEWEST_SEQUENCES
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import NO_INTERVAL, cluster_interval
from ratioscope.errors import unknown
from ratioscope.metric import not_logged
from ratioscope.tails import Array

KINDS = ("token", "geometric", "product")
SHARES = {"p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
_MOST_LENGTHS = 10

COLUMNS = ("tokens", "kind", "n", *SHARES, "spread", "spread_low", "spread_high", "spread_independent", "note")


@dataclass(frozen=True)
class Growth:
    """Ratios of the first t tokens of every response.

    `rows` has one row for each t and kind of ratio (`KINDS`: of every token, their geometric mean, their product):
        tokens: t; n: responses of at least t tokens;
        p05 ... p95: quantiles of the ratio;
        spread (_low, _high: 95 %): standard deviation of its logarithm, in nats;
        spread_independent: what independent tokens would give: the token's spread times sqrt(t) for the product,
            divided by sqrt(t) for the geometric mean;
        note: why something is missing.
    """

    rows: pd.DataFrame
    n_responses: int
    answer: str
    """What the rows say, in one sentence."""


def growth(run: Run, first: int, last: int, *, pair: str = "current/behavior") -> Growth:
    """Quantiles and spread of a pair's ratios against the number of tokens, over the steps first..last.

    A response with an unusable token is left out, as in the step summary.

    Raises:
        RatioscopeError: no such pair, or a file vanished while it was read.
    """
    if pair not in PAIRS:
        raise unknown("a pair", pair, PAIRS)
    with relations(run, first, last) as connection:
        create_units(connection, PAIRS[pair])
        rows = connection.execute(
            "select step, group_id, seq_id, z, missing, bool_and(usable) over (partition by step, seq_id) as usable "
            "from token_unit order by step, seq_id, position"
        ).df()
    used = rows[rows["usable"]]
    if used.empty:
        missing = rows["missing"].dropna().unique()
        reason = "every response has an unusable token" if len(rows) else "there is no token"
        reason = not_logged(missing[0]).text if len(missing) else reason
        return Growth(pd.DataFrame(columns=COLUMNS), 0, f"No sequence ratio in these steps: {reason}.")
    step, sequence, z = (used[name].to_numpy() for name in ("step", "seq_id", "z"))
    starts = np.flatnonzero(np.r_[True, (np.diff(step) != 0) | (np.diff(sequence) != 0)])
    length = np.diff(starts, append=len(z))
    group = used.groupby(["step", "group_id"]).ngroup().to_numpy()[starts]
    response = np.repeat(np.arange(len(starts)), length)
    place = np.arange(len(z)) - starts[response]
    product, reached = np.zeros(len(starts)), 0  # logarithm of the product of the tokens before `reached`
    found = []
    with np.errstate(invalid="ignore"):  # what is not finite is noted
        for t in _lengths(length):
            added = (place >= reached) & (place < t)
            product += np.bincount(response[added], z[added], len(starts))
            reached, long = t, length >= t
            shown = (place < t) & long[response]
            found += _rows(t, product[long], group[long], z[shown], group[response[shown]])
    table = pd.DataFrame(found, columns=COLUMNS)
    return Growth(table, len(starts), _answer(table))


def _lengths(length: NDArray[np.intp]) -> list[int]:
    """Where to look: evenly in the logarithm, up to the longest prefix that enough responses have."""
    enough = min(FEWEST_SEQUENCES, max(1, len(length) // 2))
    longest = int(np.sort(length)[-enough])
    return sorted({round(t) for t in np.geomspace(1, longest, _MOST_LENGTHS)})


def _rows(
    t: int, product: Array, group: NDArray[np.intp], token: Array, token_group: NDArray[np.intp]
) -> list[dict[str, object]]:
    """The rows of one t. Args: logarithms of the products, (n,), and of the tokens before t, with their groups."""
    one = _spread(token)
    logs = {"token": (token, token_group), "geometric": (product / t, group), "product": (product, group)}
    theory = {"token": one, "geometric": one / np.sqrt(t), "product": one * np.sqrt(t)}
    rows: list[dict[str, object]] = []
    for kind in KINDS:
        values, groups = logs[kind]
        infinite = int((~np.isfinite(values)).sum())
        quantiles = np.exp(np.quantile(values, list(SHARES.values()), method="lower"))
        low, high = _spread_interval(values, groups)
        note = f"{infinite} of {len(values)} ratios are 0 or infinite: no spread" if infinite else ""
        row = {"tokens": t, "kind": kind, "n": len(product), "spread": _spread(values)}
        row |= {"spread_low": low, "spread_high": high, "spread_independent": theory[kind], "note": note}
        rows.append(row | dict(zip(SHARES, quantiles.tolist(), strict=True)))
    return rows


def _spread(values: Array) -> float:
    """Standard deviation; NaN for a single value and for infinite ones."""
    return float(np.std(values, ddof=1)) if len(values) > 1 and np.isfinite(values).all() else float("nan")


def _spread_interval(values: Array, group: NDArray[np.intp]) -> tuple[float, float]:
    """95 % over prompt groups: of the variance, a mean over the groups' values, then its root."""
    if len(values) < 2 or not np.isfinite(values).all():
        return NO_INTERVAL
    _, number = np.unique(group, return_inverse=True)
    squares = np.bincount(number, (values - values.mean()) ** 2)
    low, high = cluster_interval(squares.astype(float), np.bincount(number).astype(float))
    scale = len(values) / (len(values) - 1)  # as the spread counts
    return float(np.sqrt(max(low, 0) * scale)) if low == low else low, float(np.sqrt(high * scale))


def _answer(table: pd.DataFrame) -> str:
    """The longest prefix against a single token."""
    last = table.iloc[-1]
    t, spread, expected = int(last["tokens"]), last["spread"], last["spread_independent"]
    if t == 1:
        return "The responses are single tokens: product, geometric mean and token ratio are the same."
    if np.isnan(spread):
        return f"The spread over {t} tokens is unknown: {last['note'] or 'there is only one response'}."
    one = expected / np.sqrt(t)
    if not one > 0:
        return "The ratios do not spread: there is no growth to measure."
    interval = ""
    if np.isfinite(last["spread_low"]):
        interval = f" ({last['spread_low'] / one:.1f} to {last['spread_high'] / one:.1f})"
    return (
        f"Over the first {t} tokens the log of the product spreads {spread / one:.1f} ×{interval} as much as that "
        f"of a token's ratio. Independent tokens would give {np.sqrt(t):.1f} ×. "
        f"The geometric mean spreads {number(spread / one / t)} × as much, which hides the growth."
    )
