"""What siblings show of a remedy: the best one that has it, one that has it in vain, another where none has it."""

import pytest

from ratioscope.analysis.compare.siblings import siblings
from ratioscope.analysis.overview.tried import Ended, tried
from tests.making.samples import run_of

HERE = "sync_interval20-reinforce-lr0.0003-seed0"
RING, MASK, RATE = (
    "sync_interval20-rec_ring_nois-lr0.0003-seed0", "sync_interval20-rec_twoside_nois-lr0.0003-seed0",
    "sync_interval20-reinforce-seed0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "ends", "said"),
    [
        (
            "old_data_without_bound",
            {RING: 0.81, MASK: 0.6, RATE: 0.9},
            "A run with clip ring (rec_ring_nois) ended at 81%.",
        ),
        (
            "old_data_without_bound",
            {MASK: 0.16, RATE: 0.9},
            "A run with clip two_side (rec_twoside_nois) ended no better, at 16%.",
        ),
        ("old_data_without_bound", {RATE: 0.9}, "Another change helped: a run with learning_rate 0.0001 ended at 90%."),
        ("update_too_large", {RING: 0.9, RATE: 0.5}, "A run with learning_rate 0.0001 ended at 50%."),
        ("", {RING: 0.81, RATE: 0.5}, "A run with clip ring (rec_ring_nois) ended at 81%."),
        ("", {RING: 0.17}, ""),
        ("old_data_without_bound", {}, ""),
    ],
)
def test_the_remedy_meets_what_was_tried(cause: str, ends: dict[str, float], said: str) -> None:
    manifests = {name: run_of(name).manifest for name in (HERE, *ends)}
    others = [(each, manifests[each.run_id], Ended(ends[each.run_id], 0.04)) for each in siblings(HERE, manifests)]
    assert tried(cause, manifests[HERE], Ended(0.15, 0.04), others) == said
