"""Damage inside a segment: found, served around, repaired from another replica's bytes."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest

from sparklog.errors import CorruptLogError, DamagedRangeError, StorageError
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.log import Log
from sparklog.executors.log.log_damage import READS_IN_A_ROW, Suspicion
from sparklog.executors.log.range_repair import (
    DamagedSourceError,
    RangeRepair,
    UnfitBatchError,
    write_pieces,
)
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_scrub import SegmentScrub
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    SMALL,
    Desk,
    batch,
    fill,
    first_since,
    put,
    read_all,
    read_bytes,
)

LOG = f"{PARTITION_DIR}/{0:020d}.log"


class Damaged:
    """A log of several segments, whose first one can be damaged."""

    def __init__(self, count: int = 60, **config: int) -> None:
        self.desk = Desk(config=replace(SMALL, **config))  # type: ignore[arg-type]
        self.log = self.desk.open()
        self.log.assign_leader_epoch(0)
        self.batches = fill(self.log, count)
        self.log.statistics.measure_pending()
        self.log.flush(0)
        self.segment = self.log.segments[0]
        self.count = self.segment.next_offset
        #: Where each batch of the first segment begins; the last one is its end.
        self.starts = [0, *accumulate(map(len, self.batches[: self.count]))]
        self.original = self.desk.half.read(LOG)

    def overwrite(self, position: int, data: bytes) -> None:
        """As a disk does it: behind the back of everybody."""
        assert isinstance(self.desk.half, MemoryBackend)
        ((_, node),) = list(self.desk.half.files(LOG.rpartition("/")[2]))
        node.data[position : position + len(data)] = data
        node.flushed[position : position + len(data)] = data

    def flip(self, offset: int, byte: int) -> None:
        """Change one byte of the batch at an offset."""
        position = self.starts[offset] + byte
        self.overwrite(position, bytes([self.desk.half.read(LOG)[position] ^ 0x40]))

    def check(self, around: int | None = None, segment: Segment | None = None) -> SegmentScrub:
        """A whole check of a segment; what it found is entered."""
        segment = segment or self.segment
        scrub = SegmentScrub(
            segment.files_at_rest(),
            epochs=self.log.leader_epochs.entries,
            end_offset=segment.next_offset,
            around=around,
        )
        while scrub.check_more():
            pass
        for damaged in scrub.found:
            self.log.damage.add(segment, damaged)
        return scrub

    def found(self) -> list[tuple[int, int, int, int]]:
        return [(d.position, d.end, d.first_offset, d.end_offset) for d in self.check().found]

    def expected(self, first: int, end: int) -> tuple[int, int, int, int]:
        return self.starts[first], self.starts[end], first, end

    def repair(self, damaged: DamagedRange, records: bytes) -> int:
        """With what another replica sends."""
        epochs = self.log.leader_epochs.entries
        repair = RangeRepair(damaged, epochs)
        repair.take(records)
        pieces = repair.pieces
        replaced = write_pieces(self.segment.files_at_rest(), pieces, epochs)
        self.log.damage.replace(self.segment, damaged, repair.rest())
        return replaced


def test_a_sound_segment_is_found_sound() -> None:
    log = Damaged()
    scrub = log.check()
    assert (scrub.found, scrub.position, scrub.next_offset) == ([], log.starts[-1], log.count)


@pytest.mark.parametrize("byte", range(61))
def test_every_byte_of_a_header_and_of_the_records_is_noticed(byte: int) -> None:
    """The checksum of a batch leaves out base offset, length, leader epoch and magic."""
    log = Damaged()
    log.flip(5, byte)
    scrub = log.check()
    (damaged,) = scrub.found
    assert (damaged.position, damaged.end) == (log.starts[5], log.starts[6]), damaged
    assert (damaged.first_offset, damaged.end_offset) == (5, 6)
    assert damaged.readable == (12 <= byte < 16)  # only the epoch of a batch is not its content
    assert (scrub.position, scrub.next_offset) == (log.starts[-1], log.count)


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 16, 17, 23, 70])
@pytest.mark.parametrize("offset", [0, -1])
def test_damage_at_the_begin_and_the_end_of_a_segment(offset: int, byte: int) -> None:
    log = Damaged()
    at = offset % log.count
    log.flip(at, byte)
    assert log.found() == [log.expected(at, at + 1)]


def test_damage_over_several_batches_is_one_range() -> None:
    log = Damaged()
    log.overwrite(log.starts[4] + 30, b"\xee" * (log.starts[7] + 3 - log.starts[4] - 30))
    assert log.found() == [log.expected(4, 8)]


def test_several_ranges_in_one_segment_and_whatever_was_written_there() -> None:
    log = Damaged()
    for offset, byte in ((2, 70), (3, 4), (9, 10)):
        log.flip(offset, byte)
    log.overwrite(log.starts[12], log.batches[11])  # a sound batch in the wrong place
    found = log.check().found
    assert found[0].first_offset == 2
    bad = {2, 3, 9, 12}
    covered = {offset for d in found for offset in range(d.first_offset, d.end_offset)}
    assert bad <= covered
    assert covered - bad <= {10, 11}  # between two of them no chain of sound batches ends
    assert found[-1].end_offset == 13


def test_a_batch_among_the_records_of_a_damaged_batch_is_not_taken_for_one_of_the_log() -> None:
    """Who keeps batches in records, an archive say, must not get those as records of the log."""
    log = Damaged(count=0)
    inner = batch(2, (1,)) + batch(3, (1,))
    outer = [put(log.log, 0), put(log.log, 0, size=400)]
    data = bytearray(outer[1])
    at = data.index(b"v" * len(inner))
    data[at : at + len(inner)] = inner
    fill(log.log, 20, size=100)
    segment = log.log.segments[0]
    log.overwrite(len(outer[0]), bytes(data))
    log.overwrite(len(outer[0]), bytes(20))
    scrub = log.check(segment=segment)
    (damaged,) = scrub.found
    assert (damaged.first_offset, damaged.end_offset) == (1, 2)
    assert damaged.end == len(outer[0]) + len(outer[1])


def test_without_an_index_a_range_ends_where_a_chain_leads_to_the_segments_end() -> None:
    log = Damaged()
    log.flip(5, 9)
    log.desk.half.delete(log.segment.offset_index.path)
    assert log.found() == [log.expected(5, 6)]
    log.desk.half.put(log.segment.offset_index.path, struct.pack(">ii", 3, 17) * 4)
    assert log.found() == [log.expected(5, 6)]


def test_a_check_around_an_offset_leaves_out_what_is_far() -> None:
    log = Damaged(count=2000, segment_bytes=1 << 20, segment_index_bytes=1 << 20)
    log.flip(1500, 70)
    log.flip(3, 70)
    near = log.check(around=1500)
    assert [d.first_offset for d in near.found] == [1500]
    assert log.check(around=1501).found[0].first_offset == 1500
    far = log.check(around=2)
    assert far.found[0].first_offset == 3


def test_a_file_that_was_cut_is_no_damaged_range() -> None:
    log = Damaged()
    log.desk.half.truncate(LOG, log.starts[5])
    with pytest.raises(StorageError, match="something else cut it"):
        log.check()


# reading


def values(log: Log, offsets: Sequence[int]) -> list[int]:
    found: list[int] = []
    for offset in offsets:
        try:
            got = log.read(offset, 1, end_offset=log.log_end_offset)
        except DamagedRangeError as error:
            inside = error.first_offset <= offset < error.end_offset
            found += [] if inside and error.path.endswith(LOG) else [-1]
            continue
        assert got.region is not None
        assert got.first_offset == offset
        found.append(offset)
    return found


@pytest.mark.parametrize("byte", [2, 9, 16, 70])
def test_everything_outside_a_damaged_range_can_be_read(byte: int) -> None:
    log = Damaged()
    log.flip(5, byte)
    log.flip(6, byte)
    log.check()
    whole = range(log.log.log_end_offset)
    assert values(log.log, whole) == [each for each in whole if each not in (5, 6)]
    before = log.log.read(0, 1 << 20, end_offset=60)
    assert before.size == log.starts[5]
    assert [r.offset for r in read_all(log.log, start=7)] == list(range(7, 60))
    assert log.log.read(5, 1, end_offset=5).size == 0
    # Appends go on, and so does every other way to look at the log.
    put(log.log, 60)
    assert log.log.offline is None
    assert log.log.segments[0].first_timestamp == 0
    assert first_since(log.log, 20) is not None
    with pytest.raises(DamagedRangeError):
        first_since(log.log, 5)
    with pytest.raises(DamagedRangeError):
        first_since(log.log, 6)


def test_the_first_batch_of_a_segment_may_be_damaged() -> None:
    log = Damaged()
    log.flip(0, 9)
    log.check()
    assert values(log.log, range(60)) == list(range(1, 60))


def test_an_epoch_that_is_wrong_can_be_read() -> None:
    log = Damaged()
    log.flip(5, 13)
    log.check()
    assert values(log.log, range(60)) == list(range(60))


def test_a_cut_goes_through_a_damaged_range_and_forgets_what_it_cut() -> None:
    log = Damaged()
    log.flip(5, 9)
    log.flip(8, 9)
    log.check()
    log.log.truncate_to(7, 0)
    assert (log.log.log_end_offset, len(log.log.damage.ranges)) == (7, 1)
    log.log.truncate_to(6, 0)
    assert log.log.log_end_offset == 6
    log.log.truncate_to(5, 0)
    assert (log.log.log_end_offset, log.log.damage.ranges) == (5, [])


def test_damage_that_a_read_meets_is_suspected_and_appends_go_on() -> None:
    log = Damaged()
    suspicions: list[Suspicion] = []
    log.log.damage.on_suspicion = suspicions.append
    log.overwrite(log.starts[5] + 8, b"\x7f\0\0\0")
    with pytest.raises(CorruptLogError, match="batch length"):
        log.log.read(5, 1, end_offset=60)
    assert suspicions == [Suspicion(0, None)]
    put(log.log, 60)
    log.check()
    with pytest.raises(DamagedRangeError, match="offsets 5 to 5 are damaged"):
        log.log.read(5, 1, end_offset=60)
    assert len(suspicions) == 1


def test_a_sealed_range_that_is_read_again_and_again_is_suspected() -> None:
    log = Damaged()
    suspicions: list[Suspicion] = []
    log.log.damage.on_suspicion = suspicions.append
    for offset in (3, 3, 4, 3, 3):
        log.log.read(offset, 1, end_offset=60)
    assert suspicions == []
    log.log.read(3, 1, end_offset=60)
    assert suspicions == [Suspicion(0, 3)]
    for _ in range(READS_IN_A_ROW * 2):
        log.log.read(59, 1, end_offset=60)  # the active segment is read so all the time
    assert len(suspicions) == 1


# repairs


@pytest.mark.parametrize("byte", [0, 9, 13, 16, 18, 70])
def test_a_range_is_repaired_with_the_bytes_of_another_replica(byte: int) -> None:
    log = Damaged()
    log.flip(5, byte)
    (damaged,) = log.check().found
    source = b"".join(log.batches[5:9])
    assert log.repair(damaged, source) == len(log.batches[5])
    assert log.desk.half.read(LOG) == log.original
    assert (log.log.damage.ranges, log.check().found) == ([], [])
    assert list(read_bytes(log.log)) == log.batches
    log.log.check_invariants()


def test_only_batches_that_are_damaged_are_written() -> None:
    log = Damaged()
    log.flip(4, 9)
    log.flip(6, 9)
    damaged = DamagedRange(
        position=log.starts[4], end=log.starts[7], first_offset=4, end_offset=7, reason="test"
    )
    assert log.log.damage.add(log.segment, damaged)
    assert not log.log.damage.add(log.segment, damaged)
    assert log.repair(damaged, b"".join(log.batches[4:7])) == 2 * len(log.batches[4])
    assert log.desk.half.read(LOG) == log.original


def test_a_range_may_be_repaired_in_parts() -> None:
    log = Damaged()
    log.overwrite(log.starts[4], bytes(log.starts[7] - log.starts[4]))
    (damaged,) = log.check().found
    log.repair(damaged, log.batches[4])
    ((_, rest),) = log.log.damage.ranges
    assert (rest.position, rest.first_offset, rest.end) == (log.starts[5], 5, log.starts[7])
    assert values(log.log, range(8)) == [0, 1, 2, 3, 4, 7]
    log.repair(rest, b"".join(log.batches[5:7]))
    assert log.desk.half.read(LOG) == log.original


_TWO = batch(5, (5, 6))
_TORN = bytes(bytearray(batch(5, (5,)))[:-1]) + b"\xff"


@pytest.mark.parametrize(
    ("records", "error", "said"),
    [
        (_TORN, DamagedSourceError, "CRC"),
        (batch(5, (5,), leader_epoch=3), DamagedSourceError, "leader epoch 3"),
        (batch(6, (6,)), DamagedSourceError, "came where 5 is to follow"),
        (batch(4, (4,)), DamagedSourceError, "came where 5 is to follow"),
        (batch(5, (5,), size=21), UnfitBatchError, "are to be replaced"),
        (batch(5, (5,), size=19), UnfitBatchError, "ends at offset 6"),
        (_TWO, UnfitBatchError, "are to be replaced"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    records: bytes, error: type[Exception], said: str
) -> None:
    log = Damaged()
    log.flip(5, 70)
    (damaged,) = log.check().found
    before = log.desk.half.read(LOG)
    with pytest.raises(error, match=said):
        log.repair(damaged, records)
    assert log.desk.half.read(LOG) == before
    assert [d for _, d in log.log.damage.ranges] == [damaged]


def test_valid_bytes_are_never_replaced() -> None:
    log = Damaged()
    damaged = DamagedRange(
        position=log.starts[5], end=log.starts[6], first_offset=5, end_offset=6, reason="wrongly"
    )
    other = batch(5, (99,))
    assert len(other) == len(log.batches[5])
    with pytest.raises(UnfitBatchError, match="the replicas disagree"):
        log.repair(damaged, other)
    assert log.desk.half.read(LOG) == log.original


@pytest.mark.parametrize("count", [2, 30])
def test_a_valid_batch_that_is_larger_than_what_came_is_not_replaced(count: int) -> None:
    log = Damaged(count=0, segment_bytes=20_000)
    first = put(log.log, 0)
    larger = put(log.log, *range(count))
    segment = log.log.segments[0]
    log.log.roll(0)
    damaged = DamagedRange(
        position=len(first),
        end=len(first) + len(larger),
        first_offset=1,
        end_offset=1 + count,
        reason="wrongly",
    )
    repair = RangeRepair(damaged, log.log.leader_epochs.entries)
    assert repair.take(batch(1, (1,)))
    before = log.desk.half.read(LOG)
    with pytest.raises(UnfitBatchError, match="the replicas disagree"):
        write_pieces(segment.files_at_rest(), repair.pieces, log.log.leader_epochs.entries)
    assert log.desk.half.read(LOG) == before


def test_a_disk_that_does_not_take_the_bytes_is_an_error() -> None:
    log = Damaged()
    log.flip(5, 70)
    (damaged,) = log.check().found
    assert isinstance(log.desk.half, MemoryBackend)
    for operation in ("overwrite", "flush"):
        log.desk.half.faults.fail_next(1, operation)  # type: ignore[arg-type]
        with pytest.raises(StorageError):
            log.repair(damaged, log.batches[5])
    assert log.repair(damaged, log.batches[5]) == 0  # the bytes are there, the flush has failed


def test_what_was_repaired_survives_a_loss_of_power() -> None:
    log = Damaged()
    log.flip(5, 70)
    (damaged,) = log.check().found
    log.repair(damaged, log.batches[5])
    assert isinstance(log.desk.half, MemoryBackend)
    log.desk.half.crash()
    assert log.desk.half.read(LOG) == log.original


def test_the_walk_of_a_read_around_damage_may_begin_in_it() -> None:
    log = Damaged()
    entry = log.segment.offset_index.entry_at(0)
    at = log.starts.index(entry.position)
    log.flip(at, 25)
    log.check()
    assert values(log.log, range(60)) == [each for each in range(60) if each != at]
    meet = partial(log.log.read, at, 1, end_offset=60)
    with pytest.raises(DamagedRangeError):
        meet()


# opening


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("byte", [2, 9, 70])
@pytest.mark.parametrize("offset", [0, 5, -1])
def test_a_flushed_segment_that_is_damaged_is_opened_with_all_that_is_sound(
    clean: bool, byte: int, offset: int
) -> None:
    log = Damaged()
    log.log.close(0, clean=clean)
    at = offset % log.count
    log.flip(at, byte)
    for suffix in ("index", "timeindex"):
        log.desk.half.delete(f"{PARTITION_DIR}/{0:020d}.{suffix}")  # so that it is read
    log.log = log.desk.open(clean=clean, recovery_point=60)
    ((segment, damaged),) = log.log.damage.ranges
    assert (damaged.first_offset, damaged.end_offset) == (at, at + 1)
    assert values(log.log, range(60)) == [each for each in range(60) if each != at]
    put(log.log, 60)
    told: list[Suspicion] = []
    log.log.damage.watch(told.append)
    assert told == [Suspicion(0, None)]
    log.segment = segment
    log.repair(damaged, log.batches[at])
    assert log.desk.half.read(LOG) == log.original
    log.log.close(0)
    assert [r.offset for r in read_all(log.desk.open(clean=True))] == list(range(61))


def test_what_may_have_lost_its_end_is_not_opened() -> None:
    log = Damaged()
    log.log.close(0)
    log.flip(log.count - 1, 9)
    log.desk.half.delete(f"{PARTITION_DIR}/{0:020d}.stats")
    log.desk.half.delete(f"{PARTITION_DIR}/{0:020d}.index")
    with pytest.raises(CorruptLogError, match="batch length"):
        log.desk.open(clean=True)
