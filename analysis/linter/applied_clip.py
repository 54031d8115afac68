"""Marks of the clip that ran: what was clipped against the ratio to the sampler, and its part at the same weights.

A clip judges ratios of tokens, or one of each whole response, as the run says.
"""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import ROUNDING_TV
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.loss_tokens import (
    ALIKE_FACTORS,
    FEW_OF_LOSS,
    FEWEST_OF_LOSS,
    WITH_CLIPPED,
    WITH_WEIGHTS,
    first_rows,
    steps_in,
    tokens_of_loss,
)
from ratioscope.analysis.linter.stated import ratio_level
from ratioscope.analysis.what_if.gate_bounds import BoundOfGate, bounds_of, ends_above
from ratioscope.analysis.what_if.rule import own_rule, takes_several_passes
from ratioscope.analysis.what_if.tokens import rows_of
from ratioscope.rules.gates import GATES, GateKind
from ratioscope.rules.parameters import Judged
from ratioscope.rules.ratios import LEVELS
from ratioscope.run_format.manifest import as_finite

_FEWEST_BEYOND = 20
"""Clipped tokens, where many that the configured clip would stop are not."""
_FEWEST_STEPS = 2
"""In which tokens beyond one bound must be."""
_ROUNDED = 1e-3
"""Nats beyond a bound that are no rounding."""
_OF_TOKENS = 0.05
"""Distance of a bound from 1 that is one for ratios of tokens: those are 0.1 to 0.3 in use, and of responses 0.0003."""
_NEARLY_ALL, _HARDLY_ANY = 0.99, 1e-3
"""Of the responses: the share whose ratios are their range, and the share that may be clipped beyond it."""


# The clip -------------------------------------------------------------------------------------------------------------


def _judged(evidence: LogEvidence) -> pd.DataFrame:
    """The tokens of the loss with the ratio that the clip judges; of whole responses one row each.

    A response's ratio is that of all its tokens that no mask took out, whatever their advantage.
    """
    if _of_tokens(evidence):
        return tokens_of_loss(evidence)

    def made() -> pd.DataFrame:
        of = "avg" if ratio_level(evidence.run.manifest) == "geometric" else "sum"
        ratio = "coalesce(logp_gate, logp_current)::double - logp_sampled::double"
        ratios = evidence.frame(
            f"select step, seq_id, {of}({ratio}) as at, avg(abs(exp({ratio}) - 1)) / 2 as moved from usable "
            "where log_rho is not null and coalesce(rejected, '') = '' group by all"
        )
        rows = tokens_of_loss(evidence).drop_duplicates(["step", "seq_id"]).drop(columns="at")
        return rows.merge(ratios, on=["step", "seq_id"])

    return evidence.once("responses as the clip judges them", made)


def _counted(evidence: LogEvidence) -> str:
    """What the clip judges."""
    return "tokens" if _of_tokens(evidence) else "responses"


def _band(evidence: LogEvidence) -> tuple[float, float] | None:
    """Ends of the clip around a ratio of 1 to the sampler, logs, as configured; None where none of that kind is."""
    parts, parameters = evidence.run.manifest.parts, evidence.run.manifest.parameters
    if "gate" in parts:
        gate = GATES.get(str(parts["gate"]))
        if gate is None or gate.judged is not Judged.RATIO:
            return None
        if gate.kind is not GateKind.CLIP and gate.name != "dual_clip":  # which is the same clip, with one bound more
            return None
    if parts.get("filter", "none") != "none" or ratio_level(evidence.run.manifest) not in LEVELS:
        return None
    low, high = (as_finite(parameters.get(f"epsilon_{end}", parameters.get("epsilon"))) for end in ("low", "high"))
    if low is None or high is None or not 0 < low < 1 or not high > 0:
        return None
    return float(np.log1p(-low)), float(np.log1p(high))


@mark(needs=WITH_CLIPPED, limit=0.005)
def clip_stops_nothing(evidence: LogEvidence) -> MarkReading | None:
    """Ratios to the sampler are beyond the configured clip in their advantage's direction, and none was clipped."""
    band = _band(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    rows = _judged(evidence)
    beyond = _beyond(rows, band)
    if len(rows) < FEWEST_OF_LOSS or beyond.sum() < FEW_OF_LOSS:
        return None
    share = float(beyond.mean()) if float(_stopped(rows)[beyond].mean()) < ALIKE_FACTORS else 0.0
    low, high = (number(float(np.exp(end))) for end in band)
    return MarkReading(
        share,
        f"none of the {int(beyond.sum()):,} {_counted(evidence)} with a ratio beyond {low} to {high} was clipped",
        steps_in(rows[beyond]), ("clipped",), first_rows(rows[beyond]),
    )  # fmt: skip


def _beyond(rows: pd.DataFrame, band: tuple[float, float]) -> "pd.Series[bool]":
    """Whether a ratio is beyond the clip in the direction of the advantage."""
    at, good = rows["at"], rows["advantage"] > 0
    return (good & (at > band[1] + _ROUNDED)) | (~good & (at < band[0] - _ROUNDED))


def _stopped(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether a token was clipped, or has no gradient."""
    clipped = rows["clipped"].fillna(False).astype(bool) | (rows["clip_side"].fillna(0) != 0)
    return clipped | (rows["gradient_weight"] == 0)


@mark(needs=(*WITH_CLIPPED, ("sequences.seq_id",)), limit=2.0)
def clip_of_tokens_on_responses(evidence: LogEvidence) -> MarkReading | None:
    """Ratios of whole responses stay far inside of the clip, none is clipped although the data are old, and the clip is
    as wide as one of tokens; its nearer end over their range, logs."""
    band = _band(evidence)
    if band is None or _of_tokens(evidence):
        return None
    if takes_several_passes(evidence.run) and not evidence.log.has("logp_gate"):
        return None
    rows, nearer = _judged(evidence), min(-band[0], band[1])
    if len(rows) < FEWEST_OF_LOSS or rows["step"].nunique() < _FEWEST_STEPS:
        return None
    old = (rows["version_lag"].fillna(1) > 0).mean() > 0.5 or takes_several_passes(evidence.run)
    moved = float(rows["moved"].mean())
    if np.expm1(nearer) < _OF_TOKENS or not old or moved <= ROUNDING_TV or _stopped(rows).mean() > _HARDLY_ANY:
        return MarkReading(0.0, "")
    reach = max(float(rows["at"].abs().quantile(_NEARLY_ALL)), _ROUNDED)
    low, high = (number(float(np.exp(end))) for end in band)
    inner, outer = (number(float(np.exp(end))) for end in (-reach, reach))
    return MarkReading(
        nearer / reach,
        f"none of {len(rows):,} responses was clipped at {low} to {high}, {percent(_NEARLY_ALL)} of their ratios are "
        f"within {inner} to {outer}",
        evidence.all_steps, ("clipped",), first_rows(rows),
    )  # fmt: skip


@mark(needs=WITH_CLIPPED, limit=0.1)
def clip_at_another_ratio(evidence: LogEvidence) -> MarkReading | None:
    """What is clipped and what is not part at another ratio than the configured one; as a share of the range."""
    band = _band(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    rows, found = _judged(evidence), []
    for sign, configured in ((1, band[1]), (-1, -band[0])):
        bounds = _observed(rows, sign, configured)
        if bounds is None:
            continue
        inner, outer, clipped = bounds
        if outer < inner * (1 - ALIKE_FACTORS):
            return MarkReading(0.0, "")  # no ratio parts them
        off = max(inner - configured, configured - outer, 0.0) / configured
        found.append(
            (off, float(np.exp(sign * outer)), float(np.exp(sign * configured)), first_rows(rows.loc[clipped]))
        )
    if not found:
        return None
    off, ran, wanted, examples = max(found)
    return MarkReading(
        off,
        f"{_counted(evidence)} are clipped from a ratio of {number(ran)} on, where the manifest says {number(wanted)}",
        evidence.all_steps, ("clipped",), examples,
    )  # fmt: skip


def _observed(rows: pd.DataFrame, sign: int, configured: float) -> "tuple[float, float, pd.Index[int]] | None":
    """The farthest log-ratio that was not clipped on a side, the nearest that was, and the rows that were; None where
    too few are."""
    side = (np.sign(rows["advantage"]) == sign) & (sign * rows["at"] > 0) & rows["clipped"].notna()
    beyond, clipped = sign * rows["at"][side], rows["clipped"][side].astype(bool)
    fewest = _FEWEST_BEYOND if (~clipped & (beyond > configured + 1e-3)).sum() >= FEW_OF_LOSS else FEW_OF_LOSS
    if clipped.sum() < fewest or (~clipped).sum() < FEW_OF_LOSS:
        return None
    inner, outer = float(beyond[~clipped].quantile(1 - ALIKE_FACTORS)), float(beyond[clipped].quantile(ALIKE_FACTORS))
    return inner, outer, clipped.index[clipped]


@mark(needs=WITH_CLIPPED, limit=0.9)
def lower_bound_is_epsilon(evidence: LogEvidence) -> MarkReading | None:
    """Below, tokens are clipped from a ratio of epsilon on, in place of 1 less epsilon; the nearness of the two."""
    band = _band(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    rows = _judged(evidence)
    bounds = _observed(rows, -1, -band[0])
    epsilon = 1 - float(np.exp(band[0]))
    if bounds is None or epsilon > 0.4:  # the two are nearly the same
        return None
    inner, outer, clipped = bounds
    _, upper, _ = _observed(rows, 1, band[1]) or (0.0, np.nan, None)
    near = np.exp(-abs(outer + np.log(epsilon))) if np.exp(-inner) > epsilon else 0.0
    above = f", above from {number(float(np.exp(upper)))}" if np.isfinite(upper) else ""
    return MarkReading(
        float(near),
        f"from below {_counted(evidence)} are clipped from a ratio of {number(float(np.exp(-outer)))} on{above}",
        evidence.all_steps, ("clipped",), first_rows(rows.loc[clipped]),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=0.99)
def bound_stops_nothing(evidence: LogEvidence) -> MarkReading | None:
    """Of tokens beyond one bound of the stated gate, the share that kept a gradient; of the bound where it is largest.

    Beyond it for certain, by the gate's own definition, and kept where gradient_weight is not 0.
    """
    rows, bounds = tokens_of_loss(evidence), _bounds(evidence)
    if bounds is None:
        return None
    kept = ~_stopped(rows).to_numpy(dtype=bool)
    shares = [float(kept[bound.stops].mean()) for bound in bounds]
    worst = max(zip(shares, bounds, strict=True), key=lambda each: (each[0], each[1].stops.sum()), default=None)
    if worst is None:
        return None
    share, bound = worst
    through = rows[bound.stops & kept]
    n = int(bound.stops.sum())
    many = f"all {n:,}" if len(through) == n else f"{len(through):,} of {n:,}"
    reaching = ""
    if len(through) and _of_tokens(evidence):  # whole responses have another ratio than their tokens
        end = np.exp(through["at"].max() if bound.above else through["at"].min())
        reaching = f", {'up' if bound.above else 'down'} to a ratio of {number(float(end))}"
    return MarkReading(
        share,
        f"{many} tokens with A {'>' if bound.good else '<'} 0 beyond {bound.parameter} {number(bound.value)} keep "
        f"their gradient{reaching}",
        steps_in(through), ("gradient_weight",), first_rows(through),
    )  # fmt: skip


@mark(needs=WITH_WEIGHTS, limit=0.1)
def lost_bound_held_large_ratios(evidence: LogEvidence) -> MarkReading | None:
    """The stated gate stops all large ratios, and those that it let through are beyond such a bound: their share of the
    squared gradient."""
    rule, bounds = own_rule(evidence.run).rule, _bounds(evidence)
    if bounds is None or rule is None or (rule.gate_level, rule.weight_level) != ("token", "token"):
        return None
    if ends_above(rule) is None:
        return MarkReading(0.0, "")
    rows = tokens_of_loss(evidence)
    square = rows["gradient_weight"].to_numpy(dtype=float) ** 2
    lost = [bound.stops for bound in bounds if bound.above and not _stopped(rows)[bound.stops].any()]
    beyond = np.logical_or.reduce(lost) if lost else np.zeros(len(rows), dtype=bool)
    share = float(square[beyond].sum() / square.sum()) if square.sum() > 0 else 0.0
    return MarkReading(
        share, f"they hold {percent(share)} of the squared gradient", steps_in(rows[beyond]), ("gradient_weight",),
        first_rows(rows[beyond]),
    )  # fmt: skip


def _of_tokens(evidence: LogEvidence) -> bool:
    """Whether the clip judges ratios of tokens."""
    return ratio_level(evidence.run.manifest) == "token"


def _bounds(evidence: LogEvidence) -> list[BoundOfGate] | None:
    """The bounds of the stated gate with enough tokens of the loss beyond them; None where the manifest states none,
    or where a penalty has a gradient that no gate stops."""

    def made() -> list[BoundOfGate] | None:
        gate = GATES.get(str(evidence.run.manifest.parts.get("gate")))
        if gate is None or not gate.stops or evidence.run.manifest.has_penalty:
            return None
        rule, rows = own_rule(evidence.run).rule, tokens_of_loss(evidence)
        if rule is None or rule.gate != gate.name or len(rows) < FEWEST_OF_LOSS or rows["gradient_weight"].isna().any():
            return None
        columns = {name: rows[name].to_numpy() for name in ("step", "group_id", "seq_id", "logp_current", "advantage")}
        columns |= {"logp_behavior": rows["logp_sampled"].to_numpy(), "logp_gate": rows["logp_gate"].to_numpy()}
        found = bounds_of(rule, rows_of(columns), _ROUNDED + evidence.rounding)
        return [
            each for each in found
            if each.stops.sum() >= _FEWEST_BEYOND and rows["step"][each.stops].nunique() >= _FEWEST_STEPS
        ]  # fmt: skip

    return evidence.once("bounds of the stated gate", made)


@mark(needs=(*WITH_CLIPPED, ("logp_gate",)), limit=0.99)
def gate_is_the_policy_itself(evidence: LogEvidence) -> MarkReading | None:
    """The log-probabilities of the gate are those of the policy at the start of the update: their ratio is 1."""
    rows = tokens_of_loss(evidence)
    if len(rows) < FEWEST_OF_LOSS:
        return None
    same = float((rows["logp_gate"] == rows["logp_current"]).mean())
    return MarkReading(same, "the policy at the gate is the one before the update, so their ratio is 1")


@mark(needs=WITH_CLIPPED, limit=0.5)
def clipped_at_the_same_weights(evidence: LogEvidence) -> MarkReading | None:
    """Most of the clipped tokens are out of bounds by the mismatch alone, which is there at the same weights."""
    rows = tokens_of_loss(evidence)
    clipped = rows["clipped"].fillna(False).astype(bool) & np.isfinite(rows["at"])
    engine, n_clipped = rows["engine"], clipped.sum()
    clipped &= engine.notna()
    if clipped.sum() < max(FEW_OF_LOSS, n_clipped / 2, 1e-3 * len(rows)):
        return None
    high = clipped & (rows["advantage"] > 0) & (rows["at"] > 0)
    low = clipped & (rows["advantage"] < 0) & (rows["at"] < 0)
    if (high | low).sum() < ALIKE_FACTORS * clipped.sum():
        return None
    beyond = pd.Series(False, rows.index)
    if high.any():  # the bounds are the nearest ratios that were clipped
        beyond |= high & (engine >= rows["at"][high].quantile(ALIKE_FACTORS))
    if low.any():
        beyond |= low & (engine <= rows["at"][low].quantile(1 - ALIKE_FACTORS))
    share = float(beyond.sum() / clipped.sum())
    return MarkReading(
        share, f"{percent(share)} of {int(clipped.sum()):,} clipped tokens are out of bounds at the same weights",
        steps_in(rows[beyond]), ("logp_behavior",), first_rows(rows[beyond]),
    )  # fmt: skip


@mark(needs=WITH_CLIPPED, limit=0.05)
def much_is_clipped(evidence: LogEvidence) -> MarkReading | None:
    """More than one token in twenty is clipped."""
    rows = tokens_of_loss(evidence)
    share = float(rows["clipped"].fillna(False).astype(bool).mean()) if len(rows) >= FEWEST_OF_LOSS else np.nan
    return MarkReading(share, f"{percent(share)} of the tokens are clipped")
