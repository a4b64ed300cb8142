"""The loop over few records finds what the check by column finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.records.batch import BATCH_OVERHEAD, pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.few_records import (
    BYTES_MAX,
    RECORDS_MAX,
    first_keyless_of_few,
    has_few_records,
)
from sparklog.wire.records.record_fields import first_keyless

field = st.none() | st.binary(max_size=80)
records = st.lists(
    st.builds(Record, key=field, value=field, timestamp=st.integers(0, 2**41)),
    min_size=1,
    max_size=6,
)


def outcome(check: object, batch: bytes) -> object:
    try:
        return check(batch)  # type: ignore[operator]
    except DecodeError:
        return DecodeError


@given(records=records)
def test_the_first_record_without_a_key_is_found(records: list[Record]) -> None:
    batch = encode_batch(records)
    keyless = [index for index, record in enumerate(records) if record.key is None]
    assert first_keyless_of_few(batch) == (keyless[0] if keyless else None)
    assert first_keyless(batch) == first_keyless_of_few(batch)


@given(
    records=records,
    count=st.integers(1, 8),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    tail=st.binary(max_size=8),
    lost=st.integers(0, 8),
)
def test_damaged_records_are_refused_alike(
    records: list[Record], count: int, changes: list[tuple[int, int]], tail: bytes, lost: int
) -> None:
    section = bytearray(encode_batch(records)[BATCH_OVERHEAD:])
    for position, byte in changes:
        section[position % len(section)] = byte
    section = section[: len(section) - lost] + tail
    batch = pack_batch(
        bytes(section),
        attributes=0,
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
    )
    assert outcome(first_keyless_of_few, batch) == outcome(first_keyless, batch)


def test_only_small_batches_are_looped_over() -> None:
    few = [Record(key=b"k", value=b"v")] * RECORDS_MAX
    assert has_few_records(encode_batch(few))
    assert not has_few_records(encode_batch([*few, few[0]]))
    assert not has_few_records(encode_batch(few[:1], compression=Compression.GZIP))
    assert not has_few_records(encode_batch([Record(key=b"k", value=bytes(BYTES_MAX))]))
    assert not has_few_records(b"short")


@pytest.mark.parametrize("lost", [1, 5])
def test_records_that_are_cut_off_are_refused(lost: int) -> None:
    batch = encode_batch([Record(key=b"k", value=b"value")] * 3)
    with pytest.raises(DecodeError):
        first_keyless_of_few(batch[:-lost])
