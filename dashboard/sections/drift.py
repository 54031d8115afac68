"""Staleness, engine, or the update?"""

from functools import partial
from math import isnan

import pandas as pd

from ratioscope.analysis.drift import sentences as drift_answers
from ratioscope.analysis.drift.certificate import certificate
from ratioscope.analysis.drift.feasibility import feasibility
from ratioscope.analysis.drift.pairs import PAIRS, measure
from ratioscope.analysis.findings import answers
from ratioscope.dashboard.figures import drift as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.sections.model import Block, Paragraph, Section, Table
from ratioscope.dashboard.sections.subject import Subject, attempt, chart, key_numbers, over_steps, where

_KEYS = ["s_k", "u_k", "tv_new_behavior"]


def drift(subject: Subject) -> Section:
    """The path from the sampler to the new policy, the bounds that theory gives, and whether a clip can be met."""
    summary, limits = subject.summary, subject.opened.limits
    answer = answers.drift(summary, limits)
    stale, update = Limit(limits.staleness, "ε<sub>stale</sub>/2"), Limit(limits.update, "ε/2")
    blocks: list[Block] = [
        key_numbers(subject, (*_KEYS, "s_k_bounded", "s_k_version", "s_k_engine", "ratio_mean", "kl_k3")),
        over_steps(
            subject, _KEYS, key="distances", title="Staleness, update, and the distance that PPO clips",
            unit="total variation", limits=(stale, update), takeaway=answer,
        ),
        over_steps(
            subject, ["ratio_mean"], key="mean-ratio", title="Mean ratio: can the denominators be believed?",
            unit="mean ρ", takeaway=answers.course(summary, "ratio_mean"),
        ),
    ]  # fmt: skip
    if summary.values["tv_new_behavior"].notna().any():
        blocks.append(
            chart("triangle", "The triangle: U + S against PPO's distance",
                  lambda mode: figures.triangle(summary, mode, subject.steps),
                  drift_answers.triangle_sentence(summary), summary.values[_KEYS], tuple(_KEYS))
        )  # fmt: skip
    blocks += _exact(subject)
    blocks += attempt(partial(_path, subject)) + attempt(partial(_bound, subject)) + attempt(partial(_clip, subject))
    return Section("drift", "Drift", "Staleness, engine, or the update?", answer, tuple(blocks))


def _exact(subject: Subject) -> list[Block]:
    summary = subject.summary
    sentence = drift_answers.exact_sentence(summary)
    return [
        chart(f"exact-{key}", title, partial(figures.sampled_and_exact, summary, key, steps=subject.steps), sentence,
              summary.values[[key, f"{key}_exact", f"{key}_exact_z"]], (key, f"{key}_exact", f"{key}_exact_z"))
        for key, title in (("s_k", "Staleness: sampled and exact"), ("u_k", "Update drift: sampled and exact"))
        if summary.values[f"{key}_exact"].notna().any()
    ]  # fmt: skip


def _path(subject: Subject) -> list[Block]:
    """The path edge by edge."""
    first, last = subject.window().steps
    frame = measure(subject.opened.run, first, last)
    title = f"behavior → current → new, {where(first, last)}; width is total variation"
    return [
        chart("path", title, partial(figures.path_diagram, frame), drift_answers.path_sentence(frame), frame),
        _path_table(frame, first, last),
    ]


def _bound(subject: Subject) -> list[Block]:
    """The certificate: what theory promises of the updates."""
    first, last = subject.window().steps
    bound = certificate(subject.opened.run, first, last)
    sentence = drift_answers.certificate_sentence(bound)
    if not bound.terms["improvement_bound"].notna().any():
        return [Paragraph(sentence)]
    title = f"What theory promises: the bound's terms, {where(first, last)}, γ = {bound.gamma:.3g}"
    draw = partial(figures.certificate_terms, bound.terms, steps=(first, last))
    terms = ("surrogate", "update_penalty", "staleness_penalty", "improvement_bound")
    return [chart("certificate", title, draw, sentence, bound.terms, terms)]


def _clip(subject: Subject) -> list[Block]:
    """Whether a clip around 1 can be met."""
    first, last = subject.window().steps
    epsilon = subject.opened.limits.epsilon
    found = feasibility(subject.opened.run, first, last, epsilon=epsilon)
    sentence = f"{drift_answers.feasibility_sentence(found, epsilon)} {drift_answers.feasibility_caveat(found)}".strip()
    if not len(found) or not (found["infeasible_share"].astype(float) > 0).any():
        return [Paragraph(f"{where(first, last).capitalize()}: {sentence}")]
    title = f"States where no policy is within ε/2 of all versions (ε = {epsilon:g})"
    draw = partial(figures.infeasible_share, found, steps=(first, last))
    return [chart("infeasible", title, draw, sentence, found)]


def _path_table(frame: pd.DataFrame, first: int, last: int) -> Table:
    """One row a pair of policies: value and interval in words."""
    rows = []
    for pair, of_pair in frame.groupby("pair", sort=False):
        of = of_pair.set_index("metric")
        cells = []
        for key in ("tv", "tv_bounded", "kl_k3", "chi2", "ratio_mean", "ess"):
            value, low, high = (float(of[name].astype(float)[key]) for name in ("value", "low", "high"))
            write = share if key == "ess" else plain
            cells.append(write(value) + ("" if isnan(low) else f" ({write(low)} to {write(high)})"))
        note = "; ".join(dict.fromkeys(filter(None, of["note"])))
        rows.append((PAIRS[str(pair)].title, *cells, note))
    head = ("Pair", "TV", "TV, bounded", "KL (k3), nats", "χ²", "Mean ratio", "ESS", "Note")
    note = "95 % intervals over prompt groups in brackets; without brackets they are withheld or undefined."
    return Table(f"The path, edge by edge, {where(first, last)}", head, tuple(rows), note)
