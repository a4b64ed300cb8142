"""What no client should send, sent to real nodes.

Each is answered with Kafka's code, or costs the connection that it came on.  Around every test: the
processes are the same, a connection that was open before still works, and everything that was ever
acknowledged is still there.
"""

import random
import struct
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import psutil
import pytest
from crc32c import crc32c

from sparklog.errors import ErrorCode
from sparklog.types import OffsetSpec
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.messages.produce import ProduceRequest, ProduceResponse
from sparklog.wire.protocol.private import StopNodeRequest
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.batches import batch
from tests.support.raw_wire import PRODUCE_VERSION, RawWire, framed, produce_request
from tests.support.served import ServedCluster

pytestmark = pytest.mark.process

KEPT, LIMITED, RUINED = "kept", "limited", "ruined"
MESSAGE_BYTES_MAX = 2000
MIB = 1024 * 1024
NODES = ("control plane", "broker")


class Witness:
    """Sees that nothing acknowledged is lost and nobody dies, whatever others send."""

    def __init__(self, served: ServedCluster) -> None:
        self.addresses = {"control plane": served.bootstrap}
        self.topic_ids: dict[str, UUID] = {}
        self._processes = {
            process.pid: process.create_time()
            for process in psutil.Process(served.process.pid).children(recursive=True)
        }
        self._pid = served.process.pid
        self._acknowledged: list[bytes] = []
        self._create_topics()
        self.wire = RawWire(self.addresses["broker"])
        self.acknowledge_one()

    def acknowledge_one(self) -> None:
        value = b"record %d" % len(self._acknowledged)
        answer = self.wire.produce(KEPT, batch(value), acks=-1)
        assert (answer.error_code, answer.base_offset) == (0, len(self._acknowledged))
        self._acknowledged.append(value)

    def note_acknowledged(self, value: bytes) -> None:
        self._acknowledged.append(value)

    def check(self) -> None:
        assert self.wire.values(KEPT) == self._acknowledged
        alive = psutil.Process(self._pid).children(recursive=True)
        assert {process.pid: process.create_time() for process in alive} == self._processes
        for address in self.addresses.values():
            with RawWire(address) as newcomer:
                assert newcomer.answers_a_ping()
        self.acknowledge_one()

    def _create_topics(self) -> None:
        limit = CreatableTopicConfig(name="max.message.bytes", value=str(MESSAGE_BYTES_MAX))
        topics = (
            CreatableTopic(name=KEPT, num_partitions=1, replication_factor=1),
            CreatableTopic(name=RUINED, num_partitions=1, replication_factor=1),
            CreatableTopic(name=LIMITED, num_partitions=1, replication_factor=1, configs=(limit,)),
        )
        with RawWire(self.addresses["control plane"]) as wire:
            created = wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
            assert [topic.error_code for topic in created.topics] == [0, 0, 0]
            self.topic_ids = {topic.name: topic.topic_id for topic in created.topics}
            [broker] = [
                node for node in wire.ask(MetadataRequest(topics=()), 9).brokers if node.node_id
            ]
        self.addresses["broker"] = f"{broker.host}:{broker.port}"
        with RawWire(self.addresses["broker"]) as wire:
            while any(wire.fetch(topic)[0] for topic in (KEPT, LIMITED, RUINED)):
                time.sleep(0.01)  # until the broker has heard that it leads them


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    served = ServedCluster(tmp_path_factory.mktemp("bad-input") / "data", brokers=1)
    try:
        assert served.bootstrap, served.errors
        yield served
        assert served.stop() == 0
        for log in (served.data_dir / "logs").iterdir():
            assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        served.kill()


@pytest.fixture(scope="module")
def the_witness(served: ServedCluster) -> Iterator[Witness]:
    witness = Witness(served)
    yield witness
    witness.wire.reset()


@pytest.fixture(autouse=True)
def witness(the_witness: Witness) -> Iterator[Witness]:
    yield the_witness
    the_witness.check()


@pytest.fixture
def wire(witness: Witness) -> Iterator[RawWire]:
    with RawWire(witness.addresses["broker"]) as connection:
        yield connection


def header(api_key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1) + (b"\0" if flexible else b"")


METADATA = MetadataRequest.API_KEY
NO_FRAMES: dict[str, bytes] = {
    "the largest length": struct.pack(">i", 2**31 - 1),
    "more than socket.request.max.bytes": struct.pack(">i", 100 * MIB + 1),
    "a negative length": struct.pack(">i", -1),
    "an empty frame": struct.pack(">i", 0),
    "half a header": framed(b"\0\3\0"),
    "a header whose client id lies": framed(struct.pack(">hhih", METADATA, 1, 7, 9999)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "an unknown api key": framed(header(9999, 0) + b"body"),
    "an unknown private api key": framed(header(29999, 0, flexible=True) + b"\0"),
    "an unknown version": framed(header(METADATA, 99, flexible=True) + b"\0"),
    "a negative version": framed(header(METADATA, -1)),
    "an array that lies": framed(header(METADATA, 1) + struct.pack(">i", 2**31 - 1)),
    "an array of negative length": framed(header(METADATA, 1) + struct.pack(">i", -2)),
    "a compact array that lies": framed(
        header(METADATA, 9, flexible=True) + b"\xff\xff\xff\xff\x0f"
    ),
    "a varint without end": framed(header(METADATA, 9, flexible=True) + b"\xff" * 40),
    "a string that lies": framed(header(METADATA, 1) + struct.pack(">ih", 1, 32767) + b"t"),
    "a string that is not UTF-8": framed(
        header(METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"
    ),
    "bytes behind the end": framed(header(METADATA, 1) + struct.pack(">i", 0) + b"more"),
    "no body": framed(header(METADATA, 1)),
    **{
        f"{size} random bytes": framed(random.Random(size).randbytes(size))
        for size in (8, 14, 60, 500, 100_000)
    },
}


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", NO_FRAMES)
def test_what_cannot_be_answered_costs_the_connection(
    witness: Witness, node: str, name: str
) -> None:
    with RawWire(witness.addresses[node]) as wire:
        assert wire.answers_a_ping()
        wire.send(NO_FRAMES[name])
        assert wire.is_closed_by_the_node()


@pytest.mark.parametrize("node", NODES)
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    witness: Witness, node: str
) -> None:
    with RawWire(witness.addresses[node]) as wire:
        wire.send(framed(header(ApiVersionsRequest.API_KEY, 77, flexible=True) + b"anything"))
        answer = wire.frame()
        assert answer is not None
        assert struct.unpack_from(">ih", answer) == (7, ErrorCode.UNSUPPORTED_VERSION)
        assert wire.answers_a_ping()


@pytest.mark.parametrize("node", NODES)
def test_members_messages_are_refused_to_strangers(witness: Witness, node: str) -> None:
    with RawWire(witness.addresses[node]) as wire:
        answer = wire.ask(StopNodeRequest(reason="because"), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_request_that_breaks_off_leaves_nothing_behind(witness: Witness) -> None:
    request = produce_request(KEPT, batch(b"never whole" * 1000), acks=-1)
    whole = framed(encode_request(request, PRODUCE_VERSION, 1, "raw"))
    for size in (1, 4, 20, len(whole) // 2, len(whole) - 1):
        wire = RawWire(witness.addresses["broker"])
        wire.send(whole[:size])
        wire.reset()


def test_lengths_that_lie_cost_no_memory(witness: Witness, served: ServedCluster) -> None:
    [pid] = served.broker_pids()
    before = psutil.Process(pid).memory_info().rss
    wires = [RawWire(witness.addresses["broker"]) for _ in range(100)]
    for wire in wires:
        wire.send(struct.pack(">i", 100 * MIB) + b"and no more")
    witness.acknowledge_one()
    assert psutil.Process(pid).memory_info().rss - before < 32 * MIB
    for wire in wires:
        wire.reset()


def test_damaged_requests_are_answered_or_cost_the_connection(witness: Witness) -> None:
    """One to four bytes of good requests changed; some of them stay good."""
    chance = random.Random(20)
    offsets = ListOffsetsTopic(name=KEPT, partitions=(ListOffsetsPartition(timestamp=-1),))
    resource = DescribeConfigsResource(resource_type=2, resource_name=KEPT)
    fetched = FetchTopic(topic=KEPT, partitions=(FetchPartition(partition_max_bytes=1000),))
    requests: tuple[tuple[Request, int], ...] = (
        (ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3),
        (MetadataRequest(topics=(MetadataRequestTopic(name=KEPT),)), 9),
        (ListOffsetsRequest(topics=(offsets,)), 6),
        (DescribeConfigsRequest(resources=(resource,)), 4),
        (FetchRequest(topics=(fetched,)), 12),
        (produce_request(RUINED, batch(b"damaged")), PRODUCE_VERSION),
        (CreateTopicsRequest(topics=(CreatableTopic(name="no/name", num_partitions=1),)), 7),
    )
    for node in NODES:
        wire = RawWire(witness.addresses[node])
        for _ in range(400):
            request, version = chance.choice(requests)
            frame = bytearray(encode_request(request, version, 1, "raw"))
            for _ in range(chance.randint(1, 4)):
                position = chance.randrange(8, len(frame))
                frame[position] = chance.randrange(256)
            wire.send(framed(bytes(frame)))
            if not wire.answers_a_ping():
                wire.reset()
                wire = RawWire(witness.addresses[node])
        wire.reset()


def sealed(position: int, form: str, value: int) -> bytes:
    """A good batch with one field of its header changed, and the CRC that fits."""
    data = bytearray(batch(b"a", b"b"))
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def flipped(position: int) -> bytes:
    data = bytearray(batch(b"a", b"b"))
    data[position] ^= 1
    return bytes(data)


BAD_BATCHES: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "a wrong CRC": (lambda: flipped(17), ErrorCode.CORRUPT_MESSAGE),
    "a record that was changed": (lambda: flipped(-1), ErrorCode.CORRUPT_MESSAGE),
    "a header that was changed": (lambda: flipped(30), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (lambda: sealed(16, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: sealed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: sealed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "a negative magic": (lambda: sealed(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    "a length over the end": (lambda: sealed(8, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "a negative length": (lambda: sealed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "a length that is too small": (lambda: sealed(8, ">i", 20), ErrorCode.CORRUPT_MESSAGE),
    "a batch that is cut off": (lambda: batch(b"a", b"b")[:-3], ErrorCode.INVALID_RECORD),
    "noise": (lambda: random.Random(1).randbytes(500), ErrorCode.CORRUPT_MESSAGE),
    "no batch": (lambda: None, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "a count of records that lies": (lambda: sealed(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "no records": (lambda: sealed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "an unknown codec": (lambda: sealed(21, ">h", 6), ErrorCode.INVALID_RECORD),
    "a control batch": (lambda: batch(b"a", control=True), ErrorCode.INVALID_RECORD),
    "a record over max.message.bytes": (
        lambda: batch(b"x" * MESSAGE_BYTES_MAX),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a timestamp of next year": (
        lambda: encode_batch([Record(value=b"a", timestamp=1 << 45)]),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_refused_and_not_stored(wire: RawWire, name: str) -> None:
    make, code = BAD_BATCHES[name]
    answer = wire.produce(LIMITED, make())
    assert (answer.error_code, answer.base_offset) == (code, -1), answer.error_message
    assert answer.error_message
    assert wire.fetch(LIMITED) == (0, b"")


def test_bad_batches_without_acknowledgement_cost_the_connection(witness: Witness) -> None:
    request = produce_request(LIMITED, flipped(17), acks=0)
    with RawWire(witness.addresses["broker"]) as wire:
        wire.send(framed(encode_request(request, PRODUCE_VERSION, 1, "raw")))
        assert wire.is_closed_by_the_node()


def test_a_bad_batch_beside_a_good_one_is_refused_alone(wire: RawWire, witness: Witness) -> None:
    good = produce_request(KEPT, batch(b"good")).topic_data
    bad = produce_request(LIMITED, flipped(17)).topic_data
    both = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=(*bad, *good))
    answer = wire.ask(both, PRODUCE_VERSION)
    codes = {t.name: t.partition_responses[0].error_code for t in answer.responses}
    assert codes == {LIMITED: ErrorCode.CORRUPT_MESSAGE, KEPT: 0}
    witness.note_acknowledged(b"good")


def test_a_bad_batch_between_pipelined_good_ones_is_refused_alone(
    wire: RawWire, witness: Witness
) -> None:
    sent = (batch(b"one"), flipped(17), batch(b"two"), batch(b"x")[:-1], batch(b"three"))
    requests = [produce_request(KEPT, records, acks=-1) for records in sent]
    wire.send(
        b"".join(
            framed(encode_request(request, PRODUCE_VERSION, number, "raw"))
            for number, request in enumerate(requests)
        )
    )
    codes = []
    for number in range(len(sent)):
        answer = wire.frame()
        assert answer is not None
        correlation_id, response = decode_response(ProduceResponse, PRODUCE_VERSION, answer)
        assert correlation_id == number
        codes.append(response.responses[0].partition_responses[0].error_code)
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0, ErrorCode.INVALID_RECORD, 0]
    for value in (b"one", b"two", b"three"):
        witness.note_acknowledged(value)


def test_producing_where_nothing_is(wire: RawWire, witness: Witness) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("nowhere", batch(b"a")).error_code == unknown
    assert wire.produce("", batch(b"a")).error_code == unknown
    assert wire.produce("../" * 50, batch(b"a")).error_code == unknown
    assert wire.produce(KEPT, batch(b"a"), partition=1).error_code == unknown
    assert wire.produce(KEPT, batch(b"a"), partition=-1).error_code == unknown
    assert wire.produce(UUID(int=9), batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    wrong_acks = wire.produce(KEPT, batch(b"a"), acks=2).error_code
    assert wrong_acks == ErrorCode.INVALID_REQUIRED_ACKS
    # A batch that is not transactional is in no transaction, whatever its request names.
    assert wire.produce(KEPT, batch(b"plain"), transactional_id="x").error_code == 0
    witness.note_acknowledged(b"plain")


def test_producing_in_a_transaction_that_is_none(wire: RawWire) -> None:
    stray = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    for transactional_id, code in (
        (None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("", ErrorCode.INVALID_REQUEST),
        ("x" * 32_768, ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.NOT_ENOUGH_REPLICAS),  # there is no coordinator yet
    ):
        refused = wire.produce(KEPT, stray, acks=-1, transactional_id=transactional_id)
        assert (refused.error_code, refused.base_offset) == (code, -1)


def test_fetching_what_is_not_there(wire: RawWire, witness: Witness) -> None:
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    for offset in (-1, -2, 10_000, 2**63 - 1, -(2**63)):
        assert wire.fetch(KEPT, offset) == out_of_range
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")
    assert wire.fetch("nowhere") == wire.fetch("") == wire.fetch(KEPT, partition=1) == unknown
    assert wire.fetch(KEPT, partition=-1) == unknown
    assert wire.fetch(UUID(int=9)) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")
    assert wire.fetch(witness.topic_ids[KEPT])[0] == 0


def test_fetching_with_senseless_limits(wire: RawWire) -> None:
    for limit in (-(2**31), -1, 0, 1, 2**31 - 1):
        code, records = wire.fetch(
            KEPT, partition_max_bytes=limit, max_bytes=limit, min_bytes=limit
        )
        assert code == 0
        assert limit <= 0 or records  # at least one batch, however small the limit


def test_fetching_as_somebody_else(wire: RawWire) -> None:
    refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, b"")
    assert wire.fetch(KEPT, replica_id=1) == refused
    no_session = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, b"")
    assert wire.fetch(KEPT, session_id=77, session_epoch=3) == no_session


def test_offsets_that_cannot_be_listed_or_deleted(wire: RawWire) -> None:
    def listed(topic: str, timestamp: int, partition: int = 0) -> tuple[int, int]:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),))
        [answer] = wire.ask(request, 7).topics
        return answer.partitions[0].error_code, answer.partitions[0].offset

    def deleted(topic: str, offset: int) -> int:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        [answer] = wire.ask(
            DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(wanted,)),)), 2
        ).topics
        code: int = answer.partitions[0].error_code
        return code

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed("nowhere", OffsetSpec.LATEST) == (unknown, -1)
    assert listed(KEPT, OffsetSpec.LATEST, partition=5) == (unknown, -1)
    assert listed(KEPT, -99) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert listed(KEPT, 2**63 - 1) == (0, -1)
    assert deleted("nowhere", 1) == unknown
    for offset in (10_000, -2, 2**63 - 1):
        assert deleted(KEPT, offset) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert listed(KEPT, OffsetSpec.EARLIEST) == (0, 0)


@pytest.mark.parametrize("node", NODES)
def test_topics_that_cannot_be(witness: Witness, node: str) -> None:
    wanted = {
        "a" * 250: (1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        "..": (1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        "../../etc": (1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        "nul\0": (1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        "": (1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        "many": (2**31 - 1, ErrorCode.INVALID_PARTITIONS),
        "none": (-7, ErrorCode.INVALID_PARTITIONS),
    }
    topics = tuple(
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, (count, _) in wanted.items()
    )
    with RawWire(witness.addresses[node]) as wire:
        answer = wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {name: code for name, (_, code) in wanted.items()}
        listed = wire.ask(MetadataRequest(topics=None), 9).topics
        assert {topic.name for topic in listed} & wanted.keys() == set()
        absent = wire.ask(DeleteTopicsRequest(topic_names=("nowhere",), timeout_ms=60_000), 5)
        [result] = absent.responses
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
