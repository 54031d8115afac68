"""Is the engine mismatch hurting?"""

from functools import partial

import pandas as pd

from ratioscope.analysis.engine import sentences
from ratioscope.analysis.engine.measured import TOKENS, Measured, measure
from ratioscope.analysis.engine.remedies import REMEDIES, framework_of, remedies, title_of
from ratioscope.analysis.engine.signature import Like, Signature, signature
from ratioscope.analysis.engine.verdict import EngineFacts, Kind, Verdict, engine_by_step, engine_facts, missing_columns
from ratioscope.analysis.engine.where import DIMENSIONS, Where, where
from ratioscope.analysis.findings.facts import Cause, parts_by_step
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.dashboard.figures import engine as figures
from ratioscope.dashboard.formats import estimate
from ratioscope.dashboard.sections.model import Block, Paragraph, Piece, Section, Table
from ratioscope.dashboard.sections.subject import NO_STEP, Subject, attempt, chart

QUESTION = "Is the engine mismatch hurting?"


def section(subject: Subject) -> Section:
    """The verdict, the engine's part beside the others, where it sits, what it is like, what to set."""
    blocks: list[Block] = [*parts(subject), *effects(subject)]
    if differs(subject):
        blocks += [*attempt(subject, partial(places, subject)), *attempt(subject, partial(kind, subject))]
    if facts(subject).verdict is not Verdict.DOES_NOT:
        blocks += own_remedy(subject)
    return Section("engine", "Engine", QUESTION, answer(subject), tuple(blocks))


def measured(subject: Subject) -> Measured | None:
    """The tokens of these steps, as far as the engine is known on them."""
    steps = subject.steps if None not in subject.steps else subject.window(TOKENS).steps
    return subject.compute(measure, *steps)


def facts(subject: Subject) -> EngineFacts:
    """What is so of these steps."""
    return engine_facts(
        subject.summary,
        subject.facts,
        measured(subject),
        setup_of(subject.opened.run.manifest),
        missing=missing_columns(subject.log),
        findings=subject.opened.findings,
    )


def placed(subject: Subject) -> Where | None:
    """Where it sits, over the latest steps with so many tokens; None where it is not known or is nowhere."""
    if measured(subject) is None:
        return None
    return subject.compute(where, *subject.window(TOKENS).steps)


def like(subject: Subject) -> Signature | None:
    """What it is like; None where it is not known."""
    found = measured(subject)
    return signature(found, placed(subject), subject.opened.remarks) if found is not None else None


def differs(subject: Subject) -> bool:
    """Whether there is a difference to place and to explain."""
    signs = like(subject)
    return signs is not None and signs.like is not Like.NOTHING


def answer(subject: Subject) -> str:
    """Of these steps."""
    if not len(subject.summary.values):
        return NO_STEP
    framework = framework_of(subject.opened.run.manifest)
    return sentences.answer(facts(subject), like(subject), subject.log, framework)


def parts(subject: Subject) -> list[Piece]:
    """The engine's part of the path beside age and update, over the steps; without the engine's, what there is."""
    found = facts(subject)
    shown = subject.shown
    of = dict(parts_by_step(shown.values, subject.facts.fresh))
    tv, _ = engine_by_step(shown)
    if found.verdict is not Verdict.CANNOT_TELL and Cause.ENGINE not in of:
        of = {Cause.ENGINE: (tv if len(tv) else found.tv).reindex(shown.values.index), **of}
    if not of:
        return []
    order = [cause for cause in Cause if cause in of]
    series = {cause: of[cause] for cause in order}
    data = pd.DataFrame({figures.word(cause): values for cause, values in series.items()})
    said = sentences.against_parts(found)
    draw = partial(figures.parts, series, subject.opened.limits.engine, steps=subject.steps)
    return [chart(subject.mode, "engine-parts", "The engine beside age and update", draw, said, data, by_step=True)]


_EFFECTS = {
    Kind.SIZE: ("Total variation, same weights", "How far the two engines' probabilities are apart."),
    Kind.VARIANCE: ("Variance of its ratio, χ²", "Of whole responses where the loss multiplies by products."),
    Kind.CLIP: ("Of the clipped tokens, its doing", "They would be kept, were the engines the same."),
    Kind.BIAS: ("Bias, in gains of an update", "What it moves the surrogate by, over what updates gain of it."),
}


def effects(subject: Subject) -> list[Piece]:
    """What it does, each effect against its limit; and what is measured beside."""
    found, tokens = facts(subject), measured(subject)
    rows: list[tuple[str, str, str, str, str]] = []
    for effect in found.effects:
        name, meaning = _EFFECTS[effect.kind]
        write = percent if effect.kind is Kind.CLIP else number
        rows.append((name, write(effect.value), write(effect.limit), sentences.beyond(effect, found), meaning))
    if tokens is not None:
        rows += _beside(tokens)
    note = f"{tokens.n_tokens:,} tokens of {tokens.n_steps} steps." if tokens is not None else ""
    head = ("Effect", "Value", "Limit", "Beyond it", "Meaning")
    return [Table("What it does", head, tuple(rows), note)] if rows else []


def _beside(tokens: Measured) -> list[tuple[str, str, str, str, str]]:
    skews = [percent(abs(skew)) for skew in (tokens.skew_positive, tokens.skew_negative)]
    values = {
        "Mean ratio": (number(tokens.mean_ratio, digits=4), "Of trainer over sampler; below 1 tokens are left out."),
        "The same to the last digit": (percent(tokens.equal), "Tokens with the very same log-probability."),
        "Beyond the clip by it alone": (
            percent(tokens.outside),
            "Tokens whose ratio of engines leaves the clip's range.",
        ),
        "Of the gradient's weight": (
            percent(tokens.noise),
            "Σ|A(e^x − 1)| over Σ|A|: what is difference, signs aside.",
        ),
        "Skew of good and of bad responses": (
            f"{skews[0]}, {skews[1]}" if tokens.skew_positive == tokens.skew_positive else "–",
            "What the trainer's own denominators change of the correction, by the sign of the advantage.",
        ),
    }
    return [(name, value, "", "", meaning) for name, (value, meaning) in values.items() if value != "–"]


def places(subject: Subject) -> list[Piece]:
    """The smallest part of the tokens that holds half of it, by every way to divide them.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found = placed(subject)
    if found is None:
        return []
    rows = pd.DataFrame(
        [
            {"words": holding.words, "share_of_tokens": holding.share_of_tokens,
             "share_of_distance": holding.share_of_distance}
            for holding in found.holdings
        ]
    )  # fmt: skip
    title = f"Where half of it sits, {subject.window(TOKENS).words}"
    drawn = chart(subject.mode, "engine-where", title, partial(figures.holds, rows), sentences.sits(found), rows)
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
    head = (f"{title[0].upper()}{title[1:]}", "Of the tokens", "Of the distance", "Total variation", "Exactly equal")
    return Table("", head, rows)


def kind(subject: Subject) -> list[Piece]:
    """What it is like: the size of the difference against the token's probability.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found, signs = placed(subject), like(subject)
    if found is None or signs is None or not len(found.of("probability")):
        return []
    rows = found.of("probability")
    said = sentences.looks_like(signs)
    return [
        chart(subject.mode, "engine-kind", "Its size against the probability of the token",
              partial(figures.against_probability, rows), said, rows)
    ]  # fmt: skip


def remedy(subject: Subject, framework: str) -> list[Piece]:
    """What to set in a framework."""
    signs = like(subject)
    rows = tuple(
        (one.purpose.value, one.setting, one.effect)
        for one in remedies(framework, signs.like if signs else Like.UNKNOWN)
    )
    return [Table(title_of(framework), ("For", "Setting", "Effect"), rows)] if rows else []


def own_remedy(subject: Subject) -> list[Piece]:
    """What to set in the run's own framework; of one that is not known, where to look."""
    framework = framework_of(subject.opened.run.manifest)
    if framework:
        return remedy(subject, framework)
    return [Paragraph("The log does not say which framework trained: its settings are on the Engine page.", small=True)]


def frameworks(subject: Subject) -> tuple[str, ...]:
    """All whose settings are known, the run's own first."""
    own = framework_of(subject.opened.run.manifest)
    return tuple(sorted(REMEDIES, key=lambda key: (key != own, title_of(key).lower())))
