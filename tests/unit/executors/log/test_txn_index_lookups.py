"""Lookups in transaction indexes of many blocks: the result is Kafka's, and few bytes are read.

The reference is the scan of ``TransactionIndex.collectAbortedTxns`` from the first entry of every
segment on (``UnifiedLog.collectAbortedTransactions``).
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ChangedFileError, DecodeError, StorageError
from sparklog.executors.log import txn_index, txn_index_blocks
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.txn_index import ENTRY_BYTES, AbortedTxn, TxnIndex, unpack_txn_index
from sparklog.executors.log.txn_index_blocks import BLOCK_ENTRIES, TxnIndexBlocks
from sparklog.executors.partition.open_transactions import OpenTransactions
from sparklog.storage_backends.memory import MemoryBackend

PATH = "00000000000000000000.txnindex"
SMALL_BLOCK = 3


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of three entries and groups of two blocks: short histories have many of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(txn_index_blocks, "_GROUP_BLOCKS", 2)
        for module in (txn_index, txn_index_blocks):
            patch.setattr(module, "BLOCK_ENTRIES", SMALL_BLOCK)
            patch.setattr(module, "BLOCK_BYTES", SMALL_BLOCK * ENTRY_BYTES)
        patch.setattr(txn_index, "_READ_BYTES", 2 * SMALL_BLOCK * ENTRY_BYTES)
        yield


@dataclass
class Segments:
    """The aborted transactions of a log, by segment, and the offsets where segments begin."""

    entries: list[list[AbortedTxn]] = field(default_factory=lambda: [[]])
    bases: list[int] = field(default_factory=lambda: [0])
    end: int = 0

    def kafka(self, start: int, end: int) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        first = max(n for n, base in enumerate(self.bases) if base <= start)
        for entries in self.entries[first:]:
            for txn in entries:
                if txn.last_offset >= start and txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:
                    return found
        return found

    def indexes(self, half: MemoryBackend) -> list[TxnIndex]:
        found = []
        for base, entries in zip(self.bases, self.entries, strict=True):
            index = TxnIndex(half, FileCache(4), f"{base}.txnindex", base)
            for txn in entries:
                index.append(txn)
            found.append(index)
        return found


#: What a producer does next: data, an abort, a commit; or the log rolls.
Step = tuple[str, int]
_KINDS = [*["data"] * 8, *["abort"] * 10, "commit", "commit", "roll"]
steps = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, 4)), min_size=30, max_size=100)


def history(moves: list[Step]) -> Segments:
    segments, transactions = Segments(), OpenTransactions()
    current: dict[int, int] = {}
    for kind, producer_id in moves:
        offset = segments.end
        if kind == "roll":
            if offset > segments.bases[-1]:
                segments.bases.append(offset)
                segments.entries.append([])
            continue
        first = current.setdefault(producer_id, offset)
        segments.end += 1
        if first == offset:
            transactions.begin(first, producer_id)
            continue
        if kind == "data":
            continue
        del current[producer_id]
        if kind == "abort":
            stable = transactions.stable_offset_after(first, offset)
            segments.entries[-1].append(AbortedTxn(producer_id, first, offset, stable))
        transactions.end(first, offset)
    return segments


def collected(indexes: list[TxnIndex], start: int, end: int) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    for index in indexes:
        more, complete = index.collect(start, end)
        found += more
        if complete:
            break
    return found


def ranges(end: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(end + 1) for b in (a + 1, a + 9, end + 1)]


@settings(max_examples=40)
@given(moves=steps)
@small_blocks()
def test_every_range_gets_what_kafka_finds(moves: list[Step]) -> None:
    segments = history(moves)
    half = MemoryBackend()
    written = segments.indexes(half)
    loaded, adopted = [], []
    for index, (base, after) in zip(
        written, pairwise([*segments.bases, segments.end]), strict=True
    ):
        again = TxnIndex(half, FileCache(4), index.path, base)
        if index.entries:
            again.load(after)
            assert not again.stale
        loaded.append(again)
        taken = TxnIndex(half, FileCache(4), index.path, base)
        taken.adopt(index.entries)
        adopted.append(taken)
    for start, end in ranges(segments.end):
        expected = segments.kafka(start, end)
        for indexes in (written, loaded, adopted):
            assert collected(indexes, start, end) == expected, (start, end)
    for index, entries in zip(loaded, segments.entries, strict=True):
        assert index.last_offset == (entries[-1].last_offset if entries else -1)


@settings(max_examples=40)
@given(
    moves=steps,
    changes=st.lists(
        st.tuples(st.sampled_from(["cut", "undo", "append", "look"]), st.integers(0, 60))
    ),
)
@small_blocks()
def test_cuts_and_appends_leave_the_blocks_right(
    moves: list[Step], changes: list[tuple[str, int]]
) -> None:
    (*_, entries) = history([step for step in moves if step[0] != "roll"]).entries
    segments = Segments(entries=[list(entries)])
    (index,) = segments.indexes(MemoryBackend())
    (left,) = segments.entries
    segments.end = left[-1].last_offset + 1 if left else 0
    for kind, number in changes:
        if kind == "cut":
            index.truncate_to(number)
            left[:] = [txn for txn in left if txn.last_offset < number]
        elif kind == "undo" and left:
            index.undo()
            left.pop()
        elif kind == "append":
            for marker in range(segments.end + 1, segments.end + number % 16):
                stable = left[-1].last_stable_offset if left and number % 2 else marker + 1
                left.append(AbortedTxn(7, marker * number % marker, marker, stable))
                index.append(left[-1])
                segments.end = marker + 1
        else:
            for start, end in ranges(segments.end)[:: max(number, 1)]:
                assert index.collect(start, end)[0] == segments.kafka(start, end)
    assert index.read_all() == left
    for start, end in ranges(segments.end):
        assert index.collect(start, end)[0] == segments.kafka(start, end)


@pytest.mark.parametrize("cut", range(40))
def test_what_follows_a_cut_is_added_as_ever(cut: int) -> None:
    def add(blocks: TxnIndexBlocks, entries: range) -> TxnIndexBlocks:
        for number in entries:
            blocks.add(1000 - number if number > 20 else number, 2000 + number, 1500 + number)
        return blocks

    def state(blocks: TxnIndexBlocks) -> list[object]:
        return [getattr(blocks, name) for name in TxnIndexBlocks.__slots__]

    with small_blocks():
        blocks = add(TxnIndexBlocks(), range(40))
        blocks.cut(cut)
        assert state(blocks) == state(add(TxnIndexBlocks(), range(blocks.entries)))
        assert cut - SMALL_BLOCK < blocks.entries <= cut
        assert state(add(blocks, range(blocks.entries, 40))) == state(
            add(TxnIndexBlocks(), range(40))
        )


COUNT = 5 * BLOCK_ENTRIES + 7
#: Transactions one after the other, each of two offsets.
SHORT = [AbortedTxn(1, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(COUNT)]
#: The same while another transaction stays open, which began at offset 10.
BEHIND_AN_OPEN_ONE = [AbortedTxn(1, 2 * n, 2 * n + 1, 10) for n in range(10, COUNT)]


def loaded(half: MemoryBackend, entries: list[AbortedTxn]) -> TxnIndex:
    TxnIndex(half, FileCache(4), PATH, 0).replace(entries)
    index = TxnIndex(half, FileCache(4), PATH, 0)
    index.load(10**9)
    assert index.entries == len(entries)
    return index


@pytest.mark.parametrize(
    ("entries", "start", "end", "complete"),
    [
        (SHORT, 2 * COUNT, 2 * COUNT + 100, False),  # behind all markers
        (BEHIND_AN_OPEN_ONE, 0, 5, True),
        (BEHIND_AN_OPEN_ONE, 5, 20, False),  # the open transaction may be aborted later
    ],
)
def test_a_range_without_aborted_transactions_reads_nothing(
    entries: list[AbortedTxn], start: int, end: int, complete: bool
) -> None:
    half = MemoryBackend()
    index = loaded(half, entries)
    half.faults.fail_next(operation="read")
    assert index.collect(start, end) == ([], complete)


def test_a_range_reads_its_own_blocks_alone() -> None:
    half = MemoryBackend()
    index = loaded(half, SHORT)
    # The second block from the end: the other blocks are unreadable.
    first = 4 * BLOCK_ENTRIES
    node = bytearray(half.read(PATH))
    for block in (0, 1, 2, 3, 5):
        begin = block * BLOCK_ENTRIES * ENTRY_BYTES
        count = min(BLOCK_ENTRIES, COUNT - block * BLOCK_ENTRIES)
        node[begin : begin + count * ENTRY_BYTES] = bytes(count * ENTRY_BYTES)
    half.put(PATH, node)
    assert index.collect(2 * first + 4, 2 * first + 9) == (SHORT[first + 2 : first + 5], True)


def test_a_replaced_file_is_read_anew() -> None:
    half = MemoryBackend()
    index = loaded(half, BEHIND_AN_OPEN_ONE)
    index.replace(SHORT)
    assert index.collect(0, 4) == (SHORT[:2], True)
    index.replace(SHORT[:1])
    assert index.collect(0, 4) == (SHORT[:1], False)


def test_an_empty_file_is_left_over() -> None:
    half = MemoryBackend()
    half.put(PATH, b"")
    index = TxnIndex(half, FileCache(4), PATH, 0)
    index.load(10**9)
    assert (index.stale, index.entries) == (False, 0)
    index.trim()
    assert not half.exists(PATH)


def test_a_file_that_lost_entries_meanwhile_is_an_error() -> None:
    half = MemoryBackend()
    index = loaded(half, SHORT)
    assert index.collect(0, 2)[0] == SHORT[:1]  # the file is open
    half.open(PATH).truncate(3 * ENTRY_BYTES)
    with pytest.raises(ChangedFileError, match=r"txnindex has 102 bytes where \d+ were written"):
        index.collect(0, 2)


def test_a_lookup_that_cannot_read_changes_nothing() -> None:
    half = MemoryBackend()
    TxnIndex(half, FileCache(4), PATH, 0).replace(SHORT)
    index = TxnIndex(half, FileCache(4), PATH, 0)
    index.adopt(len(SHORT))
    half.faults.fail_next(operation="read")
    with pytest.raises(StorageError):
        index.collect(0, 10)
    assert index.collect(0, 10) == (SHORT[:5], True)


def test_damage_behind_the_first_bytes_is_named_and_found_by_a_load() -> None:
    half = MemoryBackend()
    position = (len(SHORT) - 1) * ENTRY_BYTES
    damaged = bytearray(struct.pack(">hqqqq", 0, *SHORT[0]))
    for txn in SHORT[1:]:
        damaged += struct.pack(">hqqqq", 0, *txn)
    damaged[position + 1] = 1
    half.put(PATH, damaged)
    with pytest.raises(DecodeError, match=f"byte {position} has version 1"):
        unpack_txn_index(bytes(damaged))
    index = TxnIndex(half, FileCache(4), PATH, 0)
    index.load(10**9)
    assert (index.stale, index.entries) == (True, 0)
