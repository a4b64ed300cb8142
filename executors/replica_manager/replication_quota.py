"""Replication quotas: how fast throttled replicas may be copied (KIP-73).

Owns: which replicas of a topic are throttled, and the rate of one direction: what a leader sends to
followers, or what a follower fetches.  Must not know clocks, requests or logs.

Only replicas that are not in sync are held back, because a throttle must not cost availability.
All bytes that a throttled replica copies are counted.
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.metadata import PartitionImage
from sparklog.types import TopicPartition

#: Unused quota is kept for a burst up to this time.
BURST_MS: Final = 1_000
#: Stands for all replicas in a topic's list.
ALL_REPLICAS: Final = "*"
#: Longest time that a replica is held back before the rate, which may have changed, is read again.
RATE_CHECK_MS: Final = 1_000


def is_throttled(listed: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a broker's replica is in a topic's ``leader.`` or
    ``follower.replication.throttled.replicas``."""
    return bool(listed) and (ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed)


class ReplicationQuota:
    """A token bucket that fills with ``rate`` bytes per second, and may be overdrawn once."""

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._left_millibytes = rate * BURST_MS
        self._filled_ms = now_ms

    def set_rate(self, rate: int, now_ms: int) -> None:
        """Apply a new rate from now on: a debt is paid at it, and savings are limited to it."""
        if rate == self.rate:
            return
        self._fill(now_ms)
        self.rate = rate
        self._left_millibytes = min(self._left_millibytes, rate * BURST_MS)

    def spend(self, size: int, now_ms: int) -> None:
        """Count ``size`` bytes that were copied."""
        self._fill(now_ms)
        self._left_millibytes -= size * 1000

    def is_spent(self, now_ms: int) -> bool:
        """Whether the quota is used up: nothing may be copied now."""
        self._fill(now_ms)
        return self._left_millibytes <= 0

    def wait_ms(self, now_ms: int) -> int | None:
        """How long the quota stays used up; None when that is until the rate changes."""
        self._fill(now_ms)
        if self._left_millibytes > 0:
            return 0
        return 1 - self._left_millibytes // self.rate if self.rate else None

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._filled_ms, 0)
        self._filled_ms = max(now_ms, self._filled_ms)
        self._left_millibytes = min(
            self._left_millibytes + passed_ms * self.rate, self.rate * BURST_MS
        )


class Throttled(Protocol):
    """The part of a replica that a throttle needs."""

    config: TopicConfig

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def state(self) -> PartitionImage | None: ...


class ReplicationThrottle:
    """The quotas of both directions of one broker, whose settings may change."""

    def __init__(self, broker_id: int, config: Callable[[], BrokerConfig]) -> None:
        self._broker_id = broker_id
        self._config = config
        self._sends = ReplicationQuota(config().leader_replication_throttled_rate, 0)
        self._fetches = ReplicationQuota(config().follower_replication_throttled_rate, 0)

    def holds_back(self, replica: Throttled, follower: int, now_ms: int) -> bool:
        """Whether the follower gets no records now of this partition, which is led here."""
        if not self._sends_throttled(replica) or _is_in_sync(replica, follower):
            return False
        self._sends.set_rate(self._config().leader_replication_throttled_rate, now_ms)
        return self._sends.is_spent(now_ms)

    def sent(self, replica: Throttled, size: int, now_ms: int) -> None:
        """A follower got ``size`` bytes of records of this partition, which is led here."""
        if self._sends_throttled(replica):
            self._sends.spend(size, now_ms)

    def wait_ms(self, replica: Throttled, now_ms: int) -> int:
        """How long the follower here must not fetch records; 0 when it may fetch now."""
        if not self._fetches_throttled(replica) or _is_in_sync(replica, self._broker_id):
            return 0
        self._fetches.set_rate(self._config().follower_replication_throttled_rate, now_ms)
        wait_ms = self._fetches.wait_ms(now_ms)
        return RATE_CHECK_MS if wait_ms is None else min(wait_ms, RATE_CHECK_MS)

    def fetched(self, replica: Throttled, size: int, now_ms: int) -> None:
        """The follower here got ``size`` bytes of records."""
        if self._fetches_throttled(replica):
            self._fetches.spend(size, now_ms)

    def _sends_throttled(self, replica: Throttled) -> bool:
        listed = replica.config.leader_replication_throttled_replicas
        return is_throttled(listed, replica.topic_partition.partition, self._broker_id)

    def _fetches_throttled(self, replica: Throttled) -> bool:
        listed = replica.config.follower_replication_throttled_replicas
        return is_throttled(listed, replica.topic_partition.partition, self._broker_id)


def _is_in_sync(replica: Throttled, broker_id: int) -> bool:
    return replica.state is not None and broker_id in replica.state.isr
