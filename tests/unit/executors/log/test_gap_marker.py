"""The ``compacted`` file: whether a log may have gaps, and below which offset their causes lie."""

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log.gap_marker import GapMarker
from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.records.batch import read_header
from tests.unit.executors.log.log_fixtures import batch

DIR = "t-0"
#: An offset that no bound reaches.
END = 1000


def loaded(half: MemoryBackend) -> GapMarker:
    marker = GapMarker(half, DIR)
    marker.load()
    return marker


@pytest.fixture
def half() -> MemoryBackend:
    half = MemoryBackend()
    half.make_folder(DIR)
    return half


def test_a_log_without_the_file_has_no_gaps(half: MemoryBackend) -> None:
    marker = loaded(half)
    marker.learn(5)
    assert (marker.is_set, marker.bound_in(END)) == (False, 0)
    assert not half.exists(f"{DIR}/{COMPACTED_MARKER}")


def test_a_bound_only_rises(half: MemoryBackend) -> None:
    marker = loaded(half)
    for bound, expected in ((5, 5), (3, 5), (9, 9)):
        marker.set(bound)
        assert marker.bound_in(END) == loaded(half).bound_in(END) == expected


def test_a_bound_that_is_not_known_is_the_end_of_the_log_until_it_is_learnt(
    half: MemoryBackend,
) -> None:
    marker = loaded(half)
    marker.set(5)
    marker.set(None)
    marker.set(7)
    assert marker.bound_in(END) == loaded(half).bound_in(END) == END
    marker.learn(20)
    marker.learn(30)
    assert marker.bound_in(END) == loaded(half).bound_in(END) == 20


def test_a_gap_before_a_batch_has_an_unknown_bound(half: MemoryBackend) -> None:
    marker = loaded(half)
    headers = [read_header(batch(offset, (0, 0))) for offset in (4, 6, 9)]
    marker.set_before(headers[:2], 4)
    assert not marker.is_set
    marker.set(5)
    marker.set_before(headers[:2], 4)
    assert marker.bound_in(END) == 5
    marker.set_before(headers, 4)
    assert loaded(half).bound_in(END) == END


def test_a_file_that_cannot_be_read_tells_nothing_of_the_bound(half: MemoryBackend) -> None:
    half.put(f"{DIR}/{COMPACTED_MARKER}", b"0\n12")
    assert loaded(half).bound_in(END) == END


def test_a_bound_that_cannot_be_written_stays_unknown(half: MemoryBackend) -> None:
    marker = loaded(half)
    marker.set(None)
    half.faults.fail_next(1)
    marker.learn(20)
    assert marker.bound_in(END) == END
    assert loaded(half).bound_in(END) == END


def test_what_cannot_be_written_is_not_said(half: MemoryBackend) -> None:
    marker = loaded(half)
    half.faults.fail_next(1)
    with pytest.raises(StorageError):
        marker.set(3)
    assert (marker.is_set, loaded(half).is_set) == (False, False)
    marker.set(3)
    half.faults.fail_next(1)
    with pytest.raises(StorageError):
        marker.set(None)
    assert marker.bound_in(END) == loaded(half).bound_in(END) == 3


@pytest.mark.parametrize("learnt", [None, 50])
def test_what_the_log_finds_out_meanwhile_is_not_overwritten(
    half: MemoryBackend, learnt: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap writes its bound in another thread, while the log copies a gap."""
    marker = loaded(half)
    marker.set(5)
    put = half.put

    def put_slowly(path: str, data: bytes) -> None:
        monkeypatch.undo()
        marker.set(None)
        if learnt is not None:
            marker.learn(learnt)
        put(path, data)

    monkeypatch.setattr(half, "put", put_slowly)
    marker.set(9)
    expected = END if learnt is None else learnt
    assert marker.bound_in(END) == loaded(half).bound_in(END) == expected
