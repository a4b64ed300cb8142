"""What is left at the end of a run, once everything is healed: logs, journal, images, files.

Owns: the values.  Must not know how they are collected, or what they have to be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.metadata import ClusterImage, Record
from tests.simulation.events import LogId, ReplicaSeen
from tests.simulation.tier_events import TierBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalBatch:
    """A batch as a client reads it."""

    base_offset: int
    values: tuple[bytes | None, ...]
    timestamps: tuple[int, ...] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """A partition's records, [start, end), in whole batches; ``damage``: why they end early."""

    start: int
    end: int
    batches: tuple[FinalBatch, ...]
    damage: str = ""

    def records(self) -> dict[int, bytes | None]:
        """Value by offset; the first batch may begin below ``start``."""
        return {
            offset: value
            for batch in self.batches
            for offset, value in enumerate(batch.values, batch.base_offset)
        }

    def timestamps(self) -> dict[int, int]:
        """Timestamps (ms) by offset, as ``records``."""
        return {
            offset: timestamp
            for batch in self.batches
            for offset, timestamp in enumerate(batch.timestamps, batch.base_offset)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedLog:
    """What a reader of committed records gets of a partition: values by offset.

    ``damage`` says why they end below the last stable offset.
    """

    end: int
    last_stable_offset: int
    records: Mapping[int, bytes | None]
    damage: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing keeps readers from its end."""
        return not self.damage and self.last_stable_offset == self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalCommit:
    """One file of the journal."""

    number: int
    controller_epoch: int
    nonce: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeImage:
    """The committed image that one process has, or had when it ended."""

    node: str
    image: ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSeen:
    """What a replica knows of a producer, as of its last batch of data, if it knows one.

    ``open_from`` -1: it has no open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    open_from: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredReplica:
    """A replica of a tiered log: where it starts, in all and on this disk, and what it knows.

    ``epochs`` are leader epochs and their start offsets; ``batches`` those on the disk.
    """

    broker: int
    log: LogId
    leads: bool
    log_start: int
    local_start: int
    high_watermark: int
    epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[ProducerSeen, ...] = ()
    batches: tuple[TierBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalState:
    """``partition_dirs``: broker -> name of a partition directory -> the topic that it belongs to.

    ``replicas`` are what every broker holds of every partition.  ``cleaned_logs`` are those of
    coordinators whose copies may have been compacted to different degrees.  ``remote_objects`` are
    the sizes of all objects in the bucket, by path; they may be deleted ``delete_delay_ms`` after
    their segments have left the manifest.
    """

    logs: Mapping[LogId, FinalLog] = field(default_factory=dict)
    committed_logs: Mapping[LogId, CommittedLog] = field(default_factory=dict)
    compacted_logs: tuple[LogId, ...] = ()
    cleaned_logs: tuple[LogId, ...] = ()
    replicas: tuple[ReplicaSeen, ...] = ()
    journal: tuple[JournalCommit, ...] = ()
    images: tuple[NodeImage, ...] = ()
    partition_dirs: Mapping[int, Mapping[str, UUID | None]] = field(default_factory=dict)
    tiered_replicas: tuple[TieredReplica, ...] = ()
    remote_objects: Mapping[str, int] = field(default_factory=dict)
    delete_delay_ms: int = 0

    def image_at(self, number: int) -> ClusterImage:
        """What the journal says as of a commit."""
        image = ClusterImage()
        for commit in self.journal[:number]:
            image.replay_commit(commit.number, commit.records)
        return image
