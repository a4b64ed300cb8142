"""Objects that change in the bucket: an error that names the offsets, or no harm; never other data.

Each bit of both objects of a segment is flipped, and the object is cut at each byte.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparklog.remote_log import batch_walk
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.index_search import offset_entries
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteRead, RemoteReader
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.types import Compression
from sparklog.wire.records.batch import iter_batches
from tests.unit.remote_log.remote_fixtures import (
    FOLDER,
    Bucket,
    RichLog,
    indexes_path,
    log_path,
)

#: What a reader asks a segment, by name.
Question = Callable[[RemoteReader], object]


#: Each batch but the first has an index entry, or some have one.
INTERVALS = (0, 100)


def one_segment(interval: int) -> tuple[Bucket, RemoteSegment]:
    """A segment in which each part has entries."""
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, index_interval_bytes=interval)
    rich.put(100, 99, producer_id=7, size=1)
    rich.leader_epoch = 2
    rich.put(90, 130, size=1)
    rich.put(120, 121, compression=Compression.GZIP, size=10)
    rich.put(125, 140, size=1)
    rich.end(7)
    rich.put(150, size=1)
    (segment,) = rich.copy_all()
    assert segment.leader_epochs[1].start_offset == 2
    assert set(segment.parts) == set(PartName)
    assert all(part.size for part in segment.parts.values())
    return rich.bucket, segment


@pytest.fixture(autouse=True, params=[0, 10**9], ids=["leaps", "steps"], scope="module")
def large_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Walks try the entry behind the offset whatever its distance, or never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_walk, "LARGE_BYTES", request.param)
        yield


def reader_of(bucket: Bucket) -> RemoteReader:
    return RemoteReader(bucket.read, FOLDER, PartCache())


def questions(segment: RemoteSegment) -> dict[str, Question]:
    def read(offset: int, max_bytes: int, end_offset: int) -> Question:
        return lambda reader: reader.read_batches(
            segment, offset, max_bytes, end_offset=end_offset, with_aborted=True
        )

    def find(timestamp: int, start: int) -> Question:
        return lambda reader: reader.find_timestamp(segment, timestamp, start_offset=start)

    base, end = segment.base_offset, segment.next_offset
    asked: dict[str, Question] = {
        "epochs": lambda reader: reader.leader_epochs(segment),
        "producers": lambda reader: reader.producer_snapshot(segment),
        "stats": lambda reader: reader.part(segment, PartName.STATS),
    }
    asked |= {f"read {o} {m}": read(o, m, end) for o in range(base, end) for m in (1, 10**4)}
    asked |= {f"below {o}": read(o, 10**4, o + 1) for o in range(base, end)}
    asked |= {f"find {t} {s}": find(t, s) for t in (95, 121, 135, 145) for s in (0, 3)}
    return asked


def harmless(found: object, expected: object) -> bool:
    """Whether an answer is right; a read may end before a damaged batch."""
    if found == expected:
        return True
    if not (isinstance(found, RemoteRead) and isinstance(expected, RemoteRead)):
        return False
    shorter = bool(found.data) and bytes(expected.data).startswith(found.data)
    return (
        shorter
        and found.first_offset == expected.first_offset
        and set(found.aborted) <= set(expected.aborted)
        and not any(
            txn.first_offset < found.next_offset
            for txn in set(expected.aborted) - set(found.aborted)
        )
    )


@contextmanager
def restored(bucket: Bucket, path: str) -> Iterator[bytes]:
    data = bucket.read(path)
    yield data
    bucket.put(path, data)


def answer(question: Question, bucket: Bucket) -> object:
    """The answer of a reader that has nothing cached, or its error."""
    try:
        return question(reader_of(bucket))
    except DamagedObjectError as error:
        return error


def check_answers(
    bucket: Bucket, asked: dict[str, Question], right: dict[str, object], path: str
) -> int:
    """Ask everything; the number of errors."""
    errors = 0
    for name, question in asked.items():
        found = answer(question, bucket)
        if isinstance(found, DamagedObjectError):
            assert found.path == path
            assert 0 <= found.first_offset < found.end_offset
            errors += 1
        else:
            assert harmless(found, right[name]), (name, found, right[name])
    return errors


def is_rebuilt(segment: RemoteSegment, position: int) -> bool:
    """Whether a byte of the indexes object is of a part that the log object has all of."""
    parts = [segment.parts[name] for name in (PartName.OFFSET_INDEX, PartName.TIME_INDEX)]
    return any(part.offset <= position < part.offset + part.size for part in parts)


@pytest.mark.parametrize("path_of", [log_path, indexes_path])
@pytest.mark.parametrize("mask", [0x01, 0x80])
@pytest.mark.parametrize("interval", INTERVALS)
def test_no_flipped_bit_gives_other_data(
    path_of: Callable[[RemoteSegment], str], mask: int, interval: int
) -> None:
    bucket, segment = one_segment(interval)
    asked = questions(segment)
    right = {name: question(reader_of(bucket)) for name, question in asked.items()}
    path = path_of(segment)
    with restored(bucket, path) as data:
        for position in range(len(data)):
            bucket.flip(path, position, mask)
            errors = check_answers(bucket, asked, right, path)
            needless = path == indexes_path(segment) and is_rebuilt(segment, position)
            assert bool(errors) is not needless, position
            bucket.flip(path, position, mask)


@pytest.mark.parametrize("path_of", [log_path, indexes_path])
def test_no_cut_object_gives_other_data(path_of: Callable[[RemoteSegment], str]) -> None:
    bucket, segment = one_segment(100)
    asked = questions(segment)
    right = {name: question(reader_of(bucket)) for name, question in asked.items()}
    path = path_of(segment)
    with restored(bucket, path) as data:
        for size in range(len(data)):
            bucket.put(path, data[:size])
            assert check_answers(bucket, asked, right, path), size


def test_the_log_of_another_segment_is_refused() -> None:
    rich = RichLog()
    for _ in range(2):
        rich.put(1, 2)
        rich.seal()
    first, second = (rich.copy(segment) for segment in rich.log.segments[:2])
    rich.bucket.put(log_path(second), rich.bucket.read(log_path(first)))
    with pytest.raises(DamagedObjectError, match="base offset is 0 where 2"):
        reader_of(rich.bucket).read_batches(second, 2, 1, end_offset=4)


def test_an_object_that_changes_between_two_reads_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_walk, "WINDOW_BYTES", 100)
    rich = RichLog()
    rich.put(2, size=5000)
    (segment,) = rich.copy_all()

    def read(path: str, offset: int, size: int) -> bytes:
        data = bytearray(rich.bucket.read(path, offset, size))
        if size > 101:
            data[7] ^= 1  # the base offset, which no CRC covers
        return bytes(data)

    with pytest.raises(DamagedObjectError, match="changed between two reads"):
        RemoteReader(read, FOLDER, PartCache()).read_batches(segment, 0, 1, end_offset=1)


@pytest.mark.parametrize("mask", [0x01, 0x80])
@pytest.mark.parametrize("interval", INTERVALS)
def test_a_read_goes_on_behind_the_damage(mask: int, interval: int) -> None:
    """The end offset of the error is the first one of the next batch with an index entry."""
    bucket, segment = one_segment(interval)
    path, end = log_path(segment), segment.next_offset
    part = segment.parts[PartName.OFFSET_INDEX]
    index = bucket.read(indexes_path(segment), part.offset, part.size)
    entries = [entry.position for entry in offset_entries(index, segment.base_offset)]
    whole = bytes(reader_of(bucket).read_batches(segment, 0, 10**4, end_offset=end).data)
    spans = [(start, start + header.size) for header, start in iter_batches(whole)]
    for position in range(len(whole)):
        bucket.flip(path, position, mask)
        offset, damaged, found = 0, 0, b""
        while offset < end:
            more = answer(read_from(segment, offset), bucket)
            if isinstance(more, DamagedObjectError):
                assert more.first_offset <= offset < more.end_offset
                offset, damaged = more.end_offset, damaged + 1
            else:
                assert isinstance(more, RemoteRead)
                found, offset = found + bytes(more.data), more.next_offset
        assert damaged == 1
        start, behind = next(span for span in spans if span[0] <= position < span[1])
        again = next((entry for entry in entries if entry >= behind), len(whole))
        assert interval or again == behind
        assert found == whole[:start] + whole[again:]
        check_offsets_behind(bucket, segment, whole, again)
        bucket.flip(path, position, mask)


def check_offsets_behind(
    bucket: Bucket, segment: RemoteSegment, whole: bytes, position: int
) -> None:
    """Each offset from the batch at ``position`` on can be read without the damage before it."""
    for header, start in iter_batches(whole[position:]):
        for offset in range(header.base_offset, header.next_offset):
            found = answer(read_from(segment, offset), bucket)
            assert isinstance(found, RemoteRead)
            assert (found.first_offset, found.data) == (
                header.base_offset,
                whole[position + start :],
            )


def read_from(segment: RemoteSegment, offset: int) -> Question:
    return lambda reader: reader.read_batches(
        segment, offset, 10**4, end_offset=segment.next_offset
    )
