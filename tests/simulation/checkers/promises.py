"""What an acknowledgement promised, and what takes a promise back.

Owns: which losses are legal.  Must not know records.

What all in-sync replicas acknowledged is never lost, as long as the fault bound of ``copies`` is
kept.  A topic that was created with ``flush.messages=1`` promises the disk: only lost disks count
against the bound.  Any other topic promises the process's memory of the disk: a machine that loses
power counts too.  What the leader alone acknowledged may be gone with its leadership.
"""

from bisect import bisect_left
from functools import lru_cache

from sparklog.metadata import BrokerFenced, BrokerRegistered, BrokerUnfenced
from sparklog.types import NO_NODE
from tests.simulation.checkers.copies import follow
from tests.simulation.compaction_events import TimeLookedUp
from tests.simulation.events import (
    BrokerDied,
    BrokerStopped,
    Committed,
    Consumed,
    DeletionDone,
    EndListed,
    Fetched,
    LogId,
    LogStartTold,
    ReplicaSeen,
    TopicCreated,
    TopicCreateInvoked,
)
from tests.simulation.history import NEVER, Deletion, History, Write

ACKS_ALL = -1


@lru_cache(maxsize=1)
def promises_of(history: History) -> "Promises":
    """Of a history that is over; all checkers ask the same one."""
    return Promises(history)


class Promises:
    """Answers about one history."""

    def __init__(self, history: History) -> None:
        invoked = {event.op: event for _, event in history.each(TopicCreateInvoked)}
        self.configs = {
            created.topic_id: dict(invoked[created.op].configs) if created.op in invoked else {}
            for _, created in history.each(TopicCreated)
        }
        self.copies = follow(history)
        self._deaths = [(at, e.broker) for at, e in history.each(BrokerDied)]
        self._away = _away(history)
        self._commits = {committed.number: at for at, committed in history.each(Committed)}
        self._fenced = _fenced(history)
        self._done: dict[LogId, list[tuple[int, DeletionDone]]] = {}
        for at, done in history.each(DeletionDone):
            self._done.setdefault(done.log, []).append((at, done))
        #: Where a replica's log is known to start, by log and broker, with the position.
        self._starts: dict[tuple[LogId, int], list[tuple[int, int]]] = {}
        for at, told in history.each(LogStartTold):
            self._starts.setdefault((told.log, told.broker), []).append((at, told.log_start))
        for at, seen in history.each(ReplicaSeen):
            self._starts.setdefault((seen.log, seen.broker), []).append((at, seen.start))

    def may_be_lost(self, log: LogId, start: int, end: int = NEVER) -> bool:
        """Whether what all in-sync replicas had after ``start`` may legally be gone at ``end``."""
        copies = self.copies.get(log)
        return copies is not None and copies.lost(start, end)

    def markers_may_be_lost(self, log: LogId, end: int = NEVER) -> bool:
        """Whether transactions may be open at ``end`` whose markers are legally gone.

        All transactions with records in the bucket have ended there, so none is left open by a
        recovery from the bucket alone.
        """
        copies = self.copies.get(log)
        lossy = [r for r in copies.recoveries if r.excused and r.at <= end] if copies else []
        return bool(lossy) and not lossy[-1].from_bucket

    def anything_may_be_lost(self, topic: str) -> bool:
        """The same for anything of a topic, ever."""
        return any(self.may_be_lost(log, 0) for log in self.copies if log.topic == topic)

    def write_may_be_lost(self, write: Write, end: int = NEVER) -> bool:
        """The same for an acknowledged batch."""
        if self.was_committed(write):
            return self.may_be_lost(write.log, write.start, end)
        return self.copies[write.log].ever_moved

    def was_away(self, broker: int, start: int, end: int) -> bool:
        """Whether a broker had ended, or was fenced, at some time between the two positions."""
        away = self._away.get(broker, [])
        at = bisect_left(away, (start, False))
        gone = at > 0 and away[at - 1][1]
        return gone or any(where <= end for where, left in away[at:] if left)

    def is_stale(self, event: Fetched | EndListed | TimeLookedUp) -> bool:
        """Whether a leader answered that had been replaced before it was asked, unknown to it."""
        copies = self.copies.get(event.log)
        known = copies.state_at(event.asked - 1) if copies is not None else None
        return known is not None and event.leader_epoch < known.leader_epoch

    def may_be_stale(self, read: Fetched | Consumed) -> bool:
        """The same where it is not known which leader answered, or a follower did, which may not
        have heard yet what its leader lacks."""
        if isinstance(read, Fetched) and read.follower == NO_NODE:
            return self.is_stale(read)
        copies = self.copies.get(read.log)
        return copies is not None and not copies.is_alone

    def deletion_may_be_undone(self, deletion: Deletion, end: int) -> bool:
        """Whether records may be there again at ``end`` that a DeleteRecords has deleted.

        A kill may bring them back, or an unclean recovery.  So may a leader that was elected behind
        the back of the one that acknowledged, or later, and does not know of the deletion.
        """
        log = deletion.log
        if self.died(log, deletion.start, end) or self.may_be_lost(log, deletion.start, end):
            return True
        copies = self.copies.get(log)
        return copies is not None and any(
            self._may_not_know(deletion, broker, known, at)
            for known in self._known(deletion)
            for at, broker in copies.elected(known, end)
        )

    def may_not_know(self, deletion: Deletion, broker: int, end: int) -> bool:
        """Whether a replica may not have heard of a deletion at ``end``.

        DeleteRecords waits for no broker that is fenced in the leader's image, as in Kafka: the
        broker may be back without the leader's knowledge, and be in sync before an answer tells it.
        """
        return any(
            self._may_not_know(deletion, broker, known, end) for known in self._known(deletion)
        )

    def _may_not_know(self, deletion: Deletion, broker: int, known: int, end: int) -> bool:
        fenced = [gone for at, gone in self._fenced.get(broker, ()) if at <= known]
        return fenced[-1:] == [True] and not any(
            known < at < end and start >= deletion.low_watermark
            for at, start in self._starts.get((deletion.log, broker), ())
        )

    def _known(self, deletion: Deletion) -> set[int]:
        """Up to which positions the leaders knew the journal that may have acknowledged it."""
        found = {
            self._commits.get(leader.version, at)
            for at, leader in self._done.get(deletion.log, ())
            if deletion.start < at < deletion.done
            and leader.low_watermark == deletion.low_watermark
        }
        return found or {deletion.done}

    def is_removed(self, broker: int, log: LogId, at: int) -> bool:
        """Whether the journal has no replica of the log at a broker any more, or not yet."""
        copies = self.copies.get(log)
        known = copies.state_at(at) if copies is not None else None
        return known is not None and broker not in known.replicas

    def was_committed(self, write: Write) -> bool:
        """Whether its acknowledgement said that all in-sync replicas have it."""
        copies = self.copies.get(write.log)
        return copies is None or write.sent.acks == ACKS_ALL or copies.is_alone

    def died(self, log: LogId, start: int, end: int) -> bool:
        """Whether a broker that ever had a replica was killed between the two positions."""
        copies = self.copies.get(log)
        if copies is None:
            return False
        for at, broker in self._deaths[bisect_left(self._deaths, (start, -1)) :]:
            if at > end:
                return False
            if broker in copies.brokers:
                return True
        return False


def _away(history: History) -> dict[int, list[tuple[int, bool]]]:
    """By broker: the positions from which it was gone (True), or there again."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for at, event in enumerate(history.events):
        match event:
            case BrokerDied() | BrokerStopped():
                found.setdefault(event.broker, []).append((at, True))
            case Committed():
                for record in event.records:
                    if isinstance(record, BrokerFenced | BrokerUnfenced):
                        gone = isinstance(record, BrokerFenced)
                        found.setdefault(record.broker_id, []).append((at, gone))
    return found


def _fenced(history: History) -> dict[int, list[tuple[int, bool]]]:
    """By broker: the positions of commits, and whether it was fenced afterwards."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for at, committed in history.each(Committed):
        for record in committed.records:
            match record:
                case BrokerRegistered():
                    found.setdefault(record.broker.broker_id, []).append((at, True))
                case BrokerFenced() | BrokerUnfenced():
                    fenced = isinstance(record, BrokerFenced)
                    found.setdefault(record.broker_id, []).append((at, fenced))
    return found
