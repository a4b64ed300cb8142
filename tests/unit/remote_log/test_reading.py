"""Reads of copied segments give what the local log gives."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.remote_log import batch_walk
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.parts import PartCache, ReadRange
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import EpochStart, PartName, RemoteSegment
from sparklog.storage_backends.base import MissingPathError
from sparklog.types import Compression, OffsetTimestamp, TimestampType
from sparklog.wire.records.control import ControlType
from tests.unit.executors.log.cleaned_logs import compact
from tests.unit.executors.log.log_fixtures import PARTITION_DIR, first_since
from tests.unit.remote_log.remote_fixtures import FOLDER, RichLog, fill, local_read, log_path

SIZES = (1, 61, 200, 700, 10**6)


@pytest.fixture(autouse=True, params=[0, 10**9], ids=["leaps", "steps"], scope="module")
def large_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Walks try the entry behind the offset whatever its distance, or never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_walk, "LARGE_BYTES", request.param)
        yield


def reader_of(rich: RichLog, read: ReadRange | None = None) -> RemoteReader:
    return RemoteReader(read or rich.bucket.read, FOLDER, PartCache())


def check_reads(rich: RichLog, copies: Sequence[RemoteSegment]) -> None:
    """Every offset, with every limit, as the local log has it."""
    reader = reader_of(rich)
    log = rich.log
    for segment in copies:
        for offset in range(segment.base_offset, segment.next_offset):
            ends = {segment.next_offset, log.log_end_offset, offset, offset + 1, offset + 3}
            for max_bytes in SIZES:
                for end_offset in ends:
                    for min_one in (True, False):
                        found = reader.read_batches(
                            segment,
                            offset,
                            max_bytes,
                            end_offset=end_offset,
                            min_one=min_one,
                            with_aborted=True,
                        )
                        expected = local_read(
                            log, offset, max_bytes, end_offset=end_offset, min_one=min_one
                        )
                        assert found == expected, (offset, max_bytes, end_offset, min_one)


@pytest.fixture
def rich() -> RichLog:
    found = RichLog()
    fill(found)
    return found


def test_every_offset_reads_as_in_the_local_log(rich: RichLog) -> None:
    copies = rich.copy_all()
    assert sum(len(rich.job(segment).aborted) for segment in rich.log.segments[:-1]) > 8
    check_reads(rich, copies)


@pytest.mark.parametrize("interval", [0, 10**6])
def test_with_an_index_entry_for_each_batch_or_for_none(interval: int) -> None:
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, index_interval_bytes=interval)
    fill(rich)
    check_reads(rich, rich.copy_all())


def test_a_segment_without_its_index_files_reads_from_its_start(rich: RichLog) -> None:
    copies = [rich.copy(segment, part_files={}) for segment in rich.seal()]
    check_reads(rich, copies)


def test_a_compacted_segment_reads_across_its_gaps(rich: RichLog) -> None:
    rich.seal()
    rich.log.flush(0)
    compact(rich.log, rich.desk.half, lambda record: record.offset % 5 != 1, count=3)
    rich.log.statistics.measure_pending()
    copies = [rich.copy(segment, gaps=True) for segment in rich.log.segments[:-1]]
    assert copies[0].gaps
    check_reads(rich, copies)


BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["plain", "plain", "open 1", "open 2", "abort", "commit", "epoch", "seal"]),
        st.lists(st.integers(-1, 40), min_size=1, max_size=4),
        st.sampled_from(list(Compression)),
        st.sampled_from(list(TimestampType)),
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(
    batches=BATCHES,
    interval=st.sampled_from([0, 150, 400]),
    segment_bytes=st.sampled_from([300, 800, 10**6]),
    start=st.integers(0, 30),
)
def test_any_log_reads_and_is_searched_as_the_local_one(
    batches: list[tuple[str, list[int], Compression, TimestampType]],
    interval: int,
    segment_bytes: int,
    start: int,
) -> None:
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(
        clean=True, index_interval_bytes=interval, segment_bytes=segment_bytes
    )
    in_doubt: set[int] = set()
    for kind, timestamps, codec, timestamp_type in batches:
        options = {"compression": codec, "timestamp_type": timestamp_type, "size": 0}
        if kind in ("abort", "commit"):
            for producer_id in in_doubt:
                rich.end(producer_id, ControlType[kind.upper()])
            in_doubt.clear()
        elif kind == "epoch":
            rich.leader_epoch += 2
        elif kind == "seal":
            rich.log.roll(0)
        elif kind == "plain":
            rich.put(*timestamps, **options)
        else:
            in_doubt.add(int(kind[-1]))
            rich.put(*timestamps, producer_id=int(kind[-1]), **options)
    for producer_id in in_doubt:
        rich.end(producer_id)
    copies = rich.copy_all()
    check_all_bytes(rich, copies)
    start = min(start, rich.log.log_end_offset)
    rich.log.advance_log_start(start)
    check_times(rich, copies, range(-1, 42))


def check_all_bytes(rich: RichLog, copies: Sequence[RemoteSegment]) -> None:
    reader = reader_of(rich)
    for segment in copies:
        for offset in range(segment.base_offset, segment.next_offset):
            for max_bytes in (1, 150):
                end = rich.log.log_end_offset
                assert reader.read_batches(
                    segment, offset, max_bytes, end_offset=end, with_aborted=True
                ) == local_read(rich.log, offset, max_bytes, end_offset=end, min_one=True)


def check_times(rich: RichLog, copies: Sequence[RemoteSegment], timestamps: Sequence[int]) -> None:
    """Lookups by time give offset, timestamp and leader epoch of the local log."""
    reader = reader_of(rich)
    start = rich.log.log_start_offset
    for timestamp in timestamps:
        found = (
            reader.find_timestamp(segment, timestamp, start_offset=start) for segment in copies
        )
        first = next((each for each in found if each is not None), None)
        assert first == first_since(rich.log, timestamp), timestamp


def test_lookups_by_time_are_those_of_the_local_log(rich: RichLog) -> None:
    copies = rich.copy_all()
    check_times(rich, copies, range(-1, 620))
    rich.log.advance_log_start(rich.log.log_end_offset // 2)
    check_times(rich, copies, range(-1, 620))


def test_lookups_by_time_need_no_index_files(rich: RichLog) -> None:
    copies = [rich.copy(segment, part_files={}) for segment in rich.seal()]
    check_times(rich, copies, range(-1, 620, 7))


def test_a_follower_gets_epochs_and_producer_state(rich: RichLog) -> None:
    copies = rich.copy_all()
    reader = reader_of(rich)
    known = rich.log.leader_epochs.entries
    for segment in copies:
        assert reader.leader_epochs(segment) == tuple(
            EpochStart(entry.epoch, entry.start_offset)
            for entry in known
            if entry.start_offset < segment.next_offset
        )
        file = f"{PARTITION_DIR}/{segment.next_offset:020d}.snapshot"
        assert reader.producer_snapshot(segment) == rich.desk.half.read(file)
    lacking = replace(
        copies[0], parts={PartName.LEADER_EPOCHS: copies[0].parts[PartName.LEADER_EPOCHS]}
    )
    assert reader_of(rich).producer_snapshot(lacking) is None


# requests


def counted(rich: RichLog) -> tuple[RemoteReader, list[tuple[str, int, int]]]:
    requests: list[tuple[str, int, int]] = []

    def read(path: str, offset: int, size: int) -> bytes:
        requests.append((path.rpartition(".")[2], offset, size))
        return rich.bucket.read(path, offset, size)

    return reader_of(rich, read), requests


def test_a_read_is_one_request_and_the_parts_are_read_once() -> None:
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, segment_bytes=10**6)
    for number in range(100):
        rich.put(number, size=100)
    (segment,) = rich.copy_all()
    reader, requests = counted(rich)
    size = segment.log_size // 100
    offset, position = 50, 50 * size
    part = segment.parts[PartName.OFFSET_INDEX]
    found = reader.read_batches(segment, offset, 3 * size, end_offset=100)
    assert (found.first_offset, found.next_offset) == (50, 53)
    (index, log) = requests
    assert index == ("indexes", part.offset, part.size)
    assert log[0] == "log"
    assert position - 400 < log[1] <= position
    assert position + 3 * size <= log[1] + log[2] < position + 3 * size + 400
    requests.clear()
    reader.read_batches(segment, offset, 3 * size, end_offset=100)
    assert requests == [log]


def test_a_lookup_by_time_skips_batches_that_the_index_rules_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparklog.remote_log.reading.WINDOW_BYTES", 1000)
    monkeypatch.setattr(batch_walk, "WINDOW_BYTES", 1000)
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, segment_bytes=10**6)
    rich.put(500)
    for number in range(300):
        rich.put(number, size=100)
    rich.put(600)
    (segment,) = rich.copy_all()
    assert segment.log_size > 40_000
    for timestamp in (550, 600):
        reader, requests = counted(rich)
        assert reader.find_timestamp(segment, timestamp) == OffsetTimestamp(
            offset=301, timestamp=600, leader_epoch=0
        )
        assert sum(size for suffix, _, size in requests if suffix == "log") < 2500


def test_a_lookup_by_time_is_exact_in_a_batch_that_decompresses_to_many_megabytes() -> None:
    """DataFrames take the offset for the end of what they read (``endingTimestamp``)."""
    rich = RichLog()
    rich.put(*range(5000), size=4000, compression=Compression.GZIP)
    (segment,) = rich.copy_all()
    assert segment.log_size < 100_000
    found = OffsetTimestamp(offset=4900, timestamp=4900, leader_epoch=0)
    assert reader_of(rich).find_timestamp(segment, 4900) == first_since(rich.log, 4900) == found


def test_a_batch_larger_than_the_first_request_takes_a_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_walk, "WINDOW_BYTES", 100)
    rich = RichLog()
    rich.put(2, size=5000)
    (segment,) = rich.copy_all()
    reader, requests = counted(rich)
    found = reader.read_batches(segment, 0, 1, end_offset=1)
    assert found.data == rich.bucket.read(log_path(segment))
    assert requests == [("log", 0, 101), ("log", 0, segment.log_size)]


def test_a_deleted_segment_is_missing(rich: RichLog) -> None:
    segment = rich.copy_all()[0]
    rich.bucket.delete(log_path(segment))
    with pytest.raises(MissingPathError):
        reader_of(rich).read_batches(segment, 0, 1, end_offset=1)


def test_an_empty_range_is_read_nowhere(rich: RichLog) -> None:
    copies = rich.copy_all()
    late = max(segment.max_timestamp for segment in copies) + 1
    reader, requests = counted(rich)
    assert [reader.find_timestamp(segment, late) for segment in copies] == [None] * len(copies)
    behind = copies[0].next_offset
    assert reader.find_timestamp(copies[0], 0, start_offset=behind) is None
    assert requests == []


@pytest.mark.parametrize("bit", [0, 64, 8 * 57, 8 * 1000])
def test_large_batches_are_read_from_the_wanted_one_on(
    large_bytes: None, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """Damage of the batch before it does not matter then; the batch itself is checked."""
    monkeypatch.setattr(batch_walk, "LARGE_BYTES", 1000)
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, segment_bytes=10**6)
    for number in range(5):
        rich.put(number, number, size=2500)
    (segment,) = rich.copy_all()
    size = segment.log_size // 5
    whole = rich.bucket.read(log_path(segment))
    rich.bucket.flip(log_path(segment), size + bit // 8, 1 << bit % 8)
    reader, requests = counted(rich)
    for offset in (4, 5):
        requests.clear()
        found = reader.read_batches(segment, offset, size, end_offset=10)
        assert (found.first_offset, found.next_offset) == (4, 6)
        assert found.data == whole[2 * size : 3 * size]
        asked = [each[1:] for each in requests if each[0] == "log"]
        assert asked[0] == (2 * size, size if offset == 4 else 2 * size)
    for offset in (2, 3):
        with pytest.raises(DamagedObjectError) as caught:
            reader.read_batches(segment, offset, size, end_offset=10)
        assert caught.value.first_offset <= offset < caught.value.end_offset <= 5
