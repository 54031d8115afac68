"""Whether the sampler is the policy that it is taken for: support, denominators, engines, selection (S0 7)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.engine.sentences import exceeded
from ratioscope.analysis.engine.verdict import EffectKind, EngineFacts, EngineVerdict
from ratioscope.analysis.findings.facts import STALENESS, Cause, Facts
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.setup import ENGINE_DEFAULTS, TRUNCATION, smoothing_of, unusual
from ratioscope.analysis.findings.words import tv_text
from ratioscope.analysis.linter.noise_floor import HEALTHY_TV, TIMES_PRECISION
from ratioscope.run_format.schema import DROPPED

_OF_ROWS = ("own_token", "zero_filled", "constant_columns", "shifted", "placeholders")
_OF_THE_DENOMINATOR = (
    "drawn_as_logged",
    "temperature",
    "recomputed",
    "copied_columns",
    "swapped",
    "shifted",
    "versions",
)
"""Checks that tell why a denominator is not the probability that tokens were drawn with."""
_FORMAT = {"dtype": ENGINE_DEFAULTS["dtype"]}
_MOVED_ROWS = ("own_token", "zero_filled", "shifted", "placeholders")
"""Of these, checks whose rows show as a difference of the engines."""
_SAME_TEMPERATURE = "Divide the trainer's logits by the sampler's temperature. "
_MOST = 0.5
"""A systematic error shows in most steps; a z-score beyond its limit in some is chance or an unseen tail."""


@rule("engine_mismatch", order=70, page="engine", group=Group.STALENESS)
def engine_differs(evidence: RunEvidence) -> Finding | None:
    """The engine hurts (`analysis.engine.verdict`), or is more than age adds and than is usual."""
    values, facts, found = evidence.values, evidence.facts, evidence.engine
    if found.verdict is EngineVerdict.CANNOT_TELL:
        return None
    engine, limit, age = found.tv, evidence.limits.engine, evidence.parts.get(Cause.AGE)
    # On data of the current policy staleness is the engine's, whether or not the sampling version is recomputed.
    key = STALENESS if found.fresh_only or facts.fresh else Cause.ENGINE.key
    high = engine.loc[list(found.over)]
    matters = engine > evidence.limits.engine_to_update * values["u_k"].loc[engine.index].fillna(np.inf)
    of_age = 0.0 if age is None else age.loc[engine.index]
    least = max(_noise_floor(evidence), HEALTHY_TV)
    larger = engine[(engine > of_age) & matters & (engine > least)]
    decides = found.decides
    if decides is not None and decides.exceeded and decides.kind is EffectKind.SIZE:
        severity, steps = Severity.WARNING, high
        sentence = f"The sampler's engine is {tv_text(high.max())} away from the trainer's with the same weights "
        sentence += f"(limit {number(limit)}) {share_text(high, evidence)}."
    elif decides is not None and decides.exceeded:
        severity, steps = Severity.WARNING, engine
        sentence = f"The sampler's engine differs from the trainer's, and it hurts: {exceeded(decides, found)}."
    elif (
        Cause.ENGINE in evidence.parts
        and evidence.often(larger)
        and len(larger) > _MOST * len(engine)
        and facts.cause_of_staleness is Cause.ENGINE
    ):
        severity, steps = Severity.NOTICE, larger
        sentence = _more_than_age(found, facts)
    else:
        return None
    worst = step_of(steps.idxmax())
    unsure = facts.fresh and not values[Cause.ENGINE.key].notna().any()
    doubt = " All of it counts as the engine's because the logged versions call every batch fresh." if unsure else ""
    why, do = _origin(evidence)
    return Finding(
        severity=severity,
        sentence=sentence,
        metric=key,
        steps=steps_of(steps),
        numbers=(
            evidence.number(key, worst, "worst"),
            *([] if age is None or facts.n_agreeing else [evidence.median(Cause.AGE.key, steps.index)]),
            evidence.median("u_k", steps.index),
            *_floors(evidence),
        ),
        why=f"{why}{doubt}",
        do=do,
        source="S0 7.1, 7.2; S1 6.2; NeMo-RL, alert on token_mult_prob_error",
        limit=limit,
    )


def _origin(evidence: RunEvidence) -> tuple[str, str]:
    """Where the engine's difference comes from and what to do, by the signs that this log has of it."""
    for remark in evidence.remarks:
        if remark.rule == "mismatch_cause" and remark.of_cause:
            return f"{remark.sentence} {remark.why}", remark.do
    if tempered := evidence.linted("temperature"):
        return tempered, f"{_SAME_TEMPERATURE.strip()}"
    measured, stated = evidence.engine.mean, unusual(_sampler(evidence), _FORMAT)
    of_format = {key: value for key, value in _floor_values(evidence).items() if value > measured / TIMES_PRECISION}
    place = next((remark.why for remark in evidence.remarks if remark.rule == "on_policy_ratio"), "")
    if rows := next(filter(None, map(evidence.linted, _MOVED_ROWS)), ""):
        return rows, "Mend this column first: its rows count as the engine's."
    if "noise_floor_dtype" in of_format:
        why = f"Two number formats in the trainer alone differ by {number(of_format['noise_floor_dtype'])}."
        return why, f"Use one number format in sampler and trainer{evidence.setup.keep_denominator}."
    cut = next((each for each in evidence.remarks if each.rule == "truncated_support" and each.severity), None)
    kinds = f"The manifest states {stated} for the sampler." if stated else ""
    if cut:
        return f"{cut.sentence} {kinds}".strip(), cut.do
    if kinds:
        return (
            f"{kinds} {place}".strip(),
            f"Run sampler and trainer in one number format{evidence.setup.keep_denominator}.",
        )
    why = place or "No server, prompt, position or other part of the tokens that is logged holds most of it."
    if not evidence.remarks:
        why = "The log was not checked for a cause."
    if "noise_floor_dtype" not in _floor_values(evidence):
        return why, "Log noise_floor_dtype: it tells whether the number format alone makes such a difference."
    return why, "Recompute some responses in both engines and compare their logits."


def _more_than_age(found: EngineFacts, facts: Facts) -> str:
    """A mismatch that is usually more than what old weights add, and no harm as far as that is known."""
    engine, age = (part.value if (part := facts.path.part(cause)) else 0.0 for cause in (Cause.ENGINE, Cause.AGE))
    first = "The engine mismatch does not hurt" if found.verdict is EngineVerdict.DOES_NOT else "Engine mismatch"
    more = f", more than old weights add ({tv_text(age)})" if age > 0 else ""
    return f"{first}: {tv_text(engine)} on average (limit {number(facts.limits.engine)}){more}."


def _noise_floor(evidence: RunEvidence) -> float:
    """What two passes over the same weights differ by; 0 where that was not measured."""
    return max(_floor_values(evidence).values(), default=0.0)


_FLOORS = {
    "noise_floor_shape": "noise floor, other batch shapes (median)",
    "noise_floor_dtype": "noise floor, other number format (median)",
}


def _floor_values(evidence: RunEvidence) -> dict[str, float]:
    """The measured floors by column, medians over the steps."""
    columns = {key: evidence.summary.steps[key].dropna() for key in _FLOORS if key in evidence.summary.steps}
    return {key: float(floor.median()) for key, floor in columns.items() if len(floor)}


def _floors(evidence: RunEvidence) -> tuple[Number, ...]:
    return tuple(Number(_FLOORS[key], value) for key, value in _floor_values(evidence).items())


@rule("truncated_support", order=90, page="engine", group=Group.STALENESS, of_the_sampler=True)
def support_is_truncated(evidence: RunEvidence) -> Finding | None:
    """Mean ratio significantly below 1 in most steps: the policy can say what the sampler cannot."""
    z, mean = evidence.values["ratio_mean_z"].dropna(), evidence.values["ratio_mean"]
    limits = evidence.limits
    below = z[(z < -limits.mean_ratio_z) & (mean.loc[z.index] < 1 - limits.mean_ratio_trifle)]
    if not evidence.often(below) or len(below) <= _MOST * len(z):
        return None
    if any(evidence.linted(check) for check in _OF_ROWS):
        return None  # rows that are wrong lower the mean, too
    missing = 1 - mean.loc[below.index]
    worst = step_of(missing.idxmax())
    dropped, tempered = _dropped(evidence).sum().sum() > 0, evidence.linted("temperature")
    cut = _truncation(evidence)
    smoothing = smoothing_of(evidence.run.manifest.sampler) if evidence.run else 0.0
    settings = _settings(evidence, TRUNCATION)
    told = f"about {percent(missing.median())} of the policy's probability lies on tokens that the sampler "
    told += "rarely draws" if smoothing else "never draws"
    if not (smoothing or settings or cut):
        told = f"the tokens drawn make up about {percent(1 - missing.median())} of the policy's probability"
    if dropped:
        why = "Tokens were dropped after sampling; what is left is not a sample of the sampler's policy."
    elif smoothing:
        why = (
            f"The sampler draws tokens outside of its truncation{_settings(evidence, TRUNCATION)} "
            f"{number(1 / smoothing)} times less often than the policy: few of them are in the log."
        )
    elif settings:
        why = f"The sampler excludes tokens that the policy can produce{settings}."
    elif cut:
        why = cut
    else:
        why = "The ratios alone do not tell tokens that are left out from sampler's log-probs that are too high."
    if tempered:
        why = f"A temperature leaves the mean ratio at 1, so that it is not all: {_small(why)}"
    return Finding(
        severity=Severity.WARNING if missing.median() > limits.missing_mass else Severity.NOTICE,
        sentence=f"The mean ratio is below 1 {share_text(below, evidence)}: {told}.",
        metric="ratio_mean",
        steps=steps_of(below),
        numbers=(
            evidence.number("ratio_mean", worst, "smallest"),
            evidence.median("ratio_mean_z", below.index),
            evidence.median("s_k_bounded", below.index),
        ),
        why=why,
        do=_SAME_TEMPERATURE * bool(tempered)
        + "Read the bounded staleness: the plain one misses half of that mass. "
        + _whole_support(evidence, smoothing, cut=bool(cut or settings), dropped=dropped),
        source="S0 7.3; docs/metrics.md, identities",
        limit=1.0,
    )


def _truncation(evidence: RunEvidence) -> str:
    """What the linter says of a truncation; empty: it found none."""
    for remark in evidence.remarks:
        if remark.rule == "truncated_support" and remark.severity:
            return remark.sentence
    return ""


def _whole_support(evidence: RunEvidence, smoothing: float, *, cut: bool, dropped: bool) -> str:
    """How the sampler comes to draw what the policy can; where no truncation is known, what would tell it."""
    if smoothing:
        return f"Sample without truncation, or raise smoothing ({number(smoothing)} now)."
    if cut:
        return "Sample without truncation, or smooth the sampler's probabilities."
    if dropped:
        return "Log the dropped tokens, too, to judge the sampler by all that it drew."
    if not evidence.values[Cause.ENGINE.key].notna().any():
        return "Log logp_behavior_train: on the same weights truncation lowers every ratio."
    return "State top_p and top_k of the sampler in the manifest."


def _small(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


@rule(
    "denominator_wrong", order=80, page="engine", group=Group.STALENESS, words="wrong denominator", of_the_sampler=True
)
def denominator_is_wrong(evidence: RunEvidence) -> Finding | None:
    """Mean ratio significantly above 1 in most steps, or beyond verl's limits: no support can explain it."""
    values, limits = evidence.values, evidence.limits
    z = values["ratio_mean_z"].dropna()
    trifle = limits.mean_ratio_trifle
    above = z[(z > limits.mean_ratio_z) & (values["ratio_mean"].loc[z.index] > 1 + trifle)]
    systematic = evidence.often(above) and len(above) > _MOST * len(z)
    outside = pd.concat(
        [
            evidence.above("ratio_mean", limits.mean_ratio_high),
            evidence.below("ratio_mean", limits.mean_ratio_low),
        ]
    ).sort_index()
    extreme = evidence.often(outside)
    if not (systematic or extreme):
        return None
    steps = outside if extreme else values["ratio_mean"].loc[above.index]
    worst = step_of((steps - 1).abs().idxmax())
    low, high = limits.mean_ratio_low, limits.mean_ratio_high
    found = f"clearly outside of {low:g} to {high:g}" if extreme else "significantly above 1"
    return Finding(
        severity=Severity.CRITICAL if extreme else Severity.WARNING,
        sentence=f"The mean ratio is {found} {share_text(steps, evidence)}; it is {number(steps.loc[worst])} in step "
        f"{worst} and would be 1 if the logged log-probs were the sampler's.",
        metric="ratio_mean",
        steps=steps_of(steps),
        numbers=(evidence.number("ratio_mean", worst, "worst"), evidence.median("ratio_mean_z", steps.index)),
        why=_not_drawn_with(evidence),
        do="Log the sampler's own log-probs after its decoding transforms, at sampling time, and train against those.",
        source="S0 7.3; verl, documented health limits of rollout correction",
        limit=high if extreme and steps.loc[worst] > 1 else low if extreme else 1.0,
    )


def _not_drawn_with(evidence: RunEvidence) -> str:
    """What is known of a denominator that is not the sampler's: what the linter found, or that tokens were dropped."""
    why = f"{evidence.sampled} is not the probability with which the kept tokens were drawn."
    signs = filter(None, map(evidence.linted, _OF_THE_DENOMINATOR))
    if sign := next(signs, ""):
        return f"{why} {sign}"
    if _dropped(evidence).sum().sum() > 0:
        return f"{why} Tokens were selected after sampling, which moves the mean, too."
    return why


@rule("survivor_bias", order=100, page="drift", group=None)
def survivors_are_biased(evidence: RunEvidence) -> Finding | None:
    """Many tokens were dropped before the loss: every number is one of the survivors."""
    dropped = _dropped(evidence)
    total = dropped.sum(axis=1)
    share = total / (total + evidence.values["n_tokens"])
    limit = evidence.limits.dropped_share
    steps = share[share > limit]
    if not evidence.often(steps):
        return None
    by_reason = dropped.loc[steps.index].sum()
    reason = str(by_reason.idxmax())
    by_ratio = reason == "tokens_dropped_stale"
    return Finding(
        severity=Severity.WARNING if by_ratio else Severity.NOTICE,
        sentence=f"{percent(steps.median())} of the tokens (median) were dropped before the loss "
        f"{share_text(steps, evidence)}: the numbers describe the kept tokens only.",
        metric="ratio_mean",
        steps=steps_of(steps),
        numbers=(
            Number("share dropped, median of these steps", float(steps.median())),
            Number("share dropped, largest", float(steps.max())),
            evidence.median("ratio_mean", steps.index),
        ),
        why=f"Mostly dropped {DROPPED[reason]}. "
        + (
            "Tokens are chosen by what was sampled. The staleness of those kept is below ε_stale/2 by construction, "
            "while the policies themselves may be further apart."
            if by_ratio
            else "Responses are chosen after they were sampled, so means over what is left (ratio, reward, staleness) "
            "are not means under the sampler."
        ),
        do="Judge the sampler by what it sampled, not by what was kept. "
        + evidence.setup.against_staleness(evidence.facts)
        if by_ratio
        else "Compare rewards of runs with other selections by evaluation accuracy, not by training reward.",
        source="S0 5.6, 7.3; S3 section 4.3",
        limit=1.0,
    )


def _dropped(evidence: RunEvidence) -> pd.DataFrame:
    """Tokens dropped before the loss, one column a reason; 0 where a reason is not logged."""
    steps = evidence.summary.steps
    columns = {key: steps[key] if key in steps else pd.Series(dtype=float) for key in DROPPED}
    return pd.DataFrame(columns).reindex(evidence.values.index).astype(float).fillna(0.0)


def _settings(evidence: RunEvidence, usual: Mapping[str, object]) -> str:
    """The sampler's settings that are not the usual ones, in brackets; empty when there are none."""
    told = unusual(_sampler(evidence), usual)
    return f" ({told})" if told else ""


def _sampler(evidence: RunEvidence) -> Mapping[str, object]:
    """The sampler's settings in the manifest."""
    return evidence.run.manifest.sampler if evidence.run else {}
