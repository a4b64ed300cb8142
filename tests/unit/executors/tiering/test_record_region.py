"""Where records from the bucket are, and where they are cut."""

import pytest

from sparklog.errors import StorageError
from sparklog.executors.tiering.record_region import (
    BytesRegion,
    FilesPlace,
    MemoryPlace,
    Place,
    whole_batches,
)
from sparklog.storage_backends.base import FileHandle
from sparklog.storage_backends.joined_region import JoinedRegion
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import batch

BATCHES = [batch(10, (0, 0)), batch(12, (0,)), batch(15, (0, 0, 0))]
SIZES = [len(each) for each in BATCHES]
DATA = b"".join(BATCHES)


def in_files(*cuts: int) -> FilesPlace:
    """The batches in files of their own between the cuts, each behind bytes of something else."""
    pieces = []
    for number, (start, stop) in enumerate(zip((0, *cuts), (*cuts, len(DATA)), strict=True)):
        file = file_with(b"x" * number + DATA[start:stop] + b"yy")
        pieces.append((file, number, stop - start))
    return FilesPlace(pieces)


def file_with(data: bytes) -> FileHandle:
    store = MemoryBackend()
    store.append("file", data)
    return store.open("file")


@pytest.mark.parametrize(
    "place",
    [MemoryPlace(DATA), in_files(), in_files(20), in_files(SIZES[0]), in_files(5, 100, 200)],
    ids=["memory", "one-file", "cut-header", "cut-between", "four-files"],
)
@pytest.mark.parametrize(
    ("offset", "max_bytes", "first", "count", "next_offset"),
    [
        (10, 1, 0, 1, 12),
        (11, SIZES[0], 0, 1, 12),
        (10, SIZES[0] + SIZES[1], 0, 2, 13),
        (10, len(DATA), 0, 3, 18),
        (12, SIZES[1] + SIZES[2] - 1, 1, 1, 13),
        (13, 10_000, 2, 1, 18),  # between two batches
        (17, 0, 2, 1, 18),
    ],
)
def test_whole_batches_from_an_offset_on(
    place: Place, offset: int, max_bytes: int, first: int, count: int, next_offset: int
) -> None:
    start, stop, behind = whole_batches(place, offset, max_bytes)
    region = place.region(start, stop)
    assert (bytes(region.read()), behind) == (b"".join(BATCHES[first : first + count]), next_offset)
    assert region.size == stop - start
    assert bytes(region.view()) == bytes(region.read())
    region.release()
    region.release()


@pytest.mark.parametrize(("end_offset", "count"), [(12, 1), (13, 2), (17, 2), (18, 3)])
def test_whole_batches_end_below_an_offset(end_offset: int, count: int) -> None:
    _, stop, behind = whole_batches(MemoryPlace(DATA), 10, len(DATA), end_offset)
    assert (stop, behind) == (sum(SIZES[:count]), (12, 13, 18)[count - 1])


def test_files_need_no_memory_and_are_sent_as_they_are() -> None:
    assert (MemoryPlace(DATA).memory_bytes, in_files(20).memory_bytes) == (len(DATA), 0)
    region = in_files(20).region(5, 50)
    assert isinstance(region, JoinedRegion)
    assert region.descriptor() is None
    assert [(type(each).__name__, each.size) for each in region.regions] == [
        ("MemoryRegion", 15),
        ("MemoryRegion", 30),
    ]
    assert not isinstance(in_files(20).region(20, 50), JoinedRegion)


def test_a_file_that_has_become_shorter() -> None:
    place = FilesPlace([(file_with(DATA[:-1]), 0, len(DATA))])
    with pytest.raises(StorageError, match=f"has {len(DATA) - 1} bytes where {len(DATA)} are due"):
        place.region(0, len(DATA))
    short = FilesPlace([(file_with(DATA[:5]), 0, len(DATA))])
    with pytest.raises(StorageError, match="a batch at byte 0 of"):
        whole_batches(short, 10, 1)


def test_a_region_of_bytes() -> None:
    region = BytesRegion(memoryview(DATA)[:5])
    assert (region.size, region.descriptor(), region.read()) == (5, None, DATA[:5])
    assert region.view() == DATA[:5]
    region.release()
    region.release()
