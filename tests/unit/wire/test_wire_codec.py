"""Every API in every version has the same bytes as in kio, and malformed bytes are refused."""

import struct
import tracemalloc
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, ErrorCode
from sparklog.wire.protocol import messages
from sparklog.wire.protocol.codec import (
    MAX_REQUEST_ITEMS,
    RequestHeader,
    decode_body,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    knows,
    request_type,
    response_type,
)
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.protocol.messages.create_topics import CreateTopicsRequest
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from sparklog.wire.protocol.schema import Message, Request, Response
from tests.unit.wire.kio_bridge import (
    EXAMPLES,
    every_message,
    kio_decode,
    kio_encode,
    kio_header,
    kio_type,
    to_kio,
    values,
)

EVERY_MESSAGE = every_message()
EVERY_REQUEST = [(found, version) for found, version in EVERY_MESSAGE if issubclass(found, Request)]
IDS = [f"{found.__name__}-{version}" for found, version in EVERY_MESSAGE]
REQUEST_IDS = [f"{found.__name__}-{version}" for found, version in EVERY_REQUEST]
SETTINGS = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def encode(message: Message, version: int) -> bytes:
    """Header and body."""
    if isinstance(message, Request):
        return encode_request(message, version, 77, "someone")
    assert isinstance(message, Response)
    return encode_response(type(message), version, message, 77)


def header_of(message_type: type[Message], version: int) -> bytes:
    """The header that kio writes before such a message."""
    schema = kio_type(message_type, version).__header_schema__
    fields = {"correlation_id": 77}
    if issubclass(message_type, Request):
        key = message_type.API_KEY
        fields |= {"request_api_key": key, "request_api_version": version, "client_id": "someone"}
    return kio_header(schema(**fields))


def decode(message_type: type[Message], version: int, frame: bytes) -> Message:
    if issubclass(message_type, Request):
        header, offset = decode_request_header(frame)
        expected = RequestHeader(
            api_key=message_type.API_KEY,
            api_version=version,
            correlation_id=77,
            client_id="someone",
        )
        assert header == expected
        return decode_request(header, memoryview(frame)[offset:])
    assert issubclass(message_type, Response)
    correlation_id, response = decode_response(message_type, version, frame)
    assert correlation_id == 77
    return response


@pytest.mark.parametrize(("message_type", "version"), EVERY_MESSAGE, ids=IDS)
def test_a_message_has_the_same_bytes_as_with_kio(message_type: Any, version: int) -> None:
    schema = kio_type(message_type, version)

    @SETTINGS
    @given(values(message_type, schema, version))
    def check(message: Message) -> None:
        frame = header_of(message_type, version) + kio_encode(message, version)
        assert encode(message, version) == frame
        assert decode(message_type, version, frame) == message
        body = frame[len(header_of(message_type, version)) :]
        assert kio_decode(message_type, version, body) == to_kio(message, schema)

    check()


def test_fields_of_our_own_are_tagged() -> None:
    ours = DescribeLogDirsPartition(partition_size=5, remote_size=2**40, remote_copy_lag=7)
    response = DescribeLogDirsResponse(
        results=(DescribeLogDirsResult(topics=(DescribeLogDirsTopic(partitions=(ours,)),)),)
    )
    for version in range(response.MIN_VERSION, response.MAX_VERSION + 1):
        frame = encode(response, version)
        again = decode(DescribeLogDirsResponse, version, frame)
        assert isinstance(again, DescribeLogDirsResponse)
        kept = again.results[0].topics[0].partitions[0]
        known = version >= response.FLEXIBLE_FROM
        assert (kept.remote_size, kept.remote_copy_lag) == ((2**40, 7) if known else (-1, -1))


@pytest.mark.parametrize(("message_type", "version"), EVERY_MESSAGE, ids=IDS)
def test_every_default_can_be_encoded(message_type: Any, version: int) -> None:
    """So callers can leave out every field."""
    message = message_type()
    body = encode(message, version)[len(header_of(message_type, version)) :]
    again = decode_body(message_type, version, memoryview(body))
    assert encode(again, version) == encode(message, version)


@pytest.mark.parametrize(("message_type", "version"), EVERY_REQUEST, ids=REQUEST_IDS)
def test_cut_off_and_trailing_bytes_are_refused(message_type: Any, version: int) -> None:
    schema = kio_type(message_type, version)

    @SETTINGS
    @given(values(message_type, schema, version))
    def check(message: Message) -> None:
        body = memoryview(kio_encode(message, version))
        for size in range(len(body)):
            with pytest.raises(DecodeError):
                decode_body(message_type, version, body[:size])
        with pytest.raises(DecodeError, match="1 bytes are left"):
            decode_body(message_type, version, memoryview(bytes(body) + b"\0"))

    check()


@pytest.mark.parametrize(("message_type", "version"), EVERY_REQUEST, ids=REQUEST_IDS)
def test_changed_bytes_give_a_message_or_a_decode_error(message_type: Any, version: int) -> None:
    schema = kio_type(message_type, version)

    @SETTINGS
    @given(values(message_type, schema, version), st.data())
    def check(message: Message, data: st.DataObject) -> None:
        body = bytearray(kio_encode(message, version))
        for _ in range(8):
            position = data.draw(st.integers(0, len(body) - 1)) if body else 0
            body[position : position + 1] = data.draw(st.binary(min_size=1, max_size=6))
            with suppress(DecodeError):
                decode_body(message_type, version, memoryview(body))

    check()


@SETTINGS
@given(st.binary(max_size=64))
def test_random_bytes_are_a_header_or_a_decode_error(frame: bytes) -> None:
    try:
        header, offset = decode_request_header(frame)
    except DecodeError:
        return
    assert 10 <= offset <= len(frame)
    assert header.api_key == struct.unpack_from(">h", frame)[0]


def test_the_codec_reads_writable_buffers_too() -> None:
    frame = encode_request(MetadataRequest(), 12, 1, None)
    header, offset = decode_request_header(bytearray(frame))
    assert decode_request(header, memoryview(bytearray(frame))[offset:]) == MetadataRequest()


def test_fields_that_a_version_lacks_are_dropped_and_read_as_their_default() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=9, rack="r")
    response = MetadataResponse(
        throttle_time_ms=5, brokers=(broker,), cluster_id="c", controller_id=1
    )
    assert decode_response(MetadataResponse, 0, encode_response(3, 0, response, 4)) == (
        4,
        MetadataResponse(brokers=(MetadataResponseBroker(node_id=1, host="h", port=9),)),
    )


def test_null_becomes_empty_in_a_version_that_cannot_say_null() -> None:
    """Metadata 0 asks for all topics with an empty list."""
    frame = encode_request(MetadataRequest(topics=None), 0, 1, None)
    header, offset = decode_request_header(frame)
    assert decode_request(header, frame[offset:]) == MetadataRequest(topics=())


def test_a_value_that_does_not_fit_is_a_value_error() -> None:
    wrong: Any = None
    for response in (
        MetadataResponse(throttle_time_ms=2**40),
        MetadataResponse(brokers=wrong),
        MetadataResponse(brokers=(MetadataResponseBroker(host=wrong),)),
        MetadataResponse(topics=(wrong,)),
    ):
        with pytest.raises(ValueError):
            encode_response(MetadataResponse, 9, response, 1)


def test_an_error_code_may_be_given_as_the_enumeration() -> None:
    topic = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")
    frame = encode_response(3, 12, MetadataResponse(topics=(topic,)), 1)
    plain = MetadataResponseTopic(error_code=3, name="t")
    assert decode_response(MetadataResponse, 12, frame) == (1, MetadataResponse(topics=(plain,)))


def test_messages_are_frozen_values() -> None:
    topic = MetadataRequestTopic(name="t", topic_id=UUID(int=7))
    with pytest.raises(AttributeError):
        topic.name = "u"  # type: ignore[misc]
    assert {topic, MetadataRequestTopic(name="t", topic_id=UUID(int=7))} == {topic}
    decoded = decode_body(
        MetadataRequest, 13, memoryview(kio_encode(MetadataRequest(topics=(topic,)), 13))
    )
    assert decoded.topics is not None
    with pytest.raises(AttributeError):
        decoded.topics[0].name = "u"  # type: ignore[misc]
    assert repr(decoded.topics[0]) == repr(topic)


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    """A client that does not know our versions yet must be able to read it (KIP-511)."""
    frame = encode_response(18, 3, ApiVersionsResponse(error_code=35), 9)
    assert frame[:6] == struct.pack(">ih", 9, 35)
    assert decode_response(ApiVersionsResponse, 3, frame)[0] == 9


@pytest.mark.parametrize("tail", [b"", b"\0", b"\0rest", b"\xff\xff\xff\xff\xff\xff", b"\5\1"])
def test_an_unknown_version_of_api_versions_still_has_a_header(tail: bytes) -> None:
    frame = struct.pack(">hhih", 18, 99, 5, 2) + b"me" + tail
    header, _ = decode_request_header(frame)
    assert header == RequestHeader(api_key=18, api_version=99, correlation_id=5, client_id="me")
    assert not knows(18, 99)
    with pytest.raises(DecodeError, match="ApiVersionsRequest v99 is unknown"):
        decode_request(header, b"")


def test_an_unknown_api_still_has_a_header() -> None:
    header, offset = decode_request_header(struct.pack(">hhih", 4711, 0, 5, -1) + b"body")
    assert header == RequestHeader(api_key=4711, api_version=0, correlation_id=5, client_id=None)
    assert offset == 10
    with pytest.raises(DecodeError, match="api key 4711 is unknown"):
        decode_request(header, b"body")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack(">hhi", 3, 0, 1),
        struct.pack(">hhih", 3, 0, 1, 5) + b"four",
        struct.pack(">hhih", 3, 0, 1, -2),
        struct.pack(">hhih", 3, 0, 1, 1) + b"\xff",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\1\0\x7f",
    ],
)
def test_a_malformed_header_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(frame)


def test_tagged_fields_that_nobody_knows_are_skipped() -> None:
    body = b"\1\1\1" + b"\2" + b"\x63\3abc" + b"\x64\0"
    assert decode_body(ApiVersionsRequest, 3, memoryview(b"\2a\2b\0")) == ApiVersionsRequest(
        client_software_name="a", client_software_version="b"
    )
    assert decode_body(MetadataRequest, 12, memoryview(b"\1\1\1" + body[3:])) == MetadataRequest(
        topics=(), include_topic_authorized_operations=True
    )


def test_a_tagged_field_that_lies_about_its_size_is_refused() -> None:
    request = FetchRequest(cluster_id="abc")
    body = kio_encode(request, 12)
    assert decode_body(FetchRequest, 12, memoryview(body)) == request
    cut = body.replace(b"\0\4\4abc", b"\0\5\4abc\0")
    assert cut != body
    with pytest.raises(DecodeError, match="tagged field 0 lies about its size"):
        decode_body(FetchRequest, 12, memoryview(cut))


LYING_BODIES = [
    (MetadataRequest, 1, struct.pack(">i", 2**31 - 1) + bytes(64), "bytes left|more than"),
    (MetadataRequest, 1, struct.pack(">i", -2), "cannot have -2 items"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(64), "bytes left|more than"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\x0f", "longer than five bytes"),
    (MetadataRequest, 1, struct.pack(">ih", 1, 32767) + b"a", "exceeds the 1 bytes left"),
    (MetadataRequest, 1, struct.pack(">ih", 1, -1), "null that must not be"),
    (MetadataRequest, 1, struct.pack(">ih", 1, -7), "length is negative"),
    (MetadataRequest, 9, b"\2\xff\xff\xff\xff\x0f", "bytes left"),
    (CreateTopicsRequest, 5, b"\xfe\xff\xff\xff\x07" + bytes(64), "bytes left|more than"),
    (DeleteTopicsRequest, 1, struct.pack(">i", 2**31 - 1) + bytes(64), "bytes left|more than"),
    (ListOffsetsRequest, 1, struct.pack(">ii", -1, 2**31 - 1), "bytes left|more than"),
]


@pytest.mark.parametrize(("message_type", "version", "body", "message"), LYING_BODIES)
def test_a_lying_length_is_refused_before_anything_is_allocated(
    message_type: Any, version: int, body: bytes, message: str
) -> None:
    with pytest.raises(DecodeError):  # compiles the decoder outside of the measurement
        decode_body(message_type, version, memoryview(body))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=message):
            decode_body(message_type, version, memoryview(body))
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


def test_a_request_cannot_have_more_items_than_the_limit() -> None:
    names = tuple("t" for _ in range(MAX_REQUEST_ITEMS))
    allowed = encode_request(DeleteTopicsRequest(topic_names=names), 5, 1, None)
    header, offset = decode_request_header(allowed)
    decoded = decode_request(header, allowed[offset:])
    assert decoded == DeleteTopicsRequest(topic_names=names)
    refused = encode_request(DeleteTopicsRequest(topic_names=(*names, "t")), 5, 1, None)
    with pytest.raises(DecodeError, match="is 1 more than a message may have"):
        decode_request(header, refused[offset:])


def test_the_limit_counts_the_items_of_all_arrays() -> None:
    partitions = tuple(FetchPartition(partition=index) for index in range(1000))
    topics = tuple(FetchTopic(topic=str(index), partitions=partitions) for index in range(101))
    frame = encode_request(FetchRequest(topics=topics), 11, 1, None)
    header, offset = decode_request_header(frame)
    with pytest.raises(DecodeError, match="more than a message may have"):
        decode_request(header, frame[offset:])
    assert decode_request(header, encode_request(FetchRequest(), 11, 1, None)[offset:])


def test_a_response_may_be_large() -> None:
    """The limit is for requests of strangers; responses come from members and peers."""
    brokers = tuple(MetadataResponseBroker(node_id=index) for index in range(MAX_REQUEST_ITEMS + 1))
    frame = encode_response(3, 12, MetadataResponse(brokers=brokers), 1)
    assert decode_response(MetadataResponse, 12, frame)[1].brokers == brokers


def test_the_index_leads_to_every_message() -> None:
    for api_key, entry in messages.APIS.items():
        for found in (request_type(api_key), response_type(api_key)):
            assert (
                api_key,
                entry.min_version,
                entry.max_version,
                entry.flexible_from,
            ) == (found.API_KEY, found.MIN_VERSION, found.MAX_VERSION, found.FLEXIBLE_FROM)
        assert knows(api_key, entry.max_version)
        assert not knows(api_key, entry.max_version + 1)


def test_deleting_by_name_and_by_id_are_one_message() -> None:
    by_id = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=UUID(int=5)),), timeout_ms=9)
    frame = encode_request(by_id, 6, 1, None)
    header, offset = decode_request_header(frame)
    assert decode_request(header, frame[offset:]) == by_id
