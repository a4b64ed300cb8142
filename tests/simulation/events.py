"""What clients asked and saw, and what was done to the cluster: one event each.

Owns: the events.  Must not know how anything was asked, nor in which order events came.
An operation has an ``...Invoked`` event and at most one outcome.  A read is one event.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sparklog.metadata import Record
from sparklog.types import NO_NODE, NO_PRODUCER_ID


class LogId(NamedTuple):
    """A partition of one topic; a topic that comes back under its name has another id."""

    topic: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ({str(self.topic_id)[:8]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceInvoked:
    """A batch is sent.  ``resent``: it may be sent again without protection against duplicates.

    ``stream`` names the connection when the order on it is kept, with one attempt per batch.
    ``raises_epoch``: the client raises the epoch of its producer id when the sequence of any
    partition broke, and sends again what was on the way elsewhere (librdkafka, its issue 4953).
    """

    op: int
    log: LogId
    producer: str
    values: tuple[bytes, ...]
    acks: int = -1
    idempotent: bool = False
    resent: bool = False
    stream: str = ""
    raises_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceAcked:
    """The batch is in the log; ``base_offset`` -1: the broker did not say where."""

    op: int
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRefused:
    """The batch is not in the log and will never be."""

    op: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceUnknown:
    """Nobody can tell whether the batch is in the log."""

    op: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A read that was answered: offsets and values of whole batches, the first may start early.

    ``complete``: the answer may hold everything that there is, so an empty one means something.
    ``leader_epoch`` is the one that the leader had; -1 unknown.  ``follower``: who answered in its
    place.
    """

    asked: int
    reader: str
    log: LogId
    offset: int
    leader_epoch: int = -1
    high_watermark: int
    log_start: int
    records: tuple[tuple[int, bytes | None], ...]
    complete: bool = True
    follower: int = NO_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Records that a consumer gave one after the other, the first of them at ``offset``."""

    asked: int
    reader: str
    log: LogId
    offset: int
    records: tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchDamaged:
    """A read that was answered with bytes that are no sound batches."""

    asked: int
    reader: str
    log: LogId
    offset: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndListed:
    """ListOffsets told the latest offset."""

    asked: int
    log: LogId
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreateInvoked:
    op: int
    topic: str
    configs: tuple[tuple[str, str], ...]
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """The topic is known to exist; ``leaders`` by partition."""

    op: int
    topic: str
    topic_id: UUID
    leaders: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleteInvoked:
    op: int
    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    op: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A Metadata answer listed the topic."""

    topic: str
    topic_id: UUID
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChangeInvoked:
    """``value`` None takes the override away."""

    op: int
    topic: str
    topic_id: UUID
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChangeEnded:
    op: int
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsInvoked:
    """``before`` -1: all that there are."""

    op: int
    log: LogId
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted:
    op: int
    low_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionDone:
    """A leader takes a DeleteRecords for done, by the cluster image of this version."""

    broker: int
    log: LogId
    version: int
    low_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartTold:
    """A follower has taken the answer of a leader whose log starts above its own."""

    broker: int
    log: LogId
    log_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDied:
    """A broker was killed, and what was not flushed may be gone, or its whole disk, or nothing.

    ``incarnation`` is that of the process, where it had come so far as to have one.
    """

    broker: int
    power_lost: bool = False
    disk_lost: bool = False
    incarnation: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLost:
    """A partition directory vanished from a broker's disk (``whole``), or its newest log file
    became shorter; the process ``incarnation``, if one runs, may have the files open."""

    broker: int
    log: LogId
    whole: bool
    incarnation: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOffline:
    """A process, which lives on, tells the controller which of its broker's logs do not work."""

    broker: int
    logs: tuple[LogId, ...]
    incarnation: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTaken:
    """A broker has taken its roles from the cluster image of this version, a commit's number."""

    broker: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStopped:
    """A broker is asked to stop cleanly."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """A broker tells the controller that it wants to stop."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MayStop:
    """The controller has told a broker that it may stop."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBegun:
    """How long replicas are waited for that may hold more than others; the default of topics."""

    unclean_recovery_ms: int
    min_isr: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit came into the journal."""

    number: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElectionAsked:
    """An operator may have had any replica elected."""

    log: LogId


class SeenBatch(NamedTuple):
    """A batch as it lies in a file; ``checksum`` is of all its bytes."""

    base_offset: int
    next_offset: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSeen:
    """What a broker holds of a partition, in memory and on its disk: batches from ``start`` on.

    Of a tiered log the batches begin at ``local_start``.
    """

    broker: int
    log: LogId
    leads: bool
    leader_epoch: int
    start: int
    high_watermark: int
    batches: tuple[SeenBatch, ...]
    local_start: int = 0

    @property
    def first(self) -> int:
        """The first offset that it holds itself."""
        return max(self.start, self.local_start)


class ReplicaEnd(NamedTuple):
    """How far a broker's log of a partition reaches, and how far it is flushed."""

    broker: int
    end: int
    flushed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkSeen:
    """A leader's high watermark, when it was raised or the partition was changed.

    ``ends`` are those of all replicas then, as far as they are known.
    """

    log: LogId
    broker: int
    leader_epoch: int
    high_watermark: int
    ends: tuple[ReplicaEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed:
    """From here on nothing is done to the cluster any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """After the healing: a write to the partition and its reading, or why it did not work."""

    log: LogId
    took_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSync:
    """After the healing: the partition's replicas are in sync, and are those that it is to have.

    ``missing`` says which, at last, were not.
    """

    log: LogId
    took_ms: int
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """After the healing: how many partitions a draining broker had at last, and how many of them
    could go nowhere."""

    broker: int
    took_ms: int
    left: int
    stuck: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """The coordinator answered a SyncGroup: what the member owns in this generation."""

    group: str
    member_id: str
    generation: int
    logs: tuple[LogId, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitInvoked:
    """One attempt to commit offsets; a retry is an attempt of its own.

    ``generation`` is -1 for a consumer that is no member, ``producer_id`` that of its transaction.
    """

    op: int
    group: str
    generation: int
    offsets: tuple[tuple[LogId, int], ...]
    producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitAcked:
    """All offsets of the attempt are committed."""

    op: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRefused:
    """No offset of the attempt is committed, or ever will be"""

    op: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRead:
    """Broker ``node`` told the committed offsets of a group; None: there is none."""

    asked: int
    group: str
    node: int
    offsets: tuple[tuple[LogId, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """A member has processed records; it commits them afterwards."""

    group: str
    log: LogId
    records: tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDrained:
    """After the healing: a group has consumed each partition up to its end, or why it has not."""

    group: str
    ends: tuple[tuple[LogId, int], ...]
    took_ms: int
    error: str = ""


Event: TypeAlias = (
    ProduceInvoked
    | ProduceAcked
    | ProduceRefused
    | ProduceUnknown
    | Fetched
    | Consumed
    | FetchDamaged
    | EndListed
    | TopicCreateInvoked
    | TopicCreated
    | TopicDeleteInvoked
    | TopicDeleted
    | TopicSeen
    | ConfigChangeInvoked
    | ConfigChangeEnded
    | DeleteRecordsInvoked
    | RecordsDeleted
    | DeletionDone
    | LogStartTold
    | BrokerDied
    | LogLost
    | ReplicasOffline
    | ImageTaken
    | BrokerStopped
    | StopAsked
    | MayStop
    | ClusterBegun
    | Committed
    | UncleanElectionAsked
    | ReplicaSeen
    | HighWatermarkSeen
    | Healed
    | Probed
    | InSync
    | Drained
    | PartitionsAssigned
    | OffsetCommitInvoked
    | OffsetCommitAcked
    | OffsetCommitRefused
    | OffsetsRead
    | Processed
    | GroupDrained
)
