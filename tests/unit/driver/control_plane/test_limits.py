"""Every limit that is not a setting, at its boundary: the limit is accepted, one more is not.

The limits of a connection (waiting answers and bytes, connections, frames) are tested in
``transport`` and ``wire``, because they need sockets or buffers.
"""

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.cli.limits import LIMITS
from sparklog.commit_log import documents as journal_module
from sparklog.driver.control_plane.handlers import create_topics
from sparklog.driver.control_plane.journal import CommitHeader, Journal, JournalError
from sparklog.errors import DecodeError, ErrorCode, KafkaError, StorageError
from sparklog.metadata import encode_records
from sparklog.metadata.topic_names import check_topic_name
from sparklog.slices import run_through
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import Compression
from sparklog.wire.protocol.codec import decode_request, decode_request_header, encode_request
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.protocol.primitives import write_string
from sparklog.wire.protocol.private import AssignBrokersRequest
from sparklog.wire.records.compression import compress, decompress
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest

#: By the name in the list: a function that tells whether this many are accepted.
PROBES: dict[str, Callable[[int], bool]] = {}
ELSEWHERE = {
    # tests/unit/executors: groups/test_joining and test_membership, coordinator/test_many_offsets
    "members of one group that were given an id and have not joined with it yet",
    "how much smaller the record of a group stays than message.max.bytes",
    "committed offsets that are removed at once",
    "bytes of an unfinished request that are free",
    "bytes of answers in memory that all clients have not taken",
    "an answer, at a client of this library",
    "answers that one connection may wait for",
    "bytes of answers that one client has not taken",
    "connections over max.connections that may prove to be a member's",
    "the wait that one Fetch may ask for",
    "batches that wait for sparklog.validate.batches=records at a broker",
    "lookups by timestamp that decode at once",
    "lookups by timestamp that run or wait at a broker",
    "lookups by timestamp at once in a batch of more than 16 MiB, decompressed",
    "lookups by timestamp in the bucket at once",
    "batches whose headers mislead one lookup by timestamp, decompressed",
    "partitions of a cluster",
    "items of a request that are decoded, handled and answered at once",
    "long requests of clients that a node works on by turns",
    "one commit or checkpoint of the journal",
}


def probe(name: str) -> Callable[[Callable[[int], bool]], Callable[[int], bool]]:
    def add(check: Callable[[int], bool]) -> Callable[[int], bool]:
        PROBES[name] = check
        return check

    return add


def raises(error: type[Exception], action: Callable[[], object]) -> bool:
    try:
        action()
    except error:
        return True
    return False


@probe("items in all arrays of one request")
def _items(count: int) -> bool:
    request = DeleteTopicsRequest(topic_names=("t",) * count)
    frame = encode_request(request, 5, 1, None)
    header, offset = decode_request_header(frame)
    return not raises(DecodeError, lambda: decode_request(header, frame[offset:]))


@probe("a string of the older message formats")
def _string(size: int) -> bool:
    return not raises(ValueError, lambda: write_string(bytearray(), "x" * size))


@probe("one batch, decompressed")
def _batch(size: int) -> bool:
    packed = compress(Compression.ZSTD, bytes(size))
    return not raises(DecodeError, lambda: decompress(Compression.ZSTD, packed))


@probe("the name of a topic")
def _name(length: int) -> bool:
    return not raises(KafkaError, lambda: check_topic_name("t" * length))


@probe("partitions of a topic")
def _partitions(count: int) -> bool:
    under_test = ControllerUnderTest()
    under_test.register(1)
    topic = CreatableTopic(name="t", num_partitions=count, replication_factor=1)
    response = under_test.handle(CreateTopicsRequest(topics=(topic,))).response
    assert isinstance(response, CreateTopicsResponse)
    code = response.topics[0].error_code
    assert code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    return code == ErrorCode.NONE


@probe("partitions that one CreateTopics request may create")
def _created_partitions(count: int) -> bool:
    topics = tuple(
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in (("a", 9_000), ("b", count - 9_000))
    )
    handle = create_topics.handler(lambda event: CreateTopicsResponse()).handle
    request = CreateTopicsRequest(topics=topics)
    context: Any = None
    return not raises(KafkaError, lambda: run_through(handle(context, request)))


@probe("brokers of a cluster")
def _brokers(count: int) -> bool:
    request = AssignBrokersRequest(count=count)
    return not raises(KafkaError, lambda: ControllerUnderTest().handle(request))


@pytest.mark.parametrize("name", PROBES)
def test_the_limit_is_taken_and_one_more_is_not(name: str) -> None:
    (value,) = [limit.value for limit in LIMITS if limit.name == name]
    assert (PROBES[name](value), PROBES[name](value + 1)) == (True, False)


def test_no_probe_is_without_a_limit() -> None:
    assert PROBES.keys() | ELSEWHERE == {limit.name for limit in LIMITS}


def test_the_journal_writes_nothing_that_it_would_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = MemoryBackend()
    journal = Journal(backend)
    head = CommitHeader(version=1, controller_epoch=1, nonce="n", time_ms=0)
    journal.commit(head, encode_records(()))
    size = backend.size("00000000000000000001.json")
    monkeypatch.setattr(journal_module, "FILE_BYTES_MAX", size)
    assert journal.load().version == 1
    monkeypatch.setattr(journal_module, "FILE_BYTES_MAX", size - 1)
    with pytest.raises(JournalError, match=f"it is larger than {size - 1} bytes"):
        journal.load()
    second = CommitHeader(version=2, controller_epoch=1, nonce="n", time_ms=0)
    with pytest.raises(StorageError, match=f"exceeds the journal's limit of {size - 1}"):
        journal.commit(second, encode_records(()))
    assert not backend.exists("00000000000000000002.json")
