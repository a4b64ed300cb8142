"""The ``compacted`` file: whether a log may have gaps, and below which offset their causes lie."""

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log.gap_marker import STEP, GapMarker
from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.records.batch import BatchHeader, read_header
from sparklog.wire.records.builder import Record, encode_batch

DIR = "t-0"


def loaded(half: MemoryBackend) -> GapMarker:
    marker = GapMarker(half, DIR)
    marker.load()
    return marker


def header(base_offset: int, *offsets: int, last: int) -> BatchHeader:
    records = [Record(offset=offset, value=b"v") for offset in offsets]
    delta = last - base_offset
    return read_header(encode_batch(records, base_offset=base_offset, last_offset_delta=delta))


@pytest.fixture
def half() -> MemoryBackend:
    half = MemoryBackend()
    half.make_folder(DIR)
    return half


def test_a_log_without_the_file_has_no_gaps(half: MemoryBackend) -> None:
    marker = loaded(half)
    marker.settle(5)
    marker.copies([header(4, 4, 5, last=5), header(6, 6, last=6)], 4, 100)
    assert (marker.is_set, marker.bound) == (False, 0)
    assert not half.exists(f"{DIR}/{COMPACTED_MARKER}")


@pytest.mark.parametrize(
    "batches",
    [
        [header(4, 4, last=4), header(6, 6, last=6)],
        [header(4, 4, last=5), header(6, 6, last=6)],
        [header(4, last=5), header(6, 6, last=6)],
    ],
    ids=["between", "inside", "emptied"],
)
@pytest.mark.parametrize(("committed", "bound"), [(0, 7), (7, 7), (50, 50)])
def test_copied_gaps_are_due_to_committed_records(
    half: MemoryBackend, batches: list[BatchHeader], committed: int, bound: int
) -> None:
    marker = loaded(half)
    marker.copies(batches, 4, committed)
    assert (marker.bound, loaded(half).bound) == (bound, STEP)
    marker.copies([header(7, 7, last=7)], 7, 1000)
    assert marker.bound == bound, "there are no gaps"


def test_a_bound_only_rises_and_the_file_is_seldom_written(half: MemoryBackend) -> None:
    marker = loaded(half)
    path = f"{DIR}/{COMPACTED_MARKER}"
    for bound, expected, in_file in ((0, 0, 0), (5, 5, STEP), (3, 5, STEP), (STEP, STEP, STEP)):
        marker.cleaned(bound)
        assert (marker.bound, loaded(half).bound) == (expected, in_file)
    half.delete(path)
    marker.cleaned(STEP)
    assert not half.exists(path), "it is there already"
    marker.cleaned(STEP + 1)
    assert loaded(half).bound == 2 * STEP


@pytest.mark.parametrize("data", [b"", b"0\n12", b"x"])
def test_a_file_without_a_bound_gets_the_end_of_the_log(half: MemoryBackend, data: bytes) -> None:
    half.put(f"{DIR}/{COMPACTED_MARKER}", data)
    marker = loaded(half)
    assert (marker.is_set, marker.bound) == (True, 0)
    marker.settle(20)
    assert (marker.bound, loaded(half).bound) == (20, STEP)
    again = loaded(half)
    again.settle(STEP + 5)
    assert again.bound == STEP, "it has one"


def test_what_cannot_be_written_is_not_said(half: MemoryBackend) -> None:
    marker = loaded(half)
    half.faults.fail_next(1)
    with pytest.raises(StorageError):
        marker.cleaned(3)
    assert (marker.is_set, loaded(half).is_set) == (False, False)
    marker.cleaned(3)
    assert loaded(half).bound == STEP


def test_what_the_log_finds_out_meanwhile_is_not_overwritten(
    half: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap writes its bound in another thread, while the log copies a gap."""
    marker = loaded(half)
    put = half.put

    def put_slowly(path: str, data: bytes) -> None:
        monkeypatch.undo()
        marker.copies([header(4, last=4)], 4, STEP + 1)
        put(path, data)

    monkeypatch.setattr(half, "put", put_slowly)
    marker.cleaned(9)
    assert (marker.bound, loaded(half).bound) == (STEP + 1, 2 * STEP)
