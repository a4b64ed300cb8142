"""The schemas of the records in ``__transaction_state``.

Owns: their fields in Kafka's order and versions (``TransactionLogKey.json`` and
``TransactionLogValue.json``).  Must not know what the values mean.
"""

from dataclasses import field
from typing import Final

from sparklog.wire.protocol.schema import Struct, many, message, one

KEY_VERSION: Final = 0
#: The versions of the value; version 1 has tagged fields.
VALUE_VERSIONS: Final = range(2)
FLEXIBLE_VALUE_VERSION: Final = 1


@message
class TransactionLogKey(Struct):
    """Names a transactional id; version 0."""

    transactional_id: str = field(default="", metadata=one("string"))


@message
class PartitionsOfTopic(Struct):
    topic: str = field(default="", metadata=one("string"))
    partition_ids: tuple[int, ...] = field(default=(), metadata=many("int32"))


@message
class TransactionLogValue(Struct):
    """The state of a transactional id; versions 0 and 1."""

    producer_id: int = field(default=0, metadata=one("int64"))
    previous_producer_id: int = field(default=-1, metadata=one("int64", 1, tag=0))
    next_producer_id: int = field(default=-1, metadata=one("int64", 1, tag=1))
    producer_epoch: int = field(default=0, metadata=one("int16"))
    transaction_timeout_ms: int = field(default=0, metadata=one("int32"))
    transaction_status: int = field(default=0, metadata=one("int8"))
    transaction_partitions: tuple[PartitionsOfTopic, ...] | None = field(
        default=(), metadata=many(PartitionsOfTopic, nullable=0)
    )
    #: Milliseconds of the time of day.
    transaction_last_update_timestamp_ms: int = field(default=0, metadata=one("int64"))
    #: Milliseconds of the time of day; -1 without an open transaction.
    transaction_start_timestamp_ms: int = field(default=0, metadata=one("int64"))
    client_transaction_version: int = field(default=0, metadata=one("int16", 1, tag=2))
