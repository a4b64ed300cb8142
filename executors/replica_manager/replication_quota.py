"""Replication quotas: the rate at which throttled replicas are copied (KIP-73).

Owns: which replicas of a topic are throttled, and a broker's two quotas: one for the bytes that its
leaders send to followers, one for the bytes that its followers fetch.  Must not know clocks,
requests or logs.

Only a replica outside the ISR is throttled, because a throttle must not shrink the ISR.  The bytes
of every replica in the topic's list count, also of replicas in the ISR.
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from sparklog.byte_quota import ByteQuota
from sparklog.config import BrokerConfig, TopicConfig
from sparklog.metadata import PartitionImage
from sparklog.types import TopicPartition

#: The entry of a topic's list that means all replicas.
ALL_REPLICAS: Final = "*"
#: Longest delay of a fetch; after it the rate, which may have changed, is read again.
RATE_CHECK_MS: Final = 1_000


def is_throttled(listed: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether ``listed`` names a broker's replica of a partition.

    ``listed`` is a topic's ``leader.`` or ``follower.replication.throttled.replicas``.
    """
    return bool(listed) and (ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed)


class Throttled(Protocol):
    """A replica, as far as a throttle needs to know it."""

    config: TopicConfig

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def state(self) -> PartitionImage | None: ...


class ReplicationThrottle:
    """The quotas of one broker for sending and for fetching.

    ``config`` returns the current settings of the broker.
    """

    def __init__(self, broker_id: int, config: Callable[[], BrokerConfig]) -> None:
        self._broker_id = broker_id
        self._config = config
        self._sends = ByteQuota(config().leader_replication_throttled_rate, 0)
        self._fetches = ByteQuota(config().follower_replication_throttled_rate, 0)

    def should_leader_throttle(self, replica: Throttled, follower: int, now_ms: int) -> bool:
        """Whether a fetch of ``follower`` gets no records now from the leader ``replica``.

        See ``ReplicaManager.shouldLeaderThrottle``.
        """
        if not self._sends_throttled(replica) or _is_in_sync(replica, follower):
            return False
        self._sends.set_rate(self._config().leader_replication_throttled_rate, now_ms)
        return self._sends.is_exceeded(now_ms)

    def record_sent(self, replica: Throttled, size: int, now_ms: int) -> None:
        """Count ``size`` bytes of records that the leader ``replica`` sent to a follower."""
        if self._sends_throttled(replica):
            self._sends.record(size, now_ms)

    def wait_ms(self, replica: Throttled, now_ms: int) -> int:
        """The delay in ms before the follower ``replica`` may fetch; 0 without a delay."""
        if not self._fetches_throttled(replica) or _is_in_sync(replica, self._broker_id):
            return 0
        self._fetches.set_rate(self._config().follower_replication_throttled_rate, now_ms)
        wait_ms = self._fetches.wait_ms(now_ms)
        return RATE_CHECK_MS if wait_ms is None else min(wait_ms, RATE_CHECK_MS)

    def record_fetched(self, replica: Throttled, size: int, now_ms: int) -> None:
        """Count ``size`` bytes of records that the follower ``replica`` fetched."""
        if self._fetches_throttled(replica):
            self._fetches.record(size, now_ms)

    def _sends_throttled(self, replica: Throttled) -> bool:
        listed = replica.config.leader_replication_throttled_replicas
        return is_throttled(listed, replica.topic_partition.partition, self._broker_id)

    def _fetches_throttled(self, replica: Throttled) -> bool:
        listed = replica.config.follower_replication_throttled_replicas
        return is_throttled(listed, replica.topic_partition.partition, self._broker_id)


def _is_in_sync(replica: Throttled, broker_id: int) -> bool:
    return replica.state is not None and broker_id in replica.state.isr
