"""The sentence that the list of runs opens with."""

import pytest

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.overview.inventory import Worst, inventory

CRITICAL, WARNING, NOTICE = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE
NOTHING: Worst = (None, "")


@pytest.mark.parametrize(
    ("statuses", "worst", "unread", "sentence"),
    [
        (["live"], [], 0, "1 run, live."),
        (["finished"], [], 0, "1 run, not live."),
        (["live", "live"], [], 2, "2 runs, all live."),
        (["finished"] * 2, [NOTHING, (NOTICE, "clip_zero")], 0,
         "2 runs, none live; none has a critical finding or a warning."),
        (["live", "finished", "failed", "cannot be read", "stalled"], [(WARNING, "heavy_tail")], 3,
         "5 runs, 1 of them live, 1 stalled, 1 failed, 1 cannot be read; 1 of 4 read so far, of these 1 has a warning "
         "(heavy tail)."),
        (["finished"] * 9, [NOTHING], 8, "9 runs, none live; 1 of 9 read so far."),
        (["finished"] * 1200, [(CRITICAL, "heavy_tail")] * 3 + [(CRITICAL, "kl_high")] + [(WARNING, "x")] * 2, 0,
         "1,200 runs, none live; 4 have a critical finding (most often heavy tail, 3 times) and 2 a warning."),
        (["interrupted"], [(CRITICAL, "kl_high")], 0,
         "1 run, not live; 1 has a critical finding (high KL divergence)."),
    ],
)  # fmt: skip
def test_the_sentence_counts_what_lives_and_what_is_sick(
    statuses: list[str], worst: list[Worst], unread: int, sentence: str
) -> None:
    assert inventory(statuses, worst, unread=unread) == sentence
