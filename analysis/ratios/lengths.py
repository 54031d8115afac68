"""The length trap: how the sequence ratio W, a product over the tokens, spreads as responses get longer.

trap = length_trap(open_run("runs/x"))
trap.answer     # "log W spreads 3.1 × (2.8 to 3.4) as much in the longest responses ... independent tokens: 2.0 ×."
trap.buckets    # one row a bucket of response lengths

Were the tokens of a response independent, the spread of log W would grow like the square root of the length, and
1 + chi2 of W would be (1 + chi2 of a token) to the power of the length (S1 7). What is observed beyond that is
dependence inside responses. The geometric mean W^(1/T) hides the growth, it does not remove it.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.drift.pairs import PAIRS, create_units, measure_units
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import Interval, percentile_interval, resampled_sums
from ratioscope.errors import unknown
from ratioscope.metric import not_logged
from ratioscope.tails import Array

# A spread from fewer sequences than this says little.
FEWEST_SEQUENCES = 20

COLUMNS = (
    *("shortest", "longest", "mean_length", "n", "n_undefined", "n_groups"),
    *("spread_log_w", "spread_log_w_low", "spread_log_w_high", "spread_independent"),
    *("spread_geometric", "spread_token"),
    *("log1p_chi2", "log1p_chi2_low", "log1p_chi2_high", "log1p_chi2_predicted", "khat", "note"),
)


@dataclass(frozen=True)
class LengthTrap:
    """Sequence ratios by response length.

    `buckets` has one row a bucket, shortest responses first:
        shortest, longest, mean_length: of its responses, in tokens; n, n_undefined: those with and without a W;
        n_groups: prompt groups of n;
        spread_log_w (_low, _high: 95 %), spread_geometric, spread_token: standard deviation of the log of W, of its
            geometric mean and of the token ratios, in nats; spread_independent: sqrt(mean_length) * spread_token;
        log1p_chi2 (_low, _high): log(1 + chi2) of W as measured; log1p_chi2_predicted: mean_length * log(1 + chi2) of
            the tokens; khat: the tail index of W;
        note: why something is missing or cannot be trusted.
    """

    buckets: pd.DataFrame
    answer: str
    """What the buckets say, in one sentence."""


def length_trap(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    *,
    pair: str = "current/behavior",
    most_buckets: int = 5,
) -> LengthTrap:
    """Spread and chi2 of a pair's sequence ratios by response length, over the steps first..last, both included.

    Spreads are over what was sampled; chi2 under another policy than behavior carries its weight (`drift.pairs`).

    Raises:
        RatioscopeError: no such pair, or a file vanished while it was read.
    """
    if pair not in PAIRS:
        raise unknown("a pair", pair, PAIRS)
    with relations(run, first, last) as connection:
        create_units(connection, PAIRS[pair])
        every = connection.execute("select * from sequence_unit order by step, group_id, seq_id").df()
        sequences = every[every["usable"]]
        if sequences.empty:
            missing = every["missing"].dropna().unique()
            reason = "every response has an unusable token" if len(every) else "there is no token"
            reason = not_logged(missing[0]).text if len(missing) else reason
            return LengthTrap(pd.DataFrame(columns=COLUMNS), f"No sequence ratio in these steps: {reason}.")
        longest = bucket_lengths(sequences["length"].to_numpy(), most_buckets)
        stratum = " + ".join(f"(length > {length})::int" for length in longest[:-1]) or "0"
        of_sequences = measure_units(connection, pair, f"select *, {stratum} as stratum from sequence_unit", whole=True)
        of_tokens = measure_units(
            connection, pair,
            f"select token_unit.*, {stratum} as stratum from token_unit join sequence_unit using (step, seq_id) "
            "where sequence_unit.usable",
        )  # fmt: skip
        # A token ratio of 0 has no spread of its logarithm, and its sequence none either.
        token_spread = connection.execute(
            "select stratum, case when bool_and(isfinite(z)) then stddev_samp(z) filter (isfinite(z)) end as spread "
            "from unit group by stratum"
        ).df()
    spread_token = token_spread.set_index("stratum")["spread"].astype(float)
    chi2_token = of_tokens[of_tokens["metric"] == "log1p_chi2"].set_index("stratum")["value"]
    bucket = np.searchsorted(longest[:-1], sequences["length"])
    draws = _spread_draws(sequences, bucket)
    rows = [
        _row(
            sequences[bucket == number],
            of_sequences[of_sequences["stratum"] == number].set_index("metric"),
            chi2_token[number],
            spread_token[number],
            percentile_interval(draws[:, number]),
        )
        for number in range(len(longest))
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    with np.errstate(all="ignore"):  # a spread of 0 grows by no factor
        growth = percentile_interval(draws[:, -1] / draws[:, 0])
    return LengthTrap(frame, _answer(frame, growth))


def bucket_lengths(lengths: NDArray[np.int64], most: int) -> list[int]:
    """The longest length of each bucket: at most `most` quantile buckets of at least `FEWEST_SEQUENCES`, if there are.

    A length is never split between buckets: the middle of its ranks decides.
    """
    values, counts = np.unique(lengths, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(lengths)
    quantile = (most * middle).astype(int)
    ends: list[int] = []
    waiting = 0
    for number, (value, count) in enumerate(zip(values, counts, strict=True)):
        waiting += count
        last = number == len(values) - 1
        if waiting >= FEWEST_SEQUENCES and (last or quantile[number + 1] > quantile[number]):
            ends.append(int(value))
            waiting = 0
        elif last and ends:  # too few at the end: they join the bucket before
            ends[-1] = int(value)
        elif last:
            ends.append(int(value))
    return ends


def _row(
    members: pd.DataFrame, measured: pd.DataFrame, log1p_chi2_token: float, spread_token: float, interval: Interval
) -> dict[str, object]:
    length, log_w = members["length"].to_numpy(dtype=float), members["z"].to_numpy(dtype=float)
    chi2 = measured.loc["log1p_chi2"]
    infinite = int((~np.isfinite(log_w)).sum())
    notes = [f"{infinite} responses have W 0 or infinite: no spread of log W"] if infinite else []
    notes += [f"chi2: {chi2['note']}"] if chi2["note"] else []
    return {
        "shortest": int(length.min()),
        "longest": int(length.max()),
        "mean_length": length.mean(),
        "n": len(members),
        "n_undefined": chi2["n_undefined"],
        "n_groups": chi2["n_groups"],
        "spread_log_w": _spread(log_w),
        "spread_log_w_low": interval.low,
        "spread_log_w_high": interval.high,
        "spread_independent": np.sqrt(length.mean()) * spread_token,
        "spread_geometric": _spread(log_w / length),
        "spread_token": spread_token,
        "log1p_chi2": chi2["value"],
        "log1p_chi2_low": chi2["low"],
        "log1p_chi2_high": chi2["high"],
        "log1p_chi2_predicted": length.mean() * log1p_chi2_token,
        "khat": measured.loc["khat", "value"],
        "note": "; ".join(notes),
    }


def _spread(values: Array) -> float:
    """Standard deviation; NaN for a single value and for infinite ones."""
    return float(np.std(values, ddof=1)) if len(values) > 1 and np.isfinite(values).all() else float("nan")


def _spread_draws(sequences: pd.DataFrame, bucket: NDArray[np.intp]) -> Array:
    """The spread of log W in every resample of the prompt groups, (draws, n_buckets)."""
    log_w = sequences["z"].to_numpy(dtype=float)
    group = sequences.groupby(["step", "group_id"]).ngroup().to_numpy()
    spreads = []
    for number in range(bucket.max() + 1):
        inside = bucket == number
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite, or a resample without two responses: NaN
            centred = log_w[inside] - log_w[inside].mean()
            terms = (np.ones_like(centred), centred, centred**2)
            sums = [np.bincount(group[inside], term, group.max() + 1).astype(float) for term in terms]
            n, total, squares = resampled_sums(np.column_stack(sums)).T
            spreads.append(np.sqrt(np.maximum(squares - total**2 / n, 0) / (n - 1)))
    return np.column_stack(spreads)


def _answer(buckets: pd.DataFrame, growth: Interval) -> str:
    short, long = buckets.iloc[0], buckets.iloc[-1]
    if len(buckets) == 1:
        return (
            f"The {short['n']:,} responses are too few or too alike in length ({_tokens(short)}) to see how log W "
            "spreads with it."
        )
    for row, words in ((short, "shortest"), (long, "longest")):
        if np.isnan(row["spread_log_w"]):
            return f"The spread of log W cannot be compared: among the {words} responses, {row['note']}."
    if not short["spread_log_w"] > 0:
        return "log W does not spread in the shortest responses: there is no growth to measure."
    observed, expected = (long[name] / short[name] for name in ("spread_log_w", "spread_independent"))
    interval = f" ({growth.low:.1f} to {growth.high:.1f})" if np.isfinite(growth.low) else ""
    return (
        f"log W spreads {observed:.1f} ×{interval} as much in the longest responses ({_tokens(long)}) as in the "
        f"shortest ({_tokens(short)}); independent tokens would give {expected:.1f} ×."
    )


def _tokens(row: pd.Series) -> str:
    if row["shortest"] == row["longest"]:
        return f"{row['longest']} tokens"
    return f"{row['shortest']} to {row['longest']} tokens"
