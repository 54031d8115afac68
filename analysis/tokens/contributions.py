"""Which responses make a number: each one's part of a metric, and the token of it that has the most.

found = contributions(run, "s_k", 78, 78)
found.frame[["step", "seq_id", "share", "position"]], sentence(found, "step 78")

A metric that is a mean has a term for each token or response (`ratioscope.metric.Mean`), and a response's part is the
sum of its terms; where terms have both signs, of their sizes. χ², effective sample sizes and what else is made of
squares go by their share of the squares. The rest has no parts: extremes, quantiles and tails are listed by the ratios
at that end, a reward from the lowest up, and what is logged once a step by what stands for it (`STAND_INS`).
"""

from dataclasses import dataclass

import duckdb
import pandas as pd

from ratioscope.analysis.findings.numbers import capital, number, percent
from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.rendering import DEVIATIONS, sql
from ratioscope.analysis.summary.sums import NEGATIVE_LOGS
from ratioscope.analysis.tokens.worst_sequences import CRITERIA, sequences_of, worst_sequences
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.denominators import BEHAVIOR
from ratioscope.errors import unknown
from ratioscope.metric import CURRENT, Grain, Metric
from ratioscope.terms import DEVIATION, LOG_RHO, Term, case, column, exp, expm1, known, log_size, unequal

USUAL = "s_k"
"""What is asked about where nothing else is named: in the plain form single tokens can have a large part."""

STAND_INS = {
    "s_k_exact_z": "s_k_exact",
    "u_k_exact_z": "u_k_exact",
    "delta_max": "s_k_exact",
    "ratio_mean_z": "ratio_mean",
    "log1p_chi2_seq_predicted": "chi2_token",
    "group_spread_kl": "kl_k2",
    "group_spread_chi2": "chi2_token",
    "effective_groups": USUAL,
    "zero_advantage_group_fraction": USUAL,
    "eval_accuracy": USUAL,
    "kl_to_initial": USUAL,
    "grad_norm": USUAL,
}
"""Metrics without parts, and whose parts are shown in their place."""

ORDERS = {
    "ratio_max": "largest_ratio",
    "ratio_p999": "largest_ratio",
    "ratio_p99": "largest_ratio",
    "ratio_p90": "largest_ratio",
    "khat_token": "largest_ratio",
    "khat_token_new": "largest_ratio",
    "ratio_p50": "geometric",
    "ratio_p01": "smallest_ratio",
    "ratio_min": "smallest_ratio",
    "khat_seq": "largest_weight",
    "reward": "lowest_reward",
    "entropy": "lowest_entropy",
}
"""Metrics of which no response has a share, and the criterion by which they are listed."""

PLAIN = {
    "s_k_bounded": "s_k",
    "s_k_version_bounded": "s_k_version",
    "s_k_engine_bounded": "s_k_engine",
    "tv_new_behavior_bounded": "tv_new_behavior",
}
"""Of a total variation in the bounded form, in which no token weighs more than 1, the plain form."""

_FEW = 3
"""So many responses are named."""
_LONGEST_TOKEN = 20


@dataclass(frozen=True)
class _Parts:
    """What a number is the sum of."""

    what: str
    term: Term
    """The part of a row; of either sign."""
    of: str = "token"
    """What a row is: a token, a response by its tokens, or a response as it is listed."""
    where: Term | None = None


_LOG_W = column("log_w")
# Functions of the squares of all ratios; what is asked of a mean where its terms are not what stands out.
_MADE = {
    "ratio_mean": _Parts("Σ|ρ − 1|", DEVIATION),
    "chi2_token": _Parts("Σ(ρ − 1)²", DEVIATION * DEVIATION),
    "chi2_token_raw": _Parts("Σρ²", exp(2 * LOG_RHO)),
    "kl_k1": _Parts("Σ|log ρ|", LOG_RHO),
    "ess_token": _Parts("Σρ²", exp(2 * LOG_RHO)),
    "top1pct_share": _Parts("Σρ²", exp(2 * LOG_RHO)),
    "reliance_token": _Parts("Σ(ρ − 1)²", DEVIATION * DEVIATION),
    "chi2_seq": _Parts("Σ(W − 1)²", expm1(_LOG_W) * expm1(_LOG_W), "response"),
    "log1p_chi2_seq": _Parts("Σ(W − 1)²", expm1(_LOG_W) * expm1(_LOG_W), "response"),
    "reliance_seq": _Parts("Σ(W − 1)²", expm1(_LOG_W) * expm1(_LOG_W), "response"),
    "ess_seq": _Parts("ΣW²", exp(2 * _LOG_W), "response"),
    "chi2_seq_raw": _Parts("ΣW²", exp(2 * _LOG_W), "response"),
    "ppl_behavior": _Parts("−Σ log π̂", NEGATIVE_LOGS["ppl_behavior"], where=BEHAVIOR.where),
    "ppl_current": _Parts("−Σ log π_k", NEGATIVE_LOGS["ppl_current"], where=CURRENT.where),
    "response_length": _Parts("all tokens", column("n_tokens"), "listed"),
    "gate_mean": _Parts("what the gates took, Σ(1 − gate)", 1 - column("gate"), where=known(column("gate"))),
    "effective_token_fraction": _Parts(
        "the tokens without effect",
        1 - case(unequal(column("advantage"), 0), column("gate"), 0),
        where=known(column("gate")) & known(column("advantage")),
    ),
}


@dataclass(frozen=True)
class Contributions:
    """The responses of some steps by what they contribute to a number."""

    by: str
    """A metric of the catalogue, or a criterion of `worst_sequences.CRITERIA`."""
    what: str
    """What the shares are of, or what the responses are listed by; in words."""
    frame: pd.DataFrame
    """The largest first: the columns of `attribution_sequences.sql`, and share (of the number; NaN where there are
    none), position, token_share, ratio and token (its text or else its id) of the token with the largest part of it."""
    n: int
    """Responses that were looked at; where there are no shares, those that are listed."""
    half: int | None
    """How many of the largest make half of the number; None where they have no shares."""
    why_no_shares: str
    """A clause; empty where there are some."""


def contributions(
    run: Run, by: str, first: int | None = None, last: int | None = None, limit: int = 20
) -> Contributions:
    """The responses of the steps first..last by their part of a number, the largest first.

    Raises:
        RatioscopeError: there is neither such a metric nor such a criterion.
    """
    if by in CRITERIA:
        return _listed(run, by, by, first, last, limit)
    if by not in CATALOGUE:
        raise unknown("a metric or a criterion", by, [*CATALOGUE, *CRITERIA])
    metric = CATALOGUE[STAND_INS.get(by, by)]
    if metric.key in ORDERS:
        return _listed(run, by, ORDERS[metric.key], first, last, limit)
    parts = _parts_of(metric)
    with relations(run, first, last) as connection:
        frame = connection.execute(filled("tokens/contributions", rows=_rows(parts))).df()
        n, infinite = len(frame), bool(len(frame) and frame["peak"].iloc[0] == float("inf"))
        nothing = not frame["share"].notna().any()
        cumulative = frame["share"].cumsum().to_numpy()
        top = frame.drop(columns="peak").head(0 if nothing else limit)
        top = _with_tokens(connection, run, _with_numbers(connection, top), "abs(log_rho)")
    why = ""
    if nothing:
        why = f"{_inside(parts.what)} is 0" if n else f"{_inside(parts.what)} has no value"
    elif infinite:
        why = f"{_inside(parts.what)} is infinite: a ratio is beyond the floating-point range"
        top = top.assign(share=float("nan"), token_share=float("nan"))
    half = None if why else int((cumulative < 0.5 * (1 - 1e-12)).sum()) + 1
    return Contributions(by, parts.what, top, n, half, why)


def has_parts(key: str) -> bool:
    """Whether responses have a share of a metric."""
    return key in CATALOGUE and key not in ORDERS and key not in STAND_INS


def _parts_of(metric: Metric) -> _Parts:
    if metric.key in _MADE:
        return _MADE[metric.key]
    mean = metric.mean
    assert mean is not None, metric.key
    of = "listed" if metric.grain is Grain.RESPONSE else "token"
    name = metric.title if metric.label[0].islower() else metric.label
    return _Parts(name, mean.term, of, metric.over.where)


def _rows(parts: _Parts) -> str:
    """SQL: each row with the logarithm of its part."""
    size, where = f"{sql(log_size(parts.term))} as size", sql(parts.where) if parts.where else "true"
    if parts.of == "response":
        return f"select step, seq_id, null::integer as position, {size} from ({sequences_of()}) where log_w is not null"
    if parts.of == "listed":
        return f"select step, seq_id, null::integer as position, {size} from sequence where {where}"
    return f"""
        select step, seq_id, position, {size} from (
            select *, {DEVIATIONS} from usable
        ) where {where}
        """


def _listed(run: Run, by: str, criterion: str, first: int | None, last: int | None, limit: int) -> Contributions:
    """The responses by a criterion; nothing has a share."""
    top = worst_sequences(run, criterion, first, last, limit).drop(columns="value")
    top = top.assign(position=None, share=float("nan"), token_share=float("nan"))
    farthest = {"largest_ratio": "log_rho", "largest_weight": "log_rho", "smallest_ratio": "-log_rho"}
    with relations(run, first, last) as connection:
        top = _with_tokens(connection, run, top, farthest.get(criterion, "abs(log_rho)"))
    title = CRITERIA[criterion].title
    return Contributions(by, title, top, len(top), None, "" if len(top) else f"no response has a value for: {title}")


def _with_numbers(connection: duckdb.DuckDBPyConnection, top: pd.DataFrame) -> pd.DataFrame:
    """What is known of each response."""
    places = ", ".join(f"({step}, {seq_id})" for step, seq_id in zip(top["step"], top["seq_id"], strict=True))
    chosen = f"(step, seq_id) in ({places})" if places else "false"
    return top.merge(connection.execute(sequences_of(chosen)).df(), how="left", on=["step", "seq_id"])


def _with_tokens(connection: duckdb.DuckDBPyConnection, run: Run, top: pd.DataFrame, farthest: str) -> pd.DataFrame:
    """The token of each response that has the largest part, or the one that is farthest; its ratio and text."""
    connection.register("top_responses", top[["step", "seq_id", "position"]].astype("Int64"))
    tokens = connection.execute(
        f"""
        select step, seq_id, arg_max(token.position, ({farthest}, -token.position)) as position,
            arg_max(token_id, ({farthest}, -token.position)) as token_id,
            exp(arg_max(log_rho, ({farthest}, -token.position))) as ratio
        from usable as token join top_responses as chosen using (step, seq_id)
        where chosen.position is null or chosen.position = token.position
        group by step, seq_id
        """
    ).df()
    texts = run.vocabulary() if tokens["token_id"].notna().any() else {}
    tokens["token"] = [
        None if pd.isna(token) else texts.get(int(token), f"#{int(token)}") for token in tokens["token_id"]
    ]
    return top.drop(columns="position").merge(tokens, how="left", on=["step", "seq_id"])


def contributions_sentence(found: Contributions, words: str) -> str:
    """What the list says, in one sentence or two.

    Args:
        words: which steps these are.
    """
    frame = found.frame
    if not len(frame) or (found.why_no_shares and found.half is None):
        return f"{capital(words)}: {found.why_no_shares}."
    culprit = _culprit(frame)
    if found.half is None:
        return f"{_named(frame, 1, words)} comes first by {_inside(found.what)}{f': {culprit}' if culprit else ''}."
    if not stands_out(found):
        return (
            f"In {words} no response stands out: the largest of {found.n:,} makes "
            f"{percent(float(frame['share'].iloc[0]))} of {_inside(found.what)}."
        )
    carried = percent(float(frame["share"].head(found.half).sum()))
    verb = "makes" if found.half == 1 else "make"
    text = f"{_named(frame, found.half, words)} {verb} {carried} of {_inside(found.what)}."
    if not culprit or not frame["token_share"].iloc[0] > 0.5 * frame["share"].iloc[0]:
        return text
    return f"{text} Most of {'it' if found.half == 1 else 'the first'} is {culprit}."


def stands_out(found: Contributions) -> bool:
    """Whether a few responses make half of the number, so that they are named."""
    return found.half is not None and found.half <= min(_FEW, found.n - 1)


def _named(frame: pd.DataFrame, n: int, words: str) -> str:
    """The first responses by their names."""
    places = list(zip(frame["step"].head(n).astype(int), frame["seq_id"].head(n).astype(int), strict=True))
    if len({step for step, _ in places}) == 1:
        names = " and ".join(", ".join(str(seq_id) for _, seq_id in places).rsplit(", ", 1))
        return f"Response{'s' * (n > 1)} {names} of step {places[0][0]}"
    return "Responses " + " and ".join(", ".join(f"{seq_id} of step {step}" for step, seq_id in places).rsplit(", ", 1))


def _culprit(frame: pd.DataFrame) -> str:
    """The token of the first response; empty where it has none that is usable."""
    first = frame.iloc[0]
    if pd.isna(first["ratio"]):
        return ""
    token = "" if first["token"] is None else str(first["token"])
    token = token if len(token) <= _LONGEST_TOKEN else f"{token[:_LONGEST_TOKEN]}…"
    quoted = f"'{token}' " if token else ""
    return f"its token {quoted}at position {first['position']:.0f}, with ρ = {number(float(first['ratio']))}"


def _inside(what: str) -> str:
    """A name inside of a sentence: symbols stay as they are."""
    return f"{what[0].lower()}{what[1:]}" if what[:1].isascii() and what[1:2].islower() else what
