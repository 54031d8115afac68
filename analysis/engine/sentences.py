"""What the Engine page says: the verdict with the number that decides, its cause, where it sits, what to set."""

from collections.abc import Sequence

from ratioscope.analysis.engine.blamed import FORMAT, Blamed
from ratioscope.analysis.engine.signature import Signature
from ratioscope.analysis.engine.verdict import EffectKind, EngineEffect, EngineFacts, EngineVerdict
from ratioscope.analysis.findings.change_points import LEAST
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.logged import Logged
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import tv_text
from ratioscope.analysis.frameworks.remedies import Advice, Like, Purpose, title_of, to_log
from ratioscope.analysis.linter.noise_floor import on_policy_ratio
from ratioscope.metric import not_logged


def answer(facts: EngineFacts, like: Signature | None, log: Logged, framework: str = "") -> str:
    """Is it hurting, by the number that decides first; or what to log."""
    if facts.verdict is EngineVerdict.CANNOT_TELL:
        return f"Cannot tell: {_why_not(facts, log)}. {'' if facts.broken else what_to_log(facts, framework)}".strip()
    first = _hurts(facts) if facts.verdict is EngineVerdict.HURTS else _does_not(facts)
    changed = over_the_steps(facts) if facts.shift is not None else ""
    alike = "The engines agree to the last digits." if like is not None and like.like is Like.NOTHING else ""
    return " ".join(filter(None, (first, changed, alike)))


def _hurts(facts: EngineFacts) -> str:
    if _alarm_decides(facts):
        said = facts.alarm.sentence if facts.alarm else ""
        return f"The engine mismatch hurts: {said[:1].lower()}{said[1:]}"
    return f"The engine mismatch hurts: {exceeded(facts.decides, facts) if facts.decides else ''}."


def _alarm_decides(facts: EngineFacts) -> bool:
    """Whether a finding of the sampler decides, rather than an effect beyond its limit."""
    effect, alarm = facts.decides, facts.alarm
    return effect is None or not effect.exceeded or (alarm is not None and alarm.rule == "sampler_not_following")


def _does_not(facts: EngineFacts) -> str:
    said = (
        f"The engine mismatch does not hurt: mean total variation {tv_text(facts.mean)} "
        f"(limit {number(facts.effects[0].limit)})."
    )
    if facts.fresh_only and facts.n_known < facts.n_steps:
        said += f" It is known in {facts.n_known} of {facts.n_steps} steps, on data of the policy's own version."
    return said


def _size(effect: EngineEffect, facts: EngineFacts) -> str:
    return (
        f"with the same weights the total variation is above {number(effect.limit)} in {len(facts.over)} of "
        f"{facts.n_known} steps (mean {tv_text(effect.value)})"
    )


def beyond(effect: EngineEffect, facts: EngineFacts) -> str:
    """Whether an effect is beyond its limit, in a table's cell."""
    if effect.kind is EffectKind.SIZE and facts.over:
        return (
            f"in {len(facts.over)} of {facts.n_known} steps" if facts.n_known > 1 else "in the one step that is known"
        )
    if effect.value > effect.limit and not effect.exceeded:
        return "not beyond its noise" if effect.kind is EffectKind.BIAS else "no, too little in all"
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


def _placed(remarks: Sequence[Finding]) -> Finding | None:
    """The remark that says which part of the tokens holds most of it."""
    return next((remark for remark in remarks if remark.rule == on_policy_ratio.name and remark.place), None)


def part_of_most(remarks: Sequence[Finding]) -> str:
    """The part of the tokens that holds most of it and how much, for a title: "98% in environment image"."""
    placed = _placed(remarks)
    return f"{placed.why.partition(' ')[0]} in {placed.place}" if placed else "no part holds more than expected"


def sits_mostly(remarks: Sequence[Finding]) -> str:
    """The part of the tokens that holds most of it, beside what their probability makes expect. A sentence, or none."""
    placed = _placed(remarks)
    return f"{placed.why.rpartition('; ')[0]})." if placed else ""


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


def cause(facts: EngineFacts, like: Signature, blamed: Sequence[Blamed], remarks: Sequence[Finding]) -> str:
    """Where the mismatch comes from: what was found, else what it is like. Sentences."""
    found = _found(facts, like, remarks)
    if found is None:
        return looks_like(like, blamed)
    return found.why if found is facts.alarm and _alarm_decides(facts) else found.sentence


def _found(facts: EngineFacts, like: Signature, remarks: Sequence[Finding]) -> Finding | None:
    """What names the cause of the mismatch better than its shape: a finding about the sampler."""
    if facts.alarm is not None and facts.alarm.rule == "sampler_not_following":
        return facts.alarm
    if like.like in (Like.TEMPERATURE, Like.TRUNCATION):
        return None
    named = (remark for remark in remarks if remark.rule == "mismatch_cause" and remark.of_cause)
    return next(named, facts.alarm)


def looks_like(like: Signature, blamed: Sequence[Blamed] = ()) -> str:
    """What the mismatch is like. Sentences."""
    other = next((each.stated for each in blamed if each.key == FORMAT), "")
    made = [each for each in blamed if each.key != FORMAT]
    stated, by = " and ".join(each.stated for each in made), f" by {other}" if other else ""
    match like.like:
        case Like.NOTHING:
            return "The engines agree to the last digits."
        case Like.TEMPERATURE:
            beside = f" ({stated} is stated)" if stated else ""
            drew = f"the sampler drew at {number(like.number)} × the trainer's"
            return f"The mismatch looks like a temperature: {drew}{beside}."
        case Like.TRUNCATION:
            kept = f"kept {percent(like.number)} of the probability"
            if not stated or not like.rest < 1:
                return f"The mismatch looks like truncation (top-p, top-k): the sampler {kept}."
            rest = f", at most {_rounded(like.rest)} from {other}." if other else f": the sampler {kept}."
            share = _rounded(1 - like.rest) if like.rest >= 0.005 else "All"
            return f"{share} of the mismatch comes from {stated}{rest}"
        case Like.ROUNDING:
            return f"The mismatch looks like rounding{by}: small, to both sides, and gone where the policy is sure."
        case Like.WEIGHTS:
            coarser = f"weights made coarser{by}" if by else "other weights, or coarser ones"
            return f"The mismatch looks like {coarser}: to both sides, gone where the policy is sure, but large."
    differs = f" The sampler has {other}." if other else ""
    if like.vanishes is False:
        return f"The mismatch stays where the policy is sure: rounding would vanish there.{differs}"
    return f"The mismatch shows the signs of no known cause.{differs}"


def what_to_set(
    facts: EngineFacts, like: Signature, blamed: Sequence[Blamed], advice: Sequence[Advice],
    remarks: Sequence[Finding], hurts: Finding | None,
) -> str:  # fmt: skip
    """The setting that removes the mismatch, or that none is needed. Sentences; "" where that is unknown.

    Args:
        advice: what the run's framework can set, what fits best first.
        hurts: the finding that the engine differs, with its remedy.
    """
    if facts.verdict is EngineVerdict.CANNOT_TELL:
        return ""
    found, settings = _found(facts, like, remarks), " and ".join(each.remedy for each in blamed)
    if facts.verdict is EngineVerdict.DOES_NOT:
        if found and found.do:
            return f"Nothing. {found.do}"
        return "Nothing." if settings and not found else ""
    if found is None and settings:
        return f"{settings}."
    removing = next((one for one in advice if one.against is like.like), None)
    if found is None and removing is not None:
        return f"{removing.setting}: {removing.effect}."
    do = next((one.do for one in (found, hurts) if one is not None), "")
    correcting = next((one for one in advice if one.purpose is Purpose.CORRECT), None)
    if correcting is None:
        return do
    return f"{do} Until then set {correcting.setting}: {correcting.effect}.".strip()


def beside_the_update(facts: EngineFacts) -> str:
    """Why a mismatch that is larger than the update is harmless all the same. A sentence, or none."""
    bias = next((effect for effect in facts.effects if effect.kind is EffectKind.BIAS), None)
    if facts.verdict is not EngineVerdict.DOES_NOT or bias is None or not facts.mean > facts.update > 0:
        return ""
    gain = f"an update's gain in reward changes by {_rounded(bias.value)} (limit {percent(bias.limit)})"
    return f"Larger than the update ({number(facts.update, digits=2)}), but {gain}."


def against_limits(facts: EngineFacts) -> str:
    """Each effect beside its limit, in a few words."""
    judged = [effect for effect in facts.effects if effect.exceeded or effect.value <= effect.limit]
    return ", ".join(f"{effect.kind.value} {_against(effect)}" for effect in judged)


def _against(effect: EngineEffect) -> str:
    if effect.kind in (EffectKind.BIAS, EffectKind.CLIP):
        return f"{_rounded(effect.value)} (limit {percent(effect.limit)})"
    return f"{number(effect.value, digits=2)} (limit {number(effect.limit)})"


def _rounded(share: float) -> str:
    """In percent, without a decimal where that is no digit of a small share."""
    return percent(round(share, 2) if 0.01 <= share <= 0.99 else share)


def missed_by_k3(k1: float, k3: float, like: Signature | None) -> str:
    """That k3 leaves out most of the KL where the sampler cuts tokens off. A sentence, or none.

    k3 takes the mean ratio for 1; under a sampler that cannot draw every token it is what the sampler keeps of the
    policy's probability, and k1 = k3 + 1 - mean ratio.
    """
    if like is None or like.like is not Like.TRUNCATION or not k1 > 2 * k3:
        return ""
    return "KL k3 understates: it assumes mean ratio 1."


def sits(remarks: Sequence[Finding]) -> str:
    """Where most of it sits, as the linter found it. A sentence."""
    placed = _placed(remarks)
    if placed is None:
        return "No server, prompt, turn or position holds more of it than the probability of its tokens explains."
    return placed.why


def over_the_steps(facts: EngineFacts) -> str:
    """Since when the mismatch is what it is, or on what it is known. A sentence."""
    if not facts.n_known:
        return "The engine mismatch is not known; this is the rest of the path."
    if (shift := facts.shift) is not None:
        limit, verb = facts.effects[0].limit, "rises" if shift.after > shift.before else "falls"
        until = f"step {shift.first - 1}" if shift.first == shift.last else f"steps {shift.first - 1}–{shift.last - 1}"
        return (
            f"The mismatch is {number(shift.before, digits=2)} until {until}, then {verb} to "
            f"{number(shift.after, digits=2)}, {number(shift.after / limit, digits=2)} × the limit."
        )
    if abs(facts.trend) > 0.5:
        return f"The mismatch {'rises' if facts.trend > 0 else 'falls'} over the run."
    if facts.n_known >= LEAST:
        return "Mismatch: no trend."
    if facts.fresh_only and facts.n_known < facts.n_steps:
        return "Dots: steps on data of the policy's own version, which alone show the mismatch."
    return f"The mismatch is {tv_text(facts.mean)} on average."
