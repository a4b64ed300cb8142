"""The delayed operations of one broker: fetches, produces and deletions of records.

Owns: the purgatories, the fetch sessions, and which operations a change of a partition concerns.
Must not know logs, roles or what an answer says.
"""

from collections.abc import Callable

from sparklog.executors.fetch_sessions import FetchKey, FetchSession, FetchSessionCache
from sparklog.executors.purgatory import Purgatory, Timers
from sparklog.executors.replica_manager.recent_growth import RecentGrowth
from sparklog.types import TopicPartition


class DelayedOperations:
    """Purgatories by kind of operation.

    ``size`` is the number of bytes that came with a change, 0 for a change of another kind, which
    operations always look at.
    """

    def __init__(self, session_slots: Callable[[], int], new_session_id: Callable[[], int]) -> None:
        self.timers = Timers()
        self.consumer_fetches: Purgatory[FetchKey] = Purgatory(self.timers)
        self.follower_fetches: Purgatory[FetchKey] = Purgatory(self.timers)
        self.produces: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.deletions: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.sessions = FetchSessionCache(session_slots, new_session_id)
        self.reader_growth = RecentGrowth()
        self.follower_growth = RecentGrowth()

    def wake_session(self, session: FetchSession, size: int = 0) -> None:
        """Try the delayed fetch of a session, if it has one."""
        (
            self.follower_fetches if session.by_follower else self.consumer_fetches
        ).check_and_complete(session, size)

    def wake_readers(self, topic_partition: TopicPartition, size: int) -> None:
        """Consumers can read more of the partition, or its role has changed."""
        for session in self.sessions.changed(topic_partition):
            self.wake_session(session, size)
        self.consumer_fetches.check_and_complete(topic_partition, size)
        self.reader_growth.add(topic_partition, size)
        # A follower is told of the high watermark itself (KIP-1166).
        self.follower_fetches.check_and_complete(topic_partition)
        self.follower_growth.add(topic_partition, 0)

    def wake_followers(self, topic_partition: TopicPartition, size: int) -> None:
        """Followers can replicate more of the partition."""
        for session in self.sessions.changed(topic_partition, followers_only=True):
            self.wake_session(session, size)
        self.follower_fetches.check_and_complete(topic_partition, size)
        self.follower_growth.add(topic_partition, size)

    def wake_all(self, topic_partition: TopicPartition) -> None:
        """Try every operation that waits for the partition: its role or its log has changed."""
        self.wake_readers(topic_partition, 0)
        self.produces.check_and_complete(topic_partition)
        self.deletions.check_and_complete(topic_partition)

    def close_fetches(self) -> None:
        """Expire the delayed fetches; later fetches are answered with what there is."""
        self.consumer_fetches.close()
        self.follower_fetches.close()

    def close(self) -> None:
        """Expire all delayed operations; later operations expire at once."""
        self.close_fetches()
        self.produces.close()
        self.deletions.close()
