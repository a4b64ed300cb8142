"""Produce in every version: kio's bytes, and records that are never copied."""

from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.wire.protocol.codec import decode_request_header
from sparklog.wire.protocol.produce import (
    MAX_VERSION,
    MIN_VERSION,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from tests.unit.wire.kio_bridge import EXAMPLES, kio_decode, kio_encode, kio_type, to_kio, values

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
SETTINGS = settings(
    max_examples=EXAMPLES * 5, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def joined_request(version: int, request: ProduceRequest) -> bytes:
    return b"".join(encode_produce_request(version, 7, "me", request))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_has_the_same_bytes_as_with_kio(version: int) -> None:
    @SETTINGS
    @given(values(ProduceRequest, kio_type(ProduceRequest, version), version))
    def check(request: ProduceRequest) -> None:
        frame = joined_request(version, request)
        header, offset = decode_request_header(frame)
        assert (header.api_key, header.api_version, header.client_id) == (0, version, "me")
        assert frame[offset:] == kio_encode(request, version)
        assert decode_produce_request(version, memoryview(frame)[offset:]) == request

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_has_the_same_bytes_as_with_kio(version: int) -> None:
    schema = kio_type(ProduceResponse, version)

    @SETTINGS
    @given(values(ProduceResponse, schema, version))
    def check(response: ProduceResponse) -> None:
        payload = encode_produce_response(version, 7, response)
        body = payload[4 if version < 9 else 5 :]
        assert body == kio_encode(response, version)
        assert kio_decode(ProduceResponse, version, body) == to_kio(response, schema)
        assert decode_produce_response(version, payload) == (7, response)

    check()


@pytest.mark.parametrize("version", VERSIONS)
@given(cut=st.integers(1, 10_000), data=st.binary(max_size=300))
@SETTINGS
def test_a_request_that_was_cut_off_is_refused(version: int, cut: int, data: bytes) -> None:
    request = two_topics(version, data)
    frame = joined_request(version, request)
    _, offset = decode_request_header(frame)
    body = memoryview(frame)[offset:]
    with pytest.raises(DecodeError):
        decode_produce_request(version, body[: -min(cut, len(body))])


def two_topics(version: int, records: bytes) -> ProduceRequest:
    topics = []
    for number in (1, 2):
        partitions = tuple(
            PartitionProduceData(index=index, records=records) for index in range(number)
        )
        if version >= 13:
            topic = TopicProduceData(topic_id=UUID(int=number), partition_data=partitions)
        else:
            topic = TopicProduceData(name=f"topic-{number}", partition_data=partitions)
        topics.append(topic)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=tuple(topics))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_decoded_records_are_views_that_can_be_stamped_in_place(version: int) -> None:
    frame = bytearray(joined_request(version, two_topics(version, b"abcdefgh" * 100)))
    _, offset = decode_request_header(frame)
    request = decode_produce_request(version, memoryview(frame)[offset:])
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:8] = b"12345678"
    assert b"12345678abcdefgh" in frame


@pytest.mark.parametrize("version", [3, 9, 13])
def test_encoded_records_are_the_same_object(version: int) -> None:
    records = b"r" * 100_000
    request = two_topics(version, records)
    parts = encode_produce_request(version, 1, None, request)
    assert sum(part is records for part in parts) == 3
    assert sum(len(part) for part in parts if part is not records) < 200


@pytest.mark.parametrize("version", [3, 9])
def test_records_may_be_null(version: int) -> None:
    partition = PartitionProduceData(index=4, records=None)
    request = ProduceRequest(topic_data=(TopicProduceData(name="t", partition_data=(partition,)),))
    frame = joined_request(version, request)
    _, offset = decode_request_header(frame)
    assert decode_produce_request(version, memoryview(frame)[offset:]) == request


def test_a_request_may_be_larger_than_any_other() -> None:
    records = bytes(20 * 2**20)
    frame = joined_request(9, two_topics(9, records))
    _, offset = decode_request_header(frame)
    request = decode_produce_request(9, memoryview(frame)[offset:])
    assert request == two_topics(9, records)


@pytest.mark.parametrize("version", [0, 2, 14])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(DecodeError, match=f"ProduceRequest v{version} is unknown"):
        decode_produce_request(version, memoryview(b""))


def test_the_plain_answer_is_what_it_was_for_years() -> None:
    partition = PartitionProduceResponse(index=1, base_offset=42, log_start_offset=7)
    topic = TopicProduceResponse(name="t", partition_responses=(partition,))
    response = ProduceResponse(responses=(topic,), throttle_time_ms=3)
    assert encode_produce_response(7, 9, response) == bytes.fromhex(
        "00000009"  # correlation id
        "00000001 000174 00000001"  # one topic "t", one partition
        "00000001 0000 000000000000002a ffffffffffffffff 0000000000000007"
        "00000003"  # throttle time
    )
    assert encode_produce_response(9, 9, response) == bytes.fromhex(
        "00000009 00"  # correlation id, no tagged fields
        "02 0274 02"
        "00000001 0000 000000000000002a ffffffffffffffff 0000000000000007 01 00 00"
        "00 00000003 00"
    )
