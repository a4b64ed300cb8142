"""The delayed operations of one broker: fetches, produces and DeleteRecords.

Owns: the purgatories, the fetch sessions, and which operations a change of a partition concerns.
Must not know logs, roles or what a response says.
"""

from collections.abc import Callable

from sparklog.executors.fetch_sessions import FetchKey, FetchSession, FetchSessionCache
from sparklog.executors.purgatory import Purgatory, Timers
from sparklog.executors.replica_manager.growth_during_reads import GrowthDuringReads
from sparklog.types import TopicPartition


class DelayedOperations:
    """Purgatories by kind of operation.

    The methods ``complete_...`` check the operations that a change concerns, and complete the
    operations that have enough.  ``size`` is the number of new bytes; 0 stands for another change,
    of a role for example, after which all operations are checked.
    """

    def __init__(self, session_slots: Callable[[], int], new_session_id: Callable[[], int]) -> None:
        self.timers = Timers()
        self.consumer_fetches: Purgatory[FetchKey] = Purgatory(self.timers)
        self.follower_fetches: Purgatory[FetchKey] = Purgatory(self.timers)
        self.produces: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.delete_records: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.sessions = FetchSessionCache(session_slots, new_session_id)
        self.consumer_growth = GrowthDuringReads()
        self.follower_growth = GrowthDuringReads()

    def complete_session_fetch(self, session: FetchSession, size: int = 0) -> None:
        """Check the delayed fetch of a session, if it has one."""
        (
            self.follower_fetches if session.by_follower else self.consumer_fetches
        ).check_and_complete(session, size)

    def complete_fetches(self, topic_partition: TopicPartition, size: int) -> None:
        """Check the delayed fetches of consumers: more is readable, or the role has changed."""
        for session in self.sessions.changed(topic_partition):
            self.complete_session_fetch(session, size)
        self.consumer_fetches.check_and_complete(topic_partition, size)
        self.consumer_growth.add(topic_partition, size)
        # A delayed fetch of a follower ends with a new high watermark too (KIP-1166).
        self.follower_fetches.check_and_complete(topic_partition)
        self.follower_growth.add(topic_partition, 0)

    def complete_follower_fetches(self, topic_partition: TopicPartition, size: int) -> None:
        """Check the delayed fetches of followers: more of the partition can be replicated."""
        for session in self.sessions.changed(topic_partition, followers_only=True):
            self.complete_session_fetch(session, size)
        self.follower_fetches.check_and_complete(topic_partition, size)
        self.follower_growth.add(topic_partition, size)

    def complete_all(self, topic_partition: TopicPartition) -> None:
        """Check every operation that waits for the partition: its role or its log has changed."""
        self.complete_fetches(topic_partition, 0)
        self.produces.check_and_complete(topic_partition)
        self.delete_records.check_and_complete(topic_partition)

    def close_fetches(self) -> None:
        """Expire the delayed fetches; later fetches do not wait."""
        self.consumer_fetches.close()
        self.follower_fetches.close()

    def close(self) -> None:
        """Expire all delayed operations; later operations expire at once."""
        self.close_fetches()
        self.produces.close()
        self.delete_records.close()
