"""Many viewers of a live run: when a page may be drawn again by itself."""

import pytest

from ratioscope.dashboard import load as module
from ratioscope.dashboard.load import Load, both_clocks


class Clock:
    def __init__(self) -> None:
        self.clock, self.used = 1000.0, 10.0

    def monotonic(self) -> float:
        return self.clock

    def process_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def draw(load: Load, who: int, *, follows: bool = True) -> None:
    load.begin(who)
    load.end(who, follows=follows)


def test_few_viewers_wait_for_nobody_and_many_until_half_a_processor_was_left(clock: Clock) -> None:
    load, since = Load(), both_clocks()
    for who in range(3):
        draw(load, who)
        draw(load, who)  # each counts once
    assert load.has_spare(since)
    draw(load, 3)
    clock.clock += 4.9
    assert not load.has_spare(since)
    clock.clock, clock.used = clock.clock + 3.0, clock.used + 4.0
    assert not load.has_spare(since)
    clock.clock += 0.2
    assert load.has_spare(since)


def test_who_follows_sees_news_after_a_minute_whatever_the_load(clock: Clock) -> None:
    load, since = Load(), both_clocks()
    for who in range(20):
        draw(load, who)
    clock.used, clock.clock = clock.used + 1000, clock.clock + 59
    assert not load.has_spare(since)
    clock.clock += 2
    assert load.has_spare(since)


def test_who_leaves_or_stops_following_is_not_waited_for(clock: Clock) -> None:
    load, since = Load(), both_clocks()
    for who in range(10):
        draw(load, who)
    clock.used += 1000
    assert not load.has_spare(since)
    for who in range(6):
        draw(load, who, follows=False)
    assert not load.has_spare(since)
    draw(load, 6, follows=False)
    assert load.has_spare(since)
    for who in range(10):
        draw(load, who)
    clock.clock += 130
    draw(load, 9)
    assert load.has_spare(both_clocks())


def test_two_pages_are_drawn_at_a_time_and_one_that_was_broken_off_holds_nobody_up(clock: Clock) -> None:
    load = Load()
    load.begin(1)
    assert load.has_turn()
    load.begin(2)
    load.begin(2)
    assert not load.has_turn()
    load.end(1, follows=True)
    assert load.has_turn()
    load.begin(3)
    assert not load.has_turn()
    clock.clock += 31
    assert load.has_turn()
