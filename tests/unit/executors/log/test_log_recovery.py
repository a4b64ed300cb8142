"""Opening again: after a clean stop, after a crash at any byte, on damaged files."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.recovery import RecoveryReport
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.records.builder import Record, decode_records
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    Desk,
    batch,
    fill,
    first_since,
    headers_of,
    put,
    read_all,
)

SUFFIXES = (".index", ".log", ".stats", ".timeindex")
LOG = f"{PARTITION_DIR}/{0:020d}.log"


@pytest.fixture(params=["memory", "local"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(half=MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path))


def test_a_clean_stop_needs_no_recovery(desk: Desk) -> None:
    log = desk.open()
    log.assign_leader_epoch(2)
    for sequence in range(60):
        data = put(log, sequence, producer_id=4, base_sequence=sequence, leader_epoch=2)
        desk.producers.replay(headers_of(data)[0])
    before = read_all(log)
    bases = [segment.base_offset for segment in log.segments]
    log.close(0)
    assert log.recovery_point == 60
    expected_names = sorted(
        [f"{base:020d}{suffix}" for base in bases for suffix in SUFFIXES]
        + [f"{offset:020d}.snapshot" for offset in [*bases[1:], 60]]
        + ["leader-epoch-checkpoint"]
    )
    assert desk.names() == expected_names
    log = desk.open(clean=True, recovery_point=60)
    assert log.recovery == RecoveryReport()
    assert (log.log_end_offset, log.recovery_point) == (60, 60)
    assert desk.producers.entries[4].last_sequence == 59
    assert log.leader_epochs.latest_epoch == 2
    assert read_all(log) == before
    put(log, 60)
    log.close(0)
    assert desk.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in [*bases[1:], 61]]
    log = desk.open(clean=True)
    assert log.recovery == RecoveryReport()
    log.check_invariants()


def test_an_untouched_log_stops_and_starts_cleanly(desk: Desk) -> None:
    desk.open().close(0)
    log = desk.open(clean=True)
    assert log.recovery == RecoveryReport()
    assert desk.names(".snapshot") == []


@pytest.mark.parametrize("size", [20, 400, 1900])
def test_a_clean_stop_rebuilds_no_index_whatever_the_batch_sizes(desk: Desk, size: int) -> None:
    log = desk.open()
    fill(log, 5, size=size)
    log.close(0)
    assert desk.open(clean=True).recovery == RecoveryReport()


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_byte_loses_nothing_that_was_flushed(seed: int) -> None:
    dice = random.Random(seed)
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    stored: list[Record] = []
    point = 0
    epoch = 0
    for _ in range(4):
        for _ in range(dice.randrange(1, 60)):
            epoch += dice.random() < 0.1
            data = put(
                log,
                *(dice.randrange(100) for _ in range(dice.randrange(1, 4))),
                size=dice.randrange(60),
                leader_epoch=epoch,
                producer_id=5,
                base_sequence=log.log_end_offset,
            )
            desk.producers.replay(headers_of(data)[0])
            stored += decode_records(data)
            if dice.random() < 0.05:
                job = log.start_flush(0, force=dice.random() < 0.5)
                if job is not None:
                    job.run()
                    log.finish_flush(job, 0)
        # The checkpoint of the recovery point may be as old as it likes.
        point = dice.choice([point, log.recovery_point])
        flushed = log.recovery_point
        keep = dice.choice([0, 1, 10, 61, 10**6, dice.randrange(4000)])
        backend.crash(
            lambda path, size: dice.randrange(keep + 1) if keep else 0,  # noqa: B023
            lose_names=dice.random() < 0.5,
        )
        log = desk.open(recovery_point=point)
        end = log.log_end_offset
        assert flushed <= end <= len(stored)
        del stored[end:]
        assert read_all(log) == stored
        log.check_invariants()
        last = desk.producers.entries.get(5)
        assert (last.last_sequence if last else -1) == end - 1
        assert log.leader_epochs.latest_epoch <= epoch
        if end:
            head = log.read(end - 1, 1, end_offset=end).region
            assert head is not None
            written = headers_of(head.read())[0].partition_leader_epoch
            assert log.leader_epochs.epoch_at(end - 1) == written
            epoch = max(epoch, written)


@pytest.mark.parametrize("cut", [0, 1, 60, 61, -30, -1])
def test_a_torn_tail_is_cut_off(desk: Desk, cut: int) -> None:
    log = desk.open()
    stored = b"".join(fill(log, 5))
    torn = put(log, 1, 2, 3)
    kept = cut % len(torn)
    log.close(0, clean=False)
    desk.half.truncate(LOG, len(stored) + kept)
    log = desk.open(recovery_point=5)
    assert log.log_end_offset == 5
    assert log.recovery.bytes_truncated == kept
    assert desk.half.read(LOG) == stored
    again = put(log, 9)
    assert desk.half.read(LOG) == stored + again


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\xff" * 200, b"garbage" * 30])
def test_garbage_behind_the_end_is_cut_off(desk: Desk, tail: bytes) -> None:
    log = desk.open()
    stored = b"".join(fill(log, 3))
    log.close(0, clean=False)
    desk.half.append(LOG, tail)
    log = desk.open()
    assert log.log_end_offset == 3
    assert desk.half.read(LOG) == stored


def test_a_hole_between_segments_ends_the_log(desk: Desk) -> None:
    log = desk.open()
    sizes = [len(data) for data in fill(log, 40)]
    bases = [segment.base_offset for segment in log.segments]
    log.close(0, clean=False)
    # The first segment lost its last batch, whole, and the next one is there.
    desk.half.truncate(LOG, sum(sizes[: bases[1] - 1]))
    log = desk.open()
    assert log.log_end_offset == bases[1] - 1
    assert desk.names(".log") == [f"{0:020d}.log"]
    assert [r.offset for r in read_all(log)] == list(range(bases[1] - 1))


@pytest.mark.parametrize("flushed", [False, True])
def test_holes_between_segments_are_in_order_in_a_compacted_log_once_flushed(
    desk: Desk, flushed: bool
) -> None:
    """Kafka's cleaner leaves such holes; ours does not, so above the recovery point a hole means
    lost records."""
    desk.config = replace(desk.config, cleanup_policy=("compact",))
    log = desk.open()
    sizes = [len(data) for data in fill(log, 40)]
    bases = [segment.base_offset for segment in log.segments]
    log.close(0, clean=False)
    desk.half.truncate(LOG, sum(sizes[: bases[1] - 1]))
    log = desk.open(recovery_point=40 if flushed else 0)
    behind = range(bases[1], 40) if flushed else ()
    assert [r.offset for r in read_all(log)] == [*range(bases[1] - 1), *behind]


def test_indexes_of_a_segment_sealed_at_the_recovery_point_are_not_believed() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 15)
    log.flush(0)
    log.roll(0)
    assert log.flush_due(0)
    # The log file is durable to its end, its indexes never were.
    backend.crash()
    log = desk.open(recovery_point=15)
    assert (log.recovery.segments_recovered, log.log_end_offset) == (2, 15)
    log.check_invariants()
    fill(log, 1)
    job = log.start_flush(0)
    assert job is not None
    job.run()
    log.finish_flush(job, 0)
    backend.crash()
    log = desk.open(recovery_point=16)
    assert (log.recovery.segments_recovered, log.log_end_offset) == (1, 16)
    log.check_invariants()


def test_batches_out_of_order_are_cut_off(desk: Desk) -> None:
    log = desk.open()
    stored = b"".join(fill(log, 3))
    log.close(0, clean=False)
    desk.half.append(LOG, batch(1) + batch(4))
    log = desk.open()
    assert (log.log_end_offset, desk.half.read(LOG)) == (3, stored)


def test_segments_behind_a_torn_one_go_too(desk: Desk) -> None:
    log = desk.open()
    fill(log, 80)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    log.close(0, clean=False)
    second = desk.path(f"{bases[1]:020d}.log")
    raw = bytearray(desk.half.read(second))
    raw[-1] ^= 1
    desk.half.put(second, raw)
    log = desk.open(recovery_point=bases[1] + 1)
    assert log.log_end_offset == bases[2] - 1
    assert desk.names(".log") == [f"{base:020d}.log" for base in bases[:2]]
    assert max(desk.names(".snapshot")) <= f"{log.log_end_offset:020d}.snapshot"
    assert [r.offset for r in read_all(log)] == list(range(log.log_end_offset))
    assert log.recovery.segments_recovered == 1
    put(log, 7)
    log.check_invariants()


@pytest.mark.parametrize("clean", [True, False])
def test_damage_below_the_recovery_point_is_an_error_that_says_where(
    desk: Desk, clean: bool
) -> None:
    log = desk.open()
    sizes = [len(data) for data in fill(log, 8)]
    log.flush(0)
    log.close(0, clean=clean)
    raw = bytearray(desk.half.read(LOG))
    raw[sum(sizes[:5]) + 70] ^= 0x10
    desk.half.put(LOG, raw)
    if clean:
        # A clean start reads the end of the log only, and finds out when its indexes are gone.
        desk.half.delete(desk.path(f"{0:020d}.index"))
    with pytest.raises(CorruptLogError) as damage:
        desk.open(clean=clean, recovery_point=8)
    assert damage.value.path.endswith(LOG)
    assert damage.value.position == sum(sizes[:5])
    assert "CRC" in damage.value.reason
    assert desk.half.read(LOG) == bytes(raw)
    # What lies behind the recovery point may go.
    assert desk.open(recovery_point=5).log_end_offset == 5


@pytest.mark.parametrize("byte", [8, 10, 23, 26])
def test_damage_where_the_last_index_entry_leads_is_an_error_too(desk: Desk, byte: int) -> None:
    log = desk.open()
    fill(log, 59)
    active = log.segments[-1]
    position = active.offset_index.last().position
    log.close(0)
    raw = bytearray(desk.half.read(active.log_path))
    raw[position + byte] ^= 1
    desk.half.put(active.log_path, raw)
    with pytest.raises(CorruptLogError, match=f"{active.log_path} is corrupt at byte {position}"):
        desk.open(clean=True)


def test_a_log_that_lost_flushed_batches_is_an_error(desk: Desk) -> None:
    log = desk.open()
    sizes = [len(data) for data in fill(log, 8)]
    log.close(0)
    desk.half.truncate(LOG, sum(sizes[:6]))
    with pytest.raises(CorruptLogError, match="ends at offset 6 but was flushed up to 8"):
        desk.open(recovery_point=8)
    with pytest.raises(CorruptLogError):
        desk.open(recovery_point=8, clean=True)
    desk.half.delete(LOG)
    with pytest.raises(CorruptLogError, match="no segment is left"):
        desk.open(recovery_point=8)


@pytest.mark.parametrize("clean", [True, False])
def test_a_sealed_segment_that_lost_its_last_batch_is_an_error(desk: Desk, clean: bool) -> None:
    log = desk.open()
    sizes = [len(data) for data in fill(log, 60)]
    second = log.segments[1].base_offset
    log.flush(0)
    log.close(0, clean=clean)
    desk.half.truncate(LOG, sum(sizes[: second - 1]))
    lost = f"ends at offset {second - 1} and the next one begins at {second}"
    with pytest.raises(CorruptLogError, match=lost):
        desk.open(clean=clean, recovery_point=60)


def test_garbage_behind_a_sealed_segment_costs_nothing_that_follows(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    log.close(0, clean=False)
    desk.half.append(LOG, b"rest of a write that failed")
    log = desk.open()
    assert [record.offset for record in read_all(log)] == list(range(60))
    assert log.recovery.bytes_truncated == len(b"rest of a write that failed")


def test_missing_and_damaged_indexes_are_made_anew(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    log.close(0)
    names = desk.names("index")
    before = {name: desk.half.read(desk.path(name)) for name in names}
    for damage in ("missing", "empty", "cut", "zeros", "longer"):
        for name in names:
            raw = before[name]
            damaged = {"cut": raw[:-1], "zeros": bytes(len(raw)), "longer": raw + b"\x7f" * 24}
            desk.half.delete(desk.path(name))
            if damage != "missing":
                desk.half.put(desk.path(name), damaged.get(damage, b""))
        log = desk.open(clean=True)
        # Sealed segments' are looked at when they are used, if only their bytes are wrong.
        assert log.recovery.indexes_rebuilt == (1 if damage == "zeros" else len(names) // 2)
        assert log.recovery.segments_recovered == 0
        assert log.recovery.bytes_truncated == 0
        log.check_invariants()
        log.close(0)
        assert {name: desk.half.read(desk.path(name)) for name in names} == before


@pytest.mark.parametrize("keep", [0, 30, 10**6])
def test_deleted_records_that_a_crash_brings_back_torn_are_no_damage(keep: int) -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(retention_ms=1)
    fill(log, 10)
    log.flush(0)
    fill(log, 50)
    log.delete_old_segments(10**6, 60)
    point, start = log.recovery_point, log.log_start_offset
    assert (point, start) == (60, 60)
    # The checkpoints were written, the directory's names were not flushed.
    backend.crash(keep, lose_names=True)
    log = desk.open(recovery_point=point, log_start_offset=start)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (60, 60, 0)
    put(log, 1)
    assert [record.offset for record in read_all(log)] == [60]
    log.check_invariants()


def test_damage_in_segments_below_the_log_start_is_no_damage(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    log.flush(0)
    second = log.segments[1].base_offset
    log.close(0, clean=False)
    desk.half.truncate(LOG, 100)
    desk.half.delete(desk.path(f"{0:020d}.index"))
    with pytest.raises(CorruptLogError):
        desk.open(recovery_point=60)
    log = desk.open(recovery_point=60, log_start_offset=second)
    assert [record.offset for record in read_all(log)] == list(range(second, 60))
    assert log.segments[0].base_offset == second


def test_a_log_start_behind_the_end_starts_over(desk: Desk) -> None:
    log = desk.open()
    fill(log, 3)
    log.close(0, clean=False)
    log = desk.open(log_start_offset=50)
    state = (log.log_start_offset, log.log_end_offset, log.recovery_point)
    assert state == (50, 50, 50)
    assert desk.names(".log") == [f"{50:020d}.log"]


def test_a_new_directory_does_not_believe_an_old_checkpoint(desk: Desk) -> None:
    log = desk.open(recovery_point=99)
    assert (log.log_end_offset, log.recovery_point) == (0, 0)


def test_a_store_that_fails_while_opening_is_an_error_and_leaves_the_log_as_it_was() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    stored = b"".join(fill(log, 60))
    log.close(0, clean=False)
    for operation in ("list", "size", "open", "read", "writev", "make_folder"):
        backend.faults.fail_next(operation=operation)
        with pytest.raises(StorageError):
            desk.open()
        backend.faults.clear()
    assert read_all(desk.open()) == decode_records(stored)
    backend.faults.read_only = True
    with pytest.raises(StorageError, match="read-only"):
        desk.open()


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_damaged_log_files_give_a_prefix_or_an_error(data: st.DataObject) -> None:
    desk = Desk()
    log = desk.open()
    stored = fill(log, 30)
    point = data.draw(st.integers(0, 30))
    clean = data.draw(st.booleans())
    log.close(0, clean=clean)
    names = desk.names()
    for _ in range(data.draw(st.integers(1, 3))):
        path = desk.path(data.draw(st.sampled_from(names)))
        raw = bytearray(desk.half.read(path))
        if not raw:
            continue
        start = data.draw(st.integers(0, len(raw) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=80))
        raw[start : start + len(noise)] = noise
        desk.half.put(path, raw[: data.draw(st.integers(start, len(raw) + 40))])
    try:
        log = desk.open(clean=clean, recovery_point=point)
    except CorruptLogError:
        return
    assert log.log_end_offset >= point
    if not clean and point == 0:
        records = read_all(log)
        assert records == decode_records(b"".join(stored[: log.log_end_offset]))
        log.check_invariants()


def test_recovery_reads_what_lies_behind_the_recovery_point_however_long_the_log() -> None:
    scanned = {}
    for batches in (100, 1000):
        backend = MemoryBackend()
        desk = Desk(half=backend)
        log = desk.open()
        fill(log, batches)
        log.flush(0)
        fill(log, 30)
        sizes = [segment.size for segment in log.segments if segment.next_offset > batches]
        backend.crash(keep_unflushed=1 << 30)
        log = desk.open(recovery_point=batches)
        scanned[batches] = log.recovery.bytes_scanned
        assert log.recovery.bytes_scanned == sum(sizes)
        assert log.log_end_offset == batches + 30
        assert log.recovery.batches_replayed < 60
    assert scanned[1000] < 1.5 * scanned[100]


@pytest.mark.parametrize("by_time", [False, True])
def test_damage_that_is_met_while_reading_is_an_error_that_says_where_and_appends_go_on(
    by_time: bool,
) -> None:
    desk = Desk()
    log = desk.open(segment_bytes=1 << 20)
    sizes = [len(data) for data in fill(log, 30)]
    log.flush(0)
    desk.files.close()
    raw = bytearray(desk.half.read(LOG))
    at = sum(sizes[:20])
    raw[at + 8 : at + 12] = b"\x7f\0\0\0"  # the length of a batch
    desk.half.put(LOG, raw)
    meet = partial(first_since, log, 20) if by_time else partial(log.read, 20, 1, end_offset=30)
    with pytest.raises(CorruptLogError, match="batch length") as damage:
        meet()
    assert (damage.value.path.endswith(LOG), damage.value.position) == (True, at)
    assert desk.half.read(LOG) == bytes(raw)
    assert log.offline is None
    put(log, 30)
    assert [record.offset for record in read_all(log, start=30)] == [30]


def test_a_log_that_begins_behind_its_end_is_never_without_a_segment() -> None:
    """Were it, the next start would take it for a lost one."""
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 3)
    log.close(0)
    backend.faults.fail_next(under="00000000000000000010")
    with pytest.raises(StorageError):
        desk.open(log_start_offset=10)
    assert desk.names(".log")
    log = desk.open(log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert desk.names(".log") == ["00000000000000000010.log"]
