"""Logs with gaps: batches without records, batches that lack records, other base times."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from sparklog.errors import StorageError
from sparklog.executors.log.dump import BatchDump, FileKind, dump_segment, identify
from sparklog.executors.log.log import Log
from sparklog.executors.log.names import COMPACTED_MARKER, parse_file_name
from sparklog.executors.log.range_repair import (
    DamagedSourceError,
    RangeRepair,
    UnfitBatchError,
    write_pieces,
)
from sparklog.executors.log.segment_scrub import SegmentScrub
from sparklog.executors.log.steps import run_through
from sparklog.segment_files.stats_file import TimestampRange
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.types import OffsetTimestamp, TimestampType
from sparklog.wire.records.batch import DELETE_HORIZON_BIT, HEADER, iter_batches, read_header
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns_decode import decode_columns
from sparklog.wire.records.record_times import record_times
from tests.unit.executors.log.cleaned_logs import clean, compact, swap
from tests.unit.executors.log.log_fixtures import (
    Desk,
    batch,
    first_since,
    headers_of,
    put,
    read_all,
    read_bytes,
    with_largest,
)

#: Batches of four records; the timestamp of a record is ten times its offset.
COUNT, BATCHES = 4, 15
#: Batch 3 (12 to 15) is emptied and goes, batch 5 loses records in front, batch 6 at its end.
KEPT = {0, 1, 2, 3, 5, 6, 9, 22, 23, 24, 25, 40}


def keep(record: Record) -> bool:
    return record.offset in KEPT


def written(
    desk: Desk, timestamp_type: TimestampType = TimestampType.CREATE_TIME, *, large: int = 0
) -> Log:
    """Three sealed segments of five batches each, and an active segment of one."""
    log = desk.open(cleanup_policy=("compact",), segment_bytes=1 << 20)
    log.assign_leader_epoch(0)
    for number in range(BATCHES + 1):
        first = number * COUNT
        data = batch(
            first,
            [10 * (first + index) for index in range(COUNT)],
            size=20 + large,
            timestamp_type=timestamp_type,
        )
        log.append([data], headers_of(data), 0)
        if number % 5 == 4:
            log.roll(0)
    log.flush(0)
    return log


def cleaned(desk: Desk, timestamp_type: TimestampType = TimestampType.CREATE_TIME) -> Log:
    log = written(desk, timestamp_type)
    compact(log, desk.half, keep)
    return log


EXPECTED = [*sorted(KEPT), *range(60, 64)]
#: Base offset, last offset and count of the batches that stay.
STAY = [
    (0, 3, 4),
    (4, 7, 2),
    (8, 11, 1),
    (20, 23, 2),
    (24, 27, 2),
    (40, 43, 1),
    (56, 59, 0),
    (60, 63, 4),
]


def spans(log: Log) -> list[tuple[int, int, int]]:
    headers = [header for data in read_bytes(log) for header in headers_of(data)]
    return [(each.base_offset, each.last_offset, each.record_count) for each in headers]


def test_a_fetch_in_a_gap_begins_with_the_next_batch() -> None:
    log = cleaned(Desk())
    assert spans(log) == STAY
    firsts = []
    for offset in range(64):
        found = log.read(offset, 1, end_offset=64)
        assert found.region is not None
        firsts.append(found.first_offset)
        found.region.release()
    following = [next(first for first, last, _ in STAY if last >= at) for at in range(64)]
    assert firsts == following


def test_a_read_may_skip_segments_of_which_no_record_is_left() -> None:
    """librdkafka reports MSG_SIZE_TOO_LARGE after eleven answers without a record."""

    def first_offset(offset: int, end_offset: int, *, skip_emptied: bool = True) -> int:
        found = log.read(offset, 1 << 20, end_offset=end_offset, skip_emptied=skip_emptied)
        assert found.region is not None
        found.region.release()
        return found.first_offset

    desk = Desk()
    log = written(desk)
    for segment in log.segments[:-1]:
        assert swap(log, clean(desk.half, [segment]))
    assert [first for first, _, count in spans(log) if not count] == [16, 36, 56]
    assert first_offset(0, 64) == first_offset(40, 64) == 60
    assert first_offset(0, 60) == 56  # so that the reader's position moves
    assert first_offset(0, 40) == 36
    assert first_offset(0, 64, skip_emptied=False) == 16


def test_a_read_does_not_skip_a_batch_because_of_its_size() -> None:
    log = cleaned(Desk())
    for offset in range(64):
        plain, skipping = (
            log.read(offset, 1 << 20, end_offset=64, skip_emptied=skip) for skip in (False, True)
        )
        assert plain.region is not None
        assert skipping.region is not None
        is_emptied = 44 <= offset < 60
        assert skipping.first_offset == (60 if is_emptied else plain.first_offset)
        plain.region.release()
        skipping.region.release()


@pytest.mark.parametrize("max_bytes", [1, 61, 100, 200, 1 << 20])
def test_a_small_read_skips_no_record_behind_an_emptied_batch(max_bytes: int) -> None:
    """Emptied batches stand before others of their segment too: the first of a leader epoch."""
    desk = Desk()
    log = written(desk)
    emptied = (0, 16, 20, 24, 52)
    group = clean(
        *(desk.half, log.segments[:-1]),
        keep=lambda record: record.offset in KEPT and record.offset > 3,
        keep_batch=lambda header: header.base_offset in emptied,
    )
    assert swap(log, group)
    assert [count for _, _, count in spans(log)[:3]] == [0, 2, 1]
    with_records = [first for first, _, count in spans(log) if count]
    offset, seen = 0, []
    while offset < 64:
        found = log.read(offset, max_bytes, end_offset=64, skip_emptied=True)
        assert found.region is not None
        for header in headers_of(found.region.read()):
            seen += [header.base_offset] if header.record_count else []
            offset = header.next_offset
        found.region.release()
    assert seen == with_records


@pytest.mark.parametrize("clean_stop", [False, True])
@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("point", [0, 30, 64])
def test_a_log_with_gaps_opens_after_a_crash_and_after_a_stop(
    clean_stop: bool, policy: str, point: int
) -> None:
    desk = Desk()
    log = cleaned(desk)
    log.close(0, clean=clean_stop)
    log = desk.open(clean=clean_stop, recovery_point=point, cleanup_policy=(policy,))
    assert [record.offset for record in read_all(log)] == EXPECTED
    assert log.log_end_offset == 64
    assert log.leader_epochs.epoch_at(30) == 0
    log.check_invariants()


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("in_one_write", [False, True])
def test_a_follower_may_crash_behind_a_gap_under_any_policy(
    policy: str, in_one_write: bool
) -> None:
    desk = Desk()
    log = desk.open(cleanup_policy=(policy,))
    batches = [batch(offset, (offset,)) for offset in (0, 1, 10, 11)]
    for written in [batches] if in_one_write else [[data] for data in batches]:
        log.append(written, [header for data in written for header in headers_of(data)], 0)
    log = desk.open(cleanup_policy=("delete",))
    assert [record.offset for record in read_all(log)] == [0, 1, 10, 11]
    assert log.recovery.bytes_truncated == 0


def test_a_compacted_log_without_the_marker_gets_it_at_a_start() -> None:
    """Kafka writes none, and the topic may leave ``compact`` before the next start."""
    desk = Desk()
    cleaned(desk).close(0, clean=False)
    desk.half.delete(desk.path(COMPACTED_MARKER))
    assert desk.open(cleanup_policy=("compact",)).gaps.is_set
    log = desk.open(cleanup_policy=("delete",))
    assert [record.offset for record in read_all(log)] == EXPECTED
    assert log.gaps.is_set


def test_a_gap_is_damage_in_a_log_that_was_never_compacted() -> None:
    desk = Desk()
    log = desk.open()
    put(log, 0)
    put(log, 1)
    assert COMPACTED_MARKER not in desk.names()
    path = log.segments[0].log_path
    moved = batch(7, (7,))
    handle = desk.half.open(path)
    handle.overwrite(handle.size() - len(moved), moved)
    handle.close()
    assert desk.open().log_end_offset == 1


@pytest.mark.parametrize("operation", ["put", "rename"])
def test_the_marker_is_there_before_the_first_gap(operation: Operation) -> None:
    half = MemoryBackend()
    desk = Desk(half=half)
    log = written(desk)
    group = clean(half, log.segments[:-1], keep)
    half.faults.fail_next(1, operation=operation)
    with pytest.raises(StorageError):
        swap(log, group)
    assert (COMPACTED_MARKER in desk.names()) == (operation == "rename")
    assert [record.offset for record in read_all(log)] == list(range(64))


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_times_are_looked_up_among_the_records_that_are_left(
    timestamp_type: TimestampType,
) -> None:
    log = cleaned(Desk(), timestamp_type)
    records = read_all(log)
    for timestamp in range(0, 640, 5):
        wanted = next((r for r in records if r.timestamp >= timestamp), None)
        found = first_since(log, timestamp)
        assert (found and found.offset) == (wanted and wanted.offset), timestamp
    largest = max(records, key=lambda record: record.timestamp)
    assert with_largest(log) == OffsetTimestamp(
        offset=largest.offset, timestamp=largest.timestamp, leader_epoch=0
    )


def test_the_largest_timestamp_is_that_of_a_record() -> None:
    """The emptied batch at the end still has its largest timestamp, and no record has it."""
    desk = Desk()
    log = written(desk)
    log.truncate_to(60, 0)
    log.roll(0)
    compact(log, desk.half, keep)
    found = with_largest(log)
    assert found is not None
    assert (found.offset, found.timestamp) == (40, 400)


def test_statistics_describe_the_records_that_are_left() -> None:
    desk = Desk()
    log = cleaned(desk)
    log.statistics.measure_pending()
    found = run_through(log.statistics.ranges(0, 60))
    records = [record for record in read_all(log) if record.offset < 60]
    for each in found:
        times = [r.timestamp for r in records if each.first_offset <= r.offset < each.end_offset]
        assert each == TimestampRange(each.first_offset, each.end_offset, min(times), max(times))
    assert (found[0].first_offset, found[-1].end_offset) == (0, 60)
    covered = {offset for each in found for offset in range(each.first_offset, each.end_offset)}
    assert covered == set(range(60))
    log.close(0)
    again = desk.open(clean=True)
    assert run_through(again.statistics.ranges(0, 60)) == found


def test_a_segment_without_any_record_has_no_ranges() -> None:
    desk = Desk()
    log = written(desk)
    compact(log, desk.half)
    log.statistics.measure_pending()
    assert run_through(log.statistics.ranges(0, 60)) == []
    assert spans(log) == [(56, 59, 0), (60, 63, 4)]
    log.close(0)
    again = desk.open(clean=True)
    assert [record.offset for record in read_all(again)] == [60, 61, 62, 63]
    again.check_invariants()


def test_a_truncation_in_a_gap_ends_behind_the_batch_before() -> None:
    log = cleaned(Desk())
    assert log.truncate_to(50, 0)
    assert (log.log_end_offset, log.recovery_point) == (44, 44)
    data = batch(50, (500,))
    log.append([data], headers_of(data), 0)
    assert spans(log)[-2:] == [(40, 43, 1), (50, 50, 1)]
    log.check_invariants()


def test_a_dump_shows_the_batches_as_they_are() -> None:
    desk = Desk()
    log = cleaned(desk)
    dumped = list(dump_segment(desk.half.open(log.segments[0].log_path)))
    assert [
        (each.base_offset, each.last_offset, each.count, each.crc_valid)
        for each in dumped
        if isinstance(each, BatchDump)
    ] == [(*each, True) for each in STAY[:-1]]


def test_a_dump_knows_the_files_of_a_cleaning() -> None:
    name = f"{42:020d}.log"
    assert parse_file_name(name) == (42, ".log")
    for suffix in ("", ".cleaned", ".swap", ".deleted"):
        assert identify(name + suffix) == (FileKind.SEGMENT, 42)


# scrub and repair


def scrubbed(log: Log) -> SegmentScrub:
    segment = log.segments[0]
    scrub = SegmentScrub(
        segment.files_at_rest(), epochs=log.leader_epochs.entries, end_offset=segment.next_offset
    )
    while scrub.check_more():
        pass
    return scrub


def damage_batch(desk: Desk, log: Log, number: int) -> None:
    """Flip a byte that the checksum of a batch covers."""
    path = log.segments[0].log_path
    raw = bytearray(desk.half.read(path))
    raw[[start for _, start in iter_batches(raw)][number] + 40] ^= 1
    log.segments[0].close()
    handle = desk.half.open(path)
    handle.overwrite(0, raw)
    handle.close()


def test_gaps_are_no_damage() -> None:
    log = cleaned(Desk())
    assert scrubbed(log).found == []


@pytest.mark.parametrize("number", range(7))
def test_a_damaged_batch_between_gaps_is_mended_by_a_replica_that_was_cleaned_alike(
    number: int,
) -> None:
    desk = Desk()
    log = cleaned(desk)
    whole = desk.half.read(log.segments[0].log_path)
    damage_batch(desk, log, number)
    (damaged,) = scrubbed(log).found
    repair = RangeRepair(damaged, log.leader_epochs.entries, compacted=True)
    starts = {header.next_offset: start for header, start in iter_batches(whole)}
    first = next(starts[end] for end in starts if end > damaged.first_offset)
    assert repair.take(whole[first:])
    assert repair.complete
    files = log.segments[0].files_at_rest()
    assert write_pieces(files, repair.pieces, log.leader_epochs.entries, compacted=True) > 0
    assert desk.half.read(log.segments[0].log_path) == whole


@pytest.mark.parametrize("compacted", [False, True])
def test_a_replica_that_was_cleaned_differently_does_not_fit_and_is_not_damaged(
    compacted: bool,
) -> None:
    desk = Desk()
    log = cleaned(desk)
    damage_batch(desk, log, 2)
    (damaged,) = scrubbed(log).found
    assert damaged.first_offset == 8
    repair = RangeRepair(damaged, log.leader_epochs.entries, compacted=compacted)
    with pytest.raises(UnfitBatchError if compacted else DamagedSourceError):
        repair.take(batch(20, (200, 210, 220, 230)))
    less_cleaned = RangeRepair(damaged, log.leader_epochs.entries, compacted=compacted)
    with pytest.raises(UnfitBatchError):
        less_cleaned.take(batch(8, (80, 90, 100, 110), size=200))


# delete horizon


def with_horizon(data: bytes, horizon_ms: int = 10_000) -> bytes:
    """The batch with a delete horizon: it takes the place of the base timestamp (KIP-534), so the
    deltas of the records become negative."""
    header = read_header(data)
    records = decode_records(data)
    if header.record_count == 0 or header.is_control:
        return data
    # encode_batch takes the first record's timestamp as the base.
    first = replace(records[0], timestamp=horizon_ms)
    probe = encode_batch(
        [first, *records],
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        timestamp_type=header.timestamp_type,
        leader_epoch=header.partition_leader_epoch,
    )
    packed = probe[61:]
    length = packed[0] // 2 + 1  # the first record is short: its length has one byte
    rest = packed[length:]
    fields = list(HEADER.unpack_from(probe))
    fields[1] = 49 + len(rest)
    fields[5] |= DELETE_HORIZON_BIT
    fields[8], fields[12] = header.max_timestamp, len(records)
    whole = bytearray(HEADER.pack(*fields) + rest)
    struct.pack_into(">I", whole, 17, crc32c(whole[21:]))
    return bytes(whole)


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_a_delete_horizon_in_place_of_the_base_timestamp_moves_no_timestamp(
    timestamp_type: TimestampType,
) -> None:
    desk = Desk()
    log = written(desk, timestamp_type)
    before = [record for record in read_all(log) if keep(record) or record.offset >= 60]
    group = clean(desk.half, log.segments[:-1], keep, rewrite=with_horizon)
    assert swap(log, group)
    batches = list(read_bytes(log))
    headers = [header for data in batches for header in headers_of(data)]
    assert [h.has_delete_horizon for h in headers] == [True] * 6 + [False, False]
    assert read_all(log) == before
    data = b"".join(batches)
    columns = list(decode_columns(data, start_offset=0, end_offset=64))
    times = [t for part in columns for t in part["timestamp"].cast("int64").to_pylist()]
    assert times == [record.timestamp * 1000 for record in before]
    measured = record_times(
        [(h, part) for part in batches for h in headers_of(part) if h.record_count]
    )
    assert [pair and pair[1] for pair in measured] == [
        max(r.timestamp for r in before if h.base_offset <= r.offset <= h.last_offset)
        for h in headers
        if h.record_count
    ]
    for timestamp in range(0, 640, 10):
        wanted = next((r for r in before if r.timestamp >= timestamp), None)
        found = first_since(log, timestamp)
        assert (found and found.offset) == (wanted and wanted.offset), timestamp
    log.statistics.measure_pending()
    ranges = run_through(log.statistics.ranges(0, 60))
    assert max(each.highest for each in ranges) < 10_000
    put(log, 700)
