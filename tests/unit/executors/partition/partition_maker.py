"""Partitions on a memory disk, for the tests of this folder."""

from dataclasses import dataclass, field
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.partition import FlushLog
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.metadata import PartitionImage
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import Compression, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
NODE = 1
NOW = 1_700_000_000_000


def led(epoch: int = 0, **changes: object) -> PartitionImage:
    """The state of a partition that this node leads alone."""
    values: dict[str, object] = {
        "replicas": (NODE,),
        "isr": (NODE,),
        "last_known": (NODE,),
        "leader": NODE,
        "leader_epoch": epoch,
        "partition_epoch": epoch,
    }
    return PartitionImage(**{**values, **changes})  # type: ignore[arg-type]


def batch(
    *values: bytes,
    timestamp: int = NOW,
    sequence: int = -1,
    producer_id: int = -1,
    epoch: int = -1,
    **more: object,
) -> bytes:
    return encode_batch(
        [Record(value=value, timestamp=timestamp) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=Compression.NONE,
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Maker:
    """One disk; ``open`` gives the partition on it, anew each time."""

    backend: MemoryBackend = field(default_factory=MemoryBackend)
    files: FileCache = field(default_factory=lambda: FileCache(16))

    def open(
        self,
        state: PartitionImage | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        **settings: object,
    ) -> Partition:
        config = TopicConfig(**settings)  # type: ignore[arg-type]
        producers = ProducerStateManager(TP)
        log = Log.open(
            self.backend,
            "broker-1/t-0",
            topic_partition=TP,
            config=config,
            files=self.files,
            producers=producers,
            now_ms=NOW,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=TOPIC_ID,
        )
        partition = Partition(
            topic_partition=TP,
            topic_id=TOPIC_ID,
            node_id=NODE,
            log=log,
            producers=producers,
            config=config,
        )
        partition.opened(NOW)
        partition.make_leader_or_follower(led() if state is None else state, 0)
        return partition


def flush(partition: Partition) -> list[object]:
    """Carry out a FlushLog as the shell does; the effects that follow."""
    job = partition.log.start_flush(NOW, force=partition.flush_pending)
    assert job is not None
    job.run()
    partition.log.finish_flush(job, NOW)
    return list(partition.flushed(NOW))


def asks_for_flush(effects: object) -> bool:
    assert isinstance(effects, tuple | list)
    return any(isinstance(effect, FlushLog) for effect in effects)
