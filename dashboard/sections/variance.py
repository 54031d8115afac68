"""Which failure mode is it: bias or variance?"""

from functools import partial

from ratioscope.analysis.variance import failure_mode, gradients
from ratioscope.dashboard.figures import variance as figures
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.sections.model import Block, Paragraph, Section, Table
from ratioscope.dashboard.sections.subject import Subject, attempt, chart, key_numbers, over_steps, where

# Of whole responses it is what the tokens predict where that is more: not the catalogue's chi2_seq.
_COLUMNS = {"chi2_seq": "chi2_seq_or_predicted", "chi2_seq_trusted": "chi2_seq_or_predicted_trusted"}
_SWEPT = 100_000  # tokens, a random sample of whole prompt groups


def section(subject: Subject) -> Section:
    """The blind spot, tokens against responses, truncated importance sampling, gradient probes."""
    summary, limits = subject.summary, subject.opened.limits
    found = failure_mode.answer(summary, limits)
    blocks: list[Block] = [key_numbers(subject, ("s_k", "chi2_token", "log1p_chi2_seq", "ess_token", "ess_seq"))]
    if found.remedy:
        blocks.insert(0, Paragraph(f"{found.remedy} ({found.source})", lead="What to do:"))
    points = failure_mode.blind_spot(summary)
    data = points.rename(columns=_COLUMNS)
    sentence = failure_mode.blind_spot_sentence(points, limits)
    tv_limit, chi2_limit = limits.staleness, limits.chi2
    axes = figures.blind_spot_axes(points, tv_limit, chi2_limit)
    keys = ("chi2_token", "log1p_chi2_seq", "log1p_chi2_seq_predicted")
    for key, whose in (("chi2_token", "tokens"), ("chi2_seq", "whole responses")):
        draw = partial(figures.blind_spot, points, key, axes=axes, tv_limit=tv_limit, chi2_limit=chi2_limit)
        title = f"The blind spot: total variation against χ² of {whose}"
        blocks.append(chart(subject.mode, f"blind-{key.split('_')[1]}", title, draw, sentence, data, keys))
    blocks.append(
        over_steps(subject, keys[1:], key="growth", title="log(1 + χ²) of responses: measured, predicted",
                   unit="nats", takeaway=failure_mode.growth_sentence(summary))
    )  # fmt: skip
    blocks += attempt(partial(_truncation, subject))
    blocks.append(_probes(subject))
    return Section("variance", "Bias and variance", "Which failure mode is it?", found.sentence, tuple(blocks))


def _truncation(subject: Subject) -> list[Block]:
    from ratioscope.analysis.variance.truncation import (
        truncation,  # with torch, which takes seconds: while other sections are read
    )

    first, last = subject.window().steps
    found = truncation(subject.opened.run, first, last, "token", _SWEPT)
    sampled = f", a random {share(found.fraction)} of the tokens" if found.fraction < 1 else ""
    draw = partial(figures.truncation_curve, found.caps, found.doubted("variance_proxy"), found.own)
    title = f"Truncated importance sampling over the cap C, {where(first, last)}{sampled}"
    return [chart(subject.mode, "truncation", title, draw, f"{found.sentence} {found.own_words}".strip(), found.caps)]


def _probes(subject: Subject) -> Block:
    """What the run's gradient probes measured."""
    probes = gradients.probes(subject.opened.run)
    first, last = subject.steps
    if first is not None and last is not None and len(probes):
        probes = probes[probes["step"].between(first, last)]
    if not len(probes):
        return Paragraph("No gradient probe lies in these steps: bias and variance of the gradient itself are unknown.")
    terms = {"gradient_norm_squared": "‖∇J‖²", "gradient_dot_bias": "⟨∇J, Bias⟩", "bias_norm_squared": "‖Bias‖²",
             "variance": "Var(ĝ)", "cosine": "Cosine"}  # fmt: skip
    rows = tuple(
        (str(int(row["step"])), str(row["estimator"]),
         *(f"{plain(row[term])} ± {plain(row[f'{term}_se'])}" for term in terms), str(row["note"] or ""))
        for row in probes.to_dict("records")
    )  # fmt: skip
    return Table("Gradient probes, ± jackknife standard error", ("Step", "Estimator", *terms.values(), "Note"), rows)
