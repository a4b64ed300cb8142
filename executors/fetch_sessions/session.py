"""One fetch session (KIP-227): which partitions a client fetches, and what it was told of each.

Owns: a session's partitions, which of them must be looked at, in which order, and what of a look
goes into the answer.  Must not know other sessions, logs, or who sends answers.

A partition is *due* when a look at it may find something to tell; the others cost nothing.  Errors
are told every time, so a failed partition stays due; one with records stays due, behind the
others, so that none starves (a look may end at the limit of bytes before it has come to all).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar
from uuid import UUID

from sparklog.types import MAX_INT32, MAX_INT64, NO_OFFSET, TopicPartition
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

#: The epoch of a request that asks for a session, and of one that wants none or ends its own.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

#: Partitions that are added to a session, or taken out of it, at once.
PIECE_PARTITIONS = 250
TopicT = TypeVar("TopicT", FetchTopic, ForgottenTopic)
#: Topic, by name or id, and number.
PartitionKey: TypeAlias = tuple[str | UUID | None, int]
#: Who reads and how: replica id (-1: a client) and isolation level.  It bounds what can be read.
View: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """What one fetch wants of one partition; in a session, also what its client knows already."""

    topic: str
    topic_id: UUID | None
    wanted: FetchPartition
    session: "FetchSession | None" = None
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    #: Whose changes make it due.
    watched: TopicPartition | None = None

    def is_news(self, data: PartitionData) -> bool:
        """Whether an answer must hold this; remembers it as told."""
        if data.error_code:
            # When the error is gone, that is news.
            self.high_watermark = NO_OFFSET
            return True
        told = self.high_watermark, self.log_start_offset
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        return (
            bool(data.records)
            or told != (data.high_watermark, data.log_start_offset)
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )

    def knows_less_than(self, data: PartitionData) -> bool:
        """Whether a high watermark is known to be higher than this follower has it."""
        return NO_OFFSET < self.high_watermark < data.high_watermark

    def want(self, wanted: FetchPartition) -> None:
        """Another request names it; a follower says which high watermark it has (KIP-1166), and
        where its log starts: it may not have taken what it was told."""
        self.wanted = wanted
        if wanted.log_start_offset != NO_OFFSET:
            self.log_start_offset = wanted.log_start_offset
        if wanted.high_watermark != MAX_INT64:
            self.high_watermark = wanted.high_watermark


def wanted_partitions(topics: Iterable[FetchTopic]) -> Iterator[FetchedPartition]:
    """The partitions of a request, in its order."""
    for topic in topics:
        for part in topic.partitions:
            fetched = FetchedPartition(topic.topic, topic.topic_id, part)
            fetched.want(part)
            yield fetched


def in_pieces(topics: Iterable[TopicT]) -> Iterator[TopicT]:
    """The same topics in the same order, with at most ``PIECE_PARTITIONS`` partitions in each."""
    for topic in topics:
        if len(topic.partitions) <= PIECE_PARTITIONS:
            yield topic
            continue
        for start in range(0, len(topic.partitions), PIECE_PARTITIONS):
            piece = topic.partitions[start : start + PIECE_PARTITIONS]
            yield replace(topic, partitions=piece)


def next_epoch(epoch: int) -> int:
    return epoch + 1 if epoch < MAX_INT32 else 1


class FetchSession:
    """Mutable; changed by ``FetchSessionCache`` and by whoever answers its fetches."""

    __slots__ = (
        "being_updated",
        "by_id",
        "closed",
        "created_ms",
        "due",
        "epoch",
        "last_used_ms",
        "partitions",
        "privileged",
        "session_id",
        "view",
        "waiting",
    )

    def __init__(self, session_id: int, view: View, *, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        #: The one that the next request must have.
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.privileged = view[0] >= 0
        #: As of the last request.
        self.view = view
        self.by_id = by_id
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self.due: dict[FetchedPartition, None] = {}
        #: Whether a fetch is parked that this session's changes can end.
        self.waiting = False
        self.closed = False
        #: Whether a request that names many partitions is being worked on.
        self.being_updated = False

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def by_follower(self) -> bool:
        return self.view[0] >= 0

    def _key(self, topic: str, topic_id: UUID | None, number: int) -> PartitionKey:
        return (topic_id if self.by_id else topic), number

    def want(self, part: FetchedPartition) -> None:
        """Add a partition, or change what is wanted of it."""
        key = self._key(part.topic, part.topic_id, part.wanted.partition)
        held = self.partitions.get(key)
        if held is None:
            part.session = self
            held = self.partitions[key] = part
        else:
            held.want(part.wanted)
        self.due[held] = None

    def forget(self, topics: Iterable[ForgottenTopic]) -> list[FetchedPartition]:
        """Remove partitions; those that were there."""
        forgotten = []
        for topic in topics:
            for number in topic.partitions:
                part = self.partitions.pop(self._key(topic.topic, topic.topic_id, number), None)
                if part is not None:
                    self.due.pop(part, None)
                    forgotten.append(part)
        return forgotten

    def look_through(self, view: View) -> None:
        """Another view than before makes every partition due."""
        if self.view != view:
            self.view = view
            self.due.update(dict.fromkeys(self.partitions.values()))

    def answered(self, part: FetchedPartition, data: PartitionData, *, drained: bool) -> None:
        """What a look found is in an answer; ``drained`` says that there is nothing more."""
        if drained:
            self.due.pop(part, None)
        elif data.records:
            self.due.pop(part, None)
            self.due[part] = None
