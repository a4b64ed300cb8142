"""Who waits for a partition of this broker: fetches, acknowledgements, deletions of records.

Owns: the purgatories, the fetch sessions, and which change wakes whom.  Must not know logs, roles
or what an answer says.
"""

from collections.abc import Callable

from sparklog.executors.fetch_sessions import Awaited, FetchSession, FetchSessionCache
from sparklog.executors.purgatory import Purgatory, Timers
from sparklog.executors.replica_manager.recent_growth import RecentGrowth
from sparklog.types import TopicPartition


class DelayedOperations:
    """Of one broker.  ``sizes`` are bytes that a change brought; 0: it is worth a look anyway."""

    def __init__(self, session_slots: Callable[[], int], new_session_id: Callable[[], int]) -> None:
        self.timers = Timers()
        self.readers: Purgatory[Awaited] = Purgatory(self.timers)
        self.followers: Purgatory[Awaited] = Purgatory(self.timers)
        self.writers: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.deleters: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.sessions = FetchSessionCache(session_slots, new_session_id)
        self.reader_growth = RecentGrowth()
        self.follower_growth = RecentGrowth()

    def wake_session(self, session: FetchSession, size: int = 0) -> None:
        """Look at the fetch of a session that waits, if one does."""
        (self.followers if session.by_follower else self.readers).wake(session, size)

    def wake_readers(self, topic_partition: TopicPartition, size: int) -> None:
        """More can be read, or the role changed."""
        for session in self.sessions.changed(topic_partition):
            self.wake_session(session, size)
        self.readers.wake(topic_partition, size)
        self.reader_growth.add(topic_partition, size)
        # To a follower the high watermark itself is news (KIP-1166).
        self.followers.wake(topic_partition)
        self.follower_growth.add(topic_partition, 0)

    def wake_followers(self, topic_partition: TopicPartition, size: int) -> None:
        """More can be replicated."""
        for session in self.sessions.changed(topic_partition, followers_only=True):
            self.wake_session(session, size)
        self.followers.wake(topic_partition, size)
        self.follower_growth.add(topic_partition, size)

    def wake_everybody(self, topic_partition: TopicPartition) -> None:
        """The partition is not what it was."""
        self.wake_readers(topic_partition, 0)
        self.writers.wake(topic_partition)
        self.deleters.wake(topic_partition)

    def close_fetches(self) -> None:
        """Answer every fetch that waits, and those to come, with what there is."""
        self.readers.close()
        self.followers.close()

    def close(self) -> None:
        """Answer everybody, and those to come, with what there is."""
        self.close_fetches()
        self.writers.close()
        self.deleters.close()
