"""Which policy version samples which batch, and which versions are kept for it (S3 B.2)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.small import QUICK
from trainer.config import Schedule, load
from trainer.schedule import behavior_version
from trainer.snapshots import Snapshots

SCHEDULES = st.builds(
    Schedule,
    sync_interval=st.integers(1, 12),
    sync_offset=st.integers(0, 12),
    offline=st.booleans(),
)
UPDATES = 60


def lags(schedule: Schedule, updates: int) -> list[int]:
    return [update - behavior_version(schedule, update) for update in range(updates)]


@pytest.mark.parametrize(
    ("sync_interval", "sync_offset", "expected"),
    [
        (1, 0, [0, 0, 0, 0, 0, 0, 0, 0]),
        (4, 0, [0, 1, 2, 3, 0, 1, 2, 3]),
        (1, 4, [0, 1, 2, 3, 4, 4, 4, 4]),
        (4, 2, [0, 1, 2, 3, 2, 3, 4, 5]),
        (2, 3, [0, 1, 2, 3, 3, 4, 3, 4]),
    ],
)
def test_lags_are_those_of_the_known_answers(sync_interval: int, sync_offset: int, expected: list[int]) -> None:
    assert lags(Schedule(sync_interval=sync_interval, sync_offset=sync_offset), 8) == expected


def test_lags_of_the_presets_are_those_of_figure_3() -> None:
    assert lags(load("on_policy").schedule, 50) == [0] * 50
    assert lags(load("sync_interval").schedule, 50) == [*range(20), *range(20), *range(10)]
    assert lags(load("sync_offset").schedule, 50) == [*range(10), *[10] * 40]
    assert lags(load("offline").schedule, 50) == [*range(50)]


@QUICK
@given(SCHEDULES, st.integers(0, 10_000))
def test_the_lag_is_the_place_in_the_interval_plus_the_offset_once_the_buffer_is_warm(
    schedule: Schedule, update: int
) -> None:
    lag = update - behavior_version(schedule, update)
    m, n = schedule.sync_interval, schedule.sync_offset
    assert lag == (update if schedule.offline else min(update, update % m + n))


@QUICK
@given(SCHEDULES)
def test_versions_never_decrease_and_are_never_from_the_future(schedule: Schedule) -> None:
    versions = [behavior_version(schedule, update) for update in range(UPDATES)]
    assert versions == sorted(versions)
    assert all(0 <= version <= update for update, version in enumerate(versions))


def numbered(version: int, model: torch.nn.Linear) -> torch.nn.Linear:
    """The model at a version, recognisable by its only weight; changed in place, as an optimiser does."""
    with torch.no_grad():
        model.weight.fill_(version)
    return model


@QUICK
@given(SCHEDULES)
def test_snapshots_hold_what_the_schedule_asks_for_and_nothing_else(schedule: Schedule) -> None:
    snapshots, model = Snapshots(schedule), torch.nn.Linear(1, 1, bias=False)
    for update in range(UPDATES):
        snapshots.keep(update, numbered(update, model))
        asked_for = {behavior_version(schedule, later) for later in range(update, UPDATES + 30)}
        assert snapshots.weights.keys() == {version for version in asked_for if version <= update}
        assert all(weights["weight"].item() == version for version, weights in snapshots.weights.items())


@QUICK
@given(SCHEDULES)
def test_no_more_snapshots_are_kept_than_the_offset_has_intervals(schedule: Schedule) -> None:
    snapshots, model = Snapshots(schedule), torch.nn.Linear(1, 1, bias=False)
    for update in range(UPDATES):
        snapshots.keep(update, numbered(update, model))
        most = 1 if schedule.offline else 2 + schedule.sync_offset // schedule.sync_interval
        assert len(snapshots.weights) <= most
