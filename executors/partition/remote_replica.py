"""The state of one follower, as the leader of its partition learns it from fetches.

Owns: the end and the start of the follower's log, and the time when the follower last had the whole
log of the leader (``Replica.updateFetchStateOrThrow``).  Must not know what follows from this
state.
"""

from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET

#: A time that is longer ago than any lag.
NEVER_MS = -(2**62)


class RemoteReplica:
    """One follower in one leader epoch; ``log_end_offset`` is -1 until it has fetched."""

    __slots__ = (
        "_last_fetch_leader_end",
        "_last_fetch_ms",
        "broker_epoch",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "removed_from_isr",
    )

    def __init__(self, last_caught_up_ms: int = NEVER_MS) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_caught_up_ms = last_caught_up_ms
        #: The controller removed the follower from the ISR, and it has not fetched since.
        self.removed_from_isr = False
        #: The time of the follower's last fetch, and the end of the leader's log then.
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end = 0

    def update_fetch_state(
        self, offset: int, log_start_offset: int, *, broker_epoch: int, leader_end: int, now_ms: int
    ) -> None:
        """Note a fetch at ``offset``: the follower's log holds everything before that offset."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._last_fetch_leader_end:
            # By now the follower has everything that the leader had at the previous fetch.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.removed_from_isr = False
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._last_fetch_leader_end = max(self._last_fetch_leader_end, leader_end)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower has the whole log, or had it at most ``lag_time_max_ms`` ago."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )

    def is_about_to_join(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower is caught up, and has fetched in this leader epoch and since it
        left the ISR."""
        has_fetched = self.log_end_offset >= 0 and not self.removed_from_isr
        return has_fetched and self.is_caught_up(leader_end, now_ms, lag_time_max_ms)
