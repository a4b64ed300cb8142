"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch and InitProducerId, as Kafka answers them."""

import time
from typing import Any

import pytest

from sparklog.types import Compression
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.both import TIMEOUT_MS, Both, batch, list_offsets
from tests.peers.deviations import BELOW_ALL_EPOCHS, DELETED_RECORD

LIST_VERSIONS = range(ListOffsetsRequest.MIN_VERSION, ListOffsetsRequest.MAX_VERSION + 1)
DELETE_VERSIONS = range(DeleteRecordsRequest.MAX_VERSION + 1)
EPOCH_VERSIONS = range(
    OffsetForLeaderEpochRequest.MIN_VERSION, OffsetForLeaderEpochRequest.MAX_VERSION + 1
)
PRODUCER_VERSIONS = range(6)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
FIRST = 1_700_000_000_000


def at(*timestamps: int, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(value=b"%d" % when, timestamp=when) for when in timestamps]
    return encode_batch(records, compression=compression)


@pytest.fixture(scope="module")
def timed(both: Both) -> str:
    """Timestamps that go back and forth, over several segments."""
    name = both.create("timed", 2, segment_bytes="1048576", index_interval_bytes="0")
    both.fill(
        name,
        at(FIRST, FIRST + 10, FIRST + 20),
        at(FIRST + 50, FIRST + 40, FIRST + 30),
        at(FIRST + 25),
        at(FIRST + 70, FIRST + 60, FIRST + 80, compression=Compression.GZIP),
        at(FIRST + 80),
        at(FIRST + 5, FIRST + 75),
    )
    return name


@pytest.mark.parametrize(
    "timestamp",
    [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD, -7, -(2**63)],
)
def test_special_timestamps(both: Both, timed: str, timestamp: int) -> None:
    both.same(list_offsets(timed, timestamp), LIST_VERSIONS)
    both.same(list_offsets(timed, timestamp, 1), LIST_VERSIONS)  # which is empty


def test_by_time(both: Both, timed: str) -> None:
    for timestamp in (0, *range(FIRST - 5, FIRST + 90, 5), 2**63 - 1):
        both.same(list_offsets(timed, timestamp), (1, 4, 7, 10))
    both.same(list_offsets(timed, FIRST, 1), (1, 10))


@pytest.mark.parametrize("isolation", [0, 1])
def test_isolation(both: Both, timed: str, isolation: int) -> None:
    for timestamp in (LATEST, EARLIEST, FIRST + 80):
        both.same(list_offsets(timed, timestamp, isolation_level=isolation), (2, 10))


def test_offsets_of_what_is_not_there(both: Both, timed: str) -> None:
    for partition in (2, -1):
        both.same(list_offsets(timed, LATEST, partition), LIST_VERSIONS)
    for name in ("not-there", "", "bad name"):
        both.same(list_offsets(name, LATEST), LIST_VERSIONS)


@pytest.mark.parametrize("epoch", [-1, 0, 1, 99])
def test_offsets_with_a_leader_epoch(both: Both, timed: str, epoch: int) -> None:
    for timestamp in (LATEST, EARLIEST, FIRST):
        both.same(list_offsets(timed, timestamp, epoch=epoch), (4, 10))


def test_the_same_partition_twice(both: Both, timed: str) -> None:
    [topic] = list_offsets(timed, LATEST).topics
    both.same(ListOffsetsRequest(replica_id=-1, topics=(topic, topic)), (1, 10))


def test_as_a_debugger(both: Both, timed: str) -> None:
    for timestamp in (LATEST, EARLIEST, FIRST):
        [topic] = list_offsets(timed, timestamp).topics
        both.same(ListOffsetsRequest(replica_id=-2, topics=(topic,)), (1, 10))


def test_stamped_by_the_broker(both: Both) -> None:
    name = both.create("timed-by-the-broker", message_timestamp_type="LogAppendTime")
    for records in (at(FIRST, FIRST + 10), at(FIRST + 5)):
        both.fill(name, records)
        stamped_until = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == stamped_until:
            time.sleep(0.001)  # the next one gets a later time on both sides
    times = (r".*\.timestamp",)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, FIRST, 2**62):
        both.same(list_offsets(name, timestamp), (1, 10), where=times)


def test_larger_than_an_index_entry(both: Both) -> None:
    """Enough for several entries in the indexes, and timestamps that meet again and again."""
    name = both.create("timed-at-length", segment_bytes="1048576")
    both.fill(
        name,
        *(
            batch(*[b"x" * 1000] * 20, timestamp=FIRST + 7 * (number % 50) + number)
            for number in range(120)
        ),
    )
    for timestamp in (MAX_TIMESTAMP, LATEST, EARLIEST, *range(FIRST - 5, FIRST + 510, 13)):
        both.same(list_offsets(name, timestamp), (1, 10))


# -- deleting records


def deleting(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = (DeleteRecordsTopic(name=topic, partitions=(wanted,)),)
    return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def test_delete_records(both: Both) -> None:
    for version in DELETE_VERSIONS:
        name = both.create(f"shortened-{version}")
        both.fill(name, at(FIRST, FIRST + 1, FIRST + 2), at(FIRST + 3, FIRST + 4))
        for offset in (0, 2, 1, 4, 6, -2, -1, -1):
            both.same(deleting(name, offset), version)
            both.same(list_offsets(name, EARLIEST), 10)
            both.same(list_offsets(name, FIRST), 10)
            if offset != -1:
                both.same(list_offsets(name, MAX_TIMESTAMP), 10)
        both.same(list_offsets(name, MAX_TIMESTAMP), 10, DELETED_RECORD)


def test_delete_records_of_what_is_not_there(both: Both, timed: str) -> None:
    for name, partition in ((timed, 2), (timed, -1), ("not-there", 0), ("", 0)):
        both.same(deleting(name, 0, partition), DELETE_VERSIONS)


# -- leader epochs


def ending(
    topic: str, epoch: int, partition: int = 0, current: int = -1, **more: Any
) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = (OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),)
    return OffsetForLeaderEpochRequest(**{"replica_id": -1, "topics": topics, **more})


def test_where_epochs_end(both: Both, timed: str) -> None:
    both.same(ending(timed, -2), EPOCH_VERSIONS, BELOW_ALL_EPOCHS)
    for epoch in (-1, 0, 1, 99):
        for current in (-1, 0, 1, 99):
            for partition in (0, 1):
                both.same(ending(timed, epoch, partition, current), EPOCH_VERSIONS)


def test_where_epochs_end_in_what_is_not_there(both: Both, timed: str) -> None:
    for name, partition in ((timed, 2), (timed, -1), ("not-there", 0), ("", 0)):
        both.same(ending(name, 0, partition), EPOCH_VERSIONS)


# -- producer ids

PRODUCER_ID = (r"producer_id",)


@pytest.fixture(scope="module", autouse=True)
def kafka_has_a_block_of_ids(both: Both) -> None:
    """It answers COORDINATOR_LOAD_IN_PROGRESS until it has one."""
    request = InitProducerIdRequest(transaction_timeout_ms=1000)
    deadline = time.monotonic() + 60
    while both.kafka.exchange(request, 4).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("timeout_ms", [0, -1, 60_000, 2**31 - 1])
def test_a_producer_id(each_node: Both, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transaction_timeout_ms=timeout_ms)
    each_node.same(request, PRODUCER_VERSIONS, where=PRODUCER_ID)


@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(-1, 0), (5, -1), (5, 3), (-1, -1), (-2, 0), (5, 32767)]
)
def test_another_epoch_of_a_producer_id(each_node: Both, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(
        transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    each_node.same(request, (3, 4, 5), where=PRODUCER_ID)


def test_an_empty_transactional_id(each_node: Both) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    each_node.same(request, PRODUCER_VERSIONS)
