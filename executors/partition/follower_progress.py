"""What a leader knows of one other replica of its partition, from its fetches.

Owns: how far its log reaches, where it starts, and when it last had all that the leader had
(``Replica.updateFetchStateOrThrow``).  Must not know what follows from it.
"""

from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET

#: Longer ago than any lag.
NEVER_MS = -(2**62)


class FollowerProgress:
    """In one leader epoch; ``end_offset`` is -1 until it has fetched."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "expelled",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int = NEVER_MS) -> None:
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = caught_up_ms
        #: The controller took it out of the ISR, and it has not fetched since.
        self.expelled = False
        #: When it last fetched, and where the leader's log ended then.
        self._fetched_ms = NEVER_MS
        self._leader_end = 0

    def fetched(
        self, offset: int, log_start_offset: int, *, broker_epoch: int, leader_end: int, now_ms: int
    ) -> None:
        """A fetch at ``offset``: all before it is in the follower's log."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:
            # By now it has what there was at the time of its previous fetch.
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.expelled = False
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._fetched_ms = now_ms
        self._leader_end = max(self._leader_end, leader_end)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """It has everything, or had so not longer than that ago."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms

    def is_about_to_join(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """It has fetched in this epoch, and since it left the ISR, and is caught up."""
        known = self.end_offset >= 0 and not self.expelled
        return known and self.is_caught_up(leader_end, now_ms, lag_time_max_ms)
