"""A task's write as the JVM and then Python do it, without a job; and what a topic has of it.

Owns: its rows, which are numbered, so that a topic shows what was lost, written twice, or
misplaced.  Must not know what goes wrong meanwhile.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparklog.client.partitioner import partition_of_key
from sparklog.dataframe.options.options import parse_write_options
from sparklog.dataframe.write.packed_records import packed_batch, rows_of
from sparklog.dataframe.write.writer import PackedTopicWriter, RowsWritten
from sparklog.wire.records.batch import BATCH_OVERHEAD
from tests.spark.dataframe_rig import Rig
from tests.spark.jvm_packer import JvmPacker, Row
from tests.support.faulty_brokers import Fault, FaultyBrokers
from tests.support.waiting import wait_for

#: The client id of the JVM's requests.
JVM = "test"
#: Three partitions have about thirty pieces of them.
ROWS = 60
VALUE_BYTES = 30_000
BATCH_BYTES = 70_000
#: Milliseconds without an answer: where there are some, and where there are none; and bytes.
PATIENCE = 30_000
LITTLE_PATIENCE = 1_000
BUFFER = 16 * 1024 * 1024


class Write:
    """A task's write as the JVM and then Python do it."""

    def __init__(
        self,
        rig: Rig,
        servers: str,
        topic: str,
        keys: Sequence[bytes | None] = (),
        kind: str = "unsafe",
    ) -> None:
        """Rows have ``keys``, over and over; ``kind`` as JvmPacker has it."""
        self._rig = rig
        self._servers = servers
        self._topic = topic
        self._keys = keys
        limit = BATCH_BYTES - BATCH_OVERHEAD
        self.jvm = JvmPacker(rig.spark, kind, limit, keyed=bool(keys))
        #: Rows that Python has got.
        self.rows = 0
        #: Where pieces that were handed over belong, of which the topic had records at that time.
        self.known: set[int] = set()

    def run(
        self,
        *,
        patience: int = PATIENCE,
        buffer: int = BUFFER,
        rows: int = ROWS,
        asked: str | None = None,
    ) -> int:
        """Records that the task reports.  ``asked``: the servers that the JVM knows."""
        servers = asked or self._servers
        self.jvm.destination = (servers, self._topic, JVM, str(patience), str(buffer))
        options = {"kafka.bootstrap.servers": self._servers, "topic": self._topic}
        writer = PackedTopicWriter(parse_write_options(options, None))
        given = [self.row(number) for number in range(rows)]
        written = writer.write(self._seen(self.jvm.batches(given)))
        assert isinstance(written, RowsWritten)
        return written.rows

    def row(self, number: int) -> Row:
        value = b"%08d" % number + bytes(VALUE_BYTES)
        if not self._keys:
            return value, number * 1000
        return value, number * 1000, self._keys[number % len(self._keys)]

    def _seen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: set[int] = set()
        for batch in batches:
            self.rows += batch.num_rows
            packed = packed_batch(batch)
            if packed.handover is not None:
                held = set(all_numbers(self._rig, self._topic))
            self.known |= {
                piece.partition
                for piece in packed.pieces
                for value in rows_of(piece).column("value").to_pylist()
                if piece.partition is not None and int(value[:8]) in held
            }
            yield batch


def numbers(rig: Rig, topic: str) -> list[list[int]]:
    """What each partition holds; keys are in their own one."""
    found: dict[int, list[int]] = {}
    partitions = len(rig.client.topic(topic).partitions)
    for record in rig.consume(topic):
        if record.key is not None:
            assert record.partition == partition_of_key(record.key, partitions)
        found.setdefault(record.partition, []).append(int((record.value or b"")[:8]))
    return [found[partition] for partition in sorted(found)]


def all_numbers(rig: Rig, topic: str) -> list[int]:
    return [number for partition in numbers(rig, topic) for number in partition]


def assert_each_once(rig: Rig, topic: str, rows: int = ROWS) -> None:
    assert sorted(all_numbers(rig, topic)) == list(range(rows))
    assert all(partition == sorted(partition) for partition in numbers(rig, topic))


def write_with(
    rig: Rig,
    topic: str,
    faults: dict[int, Fault],
    usual: Fault | None = None,
    patience: int = PATIENCE,
    keys: Sequence[bytes | None] = (),
) -> Write:
    with FaultyBrokers(rig.client, faults, usual) as brokers:
        write = Write(rig, brokers.bootstrap_servers, topic, keys)
        assert write.run(patience=patience) == ROWS
        assert brokers.produced >= max(faults, default=1)
        of_the_jvm = [each for each in brokers.connections if each.client_id == JVM]
        wait_for(lambda: all(each.closed for each in of_the_jvm))
    return write
