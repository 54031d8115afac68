"""Is the engine mismatch hurting?"""

from functools import partial
from math import isfinite

import pandas as pd

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.log import log_is_broken
from ratioscope.analysis.diagnosis.support import engine_differs
from ratioscope.analysis.engine import sentences
from ratioscope.analysis.engine.blamed import Blamed, blamed_settings
from ratioscope.analysis.engine.measured import MEASURED_TOKENS, Measured, measure_engine
from ratioscope.analysis.engine.signature import Signature, engine_signature
from ratioscope.analysis.engine.verdict import (
    EffectKind,
    EngineFacts,
    EngineVerdict,
    engine_by_step,
    engine_facts,
    missing_columns,
)
from ratioscope.analysis.engine.where import DIMENSIONS, Where, where_engine_differs
from ratioscope.analysis.findings.facts import UPDATE_METRIC, Cause, parts_by_step
from ratioscope.analysis.findings.numbers import capital, number, percent
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.naming import written_by
from ratioscope.analysis.frameworks.remedies import (
    REMEDIES,
    Advice,
    Like,
    Purpose,
    framework_of,
    remedies,
    title_of,
    to_log,
)
from ratioscope.analysis.overview.lights import LEARNING, LightState
from ratioscope.dashboard.figures import engine as figures
from ratioscope.dashboard.formats import estimate
from ratioscope.dashboard.sections.model import Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Page, Part
from ratioscope.dashboard.sections.subject import NO_STEP, Subject, chart


def measured(subject: Subject) -> Measured | None:
    """The tokens of these steps, as far as the engine is known on them."""
    steps = subject.steps if None not in subject.steps else subject.window(MEASURED_TOKENS).steps
    return subject.compute(measure_engine, *steps)


def facts(subject: Subject) -> EngineFacts:
    """What is so of these steps."""
    return engine_facts(
        subject.summary,
        subject.facts,
        measured(subject),
        setup_of(subject.opened.run.manifest),
        missing=missing_columns(subject.log),
        alarms=[finding for finding in subject.opened.findings if RULES[finding.rule].of_the_sampler],
        broken=any(finding.rule == log_is_broken.name for finding in subject.opened.findings),
    )


def placed(subject: Subject) -> Where | None:
    """Where it sits, over the latest steps with so many tokens; None where it is not known or is nowhere."""
    if measured(subject) is None:
        return None
    return subject.compute(where_engine_differs, *subject.window(MEASURED_TOKENS).steps)


def like(subject: Subject) -> Signature | None:
    """What it is like; None where it is not known."""
    found = measured(subject)
    return engine_signature(found, placed(subject), subject.opened.remarks) if found is not None else None


def differs(subject: Subject) -> bool:
    """Whether there is a difference to place and to explain."""
    signs = like(subject)
    return signs is not None and signs.like is not Like.NOTHING and not facts(subject).broken


def answer(subject: Subject) -> str:
    """Of these steps."""
    if not len(subject.summary.values):
        return NO_STEP
    return sentences.answer(facts(subject), like(subject), subject.log, own_framework(subject))


def blamed(subject: Subject) -> tuple[Blamed, ...]:
    """The stated settings that make it."""
    signs = like(subject)
    return blamed_settings(subject.opened.run.manifest, signs.like, own_framework(subject)) if signs else ()


def first_lines(subject: Subject) -> list[Piece]:
    """Below the answer: what it does, where it comes from, what to set, where it sits, its number as it is logged."""
    found, signs, settings = facts(subject), like(subject), blamed(subject)
    lines = {"Effect:": sentences.beside_the_update(found)}
    if signs is not None and not found.broken:
        there = signs.like is not Like.NOTHING
        lines |= {
            "Cause:": sentences.cause(found, signs, settings, subject.opened.remarks) if there else "",
            "What to set:": sentences.what_to_set(
                found,
                signs,
                settings,
                advice(subject, own_framework(subject)),
                subject.opened.remarks,
                next((one for one in subject.opened.findings if one.rule == engine_differs.name), None),
            ),
            "Where:": sentences.sits_mostly(subject.opened.remarks) if there else "",
        }
    lines["Logged as:"] = as_logged(subject)
    return [Paragraph(text, lead=lead) for lead, text in lines.items() if text]


def meanwhile(subject: Subject) -> list[Piece]:
    """Whether the run learns, which a report has on its first page."""
    learning = next(light for light in subject.verdict.lights if light.name == LEARNING)
    return [] if learning.state is LightState.UNKNOWN else [Paragraph(learning.words, lead="Learning:")]


def parts(subject: Subject) -> list[Piece]:
    """The engine's part of the path beside age and update, over the steps; without the engine's, what there is."""
    found = facts(subject)
    shown = subject.shown
    agrees = bool(subject.facts.n_agreeing)
    of = dict(parts_by_step(shown.values, fresh=subject.facts.fresh, agrees=agrees))
    tv, _ = engine_by_step(shown)
    if len(found.tv):  # as the verdict has it, on the data of the policy's own version, too
        of[Cause.ENGINE] = (tv if len(tv) else found.tv).reindex(shown.values.index)
    if not of:
        return []
    if Cause.UPDATE in of:  # beside the others, not added to them: the form that other pages show
        of[Cause.UPDATE] = shown.values[UPDATE_METRIC].where(of[Cause.UPDATE].notna())
    order = [cause for cause in Cause if cause in of]
    series = {cause: of[cause] for cause in order}
    data = pd.DataFrame({figures.word(cause): values for cause, values in series.items()})
    title = capital(listed([figures.word(cause) for cause in order]))
    said = sentences.over_the_steps(found) if found.shift is None else ""  # else the answer says it
    if is_all_staleness(subject):
        k1, k3 = (float(shown.values[key].median()) for key in ("kl_k1", "kl_k3"))
        said = f"{said} {sentences.missed_by_k3(k1, k3, like(subject))}".strip()
    draw = partial(figures.parts, series, subject.opened.limits.engine, steps=subject.steps)
    return [chart(subject.mode, "engine-parts", title, draw, said, data, by_step=True)]


def as_logged(subject: Subject) -> str:
    """The mismatch KL under the name by which the run's framework logs the same number; "" for none. A sentence."""
    framework, values = written_by(subject.opened.run.manifest), subject.summary.values
    rows = DIALECTS[framework].rows if framework else ()
    row = next((row for row in rows if row.same and row.ours in _MISMATCH_KL and values[row.ours].notna().any()), None)
    if row is None:
        return ""
    mean = number(float(values[row.ours].mean()), digits=2)
    age = "" if subject.facts.fresh else ", with the age of the data in it"
    return f"{row.name} in {title_of(framework)}, mean {mean} over the steps{age}."


_MISMATCH_KL = ("kl_k3", "kl_k1")


def is_all_staleness(subject: Subject) -> bool:
    """Whether ratios differ from 1 by the engine alone: no batch is old."""
    return subject.facts.fresh and subject.facts.engine_in_ratios


_OF_RATIOS = ("kl_k1", "kl_k3", "ratio_mean")
"""Metrics of the ratios, which are the engine's where nothing else is in them."""

_EFFECTS = {
    EffectKind.SIZE: "Total variation, same weights",
    EffectKind.VARIANCE: "Variance χ² of its ratio, sampled tokens",
    EffectKind.CLIP: "Of the clipped tokens, its doing",
    EffectKind.BIAS: "Bias, in gains of an update",
}


def effects(subject: Subject) -> list[Piece]:
    """What it does, each effect against its limit; and what is measured beside."""
    found, tokens = facts(subject), measured(subject)
    rows: list[tuple[str, str, str, str]] = []
    for effect in found.effects:
        write = percent if effect.kind is EffectKind.CLIP else number
        name = _EFFECTS[effect.kind]
        rows.append((name, write(effect.value), write(effect.limit), sentences.beyond(effect, found)))
    note = ""
    if tokens is not None:
        rows += _beside(tokens)
        note = f"{tokens.n_tokens:,} tokens of {tokens.n_steps} step{'s' * (tokens.n_steps > 1)}."
        if n := subject.facts.n_infinite_chi2:
            note += (
                f" The exact χ² is infinite in {n} steps: the policy gives probability to tokens that the sampler "
                "leaves out, and those are in no sample."
            )
        if isfinite(tokens.skew_positive):
            note += (
                " Skew: what the trainer's own denominators change of the correction −(r − 1)A, by the sign of A, over "
                "all correction by the sampler's."
            )
    head = ("Effect", "Value", "Limit", "Beyond it")
    return [Table("What the difference does", head, tuple(rows), note)] if rows else []


def _beside(tokens: Measured) -> list[tuple[str, str, str, str]]:
    skews = (tokens.skew_positive, tokens.skew_negative)
    values = {
        "Mean ratio of trainer over sampler": number(tokens.mean_ratio, digits=4),
        "Tokens with the very same log-prob": percent(tokens.equal),
        "Tokens that it alone puts beyond the clip": percent(tokens.outside),
        "Of the gradient's weight, signs aside": percent(tokens.noise),
        "Skew, good and bad responses": ", ".join(map(number, skews)) if isfinite(sum(skews)) else "–",
    }
    return [(name, value, "", "") for name, value in values.items() if value != "–"]


def places(subject: Subject) -> list[Piece]:
    """The smallest part of the tokens that holds half of it, by every way to divide them.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found = placed(subject) if differs(subject) else None
    # Of a single token there is nothing to divide; a dimension of which half takes all tokens says nothing.
    holdings = [holding for holding in found.holdings if holding.share_of_tokens < 1] if found else []
    if found is None or not holdings:
        return []
    rows = pd.DataFrame(
        [
            {"words": holding.words, "share_of_distance": holding.share_of_distance,
             "share_expected": holding.share_expected}
            for holding in sorted(holdings, key=lambda each: -each.lift)
        ]
    )  # fmt: skip
    title = f"Where half of it sits, {subject.window(MEASURED_TOKENS).words}"
    drawn = chart(
        subject.mode, "engine-where", title, partial(figures.holds, rows), sentences.sits(subject.opened.remarks), rows
    )
    return [drawn, _strata(found)]


def _strata(found: Where) -> Table:
    """The strata of the dimension that it sits in most."""
    dimension = found.smallest.dimension if found.smallest else "probability"
    if dimension == "token":
        dimension = "probability"
    rows = tuple(
        (str(row["label"]), percent(row["share_of_tokens"]), percent(row["share_of_distance"]),
         estimate("s_k_engine_bounded", row["tv"], float("nan"), float("nan")), percent(row["equal"]))
        for row in found.of(dimension).to_dict("records")
    )  # fmt: skip
    title = DIMENSIONS[dimension].title
    head = (capital(title), "Of the tokens", "Of the distance", "Distance per token", "Exactly equal")
    return Table("", head, rows)


def kind(subject: Subject) -> list[Piece]:
    """What it is like: the size of the difference against the token's probability.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found, signs = placed(subject) if differs(subject) else None, like(subject)
    if found is None or signs is None or not len(found.of("probability")):
        return []
    rows = found.of("probability")
    said = sentences.looks_like(signs, blamed(subject))
    return [
        chart(subject.mode, "engine-kind", "Its size against the probability of the token",
              partial(figures.against_probability, rows), said, rows)
    ]  # fmt: skip


def advice(subject: Subject, framework: str) -> tuple[Advice, ...]:
    """What to set in a framework against what this is like; in the run's own, the settings that it comes from."""
    signs = like(subject)
    known = remedies(framework, signs.like if signs else Like.UNKNOWN)
    if framework != own_framework(subject) or not (found := blamed(subject)):
        return known
    removing = " ".join(dict.fromkeys(one.setting for one in found))
    named = " and ".join(one.stated for one in found)
    others = (one for one in known if one.purpose is not Purpose.ALIGN)
    return Advice(Purpose.ALIGN, removing, f"the mismatch comes from {named}"), *others


def _is_harmless(subject: Subject) -> bool:
    return facts(subject).verdict is EngineVerdict.DOES_NOT


def own_remedy(subject: Subject) -> list[Piece]:
    """What to set in the run's own framework, where it may hurt; of one that is not known, where to look."""
    if _is_harmless(subject):
        return []
    framework = own_framework(subject)
    if not framework:
        said = "The log does not say which framework trained; the Engine page has the settings of all that are known."
        return [Paragraph(said, small=True)]
    rows = tuple((one.purpose.value, one.setting, one.effect) for one in advice(subject, framework))
    return [Table(f"What to set: {title_of(framework)}", ("For", "Setting", "Effect"), rows)]


def own_framework(subject: Subject) -> str:
    """Key of the framework that trained; "" where the log does not say, or it is not known."""
    return framework_of(subject.opened.run.manifest)


def frameworks(subject: Subject) -> tuple[str, ...]:
    """All whose settings are known, without the run's own."""
    own = own_framework(subject)
    return tuple(sorted((key for key in REMEDIES if key != own), key=lambda key: title_of(key).lower()))


def _has_steps(subject: Subject) -> bool:
    return bool(len(subject.summary.values))


def _differs(subject: Subject) -> bool:
    return _has_steps(subject) and differs(subject)


def _has_effects(subject: Subject) -> bool:
    return _has_steps(subject) and bool(facts(subject).effects) and not facts(subject).broken


def _is_like(subject: Subject) -> str:
    signs = like(subject)
    if signs is None:
        return ""
    if signs.like is Like.TRUNCATION:
        return f"{signs.like.value}, {percent(signs.number)} of the probability kept"
    unit = "× the trainer's" if signs.like is Like.TEMPERATURE else "nats of a logit"
    return (
        f"{signs.like.value}, {number(signs.number, digits=2)} {unit}" if isfinite(signs.number) else signs.like.value
    )


def _first_setting(subject: Subject) -> str:
    """The framework with the setting that it comes down to."""
    framework, signs, found = own_framework(subject), like(subject), facts(subject)
    settings = [each.remedy for each in blamed(subject)] or [to_log(framework)] * bool(found.missing)
    if not any(settings) and signs is not None and not found.broken:
        fits = [
            one for one in advice(subject, framework) if one.against is signs.like or one.purpose is Purpose.CORRECT
        ]
        settings = [one.setting for one in fits[:1]]
    return ": ".join(filter(None, (title_of(framework), " and ".join(settings))))


def _can_differ(subject: Subject) -> bool:
    """Whether there is something to set: not for engines that agree."""
    signs = like(subject)
    return _has_steps(subject) and (signs is None or signs.like is not Like.NOTHING)


PAGE = Page(
    "engine", "Engine", "Is the engine mismatch hurting?", 50, ":material/sync_problem:",
    answer=answer,
    limits=("mult_prob_error", "chi2", "engine_to_update", "step_share"),
    slow=True,
    main=lambda subject: [*first_lines(subject), *meanwhile(subject), *parts(subject)] if _has_steps(subject) else [],
    caption="below",
    tiles=_OF_RATIOS,
    without=lambda subject: [] if _has_steps(subject) and is_all_staleness(subject) else _OF_RATIOS,
    parts=[
        Part(
            "where", "Where it sits", places, lambda subject: sentences.part_of_most(subject.opened.remarks),
            when=_differs, height=300,
        ),
        Part("kind", "Signature", kind, _is_like, when=_differs, height=300),
        Part(
            "effects", "What it does", effects, lambda subject: sentences.against_limits(facts(subject)),
            when=_has_effects,
        ),
        Part(
            "remedy", lambda subject: f"How to {'remove' if _is_harmless(subject) else 'set'} it", "remedy",
            _first_setting, when=lambda subject: _can_differ(subject) and bool(own_framework(subject)),
        ),
        Part(
            "others", lambda subject: "The same in other frameworks" if own_framework(subject) else "How to set it",
            "others", lambda subject: ", ".join(map(title_of, frameworks(subject))), when=_can_differ,
        ),
    ],
    report=[first_lines, parts, effects, places, kind, own_remedy],
)  # fmt: skip
