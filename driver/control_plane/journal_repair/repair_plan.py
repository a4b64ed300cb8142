"""The repair plan: the commit that makes a damaged journal usable again.

Owns: the records of that commit, chosen so that no epoch, producer id or topic is used twice,
whatever the lost commits said.  Pure: it reads and writes nothing.  Must not know files.

A start from the last good commit must not fall behind what brokers have seen:

* The controller epoch is higher than any that a lost commit can have had.
* Producer ids continue far beyond every block that a lost commit can have allocated.
* Brokers get higher epochs, so that each of them counts as stopped uncleanly.
* Every partition gets a higher leader epoch and an empty ISR: the lost commits may have changed
  which replicas have every acknowledged record.  All replicas are "last known", so the brokers
  report the ends of their logs, and the replica with the best log leads (``unclean_recoveries``).

The skipped ranges of numbers are generous, because numbers cost nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTING_BY_NAME
from sparklog.driver.control_plane.journal_repair.survey import State, Survey
from sparklog.errors import ConfigError, KafkaError
from sparklog.metadata import (
    BrokerIdAssigned,
    BrokerRegistered,
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicDeleted,
)
from sparklog.metadata.topic_names import check_topic_name
from sparklog.types import (
    CONTROLLER_NODE_ID,
    COORDINATOR_PRODUCER_ID_BASE,
    MAX_INT32,
    NO_NODE,
    ResourceType,
    TopicPartition,
)

#: Controller epochs to skip, in case commits at the end of the journal vanished without a trace.
CONTROLLER_EPOCHS_SKIPPED = 1_000
#: Leader, partition and broker epochs to skip.  One commit raises an epoch by a few.
EPOCHS_SKIPPED = 10_000
#: Producer ids to skip: a million blocks.
PRODUCER_IDS_SKIPPED = 1_000_000_000
#: A number in a lost commit that is further than this above the last good number is itself damaged.
EPOCHS_AHEAD_MAX = 10_000_000
PRODUCER_IDS_AHEAD_MAX = 1_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """The commit of a repair.

    ``records`` are those of commit ``version``, by a controller of ``controller_epoch``; ``image``
    is the cluster after them.  ``left_out`` are readable records of lost commits that cannot be
    kept, because they are damaged or depend on state that is not known.
    """

    version: int
    controller_epoch: int
    records: tuple[Record, ...]
    image: ClusterImage
    left_out: tuple[Record, ...] = ()


def plan_repair(survey: Survey, *, keep_readable: bool) -> RepairPlan:
    """Plan the repair of a journal.

    Args:
        survey: the survey of the journal; it must have an image and lost commits.
        keep_readable: keep the topics, settings and registrations of readable lost commits.
    """
    assert survey.image is not None
    draft = _Draft(survey.image)
    seen = [record for lost in survey.lost for record in lost.records]
    for lost in survey.lost:
        if lost.state is State.READABLE:
            draft.keep_registrations(lost.records)
    if keep_readable:
        for lost in survey.lost:
            draft.keep(lost.records, whole=lost.state is State.READABLE)
    epoch = _controller_epoch(survey, seen)
    draft.raise_epochs(epoch, seen)
    version = survey.highest + 1
    image = survey.image.copy()
    image.replay_commit(version, draft.records)
    image.check_invariants()
    return RepairPlan(
        version=version,
        controller_epoch=epoch,
        records=tuple(draft.records),
        image=image,
        left_out=tuple(draft.left_out),
    )


class _Draft:
    """The records of a plan so far, and the image after them."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image.copy()
        self.records: list[Record] = []
        self.left_out: list[Record] = []
        #: Topics that were created in a lost commit, with no unreadable commit since.
        self._whole_topics: set[str] = set()

    def _add(self, record: Record) -> None:
        self.image.replay(record)
        self.records.append(record)

    def keep_registrations(self, records: Iterable[Record]) -> None:
        """Keep the registrations of brokers that the image knows.

        The directory that a broker has registered last is the one that it has now.  ``records``
        must be of an undamaged commit: a changed bit in a directory id would lock the broker out
        for ever.
        """
        for record in records:
            if (
                isinstance(record, BrokerRegistered)
                and record.broker.broker_id in self.image.brokers
                and self._fits(record)
            ):
                self._add(record)

    def keep(self, records: Iterable[Record], *, whole: bool) -> None:
        """Keep the records of one lost commit, unless they depend on unknown state.

        Args:
            whole: whether every record of the commit could be read.
        """
        if not whole:
            self._whole_topics.clear()
        for record in records:
            wanted = self._wanted_record(record)
            if wanted is None:
                continue
            if self._fits(wanted):
                self._add(wanted)
            else:
                self.left_out.append(record)

    def _wanted_record(self, record: Record) -> Record | None:
        """The record to keep; None for kinds of records that are dropped.

        In-sync replicas, leaders, fencing and epochs are decided anew.  A removed broker stays
        registered, because the commits that moved its last replicas may be lost.
        """
        match record:
            case TopicCreated() | TopicDeleted() | ConfigChanged() | PartitionsAdded():
                return record
            case ReplicationFactorDeferred() | RemoteDeleteMarked() | RemoteDeleteFinished():
                return record
            case BrokerIdAssigned() | BrokerRegistered():
                broker_id = (
                    record.broker_id
                    if isinstance(record, BrokerIdAssigned)
                    else record.broker.broker_id
                )
                return record if broker_id not in self.image.brokers else None
            case PartitionChanged():
                return self._with_former_replicas(record)
            case _:
                return None

    def _with_former_replicas(self, record: PartitionChanged) -> PartitionChanged | None:
        """Keep both the former and the new replicas of a partition that a lost commit reassigned.

        Its records are on the new replicas or still on the former ones; the best log leads.
        """
        former = self.image.partition(TopicPartition(record.topic, record.partition))
        if former is None:
            return record  # does not fit
        more = tuple(dict.fromkeys(r for r in record.state.replicas if r not in former.replicas))
        if not more:
            return None
        known = tuple(each for each in more if each in self.image.brokers)
        return replace(record, state=replace(former, replicas=(*former.replicas, *known)))

    def _fits(self, record: Record) -> bool:
        topics = self.image.topics
        match record:
            case TopicCreated():
                fits = (
                    record.topic not in topics
                    and record.topic_id not in self.image.topics_by_id
                    and _is_topic_name(record.topic)
                    and self._are_sound(record.partitions)
                )
                if fits:
                    self._whole_topics.add(record.topic)
                return fits
            case TopicDeleted():
                self._whole_topics.discard(record.topic)
                return record.topic in topics and topics[record.topic].topic_id == record.topic_id
            case RemoteDeleteMarked():
                return record.topic_id not in self.image.topics_by_id
            case PartitionsAdded():
                return record.topic in self._whole_topics and self._are_sound(record.partitions)
            case PartitionChanged():
                return self.image.partition(TopicPartition(record.topic, record.partition)) is not (
                    None
                )
            case ReplicationFactorDeferred():
                return record.topic in topics
            case ConfigChanged():
                return self._has_resource(record) and _is_setting(record)
            case BrokerIdAssigned():
                return CONTROLLER_NODE_ID < record.broker_id <= MAX_INT32
            case BrokerRegistered():
                if not CONTROLLER_NODE_ID < record.broker.broker_id <= MAX_INT32:
                    return False
                directories = {b.broker_id: b.directory_id for b in self.image.brokers.values()}
                directories.pop(record.broker.broker_id, None)
                return record.broker.directory_id not in directories.values()
            case _:
                return True

    def _are_sound(self, partitions: Iterable[PartitionImage]) -> bool:
        """Whether the replicas of each partition are distinct brokers that are known."""
        return all(
            state.replicas
            and len(set(state.replicas)) == len(state.replicas)
            and self.image.brokers.keys() >= set(state.replicas)
            and not (state.adding or state.removing)  # a new partition is not moving
            for state in partitions
        )

    def _has_resource(self, record: ConfigChanged) -> bool:
        """Whether the resource of a setting exists.

        Settings of a missing topic would apply to the next topic of that name.
        """
        if record.resource_type == ResourceType.TOPIC:
            return record.resource_name in self.image.topics
        nodes = ("", *map(str, (CONTROLLER_NODE_ID, *self.image.brokers)))
        return record.resource_type == ResourceType.BROKER and record.resource_name in nodes

    def raise_epochs(self, controller_epoch: int, seen: list[Record]) -> None:
        image = self.image
        self._add(
            ControllerChanged(
                controller_epoch=controller_epoch,
                host=image.controller.host,
                port=image.controller.port,
            )
        )
        first = image.next_producer_id
        given_out = [
            r.first_producer_id + r.count for r in seen if isinstance(r, ProducerIdsAllocated)
        ]
        highest = _highest(first, given_out, PRODUCER_IDS_AHEAD_MAX)
        end = min(highest + PRODUCER_IDS_SKIPPED, COORDINATOR_PRODUCER_ID_BASE)
        self._add(
            ProducerIdsAllocated(
                broker_id=CONTROLLER_NODE_ID, first_producer_id=first, count=end - first
            )
        )
        self._raise_broker_epochs(seen)
        self._raise_leader_epochs(seen)

    def _raise_broker_epochs(self, seen: list[Record]) -> None:
        reported: dict[int, list[int]] = {}
        for record in seen:
            if isinstance(record, BrokerRegistered):
                reported.setdefault(record.broker.broker_id, []).append(record.broker.broker_epoch)
        for broker in list(self.image.brokers.values()):
            if broker.registered:
                epochs = reported.get(broker.broker_id, ())
                epoch = _highest(broker.broker_epoch, epochs, EPOCHS_AHEAD_MAX) + EPOCHS_SKIPPED
                raised = replace(broker, broker_epoch=epoch, fenced=True)
                self._add(BrokerRegistered(broker=raised, clean=False))

    def _raise_leader_epochs(self, seen: list[Record]) -> None:
        reported: dict[TopicPartition, list[PartitionImage]] = {}
        for tp, state in _states(seen):
            reported.setdefault(tp, []).append(state)
        for tp, state in list(self.image.partitions()):
            states = reported.get(tp, ())
            leader = _highest(
                state.leader_epoch, [each.leader_epoch for each in states], EPOCHS_AHEAD_MAX
            )
            partition = _highest(
                state.partition_epoch, [each.partition_epoch for each in states], EPOCHS_AHEAD_MAX
            )
            raised = replace(
                state,
                isr=(),
                eligible=(),
                last_known=tuple(sorted(state.replicas)),
                leader=NO_NODE,
                leader_epoch=min(leader + EPOCHS_SKIPPED, MAX_INT32),
                partition_epoch=min(partition + EPOCHS_SKIPPED, MAX_INT32),
            )
            self._add(PartitionChanged(topic=tp.topic, partition=tp.partition, state=raised))


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _is_setting(record: ConfigChanged) -> bool:
    """Whether nodes can parse the value; with a value that they cannot parse they do not start."""
    is_topic = record.resource_type == ResourceType.TOPIC
    setting = (TOPIC_SETTING_BY_NAME if is_topic else BROKER_SETTING_BY_NAME).get(record.name)
    if record.value is None or setting is None:
        return record.value is None
    try:
        setting.parse(record.value)
    except ConfigError:
        return False
    return True


def _highest(known: int, reported: Iterable[int], ahead_max: int) -> int:
    """The highest of a known number and the reported ones, ignoring reports that are too high."""
    return max([known, *(number for number in reported if number <= known + ahead_max)])


def _controller_epoch(survey: Survey, seen: Iterable[Record]) -> int:
    assert survey.image is not None
    reported = [lost.controller_epoch for lost in survey.lost]
    reported += [
        record.controller_epoch for record in seen if isinstance(record, ControllerChanged)
    ]
    unread = sum(lost.state is not State.READABLE for lost in survey.lost)
    highest = _highest(survey.image.controller_epoch, reported, EPOCHS_AHEAD_MAX)
    return min(highest + unread + CONTROLLER_EPOCHS_SKIPPED, MAX_INT32)


def _states(records: Iterable[Record]) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for record in records:
        match record:
            case PartitionChanged():
                yield TopicPartition(record.topic, record.partition), record.state
            case TopicCreated():
                for number, state in enumerate(record.partitions):
                    yield TopicPartition(record.topic, number), state
            case _:
                pass
