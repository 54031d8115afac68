"""The tokens of the loss: what multiplied their advantages, and what the manifest's rule gives on the same tokens.

Up to one factor for each step (or response, where lengths or weights of responses are in it).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Example
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence
from ratioscope.analysis.what_if.judging import multiplier
from ratioscope.analysis.what_if.rule import own_rule, takes_several_passes
from ratioscope.analysis.what_if.tokens import rows_of

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ALIKE_FACTORS = 0.01
"""Two factors on a token's gradient are the same within 1 %."""
FEWEST_OF_LOSS = 200
"""Tokens, below which nothing is said of a share of them."""
FEW_OF_LOSS = 50
"""Tokens out of bounds, or clipped, below which nothing is said of them."""
_PER_STEP = ("token_mean", "longest_mean", "sequence_sum")
"""Aggregations under which one factor holds for all tokens of a step."""
WITH_WEIGHTS: tuple[Need, ...] = (("gradient_weight",), ("advantage",), ("logp_current",))
WITH_CLIPPED: tuple[Need, ...] = (("clipped", "clip_side"), ("advantage",), ("logp_current",))


def tokens_of_loss(evidence: LogEvidence) -> pd.DataFrame:
    """Usable tokens of whole prompt groups that no mask took out, with what the loss did to them."""
    return evidence.once(
        "tokens as the loss has them",
        lambda: evidence.frame(
            f"""
            select step, group_id, seq_id, position, logp_sampled, logp_current, version_lag,
                coalesce(logp_gate, logp_current) as logp_gate, advantage::double as advantage, clipped, clip_side,
                gradient_weight::double as gradient_weight,
                coalesce(log_engine, if(version_lag = 0, log_rho, null)) as engine,
                coalesce(logp_gate, logp_current)::double - logp_sampled::double as at, segment_id, rank, micro_batch,
                sample_weight
            from usable left join (
                select step, seq_id, any_value(rank) as rank, any_value(micro_batch) as micro_batch,
                    any_value(sample_weight)::double as sample_weight
                from sequence group by all
            ) using (step, seq_id)
            where hash(step, group_id) % {evidence.sampled} = 0 and log_rho is not null and advantage <> 0
                and coalesce(rejected, '') = ''
            order by step, group_id, seq_id, position
            """
        ),
    )


class AppliedFactors(NamedTuple):
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
        return float(max((np.abs(values) <= ALIKE_FACTORS).mean() for values in (self.alone, self.against)))


def applied_factors(evidence: LogEvidence) -> AppliedFactors | None:
    """Of tokens with a gradient; None where too few have one, or where a penalty has a gradient of its own."""
    return evidence.once("what multiplied advantages", lambda: _made(evidence))


def _made(evidence: LogEvidence) -> AppliedFactors | None:
    rows = tokens_of_loss(evidence)
    if evidence.run.manifest.has_penalty or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
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
    if there.sum() < FEWEST_OF_LOSS:
        return None
    rows, alone, factor = rows[there], alone[there], factor[there]
    keys = [["step"]] if has_one_factor(evidence) else [["step"], ["step", "seq_id"]]
    found = [_beside(rows, alone, factor, by, rule is not None) for by in keys]
    weight = rows["sample_weight"].to_numpy(dtype=float)
    if (weight > 0).all() and weight.min() < weight.max():
        found.append(_beside(rows, alone - np.log(weight), factor, ["step"], rule is not None))
    # Where the manifest does not say what tokens are divided by: the one that explains more of them.
    return max(found, key=lambda each: each.explained)


def _beside(rows: pd.DataFrame, alone: Floats, factor: Floats, keys: list[str], ruled: bool) -> AppliedFactors:
    """Factors less their medians in the cells of some keys."""

    def beside(values: Floats) -> Floats:
        of = pd.Series(values, rows.index)
        return np.asarray(of - of.groupby([rows[key] for key in keys]).transform("median"), dtype=float)

    against = beside(alone - factor)
    return AppliedFactors(rows, beside(alone), against, beside(factor), factor + against, factor, ruled)


def has_one_factor(evidence: LogEvidence) -> bool:
    """Whether the manifest says that all tokens of a step are divided by the same number."""
    parts = evidence.run.manifest.parts
    return parts.get("aggregation") in _PER_STEP and parts.get("sample_weight", "equal") == "equal"


def first_rows(rows: pd.DataFrame) -> tuple[Example, ...]:
    first = rows.head(EXAMPLES)
    return tuple(
        Example(int(step), int(seq), int(at))
        for step, seq, at in zip(first["step"], first["seq_id"], first["position"], strict=True)
    )


def steps_in(rows: pd.DataFrame) -> tuple[int, ...]:
    return tuple(int(step) for step in np.unique(rows["step"]))
