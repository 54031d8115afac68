"""The loss that ran, by what it left in the log: marks and causes of a loss that is not the configured one.

gradient_weight is held against the advantage alone and against what the manifest's rule gives on the same tokens, up to
one factor for each step (or response, where lengths or weights of responses are in it); what was clipped is held
against the ratio to the sampler, and against the part of it that is there at the same weights.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Example, Finding, Severity, not_checked, passed
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.alignment import own_token, shifted
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.copies import copied_columns, policy_stands_still
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence, first_of
from ratioscope.analysis.linter.identities import recomputed, swapped
from ratioscope.analysis.linter.masks import has_penalty
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.values import constant_columns, zero_filled
from ratioscope.analysis.what_if.judging import multiplier
from ratioscope.analysis.what_if.rule import own_rule, takes_several_passes
from ratioscope.analysis.what_if.tokens import rows_of
from ratioscope.rules.gates import GATES, GateKind
from ratioscope.rules.parameters import Judged

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ALIKE = 0.01
"""Two factors on a token's gradient are the same within 1 %."""
_FEWEST = 200
"""Tokens, below which nothing is said of a share of them."""
_FEW = 50
"""Tokens out of bounds, or clipped, below which nothing is said of them."""
_FEWEST_STEPS = 3
_FEWEST_BEYOND = 20
"""Clipped tokens, where many that the configured clip would stop are not."""
_PER_STEP = ("token_mean", "longest_mean", "sequence_sum")
"""Aggregations under which one factor holds for all tokens of a step."""
_WEIGHTS: tuple[Need, ...] = (("gradient_weight",), ("advantage",), ("logp_current",))
_CLIPPED: tuple[Need, ...] = (("clipped", "clip_side"), ("advantage",), ("logp_current",))


def _tokens(evidence: LogEvidence) -> pd.DataFrame:
    """Usable tokens of whole prompt groups that no mask took out, with what the loss did to them."""
    return evidence.once(
        "tokens as the loss has them",
        lambda: evidence.frame(
            f"""
            select step, group_id, seq_id, position, logp_sampled, logp_current, version_lag,
                coalesce(logp_gate, logp_current) as logp_gate, advantage::double as advantage, clipped, clip_side,
                gradient_weight::double as gradient_weight,
                coalesce(log_engine, if(version_lag = 0, log_rho, null)) as engine,
                coalesce(logp_gate, logp_current)::double - logp_sampled::double as at, rank
            from usable left join (select step, seq_id, any_value(rank) as rank from sequence group by all)
                using (step, seq_id)
            where hash(step, group_id) % {evidence.sampled} = 0 and log_rho is not null and advantage <> 0
                and coalesce(rejected, '') = ''
            order by step, group_id, seq_id, position
            """
        ),
    )


class _Applied(NamedTuple):
    """Logs of factors on the gradient of a token, each less its median in the step or the response; (n_tokens,)."""

    rows: pd.DataFrame
    alone: Floats
    """gradient_weight over the advantage."""
    against: Floats
    """The same over what the manifest's rule, or else the plain ratio, gives."""
    expected: Floats
    """What that gives."""
    factor: Floats
    """The log of the factor itself, if most tokens have the expected one."""
    wanted: Floats
    """The log of what the rule gives, as it is."""
    ruled: bool
    """Whether the manifest states a rule."""

    @property
    def explained(self) -> float:
        """Share of the tokens that the advantage alone, or what is expected, explains."""
        return float(max((np.abs(values) <= _ALIKE).mean() for values in (self.alone, self.against)))


def _applied(evidence: LogEvidence) -> _Applied | None:
    """Of tokens with a gradient; None where too few have one, or where a penalty has a gradient of its own."""
    return evidence.once("what multiplied advantages", lambda: _made(evidence))


def _made(evidence: LogEvidence) -> _Applied | None:
    rows = _tokens(evidence)
    if has_penalty(evidence) or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    rule = own_rule(evidence.run).rule
    factor = rows["at"].to_numpy(dtype=float)
    if rule is not None and len(rows):
        columns = {name: rows[name].to_numpy() for name in ("step", "group_id", "seq_id", "logp_current", "advantage")}
        columns |= {"logp_behavior": rows["logp_sampled"].to_numpy(), "logp_gate": rows["logp_gate"].to_numpy()}
        if rows["version_lag"].notna().all():
            columns["version_lag"] = rows["version_lag"].to_numpy()
        with np.errstate(divide="ignore"):
            factor = np.log(multiplier(rule, rows_of(columns)))
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.log((rows["gradient_weight"] / rows["advantage"]).to_numpy(dtype=float))
    there = np.isfinite(alone) & np.isfinite(factor)
    if there.sum() < _FEWEST:
        return None
    rows, alone, factor = rows[there], alone[there], factor[there]
    keys = [["step"]] if _one_factor(evidence) else [["step"], ["step", "seq_id"]]
    # Where the manifest does not say what tokens are divided by: the one that explains more of them.
    return max((_beside(rows, alone, factor, by, rule is not None) for by in keys), key=lambda each: each.explained)


def _beside(rows: pd.DataFrame, alone: Floats, factor: Floats, keys: list[str], ruled: bool) -> _Applied:
    """Factors less their medians in the cells of some keys."""

    def beside(values: Floats) -> Floats:
        of = pd.Series(values, rows.index)
        return np.asarray(of - of.groupby([rows[key] for key in keys]).transform("median"), dtype=float)

    against = beside(alone - factor)
    return _Applied(rows, beside(alone), against, beside(factor), factor + against, factor, ruled)


def _one_factor(evidence: LogEvidence) -> bool:
    """Whether the manifest says that all tokens of a step are divided by the same number."""
    parts = _parts(evidence)
    return parts.get("aggregation") in _PER_STEP and parts.get("sample_weight", "equal") == "equal"


def _parts(evidence: LogEvidence) -> Mapping[str, object]:
    parts = evidence.run.manifest.algorithm.get("parts")
    return parts if isinstance(parts, dict) else {}


def _of(rows: pd.DataFrame) -> tuple[Example, ...]:
    first = rows.head(EXAMPLES)
    return tuple(
        Example(int(step), int(seq), int(at))
        for step, seq, at in zip(first["step"], first["seq_id"], first["position"], strict=True)
    )


def _steps(rows: pd.DataFrame) -> tuple[int, ...]:
    return tuple(int(step) for step in np.unique(rows["step"]))


@mark(needs=_WEIGHTS, limit=0.05)
def weight_unlike_configured(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight over the advantage is not what the configured weight and gate give on these tokens."""
    applied = _applied(evidence)
    if applied is None or not applied.ruled:
        return None
    off = np.abs(applied.against) > _ALIKE
    rows = applied.rows[off]
    return MarkReading(
        float(off.mean()), f"gradient_weight is off in {percent(off.mean())} of the tokens", _steps(rows),
        ("gradient_weight",), _of(rows),
    )  # fmt: skip


@mark(needs=(*_WEIGHTS, ("sequences.rank",)), limit=0.95)
def weight_differs_by_rank(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, it is so by one factor for each rank of a step; share of the variance."""
    applied = _applied(evidence)
    if applied is None or applied.rows["rank"].isna().any() or applied.rows["rank"].nunique() < 2:
        return None
    against = pd.Series(applied.against, applied.rows.index)
    total = float((against**2).sum())
    if not total > 0 or (against.abs() > _ALIKE).mean() < _ALIKE:
        return MarkReading(0.0, "")
    of_rank = against.groupby([applied.rows["step"], applied.rows["rank"]]).transform("median")
    largest = float(np.exp(of_rank.groupby(applied.rows["step"]).agg(np.ptp).median()))
    return MarkReading(
        1 - float(((against - of_rank) ** 2).sum()) / total,
        f"it is one factor for each rank, {number(largest)} × as large on one as on another", (), ("gradient_weight",),
    )  # fmt: skip


@mark(needs=_WEIGHTS, limit=float(np.log(1.5)))
def weight_is_scaled(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight is not the mean over the step's tokens that the manifest names, by one factor in all steps.

    The logarithm of the factor, without its sign.
    """
    applied = _applied(evidence)
    if applied is None or not applied.ruled or _parts(evidence).get("aggregation") != "token_mean":
        return None
    n = evidence.frame("select step, count(*) as n from usable where coalesce(rejected, '') = '' group by step")
    rows = applied.rows
    with np.errstate(divide="ignore", invalid="ignore"):
        log_scale = np.log((rows["gradient_weight"] / rows["advantage"]).to_numpy(dtype=float)) - applied.wanted
    of_step = pd.Series(log_scale, rows.index).groupby(rows["step"]).median() + np.log(n.set_index("step")["n"])
    of_step = of_step.dropna()
    if not len(of_step) or of_step.std(ddof=0) > _ALIKE:
        return MarkReading(0.0, "")
    scale = float(np.exp(of_step.median()))
    return MarkReading(
        abs(float(of_step.median())), f"it is {number(scale)} × what a mean over the step's tokens gives",
        evidence.all_steps, ("gradient_weight",), _of(rows),
    )  # fmt: skip


@mark(needs=_WEIGHTS, limit=0.99)
def weight_is_the_advantage(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight is the advantage alone, up to one factor, while importance weights differ."""
    applied = _applied(evidence)
    if applied is None or (np.abs(applied.expected) > _ALIKE).mean() < _ALIKE:
        return None  # there is no weight to be missed
    same = float((np.abs(applied.alone) <= _ALIKE).mean())
    return MarkReading(same, f"it is the advantage alone in {percent(same)} of the tokens", (), ("gradient_weight",))


@mark(needs=_WEIGHTS, limit=0.95)
def weight_is_capped(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, the weight stands at one value, below the configured one."""
    applied = _applied(evidence)
    if applied is None or not applied.ruled:
        return None
    off = np.abs(applied.against) > _ALIKE
    if off.sum() < _FEW:
        return None
    level = float(np.median(applied.factor[off]))
    at_it = (np.abs(applied.factor[off] - level) <= _ALIKE) & (applied.wanted[off] > level)
    return MarkReading(float(at_it.mean()), f"there it stands at {number(float(np.exp(level)))}", (), ())


@mark(needs=_WEIGHTS, limit=0.9)
def weight_is_squared(evidence: LogEvidence) -> MarkReading | None:
    """Where the configured weight differs from its median, gradient_weight is its square times the advantage."""
    applied = _applied(evidence)
    if applied is None or not applied.ruled:
        return None
    telling = np.abs(applied.expected) > 3 * _ALIKE
    if telling.sum() < _FEWEST:
        return None
    alike = np.abs(applied.alone - 2 * applied.expected)[telling] <= 2 * _ALIKE
    slope = float(np.polyfit(applied.expected[telling], applied.alone[telling], 1)[0])
    return MarkReading(
        float(alike.mean()), f"gradient_weight over the advantage follows the ratio to the power of {number(slope)}",
        (), ("gradient_weight",), _of(applied.rows[telling]),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",)), limit=0.95)
def gradient_against_the_advantage(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight has the opposite sign of the advantage in nearly all tokens that have both."""
    if has_penalty(evidence):
        return None
    opposite = "gradient_weight * advantage < 0"
    found = evidence.frame(
        f"select count(*) as n, count(*) filter ({opposite}) as opposite from usable "
        "where gradient_weight * advantage <> 0 and coalesce(rejected, '') = ''"
    ).iloc[0]
    n, share = int(found["n"]), float(found["opposite"]) / max(int(found["n"]), 1)
    if n < _FEWEST:
        return None
    return MarkReading(
        share, f"gradient_weight has the opposite sign of the advantage in {percent(share)} of {n:,} tokens",
        evidence.all_steps, ("gradient_weight",),
        evidence.rows_where(f"invalid is null and {opposite}") if share > _ALIKE else (),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("sequences.micro_batch",)), limit=0.9)
def gradient_in_the_last_micro_batch_alone(evidence: LogEvidence) -> MarkReading | None:
    """Of the micro-batches of a step the last one has gradients, and the others have none; share of the steps."""
    of = evidence.frame(
        """
        select step, micro_batch, count(*) as n, avg((gradient_weight <> 0)::int) as share
        from usable join (select step, seq_id, any_value(micro_batch) as micro_batch from sequence group by all)
            using (step, seq_id)
        where advantage <> 0 and gradient_weight is not null and micro_batch is not null
            and not coalesce(clipped, false) and coalesce(clip_side, 0) = 0 and coalesce(rejected, '') = ''
        group by all order by all
        """
    )
    of = of[of.groupby("step")["micro_batch"].transform("nunique") > 1]
    if of["n"].sum() < _FEWEST or of["step"].nunique() < _FEWEST_STEPS:
        return None
    last = of["micro_batch"] == of.groupby("step")["micro_batch"].transform("max")
    right = (of["share"] >= 1 - _ALIKE).where(last, of["share"] <= _ALIKE).groupby(of["step"]).all()
    n, lost = int(of["n"].sum()), float(of["n"][~last].sum() / of["n"].sum())
    return MarkReading(
        float(right.mean()), f"{percent(lost)} of {n:,} tokens with an advantage are in the others, without a gradient",
        tuple(int(step) for step in right.index[right]), ("gradient_weight",),
        evidence.rows_where("invalid is null and advantage <> 0 and gradient_weight = 0") if right.any() else (),
    )  # fmt: skip


# The clip -------------------------------------------------------------------------------------------------------------


def _band(evidence: LogEvidence) -> tuple[float, float] | None:
    """Ends of the clip around a ratio of 1 to the sampler, logs, as configured; None where none of that kind is."""
    parts, parameters = _parts(evidence), evidence.run.manifest.algorithm.get("parameters")
    if not isinstance(parameters, dict):
        return None
    if "gate" in parts:
        gate = GATES.get(str(parts["gate"]))
        if gate is None or gate.kind is not GateKind.CLIP or gate.judged is not Judged.RATIO:
            return None
    if parts.get("level", "token") != "token" or parts.get("filter", "none") != "none":
        return None
    low, high = (parameters.get(f"epsilon_{end}", parameters.get("epsilon")) for end in ("low", "high"))
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not 0 < low < 1 or not high > 0:
        return None
    return float(np.log1p(-low)), float(np.log1p(high))


@mark(needs=_CLIPPED, limit=0.005)
def clip_stops_nothing(evidence: LogEvidence) -> MarkReading | None:
    """Ratios to the sampler are beyond the configured clip in their advantage's direction, and none was clipped."""
    band, rows = _band(evidence), _tokens(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    at, good = rows["at"], rows["advantage"] > 0
    beyond = (good & (at > band[1] + 1e-3)) | (~good & (at < band[0] - 1e-3))
    if len(rows) < _FEWEST or beyond.sum() < _FEW:
        return None
    stopped = rows["clipped"].fillna(False).astype(bool) | (rows["clip_side"].fillna(0) != 0)
    stopped |= rows["gradient_weight"] == 0
    share = float(beyond.mean()) if float(stopped[beyond].mean()) < _ALIKE else 0.0
    low, high = (number(float(np.exp(end))) for end in band)
    return MarkReading(
        share, f"none of the {int(beyond.sum()):,} tokens with a ratio beyond {low} to {high} was clipped",
        _steps(rows[beyond]), ("clipped",), _of(rows[beyond]),
    )  # fmt: skip


@mark(needs=_CLIPPED, limit=0.1)
def clip_at_another_ratio(evidence: LogEvidence) -> MarkReading | None:
    """What is clipped and what is not part at another ratio than the configured one; as a share of the range."""
    band, rows = _band(evidence), _tokens(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    found = []
    for sign, configured in ((1, band[1]), (-1, -band[0])):
        bounds = _observed(rows, sign, configured)
        if bounds is None:
            continue
        inner, outer, clipped = bounds
        if outer < inner * (1 - _ALIKE):
            return MarkReading(0.0, "")  # no ratio parts them
        off = max(inner - configured, configured - outer, 0.0) / configured
        found.append((off, float(np.exp(sign * outer)), float(np.exp(sign * configured)), _of(rows.loc[clipped])))
    if not found:
        return None
    off, ran, wanted, examples = max(found)
    return MarkReading(
        off, f"tokens are clipped from a ratio of {number(ran)} on, where the manifest says {number(wanted)}",
        evidence.all_steps, ("clipped",), examples,
    )  # fmt: skip


def _observed(rows: pd.DataFrame, sign: int, configured: float) -> "tuple[float, float, pd.Index[int]] | None":
    """The farthest log-ratio that was not clipped on a side, the nearest that was, and the rows that were; None where
    too few are."""
    side = (np.sign(rows["advantage"]) == sign) & (sign * rows["at"] > 0) & rows["clipped"].notna()
    beyond, clipped = sign * rows["at"][side], rows["clipped"][side].astype(bool)
    fewest = _FEWEST_BEYOND if (~clipped & (beyond > configured + 1e-3)).sum() >= _FEW else _FEW
    if clipped.sum() < fewest or (~clipped).sum() < _FEW:
        return None
    inner, outer = float(beyond[~clipped].quantile(1 - _ALIKE)), float(beyond[clipped].quantile(_ALIKE))
    return inner, outer, clipped.index[clipped]


@mark(needs=_CLIPPED, limit=0.9)
def lower_bound_is_epsilon(evidence: LogEvidence) -> MarkReading | None:
    """Below, tokens are clipped from a ratio of epsilon on, in place of 1 less epsilon; the nearness of the two."""
    band, rows = _band(evidence), _tokens(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    bounds = _observed(rows, -1, -band[0])
    epsilon = 1 - float(np.exp(band[0]))
    if bounds is None or epsilon > 0.4:  # the two are nearly the same
        return None
    inner, outer, clipped = bounds
    _, upper, _ = _observed(rows, 1, band[1]) or (0.0, np.nan, None)
    near = np.exp(-abs(outer + np.log(epsilon))) if np.exp(-inner) > epsilon else 0.0
    above = f", above from {number(float(np.exp(upper)))}" if np.isfinite(upper) else ""
    return MarkReading(
        float(near), f"from below tokens are clipped from a ratio of {number(float(np.exp(-outer)))} on{above}",
        evidence.all_steps, ("clipped",), _of(rows.loc[clipped]),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.9)
def weight_is_a_product(evidence: LogEvidence) -> MarkReading | None:
    """A response's weight is the product of its tokens' ratios, up to a cap."""
    of = _weights_of_responses(evidence)
    if of is None:
        return None
    apart = of["weight"] - of["product"]
    below = of["weight"] < of["cap"] - 5 * _ALIKE
    if below.sum() < _FEW:
        return MarkReading(0.0, "")
    level = apart[below].groupby(of["step"][below]).transform("median")
    explained = float(((apart[below] - level).abs() <= 2 * _ALIKE).sum() + (~below).sum()) / len(of)
    return MarkReading(explained, "the weight of a response is the product of its ratios, up to a cap")


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=2.0)
def long_responses_weigh_less(evidence: LogEvidence) -> MarkReading | None:
    """The longest quarter of the responses has a smaller weight a token than the shortest one; as a factor."""
    of = _weights_of_responses(evidence)
    if of is None or of["n"].nunique() < 4:
        return None
    quarter = np.ceil(of["n"].rank(method="average", pct=True) * 4).clip(1, 4)
    mean = of.assign(share=np.exp(of["weight"] - of["cap"])).groupby(quarter)["share"].mean()
    if len(mean) < 4 or not mean.iloc[3] > 0:
        return None
    longest, shortest = (percent(float(mean.iloc[at])) for at in (3, 0))
    return MarkReading(
        float(mean.iloc[0] / mean.iloc[3]),
        f"the longest quarter of the responses keeps {longest} of the largest weight a token, the shortest {shortest}",
        evidence.all_steps, ("gradient_weight",), first_of(of[quarter == 4].sort_values("weight")),
    )  # fmt: skip


def _weights_of_responses(evidence: LogEvidence) -> pd.DataFrame | None:
    """Of responses: step, n, the logs of their weight (gradient_weight over advantage), of the product of their ratios,
    and of the largest weight of their step; None for fewer than a few."""

    def made() -> pd.DataFrame | None:
        rows = _tokens(evidence)
        rows = rows.assign(weight=rows["gradient_weight"] / rows["advantage"])
        of = rows.groupby(["step", "seq_id"], as_index=False).agg(
            n=("at", "size"), product=("at", "sum"), weight=("weight", "median")
        )
        of = of[of["weight"] > 0]
        if len(of) < _FEWEST:
            return None
        log_weight = np.log(of["weight"].to_numpy(dtype=float))
        of = of.assign(weight=log_weight)
        return of.assign(cap=of.groupby("step")["weight"].transform("max"))

    return evidence.once("weights of responses", made)


@mark(needs=(*_CLIPPED, ("logp_gate",)), limit=0.99)
def gate_is_the_policy_itself(evidence: LogEvidence) -> MarkReading | None:
    """The log-probabilities of the gate are those of the policy at the start of the update: their ratio is 1."""
    rows = _tokens(evidence)
    if len(rows) < _FEWEST:
        return None
    same = float((rows["logp_gate"] == rows["logp_current"]).mean())
    return MarkReading(same, "the policy at the gate is the one before the update, so their ratio is 1")


@mark(needs=_CLIPPED, limit=0.5)
def clipped_at_the_same_weights(evidence: LogEvidence) -> MarkReading | None:
    """Most of the clipped tokens are out of bounds by the mismatch alone, which is there at the same weights."""
    rows = _tokens(evidence)
    clipped = rows["clipped"].fillna(False).astype(bool) & np.isfinite(rows["at"])
    engine, n_clipped = rows["engine"], clipped.sum()
    clipped &= engine.notna()
    if clipped.sum() < max(_FEW, n_clipped / 2, 1e-3 * len(rows)):
        return None
    high = clipped & (rows["advantage"] > 0) & (rows["at"] > 0)
    low = clipped & (rows["advantage"] < 0) & (rows["at"] < 0)
    if (high | low).sum() < _ALIKE * clipped.sum():
        return None
    beyond = pd.Series(False, rows.index)
    if high.any():  # the bounds are the nearest ratios that were clipped
        beyond |= high & (engine >= rows["at"][high].quantile(_ALIKE))
    if low.any():
        beyond |= low & (engine <= rows["at"][low].quantile(1 - _ALIKE))
    share = float(beyond.sum() / clipped.sum())
    return MarkReading(
        share, f"{percent(share)} of {int(clipped.sum()):,} clipped tokens are out of bounds at the same weights",
        _steps(rows[beyond]), ("logp_behavior",), _of(rows[beyond]),
    )  # fmt: skip


@mark(needs=_CLIPPED, limit=0.05)
def much_is_clipped(evidence: LogEvidence) -> MarkReading | None:
    """More than one token in twenty is clipped."""
    rows = _tokens(evidence)
    share = float(rows["clipped"].fillna(False).astype(bool).mean()) if len(rows) >= _FEWEST else np.nan
    return MarkReading(share, f"{percent(share)} of the tokens are clipped")


@mark(needs=(("token_id",), ("position",), ("gradient_weight",), ("advantage",)), limit=0.99)
def end_token_without_gradient(evidence: LogEvidence) -> MarkReading | None:
    """A token that ends responses has no gradient whatever its advantage, and the other tokens have one."""
    tokens = evidence.frame(
        """
        with of as (
            select step, seq_id, position, token_id, advantage, gradient_weight,
                coalesce(clipped, false) or coalesce(clip_side, 0) <> 0 or coalesce(rejected, '') <> '' as stopped,
                position = max(position) over (partition by step, seq_id) as is_last
            from usable
        )
        select token_id, count(*) as n, avg(is_last::int) as ends, avg((gradient_weight = 0)::int) as without,
            min(step) as step
        from of where advantage <> 0 and gradient_weight is not null and not stopped group by token_id
        """
    )
    ends = tokens[(tokens["ends"] > 1 - _ALIKE) & (tokens["n"] >= _FEW)]
    others = tokens.drop(ends.index)
    if not len(ends) or others["n"].sum() < _FEWEST:
        return None
    if (others["without"] * others["n"]).sum() > _ALIKE * others["n"].sum():
        return MarkReading(0.0, "")
    most = ends.sort_values("n").iloc[-1]
    return MarkReading(
        float(most["without"]),
        f"token {int(most['token_id'])}, the last of its response, has no gradient in {percent(most['without'])} of "
        f"{int(most['n']):,} rows with an advantage",
        (), ("gradient_weight",), place=f"token {int(most['token_id'])}",
    )  # fmt: skip


cause(
    "weight_not_applied", F.LOSS, "The configured importance weight was not applied",
    requires=(weight_unlike_configured, weight_is_the_advantage),
    do="Pass the importance weight into the loss, or configure none.", reports=("Liger-Kernel #1088",),
)  # fmt: skip
cause(
    "updates_without_effect", F.LOSS, "Updates do not reach the weights, and the policy does not move",
    requires=(policy_stands_still,),
    do="Look whether the optimiser steps, and on the parameters that the gradients are of.",
    reports=("open-instruct #1642",),
)  # fmt: skip
cause(
    "end_token_masked", F.LOSS, "The token that ends responses is not in the loss",
    requires=(end_token_without_gradient,),
    do="Build the loss mask from lengths, not from token ids: the end token may be the padding token, too.",
    reports=("TRL #4974",),
)  # fmt: skip
cause(
    "weight_capped", F.LOSS, "The importance weight is capped lower than configured",
    requires=(weight_unlike_configured, weight_is_capped), refutes=(weight_is_the_advantage,),
    do="Compare the cap in the loss with the configured one.",
)  # fmt: skip
cause(
    "another_loss", F.LOSS, "The loss that ran is not the configured one", requires=(weight_unlike_configured,),
    refutes=(weight_is_the_advantage, weight_is_capped, weight_differs_by_rank, weight_is_squared),
    do="Compare the loss's weight and clip with the configured ones on the example rows.",
)  # fmt: skip
cause(
    "ratio_counted_twice", F.LOSS, "The importance ratio is in the gradient twice",
    requires=(weight_unlike_configured, weight_is_squared),
    do="Weight by the ratio in the loss or in the correction for the sampler, not in both.",
    reports=("slime #179", "PufferLib #306"),
)  # fmt: skip
cause(
    "loss_negated", F.LOSS, "The loss has the wrong sign: what was better is made less likely",
    requires=(gradient_against_the_advantage,),
    do="Look where the loss is negated; where the reward rises, log gradient_weight with the advantage's sign.",
    reports=("flash-linear-attention #1073",),
)  # fmt: skip
cause(
    "last_micro_batch_alone", F.LOSS, "Only the last micro-batch of a step is learned from",
    requires=(gradient_in_the_last_micro_batch_alone,),
    do="Zero the gradients once a step, before its first micro-batch, and not between micro-batches.",
    reports=("torchtitan #3575",),
)  # fmt: skip
cause(
    "mean_over_each_rank", F.LOSS, "Each rank takes the mean over its own tokens, so that tokens weigh differently",
    requires=(weight_unlike_configured, weight_differs_by_rank), refutes=(weight_is_the_advantage, weight_is_capped),
    do="Divide the loss by the tokens of all ranks and micro-batches together.", reports=("TRL #3021", "TRL #3231"),
)  # fmt: skip
cause(
    "loss_scaled", F.LOSS, "The loss is not divided by the step's tokens", requires=(weight_is_scaled,),
    do="Look at what the loss is divided by, once more by gradient accumulation or by the ranks.",
    reports=("ms-swift #10117", "TRL #6024"), severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "clip_anchored_elsewhere", F.LOSS, "The clip looks at something else than the ratio to the sampler",
    requires=(clip_stops_nothing,), supports={weight_is_the_advantage: 0.5, gate_is_the_policy_itself: 0.5},
    do="Put the sampler's log-probs into the clip's denominator.", explains=("clip_zero",),
    reports=("SkyRL #1315", "miles #1829", "verl #7196"),
)  # fmt: skip
cause(
    "clip_at_another_ratio", F.LOSS, "The clip stops at another ratio than the configured one",
    requires=(clip_at_another_ratio,), refutes=(clip_stops_nothing,),
    do="Compare epsilon_low and epsilon_high of the loss with the configured ones.",
)  # fmt: skip
cause(
    "lower_clip_at_epsilon", F.LOSS, "The lower bound of the clip is epsilon, and not 1 less epsilon",
    requires=(clip_at_another_ratio, lower_bound_is_epsilon), refutes=(clip_stops_nothing,),
    do="Clip ratios to the range from 1 - epsilon_low to 1 + epsilon_high.", reports=("RL2 #21",),
)  # fmt: skip
cause(
    "products_starve", F.LOSS, "Products of ratios starve the gradient of long responses",
    requires=(long_responses_weigh_less, weight_is_a_product),
    do="Weight tokens in place of responses, or take the geometric mean of a response's ratios.",
    reports=("TRL #4772", "TRL #5814", "TRL #6945", "NeMo-RL #2269"),
)  # fmt: skip
cause(
    "clip_spent_on_numerics", F.LOSS, "The clip is spent on the mismatch of sampler and trainer",
    requires=(clipped_at_the_same_weights,), supports={much_is_clipped: 0.5},
    do="Remove the mismatch first, or clip against logp_behavior_train and weight by the rest.",
    reports=("verl #6280", "RLinf #1534", "Trinity #426"),
)  # fmt: skip


@check(order=277, needs=(("advantage",), ("logp_current",), ("clipped", "clip_side", "gradient_weight")),
       page="clipping", of_the_run=True)  # fmt: skip
def applied_loss(evidence: LogEvidence) -> list[Finding]:
    """The configured weight and clip against gradient_weight and what was clipped, and what the clip was spent on."""
    other = evidence.problems(
        zero_filled, constant_columns, shifted, own_token, scale, copied_columns, recomputed, swapped
    )
    if other:
        return not_checked(f"Other columns are wrong: {', '.join(other)}.")
    found = findings_of(F.LOSS, evidence, severity=lambda suspect: _severity(evidence, suspect))
    if found:
        return found
    if weight_unlike_configured(evidence).known:
        return passed("gradient_weight is the advantage times the configured weight.")
    if clip_stops_nothing(evidence).known or clipped_at_the_same_weights(evidence).known:
        return passed(f"What was clipped of {len(_tokens(evidence)):,} tokens with an advantage shows no known fault.")
    return not_checked("Too little is clipped, or too little of the loss is configured in the manifest, to compare.")


def _severity(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A clip that stops hardly a token costs little, whatever it is spent on."""
    if suspect.cause.name == "clip_spent_on_numerics" and not much_is_clipped(evidence).present:
        return Severity.NOTICE
    return suspect.cause.severity
