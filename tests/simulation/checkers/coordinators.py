"""Who coordinates a group, and when what its coordinator promised may legally be gone.

Owns: the partition of ``__consumer_offsets`` that a group belongs to.  Must not know commits.
"""

from functools import lru_cache

from sparklog.metadata import TopicCreated
from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import Committed, LogId
from tests.simulation.history import History


@lru_cache(maxsize=1)
def coordinators_of(history: History) -> "Coordinators":
    """Of a history that is over; all checkers ask the same one."""
    return Coordinators(history)


class Coordinators:
    """Answers about one history."""

    def __init__(self, history: History) -> None:
        self._promises = promises_of(history)
        created = (
            record
            for _, commit in history.each(Committed)
            for record in commit.records
            if isinstance(record, TopicCreated) and record.topic == CONSUMER_OFFSETS
        )
        self._topic = next(created, None)

    def may_be_lost(self, group: str, start: int, end: int) -> bool:
        """Whether what the group's coordinator answered after ``start`` may be gone at ``end``."""
        log = self._log(group)
        return log is not None and self._promises.may_be_lost(log, start, end)

    def led(self, group: str, node: int, start: int, end: int) -> bool:
        """Whether the journal had ``node`` as the coordinator at some time between the positions.

        A broker that was replaced and has not heard of it still tells what it knows.
        """
        log = self._log(group)
        copies = self._promises.copies.get(log) if log is not None else None
        if copies is None:
            return False
        first = copies.state_at(start)
        during = [state for at, state in copies.changes if start < at <= end]
        return any(state.leader == node for state in (first, *during) if state is not None)

    def _log(self, group: str) -> LogId | None:
        topic = self._topic
        if topic is None:
            return None
        number = partition_for(group, len(topic.partitions))
        return LogId(topic.topic, topic.topic_id, number)
