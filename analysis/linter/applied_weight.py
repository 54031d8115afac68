"""Marks of the weight that ran: gradient_weight against the advantage alone and against the manifest's rule."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence, first_of
from ratioscope.analysis.linter.loss_tokens import (
    ALIKE_FACTORS,
    FEW_OF_LOSS,
    FEWEST_OF_LOSS,
    WITH_WEIGHTS,
    applied_factors,
    first_rows,
    has_one_factor,
    steps_in,
    tokens_of_loss,
)
from ratioscope.analysis.what_if.rule import own_rule

_FEWEST_RESPONSES = 20
"""Responses of several segments, below which nothing is said of those."""
_FEWEST_STEPS = 3
# Padding of fewer tokens (in logs: their share) is not told from a scale.
_LEAST_PADDING = 0.05
_LEAST_SHORT = 0.1
"""By which a step is short of responses."""
_FEWEST_SHORT = 2
_CLEARLY, _FEWEST_BEYOND, _NEARLY_ALL = 0.05, 10, 0.95
"""Nats above a cap that are no rounding, tokens above it, and share of the others that have the configured weight."""
_CAPPED: dict[str, Callable[[Mapping[str, float]], float]] = {
    "truncated": lambda parameters: parameters["cap"],
    "clamped": lambda parameters: parameters["cap"],
    "upper_clipped": lambda parameters: 1 + parameters["epsilon_high"],
}
"""Weights that are no larger than a number, whatever the ratio; a cap of rho_k alone is another matter."""


@mark(needs=WITH_WEIGHTS, limit=0.05)
def weight_unlike_configured(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight over the advantage is not what the configured weight and gate give on these tokens."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled:
        return None
    off = np.abs(applied.against) > ALIKE_FACTORS
    rows = applied.rows[off]
    return MarkReading(
        float(off.mean()), f"gradient_weight is off in {percent(off.mean())} of the tokens", steps_in(rows),
        ("gradient_weight",), first_rows(rows),
    )  # fmt: skip


@mark(needs=(*WITH_WEIGHTS, ("sequences.rank",)), limit=0.95)
def weight_differs_by_rank(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, it is so by one factor for each rank of a step; share of the variance."""
    applied = applied_factors(evidence)
    if applied is None or applied.rows["rank"].isna().any() or applied.rows["rank"].nunique() < 2:
        return None
    against = pd.Series(applied.against, applied.rows.index)
    total = float((against**2).sum())
    if not total > 0 or (against.abs() > ALIKE_FACTORS).mean() < ALIKE_FACTORS:
        return MarkReading(0.0, "")
    of_rank = against.groupby([applied.rows["step"], applied.rows["rank"]]).transform("median")
    largest = float(np.exp(of_rank.groupby(applied.rows["step"]).agg(np.ptp).median()))
    return MarkReading(
        1 - float(((against - of_rank) ** 2).sum()) / total,
        f"it is one factor for each rank, {number(largest)} × as large on one as on another", (), ("gradient_weight",),
    )  # fmt: skip


@mark(needs=(*WITH_WEIGHTS, ("sequences.micro_batch",)), limit=0.95)
def weight_is_shared_within_micro_batches(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, it is so by the tokens of its micro-batch, as where each has a mean of its own;
    share of the variance."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled or not has_one_factor(evidence):
        return None
    tokens = evidence.frame(
        """
        select step, rank, micro_batch, count(*) as n
        from usable join (
            select step, seq_id, any_value(rank) as rank, any_value(micro_batch) as micro_batch
            from sequence group by all
        ) using (step, seq_id)
        where coalesce(rejected, '') = '' group by all
        """
    )
    rows, against = applied.rows, pd.Series(applied.against, applied.rows.index)
    total = float((against**2).sum())
    if rows["micro_batch"].isna().any():
        return None
    if not total > 0 or (against.abs() > ALIKE_FACTORS).mean() < ALIKE_FACTORS:
        return MarkReading(0.0, "")
    found = []
    # A micro-batch is one of all ranks together, or of each rank.
    for keys in (["step", "micro_batch"], ["step", "micro_batch", "rank"])[: 2 - bool(rows["rank"].isna().any())]:
        size = tokens.groupby(keys)["n"].sum()
        left = against + np.log(size.reindex(pd.MultiIndex.from_frame(rows[keys])).to_numpy(dtype=float))
        left = left - left.groupby(rows["step"]).transform("median")
        found.append((1 - float((left**2).sum()) / total, int(size.min()), int(size.max())))
    share, smallest, largest = max(found)
    return MarkReading(
        share, f"a token weighs by the tokens of its micro-batch, of which there are {smallest:,} to {largest:,}",
        (), ("gradient_weight",),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=0.9)
def weight_is_shared_within_responses(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, it is so by the length of the response, as where each response has the same weight;
    share of the tokens."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled or not has_one_factor(evidence):
        return None
    if (np.abs(applied.against) > ALIKE_FACTORS).mean() < ALIKE_FACTORS:
        return MarkReading(0.0, "")
    lengths = evidence.frame(
        "select step, seq_id, count(*) as n from usable where coalesce(rejected, '') = '' group by all"
    ).set_index(["step", "seq_id"])["n"]
    rows = applied.rows
    length = np.log(lengths.reindex(pd.MultiIndex.from_frame(rows[["step", "seq_id"]])).to_numpy(dtype=float))
    off = pd.Series(applied.against + length, rows.index)
    alike = (off - off.groupby(rows["step"]).transform("median")).abs() <= ALIKE_FACTORS
    shortest, longest = (int(np.exp(edge(length)).round()) for edge in (np.min, np.max))
    return MarkReading(
        float(alike.mean()),
        f"a token of the longest response ({longest:,} tokens) weighs {percent(shortest / longest)} of one of the "
        f"shortest ({shortest:,}), as in a mean over responses",
        (), ("gradient_weight",),
    )  # fmt: skip


@mark(needs=(*WITH_WEIGHTS, ("segment_id",)), limit=0.9)
def weight_is_shared_within_segments(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight goes by the length of the segment, as where each segment of a response counts as a response;
    share of the tokens."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled or applied.rows["segment_id"].isna().any():
        return None
    lengths = evidence.frame(
        "select step, seq_id, segment_id, count(*) as n from usable where coalesce(rejected, '') = '' group by all"
    ).set_index(["step", "seq_id", "segment_id"])["n"]
    several = lengths.groupby(["step", "seq_id"]).size() > 1
    if several.sum() < _FEWEST_RESPONSES or lengths.groupby(["step", "seq_id"]).nunique().max() < 2:
        return None
    rows = applied.rows
    length = np.log(lengths.reindex(pd.MultiIndex.from_frame(rows[lengths.index.names])).to_numpy(dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log((rows["gradient_weight"] / rows["advantage"]).to_numpy(dtype=float)) - applied.wanted + length
    of = pd.Series(off, rows.index)
    alike = (of - of.groupby(rows["step"]).transform("median")).abs() <= ALIKE_FACTORS
    return MarkReading(
        float(alike.mean()),
        f"a token weighs by the length of its segment, of which {int(several.sum()):,} responses have several",
        (), ("gradient_weight",), first_rows(rows[rows["segment_id"] > 0]),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=float(np.log(1.5)))
def weight_is_scaled(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight is not the mean over the step's tokens that the manifest names, by one factor in all steps.

    The logarithm of the factor, without its sign.
    """
    of_step = _scale_of_steps(evidence)
    if of_step is None:
        return None
    if not len(of_step) or of_step.std(ddof=0) > ALIKE_FACTORS:
        return MarkReading(0.0, "")
    scale, applied = float(np.exp(of_step.median())), applied_factors(evidence)
    return MarkReading(
        abs(float(of_step.median())), f"it is {number(scale)} × what a mean over the step's tokens gives",
        evidence.all_steps, ("gradient_weight",), first_rows(applied.rows) if applied is not None else (),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=0.9)
def weight_counts_padding(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight is divided by the tokens with the padding of their batches in place of the tokens that the
    manifest names; share of the steps."""
    of_step, applied = _scale_of_steps(evidence), applied_factors(evidence)
    if of_step is None or applied is None or len(of_step) < _FEWEST_STEPS:
        return None
    if of_step.median() > -_LEAST_PADDING:
        return MarkReading(0.0, "")
    lengths = evidence.frame(
        """
        select step, seq_id, any_value(rank) as rank, any_value(micro_batch) as micro_batch, any_value(n) as n
        from (select step, seq_id, count(*) as n from usable where coalesce(rejected, '') = '' group by all)
            left join sequence using (step, seq_id)
        group by all
        """
    )
    logged = [name for name in ("rank", "micro_batch") if lengths[name].notna().all() and lengths[name].nunique() > 1]
    keys = [[], *([name] for name in logged), *([logged] if len(logged) > 1 else [])]
    words = {(): "step", ("rank",): "rank", ("micro_batch",): "micro-batch"}
    of = lengths.groupby("step")["n"]
    shares: dict[str, float] = {}
    for more in keys:
        padded = lengths.groupby(["step", *more])["n"].agg(lambda n: len(n) * n.max()).groupby("step").sum()
        off = of_step - np.log(of.sum() / padded)
        shares[f"the longest of each {words.get(tuple(more), 'micro-batch')}"] = float(
            (off.abs() <= ALIKE_FACTORS).mean()
        )
    to_one = of_step - np.log(of.mean())
    if of_step.std(ddof=0) > 3 * ALIKE_FACTORS and np.exp(-to_one.median()) > 0.99 * lengths["n"].max():
        same = ((to_one - to_one.median()).abs() <= ALIKE_FACTORS).mean()
        shares[f"{number(float(np.exp(-to_one.median())))} tokens"] = float(same)
    to = max(shares, key=lambda each: shares[each])
    return MarkReading(
        shares[to],
        f"gradient_weight is {number(float(np.exp(of_step.median())))} × what a mean over the tokens gives, as "
        f"with padding to {to}",
        evidence.all_steps, ("gradient_weight",), first_rows(applied.rows),
    )  # fmt: skip


@mark(needs=(*WITH_WEIGHTS, ("sequences.seq_id",)), limit=0.9)
def short_steps_weigh_less(evidence: LogEvidence) -> MarkReading | None:
    """Of steps with fewer responses than most: the share in which gradient_weight is less than a mean over the tokens
    by what is missing."""
    # That it is a mean over the tokens is seen in the full steps, if the manifest does not say it.
    of_step = _over_token_mean(evidence)
    if of_step is None:
        return None
    found = evidence.frame("select step, count(*) as n from sequence where dropped is null group by step")
    n = found.set_index("step")["n"].reindex(of_step.index)
    usual = int(n.mode().iloc[0]) if n.notna().any() else 0
    full, short = n == usual, n <= (1 - _LEAST_SHORT) * usual
    if full.sum() < _FEWEST_STEPS or short.sum() < _FEWEST_SHORT:
        return None
    less = of_step - of_step[full].median()
    if less[full].std() > ALIKE_FACTORS:
        return MarkReading(0.0, "")
    alike = (less - np.log(n / usual))[short].abs() <= ALIKE_FACTORS
    steps, applied = tuple(int(step) for step in alike.index[alike]), applied_factors(evidence)
    return MarkReading(
        float(alike.mean()),
        f"gradient_weight is {number(float(np.exp(less[short].median())))} × what a mean over the tokens gives in "
        f"{len(steps)} of {int(short.sum())} steps with fewer than {usual} responses",
        steps, ("gradient_weight",),
        first_rows(applied.rows[applied.rows["step"].isin(steps)]) if applied is not None else (),
    )  # fmt: skip


def _scale_of_steps(evidence: LogEvidence) -> "pd.Series[float] | None":
    """As `_over_token_mean`; None where the manifest names no such mean, too."""
    applied = applied_factors(evidence)
    named = evidence.run.manifest.parts.get("aggregation") == "token_mean"
    return _over_token_mean(evidence) if applied is not None and applied.ruled and named else None


def _over_token_mean(evidence: LogEvidence) -> "pd.Series[float] | None":
    """The log of the gradient weights over those of a mean over the step's tokens; None where too little is known."""

    def made() -> "pd.Series[float] | None":
        applied = applied_factors(evidence)
        if applied is None:
            return None
        n = evidence.frame(
            "select step, count(*) as n from usable where coalesce(rejected, '') = '' group by step order by step"
        )
        rows = applied.rows
        with np.errstate(divide="ignore", invalid="ignore"):
            log_scale = np.log((rows["gradient_weight"] / rows["advantage"]).to_numpy(dtype=float)) - applied.wanted
        of_step = pd.Series(log_scale, rows.index).groupby(rows["step"]).median()
        return (of_step + np.log(n.set_index("step")["n"])).dropna()

    return evidence.once("scale of steps", made)


@mark(needs=WITH_WEIGHTS, limit=0.99)
def weight_is_the_advantage(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight is the advantage alone, up to one factor, while importance weights differ."""
    applied = applied_factors(evidence)
    if applied is None or (np.abs(applied.expected) > ALIKE_FACTORS).mean() < ALIKE_FACTORS:
        return None  # there is no weight to be missed
    same = float((np.abs(applied.alone) <= ALIKE_FACTORS).mean())
    return MarkReading(same, f"it is the advantage alone in {percent(same)} of the tokens", (), ("gradient_weight",))


@mark(needs=WITH_WEIGHTS, limit=0.95)
def weight_is_capped(evidence: LogEvidence) -> MarkReading | None:
    """Where gradient_weight is off, the weight stands at one value, below the configured one."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled:
        return None
    off = np.abs(applied.against) > ALIKE_FACTORS
    if off.sum() < FEW_OF_LOSS:
        return None
    level = float(np.median(applied.factor[off]))
    at_it = (np.abs(applied.factor[off] - level) <= ALIKE_FACTORS) & (applied.wanted[off] > level)
    return MarkReading(float(at_it.mean()), f"there it stands at {number(float(np.exp(level)))}", (), ())


@mark(needs=WITH_WEIGHTS, limit=0.1)
def weight_passes_the_cap(evidence: LogEvidence) -> MarkReading | None:
    """Of tokens whose ratio is above the configured cap, the share whose weight is so, too, while those below it have
    the configured one."""
    applied = applied_factors(evidence)
    rule = own_rule(evidence.run).rule if applied is not None and applied.ruled else None
    if applied is None or rule is None or rule.weight not in _CAPPED or rule.weight_level != "token":
        return None
    cap = float(np.log(_CAPPED[rule.weight](rule.weight_parameters)))
    at = applied.rows["at"].to_numpy(dtype=float)
    beyond, below = at > cap + _CLEARLY, at <= cap
    as_configured = np.abs(applied.against[below]) <= ALIKE_FACTORS
    if beyond.sum() < _FEWEST_BEYOND or below.sum() < FEWEST_OF_LOSS:
        return None
    # What is above the ratio itself has another factor in it.
    passed = beyond & (applied.factor > cap + _CLEARLY) & (applied.factor <= at + _CLEARLY)
    rows = applied.rows[passed]
    few = len(rows) < _FEWEST_BEYOND or rows["step"].nunique() < _FEWEST_SHORT
    if few or as_configured.mean() < _NEARLY_ALL:
        return MarkReading(0.0, "")
    largest = float(np.exp(applied.factor[passed].max()))
    return MarkReading(
        float(passed.sum() / beyond.sum()),
        f"in {len(rows):,} tokens of {rows['step'].nunique()} steps weights are above {number(float(np.exp(cap)))}, up "
        f"to {number(largest)}",
        steps_in(rows), ("gradient_weight",), first_rows(rows),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=0.9)
def weight_is_squared(evidence: LogEvidence) -> MarkReading | None:
    """Where the configured weight differs from its median, gradient_weight is its square times the advantage."""
    applied = applied_factors(evidence)
    if applied is None or not applied.ruled:
        return None
    telling = np.abs(applied.expected) > 3 * ALIKE_FACTORS
    if telling.sum() < FEWEST_OF_LOSS:
        return None
    alike = np.abs(applied.alone - 2 * applied.expected)[telling] <= 2 * ALIKE_FACTORS
    slope = float(np.polyfit(applied.expected[telling], applied.alone[telling], 1)[0])
    return MarkReading(
        float(alike.mean()), f"gradient_weight over the advantage follows the ratio to the power of {number(slope)}",
        (), ("gradient_weight",), first_rows(applied.rows[telling]),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",)), limit=0.95)
def gradient_against_the_advantage(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight has the opposite sign of the advantage in nearly all tokens that have both."""
    if evidence.run.manifest.has_penalty:
        return None
    opposite = "gradient_weight * advantage < 0"
    found = evidence.frame(
        f"select count(*) as n, count(*) filter ({opposite}) as opposite from usable "
        "where gradient_weight * advantage <> 0 and coalesce(rejected, '') = ''"
    ).iloc[0]
    n, share = int(found["n"]), float(found["opposite"]) / max(int(found["n"]), 1)
    if n < FEWEST_OF_LOSS:
        return None
    return MarkReading(
        share, f"gradient_weight has the opposite sign of the advantage in {percent(share)} of {n:,} tokens",
        evidence.all_steps, ("gradient_weight",),
        evidence.rows_where(f"invalid is null and {opposite}") if share > ALIKE_FACTORS else (),
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
    if of["n"].sum() < FEWEST_OF_LOSS or of["step"].nunique() < _FEWEST_STEPS:
        return None
    last = of["micro_batch"] == of.groupby("step")["micro_batch"].transform("max")
    right = (of["share"] >= 1 - ALIKE_FACTORS).where(last, of["share"] <= ALIKE_FACTORS).groupby(of["step"]).all()
    n, lost = int(of["n"].sum()), float(of["n"][~last].sum() / of["n"].sum())
    return MarkReading(
        float(right.mean()), f"{percent(lost)} of {n:,} tokens with an advantage are in the others, without a gradient",
        tuple(int(step) for step in right.index[right]), ("gradient_weight",),
        evidence.rows_where("invalid is null and advantage <> 0 and gradient_weight = 0") if right.any() else (),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.9)
def weight_is_a_product(evidence: LogEvidence) -> MarkReading | None:
    """A response's weight is the product of its tokens' ratios, up to a cap."""
    of = _weights_of_responses(evidence)
    if of is None:
        return None
    apart = of["weight"] - of["product"]
    below = of["weight"] < of["cap"] - 5 * ALIKE_FACTORS
    if below.sum() < FEW_OF_LOSS:
        return MarkReading(0.0, "")
    level = apart[below].groupby(of["step"][below]).transform("median")
    explained = float(((apart[below] - level).abs() <= 2 * ALIKE_FACTORS).sum() + (~below).sum()) / len(of)
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
        rows = tokens_of_loss(evidence)
        rows = rows.assign(weight=rows["gradient_weight"] / rows["advantage"])
        of = rows.groupby(["step", "seq_id"], as_index=False).agg(
            n=("at", "size"), product=("at", "sum"), weight=("weight", "median")
        )
        of = of[of["weight"] > 0]
        if len(of) < FEWEST_OF_LOSS:
            return None
        log_weight = np.log(of["weight"].to_numpy(dtype=float))
        of = of.assign(weight=log_weight)
        return of.assign(cap=of.groupby("step")["weight"].transform("max"))

    return evidence.once("weights of responses", made)


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
    ends = tokens[(tokens["ends"] > 1 - ALIKE_FACTORS) & (tokens["n"] >= FEW_OF_LOSS)]
    others = tokens.drop(ends.index)
    if not len(ends) or others["n"].sum() < FEWEST_OF_LOSS:
        return None
    if (others["without"] * others["n"]).sum() > ALIKE_FACTORS * others["n"].sum():
        return MarkReading(0.0, "")
    most = ends.sort_values("n").iloc[-1]
    return MarkReading(
        float(most["without"]),
        f"token {int(most['token_id'])}, the last of its response, has no gradient in {percent(most['without'])} of "
        f"{int(most['n']):,} rows with an advantage",
        (), ("gradient_weight",), place=f"token {int(most['token_id'])}",
    )  # fmt: skip


@mark(needs=(("position",), ("gradient_weight",), ("advantage",)), limit=0.99)
def first_tokens_without_gradient(evidence: LogEvidence) -> MarkReading | None:
    """The first token of each turn, or of each response, has no gradient whatever its advantage, and the others have
    one."""
    _, still = evidence.gradients
    if still < FEW_OF_LOSS:
        return MarkReading(0.0, "")
    # A token that is certain, as one that every response is made to begin with, has no gradient to lose.
    tokens = evidence.frame(
        """
        with of as (
            select step, advantage, gradient_weight, logp_current < -1e-2 as counted,
                coalesce(clipped, false) or coalesce(clip_side, 0) <> 0 or coalesce(gate, 1) = 0
                    or coalesce(rejected, '') <> '' as stopped,
                position = min(position) over response_of as of_response,
                turn is distinct from lag(turn) over (response_of order by position) as of_turn
            from usable window response_of as (partition by step, seq_id)
        )
        select step, of_response, of_turn, count(*) as n, count(*) filter (gradient_weight = 0) as without
        from of where advantage <> 0 and gradient_weight is not null and counted and not stopped
        group by all order by all
        """
    )
    several = bool((tokens["of_turn"] & ~tokens["of_response"]).any())
    for first, what in ((tokens["of_turn"], "turn"), (tokens["of_response"], "response"))[0 if several else 1 :]:
        n, others = int(tokens["n"][first].sum()), tokens[~first]
        if n < FEW_OF_LOSS or others["n"].sum() < FEWEST_OF_LOSS:
            return None
        if others["without"].sum() <= ALIKE_FACTORS * others["n"].sum():
            lost = tokens["without"].where(first, 0).groupby(tokens["step"]).sum()
            share = float(lost.sum()) / n
            return MarkReading(
                share,
                f"gradient_weight is 0 in {percent(share)} of {n:,} first tokens of a {what} with an advantage, of "
                f"others in {percent(float(others['without'].sum() / others['n'].sum()))}",
                tuple(int(step) for step in lost.index[lost > 0]), ("gradient_weight",),
                evidence.rows_where("invalid is null and advantage <> 0 and gradient_weight = 0 "
                                    "and not coalesce(clipped, false)"),
                place=f"the first token of each {what}",
            )  # fmt: skip
    return MarkReading(0.0, "")
