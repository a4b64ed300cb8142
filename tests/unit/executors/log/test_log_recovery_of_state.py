"""What recovery brings back beside records: producers and leader epochs."""

from pathlib import Path

import pytest

from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import PARTITION_DIR, Desk, headers_of, put

LOG = f"{PARTITION_DIR}/{0:020d}.log"


@pytest.fixture(params=["memory", "local"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(half=MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path))


def test_producers_come_back_from_the_last_whole_snapshot_and_what_follows(desk: Desk) -> None:
    log = desk.open()
    for sequence in range(70):
        data = put(log, 1, producer_id=9, base_sequence=sequence)
        desk.producers.replay(headers_of(data)[0])
    bases = [segment.base_offset for segment in log.segments]
    log.close(0, clean=False)
    log = desk.open()
    assert log.recovery.batches_replayed == 70 - bases[-1]
    assert desk.producers.entries[9].last_sequence == 69
    # A torn one is recognised, the one before it serves, and it is made anew.
    newest = desk.path(f"{bases[-1]:020d}.snapshot")
    desk.half.truncate(newest, desk.half.size(newest) - 1)
    log = desk.open()
    assert log.recovery.batches_replayed == 70 - bases[-2]
    assert desk.producers.entries[9].last_sequence == 69
    assert desk.open().recovery.batches_replayed == 70 - bases[-1]
    for name in desk.names(".snapshot"):
        desk.half.delete(desk.path(name))
    assert desk.open().recovery.batches_replayed == 70
    assert desk.producers.entries[9].last_sequence == 69


def test_producers_survive_a_lost_snapshot_and_the_deletion_of_what_it_stood_for(
    desk: Desk,
) -> None:
    log = desk.open()
    for producer_id, sequence in ((9, 0), (10, 0), (10, 1), (9, 1)):
        log.roll(0)
        data = put(log, 1, producer_id=producer_id, base_sequence=sequence)
        desk.producers.replay(headers_of(data)[0])
    log.close(0, clean=False)
    path = desk.path(f"{3:020d}.snapshot")
    desk.half.truncate(path, desk.half.size(path) - 1)
    log = desk.open()
    log.advance_log_start(3)
    assert log.delete_old_segments(0, 4) == 3
    log.close(0, clean=False)
    desk.open(log_start_offset=3)
    assert {p: e.last_sequence for p, e in desk.producers.entries.items()} == {9: 1, 10: 1}


def test_a_snapshot_from_before_the_first_segment_says_nothing(desk: Desk) -> None:
    log = desk.open()
    for sequence in range(70):
        data = put(log, 1, producer_id=9 if sequence < 40 else 10, base_sequence=sequence)
        desk.producers.replay(headers_of(data)[0])
    bases = [segment.base_offset for segment in log.segments]
    assert bases[1] < 40 < bases[-1]
    log.close(0, clean=False)
    for base in bases[2:]:
        desk.half.delete(desk.path(f"{base:020d}.snapshot"))
    for base in bases[:-1]:
        desk.half.delete(desk.path(f"{base:020d}.log"))
    desk.open()
    assert {p: e.last_sequence for p, e in desk.producers.entries.items()} == {10: 69}


@pytest.mark.parametrize("damage", [None, b"", b"0\n5\n", b"0\n1\n9 9"])
def test_lost_epochs_are_learnt_from_the_log(desk: Desk, damage: bytes | None) -> None:
    log = desk.open()
    for n in range(40):
        put(log, n, leader_epoch=n // 15)
    log.close(0)
    path = desk.path("leader-epoch-checkpoint")
    desk.half.delete(path)
    if damage is not None:
        desk.half.put(path, damage)
    for clean in (True, False):
        log = desk.open(clean=clean)
        assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [
            (0, 0),
            (1, 15),
            (2, 30),
        ]


@pytest.mark.parametrize("clean", [True, False])
def test_the_epochs_of_records_that_a_crash_has_brought_back_are_learnt(
    desk: Desk, clean: bool
) -> None:
    """The epochs were flushed when the log started at 20, the log start was not."""
    log = desk.open()
    for n in range(40):
        put(log, n, leader_epoch=n // 15)
    assert len(log.segments) == 2
    log.leader_epochs.truncate_from_start(20, 40)
    log.close(0)
    for log_start, expected in ((0, [(0, 0), (1, 15), (2, 30)]), (17, [(1, 17), (2, 30)])):
        log = desk.open(log_start_offset=log_start, clean=clean)
        assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == expected


def test_an_epoch_that_began_in_the_lost_tail_is_forgotten(desk: Desk) -> None:
    log = desk.open()
    sizes = [len(put(log, n, leader_epoch=n // 5)) for n in range(10)]
    log.close(0)
    desk.half.truncate(LOG, sum(sizes[:5]))
    log = desk.open()
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [(0, 0)]
