"""Is it learning, and what does that cost?"""

from collections.abc import Sequence

from ratioscope.analysis.findings.course import course, learning
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.dashboard.figures.series import Limit, learning_curves
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.page import Page, in_numbers
from ratioscope.dashboard.sections.subject import Subject, named, over_steps_chart


def answer(subject: Subject) -> str:
    """Of these steps."""
    said = learning(subject.summary, subject.opened.limits) or course(subject.summary, "reward")
    if setup_of(subject.opened.run.manifest).offline and subject.summary.values["reward"].notna().any():
        said += " The training reward is that of the fixed data set: it does not say whether the policy learns."
    return said


def first(subject: Subject) -> list[Chart]:
    """Whether it learns, and how off-policy it is: what a run is judged by."""
    return [*curves(subject)[:1], _off_policy(subject)]


def overview(subject: Subject) -> list[Chart]:
    """A run at a glance: a chart a question."""
    return [
        *curves(subject),
        _off_policy(subject),
        entropy(subject),
        *([] if subject.cannot_clip else [
            _chart(subject, "clip", "What is thrown away? Clip fraction", ("clip_fraction",), "share of tokens"),
        ]),
        length(subject),
        _chart(subject, "ess", "How much of the sample counts? Effective sample size", ("ess_token", "ess_seq"),
               "share of the sample"),
    ]  # fmt: skip


def _off_policy(subject: Subject) -> Chart:
    of, facts = subject.opened.limits, subject.facts
    # Then it is the engine's limit that counts.
    alone = facts.engine_alone
    stale = Limit(of.engine, "mismatch<br>limit") if alone else Limit(of.staleness, "staleness<br>limit")
    limits = {STALENESS: stale, UPDATE_METRIC: Limit(of.update, "update<br>limit")}
    title = f"How off-policy is it?{' By its engine alone' * alone}"
    return _chart(subject, "staleness", title, (STALENESS, UPDATE_METRIC), "total variation",
                  *(limits[key] for key in subject.known(limits)))  # fmt: skip


def curves(subject: Subject) -> list[Chart]:
    """Reward and accuracy: one chart where they share a scale."""
    return [
        _chart(subject, keys[0], f"Is it learning?{'' if len(keys) > 1 else f' {name}'}", keys, unit)
        for name, keys, unit in learning_curves(subject.shown)
    ]


def entropy(subject: Subject) -> Chart:
    """Entropy, and the distance from the initial policy."""
    drawn = named(subject, {"entropy": "Entropy", "kl_to_initial": "KL to the initial policy"})
    return _chart(subject, "entropy", f"What does it cost? {drawn}", ("entropy", "kl_to_initial"), "nats")


def length(subject: Subject) -> Chart:
    """Mean length of the responses."""
    return _chart(subject, "length", "How long are the responses? Mean length", ("response_length",), "tokens")


def _chart(subject: Subject, key: str, title: str, metrics: Sequence[str], unit: str, *limits: Limit) -> Chart:
    said = course(subject.summary, *metrics)
    return over_steps_chart(subject, metrics, key=key, title=title, unit=unit, limits=limits, takeaway=said)


PAGE = Page(
    "learning", "Learning", "Is it learning, and what does it cost?", 30,
    asks=("learning", "entropy"),
    answer=answer,
    report=[
        in_numbers("reward", "eval_accuracy", "entropy", "kl_to_initial", "response_length",
                   "zero_advantage_group_fraction", "grad_norm"),
        curves, entropy, length,
    ],
)  # fmt: skip
