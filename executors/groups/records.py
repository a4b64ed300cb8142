"""Records of ``__consumer_offsets`` <-> values.

Owns: the choice of versions.  Must not know groups.  Kafka: ``GroupCoordinatorRecordHelpers``,
``GroupCoordinatorRecordSerde``.
"""

from typing import Final, NamedTuple, TypeVar

from sparklog.errors import DecodeError
from sparklog.executors.coordinator import CoordinatorRecord
from sparklog.executors.groups.record_schemas import (
    FLEXIBLE_VALUE_VERSION,
    GROUP_METADATA_KEY_VERSION,
    NO_TIMESTAMP,
    OFFSET_COMMIT_KEY_VERSIONS,
    VALUE_VERSIONS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.wire.protocol.schema import Struct
from sparklog.wire.protocol.versioned_values import (
    decode_versioned,
    encode_versioned,
    version_of,
)

StructT = TypeVar("StructT", bound=Struct)

_WRITTEN_VALUE_VERSION: Final = 3
_WITH_EXPIRY_VERSION: Final = 1


class OffsetRecord(NamedTuple):
    """A committed offset, or the end of one (a value of None)."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """The durable part of a group, or its end (a value of None)."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


def offset_record(key: OffsetCommitKey, value: OffsetCommitValue | None) -> CoordinatorRecord:
    """The record of a committed offset; None makes a tombstone.

    The version is 3, which Kafka writes; an expiry of its own needs version 1, and a topic id
    version 4.
    """
    key_bytes = encode_versioned(OFFSET_COMMIT_KEY_VERSIONS[-1], key)
    if value is None:
        return CoordinatorRecord(key=key_bytes, value=None)
    version = _WRITTEN_VALUE_VERSION
    if value.expire_timestamp != NO_TIMESTAMP:
        version = _WITH_EXPIRY_VERSION
    elif value.topic_id is not None:
        version = FLEXIBLE_VALUE_VERSION
    flexible = version >= FLEXIBLE_VALUE_VERSION
    return CoordinatorRecord(
        key=key_bytes, value=encode_versioned(version, value, flexible=flexible)
    )


def group_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """The record of a group, in version 3; None makes a tombstone."""
    return CoordinatorRecord(
        key=encode_versioned(GROUP_METADATA_KEY_VERSION, GroupMetadataKey(group=group_id)),
        value=None if value is None else encode_versioned(_WRITTEN_VALUE_VERSION, value),
    )


def record_bytes(record: CoordinatorRecord) -> int:
    """The bytes of key and value."""
    return len(record.key) + len(record.value or b"")


def read_record(record: CoordinatorRecord) -> OffsetRecord | GroupRecord | None:
    """The values of a record; None for a record of another kind, which is to be ignored.

    Raises:
        DecodeError: the bytes do not follow their schema.
    """
    try:
        kind = version_of(record.key)
        if kind in OFFSET_COMMIT_KEY_VERSIONS:
            offset_key = decode_versioned(OffsetCommitKey, record.key)
            return OffsetRecord(offset_key, _decode_value(OffsetCommitValue, record.value))
        if kind == GROUP_METADATA_KEY_VERSION:
            group_key = decode_versioned(GroupMetadataKey, record.key)
            return GroupRecord(group_key, _decode_value(GroupMetadataValue, record.value))
    except DecodeError as error:
        raise DecodeError(f"malformed record of __consumer_offsets: {error}") from None
    return None


def _decode_value(struct_type: type[StructT], value: bytes | None) -> StructT | None:
    if value is None:
        return None
    version = version_of(value)
    if version not in VALUE_VERSIONS:
        raise DecodeError(f"{struct_type.__name__} v{version} is unknown")
    return decode_versioned(struct_type, value, flexible_from=FLEXIBLE_VALUE_VERSION)
