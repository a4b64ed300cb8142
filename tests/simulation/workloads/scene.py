"""What all workloads of a run share: the world, the history, the topics, the end.

Owns: the topics that live as long as the run, values that nobody else sends, and when to stop.
Must not know what a workload does.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.executors.broker import Broker
from sparklog.metadata import PartitionImage
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparklog.types import NO_NODE, Compression
from sparklog.wire.records.builder import Record, encode_batch
from tests.simulation.events import LogId
from tests.simulation.history import History
from tests.simulation.keyed_records import record_of, tombstone_text, value_text
from tests.simulation.world import EPOCH_MS, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that exists; ``leaders`` by partition."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    leaders: tuple[int, ...]
    replication_factor: int = 1

    @property
    def unclean(self) -> bool:
        """Whether it would rather lose records than wait."""
        return self.configs.get("unclean.leader.election.enable") == "true"

    @property
    def logs(self) -> tuple[LogId, ...]:
        return tuple(LogId(self.name, self.topic_id, n) for n in range(len(self.leaders)))


@dataclass(slots=True, kw_only=True)
class Scene:
    """``topics`` are there from the beginning to the end."""

    world: World
    history: History
    topics: list[Topic] = field(default_factory=list)
    #: Compacted topics, which are there all the time too.
    compacted: list[Topic] = field(default_factory=list)
    #: Topics that transactions write to, likewise.
    transactional: list[Topic] = field(default_factory=list)
    #: Topics that come and go, while they are known to be there.
    passing: dict[str, Topic] = field(default_factory=dict)
    #: Brokers that are not there from the beginning.
    later: tuple[int, ...] = ()
    #: Brokers that were asked to stop.
    stopping: set[int] = field(default_factory=set)
    #: Brokers that are being drained, or perhaps are.
    draining: set[int] = field(default_factory=set)
    #: Partitions whose replicas an operator moves, or perhaps does.
    moving: set[LogId] = field(default_factory=set)
    #: Every process that was ever started.
    control_planes: list[ControlPlane] = field(default_factory=list)
    brokers: list[Broker] = field(default_factory=list)
    #: Hosts of the clients.
    client_hosts: list[str] = field(default_factory=list)
    #: Consumer groups, and the topics that each subscribes to.
    groups: dict[str, tuple[Topic, ...]] = field(default_factory=dict)
    #: Decided, but not ended for sure (``transactions``).
    open_transactions: list[Any] = field(default_factory=list)
    #: What is to happen to a control plane (``coordinator_crashes``).
    coordinator_plan: Any = None
    #: Held by whoever ends and starts control planes.
    controlling: asyncio.Lock = field(default_factory=asyncio.Lock)
    over: bool = False
    #: Some partition has not come back to its replicas for so long that no more is waited.
    stuck: bool = False

    @property
    def logs(self) -> list[LogId]:
        return [log for topic in self.topics for log in topic.logs]

    @property
    def compacted_logs(self) -> list[LogId]:
        return [log for topic in self.compacted for log in topic.logs]

    @property
    def transaction_logs(self) -> list[LogId]:
        return [log for topic in self.transactional for log in topic.logs]

    def is_transactional(self, log: LogId) -> bool:
        return any(topic.topic_id == log.topic_id for topic in self.transactional)

    def is_tiered(self, log: LogId) -> bool:
        """Whether records of it may be in the bucket only."""
        return any(
            topic.topic_id == log.topic_id and topic.configs.get("remote.storage.enable") == "true"
            for topic in self.topics + self.transactional
        )

    def compacts(self, log: LogId) -> bool:
        return any(topic.topic_id == log.topic_id for topic in self.compacted)

    @property
    def kept_logs(self) -> list[LogId]:
        """Every partition that is there to the end, those of coordinators too."""
        own = self.logs + self.compacted_logs + self.transaction_logs
        return own + self.coordinator_logs(CONSUMER_OFFSETS, TRANSACTION_STATE)

    def coordinator_logs(self, *names: str) -> list[LogId]:
        """The partitions of internal topics, as far as the controller knows them."""
        control = self.world.control.control_plane
        found = [control.image.topic(name) for name in names] if control is not None else []
        return [
            LogId(topic.name, topic.topic_id, number)
            for topic in found
            if topic is not None
            for number in topic.partitions
        ]

    @property
    def now_ms(self) -> int:
        return self.world.now_ms()

    @property
    def wall_ms(self) -> int:
        """The time of day, for records."""
        return EPOCH_MS + self.world.now_ms()

    def missing_in_sync(self) -> Iterator[tuple[LogId, tuple[int, ...]]]:
        """Of every partition that is there for the whole run: which replicas are not in sync, as
        far as the controller knows; -1 when it has no leader, or is being moved."""
        for log in self.kept_logs:
            state = self.state(log)
            if state is None or state.offline or state.adding or state.removing:
                yield log, (NO_NODE,)
            else:
                yield log, tuple(sorted(set(state.replicas) - set(state.isr)))

    def leader(self, log: LogId) -> int:
        """As far as the controller knows; -1 when there is none."""
        state = self.state(log)
        return NO_NODE if state is None else state.leader

    def state(self, log: LogId) -> PartitionImage | None:
        """As far as the controller knows."""
        control = self.world.control.control_plane
        topic = control.image.topic_by_id(log.topic_id) if control is not None else None
        return topic.partitions.get(log.partition) if topic is not None else None

    def some_factor(self, chance: random.Random) -> int:
        """How many replicas a topic is to have: three, or as many as there are brokers, or less."""
        return min(chance.choice((1, 2, 3, 3)), len(self.world.brokers) - len(self.later))

    def count(self, what: str, number: int = 1) -> None:
        self.world.counters[what] += number

    async def pause(self, chance: random.Random, longest_ms: int) -> None:
        """A while, often a short one."""
        await asyncio.sleep(chance.random() ** 2 * longest_ms / 1000)


class Values:
    """Values that tell who sent them: no two are equal in a run."""

    def __init__(self, producer: str, chance: random.Random) -> None:
        self.producer = producer
        self._chance = chance
        self._sent = 0

    def next(self) -> bytes:
        self._sent += 1
        padding = self._chance.choice((0, 0, 30, 300))
        return f"{self.producer}/{self._sent}".encode() + b"." * padding

    def some(self) -> tuple[bytes, ...]:
        """The values of one batch."""
        return tuple(self.next() for _ in range(self._chance.choice((1, 1, 2, 5))))


class KeyedValues(Values):
    """Texts of keyed records: some keys come often and some seldom, and many are deleted."""

    KEYS = 40

    def next(self) -> bytes:
        value = super().next()
        key = b"k%d" % int(self._chance.random() ** 3 * self.KEYS)
        if self._chance.random() < 0.35:
            return tombstone_text(key, value.rstrip(b"."))
        return value_text(key, value)


def encoded(
    values: Iterable[bytes],
    now_ms: int,
    compression: Compression = Compression.NONE,
    *,
    keyed: bool = False,
    **more: int,
) -> bytes:
    """A batch of records without keys; ``keyed``: of those that the texts name."""
    records = [
        record_of(value, now_ms) if keyed else Record(value=value, timestamp=now_ms)
        for value in values
    ]
    return encode_batch(records, compression=compression, **more)  # type: ignore[arg-type]
