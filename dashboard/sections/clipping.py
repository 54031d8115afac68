"""What did the loss throw away?"""

from functools import partial

from ratioscope.analysis.clipping.quadrants import by_quadrant, quadrant_sentence
from ratioscope.analysis.findings import answers
from ratioscope.analysis.ratios.distributions import quadrants
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.sections.model import Block, Section
from ratioscope.dashboard.sections.subject import Subject, chart, key_numbers, over_steps, where

_KEYS = ("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive", "clip_fraction_negative",
         "gate_mean", "effective_token_fraction")  # fmt: skip


def section(subject: Subject) -> Section:
    """What was clipped, on which side and of which sign, as the loss did it; and who drives the gradient."""
    summary = subject.summary
    answer = answers.clipping(summary)
    charts = (
        ("sides", "Clipped, by bound", ["clip_fraction", "clip_fraction_low", "clip_fraction_high"], "share of tokens",
         answer),
        ("signs", "Clipped, by sign of the advantage", ["clip_fraction_positive", "clip_fraction_negative"],
         "share of tokens of that sign", ""),
        ("used", "Left to learn from", ["effective_token_fraction", "zero_advantage_group_fraction"], "share", ""),
    )  # fmt: skip
    blocks: list[Block] = [key_numbers(subject, _KEYS)]
    blocks += [
        over_steps(subject, keys, key=key, title=title, unit=unit, takeaway=said or answers.course(summary, *keys))
        for key, title, keys, unit, said in charts
        if summary.values[keys].notna().any(axis=None)
    ]
    first, last = subject.window().steps
    frame = by_quadrant(quadrants(subject.opened.run, first, last), None)
    if len(frame):
        title = f"Who drives the gradient? Tokens by advantage and ratio, {where(first, last)}"
        blocks.append(
            chart(
                subject.mode, "quadrants", title, partial(figures.quadrant_bars, frame), quadrant_sentence(frame), frame
            )
        )
    return Section("clipping", "Clipping", "What did the loss throw away?", answer, tuple(blocks))
