"""The times of a group member: heartbeats, its session, its polls and its retries.

Owns: when the member beats, when its session or its time between polls is over, and when it
retries.  Must not know states, requests nor clocks: methods take the time, in seconds.
"""

from typing import Final

from sparklog.client.groups.member_events import MemberSettings

NEVER: Final = float("inf")


class MemberTimers:
    """The times of one member; all are seconds of the clock that the callers use."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        #: When the next heartbeat is due, and when the coordinator has last answered.
        self.heartbeat_at = NEVER
        self._heard_at = 0.0
        #: When the next attempt to find the coordinator, or to join, may begin.
        self.retry_at = 0.0
        self._failures = 0
        self._polling = False
        self._polled_at = 0.0
        #: Whether the application did not call ``poll`` for ``max_poll_interval_s``.
        self.poll_expired = False

    # polls

    def begin_poll(self, now: float) -> None:
        self._polling, self.poll_expired, self._polled_at = True, False, now

    def end_poll(self, now: float) -> None:
        self._polling, self._polled_at = False, now

    def begin_subscription(self, now: float) -> None:
        """Count the time between polls from now, as if ``poll`` had returned."""
        self._polled_at, self.poll_expired = now, False

    def expire_poll(self, now: float) -> bool:
        """Whether the time between two polls ends now."""
        if now < self._poll_ends_at:
            return False
        self.poll_expired = True
        return True

    @property
    def _poll_ends_at(self) -> float:
        if self._polling or self.poll_expired:
            return NEVER
        return self._polled_at + self._settings.max_poll_interval_s

    # the session

    def extend_session(self, now: float) -> None:
        """Extend the session, because the coordinator has answered."""
        self._heard_at = now

    def begin_session(self, now: float) -> None:
        """Begin a session, because the coordinator has put this member into a generation."""
        self._heard_at = now
        self.plan_heartbeat(now)

    def plan_heartbeat(self, now: float) -> None:
        self.heartbeat_at = now + self._settings.heartbeat_interval_s

    @property
    def session_ends_at(self) -> float:
        return self._heard_at + self._settings.session_timeout_s

    # retries

    def succeed(self) -> None:
        """End the sequence of failures, so that the next pause is short."""
        self._failures = 0

    def back_off(self, now: float) -> None:
        """Retry after a pause, which doubles with each consecutive failure."""
        settings = self._settings
        pause_s = settings.retry_backoff_s * 2 ** min(self._failures, 10)
        self._failures += 1
        self.retry_at = now + min(pause_s, settings.retry_backoff_s_max)

    def wake_at(self, *, beats: bool, retries: bool) -> float:
        """The first of these times; ``beats`` and ``retries`` tell whether these times count."""
        times = [self._poll_ends_at]
        if beats:
            times += [self.heartbeat_at, self.session_ends_at]
        if retries:
            times.append(self.retry_at)
        return min(times)
