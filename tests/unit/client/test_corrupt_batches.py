"""Unreadable batches in a consumer: an error that names them, or skipped and counted."""

import struct
from collections.abc import Awaitable, Callable

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import Consumer, ConsumerOptions
from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BATCH_OVERHEAD, pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.bombs import BOMB_RECORDS, bomb, peak_bytes
from tests.unit.client.small_cluster import SmallCluster, run_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FETCH = 1
SKIP = ConsumerOptions(skip_undecodable=True, max_wait_ms=20)
STRICT = ConsumerOptions(max_wait_ms=20)


def good(first: int, count: int = 2) -> bytes:
    records = [Record(value=b"%d" % (first + n)) for n in range(count)]
    return encode_batch(records, base_offset=first)


def flipped(first: int, count: int = 2) -> bytes:
    """A batch with a wrong CRC."""
    batch = bytearray(good(first, count))
    batch[-2] ^= 1
    return bytes(batch)


def around(first: int, section: bytes, codec: int = 0, count: int = 2) -> bytes:
    """A batch with a right CRC around any bytes."""
    return pack_batch(
        section, attributes=codec, record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=0, base_offset=first,
    )  # fmt: skip


def garbage(first: int) -> bytes:
    return around(first, b"\xee" * 30)


def broken_zstd(first: int) -> bytes:
    return around(first, b"\x28\xb5\x2f\xfd" + b"\x55" * 20, codec=4)


def second_is_garbage(first: int) -> bytes:
    return around(first, good(first, 1)[BATCH_OVERHEAD:] + b"\x0e" + b"\xff" * 7)


def foreign_offset(first: int) -> bytes:
    return around(first, encode_batch([Record(value=b"x", offset=90)])[BATCH_OVERHEAD:], count=1)


def field(batch: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


def run(
    *batches: bytes | None, test: Callable[[SmallCluster, ClusterClient], Awaitable[None]]
) -> None:
    """``test`` with batches of two records at offsets 0, 2, 4, ... of t-0; None: a good one."""

    async def main(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 1))
        log = cluster.logs[T0]
        for index, batch in enumerate(batches):
            first = 2 * index
            log.batches.append((first, first + 2, good(first) if batch is None else batch))
            log.end = first + 2
        await test(cluster, client)

    run_cluster(main, brokers=1)


async def read_all(consumer: Consumer, tp: TopicPartition, end: int) -> list[int]:
    found: list[int] = []
    while consumer.position(tp) < end:
        found += [record.offset for record in await consumer.poll(10)]
    return found


async def poll_for_ever(consumer: Consumer) -> None:
    while True:
        assert await consumer.poll(1) == []


BAD = {
    "a wrong CRC": (flipped(2), 2, "CRC"),
    "garbage": (garbage(2), 2, "record"),
    "broken zstd": (broken_zstd(2), 2, "malformed zstd"),
    "garbage behind a record": (second_is_garbage(2), 3, "varint"),
    "an unknown codec": (around(2, b"1234567", codec=7), 2, "codec"),
    "more records than bytes": (around(2, b"1234567", count=2), 2, "says 2 records"),
    "an offset outside the batch": (foreign_offset(2), 2, "says offset 92"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_names_partition_offsets_and_a_way_on(name: str) -> None:
    batch, first, why = BAD[name]

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0])
            read = [record.offset for record in await consumer.poll(10)]
            assert read == list(range(first))
            for _ in range(2):
                with pytest.raises(CorruptBatchError, match=why) as caught:
                    await consumer.poll(10)
            last = 2 if "outside" in name else 3
            assert (caught.value.topic_partition, caught.value.first_offset) == ("t-0", first)
            assert caught.value.last_offset == last
            assert f"offsets {first} to {last}" in str(caught.value)
            assert "--skip-undecodable" in str(caught.value)
            assert consumer.position(T0) == first
            await consumer.seek(T0, 4)
            assert await read_all(consumer, T0, 6) == [4, 5]

    run(None, batch, None, test=test)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_left_out_counted_and_told(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    batch, first, why = BAD[name]

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, SKIP) as consumer:
            await consumer.assign([T0])
            assert await read_all(consumer, T0, 6) == [*range(first), 4, 5]
            last = 2 if "outside" in name else 3
            assert (consumer.skipped.batches, consumer.skipped.offsets) == (1, last - first + 1)

    run(None, batch, None, test=test)
    assert "t-0: the records at offsets" in caplog.text
    assert why in caplog.text


LOST = {
    "a length beyond the log": field(good(2), 8, ">i", 2**30),
    "an impossible length": field(good(2), 8, ">i", 3),
    "a magic that does not exist": field(good(2), 16, ">b", 99),
    "an end before its begin": field(good(2), 23, ">i", -7),
    "an end behind the log": field(good(2), 23, ">i", 2**20),
}


@pytest.mark.parametrize("name", LOST)
def test_a_header_that_leads_nowhere_is_an_error_and_no_endless_loop(name: str) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0])
            assert [record.offset for record in await consumer.poll(10)] == [0, 1]
            with pytest.raises(CorruptBatchError, match="t-0: the records at offsets 2"):
                await consumer.poll(10)

    run(None, LOST[name], test=test)


def test_a_damaged_batch_that_claims_its_neighbours_offsets_does_not_take_them_along() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, SKIP) as consumer:
            await consumer.assign([T0])
            assert await read_all(consumer, T0, 8) == [0, 1, 4, 5, 6, 7]

    run(None, field(good(2), 23, ">i", 4), None, None, test=test)


@pytest.mark.parametrize("name", LOST)
def test_behind_a_header_that_leads_nowhere_reading_goes_on(name: str) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, SKIP) as consumer:
            await consumer.assign({T0: 2})
            assert await read_all(consumer, T0, 8) == [4, 5, 6, 7]
            assert (consumer.skipped.batches, consumer.skipped.offsets) == (1, 2)

    run(None, LOST[name], None, None, test=test)


def test_damage_at_the_end_of_the_log_ends_there() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, SKIP) as consumer:
            await consumer.assign([T0])
            assert await read_all(consumer, T0, 4) == [0, 1]
            assert consumer.skipped.offsets == 2

    run(None, LOST["an impossible length"], test=test)


def test_the_other_partitions_go_on_beside_a_damaged_one() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.logs[T1].batches, cluster.logs[T1].end = [(0, 2, good(0))], 2
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0, T1])
            with pytest.raises(CorruptBatchError):
                await consumer.poll(10)
            assert [record.partition for record in await consumer.poll(10)] == [1, 1]

    run(flipped(0), test=test)


def test_a_range_that_the_broker_refuses_is_an_error_in_time() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        options = ConsumerOptions(max_wait_ms=20, request_timeout_s=0.3)
        for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
            cluster.refuse(FETCH, *[code] * 1000)
            async with Consumer(client, options) as consumer:
                await consumer.assign([T0])
                with pytest.raises(
                    (KafkaError, CorruptBatchError), match=rf"t-0.*offset 0|{code.name}.*offset 0"
                ):
                    await poll_for_ever(consumer)

    run(None, test=test)


def test_a_partition_that_gives_nothing_of_what_it_has_is_an_error_in_time() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.logs[T0].end = 4  # nothing is there from 2 on
        options = ConsumerOptions(max_wait_ms=20, request_timeout_s=0.3)
        async with Consumer(client, options) as consumer:
            await consumer.assign([T0])
            assert [record.offset for record in await consumer.poll(10)] == [0, 1]
            with pytest.raises(KafkaError, match=r"t-0 gave no records from offset 2.*up to 4"):
                await poll_for_ever(consumer)

    run(None, test=test)


def test_five_records_of_a_bomb_decode_no_more_than_a_slice() -> None:
    batch = bomb()

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.logs[T0].batches, cluster.logs[T0].end = [(0, BOMB_RECORDS, batch)], BOMB_RECORDS
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0])
            found = await consumer.poll(10, max_records=5)
            assert len(found) == 5

    assert peak_bytes(lambda: run(test=test)) < 16 * 2**20


def test_bytes_behind_the_last_record_do_not_blame_the_next_batch() -> None:
    longer = around(2, good(2)[BATCH_OVERHEAD:] + b"left over")

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0])
            assert [record.offset for record in await consumer.poll(10)] == [0, 1, 2, 3]
            with pytest.raises(CorruptBatchError, match="after the last record") as caught:
                await consumer.poll(10)
            assert (caught.value.first_offset, caught.value.last_offset) == (3, 3)
            await consumer.seek(T0, caught.value.last_offset + 1)
            assert await read_all(consumer, T0, 6) == [4, 5]

    run(None, longer, None, test=test)


@pytest.mark.parametrize("has_empty_between", [False, True])
def test_records_above_a_high_watermark_that_was_read_before_them_are_no_damage(
    has_empty_between: bool,
) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        """Apache Kafka's leader does so: the record becomes readable between the two reads."""
        log = cluster.logs[T0]
        read = log.read
        fetched_at: list[int] = []
        last = 5 if has_empty_between else 2

        def race(offset: int, max_bytes: int) -> bytes:
            fetched_at.append(offset)
            times = fetched_at.count(2)
            log.end = 2 if times < last else 4
            # Another leader may be behind, and have no such record for a while.
            return b"" if has_empty_between and times in (2, 3) else read(offset, max_bytes)

        log.read = race  # type: ignore[method-assign]
        async with Consumer(client, STRICT) as consumer:
            await consumer.assign([T0])
            assert await read_all(consumer, T0, 4) == [0, 1, 2, 3]
            assert fetched_at.count(2) == last

    run(None, None, test=test)
