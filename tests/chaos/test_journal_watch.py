"""The journal on the disk is read once, in order, and what it tells is counted."""

from pathlib import Path
from uuid import UUID

from sparklog.driver.control_plane.journal import CommitHeader, Journal
from sparklog.metadata import (
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    PartitionChanged,
    PartitionImage,
    Record,
    TopicCreated,
    encode_records,
)
from sparklog.storage_backends.local import LocalBackend
from tests.chaos.journal_watch import JournalWatch
from tests.simulation.final_state import JournalCommit

NOBODY = -1


def state(leader: int, *isr: int, eligible: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2, 3), isr=isr, eligible=eligible, last_known=(1, 2, 3), leader=leader
    )


def broker(broker_id: int) -> tuple[Record, ...]:
    image = BrokerImage(broker_id=broker_id, directory_id=UUID(int=broker_id), broker_epoch=1)
    return (
        BrokerIdAssigned(broker_id=broker_id),
        BrokerRegistered(broker=image, clean=True),
        BrokerUnfenced(broker_id=broker_id),
    )


class Writer:
    """A controller, as far as its journal shows."""

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(LocalBackend(folder))
        self._number = 0

    def commit(self, *records: Record) -> None:
        self._number += 1
        header = CommitHeader(
            version=self._number, controller_epoch=1, nonce=str(self._number), time_ms=0
        )
        self._journal.commit(header, encode_records(records))

    def change(self, after: PartitionImage) -> None:
        self.commit(PartitionChanged(topic="t", partition=0, state=after))


def test_every_commit_is_told_once_and_counted(tmp_path: Path) -> None:
    told: list[JournalCommit] = []
    writer, watch = Writer(tmp_path), JournalWatch(tmp_path, told.append)
    writer.commit(*broker(1), *broker(2), *broker(3))
    writer.commit(TopicCreated(topic="t", topic_id=UUID(int=7), partitions=(state(1, 1, 2, 3),)))
    assert watch.is_whole()
    writer.change(state(2, 2, 3))
    assert not watch.is_whole()
    writer.change(state(2, 2, 3, 1))
    assert watch.is_whole()
    writer.change(state(NOBODY, eligible=(3,)))
    assert not watch.is_whole()
    writer.change(state(3, 3))
    writer.change(state(NOBODY))
    writer.change(state(1, 1))
    assert watch.catch_up().version == 8
    assert [commit.number for commit in told] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert watch.counters == {
        "leader_changes": 3,
        "leader_losses": 2,
        "isr_shrinks": 3,
        "isr_expansions": 3,
        "unclean_recoveries": 1,
    }
