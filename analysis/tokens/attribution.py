"""Attribution: which tokens, prompts or versions a sum over tokens comes from.

owned = shares(run, "rho_squared", "token_position", first=10, last=20, among_top=0.01)
owned.frame, owned.half, sentence(owned)

A share of a heavy-tailed sum describes the logged tokens and no others; where the sum's moment cannot be estimated the
result says so and gives no intervals. Rows that cannot be used (`docs/metrics.md`, bad numbers) contribute nothing. The
worst responses: `analysis.tokens.worst_sequences`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, isfinite, nan
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.findings.logged import GROUP, QUESTIONS, Need, logged
from ratioscope.analysis.findings.numbers import capital, percent
from ratioscope.analysis.runs.database import query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval, cluster_interval
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.metric import Moment, doubt
from ratioscope.notes import Note, joined, text_of
from ratioscope.tails import Array, reliance_of

# Of the curve "the top x of the tokens carry y of the sum".
TOP_FRACTIONS = (0.001, 0.01, 0.1)

# A prompt can be pages long, a sentence cannot.
_LONGEST_LABEL = 60

Texts = Mapping[Any, str]

_NOT_LOGGED = "not logged"


@dataclass(frozen=True)
class OwnedSum:
    """A sum over tokens of something that is never negative."""

    symbol: str
    column: str
    """Logarithm of a token's part, in `attribution_terms.sql`."""
    moment: Moment
    ratios: Mapping[str, str] = field(default_factory=lambda: {"log_rho": "ρ"})
    """The log-ratios on which the sum rests, with their ratios' symbols."""


OWNED_SUMS: dict[str, OwnedSum] = {
    "rho_squared": OwnedSum("Σρ²", "log_rho_squared", Moment.SECOND),
    "chi2": OwnedSum("Σ(ρ − 1)²", "log_chi2", Moment.SECOND),
    "deviation": OwnedSum("Σ|ρ − 1|", "log_deviation", Moment.FIRST),
    "kl": OwnedSum("Σ(ρ − 1 − log ρ)", "log_kl", Moment.FIRST),
    "update": OwnedSum("Σ|ρₖ₊₁ − ρₖ|", "log_update", Moment.FIRST, {"log_rho": "ρ", "log_rho_new": "ρₖ₊₁"}),
}


@dataclass(frozen=True)
class Owner:
    """What tokens are grouped by."""

    title: str
    keys: tuple[str, ...]
    """SQL, by which tokens are put together; null: not logged."""
    label: Callable[[tuple[Any, ...], Texts], str]
    """The words for one owner, from its keys and the texts of tokens or prompts."""
    phrase: str = "{}"
    """How a sentence speaks of a label."""
    needs: tuple[Need, ...] = ()
    """Columns that must be logged: of each tuple, one at least."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Of `attribution_shares.sql`, the keys in their order."""
        return tuple(f"key_{number}" for number in range(len(self.keys)))


def _token(token_id: int, texts: Texts) -> str:
    return texts.get(token_id, f"token {token_id}")


_SIGNS = {1: "A > 0", 0: "A = 0", -1: "A < 0"}

OWNERS: dict[str, Owner] = {
    "token": Owner(
        "Token", ("token_id",), lambda keys, texts: _token(keys[0], texts), "the token '{}'", (("token_id",),),
    ),
    "token_position": Owner(
        "Token at a position", ("token_id", "position"),
        lambda keys, texts: f"'{_token(keys[0], texts)}' at position {keys[1]}", "the token {}", (("token_id",),),
    ),
    "position": Owner("Position", ("position",), lambda keys, _: f"position {keys[0]}"),
    "prompt": Owner(
        "Prompt", ("prompt",), lambda keys, texts: texts.get(keys[0], f"prompt {keys[0]}"), "the prompt '{}'",
        (("sequences.prompt_id", "sequences.prompt"),),
    ),
    "version": Owner(
        "Behavior version", ("behavior_version",), lambda keys, _: f"version {keys[0]}", needs=(("behavior_version",),)
    ),
    "version_lag": Owner(
        "Version lag", ("version_lag",), lambda keys, _: f"lag {keys[0]}", needs=QUESTIONS["age"].needs
    ),
    "step": Owner("Step", ("step",), lambda keys, _: f"step {keys[0]}"),
    "sequence": Owner("Response", ("step", "seq_id"), lambda keys, _: f"step {keys[0]}, response {keys[1]}"),
    "group": Owner(
        "Prompt group", ("step", "group_id"), lambda keys, _: f"step {keys[0]}, group {keys[1]}", needs=(GROUP,)
    ),
    "advantage": Owner(
        "Sign of the advantage", ("sign(advantage)::int",), lambda keys, _: _SIGNS[keys[0]], needs=(("advantage",),)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Attribution:
    """Which tokens, prompts or versions a measure comes from, over a range of steps."""

    measure: OwnedSum
    owner: Owner
    frame: pd.DataFrame
    """The largest owners: owner (keys as text), label, tokens, share_of_tokens, tokens_counted, share (of the measure),
    low, high (95 %), share_ratio (share over share_of_tokens), largest_log_ratio (nats), and the token with the largest
    part as step, seq_id, position. With `among_top` the share is that of the top tokens' sum, of `tokens_counted`."""
    n_tokens: int
    n_owners: int
    """Owners of the tokens that count."""
    half: int | None
    """How many of the largest owners carry 50 % of the measure; None where it has no shares."""
    top: dict[float, float]
    """Share of the measure that the top x of all tokens carry, by x; NaN where it has no shares."""
    among_top: float | None
    undefined: str
    """Why there are no shares; empty where there are."""
    doubt: Note | None
    """Why the shares describe the logged tokens only, so that they have no intervals; None where they say more."""
    notes: tuple[str, ...]
    """Both, and what else to know."""


def shares(
    run: Run,
    measure: str,
    owner: str,
    first: int | None = None,
    last: int | None = None,
    *,
    top: int | None = 20,
    among_top: float | None = None,
) -> Attribution:
    """Shares of a measure by group (the owner of a token) over the steps first..last, both included.

    Args:
        top: how many owners to list, the largest first; None: all.
        among_top: count the tokens with the largest parts only, this share of all tokens.

    Raises:
        RatioscopeError: unknown measure or owner, or `among_top` outside (0, 1].
    """
    if measure not in OWNED_SUMS:
        raise unknown("a measure", measure, OWNED_SUMS)
    if owner not in OWNERS:
        raise unknown("an owner", owner, OWNERS)
    chosen, by = OWNED_SUMS[measure], OWNERS[owner]
    if among_top is not None and not 0 < among_top <= 1:
        raise RatioscopeError(f"among_top = {among_top}: it is a share of the tokens, above 0 and at most 1.")
    log = logged(run)
    with relations(run, first, last) as connection:
        connection.execute(query("tokens/attribution_terms"))
        parts = np.sort(_logged(connection, chosen.column))[::-1]
        why = log.sentence("update" if "log_rho_new" in chosen.ratios else "weights")
        undefined = _why_no_shares(chosen, parts, why)
        if not undefined and (lacking := next((need for need in by.needs if not log.meets(need)), None)):
            undefined = f"{by.title} is unknown: {log.why(*lacking)}"
        unreliable = None if undefined else _why_no_intervals(connection, chosen)
        peak = nan if undefined else float(parts[0])
        _create_owned(connection, chosen, by, peak, _counts(connection, chosen.column, len(parts), among_top))
        frame, missing = _by_owner(connection, by), _not_logged(connection, by)
        cumulative = frame["share"].cumsum().to_numpy()
        listed = frame if top is None else frame.head(top)
        intervals = _intervals(connection, by, listed, withheld=bool(undefined or unreliable))
        texts = run.vocabulary() if "token_id" in by.keys else _prompts(connection) if by.keys == ("prompt",) else {}
    listed = listed.assign(
        label=_labels(listed, by, texts), low=[low for low, _ in intervals], high=[high for _, high in intervals]
    )
    notes = [undefined, text_of(unreliable)]
    if among_top is not None:
        notes.append("the cut-off of the top tokens is taken as given")
    if missing:
        notes.append(f"{by.title.lower()} is not logged for {missing} of {len(parts)} tokens")
    return Attribution(
        measure=chosen,
        owner=by,
        frame=listed[_COLUMNS],
        n_tokens=len(parts),
        n_owners=len(frame),
        half=_fewest(cumulative, 0.5),
        top={fraction: _carried(parts, peak, fraction) for fraction in sorted({*TOP_FRACTIONS, among_top or 0.01})},
        among_top=among_top,
        undefined=undefined,
        doubt=unreliable,
        notes=tuple(note for note in notes if note),
    )


_COLUMNS = [
    *("owner", "label", "tokens", "share_of_tokens", "tokens_counted", "share", "low", "high", "share_ratio"),
    *("largest_log_ratio", "step", "seq_id", "position"),
]


def _logged(connection: duckdb.DuckDBPyConnection, column: str) -> Array:
    """A column of the terms, in any order; what is not logged is left out."""
    rows = connection.execute(f"select {column} as value from term where {column} is not null").fetchnumpy()
    return np.asarray(rows["value"], dtype=float)


def _why_no_shares(measure: OwnedSum, parts: Array, missing: str) -> str:
    if not len(parts):
        return f"{measure.symbol} has no token here: {missing.rstrip('.').partition(': ')[2] or 'nothing is usable'}"
    if parts[0] == inf:
        return f"{measure.symbol} is infinite: a ratio is 0"
    if parts[0] == -inf:
        return f"{measure.symbol} is 0: there is nothing to attribute"
    return ""


def _why_no_intervals(connection: duckdb.DuckDBPyConnection, measure: OwnedSum) -> Note | None:
    if measure.moment is not Moment.SECOND:
        return None
    for column, symbol in measure.ratios.items():
        if note := doubt(reliance_of(_logged(connection, column)), symbol):
            return joined(note, "the shares describe these tokens only")
    return None


def _counts(connection: duckdb.DuckDBPyConnection, column: str, n: int, fraction: float | None) -> str:
    """SQL for "is one of the top tokens"; equal parts in the order of their places, so that the answer repeats."""
    if fraction is None or n == 0:
        return "true"
    (cut,) = connection.execute(
        f"""
        select {column}, step, seq_id, position from term where {column} is not null
        order by {column} desc, step, seq_id, position limit 1 offset {ceil(fraction * n) - 1}
        """
    ).fetchall()
    level = f"'{cut[0]!r}'::double"
    return f"({column} > {level} or {column} = {level} and (step, seq_id, position) <= {cut[1:]})"


def _carried(parts: Array, peak: float, fraction: float) -> float:
    """Share of the sum that the largest `fraction` of the tokens carry; NaN without a peak."""
    scaled = np.exp(parts - peak)
    return float(scaled[: ceil(fraction * len(parts))].sum() / scaled.sum()) if len(parts) else nan


def _create_owned(
    connection: duckdb.DuckDBPyConnection, measure: OwnedSum, owner: Owner, peak: float, counts: str
) -> None:
    """Make `owned`: every token with its owner's keys and its part, which is NaN without a peak."""
    text = query("tokens/attribution_shares")
    for name, value in {
        "$keys": ", ".join(f"{key} as {column}" for key, column in zip(owner.keys, owner.columns, strict=True)),
        "$term": measure.column,
        "$peak": f"'{peak!r}'::double",
        "$counts": counts,
        "$prompt": str("prompt" in owner.keys),
    }.items():
        text = text.replace(name, value)
    connection.execute(text)


def _by_owner(connection: duckdb.DuckDBPyConnection, owner: Owner) -> pd.DataFrame:
    """One row an owner of tokens that count, the largest share first, with its keys."""
    keys = ", ".join(owner.columns)
    frame = connection.execute(
        f"""
        with summed as (
            select
                {keys},
                coalesce({" || '/' || ".join(f"{key}::varchar" for key in owner.columns)}, '') as owner,
                count(*) as tokens,
                count(*) filter (counts) as tokens_counted,
                sum(part) as part,
                max(log_rho) as largest_log_ratio,
                -- the largest term and, among equals, the first token: the same whatever the order of the rows
                max({{'term': term, 'step': -step, 'seq_id': -seq_id, 'position': -position}}) as example
            from owned
            group by {keys}
            having count(*) filter (counts) > 0
        )
        select
            * exclude (example),
            tokens / (select count(*) from owned) as share_of_tokens,
            part / sum(part) over () as share,
            -example.step as step, -example.seq_id as seq_id, -example.position as position
        from summed
        order by part desc, tokens desc, owner
        """
    ).df()
    frame["share_ratio"] = frame["share"] / frame["share_of_tokens"]
    return frame


def _not_logged(connection: duckdb.DuckDBPyConnection, owner: Owner) -> int:
    """How many tokens have no owner."""
    absent = " or ".join(f"{key} is null" for key in owner.columns)
    (missing,) = connection.execute(f"select count(*) filter ({absent}) from owned").fetchall()[0]
    return int(missing)


def _labels(listed: pd.DataFrame, owner: Owner, texts: Texts) -> list[str]:
    rows = zip(*(listed[key].astype(object).tolist() for key in owner.columns), strict=True)
    return [_NOT_LOGGED if pd.isna(row[0]) else owner.label(row, texts) for row in rows]


def _intervals(
    connection: duckdb.DuckDBPyConnection, owner: Owner, listed: pd.DataFrame, *, withheld: bool
) -> list[Interval]:
    """95 % intervals of the listed owners' shares, a ratio of sums over prompt groups, inside [0, 1].

    None for an owner that is seen in one prompt group only: it is itself what was sampled.
    """
    if withheld:
        return [NO_INTERVAL] * len(listed)
    groups = connection.execute("select step, group_id, sum(part) as total from owned group by step, group_id").df()
    connection.register("listed", listed[list(owner.columns)].assign(place=range(len(listed))))
    same = " and ".join(f"owned.{key} is not distinct from listed.{key}" for key in owner.columns)
    own = connection.execute(
        f"select place, step, group_id, sum(part) as part from owned join listed on {same} group by all"
    ).df()
    own = own.merge(groups.assign(cluster=range(len(groups))), on=["step", "group_id"])
    total = groups["total"].to_numpy(dtype=float)
    part, cluster = own["part"].to_numpy(dtype=float), own["cluster"].to_numpy()
    rows = own.groupby("place").indices
    intervals = []
    for place in range(len(listed)):
        mine = rows[place]
        low, high = NO_INTERVAL
        if len(mine) > 1:
            low, high = cluster_interval(np.bincount(cluster[mine], part[mine], len(total)).astype(float), total)
        intervals.append(Interval(float(np.maximum(low, 0)), float(np.minimum(high, 1))))
    return intervals


def _fewest(cumulative: Array, share: float) -> int | None:
    """How many of the largest owners reach a share; None where shares are undefined."""
    if not len(cumulative) or not isfinite(cumulative[-1]):
        return None
    # The sum of all shares may miss 1 by rounding, and a share of 1 by as much.
    return int(np.argmax(cumulative >= share * (1 - 1e-12))) + 1


def attribution_sentence(result: Attribution) -> str:
    """The answer in one sentence or two."""
    symbol, first = result.measure.symbol, result.frame.iloc[0] if len(result.frame) else None
    if first is None or not isfinite(first["share"]):
        return f"{result.undefined}."
    label = str(first["label"])
    owner = result.owner.phrase.format(label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}…")
    if result.among_top is not None:
        carried = _percent(result.top[result.among_top])
        text = f"{_percent(result.among_top)} of the tokens carry {carried} of {symbol}; "
        text += f"{_percent(first['share'])} of that is {owner}."
    else:
        text = f"{_percent(first['share'])} of {symbol} is {owner}, with {_percent(first['share_of_tokens'])} of the "
        text += f"tokens; {result.half} of {result.n_owners} carry half of it."
    doubt = text_of(result.doubt)
    return f"{text} {capital(doubt)}." if doubt else text


def _percent(share: float) -> str:
    return percent(share)


def _prompts(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Prompt texts by prompt_id as text; a prompt without an id goes by its text."""
    return dict(
        connection.execute(
            """
            select coalesce(prompt_id::varchar, prompt) as key, min(prompt)
            from sequence where prompt is not null group by key
            """
        ).fetchall()
    )
