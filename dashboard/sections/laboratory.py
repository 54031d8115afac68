"""Where in a run one meets what an experiment of the laboratory shows; the page itself needs no run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ratioscope.analysis.staleness import filters
from ratioscope.analysis.what_if import load_tokens
from ratioscope.dashboard.sections import clipping, drift, engine, learning, ratios, staleness, variance
from ratioscope.dashboard.sections.model import Paragraph, Piece
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject

PAGE = Page(
    "laboratory", "Laboratory", "What does the theory say, and how does it feel?", 300, ":material/science:",
    own=True, group="Theory",
)  # fmt: skip
_FILTERED_TOKENS = 50_000


@dataclass(frozen=True)
class Meeting:
    """An experiment and the blocks of a run that draw the same."""

    experiment: str
    page: str
    asks: str
    """What somebody on that page asks, which the experiment answers."""
    shows: Callable[[Subject], Iterable[Piece]]
    run: str
    """A sample run in which it is plain."""


def _filtered(subject: Subject) -> list[Piece]:
    """What S0's filter of stale tokens would make of the staleness of a run's latest tokens."""
    tokens = subject.compute(load_tokens, *subject.window(_FILTERED_TOKENS).steps)
    found = filters.effect(tokens, "epsilon_stale", subject.opened.limits.epsilon_stale)
    return [Paragraph(filters.filter_sentence(found)), staleness.filtered(found)]


MEETINGS = (
    Meeting("importance_weights", "ratios", "Why do weights of whole responses not average out?",
            lambda subject: ratios.lengths(subject)[:1], "sync_offset10-grpo-seed0"),
    Meeting("rare_token", "ratios", "Why does a small TV not help?",
            lambda subject: [drift.distances(subject), ratios.variance(subject)], "sync_interval20-reinforce-seed0"),
    Meeting("one_token", "clipping", "Why is a token stopped that has not moved?",
            lambda subject: clipping.who_drives(subject, subject.window()),
            "sync_interval5_mixture4-rec_oneside_is-seed0"),
    Meeting("surrogate", "drift", "Why must an update be small although its surrogate rises?",
            lambda subject: [drift.distances(subject)], "sync_interval20-reinforce-seed0"),
    Meeting("wrong_arm", "staleness", "Why does more training on old data not find the best?",
            lambda subject: learning.curves(subject)[:1], "offline-reinforce-seed0"),
    Meeting("no_policy_near", "drift", "Why can a clip around 1 not be met?",
            drift.clip, "sync_interval5_mixture4-rec_oneside_is-seed0"),
    Meeting("data_age", "staleness", "How old are my data, and why?",
            staleness.ages, "sync_interval20-grpo-seed0"),
    Meeting("noise", "variance", "Is the batch too small, or is the gradient biased?",
            lambda subject: [
                piece
                for estimator in variance.estimators(subject)[:1]
                for piece in variance.lemma(subject, variance.probes(subject, estimator), 0.01, 1.0)[:1]
            ], "mismatch-grpo-seed0"),
    Meeting("improvement", "drift", "Why does the bound certify nothing although every batch improves?",
            lambda subject: drift.bound(subject)[:2], "sync_interval20-grpo-seed0"),
    Meeting("filter_bias", "staleness", "Does a filter of stale data make it fresh?", _filtered,
            "sync_interval20-reinforce-lr0.0003-seed0"),
    Meeting("interval", "ratios", "Why is a metric marked as unreliable?",
            lambda subject: [ratios.rests_on(subject), ratios.variance(subject)], "sync_interval20-reinforce-seed0"),
    Meeting("engine_or_age", "engine", "Is it the engine or the age of the data?",
            engine.parts, "mismatch-grpo-seed0"),
)  # fmt: skip
