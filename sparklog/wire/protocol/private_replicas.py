"""Messages between the replicas of a partition, besides Kafka's; see ``private``.

Owns: their fields.  Must not know when brokers send them.
"""

from dataclasses import field
from typing import ClassVar, Final
from uuid import UUID

from sparklog.wire.protocol.schema import Request, Response, message, one


@message
class ReadCleanOffsetRequest(Request):
    """A replica asks another replica how far the other log has been compacted."""

    API_KEY: ClassVar[int] = 20015

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))


@message
class ReadCleanOffsetResponse(Response):
    """``clean_offset``: the log is compacted below; -1 if it never was.  ``partition_epoch``: how
    recent the replicas are that the other replica knows."""

    API_KEY: ClassVar[int] = 20015

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    clean_offset: int = field(default=-1, metadata=one("int64"))
    partition_epoch: int = field(default=-1, metadata=one("int32"))


@message
class ReadLocalStartRequest(Request):
    """A leader asks a replica whose topic leaves the bucket where the replica's files begin."""

    API_KEY: ClassVar[int] = 20019

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    current_leader_epoch: int = field(default=-1, metadata=one("int32"))


@message
class ReadLocalStartResponse(Response):
    """``partition_epoch``: how recent the replicas are that the other replica knows."""

    API_KEY: ClassVar[int] = 20019

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    local_log_start_offset: int = field(default=-1, metadata=one("int64"))
    partition_epoch: int = field(default=-1, metadata=one("int32"))


@message
class ReadTieredStateRequest(Request):
    """A follower asks its leader which part of the log is in the bucket."""

    API_KEY: ClassVar[int] = 20017

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    current_leader_epoch: int = field(default=-1, metadata=one("int32"))


@message
class ReadTieredStateResponse(Response):
    """Everything in [``log_start_offset``, ``tiered_end_offset``) is in the bucket; the leader's
    files begin at ``local_log_start_offset``."""

    API_KEY: ClassVar[int] = 20017

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    log_start_offset: int = field(default=-1, metadata=one("int64"))
    local_log_start_offset: int = field(default=-1, metadata=one("int64"))
    tiered_end_offset: int = field(default=-1, metadata=one("int64"))


#: Request and response classes.
REPLICA_MESSAGES: Final[tuple[tuple[type[Request], type[Response]], ...]] = (
    (ReadCleanOffsetRequest, ReadCleanOffsetResponse),
    (ReadTieredStateRequest, ReadTieredStateResponse),
    (ReadLocalStartRequest, ReadLocalStartResponse),
)
