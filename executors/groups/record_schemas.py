"""The schemas of the records in ``__consumer_offsets`` that the classic protocol writes.

Owns: their fields in Kafka's order and versions (``OffsetCommitKey.json`` and its siblings in
Kafka's group coordinator).  Must not know how a record is chosen, nor who reads it.

The stored values are used as they are: an ``OffsetCommitValue`` is a committed offset, and a
``GroupMetadataValue`` is the durable part of a group.
"""

from dataclasses import field
from typing import Final
from uuid import UUID

from sparklog.wire.protocol.schema import Struct, many, message, one

OFFSET_COMMIT_KEY_VERSIONS: Final = (0, 1)
GROUP_METADATA_KEY_VERSION: Final = 2
#: The versions of both values; version 4 is the first flexible one (KIP-915).
VALUE_VERSIONS: Final = range(5)
FLEXIBLE_VALUE_VERSION: Final = 4
NO_TIMESTAMP: Final = -1


@message
class OffsetCommitKey(Struct):
    """Names a committed offset; versions 0 and 1."""

    group: str = field(default="", metadata=one("string"))
    topic: str = field(default="", metadata=one("string"))
    partition: int = field(default=0, metadata=one("int32"))


@message
class OffsetCommitValue(Struct):
    """A committed offset; versions 0 to 4."""

    offset: int = field(default=0, metadata=one("int64"))
    leader_epoch: int = field(default=-1, metadata=one("int32", 3))
    metadata: str = field(default="", metadata=one("string"))
    #: Milliseconds of the time of day.
    commit_timestamp: int = field(default=0, metadata=one("int64"))
    #: Milliseconds of the time of day when the offset expires; -1 for the broker's retention.
    expire_timestamp: int = field(default=NO_TIMESTAMP, metadata=one("int64", 1, 1))
    #: The topic that the offset belongs to; None if the commit did not say it.
    topic_id: UUID | None = field(default=None, metadata=one("uuid", 4, tag=0))


@message
class GroupMetadataKey(Struct):
    """Names a group; version 2."""

    group: str = field(default="", metadata=one("string"))


@message
class MemberMetadata(Struct):
    """A member of a group with the metadata and the assignment of the record's generation."""

    member_id: str = field(default="", metadata=one("string"))
    group_instance_id: str | None = field(default=None, metadata=one("string", 3, nullable=3))
    client_id: str = field(default="", metadata=one("string"))
    client_host: str = field(default="", metadata=one("string"))
    #: Milliseconds; -1 for the session timeout.
    rebalance_timeout: int = field(default=-1, metadata=one("int32", 1))
    #: Milliseconds.
    session_timeout: int = field(default=0, metadata=one("int32"))
    subscription: bytes = field(default=b"", metadata=one("bytes"))
    assignment: bytes = field(default=b"", metadata=one("bytes"))


@message
class GroupMetadataValue(Struct):
    """The durable part of a group: its generation and members; versions 0 to 4."""

    protocol_type: str = field(default="", metadata=one("string"))
    generation: int = field(default=0, metadata=one("int32"))
    protocol: str | None = field(default=None, metadata=one("string", nullable=0))
    leader: str | None = field(default=None, metadata=one("string", nullable=0))
    #: Milliseconds of the time of day of the group's last change of state; -1 if unknown.
    current_state_timestamp: int = field(default=NO_TIMESTAMP, metadata=one("int64", 2))
    members: tuple[MemberMetadata, ...] = field(default=(), metadata=many(MemberMetadata))
