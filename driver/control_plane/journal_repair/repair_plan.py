"""The repair plan: the commit that makes a damaged journal usable again.

Owns: the records of that commit, chosen so that no epoch, producer id or topic is used twice,
whatever the lost commits said.  Pure: it reads and writes nothing.  Must not know files.

A start from the last good commit must not fall behind what brokers have seen: all numbers are
raised (``skipped_numbers``), and the controller epoch is higher than any that a lost commit can
have had.  The lost commits may have changed which replicas have every acknowledged record.  So all
replicas are "last known", the brokers report the ends of their logs, and the replica with the best
log leads (``unclean_recoveries``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTING_BY_NAME
from sparklog.driver.control_plane.journal_repair.survey import State, Survey
from sparklog.driver.control_plane.skipped_numbers import raised_controller_epoch, raised_numbers
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
    MAX_INT32,
    ResourceType,
    TopicPartition,
)


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
        for record in raised_numbers(image, seen, any_replica_may_be_complete=True):
            self._add(record)


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


def _controller_epoch(survey: Survey, seen: Iterable[Record]) -> int:
    assert survey.image is not None
    reported = [lost.controller_epoch for lost in survey.lost]
    reported += [
        record.controller_epoch for record in seen if isinstance(record, ControllerChanged)
    ]
    unread = sum(lost.state is not State.READABLE for lost in survey.lost)
    known = survey.image.controller_epoch
    return raised_controller_epoch(known, reported, unread=unread)
