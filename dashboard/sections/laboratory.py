"""Where in a run one meets what an experiment of the laboratory shows; the page itself needs no run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ratioscope.dashboard.sections import drift, ratios
from ratioscope.dashboard.sections.model import Piece
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject

PAGE = Page(
    "laboratory", "Laboratory", "What does the theory say, and how does it feel?", 300, ":material/science:",
    own=True, group="Theory",
)  # fmt: skip


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


MEETINGS = (
    Meeting("importance_weights", "ratios", "Why do weights of whole responses not average out?",
            lambda subject: ratios.lengths(subject)[:1], "sync_offset10-grpo-seed0"),
    Meeting("rare_token", "ratios", "Why does a small TV not help?",
            lambda subject: [ratios.variance(subject)], "sync_interval20-reinforce-seed0"),
    Meeting("no_policy_near", "drift", "Why can a clip around 1 not be met?",
            drift.clip, "sync_interval5_mixture4-rec_oneside_is-seed0"),
    Meeting("surrogate", "drift", "Why must an update be small although its surrogate rises?",
            lambda subject: [drift.distances(subject)], "sync_interval20-reinforce-seed0"),
)  # fmt: skip
