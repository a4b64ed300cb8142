"""One fetch session (KIP-227): the partitions that a client fetches, and the state that it knows.

Owns: a session's partitions, which of them must be read, in which order, and which results go into
the answer.  Must not know other sessions, logs, or how answers are sent.

A partition is *due* when a read of it may find news; the other partitions cost nothing.  Errors are
returned in every response, so a failed partition stays due.  A partition with records stays due,
behind the others, so that no partition starves: a fetch may reach its limit of bytes before it has
read all of them.
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

#: Epochs of a request that opens a session, and of a request that has no session or ends it.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

#: Partitions that are added to a session, or removed from it, in one slice.
SLICE_PARTITIONS = 250
TopicT = TypeVar("TopicT", FetchTopic, ForgottenTopic)
#: Topic, by name or id, and number.
PartitionKey: TypeAlias = tuple[str | UUID | None, int]
#: Replica id (-1 for a consumer) and isolation level of a fetch, which limit the readable offsets.
View: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition as a request names it; in a session, with the state that the client knows."""

    topic: str
    topic_id: UUID | None
    wanted: FetchPartition
    session: "FetchSession | None" = None
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    #: The partition whose changes make this one due.
    watched: TopicPartition | None = None

    def update_response(self, data: PartitionData) -> bool:
        """Note ``data`` as known to the client.  Return whether an answer must contain it."""
        if data.error_code:
            # The end of the error must be answered.
            self.high_watermark = NO_OFFSET
            return True
        known = self.high_watermark, self.log_start_offset
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        return (
            bool(data.records)
            or known != (data.high_watermark, data.log_start_offset)
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )

    def lacks_high_watermark_of(self, data: PartitionData) -> bool:
        """Whether the follower is known to have a lower high watermark than ``data``."""
        return NO_OFFSET < self.high_watermark < data.high_watermark

    def update_request(self, wanted: FetchPartition) -> None:
        """Take over the values of another request that names the partition.

        A follower says which high watermark it has (KIP-1166) and where its log starts, because it
        may not have applied an answer.
        """
        self.wanted = wanted
        if wanted.log_start_offset != NO_OFFSET:
            self.log_start_offset = wanted.log_start_offset
        if wanted.high_watermark != MAX_INT64:
            self.high_watermark = wanted.high_watermark


def requested_partitions(topics: Iterable[FetchTopic]) -> Iterator[CachedPartition]:
    """The partitions of a request, in its order."""
    for topic in topics:
        for part in topic.partitions:
            fetched = CachedPartition(topic.topic, topic.topic_id, part)
            fetched.update_request(part)
            yield fetched


def in_small_topics(topics: Iterable[TopicT]) -> Iterator[TopicT]:
    """The same topics in the same order, with at most ``SLICE_PARTITIONS`` partitions in each."""
    for topic in topics:
        if len(topic.partitions) <= SLICE_PARTITIONS:
            yield topic
            continue
        for start in range(0, len(topic.partitions), SLICE_PARTITIONS):
            piece = topic.partitions[start : start + SLICE_PARTITIONS]
            yield replace(topic, partitions=piece)


def next_epoch(epoch: int) -> int:
    return epoch + 1 if epoch < MAX_INT32 else 1


class FetchSession:
    """A mutable session, changed by ``FetchSessionCache`` and by the handler of its fetches."""

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
        #: The epoch that the next request must have.
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.privileged = view[0] >= 0
        #: The view of the last request.
        self.view = view
        self.by_id = by_id
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.due: dict[CachedPartition, None] = {}
        #: Whether a delayed fetch waits for changes of this session.
        self.waiting = False
        self.closed = False
        #: Whether a request that names many partitions is being applied in slices.
        self.being_updated = False

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def by_follower(self) -> bool:
        return self.view[0] >= 0

    def _key(self, topic: str, topic_id: UUID | None, number: int) -> PartitionKey:
        return (topic_id if self.by_id else topic), number

    def add(self, part: CachedPartition) -> None:
        """Add a partition, or update it from another request; it is due."""
        key = self._key(part.topic, part.topic_id, part.wanted.partition)
        held = self.partitions.get(key)
        if held is None:
            part.session = self
            held = self.partitions[key] = part
        else:
            held.update_request(part.wanted)
        self.due[held] = None

    def forget(self, topics: Iterable[ForgottenTopic]) -> list[CachedPartition]:
        """Remove partitions, and return those that the session had."""
        forgotten = []
        for topic in topics:
            for number in topic.partitions:
                part = self.partitions.pop(self._key(topic.topic, topic.topic_id, number), None)
                if part is not None:
                    self.due.pop(part, None)
                    forgotten.append(part)
        return forgotten

    def change_view(self, view: View) -> None:
        """Read with this view from now on.  A changed view makes every partition due."""
        if self.view != view:
            self.view = view
            self.due.update(dict.fromkeys(self.partitions.values()))

    def answered(self, part: CachedPartition, data: PartitionData, *, drained: bool) -> None:
        """A result was answered.  ``drained`` means that the client has read all records."""
        if drained:
            self.due.pop(part, None)
        elif data.records:
            self.due.pop(part, None)
            self.due[part] = None
