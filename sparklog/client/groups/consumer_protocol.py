"""The embedded consumer protocol: subscriptions and assignments inside JoinGroup and SyncGroup.

Owns: the bytes of ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3, and
of the user data of the sticky assignors, which Java's clients read too.  Must not know how
partitions are assigned, nor the group's coordinator.

The coordinator passes these bytes on and the leader of the group reads them (``ConsumerProtocol``
in Kafka).  A version number precedes them.  Readers of an older version skip the fields of a newer
version, so everything is written in the newest version.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.errors import DecodeError
from sparklog.types import TopicPartition, numbers_by_topic
from sparklog.wire.protocol.decoders import compile_decoder
from sparklog.wire.protocol.encoders import compile_encoder
from sparklog.wire.protocol.schema import Struct, many, message, one

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
VERSION_MAX: Final = 3
#: Items of the arrays of one subscription or assignment.
_ITEMS_MAX: Final = 1_000_000
_VERSION: Final = struct.Struct(">h")
_MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError, DecodeError)


@message
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field(default="", metadata=one("string"))
    partitions: tuple[int, ...] = field(default=(), metadata=many("int32"))


@message
class ConsumerProtocolSubscription(Struct):
    """Kafka's schema ``ConsumerProtocolSubscription``."""

    topics: tuple[str, ...] = field(default=(), metadata=many("string"))
    user_data: bytes | None = field(default=None, metadata=one("bytes", nullable=0))
    owned_partitions: tuple[TopicPartitions, ...] = field(
        default=(), metadata=many(TopicPartitions, 1)
    )
    generation_id: int = field(default=NO_GENERATION, metadata=one("int32", 2))
    rack_id: str | None = field(default=None, metadata=one("string", 3, nullable=3))


@message
class ConsumerProtocolAssignment(Struct):
    """Kafka's schema ``ConsumerProtocolAssignment``."""

    assigned_partitions: tuple[TopicPartitions, ...] = field(
        default=(), metadata=many(TopicPartitions)
    )
    user_data: bytes | None = field(default=None, metadata=one("bytes", nullable=0))


@message
class StickyUserData(Struct):
    """User data of Java's StickyAssignor: v0 has no generation."""

    previous_assignment: tuple[TopicPartitions, ...] = field(
        default=(), metadata=many(TopicPartitions)
    )
    generation: int = field(default=NO_GENERATION, metadata=one("int32", 1))


@message
class CooperativeStickyUserData(Struct):
    """User data of Java's CooperativeStickyAssignor."""

    generation: int = field(default=NO_GENERATION, metadata=one("int32"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription of a member, as the group's leader sees it.

    ``owned`` are the partitions of the member in an earlier ``generation``; the member may have
    lost them meanwhile.  ``group_instance_id`` is not part of the bytes: JoinGroup has it.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack: str | None = None
    group_instance_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """The metadata of a member in JoinGroup."""
    return _encode(
        ConsumerProtocolSubscription(
            topics=subscription.topics,
            user_data=subscription.user_data,
            owned_partitions=_by_topic(subscription.owned),
            generation_id=subscription.generation,
            rack_id=subscription.rack,
        ),
        version,
    )


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """The subscription in the metadata of a member.  Raises DecodeError."""
    found: ConsumerProtocolSubscription = _decode(ConsumerProtocolSubscription, data)
    return Subscription(
        topics=found.topics,
        user_data=found.user_data,
        owned=_flat(found.owned_partitions),
        generation=found.generation_id,
        rack=found.rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = VERSION_MAX) -> bytes:
    """The assignment of a member in SyncGroup."""
    return _encode(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)), version)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions in an assignment; empty bytes are an empty assignment.  Raises DecodeError."""
    if not data:
        return frozenset()
    found: ConsumerProtocolAssignment = _decode(ConsumerProtocolAssignment, data)
    return _flat(found.assigned_partitions)


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of ``sticky``: the last assignment and its generation (v1)."""
    out = bytearray()
    data = StickyUserData(previous_assignment=_by_topic(owned), generation=generation)
    compile_encoder(StickyUserData, 1, False)(out, data, [_ITEMS_MAX, 0])
    return bytes(out)


def decode_sticky_user_data(data: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """The last assignment and its generation, of v1 or v0; empty for malformed data."""
    for version in (1, 0) if data else ():
        try:
            found, _ = compile_decoder(StickyUserData, version, False)(
                memoryview(data or b""), 0, [_ITEMS_MAX, 0]
            )
        except _MALFORMED:
            continue
        return _flat(found.previous_assignment), found.generation
    return frozenset(), NO_GENERATION


def encode_cooperative_user_data(generation: int) -> bytes:
    """The user data of ``cooperative-sticky``: the generation of the owned partitions."""
    out = bytearray()
    data = CooperativeStickyUserData(generation=generation)
    compile_encoder(CooperativeStickyUserData, 0, False)(out, data, [_ITEMS_MAX, 0])
    return bytes(out)


def decode_cooperative_user_data(data: bytes | None) -> int:
    """The generation in the user data; NO_GENERATION without any."""
    try:
        found, _ = compile_decoder(CooperativeStickyUserData, 0, False)(
            memoryview(data or b""), 0, [_ITEMS_MAX, 0]
        )
    except _MALFORMED:
        return NO_GENERATION
    return int(found.generation)


def _encode(value: Struct, version: int) -> bytes:
    out = bytearray(_VERSION.pack(version))
    compile_encoder(type(value), version, False)(out, value, [_ITEMS_MAX, 0])
    return bytes(out)


def _decode(struct_type: type[Struct], data: bytes) -> Any:
    """The value behind its version; fields that a newer version appends are ignored."""
    view = memoryview(data)
    try:
        (version,) = _VERSION.unpack_from(view, 0)
        if version < 0:
            raise DecodeError(f"version {version} is not legal")
        known = min(version, VERSION_MAX)
        found, _ = compile_decoder(struct_type, known, False)(view, _VERSION.size, [_ITEMS_MAX, 0])
    except _MALFORMED as error:
        raise DecodeError(f"malformed {struct_type.__name__}: {error}") from None
    return found


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(sorted(partitions)).items()
    )


def _flat(topics: Iterable[TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic, number) for t in topics for number in t.partitions)


def partitions_of(counts: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    """Every partition of these topics, in order; unknown topics have none."""
    return [
        TopicPartition(topic, number)
        for topic in sorted(set(topics))
        for number in range(counts.get(topic, 0))
    ]
