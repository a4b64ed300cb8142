"""The bytes of subscriptions and assignments, compared with schemas that others wrote."""

from io import BytesIO
from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import data as kio_assignment
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.serial import entity_reader, entity_writer

from sparklog.client.groups.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from sparklog.errors import DecodeError
from sparklog.types import TopicPartition

OWNED = frozenset({TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 7)})
FULL = Subscription(topics=("a", "b"), user_data=b"user", owned=OWNED, generation=5, rack="r")

partitions = st.frozensets(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9)), max_size=12
)


def kio_bytes(value: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(value))(out, value)
    return b"\x00\x03" + out.getvalue()


def test_a_subscription_has_the_bytes_of_kafkas_schema() -> None:
    tp = kio_subscription.TopicPartition
    expected = kio_subscription.ConsumerProtocolSubscription(
        topics=("a", "b"),
        user_data=b"user",
        owned_partitions=(tp(topic="a", partitions=(0, 1)), tp(topic="b", partitions=(7,))),
        generation_id=5,
        rack_id="r",
    )
    assert encode_subscription(FULL) == kio_bytes(expected)


def test_an_assignment_has_the_bytes_of_kafkas_schema() -> None:
    tp = kio_assignment.TopicPartition
    expected = kio_assignment.ConsumerProtocolAssignment(
        assigned_partitions=(tp(topic="a", partitions=(0, 1)), tp(topic="b", partitions=(7,))),
        user_data=None,
    )
    assert encode_assignment(OWNED) == kio_bytes(expected)
    read, _ = entity_reader(kio_assignment.ConsumerProtocolAssignment)(encode_assignment(OWNED), 2)
    assert read == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(topics=("a", "b"), user_data=b"user")),
        (1, Subscription(topics=("a", "b"), user_data=b"user", owned=OWNED)),
        (2, Subscription(topics=("a", "b"), user_data=b"user", owned=OWNED, generation=5)),
        (3, FULL),
    ],
)
def test_older_versions_lack_what_they_lack(version: int, expected: Subscription) -> None:
    assert decode_subscription(encode_subscription(FULL, version)) == expected


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    newer = b"\x00\x09" + encode_subscription(FULL)[2:] + b"what version 9 appends"
    assert decode_subscription(newer) == FULL
    newer = b"\x00\x09" + encode_assignment(OWNED)[2:] + b"more"
    assert decode_assignment(newer) == OWNED


@given(partitions)
def test_assignments_come_back(owned: frozenset[TopicPartition]) -> None:
    for version in range(4):
        assert decode_assignment(encode_assignment(owned, version)) == owned


def test_an_empty_assignment_may_have_no_bytes() -> None:
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", encode_assignment(OWNED)[:-9], b"\x00\x03"])
def test_malformed_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_assignment(data)
    with pytest.raises(DecodeError):
        decode_subscription(data)


@given(partitions, st.integers(-1, 2**31 - 1))
def test_sticky_user_data_is_that_of_other_clients(
    owned: frozenset[TopicPartition], generation: int
) -> None:
    data = encode_sticky_user_data(owned, generation)
    assert decode_sticky_user_data(data) == (owned, generation)
    other = StickyAssignorUserDataV1.decode(data)
    found = {
        TopicPartition(topic, number)
        for topic, numbers in other.previous_assignment
        for number in numbers
    }
    assert (found, other.generation) == (owned, generation)


def test_sticky_user_data_without_a_generation_is_version_0() -> None:
    data = encode_sticky_user_data(OWNED, 7)
    assert decode_sticky_user_data(data[:-4]) == (OWNED, NO_GENERATION)


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x7f\xff\xff\xff"])
def test_user_data_that_cannot_be_read_is_no_claim(data: bytes | None) -> None:
    assert decode_sticky_user_data(data) == (frozenset(), NO_GENERATION)


def test_the_generation_of_a_cooperative_member_comes_back() -> None:
    assert decode_cooperative_user_data(encode_cooperative_user_data(9)) == 9
    assert decode_cooperative_user_data(None) == NO_GENERATION
