"""The transaction index: Kafka's bytes, ranges, cuts, damage, and a disk that has no room."""

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.txn_index import AbortedTxn, TxnIndex, unpack_txn_index
from sparklog.storage_backends.memory import MemoryBackend

PATH = "00000000000000000100.txnindex"
BASE = 100


@dataclass
class Desk:
    half: MemoryBackend = field(default_factory=MemoryBackend)
    files: FileCache = field(default_factory=lambda: FileCache(4))

    def index(self) -> TxnIndex:
        self.files = FileCache(4)
        return TxnIndex(self.half, self.files, PATH, BASE)

    def loaded(self, next_offset: int = 10**6) -> TxnIndex:
        index = self.index()
        index.load(next_offset)
        return index


@pytest.fixture
def desk() -> Desk:
    return Desk()


#: Four transactions of which the first began before the segment and the second was open for long.
TXNS = [
    AbortedTxn(1, 90, 101, 95),
    AbortedTxn(2, 95, 120, 110),
    AbortedTxn(1, 110, 130, 125),
    AbortedTxn(3, 125, 140, 141),
]


def filled(desk: Desk, txns: list[AbortedTxn]) -> TxnIndex:
    index = desk.index()
    for txn in txns:
        index.append(txn)
    return index


def test_an_entry_has_kafkas_bytes(desk: Desk) -> None:
    filled(desk, TXNS[:2])
    assert desk.half.read(PATH) == struct.pack(">hqqqqhqqqq", 0, 1, 90, 101, 95, 0, 2, 95, 120, 110)
    assert unpack_txn_index(desk.half.read(PATH), BASE) == TXNS[:2]


def test_without_entries_there_is_no_file(desk: Desk) -> None:
    index = filled(desk, [])
    index.trim()
    assert (index.collect(0, 1000), index.read_all(), index.size) == (([], False), [], 0)
    assert not desk.half.exists(PATH)
    index.append(TXNS[0])
    assert desk.half.exists(PATH)
    index.undo()
    assert not desk.half.exists(PATH)
    index.append(TXNS[1])
    index.truncate_to(BASE)
    assert not desk.half.exists(PATH)
    index.replace(TXNS)
    index.replace([])
    assert not desk.half.exists(PATH)


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [
        (100, 1000, [0, 1, 2, 3], False),
        (0, 91, [0], True),
        (100, 110, [0, 1], True),
        (102, 111, [1, 2], True),
        (121, 125, [2], True),
        (121, 126, [2, 3], True),
        (131, 141, [3], True),
        (131, 142, [3], False),
        (141, 200, [], False),
        (100, 90, [], True),
    ],
)
def test_a_range_gets_what_overlaps_it(
    desk: Desk, start: int, end: int, found: list[int], complete: bool
) -> None:
    index = filled(desk, TXNS)
    assert index.collect(start, end) == ([TXNS[i] for i in found], complete)
    assert desk.loaded().collect(start, end) == ([TXNS[i] for i in found], complete)


def test_what_lies_behind_a_cut_is_forgotten(desk: Desk) -> None:
    for offset, left in ((1000, 4), (141, 4), (140, 3), (130, 2), (102, 1), (101, 0), (0, 0)):
        index = filled(desk, TXNS)
        index.truncate_to(offset)
        assert index.read_all() == TXNS[:left]
        assert desk.half.exists(PATH) == bool(left)
        index.append(AbortedTxn(9, 500, 600, 601))
        assert desk.loaded().read_all() == [*TXNS[:left], AbortedTxn(9, 500, 600, 601)]
        index.replace([])


def test_an_entry_whose_marker_was_not_written_is_taken_back(desk: Desk) -> None:
    index = filled(desk, TXNS)
    index.undo()
    assert index.read_all() == desk.loaded().read_all() == TXNS[:3]


@pytest.mark.parametrize("entries", [0, 2])
def test_a_full_disk_changes_nothing(desk: Desk, entries: int) -> None:
    index = filled(desk, TXNS[:entries])
    desk.half.faults.fail_next(operation="writev")
    with pytest.raises(StorageError):
        index.append(TXNS[entries])
    assert index.read_all() == TXNS[:entries]
    assert desk.half.exists(PATH) == bool(entries)
    index.append(TXNS[entries])
    assert desk.loaded().read_all() == TXNS[: entries + 1]


@pytest.mark.parametrize("entries", [1, 3])
def test_what_cannot_be_taken_back_at_once_is_never_seen(desk: Desk, entries: int) -> None:
    index = filled(desk, TXNS[:entries])
    desk.half.faults.fail_next(operation="truncate" if entries > 1 else "delete")
    index.undo()
    assert desk.half.size(PATH) == entries * 34
    assert index.read_all() == TXNS[: entries - 1]
    index.append(TXNS[3])
    assert index.read_all() == desk.loaded().read_all() == [*TXNS[: entries - 1], TXNS[3]]
    desk.half.faults.fail_next(operation="truncate" if entries > 1 else "delete")
    index.undo()
    index.trim()
    assert desk.half.exists(PATH) == (entries > 1)


def packed(*txns: AbortedTxn, version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *txn) for txn in txns)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed(*TXNS)[:-1], "byte 102 is cut off"),
        (b"x", "byte 0 is cut off"),
        (packed(TXNS[0]) + packed(TXNS[1], version=1), "byte 34 has version 1"),
        (packed(TXNS[0]) + bytes(34), "byte 34 cannot be true"),
        (packed(TXNS[1], TXNS[0]), "byte 34 cannot be true"),
        (packed(TXNS[0], TXNS[0]), "byte 34 cannot be true"),
        (packed(AbortedTxn(1, 50, 99, 60)), "byte 0 cannot be true"),
        (packed(AbortedTxn(1, 120, 120, 60)), "byte 0 cannot be true"),
        (packed(AbortedTxn(-1, 100, 120, 60)), "byte 0 cannot be true"),
        (packed(AbortedTxn(1, -100, 120, 60)), "byte 0 cannot be true"),
        (packed(AbortedTxn(1, 100, 120, 122)), "byte 0 cannot be true"),
        (packed(AbortedTxn(1, 100, 120, -1)), "byte 0 cannot be true"),
        (packed(AbortedTxn(1, 100, 120, 110), AbortedTxn(2, 100, 130, 109)), "byte 34 cannot"),
        (packed(AbortedTxn(1, 100, 200, 110)), "byte 0 cannot be true"),
    ],
)
def test_damage_is_recognised_and_named(desk: Desk, data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        unpack_txn_index(data, BASE, 200)
    desk.half.put(PATH, data)
    index = desk.loaded(200)
    assert (index.stale, index.entries) == (True, 0)
    index.replace(TXNS)
    assert not index.stale
    assert index.read_all() == desk.loaded().read_all() == TXNS


@settings(max_examples=300)
@given(data=st.binary(max_size=120) | st.binary(max_size=64).map(lambda d: packed(*TXNS) + d))
def test_whatever_a_file_holds_is_read_or_refused(data: bytes) -> None:
    try:
        found = unpack_txn_index(data, BASE)
    except DecodeError:
        return
    assert packed(*found) == data
