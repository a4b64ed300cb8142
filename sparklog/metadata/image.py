"""The cluster image: the state that results from the journal's records, and queries about it.

Owns: the only interpretation of the records (``replay``), snapshots, and queries.  Control plane,
brokers and clients have an image each and replay the same records.  Must not know how records are
stored or sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never
from uuid import UUID

from sparklog.metadata.change_history import ChangeHistory
from sparklog.metadata.records import (
    BrokerDraining,
    BrokerFenced,
    BrokerIdAssigned,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicDeleted,
)
from sparklog.metadata.replica_index import ReplicaIndex
from sparklog.metadata.values import BrokerImage, ControllerImage, PartitionImage
from sparklog.types import CONTROLLER_NODE_ID, ResourceType, TopicPartition


@dataclass(slots=True)
class TopicImage:
    """A topic and its partitions, with keys 0 to n-1.  Only the image's ``replay`` changes it."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionImage]


@dataclass(slots=True)
class ClusterImage:
    """The state of the cluster as of commit ``version``; version 0 is the empty image.

    ``deferred_factors`` are the topics that have fewer replicas than their replication factor,
    because there were too few brokers when they were created.  ``remote_deletes`` are the ids of
    deleted topics that the remote_dir still has something of, and when they were deleted (ms).
    ``replay`` is the only mutator, also of the indexes.  Equality compares complete states.
    """

    version: int = 0
    cluster_id: str = ""
    created_ms: int = 0
    controller: ControllerImage = field(default_factory=ControllerImage)
    next_producer_id: int = 0
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topics_by_id: dict[UUID, TopicImage] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    deferred_factors: set[str] = field(default_factory=set)
    remote_deletes: dict[UUID, int] = field(default_factory=dict)
    _index: ReplicaIndex = field(init=False, repr=False, compare=False)
    _history: ChangeHistory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._index, self._history = ReplicaIndex(), ChangeHistory()
        for tp, state in self.partitions():
            self._index.change(tp, None, state)

    # -- changes

    def replay_commit(self, version: int, records: Iterable[Record]) -> None:
        """Replay the records of commit ``version``, or of a snapshot as of that commit.

        Raises:
            LookupError: a record does not fit the image, which is then half replayed.
        """
        for record in records:
            self.replay(record)
        if version != self.version + 1:
            self._history.reset(version)
        self.version = version

    @classmethod
    def from_snapshot(cls, version: int, records: Iterable[Record]) -> "ClusterImage":
        image = cls()
        image.replay_commit(version, records)
        return image

    def replay(self, record: Record) -> None:  # noqa: C901 - one line per kind of record
        match record:
            case ClusterCreated():
                self.cluster_id, self.created_ms = record.cluster_id, record.created_ms
            case ControllerChanged():
                self.controller = ControllerImage(
                    controller_epoch=record.controller_epoch, host=record.host, port=record.port
                )
            case BrokerIdAssigned():
                self.brokers[record.broker_id] = BrokerImage(broker_id=record.broker_id)
            case BrokerRegistered():
                self.brokers[record.broker.broker_id] = record.broker
            case BrokerFenced():
                self._set_fenced(record.broker_id, True)
            case BrokerUnfenced():
                self._set_fenced(record.broker_id, False)
            case BrokerDraining():
                broker = self.brokers[record.broker_id]
                self.brokers[record.broker_id] = replace(broker, draining=record.draining)
            case BrokerRemoved():
                self.brokers.pop(record.broker_id, None)
                self.configs.pop((ResourceType.BROKER, str(record.broker_id)), None)
            case TopicCreated():
                self._create_topic(record)
            case PartitionsAdded():
                self._add_partitions(self.topics[record.topic], record.partitions)
            case PartitionChanged():
                self._change_partition(record)
            case TopicDeleted():
                self._delete_topic(record)
            case RemoteDeleteMarked():
                self.remote_deletes[record.topic_id] = record.time_ms
            case RemoteDeleteFinished():
                self.remote_deletes.pop(record.topic_id, None)
            case ReplicationFactorDeferred():
                self._defer_factor(record)
            case ConfigChanged():
                self._change_config(record)
            case ProducerIdsAllocated():
                self.next_producer_id = record.first_producer_id + record.count
            case _:
                assert_never(record)

    def _set_fenced(self, broker_id: int, fenced: bool) -> None:
        self.brokers[broker_id] = replace(self.brokers[broker_id], fenced=fenced)

    def _create_topic(self, record: TopicCreated) -> None:
        topic = TopicImage(record.topic, record.topic_id, {})
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self._add_partitions(topic, record.partitions)

    def _add_partitions(self, topic: TopicImage, states: Iterable[PartitionImage]) -> None:
        for number, state in enumerate(states, start=len(topic.partitions)):
            topic.partitions[number] = state
            self._changed(TopicPartition(topic.name, number), None, state)

    def _change_partition(self, record: PartitionChanged) -> None:
        partitions = self.topics[record.topic].partitions
        before, partitions[record.partition] = partitions[record.partition], record.state
        self._changed(TopicPartition(record.topic, record.partition), before, record.state)

    def _delete_topic(self, record: TopicDeleted) -> None:
        del self.topics_by_id[record.topic_id]
        topic = self.topics.pop(record.topic)
        self.configs.pop((ResourceType.TOPIC, record.topic), None)
        self.deferred_factors.discard(record.topic)
        for number, state in topic.partitions.items():
            self._changed(TopicPartition(topic.name, number), state, None)

    def _changed(
        self, tp: TopicPartition, before: PartitionImage | None, after: PartitionImage | None
    ) -> None:
        self._index.change(tp, before, after)
        self._touch((tp,))

    def _touch(self, partitions: Iterable[TopicPartition]) -> None:
        self._history.touch(self.version + 1, partitions)

    def _defer_factor(self, record: ReplicationFactorDeferred) -> None:
        if record.deferred:
            self.deferred_factors.add(self.topics[record.topic].name)
        else:
            self.deferred_factors.discard(record.topic)

    def _change_config(self, record: ConfigChanged) -> None:
        if record.resource_type == ResourceType.TOPIC and record.resource_name in self.topics:
            topic = self.topics[record.resource_name]
            self._touch(TopicPartition(topic.name, number) for number in topic.partitions)
        key = (record.resource_type, record.resource_name)
        overrides = self.configs.setdefault(key, {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value
        if not overrides:
            del self.configs[key]

    # -- snapshots

    def snapshot_records(self) -> Iterator[Record]:
        """The records that build this image from an empty one."""
        yield ClusterCreated(cluster_id=self.cluster_id, created_ms=self.created_ms)
        yield ControllerChanged(
            controller_epoch=self.controller.controller_epoch,
            host=self.controller.host,
            port=self.controller.port,
        )
        yield ProducerIdsAllocated(
            broker_id=CONTROLLER_NODE_ID, first_producer_id=0, count=self.next_producer_id
        )
        for broker in self.brokers.values():
            if broker.registered:
                yield BrokerRegistered(broker=broker, clean=True)
            else:
                yield BrokerIdAssigned(broker_id=broker.broker_id)
        for topic in self.topics.values():
            states = tuple(topic.partitions[number] for number in range(len(topic.partitions)))
            yield TopicCreated(topic=topic.name, topic_id=topic.topic_id, partitions=states)
        for name in sorted(self.deferred_factors):
            yield ReplicationFactorDeferred(topic=name, deferred=True)
        for topic_id, time_ms in self.remote_deletes.items():
            yield RemoteDeleteMarked(topic_id=topic_id, time_ms=time_ms)
        for (resource_type, resource_name), overrides in self.configs.items():
            for name, value in overrides.items():
                yield ConfigChanged(
                    resource_type=int(resource_type),
                    resource_name=resource_name,
                    name=name,
                    value=value,
                )

    def copy(self) -> "ClusterImage":
        """An independent copy of this image; the frozen values inside are shared."""
        return ClusterImage.from_snapshot(self.version, self.snapshot_records())

    # -- queries

    @property
    def controller_epoch(self) -> int:
        return self.controller.controller_epoch

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.brokers.get(broker_id)

    def alive_brokers(self) -> list[BrokerImage]:
        """The registered brokers that are not fenced, sorted by id."""
        alive = (b for b in self.brokers.values() if b.registered and not b.fenced)
        return sorted(alive, key=lambda broker: broker.broker_id)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.registered and not broker.fenced

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID | None) -> TopicImage | None:
        """The topic with this id; None for an unknown id and for None."""
        return None if topic_id is None else self.topics_by_id.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """All partitions of all topics."""
        for topic in self.topics.values():
            for number, state in topic.partitions.items():
                yield TopicPartition(topic.name, number), state

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return self._index.size

    def partitions_of(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that have a replica on a broker.  The mapping is live."""
        return self._index.hosted(broker_id)

    def partitions_led_by(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that a broker leads; ``NO_NODE`` gives the offline partitions.  The
        mapping is live."""
        return self._index.led(broker_id)

    def second_replica_counts(self, broker_id: int) -> Mapping[int, int]:
        """The second replicas of the partitions whose preferred leader is a broker.

        Returns:
            How many of these partitions have each broker as their second replica.  Partitions with
            one replica count for ``NO_NODE``.
        """
        return self._index.second_replica_counts(broker_id)

    def touched_after(self, version: int) -> list[TopicPartition] | None:
        """The partitions that were created, changed, configured or deleted after a version.

        Broker settings touch no partition.

        Returns:
            The partitions, each once; None if that is not known any more.
        """
        return self._history.after(version)

    def topic_overrides(self, name: str) -> dict[str, str]:
        """The settings of a topic, by Kafka's names."""
        return dict(self.configs.get((ResourceType.TOPIC, name), {}))

    def broker_overrides(self, broker_id: int | None) -> dict[str, str]:
        """The settings of all brokers, overlaid by those of one broker (None: of no broker)."""
        overrides = dict(self.configs.get((ResourceType.BROKER, ""), {}))
        if broker_id is not None:
            overrides |= self.configs.get((ResourceType.BROKER, str(broker_id)), {})
        return overrides

    # -- invariants

    def check_invariants(self) -> None:
        """Assert the invariants that hold after every record, for tests and repairs."""
        assert {t.topic_id for t in self.topics.values()} == self.topics_by_id.keys()
        for name, topic in self.topics.items():
            assert topic.name == name
            assert list(topic.partitions) == list(range(len(topic.partitions)))
        for tp, state in self.partitions():
            context = (str(tp), state)
            assert len(set(state.replicas)) == len(state.replicas) > 0, context
            assert set(state.isr) <= set(state.replicas), context
            assert set(state.eligible) <= set(state.replicas) - set(state.isr), context
            assert set(state.last_known) <= set(state.replicas), context
            assert {*state.adding, *state.removing} <= set(state.replicas), context
            assert set(state.adding).isdisjoint(state.removing), context
            assert set(state.adding) < set(state.replicas) > set(state.removing), context
            if not state.offline:
                assert state.leader in state.isr, context
                assert set(state.last_known) >= {*state.isr, *state.eligible}, context
        self._index.check_invariants(self.partitions())
        assert all(overrides for overrides in self.configs.values())
        assert self.deferred_factors <= self.topics.keys()
        assert self.remote_deletes.keys().isdisjoint(self.topics_by_id)
        assert self.next_producer_id >= 0
