"""Who coordinates a group or a transaction, and when what was promised may legally be gone.

Owns: the partition of an internal topic that a key belongs to.  Must not know commits.
"""

from functools import lru_cache

from sparklog.metadata import TopicCreated
from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import Committed, LogId
from tests.simulation.history import History


@lru_cache(maxsize=1)
def coordinators_of(history: History) -> "Coordinators":
    """Of the groups of a history that is over; all checkers ask the same one."""
    return Coordinators(history, CONSUMER_OFFSETS)


@lru_cache(maxsize=1)
def transaction_coordinators_of(history: History) -> "Coordinators":
    """Of its transactional ids."""
    return Coordinators(history, TRANSACTION_STATE)


class Coordinators:
    """Answers about one history; a key is a group id or a transactional id."""

    def __init__(self, history: History, topic: str) -> None:
        self._promises = promises_of(history)
        created = (
            record
            for _, commit in history.each(Committed)
            for record in commit.records
            if isinstance(record, TopicCreated) and record.topic == topic
        )
        self._topic = next(created, None)

    def may_be_lost(self, key: str, start: int, end: int) -> bool:
        """Whether what the key's coordinator answered after ``start`` may be gone at ``end``."""
        log = self.log(key)
        return log is not None and self._promises.may_be_lost(log, start, end)

    def losses(self, key: str, start: int) -> list[int]:
        """The positions of the recoveries that may have lost what was answered after ``start``."""
        log = self.log(key)
        copies = self._promises.copies.get(log) if log is not None else None
        recoveries = copies.recoveries if copies is not None else []
        return [each.at for each in recoveries if each.excused and start <= each.heard]

    def led(self, key: str, node: int, start: int, end: int) -> bool:
        """Whether the journal had ``node`` as the coordinator at some time between the positions.

        A broker that was replaced and has not heard of it still tells what it knows.
        """
        log = self.log(key)
        copies = self._promises.copies.get(log) if log is not None else None
        if copies is None:
            return False
        first = copies.state_at(start)
        during = [state for at, state in copies.changes if start < at <= end]
        return any(state.leader == node for state in (first, *during) if state is not None)

    def log(self, key: str) -> LogId | None:
        """The partition of the key's coordinator; None without any."""
        topic = self._topic
        if topic is None:
            return None
        number = partition_for(key, len(topic.partitions))
        return LogId(topic.topic, topic.topic_id, number)
