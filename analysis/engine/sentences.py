"""What the Engine page says: the verdict with the number that decides, what it is like, where it sits."""

from collections.abc import Sequence

from ratioscope.analysis.engine.measured import Measured
from ratioscope.analysis.engine.signature import Signature
from ratioscope.analysis.engine.verdict import EffectKind, EngineEffect, EngineFacts, EngineVerdict
from ratioscope.analysis.findings.change_points import LEAST
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.logged import Logged
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import tv_text
from ratioscope.analysis.frameworks.remedies import Like, title_of, to_log
from ratioscope.analysis.linter.noise_floor import on_policy_ratio
from ratioscope.metric import not_logged


def answer(facts: EngineFacts, like: Signature | None, log: Logged, framework: str = "") -> str:
    """Is it hurting, by the number that decides first; and what it is like, or what to log."""
    if facts.verdict is EngineVerdict.CANNOT_TELL:
        return f"Cannot tell: {_why_not(facts, log)}. {'' if facts.broken else what_to_log(facts, framework)}".strip()
    first = _hurts(facts) if facts.verdict is EngineVerdict.HURTS else _does_not(facts)
    changed = over_the_steps(facts) if facts.shift is not None else ""
    return " ".join(filter(None, (first, changed, looks_like(like) if like else "")))


def _hurts(facts: EngineFacts) -> str:
    effect, alarm = facts.decides, facts.alarm
    if effect is None or not effect.exceeded or (alarm and alarm.rule == "sampler_not_following"):
        said = alarm.sentence if alarm else ""
        return f"The engine mismatch hurts: {said[:1].lower()}{said[1:]}"
    return f"The engine mismatch hurts: {exceeded(effect, facts)}."


def _does_not(facts: EngineFacts) -> str:
    scope = ""
    if facts.fresh_only and facts.n_known < facts.n_steps:
        scope = f", in {facts.n_known} of {facts.n_steps} steps, those with data of the policy's own version"
    return (
        f"The engine mismatch does not hurt: with the same weights it is {tv_text(facts.mean)} in total variation "
        f"on average (limit {number(facts.effects[0].limit)}){scope}."
    )


def _size(effect: EngineEffect, facts: EngineFacts) -> str:
    return (
        f"with the same weights sampler and trainer are {tv_text(effect.value)} apart in total variation, above the "
        f"limit of {number(effect.limit)} in {len(facts.over)} of {facts.n_known} steps"
    )


def beyond(effect: EngineEffect, facts: EngineFacts) -> str:
    """Whether an effect is beyond its limit, in a table's cell."""
    if effect.kind is EffectKind.SIZE and facts.over:
        return (
            f"in {len(facts.over)} of {facts.n_known} steps" if facts.n_known > 1 else "in the one step that is known"
        )
    if effect.value > effect.limit and not effect.exceeded:
        return "not beyond its noise" if effect.kind is EffectKind.BIAS else "too little of it"
    return "yes" if effect.exceeded else "no"


def exceeded(effect: EngineEffect, facts: EngineFacts) -> str:
    """What an effect beyond its limit is. A clause."""
    value, limit = number(effect.value), number(effect.limit)
    match effect.kind:
        case EffectKind.SIZE:
            return _size(effect, facts)
        case EffectKind.VARIANCE:
            return f"the ratio of the two engines alone has a variance χ² of {value} in sampled tokens (limit {limit})"
        case EffectKind.CLIP:
            return f"{percent(effect.value)} of the clipped tokens would be kept, were the engines the same"
        case EffectKind.BIAS:
            return (
                "good and bad responses differ in it, which moves the surrogate by "
                f"{value} × what an update gains (limit {limit})"
            )


def _why_not(facts: EngineFacts, log: Logged) -> str:
    if facts.broken:
        return "the linter found the log broken, and numbers made of it would describe the damage"
    if "tokens" in facts.missing:
        return log.why("logp_behavior")
    if facts.over:
        return (
            f"only {facts.n_known} step{'s' * (facts.n_known > 1)} can be judged, {tv_text(facts.mean)} in total "
            "variation, and three have to show it"
        )
    if "logp_behavior" in facts.missing:
        return not_logged("logp_behavior").text
    if "logp_behavior_train" in facts.missing:
        if not log.has_ratios:
            return "the log has no log-probability of the trainer"
        if log.missing("age") is not None:
            return "the sampling version is not recomputed by the trainer, and the log does not say how old a token is"
        return "the sampling version is not recomputed by the trainer, and no token is of the policy's own version"
    return "no token of these steps is known to both engines"


def what_to_log(facts: EngineFacts, framework: str = "") -> str:
    """The columns that are missing, with the setting of the run's framework where one is known. A sentence or none."""
    words = {
        "logp_behavior": "logp_behavior, the sampler's own log-probs",
        "logp_behavior_train": "logp_behavior_train, the same version recomputed by the trainer, for some steps",
        "tokens": "tokens with logp_behavior and logp_behavior_train",
    }
    if not facts.missing:
        return ""
    setting = to_log(framework)
    by = f" ({title_of(framework)}: {setting})" if setting else ""
    return f"Log {' and '.join(words[name] for name in facts.missing)}{by}."


def looks_like(like: Signature) -> str:
    """What it is like. A sentence."""
    match like.like:
        case Like.NOTHING:
            return "The engines agree to the last digits."
        case Like.TEMPERATURE:
            return f"It looks like a temperature: the sampler drew at {number(like.number)} × the trainer's."
        case Like.TRUNCATION:
            return f"It looks like truncation (top-p, top-k): the mean ratio, {number(like.number)}, is the kept mass."
        case Like.ROUNDING:
            return "It looks like rounding: small, to both sides, and gone where the policy is sure."
        case Like.WEIGHTS:
            return (
                "It looks like other weights, or coarser ones: to both sides, gone where the policy is sure, but large."
            )
    if like.vanishes is False:
        return "It does not vanish where the policy is sure, as a difference of number formats would."
    return "It is like nothing that is known here."


def sits(remarks: Sequence[Finding]) -> str:
    """Where most of it sits, as the linter found it. A sentence."""
    placed = next((remark for remark in remarks if remark.rule == on_policy_ratio.name and remark.place), None)
    if placed is None:
        return "No server, prompt, turn or position holds more of it than the probability of its tokens explains."
    return placed.why


def equal(measured: Measured) -> str:
    """How many tokens both engines give the very same log-probability."""
    return f"{percent(measured.equal)} of the tokens have the very same log-probability in both engines."


def over_the_steps(facts: EngineFacts) -> str:
    """Since when the engine's part is what it is. A sentence."""
    if not facts.n_known:
        return "The engine's part is not known; this is the rest of the path."
    if (shift := facts.shift) is not None:
        limit, verb = facts.effects[0].limit, "rises" if shift.after > shift.before else "falls"
        until = f"step {shift.first - 1}" if shift.first == shift.last else f"steps {shift.first - 1}–{shift.last - 1}"
        return (
            f"The engine's part is {number(shift.before, digits=2)} until {until}, then {verb} to "
            f"{number(shift.after, digits=2)}, {number(shift.after / limit, digits=2)} × the limit."
        )
    if abs(facts.trend) > 0.5:
        return f"The engine's part {'rises' if facts.trend > 0 else 'falls'} over the run."
    if facts.n_known >= LEAST:
        return "The engine's part has no lasting change."
    return f"The engine's part is {tv_text(facts.mean)} on average."
