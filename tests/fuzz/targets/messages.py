"""Targets: requests and responses of every API and version, private ones included.

The first two bytes of an input choose one of them; what is taken must be the same when it is
written and read again.
"""

import struct
from collections.abc import Callable, Iterator

from sparklog.wire.protocol import codec, fetch, messages, produce
from sparklog.wire.protocol.messages.produce import ProduceRequest
from sparklog.wire.protocol.private import PRIVATE_MESSAGES
from sparklog.wire.protocol.repeated_produce import ProduceShape
from sparklog.wire.protocol.schema import Message, Request, Response
from tests.fuzz.filled_messages import RECORDS, empty, filled
from tests.fuzz.target import Target

CHOICE = struct.Struct(">H")
Versions = list[tuple[type[Message], int]]


def _versions(keys: object, of: Callable[[int], type[Message]]) -> Versions:
    found: Versions = []
    for key in sorted(keys):  # type: ignore[call-overload]
        kind = of(key)
        found += [(kind, v) for v in range(kind.MIN_VERSION, kind.MAX_VERSION + 1)]
    return found


REQUESTS = _versions(messages.APIS, codec.request_type)
RESPONSES = _versions(messages.APIS, codec.response_type)
PRIVATE_REQUESTS = _versions(PRIVATE_MESSAGES, codec.request_type)
PRIVATE_RESPONSES = _versions(PRIVATE_MESSAGES, codec.response_type)


def _encoded(message: Message, version: int) -> bytes:
    """A body, without the header."""
    if isinstance(message, Request):
        whole = codec.encode_request(message, version, 0, None)
        return whole[codec.decode_request_header(whole)[1] :]
    assert isinstance(message, Response)
    whole = codec.encode_response(message.API_KEY, version, message, 0)
    return whole[codec.read_response_header(message.API_KEY, version, memoryview(whole))[1] :]


def _decoder(versions: Versions) -> Callable[[bytes], None]:
    def decode(data: bytes) -> None:
        if len(data) < CHOICE.size:
            return
        kind, version = versions[CHOICE.unpack_from(data)[0] % len(versions)]
        found = codec.decode_body(kind, version, memoryview(data)[CHOICE.size :])
        written = _encoded(found, version)
        assert _encoded(codec.decode_body(kind, version, memoryview(written)), version) == written

    return decode


def _examples(versions: Versions) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for number, (kind, version) in enumerate(versions):
            for example in (empty(kind), filled(kind, version)):
                yield CHOICE.pack(number) + _encoded(example, version)

    return seeds


def _read_header(data: bytes) -> None:
    header, position = codec.decode_request_header(data)
    assert 0 < position <= len(data)
    if header.api_key in messages.APIS and codec.knows(header.api_key, header.api_version):
        codec.decode_request(header, memoryview(data)[position:])


def _headers() -> Iterator[bytes]:
    for kind, version in REQUESTS + PRIVATE_REQUESTS:
        yield codec.encode_request(filled(kind, version), version, 1, "client")  # type: ignore[arg-type]


# -- Produce, whose repetitions are recognised in the bytes

SPLIT = struct.Struct(">HH")


def _decode_produce(data: bytes) -> None:
    """Two frames of one connection: the second is read by the first one's shape, and must mean the
    same as when it is decoded."""
    if len(data) < SPLIT.size:
        return
    choice, size = SPLIT.unpack_from(data)
    version = produce.MIN_VERSION + choice % (produce.MAX_VERSION - produce.MIN_VERSION + 1)
    first, second = (
        struct.pack(">hh", 0, version) + part
        for part in (data[SPLIT.size : SPLIT.size + size], data[SPLIT.size + size :])
    )
    shape = ProduceShape.of(version, memoryview(first), _produce_request(first)[1])
    matched = shape.match(memoryview(second)) if shape else None
    if shape is None or matched is None:
        return
    correlation_id, request = _produce_request(second)
    (topic,) = request.topic_data
    sent = [(part.index, part.records) for part in topic.partition_data]
    assert (correlation_id, sent) == matched
    again = ProduceShape.of(version, memoryview(second), request)
    if again is not None:  # a length can be written with more bytes than it needs
        taken = [(n, 0, 2, 3, 4) for n in range(len(sent))]
        assert (again.before, again.answer(1, taken)) == (shape.before, shape.answer(1, taken))


def _produce_request(frame: bytes) -> tuple[int, ProduceRequest]:
    header, position = codec.decode_request_header(frame)
    body = memoryview(frame)[position:]
    return header.correlation_id, produce.decode_produce_request(header.api_version, body)


def _produce_seeds() -> Iterator[bytes]:
    for version in range(produce.MIN_VERSION, produce.MAX_VERSION + 1):
        frame = codec.encode_request(filled(ProduceRequest, version), version, 9, "client")[4:]
        other = frame.replace(RECORDS, RECORDS[:-1] + b"w")
        yield SPLIT.pack(version - produce.MIN_VERSION, len(frame)) + frame + other


# -- Fetch, whose answer is written by hand


def _decode_fetch(data: bytes) -> None:
    if len(data) < CHOICE.size:
        return
    count = fetch.MAX_VERSION - fetch.MIN_VERSION + 1
    version = fetch.MIN_VERSION + CHOICE.unpack_from(data)[0] % count
    correlation_id, response = fetch.decode_fetch_response(version, data[CHOICE.size :])
    parts = fetch.encode_fetch_response(version, correlation_id, response)
    assert b"".join(parts) == codec.encode_response(1, version, response, correlation_id)  # type: ignore[arg-type]


def _fetch_seeds() -> Iterator[bytes]:
    for version in range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1):
        for example in (empty(fetch.FetchResponse), filled(fetch.FetchResponse, version)):
            number = CHOICE.pack(version - fetch.MIN_VERSION)
            yield number + codec.encode_response(1, version, example, 5)


TARGETS = [
    Target(name="request-headers", decode=_read_header, seeds=_headers),
    *(
        Target(name=name, decode=_decoder(versions), seeds=_examples(versions))
        for name, versions in (
            ("requests", REQUESTS),
            ("responses", RESPONSES),
            ("private-requests", PRIVATE_REQUESTS),
            ("private-responses", PRIVATE_RESPONSES),
        )
    ),
    Target(name="produce", decode=_decode_produce, seeds=_produce_seeds),
    Target(name="fetch-response", decode=_decode_fetch, seeds=_fetch_seeds),
]
