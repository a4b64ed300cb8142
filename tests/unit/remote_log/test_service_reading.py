"""Reads through the service, by leaders and by brokers whose manifest is old."""

from pathlib import Path

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.remote_log import names
from sparklog.remote_log.chunk_cache import FilePiece
from sparklog.remote_log.damaged_object import GoneObjectError
from sparklog.remote_log.leader_epochs import epochs_between
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.service import RemoteLogService, RemoteLogState
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.types import NO_OFFSET
from sparklog.wire.records.record_search import SearchBudget
from tests.unit.executors.log.log_fixtures import PARTITION_DIR, Desk, read_all
from tests.unit.remote_log.remote_fixtures import local_read
from tests.unit.remote_log.service_fixtures import (
    PARTITION,
    SEGMENTS,
    TieredLog,
    copied,
    leader_log,
    leading,
    service_of,
    tiered_log,
)


@pytest.fixture(params=["memory", "folder"])
def tiered(request: pytest.FixtureRequest, tmp_path: Path) -> TieredLog:
    """A real log that was copied, in memory or in folders."""
    if request.param == "memory":
        return tiered_log(MemoryBackend(), Desk())
    return tiered_log(LocalBackend(tmp_path / "bucket"), Desk(half=LocalBackend(tmp_path / "log")))


@pytest.fixture
def in_memory() -> TieredLog:
    return tiered_log(MemoryBackend(), Desk())


def delete_objects(tiered: TieredLog, segment: RemoteSegment) -> None:
    for path in names.objects(SEGMENTS, segment.segment_id):
        tiered.store.delete(path)


def records_of(tiered: TieredLog) -> list[tuple[int, int]]:
    """The offsets and timestamps of all records that were copied."""
    log = tiered.rich.log
    return [(each.offset, each.timestamp) for each in read_all(log) if each.offset < tiered.end]


# -- what is read


def test_every_offset_reads_as_in_the_local_log(tiered: TieredLog) -> None:
    for service in (tiered.service, service_of(tiered.store)):
        for segment in tiered.segments:
            for offset in range(segment.base_offset, segment.next_offset):
                for size in (1, 300, 10**6):
                    found = service.read(PARTITION, offset, size, with_aborted=True)
                    assert found == local_read(
                        tiered.rich.log, offset, size, end_offset=segment.next_offset, min_one=True
                    )


def test_aborted_transactions_are_read_on_demand(in_memory: TieredLog) -> None:
    found = in_memory.service.read(PARTITION, 0, 10**6, with_aborted=False)
    assert found.aborted == ()
    assert in_memory.service.read(PARTITION, 0, 10**6, with_aborted=True).aborted != ()


@pytest.mark.parametrize("offset", [-1, 10**6])
def test_offsets_outside_the_segments_are_out_of_range(in_memory: TieredLog, offset: int) -> None:
    with pytest.raises(KafkaError) as refusal:
        in_memory.service.read(PARTITION, offset, 1, with_aborted=False)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert str(refusal.value).endswith(
        f"no segment of {PARTITION.topic_id}-0 in {in_memory.store.url} holds offset {offset}"
    )


def test_offsets_below_the_log_start_are_out_of_range(in_memory: TieredLog) -> None:
    start = in_memory.segments[1].base_offset + 1
    in_memory.service.move_log_start(PARTITION, 9, start, 0)
    for service in (in_memory.service, service_of(in_memory.store)):
        assert service.read(PARTITION, start, 1, with_aborted=False).next_offset > start
        for offset in (0, start - 1):
            with pytest.raises(KafkaError, match=f"holds offset {offset}"):
                service.read(PARTITION, offset, 1, with_aborted=False)


def test_several_reads_follow_each_other(in_memory: TieredLog) -> None:
    service, end = in_memory.service, in_memory.end
    expected = []
    offset = 0
    while offset < end:
        expected.append(service.read(PARTITION, offset, 300, with_aborted=True))
        offset = expected[-1].next_offset
    third = expected[2].next_offset
    for offsets, count, found in (
        (range(end), 1000, expected),
        (range(end + 100), 1000, expected),  # what is not there is no error of what is
        (range(end), 3, expected[:3]),
        (range(third), 1000, expected[:3]),
    ):
        read = service.read_several(PARTITION, offsets, 300, count, with_aborted=True)
        assert read == found, (offsets, count)
    # No batch begins at or above the end, behind which the leader may have other records.
    last = expected[2]
    *before, cut = service.read_several(PARTITION, range(third - 1), 300, 1000, with_aborted=True)
    assert before == expected[:2]
    assert last.first_offset < cut.next_offset < third
    assert last.data.startswith(cut.data)
    with pytest.raises(StorageError, match=r"the batch at offset 0 in segment .* ends above 0"):
        service.read_several(PARTITION, range(0), 300, 5, with_aborted=True)


def test_an_error_counts_where_it_is_asked_for(in_memory: TieredLog) -> None:
    first, second = in_memory.segments[:2]
    delete_objects(in_memory, second)
    offsets = range(first.base_offset, second.next_offset)
    found = in_memory.service.read_several(PARTITION, offsets, 300, 1000, with_aborted=False)
    assert found[-1].next_offset == second.base_offset
    with pytest.raises(GoneObjectError):
        in_memory.service.read_several(
            PARTITION, offsets[second.base_offset :], 300, 2, with_aborted=False
        )


def test_who_takes_files_is_told_where_they_are(in_memory: TieredLog) -> None:
    asked: list[tuple[str, int, int]] = []
    cached = True

    def find_pieces(path: str, offset: int, size: int) -> list[FilePiece]:
        asked.append((path, offset, size))
        return [FilePiece("file", offset, size)] if cached else []

    service = service_of(in_memory.store, find_pieces=find_pieces)
    segment = in_memory.segments[1]
    offset = segment.base_offset + 3
    plain = service.read(PARTITION, offset, 300, with_aborted=True)
    found = service.read(PARTITION, offset, 300, with_aborted=True, takes_files=True)
    [piece] = found.pieces
    assert found == plain._replace(data=b"", pieces=(piece,))
    path = names.log_object(SEGMENTS, segment.segment_id)
    assert in_memory.store.read(path, piece.position, piece.size) == plain.data
    assert asked == [(path, piece.position, piece.size)]
    cached = False
    assert service.read(PARTITION, offset, 300, with_aborted=True, takes_files=True) == plain


@pytest.mark.parametrize("window_bytes", [100, 10**6])
def test_several_reads_that_take_files_are_those_that_do_not(
    in_memory: TieredLog, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr("sparklog.remote_log.batch_walk.WINDOW_BYTES", window_bytes)
    cached: set[str] = set()

    def find_pieces(path: str, offset: int, size: int) -> list[FilePiece]:
        return [FilePiece(path, offset, size)] if path in cached else []

    service = service_of(in_memory.store, find_pieces=find_pieces)
    offsets = range(1, in_memory.end)
    plain = service.read_several(PARTITION, offsets, 300, 1000, with_aborted=True)
    half = [names.log_object(SEGMENTS, each.segment_id) for each in in_memory.segments[::2]]
    cached.update(half)
    found = service.read_several(PARTITION, offsets, 300, 1000, with_aborted=True, takes_files=True)
    assert {piece.name for read in found for piece in read.pieces} == cached
    read_back = [
        read._replace(
            data=read.data + b"".join(in_memory.store.read(*piece) for piece in read.pieces),
            pieces=(),
        )
        for read in found
    ]
    assert read_back == plain


def test_reads_go_through_the_cache_with_the_sizes_of_the_objects(in_memory: TieredLog) -> None:
    sizes: dict[str, int] = {}

    def read(path: str, total: int, offset: int, size: int) -> bytes:
        assert sizes.setdefault(path, total) == total
        return in_memory.store.read(path, offset, size)

    service = service_of(in_memory.store, read=read)
    for segment in in_memory.segments:
        service.read(PARTITION, segment.base_offset, 10**6, with_aborted=True)
        service.follower_state(PARTITION, segment.next_offset)
    assert len(sizes) == 2 * len(in_memory.segments)
    assert sizes == {path: in_memory.store.size(path) for path in sizes}


def test_the_copied_bytes_are_told(in_memory: TieredLog) -> None:
    moved: list[tuple[str, int]] = []
    service = service_of(
        MemoryBackend(),
        in_memory.desk.half,
        moved=lambda job, size: moved.append((job.segment_id, size)),
    )
    job = in_memory.rich.job(in_memory.rich.log.segments[0])
    segment = service.copy(job)
    assert {each for each, _ in moved} == {job.segment_id}
    assert sum(size for _, size in moved) == segment.size


# -- timestamps


def test_records_are_found_by_time_as_in_the_local_log(tiered: TieredLog) -> None:
    """Only the first segment with a late enough timestamp is searched, and those behind it."""
    records = records_of(tiered)
    services = (tiered.service, service_of(tiered.store))
    for start in (0, 1, tiered.segments[2].base_offset + 1, tiered.end - 1, tiered.end):
        for timestamp in (0, 91, 105, 150, 215, 301, 400, 500, 505, 594, 600, 601, 999):
            late = [each for each in records if each[0] >= start and each[1] >= timestamp]
            for service in services:
                found = service.find_timestamp(PARTITION, timestamp, start)
                got = None if found is None else (found.offset, found.timestamp)
                assert got == (late[0] if late else None), (start, timestamp)


def test_a_search_has_one_budget_for_all_segments(
    in_memory: TieredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[SearchBudget] = []

    def new_budget() -> SearchBudget:
        budgets.append(SearchBudget())
        return budgets[-1]

    monkeypatch.setattr("sparklog.remote_log.lookups.SearchBudget", new_budget)
    last = in_memory.segments[-1].base_offset
    assert in_memory.service.find_timestamp(PARTITION, 590, last) is not None
    assert len(budgets) == 1


# -- followers


def test_a_follower_starts_at_the_end_of_a_segment(tiered: TieredLog) -> None:
    service = service_of(tiered.store)
    for segment in tiered.segments:
        end = segment.next_offset
        for local_start in range(segment.base_offset + 1, end + 1):
            found = service.follower_state(PARTITION, local_start)
            assert found.offset == end
            assert found.leader_epochs == epochs_between(tiered.leader_epochs, 0, end)
            snapshot = f"{PARTITION_DIR}/{end:020d}.snapshot"
            assert found.producer_snapshot == tiered.desk.half.read(snapshot)


def test_no_follower_starts_where_no_segment_is(in_memory: TieredLog) -> None:
    for local_start in (0, in_memory.end + 1):
        with pytest.raises(KafkaError, match=f"holds offset {local_start - 1}$"):
            in_memory.service.follower_state(PARTITION, local_start)


# -- old manifests


def test_a_broker_reads_the_manifest_again_for_what_it_does_not_know() -> None:
    store = MemoryBackend()
    leader, follower = leading(store, [copied(0, 10)]), service_of(store)
    assert follower.segments_between(PARTITION, 0, 99) == [copied(0, 10)]
    leader.add_segment(PARTITION, copied(10, 20, time=70), 0)
    assert follower.segments_between(PARTITION, 0, 99) == [copied(0, 10)]
    assert follower.state(PARTITION) == RemoteLogState(0, 20, 2, 200, 260)
    assert follower.segments_between(PARTITION, 0, 99) == [
        copied(0, 10),
        copied(10, 20, time=70),
    ]


@pytest.fixture
def growing() -> tuple[TieredLog, RemoteLogService]:
    """A log that was copied further after a broker has read its manifest."""
    tiered = tiered_log(MemoryBackend(), Desk())
    follower = service_of(tiered.store)
    assert follower.state(PARTITION).end_offset == tiered.end
    tiered.rich.put(*range(900, 910))
    tiered.copy_all()
    return tiered, follower


def test_a_read_above_the_known_end(growing: tuple[TieredLog, RemoteLogService]) -> None:
    tiered, follower = growing
    last = tiered.segments[-1]
    found = follower.read(PARTITION, last.base_offset, 10**6, with_aborted=True)
    assert (found.first_offset, found.next_offset) == (last.base_offset, last.next_offset)


def test_a_search_above_the_known_end(growing: tuple[TieredLog, RemoteLogService]) -> None:
    tiered, follower = growing
    found = follower.find_timestamp(PARTITION, 905, 0)
    assert found is not None
    assert (found.offset, found.timestamp) == (tiered.end - 5, 905)


def test_a_follower_above_the_known_end(growing: tuple[TieredLog, RemoteLogService]) -> None:
    tiered, follower = growing
    assert follower.follower_state(PARTITION, tiered.end).offset == tiered.end


def test_a_broker_that_knows_of_a_newer_leader_reads_nothing_that_was_truncated(
    in_memory: TieredLog,
) -> None:
    """The objects of removed segments are still there for hours."""
    follower = service_of(in_memory.store)
    last = in_memory.segments[-1]
    assert follower.read(PARTITION, last.base_offset, 1, with_aborted=False).data
    epochs = tuple(each for each in in_memory.leader_epochs if each.start_offset < last.base_offset)
    log = in_memory.leader_log(log_end_offset=last.base_offset, leader_epochs=epochs)
    service_of(in_memory.store).begin_leadership(PARTITION, 10, "n", log, 0)
    for _ in range(2):
        with pytest.raises(KafkaError, match=f"holds offset {last.base_offset}"):
            follower.read(PARTITION, last.base_offset, 1, with_aborted=False, leader_epoch=10)
        with pytest.raises(KafkaError, match=f"holds offset {last.base_offset}"):
            follower.follower_state(PARTITION, last.base_offset + 1, leader_epoch=10)


def test_a_manifest_that_is_new_enough_is_not_read_again(in_memory: TieredLog) -> None:
    follower = service_of(in_memory.store)
    follower.state(PARTITION)
    manifest = names.manifest_folder(*PARTITION)
    looked: list[Operation] = []

    def look(operation: Operation, path: str) -> None:
        if manifest in path:
            looked.append(operation)

    assert isinstance(in_memory.store, MemoryBackend)
    in_memory.store.faults.slow = look
    for epoch in (-1, 9):
        follower.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=epoch)
    in_memory.service.find_timestamp(PARTITION, 100, 0)
    assert looked == []
    follower.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=10)
    assert looked != []


# -- objects that are gone


def replace_copy(tiered: TieredLog) -> int:
    """Another leader has removed the last segment, copied it again, and deleted the first copy."""
    last = tiered.segments.pop()
    epochs = tuple(each for each in tiered.leader_epochs if each.start_offset < last.base_offset)
    log = tiered.leader_log(log_end_offset=last.base_offset, leader_epochs=epochs)
    tiered.service.begin_leadership(PARTITION, 10, "n", log, 0)
    tiered.copy_all(epoch=11)
    delete_objects(tiered, last)
    return last.base_offset


def test_a_broker_whose_objects_are_gone_reads_the_manifest_again(tiered: TieredLog) -> None:
    readers = [service_of(tiered.store) for _ in range(3)]
    for each in readers:
        each.state(PARTITION)
    base = replace_copy(tiered)
    read = readers[0].read(PARTITION, base, 10**6, with_aborted=True)
    assert (read.first_offset, read.next_offset) == (base, tiered.end)
    assert readers[1].follower_state(PARTITION, base + 1).offset == tiered.end
    found = readers[2].find_timestamp(PARTITION, 0, base)
    assert found is not None
    assert found.offset == base


def test_a_leader_that_was_deposed_finds_the_objects_of_its_successor() -> None:
    tiered = tiered_log(MemoryBackend(), Desk())
    deposed = tiered.service
    tiered.service = service_of(tiered.store, tiered.desk.half)
    base = replace_copy(tiered)
    found = deposed.find_timestamp(PARTITION, 0, base)
    assert found is not None
    assert found.offset == base


def test_objects_that_are_gone_although_the_manifest_names_them(in_memory: TieredLog) -> None:
    last = in_memory.segments[-1]
    delete_objects(in_memory, last)
    for service in (in_memory.service, service_of(in_memory.store)):
        with pytest.raises(GoneObjectError, match=last.segment_id):
            service.read(PARTITION, last.base_offset, 1, with_aborted=False)
        with pytest.raises(GoneObjectError, match=last.segment_id):
            service.follower_state(PARTITION, last.next_offset)
        with pytest.raises(GoneObjectError, match=last.segment_id):
            service.find_timestamp(PARTITION, 0, last.base_offset)


def test_a_manifest_that_cannot_be_read_is_read_by_the_next_call() -> None:
    store = MemoryBackend()
    leading(store, [copied(0, 10)])
    follower = service_of(store)
    store.faults.fail_next(operation="list")
    with pytest.raises(StorageError):
        follower.segments_between(PARTITION, 0, 9)
    assert follower.segments_between(PARTITION, 0, 9) == [copied(0, 10)]


def test_a_leader_whose_takeover_failed_can_read() -> None:
    store = MemoryBackend()
    leading(store, [copied(0, 10)])
    service = service_of(store)
    store.faults.fail_next(operation="list")
    with pytest.raises(StorageError):
        service.begin_leadership(PARTITION, 2, "n", leader_log(10, (1, 0)), 0)
    assert service.segments_between(PARTITION, 0, 9) == [copied(0, 10)]


def test_a_log_that_is_not_tiered_has_no_segments() -> None:
    service = service_of(MemoryBackend())
    assert service.state(PARTITION) == RemoteLogState(NO_OFFSET, NO_OFFSET, 0, 0, 0)
    assert service.find_timestamp(PARTITION, 0, 0) is None
    assert service.segments_between(PARTITION, 0, 9) == []
    with pytest.raises(KafkaError):
        service.read(PARTITION, 0, 1, with_aborted=False)
