"""The worst sequences of a run by any criterion, and what belongs to one sequence.

worst_sequences(run, "largest_log_weight", first=10, last=20)
sequence_tokens(run, step=12, seq_id=3), group_of(run, step=12, seq_id=3)

What a sum comes from over tokens is in `attribution`. Ratios of any size rank as they should: sums over tokens stay
logarithms (`attribution_sequences.sql`), and only the shown value leaves log space.
"""

from dataclasses import dataclass

import pandas as pd

from ratioscope.analysis.runs.database import query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.errors import RatioscopeError, unknown


@dataclass(frozen=True)
class Criterion:
    """What makes a sequence the worst."""

    title: str
    rank: str
    """SQL, the largest first; sequences where it is null are left out."""
    value: str
    """SQL, what is shown for it; beyond the floating-point range it is infinite, the rank is not."""
    unit: str = ""


CRITERIA: dict[str, Criterion] = {
    "largest_log_weight": Criterion("log W farthest from 0", "abs(log_w)", "log_w", "nats"),
    "largest_weight": Criterion("Largest W", "log_w", "exp(log_w)"),
    "smallest_weight": Criterion("Smallest W", "-log_w", "exp(log_w)"),
    "largest_ratio": Criterion("Largest ρ of a token", "max_log_ratio", "exp(max_log_ratio)"),
    "smallest_ratio": Criterion("Smallest ρ of a token", "-min_log_ratio", "exp(min_log_ratio)"),
    "largest_deviation": Criterion("Largest mean |ρ − 1|", "log_mean_deviation", "exp(log_mean_deviation)"),
    "largest_chi2": Criterion("Largest Σ(ρ − 1)²", "log_chi2", "exp(log_chi2)"),
    "geometric": Criterion("Geometric mean of ρ farthest from 1", "abs(mean_log_ratio)", "exp(mean_log_ratio)"),
    "most_clipped": Criterion("Largest share of clipped tokens", "clipped", "clipped"),
    "largest_advantage": Criterion("Largest |advantage|", "abs(advantage)", "advantage"),
    "lowest_reward": Criterion("Lowest reward", "-reward", "reward"),
    "highest_reward": Criterion("Highest reward", "reward", "reward"),
    "lowest_entropy": Criterion("Lowest mean entropy", "-entropy", "entropy", "nats"),
    "highest_entropy": Criterion("Highest mean entropy", "entropy", "entropy", "nats"),
    "oldest_version": Criterion("Largest version lag", "version_lag", "version_lag", "updates"),
    "longest": Criterion("Longest", "n_tokens", "n_tokens", "tokens"),
    "first": Criterion("In the order of the log", "0.0 * step", "n_tokens", "tokens"),
}


def worst_sequences(
    run: Run, criterion: str, first: int | None = None, last: int | None = None, limit: int = 20
) -> pd.DataFrame:
    """The sequences of the steps first..last that a criterion puts first; `value` is the criterion's.

    Further columns are those of `attribution_sequences.sql`. Where the criterion is undefined (a null or NaN reward, no
    tokens, W with an unusable token) a sequence is left out; the frame is empty where it is never defined.

    Raises:
        RatioscopeError: unknown criterion.
    """
    if criterion not in CRITERIA:
        raise unknown("a criterion", criterion, CRITERIA)
    chosen = CRITERIA[criterion]
    with relations(run, first, last) as connection:
        return connection.execute(
            f"""
            select {chosen.value} as value, * from ({sequences_of()})
            where not isnan({chosen.rank})
            order by {chosen.rank} desc, step, seq_id
            limit {int(limit)}
            """
        ).df()


def sequences_of(chosen: str = "true") -> str:
    """The query for responses with what their tokens say (`attribution_sequences.sql`).

    Args:
        chosen: which ones, in SQL.
    """
    return query("tokens/attribution_sequences").replace("$chosen", chosen)


def sequence_tokens(run: Run, step: int, seq_id: int) -> pd.DataFrame:
    """Every token of one sequence by position: all declared columns and log-ratios, `invalid`, and `text`.

    Raises:
        RatioscopeError: the step has no tokens of such a sequence.
    """
    with relations(run, step, step) as connection:
        frame = connection.execute(f"select * from token where seq_id = {int(seq_id)} order by position").df()
    if not len(frame):
        raise RatioscopeError(_missing(run, step, seq_id))
    texts = run.vocabulary()
    frame["text"] = [texts.get(token) for token in frame["token_id"]]
    return frame


def group_of(run: Run, step: int, seq_id: int) -> pd.DataFrame:
    """The sequences of one sequence's prompt group, itself included, also those that the loss left out.

    Raises:
        RatioscopeError: the step has no such sequence.
    """
    with relations(run, step, step) as connection:
        same = f"select group_id from %s where seq_id = {int(seq_id)}"
        chosen = f"group_id in ({same % 'sequence'} union {same % 'token'})"
        frame = connection.execute(f"select * from ({sequences_of(chosen)}) order by seq_id").df()
    if not len(frame):
        raise RatioscopeError(_missing(run, step, seq_id))
    return frame


def _missing(run: Run, step: int, seq_id: int) -> str:
    return (
        f"{run.folder}: there is no response {seq_id} in step {step}; "
        f"take one of the steps up to {run.last_step} and a seq_id of that step."
    )
