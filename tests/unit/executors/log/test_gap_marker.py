"""The ``compacted`` file: which batches of a leader say that a log may have gaps."""

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log.gap_marker import GapMarker
from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.records.batch import BatchHeader, read_header
from sparklog.wire.records.builder import Record, encode_batch

DIR = "t-0"


def header(base_offset: int, *offsets: int, last: int) -> BatchHeader:
    records = [Record(offset=offset, value=b"v") for offset in offsets]
    delta = last - base_offset
    return read_header(encode_batch(records, base_offset=base_offset, last_offset_delta=delta))


@pytest.mark.parametrize(
    ("batches", "has_gaps"),
    [
        ([header(4, 4, 5, last=5), header(6, 6, last=6)], False),
        ([header(5, 5, last=5)], True),
        ([header(4, 4, last=4), header(6, 6, last=6)], True),
        ([header(4, 4, last=5), header(6, 6, last=6)], True),
        ([header(4, last=5), header(6, 6, last=6)], True),
    ],
    ids=["none", "before", "between", "inside", "emptied"],
)
def test_gaps_before_and_in_batches_count(batches: list[BatchHeader], has_gaps: bool) -> None:
    half = MemoryBackend()
    half.make_folder(DIR)
    marker = GapMarker(half, DIR, is_set=False)
    marker.set_before(batches, 4)
    assert (marker.is_set, half.exists(f"{DIR}/{COMPACTED_MARKER}")) == (has_gaps, has_gaps)


def test_what_cannot_be_written_is_not_said() -> None:
    half = MemoryBackend()
    half.make_folder(DIR)
    marker = GapMarker(half, DIR, is_set=False)
    half.faults.fail_next(1)
    with pytest.raises(StorageError):
        marker.set_before([header(5, 5, last=5)], 4)
    assert not marker.is_set
