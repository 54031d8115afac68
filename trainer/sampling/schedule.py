"""Which policy versions sample which batch."""

from ratioscope.trainer.settings.config import Schedule


def behavior_version(schedule: Schedule, update: int) -> int:
    """The newest policy version that samples the batch of an update.

    The batch of update l is (l mod m) + n updates old once the buffer is warm, and as old as the initial policy
    before (S3 B.2). Offline, version 0 samples everything.
    """
    if schedule.offline:
        return 0
    return max(0, update - update % schedule.sync_interval - schedule.sync_offset)


def live_versions(schedule: Schedule, update: int) -> list[int]:
    """The versions that a mixture draws from, newest first: one of every m updates (S0 3.3).

    While the run is young, the initial policy stands for versions that there have not been.
    """
    newest = behavior_version(schedule, update)
    return [max(0, newest - place * schedule.sync_interval) for place in range(max(1, len(schedule.mixture)))]


def in_window(schedule: Schedule, update: int, version: int) -> bool:
    """Whether a version is among the newest W (S0 5.6); of actors, every update makes a version."""
    if schedule.window is None:
        return True
    newest = update if schedule.actors else behavior_version(schedule, update)
    return newest - version <= (schedule.window - 1) * schedule.sync_interval
