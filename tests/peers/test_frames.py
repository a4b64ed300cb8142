"""Frames that no client should send: what the connection does, on Kafka's side and on ours."""

import random
import struct

import pytest

from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.both import Both, batch, produce
from tests.peers.deviations import STRICT_FRAMES
from tests.support.raw_wire import RawWire, framed

CLOSED, ANSWERED = "closed", "answered"


def request_bytes(version: int = 9) -> bytes:
    topics = (MetadataRequestTopic(name="a-topic"),)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return encode_request(request, version, 1, "raw")


def header(api_key: int, version: int, client: bytes = b"\0\3raw") -> bytes:
    return struct.pack(">hhi", api_key, version, 1) + client


WHOLE = request_bytes()
FRAMES: dict[str, bytes] = {
    "nothing in it": framed(b""),
    "one byte": framed(b"x"),
    "a header cut off": framed(WHOLE[:6]),
    "a client id cut off": framed(header(3, 9, b"\0\xffraw")),
    "a body cut off": framed(WHOLE[:-3]),
    "bytes behind the body": framed(WHOLE + b"abc"),
    "negative length": struct.pack(">i", -1),
    "the most negative length": struct.pack(">i", -(2**31)),
    "a huge length": struct.pack(">i", 2**31 - 1) + b"x" * 10,
    "an unknown api": framed(header(999, 0)),
    "a negative api": framed(header(-1, 0)),
    "an api for brokers": framed(header(4, 7)),
    "metadata of a version to come": framed(header(3, 99)),
    "metadata of a negative version": framed(header(3, -1)),
    "produce v2": framed(header(0, 2)),
    "fetch v3": framed(header(1, 3)),
    "an array longer than the frame": framed(header(3, 1) + struct.pack(">i", 1_000_000)),
    "an array with a negative length": framed(header(3, 1) + struct.pack(">i", -5)),
    "a name longer than the frame": framed(header(3, 1) + struct.pack(">ih", 1, 30_000)),
    "a name that is not UTF-8": framed(header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "a null client id": framed(header(3, 1, b"\xff\xff") + struct.pack(">i", 0)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(100),
    "zeros": bytes(64),
}


@pytest.mark.parametrize("what", FRAMES)
def test_what_becomes_of_the_connection(each_node: Both, what: str) -> None:
    kafka, ours = reactions(each_node, FRAMES[what])
    if what in STRICT_FRAMES:
        assert (kafka, ours) == (ANSWERED, CLOSED)
    else:
        assert ours == kafka


@pytest.mark.parametrize("seed", range(20))
def test_noise(each_node: Both, seed: int) -> None:
    """Whole frames of random bytes."""
    noise = random.Random(seed).randbytes(40)
    kafka, ours = reactions(each_node, framed(noise))
    assert ours == kafka


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_a_version_to_come(each_node: Both, version: int) -> None:
    kafka, ours = (
        answer(address, framed(header(18, version) + b"\0")) for address in addresses(each_node)
    )
    assert (kafka is None) == (ours is None)
    if kafka is not None and ours is not None:
        assert ours[:6] == kafka[:6]  # correlation id and error
        assert struct.unpack(">ihhh", ours[6:16]) == struct.unpack(">ihhh", kafka[6:16])


def test_answers_keep_the_order_of_the_requests(both: Both) -> None:
    name = both.create("pipelined")
    frames = [
        framed(encode_request(ApiVersionsRequest(), 0, 1, "raw")),
        framed(encode_request(produce(name, batch(b"x")), 9, 2, "raw")),
        framed(encode_request(MetadataRequest(topics=()), 9, 3, "raw")),
        framed(encode_request(produce(name, batch(b"y"), acks=0), 9, 4, "raw")),
        framed(encode_request(produce(name, batch(b"z"), acks=1), 9, 5, "raw")),
    ]
    for address in addresses(both):
        with RawWire(address) as wire:
            wire.send(b"".join(frames))
            found = [wire.frame() for _ in range(4)]
            assert [frame[:4] for frame in found if frame] == [
                struct.pack(">i", number) for number in (1, 2, 3, 5)
            ]


def addresses(both: Both) -> tuple[str, str]:
    return both.kafka.addresses["broker"], both.ours.addresses[both.node]


def reactions(both: Both, data: bytes) -> tuple[str, str]:
    kafka, ours = (reaction(address, data) for address in addresses(both))
    return kafka, ours


def reaction(address: str, data: bytes) -> str:
    return CLOSED if answer(address, data) is None else ANSWERED


def answer(address: str, data: bytes) -> bytes | None:
    """The next frame, None when the connection is closed; silence is a failure."""
    with RawWire(address) as wire:
        wire.send(data)
        return wire.frame()
