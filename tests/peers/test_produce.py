"""Produce, as Kafka answers it: what is taken, what is refused and how."""

import struct
import time
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from sparklog.types import Compression, TimestampType
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.both import TIMEOUT_MS, Both, Side, batch, produce
from tests.peers.deviations import (
    CLIENTS_HORIZON,
    DUPLICATE_TIME,
    EMPTY_ID_OF_PLAIN_BATCH,
    EMPTY_TOPIC,
    KAFKA_BREAKS,
    LOG_START,
    NO_EPOCH,
    RECORD_ERRORS,
    RECORDS_UNSEEN,
    STAMPED_BY_CLIENT,
    TRAILING_BYTES,
    WITHOUT_PRODUCER,
    Deviation,
)
from tests.peers.transaction_story import await_transaction_coordinator

BY_NAME = range(3, 13)
BY_ID = 13
#: What librdkafka and aiokafka send, and the ends of the range.
SOME = (3, 7, 8, 10, 12)
MESSAGE_BYTES_MAX = 1000
SEGMENT_BYTES = 1_048_576


def at_version(topic: str, records: bytes | None, version: int, **more: Any) -> Any:
    """The request by name, or from v13 by id."""

    def request(side: Side) -> Request:
        if version < BY_ID:
            return produce(topic, records, **more)
        data = PartitionProduceData(index=more.get("partition", 0), records=records)
        by_id = TopicProduceData(topic_id=side.ids[topic], partition_data=(data,))
        acks = more.get("acks", -1)
        return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=(by_id,))

    return request


def resealed(records: bytearray) -> bytes:
    """With the checksum that its bytes have now."""
    records[17:21] = struct.pack(">I", crc32c(bytes(records[21:])))
    return bytes(records)


def with_header(
    records: bytes,
    *,
    base_offset: int | None = None,
    length: int | None = None,
    magic: int | None = None,
    attributes: int | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int | None = None,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
    count: int | None = None,
) -> bytes:
    """The batch with other numbers in its header, and a checksum that is right for them."""
    changed = bytearray(records)
    for place, form, value in (
        (0, ">q", base_offset),
        (8, ">i", length),
        (16, ">b", magic),
        (21, ">h", attributes),
        (23, ">i", last_offset_delta),
        (27, ">q", base_timestamp),
        (35, ">q", max_timestamp),
        (43, ">q", producer_id),
        (51, ">h", producer_epoch),
        (53, ">i", base_sequence),
        (57, ">i", count),
    ):
        if value is not None:
            struct.pack_into(form, changed, place, value)
    return resealed(changed)


ORDINARY = batch(b"one", b"two")
WRONG_CRC = ORDINARY[:-1] + bytes([ORDINARY[-1] ^ 1])


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create("produced-to", 2)


@pytest.fixture(scope="module")
def limited(both: Both) -> str:
    return both.create(
        "limited",
        max_message_bytes=str(MESSAGE_BYTES_MAX),
        segment_bytes=str(SEGMENT_BYTES),
    )


@pytest.fixture(scope="module")
def stamped(both: Both) -> str:
    return both.create("stamped", message_timestamp_type="LogAppendTime")


@pytest.fixture(scope="module")
def timely(both: Both) -> str:
    return both.create(
        "timely",
        message_timestamp_before_max_ms="3600000",
        message_timestamp_after_max_ms="3600000",
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_every_version(both: Both, topic: str, acks: int) -> None:
    for version in (*BY_NAME, BY_ID):
        both.same(at_version(topic, ORDINARY, version, acks=acks), version)


@pytest.mark.parametrize("codec", Compression)
def test_every_codec(both: Both, topic: str, codec: Compression) -> None:
    both.same(produce(topic, batch(b"x" * 500, compression=codec)), (3, 6, 7, 12))


@pytest.mark.parametrize("acks", [2, -2, 17])
def test_acks_that_do_not_exist(both: Both, topic: str, acks: int) -> None:
    both.same(produce(topic, ORDINARY, acks=acks), SOME)


def test_without_an_acknowledgement(both: Both, topic: str) -> None:
    for side in both.sides:
        side.tell(produce(topic, ORDINARY, acks=0), 9)
    both.same(produce(topic, ORDINARY, acks=1), 9)  # behind the first one on either side


@pytest.mark.parametrize("partition", [2, -1, 2**31 - 1])
def test_partitions_that_are_not_there(both: Both, topic: str, partition: int) -> None:
    both.same(produce(topic, ORDINARY, partition=partition), SOME)


@pytest.mark.parametrize("name", ["not-there", "", "bad name"])
def test_topics_that_are_not_there(both: Both, name: str) -> None:
    both.same(produce(name, ORDINARY), SOME)


def test_ids_that_are_not_there(both: Both) -> None:
    data = PartitionProduceData(index=0, records=ORDINARY)
    for topic_id in (UUID(int=9), None):
        topics = (TopicProduceData(topic_id=topic_id, partition_data=(data,)),)
        both.same(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics), BY_ID)


def test_nothing_at_all(both: Both, topic: str) -> None:
    both.same(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS), SOME)
    nothing = TopicProduceData(name=topic)
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=(nothing,))
    both.same(request, SOME, EMPTY_TOPIC)


def test_several_partitions_of_which_some_are_refused(both: Both, topic: str) -> None:
    parts = tuple(
        PartitionProduceData(index=index, records=records)
        for index, records in ((0, ORDINARY), (1, WRONG_CRC), (7, ORDINARY))
    )
    topics = (
        TopicProduceData(name=topic, partition_data=parts),
        TopicProduceData(name="not-there", partition_data=parts[:1]),
    )
    both.same(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics), SOME)


REFUSED: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"x",
    "a header cut off": ORDINARY[:40],
    "the end cut off": ORDINARY[:-1],
    "bytes behind it": ORDINARY + b"xyz",
    "two batches": ORDINARY + ORDINARY,
    "wrong checksum": WRONG_CRC,
    "magic 0": with_header(ORDINARY, magic=0),
    "magic 1": with_header(ORDINARY, magic=1),
    "magic 3": with_header(ORDINARY, magic=3),
    "magic -1": with_header(ORDINARY, magic=-1),
    "length too small": with_header(ORDINARY, length=10),
    "length negative": with_header(ORDINARY, length=-1),
    "length too large": with_header(ORDINARY, length=len(ORDINARY)),
    "base offset 5": with_header(ORDINARY, base_offset=5),
    "base offset -1": with_header(ORDINARY, base_offset=-1),
    "count 1 of 2": with_header(ORDINARY, count=1),
    "count 3 of 2": with_header(ORDINARY, count=3),
    "count 0": with_header(ORDINARY, count=0),
    "count -1": with_header(ORDINARY, count=-1),
    "last offset delta 0": with_header(ORDINARY, last_offset_delta=0),
    "last offset delta 9": with_header(ORDINARY, last_offset_delta=9),
    "last offset delta -1": with_header(ORDINARY, last_offset_delta=-1),
    "no records": encode_batch([], last_offset_delta=0),
    "no records, delta -1": encode_batch([], last_offset_delta=-1),
    "LogAppendTime from a client": batch(b"x", timestamp_type=TimestampType.LOG_APPEND_TIME),
    "codec 5": with_header(ORDINARY, attributes=5),
    "codec 7": with_header(ORDINARY, attributes=7),
    "unused attributes": with_header(ORDINARY, attributes=0x80),
    "delete horizon": with_header(ORDINARY, attributes=0x40),
    "control": batch(b"x", control=True),
    "control with a producer": batch(b"x", control=True, producer_id=7, producer_epoch=0),
    "transactional without a producer": batch(b"x", transactional=True),
    "producer without an epoch": with_header(ORDINARY, producer_id=4711, base_sequence=0),
    "producer without a sequence": with_header(ORDINARY, producer_id=4712, producer_epoch=0),
    "producer -2": with_header(ORDINARY, producer_id=-2, producer_epoch=0, base_sequence=0),
    "an epoch without producer": with_header(ORDINARY, producer_epoch=3),
    "a sequence without producer": with_header(ORDINARY, base_sequence=3),
}


MEANT: dict[str, Deviation] = {
    "bytes behind it": TRAILING_BYTES,
    "LogAppendTime from a client": STAMPED_BY_CLIENT,
    "codec 5": KAFKA_BREAKS,
    "codec 7": KAFKA_BREAKS,
    "delete horizon": CLIENTS_HORIZON,
    "transactional without a producer": WITHOUT_PRODUCER,
    "producer without an epoch": NO_EPOCH,
}


@pytest.mark.parametrize("what", REFUSED)
def test_batches_that_are_not_proper(both: Both, what: str) -> None:
    name = both.create("improper-" + what.replace(" ", "-").replace(",", ""))
    request = produce(name, REFUSED[what])
    for version in SOME:
        kafka, ours = both.ask(request, version)
        of_kafka, of_ours = (
            answered.responses[0].partition_responses[0] for answered in (kafka, ours)
        )
        silent = of_ours.log_start_offset == -1 != of_kafka.log_start_offset
        meant = [MEANT[what]] if what in MEANT else []
        both.compare(
            kafka,
            ours,
            *meant,
            *[LOG_START] if silent else [],
            story=f"v{version}",
        )


@pytest.mark.parametrize("what", ["garbage", "truncated"])
@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_that_do_not_decompress(both: Both, codec: Compression, what: str) -> None:
    topic = both.create(f"{what}-{codec}")
    good = batch(b"x" * 500, b"y" * 500, compression=codec)
    body = b"\xff" * 40 if what == "garbage" else good[61:-9]
    changed = bytearray(good[:61] + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    both.same(produce(topic, resealed(changed)), 10, RECORDS_UNSEEN)


@pytest.mark.parametrize("size", [MESSAGE_BYTES_MAX - 200, MESSAGE_BYTES_MAX])
def test_batches_that_are_too_large(both: Both, limited: str, size: int) -> None:
    both.same(produce(limited, batch(b"x" * size)), SOME)


def test_the_largest_batch(both: Both, limited: str) -> None:
    overhead = len(batch(b"x" * 500)) - 500
    for size in (MESSAGE_BYTES_MAX - overhead, MESSAGE_BYTES_MAX - overhead + 1):
        both.same(produce(limited, batch(b"x" * size)), 10)


@pytest.mark.parametrize("timestamp", [-1, -2, 0, 2**62])
def test_timestamps_of_all_kinds(both: Both, topic: str, timestamp: int) -> None:
    records = encode_batch([Record(value=b"x", timestamp=timestamp)])
    both.same(produce(topic, records), (3, 7), where=())
    both.same(produce(topic, records), (8, 10, 12), *[RECORD_ERRORS] if timestamp > 0 else [])


@pytest.mark.parametrize("hours", [-0.9, 0.0, 0.9])
def test_timestamps_not_far_from_now(both: Both, timely: str, hours: float) -> None:
    timestamp = int(time.time() * 1000 + hours * 3_600_000)
    both.same(produce(timely, batch(b"x", timestamp=timestamp)), SOME)
    mixed = [Record(value=b"x", timestamp=int(time.time() * 1000)), Record(timestamp=timestamp)]
    both.same(produce(timely, encode_batch(mixed)), 10)


@pytest.mark.parametrize("hours", [-2.0, 2.0])
def test_timestamps_far_from_now(both: Both, timely: str, hours: float) -> None:
    timestamp = int(time.time() * 1000 + hours * 3_600_000)
    both.same(produce(timely, batch(b"x", timestamp=timestamp)), (3, 7))
    both.same(produce(timely, batch(b"x", timestamp=timestamp)), (8, 10, 12), RECORD_ERRORS)


def test_one_timestamp_of_several_far_from_now(both: Both) -> None:
    name = both.create("untimely", message_timestamp_before_max_ms="3600000")
    now = int(time.time() * 1000)
    mixed = [Record(timestamp=now), Record(timestamp=now - 7_200_000), Record(timestamp=now)]
    both.same(produce(name, encode_batch(mixed)), 7, RECORDS_UNSEEN)


def test_a_header_that_lies_about_its_timestamps(both: Both, topic: str) -> None:
    wrong = with_header(ORDINARY, max_timestamp=1_600_000_000_000)
    both.same(produce(topic, wrong), 10)


def test_stamped_by_the_broker(both: Both, stamped: str) -> None:
    both.same(produce(stamped, ORDINARY), SOME)
    both.same(produce(stamped, batch(b"x", timestamp=1)), 10)
    both.same(produce(stamped, batch(b"x", timestamp=2**60)), 10)


# -- idempotent producers

PRODUCER = 1_000_000


def sent(first: int, *, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    values = [b"%d" % (first + number) for number in range(count)]
    return batch(
        *values, producer_id=producer_id, producer_epoch=epoch, base_sequence=first % 2**31
    )


STORIES: dict[str, list[bytes]] = {
    "in order": [sent(0), sent(1), sent(2, count=3), sent(5)],
    "duplicates": [sent(0), sent(0), sent(1), sent(2), sent(0), sent(1), sent(2)],
    "a duplicate too old": [sent(number) for number in range(7)] + [sent(0), sent(1), sent(2)],
    "another batch with the same start": [sent(0, count=2), sent(0)],
    "an overlap": [sent(0, count=3), sent(1, count=3), sent(2)],
    "a gap": [sent(0), sent(2), sent(1)],
    "not from the start": [sent(5), sent(6)],
    "a new epoch": [sent(0), sent(0, epoch=1), sent(1, epoch=1), sent(1)],
    "a new epoch, not from the start": [sent(0), sent(1), sent(1, epoch=1), sent(2, epoch=1)],
    "an old epoch": [sent(0, epoch=5), sent(1, epoch=4), sent(0, epoch=4)],
    "an epoch far ahead": [sent(0), sent(0, epoch=9), sent(1, epoch=8)],
    "a duplicate of an old epoch": [sent(0), sent(0, epoch=1), sent(0)],
    "around the end": [sent(2**31 - 2, count=2), sent(2**31), sent(1)],
    "across the end": [sent(2**31 - 2, count=4), sent(2**31 + 2), sent(2)],
    "two producers": [sent(0), sent(0, producer_id=PRODUCER + 500_000), sent(1)],
}


@pytest.mark.parametrize("story", STORIES)
def test_sequences(both: Both, story: str) -> None:
    name = both.create("sequences-" + story.replace(" ", "-").replace(",", ""))
    for records in STORIES[story]:
        kafka, ours = both.ask(produce(name, records), 10)
        again = (
            ours.responses[0].partition_responses[0].log_append_time_ms
            == -1
            != (kafka.responses[0].partition_responses[0].log_append_time_ms)
        )
        both.compare(kafka, ours, *[DUPLICATE_TIME] if again else [])


# -- transactions that their coordinator does not know


@pytest.mark.parametrize("version", [3, 8, 11, 12])
@pytest.mark.parametrize("transactional_id", ["a-transaction", ""])
def test_a_transactional_id(both: Both, topic: str, version: int, transactional_id: str) -> None:
    await_transaction_coordinator(both, "a-transaction")
    plain = [] if transactional_id else [EMPTY_ID_OF_PLAIN_BATCH]
    both.same(produce(topic, ORDINARY, transactional_id=transactional_id), version, *plain)
    records = batch(b"x", transactional=True, producer_id=4713, producer_epoch=0, base_sequence=0)
    both.same(produce(topic, records, transactional_id=transactional_id), version)


def test_a_transactional_batch_without_an_id(both: Both, topic: str) -> None:
    records = batch(b"x", transactional=True, producer_id=4714, producer_epoch=0, base_sequence=0)
    both.same(produce(topic, records), SOME)
