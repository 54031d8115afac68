"""Which policy version samples which batch, and which versions are kept for it (S3 B.2)."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ratioscope.trainer.sampling.schedule import behavior_version, in_window, live_versions
from ratioscope.trainer.sampling.snapshots import Snapshots
from ratioscope.trainer.settings.config import Schedule
from ratioscope.trainer.settings.load import load_settings
from tests.making.training import QUICK

SCHEDULES = st.builds(
    Schedule,
    sync_interval=st.integers(1, 12),
    sync_offset=st.integers(0, 12),
    offline=st.booleans(),
)
MIXTURES = st.builds(
    Schedule,
    sync_interval=st.integers(1, 6),
    sync_offset=st.integers(0, 6),
    mixture=st.lists(st.floats(0.1, 1), min_size=1, max_size=5),
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
    assert lags(load_settings("on_policy").schedule, 50) == [0] * 50
    assert lags(load_settings("sync_interval").schedule, 50) == [*range(20), *range(20), *range(10)]
    assert lags(load_settings("sync_offset").schedule, 50) == [*range(10), *[10] * 40]
    assert lags(load_settings("offline").schedule, 50) == [*range(50)]


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
@given(MIXTURES, st.integers(0, 1_000))
def test_a_mixture_draws_from_the_newest_version_and_those_one_interval_apart(schedule: Schedule, update: int) -> None:
    versions, newest = live_versions(schedule, update), behavior_version(schedule, update)
    assert len(versions) == len(schedule.mixture)
    assert versions == [max(0, newest - place * schedule.sync_interval) for place in range(len(versions))]
    once_warm = schedule.sync_offset + len(versions) * schedule.sync_interval
    assert update < once_warm or len(set(versions)) == len(versions)


@QUICK
@example(Schedule(sync_interval=2, sync_offset=1, mixture=[1, 1]), 1, 2)  # the first step is a short one
@given(MIXTURES, st.integers(1, 5), st.integers(0, 1_000))
def test_the_window_keeps_the_newest_versions_of_a_mixture(schedule: Schedule, window: int, update: int) -> None:
    windowed = schedule.model_copy(update={"window": window})
    versions = live_versions(windowed, update)
    assert {version for version in versions if in_window(windowed, update, version)} == set(versions[:window])
    assert all(in_window(schedule, update, version) for version in versions)


@QUICK
@given(st.integers(1, 5), st.integers(0, 100), st.integers(0, 100))
def test_the_window_of_actors_counts_updates(window: int, update: int, lag: int) -> None:
    assert in_window(Schedule(actors=2, window=window), update, update - lag) == (lag < window)


@QUICK
@given(st.one_of(SCHEDULES, MIXTURES))
def test_snapshots_hold_what_the_schedule_asks_for_and_nothing_else(schedule: Schedule) -> None:
    snapshots, model = Snapshots(schedule), torch.nn.Linear(1, 1, bias=False)
    for update in range(UPDATES):
        snapshots.keep(update, numbered(update, model))
        asked_for = {version for later in range(update, UPDATES + 60) for version in live_versions(schedule, later)}
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
