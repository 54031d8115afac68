"""Which policy version samples which batch."""

from trainer.config import Schedule


def behavior_version(schedule: Schedule, update: int) -> int:
    """The policy version that samples the batch of an update.

    The batch of update l is (l mod m) + n updates old once the buffer is warm, and as old as the initial policy
    before (S3 B.2). Offline, version 0 samples everything.
    """
    if schedule.offline:
        return 0
    return max(0, update - update % schedule.sync_interval - schedule.sync_offset)
