"""What did the loss throw away?"""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from ratioscope.analysis.clipping import sentences
from ratioscope.analysis.clipping.quadrants import by_quadrant, quadrant_sentence
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.ratios.distributions import quadrants
from ratioscope.analysis.runs.window import Window
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.formats import share
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Beside, Page, Part, Shown, in_numbers
from ratioscope.dashboard.sections.subject import NO_STEP, Subject, chart, over_steps_chart


def answer(subject: Subject) -> str:
    """Of these steps; nothing where the clipping is not logged, which the page says beside it."""
    if subject.log.absent("clipping") and not subject.cannot_clip:
        return ""
    return sentences.clipping_headline(subject.summary, subject.cannot_clip) if len(subject.summary.values) else NO_STEP


def can_judge(subject: Subject) -> bool:
    """Whether another rule can be applied to the tokens: it takes their ratios and advantages."""
    return not subject.log.absent("what_if")


def logged(subject: Subject) -> list[Chart]:
    """What the loss did, as it was logged: by bound, by sign of the advantage, and what was left."""
    summary = subject.summary
    signs, used = ("clip_fraction_positive", "clip_fraction_negative"), (
        "effective_token_fraction", "zero_advantage_group_fraction")  # fmt: skip
    left = over_steps_chart(
        subject, used, key="used", title="Tokens and groups left to learn from", unit="share", height=280,
        takeaway=course(summary, *used),
    )  # fmt: skip
    if subject.cannot_clip:
        return [left]
    return [
        over_steps_chart(
            subject, ("clip_fraction", "clip_fraction_low", "clip_fraction_high"), key="sides",
            title="Clipped, by bound", unit="share of tokens", height=280, takeaway=answer(subject),
        ),
        over_steps_chart(
            subject, signs, key="signs", title="Clipped, by sign of the advantage", unit="share of that sign",
            height=280, takeaway=course(summary, *signs),
        ),
        left,
    ]  # fmt: skip


_SHARES = {
    "share": ("Tokens", "Share of the tokens with an advantage."),
    "clipped": ("Clipped", "Share of the quadrant's tokens that the loss clipped, as logged."),
    "before": ("Gradient before", "Share of Σ|weight A| before the gate, by the rule that the run states."),
    "taken": ("Removed by the gate", "Share of the quadrant's Σ|weight A| that the gate removes: its clipped tokens."),
    "gradient": ("Gradient", "Share of Σ|coefficient of ∇log π| as the loss used it."),
}


def who_drives(subject: Subject, window: Window, before: pd.DataFrame | None = None) -> list[Piece]:
    """Where the gradient comes from: tokens by advantage and ratio as a figure and a table, or why there is none.

    Args:
        before: `analysis.clipping.rule_shape.before_the_gate` of the run's own rule, where it is known.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    frame = by_quadrant(subject.compute(quadrants, *window.steps), before)
    if not len(frame):
        return [Paragraph("No token in these steps has a nonzero advantage.")]
    known = [name for name in _SHARES if name in frame and frame[name].notna().any()]
    rows = tuple(
        (str(row["advantage"]), str(row["ratio"]), *(share(row[name]) for name in known))
        for row in frame.to_dict("records")
    )
    head = ("A", "ρ", *(_SHARES[name][0] for name in known))
    return [
        chart(subject.mode, "quadrants", f"Where does the gradient come from? {window.words.capitalize()}",
              partial(figures.quadrant_bars, frame), quadrant_sentence(frame), frame),
        Table("", head, rows, help=dict(_SHARES[name] for name in known)),
    ]  # fmt: skip


def _main(subject: Subject) -> Iterator[Shown]:
    said = answer(subject)
    if can_judge(subject) and not said:
        yield Paragraph("What a rule would clip follows from the log-probs: see what-if below.", small=True)
    *clipped, _ = logged(subject)
    if any(chart.data["clip_fraction"].any() for chart in clipped if "clip_fraction" in chart.data):
        yield Beside(clipped)
    elif clipped and said:
        yield Paragraph("No token was clipped in any step.", small=True)


PAGE = Page(
    "clipping", "Clipping", "What did the loss throw away?", 70, ":material/content_cut:",
    asks=("clipping", "signal", "what_if"),
    answer=answer,
    besides=can_judge,
    limits=("clip_saturated", "zero_signal"),
    main=_main,
    reported={
        *(key for key in CATALOGUE if key.startswith("clip_")), "gate_mean", "effective_token_fraction",
        "zero_advantage_group_fraction",
    },
    tiles=("clip_fraction", "effective_token_fraction"),
    without=lambda subject: ("effective_token_fraction",) if subject.cannot_clip else (),  # a curve of what-if
    parts=[
        # Where nothing can be clipped, this is what the page is for.
        Part("", "", "whatif", when=can_judge, above=lambda subject: bool(subject.cannot_clip)),
        Part(
            "gradient", "What is left to learn from", "gradient",
            metrics=("effective_token_fraction", "zero_advantage_group_fraction"),
        ),
        Part("", "", "replay", when=can_judge),
    ],
    report=[
        in_numbers("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive",
                   "clip_fraction_negative", "gate_mean", "effective_token_fraction"),
        logged,
        lambda subject: who_drives(subject, subject.window()) if can_judge(subject) else (),
    ],
)  # fmt: skip
