"""The bytes of records in ``__consumer_offsets``, against bytes made by hand.

The schemas are those of Kafka's group coordinator (``resources/common/message``).
"""

from uuid import UUID

import pytest

from sparklog.errors import DecodeError
from sparklog.executors.coordinator import CoordinatorRecord
from sparklog.executors.groups.consumer_protocol import subscribed_topics
from sparklog.executors.groups.record_schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import (
    GroupRecord,
    OffsetRecord,
    group_record,
    offset_record,
    read_record,
)
from tests.unit.executors.groups.group_rig import subscription

KEY = OffsetCommitKey(group="g", topic="t", partition=7)
KEY_BYTES = bytes.fromhex("00010001 670001 7400000007")
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
GROUP_KEY_BYTES = bytes.fromhex("00020001 67")
VALUES = {
    # version, offset, leader epoch, metadata, commit timestamp
    "00030000000000000005000000030002 6d640000018bcfe56800": OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="md", commit_timestamp=1_700_000_000_000
    ),
    # version 1 has no leader epoch, but when the offset expires
    "0001000000000000000500000000000000000009000000000000000a": OffsetCommitValue(
        offset=5, commit_timestamp=9, expire_timestamp=10
    ),
    # version 4 is flexible: compact metadata, and one tagged field of tag 0 with 16 bytes
    "0004"
    "0000000000000005"
    "00000003"
    "01"
    "0000000000000009"
    "01 00 10"
    "00112233445566778899aabbccddeeff": OffsetCommitValue(
        offset=5, leader_epoch=3, commit_timestamp=9, topic_id=TOPIC_ID
    ),
}
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="h",
    rebalance_timeout=2,
    session_timeout=3,
    subscription=b"\x0a",
    assignment=b"\x0b\x0c",
)
GROUP_VALUE = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader="m",
    current_state_timestamp=9,
    members=(MEMBER,),
)
GROUP_VALUE_BYTES = bytes.fromhex(
    "0003"
    "0008 636f6e73756d6572"  # protocol type
    "00000004"  # generation
    "0005 72616e6765"  # protocol
    "0001 6d"  # leader
    "0000000000000009"  # current state timestamp
    "00000001"  # members
    "0001 6d"  # member id
    "0001 69"  # group instance id
    "0001 63"  # client id
    "0001 68"  # client host
    "00000002"  # rebalance timeout
    "00000003"  # session timeout
    "00000001 0a"  # subscription
    "00000002 0b0c"  # assignment
)


@pytest.mark.parametrize(("written", "value"), VALUES.items(), ids=["v3", "v1", "v4"])
def test_a_committed_offset_has_the_bytes_of_kafka(written: str, value: OffsetCommitValue) -> None:
    record = CoordinatorRecord(key=KEY_BYTES, value=bytes.fromhex(written))
    assert offset_record(KEY, value) == record
    assert read_record(record) == OffsetRecord(KEY, value)


def test_a_group_has_the_bytes_of_kafka() -> None:
    record = CoordinatorRecord(key=GROUP_KEY_BYTES, value=GROUP_VALUE_BYTES)
    assert group_record("g", GROUP_VALUE) == record
    assert read_record(record) == GroupRecord(GroupMetadataKey(group="g"), GROUP_VALUE)


def test_an_empty_group_has_null_for_protocol_and_leader() -> None:
    empty = GroupMetadataValue(protocol_type="consumer", generation=4)
    written = "00030008 636f6e73756d657200000004ffffffffffffffffffffffff00000000"
    record = group_record("g", empty)
    assert record.value == bytes.fromhex(written)
    assert read_record(record) == GroupRecord(GroupMetadataKey(group="g"), empty)


def test_a_tombstone_has_a_key_alone() -> None:
    assert offset_record(KEY, None) == CoordinatorRecord(key=KEY_BYTES, value=None)
    assert group_record("g", None) == CoordinatorRecord(key=GROUP_KEY_BYTES, value=None)
    assert read_record(offset_record(KEY, None)) == OffsetRecord(KEY, None)
    assert read_record(group_record("g", None)) == GroupRecord(GroupMetadataKey(group="g"), None)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (
            "0000 0000000000000005 0000 0000000000000009",
            OffsetCommitValue(offset=5, commit_timestamp=9),
        ),
        (
            "0002 0000000000000005 0000 0000000000000009",
            OffsetCommitValue(offset=5, commit_timestamp=9),
        ),
        (
            "0004 0000000000000005 ffffffff 01 0000000000000009 00",
            OffsetCommitValue(offset=5, commit_timestamp=9),
        ),
        # a tagged field of a later Kafka
        (
            "0004 0000000000000005 ffffffff 01 0000000000000009 01 05 01 ff",
            OffsetCommitValue(offset=5, commit_timestamp=9),
        ),
    ],
)
def test_offsets_of_other_versions_are_read(written: str, value: OffsetCommitValue) -> None:
    old_key = b"\x00\x00" + KEY_BYTES[2:]
    record = CoordinatorRecord(key=old_key, value=bytes.fromhex(written))
    assert read_record(record) == OffsetRecord(KEY, value)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_groups_of_every_version_are_read(version: int) -> None:
    from sparklog.wire.protocol.encoders import compile_encoder

    out = bytearray(version.to_bytes(2, "big"))
    compile_encoder(GroupMetadataValue, version, version >= 4)(out, GROUP_VALUE, [100, 0])
    read = read_record(CoordinatorRecord(key=GROUP_KEY_BYTES, value=bytes(out)))
    assert isinstance(read, GroupRecord)
    assert read.value is not None
    (member,) = read.value.members
    assert (member.member_id, member.assignment) == ("m", b"\x0b\x0c")
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert member.rebalance_timeout == (2 if version >= 1 else -1)
    assert read.value.current_state_timestamp == (9 if version >= 2 else -1)


@pytest.mark.parametrize("kind", [3, 4, 11, 999])
def test_records_of_other_kinds_are_ignored(kind: int) -> None:
    key = kind.to_bytes(2, "big") + b"\x00\x01g"
    assert read_record(CoordinatorRecord(key=key, value=b"\x00\x00\x00")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (KEY_BYTES[:-1], None),
        (KEY_BYTES, b""),
        (KEY_BYTES, bytes.fromhex("0005 0000000000000005")),
        (KEY_BYTES, bytes.fromhex("0003 00000000")),
        (GROUP_KEY_BYTES, GROUP_VALUE_BYTES[:-1]),
        (GROUP_KEY_BYTES, b"\xff\xff"),
    ],
)
def test_malformed_records_are_an_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        read_record(CoordinatorRecord(key=key, value=value))


def test_subscriptions_name_topics_in_every_version() -> None:
    assert subscribed_topics(subscription("a", "bc")) == {"a", "bc"}
    assert subscribed_topics(subscription()) == frozenset()
    later = b"\x00\x09" + subscription("a")[2:] + b"more"
    assert subscribed_topics(later) == {"a"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x00\x00\x00\x00\x01\xff\xffabc",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_malformed_subscriptions_have_no_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
