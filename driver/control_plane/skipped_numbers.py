"""The numbers that are skipped when commits at the end of a journal are lost.

Owns: the records after which no epoch and no producer id is used twice, whatever the lost commits
said.  Pure: it reads and writes nothing.  Must not know files, or why commits are lost.

Commits are lost to the repair of a damaged journal, and to a restore from an older copy of it.  In
both cases brokers, clients and the remote_dir may have seen numbers of the lost commits:

* Producer ids continue far beyond every block that a lost commit can have allocated.  Otherwise a
  new producer could get an id whose last sequence numbers are known, and its records would be
  answered as duplicates.
* Brokers get higher epochs, so that each of them counts as stopped uncleanly.
* Every partition gets a higher leader epoch and an empty ISR.  Otherwise a leader epoch could begin
  twice, and a manifest would refuse its new leader.  Partitions that are added later begin there.

The skipped ranges of numbers are generous, because numbers cost nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from sparklog.metadata import (
    BrokerRegistered,
    ClusterImage,
    PartitionChanged,
    PartitionImage,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicImage,
)
from sparklog.types import (
    CONTROLLER_NODE_ID,
    COORDINATOR_PRODUCER_ID_BASE,
    MAX_INT32,
    NO_NODE,
    TopicPartition,
)

#: Controller epochs to skip, in case commits at the end of the journal vanished without a trace.
CONTROLLER_EPOCHS_SKIPPED: Final = 1_000
#: Leader, partition and broker epochs to skip.  One commit raises an epoch by a few.
EPOCHS_SKIPPED: Final = 10_000
#: Producer ids to skip: a million blocks.
PRODUCER_IDS_SKIPPED: Final = 1_000_000_000
#: A number in a lost commit that is further than this above the last good number is itself damaged.
EPOCHS_AHEAD_MAX: Final = 10_000_000
PRODUCER_IDS_AHEAD_MAX: Final = 1_000_000_000_000


def raised_numbers(
    image: ClusterImage, lost: Iterable[Record] = (), *, any_replica_may_be_complete: bool
) -> list[Record]:
    """The records that raise all numbers but the controller epoch.

    No partition has a leader after them.  Its last known replicas are elected once it is known what
    their brokers still have.

    Args:
        image: the cluster before the lost commits.
        lost: the readable records of lost commits.
        any_replica_may_be_complete: whether all replicas of a partition become last known ones;
            otherwise those that counted as complete in ``image``.
    """
    lost = tuple(lost)
    return [
        _skipped_producer_ids(image, lost),
        *_raised_brokers(image, lost),
        *_raised_partitions(image, lost, any_replica_may_be_complete),
    ]


def first_epoch_of_added(topic: TopicImage) -> int:
    """The first leader epoch of partitions that are added to a topic.

    Partitions of these numbers may have been added in lost commits, and the remote_dir may have
    their records under the same topic id.  After epochs were skipped, a higher epoch shows which
    records came first.
    """
    highest = max(state.leader_epoch for state in topic.partitions.values())
    return highest if highest >= EPOCHS_SKIPPED else 0


def raised_controller_epoch(known: int, reported: Iterable[int] = (), *, unread: int = 0) -> int:
    """A controller epoch above the known one and those that lost commits can have had.

    Args:
        known: the last epoch of the journal.
        reported: the epochs that were read in lost commits.
        unread: the number of lost commits that cannot be read.
    """
    last = _highest(known, reported, EPOCHS_AHEAD_MAX)
    return min(last + unread + CONTROLLER_EPOCHS_SKIPPED, MAX_INT32)


def _highest(known: int, reported: Iterable[int], ahead_max: int) -> int:
    """The highest of a known number and the reported ones, ignoring reports that are too high."""
    return max([known, *(number for number in reported if number <= known + ahead_max)])


def _skipped_producer_ids(image: ClusterImage, lost: Iterable[Record]) -> Record:
    first = image.next_producer_id
    given_out = [r.first_producer_id + r.count for r in lost if isinstance(r, ProducerIdsAllocated)]
    last = _highest(first, given_out, PRODUCER_IDS_AHEAD_MAX)
    end = min(last + PRODUCER_IDS_SKIPPED, COORDINATOR_PRODUCER_ID_BASE)
    return ProducerIdsAllocated(
        broker_id=CONTROLLER_NODE_ID, first_producer_id=first, count=end - first
    )


def _raised_brokers(image: ClusterImage, lost: Iterable[Record]) -> Iterator[Record]:
    reported: dict[int, list[int]] = {}
    for record in lost:
        if isinstance(record, BrokerRegistered):
            reported.setdefault(record.broker.broker_id, []).append(record.broker.broker_epoch)
    for broker in image.brokers.values():
        if broker.registered:
            epochs = reported.get(broker.broker_id, ())
            epoch = _highest(broker.broker_epoch, epochs, EPOCHS_AHEAD_MAX) + EPOCHS_SKIPPED
            raised = replace(broker, broker_epoch=epoch, fenced=True)
            yield BrokerRegistered(broker=raised, clean=False)


def _raised_partitions(
    image: ClusterImage, lost: Iterable[Record], any_replica_may_be_complete: bool
) -> Iterator[Record]:
    reported: dict[TopicPartition, list[PartitionImage]] = {}
    for tp, state in _states(lost):
        reported.setdefault(tp, []).append(state)
    for tp, state in image.partitions():
        states = reported.get(tp, ())
        leader = _highest(
            state.leader_epoch, [each.leader_epoch for each in states], EPOCHS_AHEAD_MAX
        )
        partition = _highest(
            state.partition_epoch, [each.partition_epoch for each in states], EPOCHS_AHEAD_MAX
        )
        complete = {*state.isr, *state.eligible, *state.last_known}
        raised = replace(
            state,
            isr=(),
            eligible=(),
            last_known=tuple(sorted(state.replicas if any_replica_may_be_complete else complete)),
            leader=NO_NODE,
            leader_epoch=min(leader + EPOCHS_SKIPPED, MAX_INT32),
            partition_epoch=min(partition + EPOCHS_SKIPPED, MAX_INT32),
        )
        yield PartitionChanged(topic=tp.topic, partition=tp.partition, state=raised)


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
