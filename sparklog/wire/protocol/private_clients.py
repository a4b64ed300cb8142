"""Messages of sparklog's own clients, besides Kafka's; see ``private``.

Owns: their fields.  Must not know when clients send them.

Nodes advertise these to clients that call themselves ``CLIENT_SOFTWARE``, so that such a client
knows sparklog's nodes from Kafka's.
"""

from dataclasses import field
from typing import ClassVar, Final
from uuid import UUID

from sparklog.types import MAX_INT64, MIN_INT64
from sparklog.wire.protocol.schema import Request, Response, Struct, many, message, one

#: The name in ApiVersions by which sparklog's own clients are known.
CLIENT_SOFTWARE: Final = "sparklog"


@message
class CutTopic(Struct):
    """The partitions of one topic."""

    name: str = field(default="", metadata=one("string"))
    partitions: tuple[int, ...] = field(default=(), metadata=many("int32"))


@message
class ConsistentCutRequest(Request):
    """Asks for last stable offsets that tear no transaction.

    Transactions are held back for at most ``max_wait_ms``; node 0 shortens it if it is too long.
    """

    API_KEY: ClassVar[int] = 20016

    max_wait_ms: int = field(default=0, metadata=one("int32"))
    topics: tuple[CutTopic, ...] = field(default=(), metadata=many(CutTopic))


@message
class CutPartitionOffset(Struct):
    """The last stable offset of one partition."""

    partition: int = field(default=0, metadata=one("int32"))
    last_stable_offset: int = field(default=-1, metadata=one("int64"))


@message
class CutTopicOffsets(Struct):
    """The last stable offsets of one topic."""

    name: str = field(default="", metadata=one("string"))
    partitions: tuple[CutPartitionOffset, ...] = field(
        default=(), metadata=many(CutPartitionOffset)
    )


@message
class ConsistentCutResponse(Response):
    """The offset of each requested partition, if there is no error."""

    API_KEY: ClassVar[int] = 20016

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    topics: tuple[CutTopicOffsets, ...] = field(default=(), metadata=many(CutTopicOffsets))


@message
class ReadRemoteSegmentsRequest(Request):
    """Asks the leader for the segments in the bucket with offsets in [``start_offset``,
    ``end_offset``) that may have timestamps in [``min_timestamp``, ``max_timestamp``]
    (milliseconds), for ``segments_max`` of them at most.

    Key 20018 was an earlier form without times.
    """

    API_KEY: ClassVar[int] = 20022

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    current_leader_epoch: int = field(default=-1, metadata=one("int32"))
    start_offset: int = field(default=0, metadata=one("int64"))
    end_offset: int = field(default=0, metadata=one("int64"))
    min_timestamp: int = field(default=MIN_INT64, metadata=one("int64"))
    max_timestamp: int = field(default=MAX_INT64, metadata=one("int64"))
    segments_max: int = field(default=0, metadata=one("int32"))


@message
class ReadRemoteSegmentsResponse(Response):
    """The first segments, as JSON with URLs (``remote_log.signed_segments``).

    There may be more from ``next_offset`` on, whose log objects have ``bytes_behind``; below, no
    other segment has what was asked for.  The offset is -1 if clients cannot read the bucket, or if
    the log begins above ``start_offset``; then there are no segments.  The URLs are good until
    ``expires_at_ms`` of the leader's clock.
    """

    API_KEY: ClassVar[int] = 20022

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    expires_at_ms: int = field(default=-1, metadata=one("int64"))
    segments: tuple[bytes, ...] = field(default=(), metadata=many("bytes"))
    next_offset: int = field(default=-1, metadata=one("int64"))
    bytes_behind: int = field(default=0, metadata=one("int64"))
