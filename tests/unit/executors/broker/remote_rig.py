"""Tiered logs for the tests of a broker, and a bucket that answers as a test scripts it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import RemoteRecords, ReplicaManager
from sparklog.executors.replica_manager.log_maintenance import apply_local_retention
from sparklog.types import MAX_INT64, OffsetTimestamp, TopicPartition
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import OWN_BUCKET, Client, Rig

#: With it topics may be tiered; nothing reads there.
REMOTE_DIR = OWN_BUCKET
#: Every batch gets a segment of its own, and nothing stays on the disk that is in the bucket.
TIERED: Mapping[str, str] = {
    "segment_bytes": "100",
    "remote_storage_enable": "true",
    "local_retention_bytes": "0",
    "retention_ms": "-1",
}
#: Records of each partition, one in each batch; only the last is still on the broker's disk.
RECORDS = 5
LOCAL_START = RECORDS - 1


@dataclass
class ScriptedRegion:
    """Bytes that are sent as they are."""

    data: bytes
    released: bool = False

    @property
    def size(self) -> int:
        return len(self.data)

    def descriptor(self) -> tuple[int, int] | None:
        return None

    def view(self) -> memoryview:
        return memoryview(self.data)

    def read(self) -> bytes:
        return self.data

    def release(self) -> None:
        self.released = True


class Asked(NamedTuple):
    """A read of the bucket, as the broker asked for it."""

    partition: int
    offset: int
    max_bytes: int = 1 << 20
    with_aborted: bool = False


@dataclass
class ScriptedRemoteReads:
    """The ``RemoteReads`` of a broker: what ``come`` has told is there, all else is on its way."""

    replica_manager: ReplicaManager
    asked: list[Asked] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    regions: list[ScriptedRegion] = field(default_factory=list)
    aborted: tuple[AbortedTxn, ...] = ()
    #: What the next searches find, by partition: without an answer there is no such record.
    times: dict[int, OffsetTimestamp | KafkaError] = field(default_factory=dict)
    searched: list[tuple[int, int]] = field(default_factory=list)
    _answers: dict[tuple[int, int], bytes | KafkaError] = field(default_factory=dict)

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int = MAX_INT64,
        with_aborted: bool,
        for_replica: bool = False,
    ) -> RemoteRecords | None:
        self.ends.append(end_offset)
        number = partition.topic_partition.partition
        self.asked.append(Asked(number, offset, max_bytes, with_aborted))
        answer = self._answers.get((number, offset))
        if isinstance(answer, KafkaError):
            raise answer
        if answer is None:
            return None
        region = ScriptedRegion(answer)
        self.regions.append(region)
        return RemoteRecords(region, self.aborted if with_aborted else ())

    async def find_timestamp(self, partition: Partition, timestamp: int) -> OffsetTimestamp | None:
        number = partition.topic_partition.partition
        self.searched.append((number, timestamp))
        found = self.times.get(number)
        if isinstance(found, KafkaError):
            raise found
        return found

    def hold(self, partition: int, offset: int, answer: bytes | KafkaError) -> None:
        """The next reads get this at once."""
        self._answers[partition, offset] = answer

    def come(self, partition: int, offset: int, answer: bytes | KafkaError) -> None:
        """What a read waits for arrives."""
        self.hold(partition, offset, answer)
        self.replica_manager.delayed_operations.complete_fetches(TopicPartition("t", partition), 0)

    @property
    def reads_of(self) -> Counter[int]:
        """How often each partition was read."""
        return Counter(asked.partition for asked in self.asked)


def stored(offset: int, *values: bytes) -> bytes:
    """A batch as it lies in the bucket."""
    return batch(*(values or (b"remote %d" % offset,)), base_offset=offset)


async def tiered(
    rig: Rig, partitions: int = 1, **configs: str
) -> tuple[Client, UUID, ScriptedRemoteReads]:
    """A broker that leads the tiered topic ``t``, its client, and its bucket.

    The first partition has local records from ``LOCAL_START`` on; other partitions are empty.
    """
    client, topic_id = await rig.with_topic(partitions, **{**TIERED, **configs})
    await fill_and_move(rig, client)
    replica_manager = rig.brokers[1].replica_manager
    remote = ScriptedRemoteReads(replica_manager)
    replica_manager.remote_reads = remote
    return client, topic_id, remote


async def fill_and_move(rig: Rig, client: Client, number: int = 0, broker_id: int = 1) -> Partition:
    """Records for a partition, all but the last of which leave the broker's disk."""
    for offset in range(RECORDS):
        produced = await client.produce("t", batch(b"local %d" % offset), partition=number)
        assert produced.error_code == 0
    replica_manager = rig.brokers[broker_id].replica_manager
    partition = replica_manager.find("t", number)
    partition.log.tiered_end_offset = LOCAL_START
    await apply_local_retention(replica_manager)
    assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (
        0,
        LOCAL_START,
    )
    return partition
