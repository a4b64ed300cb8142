"""What is there to be read: topics of every kind, made without Spark.

Owns: their names and what they hold.  Must not know how they are read.
"""

from collections.abc import Sequence
from pathlib import Path

from sparklog.client.blocking import BlockingClient, BlockingProducer
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker

FOREVER = {"retention.ms": "-1"}
#: Three partitions of ten records: partition p has its offset o at time 1000 * o + p ms.
NUMBERS = "numbers"
#: One partition of three records, of a name that a pattern finds with ``numbers``.
NUMBS = "numbs"
#: Nulls, empty and binary texts, headers: one partition.
MIXED = "mixed"
#: Times of appending.
STAMPED = "stamped"
#: Timestamps in no order.
SHUFFLED = "shuffled"
#: Two partitions, the first is empty.
HALF_EMPTY = "half-empty"
EMPTY = "empty"
#: Of ten records in each of two partitions, four and ten were deleted.
DELETED = "deleted"
#: Committed, aborted and, at the end, undecided records between plain ones: 0 to 11.
TRANSACTIONS = "transactions"

BATCHES: Sequence[tuple[int | None, ControlType | Sequence[str]]] = (
    (None, ["plain 0"]),
    (1, ["kept 1", "kept 2"]),
    (2, ["lost 3"]),
    (1, ControlType.COMMIT),
    (2, ["lost 5"]),
    (2, ControlType.ABORT),
    (None, ["plain 7"]),
    (1, ["open 8"]),
    (None, ["behind 9", "behind 10"]),
    (1, ["open 11"]),
)


def fill(client: BlockingClient) -> None:
    """Everything but ``TRANSACTIONS``, which needs a stop."""
    admin = client.admin
    for name, count in ((NUMBERS, 3), (NUMBS, 1), (MIXED, 1), (SHUFFLED, 1), (HALF_EMPTY, 2)):
        admin.create_topic(name, count, configs=FOREVER)
    for name, count in ((EMPTY, 1), (DELETED, 2), (TRANSACTIONS, 1)):
        admin.create_topic(name, count, configs=FOREVER)
    admin.create_topic(STAMPED, 1, configs={**FOREVER, "message.timestamp.type": "LogAppendTime"})
    with client.producer() as producer:
        for offset in range(10):
            for number in range(3):
                key, value = b"k%d" % offset, b"v%d-%d" % (number, offset)
                time = 1000 * offset + number
                producer.send(NUMBERS, value, key, partition=number, timestamp=time)
            for number in range(2):
                producer.send(DELETED, b"d%d" % offset, partition=number, timestamp=1000 * offset)
        for number in range(3):
            producer.send(NUMBS, b"n%d" % number, partition=0, timestamp=number)
            producer.send(STAMPED, b"s%d" % number, partition=0)
            producer.send(HALF_EMPTY, b"h%d" % number, partition=1, timestamp=number)
        for time in (5000, 1000, 9000, 3000, 7000):
            producer.send(SHUFFLED, b"at %d" % time, partition=0, timestamp=time)
        _send_mixed(producer)
    admin.delete_records({TopicPartition(DELETED, 0): 4, TopicPartition(DELETED, 1): 10})


def _send_mixed(producer: BlockingProducer) -> None:
    headers = [("h", b"1"), ("h", None), ("", b"\xff")]
    for value, key, given in (
        (b"v", b"k", headers),
        (None, b"k", ()),
        (b"v", None, ()),
        (None, None, [("only", b"")]),
        (b"", b"", ()),
        (b"\x00\xff", b"\xfe", ()),
    ):
        producer.send(MIXED, value, key, partition=0, timestamp=1_700_000_000_123, headers=given)


def write_transactions(data_dir: Path) -> None:
    """Put them into the log of a cluster that stands still; its next start recovers them."""
    broker = data_dir / "broker-1"
    log = bytearray()
    offset = 0
    sequences = {1: 0, 2: 0}
    for producer_id, content in BATCHES:
        data, count = _batch(producer_id, content, offset, sequences)
        log += data
        offset += count
    partition_dir = broker / f"{TRANSACTIONS}-0"
    for path in partition_dir.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot", ".txnindex"):
            path.unlink()
    (partition_dir / f"{0:020}.log").write_bytes(log)
    (broker / ".kafka_cleanshutdown").unlink()


def _batch(
    producer_id: int | None,
    content: ControlType | Sequence[str],
    offset: int,
    sequences: dict[int, int],
) -> tuple[bytes, int]:
    """The bytes, and how many offsets they take."""
    time = 1000 * offset
    if isinstance(content, ControlType):
        assert producer_id is not None
        marker = EndTxnMarker(control_type=content, coordinator_epoch=0)
        identity = {"producer_id": producer_id, "producer_epoch": 0, "leader_epoch": 0}
        return encode_marker(marker, timestamp=time, base_offset=offset, **identity), 1
    records = [Record(value=text.encode(), timestamp=time) for text in content]
    if producer_id is None:
        return encode_batch(records, base_offset=offset, leader_epoch=0), len(records)
    data = encode_batch(
        records,
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequences[producer_id],
        transactional=True,
    )
    sequences[producer_id] += len(records)
    return data, len(records)
