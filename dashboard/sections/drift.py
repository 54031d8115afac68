"""Staleness, engine, or the update?"""

from collections.abc import Iterator
from functools import partial
from math import inf, isfinite

import pandas as pd

from ratioscope.analysis.drift import promises, sentences
from ratioscope.analysis.drift.bounds import factors
from ratioscope.analysis.drift.certificate import Certificate, certificate, has_held_out
from ratioscope.analysis.drift.feasibility import LOWER_BOUND, feasibility, recommendation, vocabulary_is_large
from ratioscope.analysis.drift.pairs import PAIRS, Aggregation, PairLevel, measure_pairs
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.findings.facts import PPO, STALENESS, UPDATE_METRIC, Cause
from ratioscope.analysis.findings.numbers import interval_text, number
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.catalogue import divergences, total_variation
from ratioscope.dashboard.figures import drift as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import estimate, plain_number, share
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Beside, Choice, Page, Part, in_numbers
from ratioscope.dashboard.sections.subject import NO_STEP, Subject, chart, named, over_steps_chart
from ratioscope.notes import Kind
from ratioscope.rules.parameters import Judged
from ratioscope.sources import titled

FORMS = (
    "Both forms agree when the mean ratio is 1. The plain form misses half of what the mean ratio lacks, and a heavy "
    "tail moves it."
)
_KEYS = (STALENESS, UPDATE_METRIC, PPO)
_OF_TOKENS: tuple[PairLevel, Aggregation] = ("token", "token")
# Whose ratio the path is measured in: words for (level, aggregation) of `analysis.drift.pairs`.
LEVELS: dict[str, tuple[PairLevel, Aggregation]] = {
    "Tokens": _OF_TOKENS,
    "Tokens, averaged within responses first": ("token", "sequence"),
    "Whole responses": ("sequence", "token"),
    "Geometric means of responses": ("geometric", "token"),
}
# Discounts of the certificate; the first is 1 - 1 / mean length.
DISCOUNTS: dict[str, float | None] = {"by length": None} | {
    f"{gamma:g}": gamma for gamma in (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
}
# What looks at single tokens looks at the latest steps with so many of them.
_TOKENS = 150_000


def rounding(subject: Subject) -> list[Paragraph]:
    """Below which difference of two log-probabilities the source's rounding is seen, where it rounds."""
    log = subject.log
    if not log.rounding:
        return []
    said = (
        f"The source keeps {log.decimals} decimals of a log-probability: an engine mismatch, or any other difference "
        f"of two of them, is rounding below {2 * log.rounding:.0e} nats."
    )
    return [Paragraph(said, small=True)]


def answer(subject: Subject) -> str:
    """Of these steps."""
    if not len(subject.summary.values):
        return NO_STEP
    return sentences.drift_headline(subject.facts)


def path_in_words(subject: Subject) -> str:
    """The parts of the path with their shares, for a line that can be opened."""
    return sentences.path_in_words(subject.facts)


def pictures(subject: Subject) -> Iterator[Piece]:
    """The distances over the steps and the path, and what it says that the answer has not."""
    yield distances(subject)
    drawn, facts = path(subject)[0], subject.facts
    assert isinstance(drawn, Chart)
    same = subject.window(_TOKENS).steps == (facts.first, facts.last)
    yield drawn
    if said := sentences.path_beside(facts) if same else drawn.takeaway:
        yield Paragraph(said, small=True)


def path_numbers(subject: Subject, of: tuple[PairLevel, Aggregation]) -> Iterator[Piece]:
    """The path as tables, drawn where it is not of tokens, and beside the distance that PPO clips."""
    drawn, *tables = path(subject, of)
    if of != _OF_TOKENS:
        assert isinstance(drawn, Chart)
        yield from (Paragraph(drawn.takeaway, small=True), drawn)
    yield from (*tables, *rounding(subject))
    for piece in triangle(subject):
        if isinstance(piece, Chart):
            yield Paragraph(piece.takeaway, small=True)
        yield piece


def distances(subject: Subject) -> Chart:
    """Staleness, update, and what PPO clips, with their limits."""
    of = subject.opened.limits
    limits = {STALENESS: Limit(of.staleness, "staleness<br>limit"), UPDATE_METRIC: Limit(of.update, "update<br>limit")}
    title = named(subject, {STALENESS: "Staleness", UPDATE_METRIC: "update", PPO: "the distance that PPO clips"})
    return over_steps_chart(
        subject, _KEYS, key="distances", title=title, unit="total variation", height=260, takeaway=answer(subject),
        limits=[limits[key] for key in subject.known(limits)],
    )  # fmt: skip


def triangle(subject: Subject) -> list[Piece]:
    """U + S against the distance from the data; a sentence only where that is logged and missing."""
    if subject.log.absent("new") or subject.log.absent("update"):
        return []
    sentence = sentences.triangle_sentence(subject.facts)
    keys = (STALENESS, Cause.UPDATE.key, PPO)
    data = subject.shown.values[list(keys)]
    if not data[PPO].notna().any():
        return [Paragraph(sentence, small=True)]
    draw = partial(figures.triangle, subject.shown, steps=subject.steps)
    title = "The triangle: U + S against PPO's distance"
    return [chart(subject.mode, "triangle", title, draw, sentence, data, keys, by_step=True)]


def forms(subject: Subject) -> list[Piece | Beside]:
    """Staleness in both forms, KL, and the mean ratio; exact beside sampled distances, where they are logged."""
    compared = exact(subject)
    return [
        Beside([bounded(subject), divergence(subject), mean_ratio(subject)], across=2),
        Paragraph(FORMS, small=True),
        *(Paragraph(drawn.takeaway, small=True) for drawn in compared[:1]),
        Beside([*compared, *standard_errors(subject)], across=2),
    ]


def divergence(subject: Subject) -> Chart:
    """KL by its three estimators."""
    return over_steps_chart(
        subject, ("kl_k1", "kl_k2", "kl_k3"), key="kl", title="KL of current from behavior, three estimators",
        unit="nats", takeaway=course(subject.summary, "kl_k3"), beside=("kl_reverse",),
    )  # fmt: skip


def bounded(subject: Subject) -> Chart:
    """Staleness in both forms."""
    keys = (STALENESS, "s_k")
    return over_steps_chart(
        subject, keys, key="bounded", title="Staleness, bounded and plain form", unit="total variation",
        takeaway=course(subject.summary, *keys), beside=("ratio_mean",),
    )  # fmt: skip


def mean_ratio(subject: Subject) -> Chart:
    """Mean ratio, which must be 1."""
    return over_steps_chart(
        subject, ("ratio_mean",), key="mean-ratio", title="Mean ratio: are the denominators right?",
        unit="mean ρ", limits=(Limit(1.0, "must be"),), takeaway=course(subject.summary, "ratio_mean"),
        beside=("ratio_mean_z",),
    )  # fmt: skip


def exact(subject: Subject) -> list[Chart]:
    """Each sampled distance beside the exact one, where that is logged."""
    values, sentence = subject.shown.values, _exact_sentence(subject)
    found = []
    for key, name in ((STALENESS, "Staleness"), (UPDATE_METRIC, "Update drift")):
        keys, title = (key, *sentences.EXACT[key]), f"{name}: sampled and exact"
        if values[keys[1]].notna().any():
            draw = partial(figures.sampled_and_exact, subject.shown, key, keys[1], steps=subject.steps)
            found.append(
                chart(subject.mode, f"exact-{key}", title, draw, sentence, values[list(keys)], keys, by_step=True)
            )
    return found


def standard_errors(subject: Subject) -> list[Chart]:
    """How far the sampled distances lie from the exact ones, where they can be judged."""
    keys = ("s_k_exact_z", "u_k_exact_z")
    data = subject.shown.values[list(keys)]
    if not data.notna().any(axis=None):
        return []
    draw = partial(figures.standard_errors, subject.shown, steps=subject.steps)
    title = "Sampled minus exact value, in standard errors"
    return [chart(subject.mode, "exact-z", title, draw, _exact_sentence(subject), data, keys, by_step=True)]


def _exact_sentence(subject: Subject) -> str:
    return sentences.exact_sentence(subject.summary) or "None of these steps has an exact distance."


def path(subject: Subject, of: tuple[PairLevel, Aggregation] = _OF_TOKENS) -> list[Piece]:
    """The path edge by edge, of the ratios of this level.

    Raises:
        RatioscopeError: these steps do not give it.
    """
    window, (level, aggregation) = subject.window(_TOKENS), of
    frame = subject.compute(measure_pairs, *window.steps, level=level, aggregation=aggregation)
    title = f"behavior → current → new, {window.words}; widths are total variations"
    facts = subject.opened.facts(window.steps)
    facts_of = facts if of == _OF_TOKENS else sentences.of_pairs(facts, frame)
    words = next(words for words, known in LEVELS.items() if known == of)
    said = sentences.path_section(facts_of, f"{words[0].lower()}{words[1:]}")
    draw = partial(figures.path_diagram, frame)
    return [
        chart(subject.mode, "path" if of == _OF_TOKENS else "path-of", title, draw, said, frame),
        *_path_tables(frame, f"The path in numbers, {window.words}"),
    ]


_DISTANCES = {
    "tv_bounded": ("TV", "mean (q/b − p/b)⁺, the bounded form, with its 95% interval."),
    "tv": ("TV, plain form", "½ mean |p/b − q/b|."),
    "kl_k3": ("KL (k3), nats", "KL(q‖p) by the estimator k3."),
    "chi2": ("χ²", "Variance of p/q under q."),
    "ratio_mean": ("Mean ratio", "1 where q covers p."),
    "ess": ("ESS", "Effective sample size, as a share of the sample."),
}


def _notes(of: pd.DataFrame) -> str:
    """The notes of a pair's metrics; one that makes only some of them unreliable names these."""
    told = []
    for note in dict.fromkeys(filter(None, of["note"])):
        about = of.index[of["note"] == note]
        doubt = (of["note_kind"].loc[about] == Kind.UNRELIABLE).all()
        names = ", ".join(label for key, (label, _) in _DISTANCES.items() if key in about)
        told.append(f"{names}: {note}" if doubt and names and len(about) < len(of) else note)
    return "; ".join(told)


# What decides stands first, the rest in a table of its own: both fit into a narrow page.
_FIRST = ("tv_bounded", "kl_k3", "chi2")


def _path_tables(frame: pd.DataFrame, title: str) -> list[Table]:
    """One row a pair of policies: value and interval in words."""
    rows, told = [], []
    for pair, of_pair in frame.groupby("pair", sort=False):
        of = of_pair.set_index("metric")
        if (of["note_kind"] == Kind.NOT_LOGGED).all():
            continue  # the diagram says so
        cells = {}
        for key in _DISTANCES:
            value, low, high = (float(of[name].astype(float)[key]) for name in ("value", "low", "high"))
            if key.startswith("tv"):
                cells[key] = estimate(STALENESS, value, low, high)  # as any total variation is written
                continue
            write = share if key == "ess" else plain_number
            ends = write(low, low, high), write(high, low, high)
            between = interval_text(-inf if key == "ess" and low == 0 else low, high, *ends)  # 0: open below
            cells[key] = write(value, low, high) + (f" ({between})" if between else "")
        name = figures.PARTS[str(pair)]
        rows.append((name, cells, f"{int(of['n'].iloc[0]):,}"))
        told += [f"{name}: {note}." for note in [_notes(of)] if note]
    others = [key for key in _DISTANCES if key not in _FIRST]
    help_of = dict(_DISTANCES.values()) | {"Units": "Number of tokens or responses in the average."}
    help_of["Part"] = "; ".join(f"{name}: {PAIRS[pair].title}" for pair, name in figures.PARTS.items())
    note = " ".join(["In brackets: 95% intervals over prompt groups; no brackets: undefined.", *told])
    return [
        Table(title, ("Part", *(_DISTANCES[key][0] for key in _FIRST)),
              tuple((name, *(cells[key] for key in _FIRST)) for name, cells, _ in rows), note, help_of),
        Table("Plain form, mean ratio and sample", ("Part", *(_DISTANCES[key][0] for key in others), "Units"),
              tuple((name, *(cells[key] for key in others), units) for name, cells, units in rows), "", help_of),
    ]  # fmt: skip


def bound(subject: Subject, gamma: float | None = None) -> list[Piece]:
    """The certificate: what theory says of the updates, with this discount or that of the mean length.

    Raises:
        RatioscopeError: these steps do not give it.
    """
    if unknown := subject.log.sentence("certificate"):
        return [Paragraph(unknown, small=True)]
    window = subject.window(_TOKENS)
    found = subject.compute(certificate, *window.steps, gamma=gamma)
    sentence = promises.certificate_sentence(found)
    says_something = any(each.n > each.vacuous for each in promises.bounds(found))
    if not (says_something and found.terms["improvement_bound"].notna().any()):
        return [Paragraph(sentence, small=True)]
    title = f"What theory says: the terms of the bound, {window.words}, γ = {found.gamma:.3g}"
    draw = partial(figures.certificate_terms, found.terms, steps=window.steps)
    terms = ("surrogate", "update_penalty", "staleness_penalty", "improvement_bound")
    blocks: list[Piece] = [chart(subject.mode, "certificate", title, draw, sentence, found.terms, terms, by_step=True)]
    blocks += [*_bounds_tables(found), *_held_out(subject, window.steps, found)]
    blocks += [
        Paragraph(text) for text in (promises.conservative_step(found), promises.trust_region_sentence(found)) if text
    ]
    if found.terms["lower_estimate"].astype("boolean").any():
        caveat = (
            "|A| is the largest advantage in each step's sample, of held-out groups the range of all rewards. This is "
            "a lower estimate: with the true range of rewards the penalties can only be larger."
        )
        blocks.append(Paragraph(caveat, small=True))
    return blocks


def _held_out(subject: Subject, steps: tuple[int, int], in_sample: Certificate) -> list[Piece]:
    """The same bounds on prompt groups that the update did not see, or how to have some."""
    if not subject.compute(has_held_out, *steps):
        said = (
            "Nothing can be certified here: it takes prompt groups that the update did not see, with 'held out' in "
            "the column dropped. The built-in trainer samples and logs them with the setting held_out_groups."
        )
        return [Paragraph(said, small=True)]
    found = subject.compute(certificate, *steps, gamma=in_sample.gamma, held_out=True)
    gains = promises.gains(in_sample, found)
    blocks: list[Piece] = [Paragraph(promises.held_out_sentence(found), lead="Held out:")]
    if gains["gain"].notna().any():
        draw = partial(figures.gains, gains, steps=steps)
        title = "Improvement by whole responses: held-out prompts and the batch"
        said = promises.gains_sentence(gains)
        blocks.append(chart(subject.mode, "held-out", title, draw, said, gains, ("gain",), by_step=True))
    return [*blocks, *_bounds_tables(found)]


def _bounds_tables(found: Certificate) -> list[Table]:
    """One row a bound: whether it says anything here, and in a table of its own what it is."""
    above = "Certified" if found.held_out else "Lower end above 0"
    known = [bound for bound in promises.bounds(found) if bound.n]  # the note says what the others need
    bounds = [bound for bound in known if bound.n > bound.vacuous]
    vacuous = [bound.name for bound in known if bound not in bounds]
    rows = tuple(
        (
            bound.name,
            number(bound.gain),
            number(bound.penalty),
            f"{bound.vacuous} of {bound.n}",
            _count(bound, found),
        )
        for bound in bounds
    )
    details = tuple(
        (bound.name, bound.against, number(bound.times, digits=2), titled(bound.source)) for bound in bounds
    )
    help_of = {
        "Against": "Whose return the new policy's is compared with.",
        "Gain": "Median over the steps, in units of reward.",
        "Penalty": "What the bound subtracts, median over the steps.",
        "× difference": "The penalty as a multiple of the largest possible difference of returns: above 1 is vacuous.",
        above: "Steps in which the 95% interval of gain minus penalty lies above 0.",
    }
    where = "On held-out prompt groups" if found.held_out else "In-sample"
    note = (
        f"{where}; medians over the steps. Bounds by the largest "
        "distance need the exact columns and know visited states only; the discounted ones depend on γ. No gain has in "
        "it what the sampler cannot draw (top-k, top-p)."
    )
    if vacuous:
        note += f" Vacuous in every step: {', '.join(vacuous)}."
    title = "What each bound says on held-out prompts" if found.held_out else "What each bound says, in-sample"
    of = "Held-out bounds: where from" if found.held_out else "Bounds: where from"
    return [
        Table(title, ("Bound", "Gain", "Penalty", "Vacuous", above), rows, note, help_of),
        Table(of, ("Bound", "Against", "× difference", "Source"), details, "", help_of),
    ]


def _count(bound: promises.Bound, found: Certificate) -> str:
    if found.held_out and not bound.estimable:
        return "visited states only"
    return f"{bound.above} of {bound.n}"


def costs(subject: Subject, _: object = None) -> str:
    """What the bound subtracts for the median update, by the mean length of a response, for a line to open."""
    values = subject.summary.values
    length, drift = float(values["response_length"].mean()), float(values[UPDATE_METRIC].median())
    if subject.log.absent("certificate") or not (length > 1 and isfinite(drift)):
        return "not known here"
    cost = number(drift * factors(1, 1 - 1 / length).update, digits=2)
    return f"update drift costs {cost} × the largest advantage (median {plain_number(drift)})"


def _feasible(subject: Subject) -> pd.DataFrame:
    return subject.compute(feasibility, *subject.window(_TOKENS).steps, epsilon=subject.opened.limits.epsilon)


def mixes_versions(subject: Subject) -> bool:
    """Whether a step has data of several versions; of one, a clip around 1 can be met everywhere.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    return subject.log.has_versions and bool((_feasible(subject)["n_versions"].astype(float) > 1).any())


def infeasible(subject: Subject) -> str:
    """The share of the states where it cannot be met, for a line that can be opened.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    found = _feasible(subject)
    shares = found["infeasible_share"][found["n_versions"].astype(float) > 1].astype(float)
    if not shares.notna().any():
        return "unknown here"
    least = "at least " if (found["kind"] == LOWER_BOUND).any() else ""
    return f"not in {least}{share(shares.mean())} of the states" if shares.max() > 0 else "in every judged state"


def clip(subject: Subject) -> list[Piece]:
    """Whether a clip around 1 can be met, and which clip to take.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    if not subject.log.has_versions:
        return [Paragraph(subject.log.sentence("feasibility"), small=True)]
    window = subject.window(_TOKENS)
    limits = subject.opened.limits
    epsilon = limits.epsilon
    found = _feasible(subject)
    blocks: list[Piece] = [Paragraph(f"{window.words.capitalize()}: {sentences.feasibility_sentence(found, epsilon)}")]
    shares = found["infeasible_share"].astype(float)
    several = shares[found["n_versions"].astype(float) > 1]
    if several.notna().any():
        staleness = subject.opened.facts(window.steps).staleness.mean
        large = subject.compute(vocabulary_is_large, *window.steps)
        advice = recommendation(float(shares.mean()), staleness, large, epsilon_stale=limits.epsilon_stale)
        gate = setup_of(subject.opened.run.manifest).gate
        if gate and gate.judged is Judged.STEP:
            blocks.append(
                Paragraph("This run's clip is centred at the current policy: it asks for no policy near all versions.")
            )
        elif advice:
            said = f"{sentences.advice_sentence(advice)} ({titled(advice.source)})"
            blocks.append(Paragraph(said, lead="Which clip:"))
        title = f"States where no policy is within ε/2 of all versions (ε = {epsilon:g})"
        draw = partial(figures.infeasible_share, found, steps=window.steps)
        said = f"Mean over the steps with several versions {share(several.mean())}, largest {share(shares.max())}."
        blocks.append(chart(subject.mode, "infeasible", title, draw, said, found, by_step=True))
    caveat = sentences.feasibility_caveat(found)
    return [*blocks, Paragraph(caveat, small=True)] if caveat else blocks


PAGE = Page(
    "drift", "Drift", "Staleness, engine, or the update?", 40, ":material/conversion_path:",
    asks=("staleness", "update", "new"),
    also=("engine",),
    limits=("epsilon_stale", "epsilon", "mult_prob_error"),
    answer=answer,
    main=pictures,
    height=560,
    reported={
        *(entry.key for entry in (*total_variation.ENTRIES, *divergences.ENTRIES)), "version_lag", "kl_to_reference",
        "kl_to_teacher",
    },
    tiles=("s_k_bounded", "u_k", "tv_new_behavior_bounded"),
    parts=[
        Part(
            "path", "The path in numbers", path_numbers, path_in_words,
            choices=[Choice(
                "pathlevel", "Ratio of", LEVELS, width=340,
                help="Geometric means and means of means are not importance ratios, so their mean need not be 1.",
            )],
        ),
        Part(
            "forms", "Plain form, KL, mean ratio and exact values", forms,
            metrics=("s_k", "kl_k1", "kl_k2", "kl_k3", "ratio_mean"),
        ),
        Part(
            "certificate", "What theory says of the updates", bound, costs,
            choices=[Choice(
                "gamma", "Discount γ", lambda subject: {} if subject.log.absent("certificate") else DISCOUNTS,
                "slider", width=420,
                help="How far the effect of an update reaches: 1/(1 − γ) tokens. By length: γ = 1 − 1/mean response "
                "length. 0: the whole response is one action.",
            )],
            height=400, caption="above",
        ),
        Part("clip", "Can a clip around 1 be met?", clip, infeasible, when=mixes_versions, height=300),
    ],
    report=[
        in_numbers(*_KEYS, Cause.AGE.key, Cause.ENGINE.key, "s_k", "ratio_mean", "kl_k3"),
        distances, mean_ratio, triangle, exact, standard_errors, path, rounding, bound, clip,
    ],
)  # fmt: skip
