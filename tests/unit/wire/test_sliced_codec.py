"""Decoding and encoding in slices gives the same messages and bytes as at once."""

import pytest

from sparklog.errors import DecodeError
from sparklog.slices import ITEMS_AT_ONCE, run_through
from sparklog.wire.protocol.codec import (
    decode_request,
    decode_request_header,
    decode_request_in_slices,
    encode_request,
    encode_response,
    encode_response_in_slices,
)
from sparklog.wire.protocol.fetch import encode_fetch_response, encode_fetch_response_in_slices
from sparklog.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.protocol.primitives import TooManyItemsError

MANY = 3 * ITEMS_AT_ONCE
REQUEST = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"t{n}") for n in range(MANY)))
PARTITIONS = tuple(MetadataResponsePartition(replica_nodes=(1, 2)) for _ in range(3))
RESPONSE = MetadataResponse(
    topics=tuple(MetadataResponseTopic(name=f"t{n}", partitions=PARTITIONS) for n in range(MANY))
)
VERSIONS = [4, 8, 9, 12]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_many_items_is_decoded_in_slices(version: int) -> None:
    frame = encode_request(REQUEST, version, 1, "c")
    header, offset = decode_request_header(frame)
    slices = decode_request_in_slices(header, frame[offset:])
    assert len(list(slices)) >= 2
    again = run_through(decode_request_in_slices(header, frame[offset:]))
    assert again == decode_request(header, frame[offset:]) == REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_of_many_items_is_encoded_in_slices(version: int) -> None:
    assert len(list(encode_response_in_slices(version, RESPONSE, 7))) >= 2
    at_once = encode_response(MetadataResponse, version, RESPONSE, 7)
    assert run_through(encode_response_in_slices(version, RESPONSE, 7)) == at_once


def test_more_items_than_a_budget_are_refused_at_once() -> None:
    frame = encode_request(REQUEST, 9, 1, "c")
    header, offset = decode_request_header(frame)
    with pytest.raises(TooManyItemsError):
        decode_request(header, frame[offset:], MANY - 1)
    with pytest.raises(TooManyItemsError):
        run_through(decode_request_in_slices(header, frame[offset:], MANY - 1))
    with pytest.raises(TooManyItemsError):
        encode_response(MetadataResponse, 9, RESPONSE, 1, MANY - 1)


def test_a_cut_request_is_malformed_in_slices_too() -> None:
    frame = encode_request(REQUEST, 9, 1, "c")
    header, offset = decode_request_header(frame)
    with pytest.raises(DecodeError):
        run_through(decode_request_in_slices(header, frame[offset:-3]))


def test_unknown_tagged_fields_are_items() -> None:
    frame = encode_request(MetadataRequest(), 9, 1, "c")
    header, offset = decode_request_header(frame)
    body = frame[offset:-1] + b"\xff\x7f" + b"\x63\x00" * 16_383
    assert decode_request(header, body) == MetadataRequest()
    with pytest.raises(TooManyItemsError):
        decode_request(header, body, 1_000)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_a_fetch_answer_of_many_partitions_is_encoded_in_slices(version: int) -> None:
    parts = tuple(PartitionData(partition_index=n, records=b"r" * (n % 3)) for n in range(MANY))
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=parts),))
    at_once = encode_fetch_response(version, 7, response)
    assert run_through(encode_fetch_response_in_slices(version, 7, response)) == at_once
