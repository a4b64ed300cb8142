"""The list of aborted transactions of a segment: its bytes, and what overlaps a range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.remote_log.aborted_txns import (
    RemoteAbortedTxn,
    check_aborted,
    decode_aborted,
    encode_aborted,
    overlapping,
)

ENTRIES = (
    RemoteAbortedTxn(7, 10, 15),
    RemoteAbortedTxn(2**40, 0, 2**40),
    RemoteAbortedTxn(7, 16, 2**41),
)


@pytest.mark.parametrize("entries", [(), ENTRIES[:1], ENTRIES])
def test_a_list_survives_its_bytes(entries: tuple[RemoteAbortedTxn, ...]) -> None:
    assert decode_aborted(encode_aborted(entries)) == entries


def test_a_cut_list_is_refused() -> None:
    with pytest.raises(DecodeError, match="cut off after 71 bytes"):
        decode_aborted(encode_aborted(ENTRIES)[:-1])


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([RemoteAbortedTxn(-1, 0, 1)], "cannot be"),
        ([RemoteAbortedTxn(1, -1, 1)], "cannot be"),
        ([RemoteAbortedTxn(1, 5, 5)], "cannot be"),
        ([RemoteAbortedTxn(1, 0, 5), RemoteAbortedTxn(2, 0, 5)], "do not ascend"),
    ],
)
def test_entries_that_cannot_be_true_are_refused(
    entries: list[RemoteAbortedTxn], reason: str
) -> None:
    with pytest.raises(DecodeError, match=reason):
        check_aborted(entries)
    with pytest.raises(DecodeError, match=reason):
        decode_aborted(encode_aborted(entries))


@given(
    txns=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=12),
    start=st.integers(0, 60),
    size=st.integers(0, 10),
)
def test_what_overlaps_a_range(txns: list[tuple[int, int]], start: int, size: int) -> None:
    by_marker = {first + length: first for first, length in txns}
    entries = [RemoteAbortedTxn(1, by_marker[last], last) for last in sorted(by_marker)]
    end = start + size
    assert overlapping(entries, start, end) == tuple(
        entry for entry in entries if entry.last_offset >= start and entry.first_offset < end
    )
