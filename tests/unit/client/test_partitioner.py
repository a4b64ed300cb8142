"""Hashes as Java and librdkafka compute them, for one key and for columns."""

from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.column_partitioner import (
    NO_PARTITION,
    crc32_column,
    fnv1a_column,
    murmur2_column,
    partitions_of_keys,
)
from sparklog.client.partitioner import murmur2, partition_of_key

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_java_s() -> None:
    assert {key: murmur2(key) for key in JAVA} == {k: v % 2**32 for k, v in JAVA.items()}
    column = murmur2_column(pa.array(list(JAVA), pa.binary()))
    assert column.view(np.int32).tolist() == list(JAVA.values())


@given(st.lists(st.none() | st.binary(max_size=40), max_size=60), st.integers(0, 20))
def test_a_column_hashes_like_its_keys(keys: list[bytes | None], start: int) -> None:
    expected = [murmur2(key or b"") for key in keys]
    for kind in (pa.binary(), pa.large_binary()):
        assert murmur2_column(pa.array(keys, kind)).tolist() == expected
        assert murmur2_column(pa.array(keys, kind).slice(start)).tolist() == expected[start:]
        assert crc32_column(pa.array(keys, kind)).tolist() == [crc32(key or b"") for key in keys]
        assert fnv1a_column(pa.array(keys, kind)).tolist() == [fnv1a(key or b"") for key in keys]


def fnv1a(key: bytes) -> int:
    """As in rdfnv1a.c."""
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 % 2**32
    return 2**32 - h if h >= 2**31 else h


def test_fnv1a_is_librdkafkas() -> None:
    """Values of its own unit test."""
    keys = pa.array(["kafka", "giberish123456789"])
    assert fnv1a_column(keys).tolist() == [0xD33C4E1, 0x77A58295]


def test_rows_without_a_key_have_no_partition() -> None:
    keys = pa.array([b"21", None, b"", b"foobar"], pa.binary())
    expected = [partition_of_key(key, 7) for key in (b"21", b"", b"foobar")]
    assert partitions_of_keys(keys, 7).tolist() == [
        expected[0],
        NO_PARTITION,
        expected[1],
        expected[2],
    ]


def test_strings_hash_as_their_utf_8() -> None:
    keys = pa.array(["abc", "ü"])
    assert murmur2_column(keys).tolist() == [murmur2(b"abc"), murmur2("ü".encode())]


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        murmur2_column(pa.array([1, 2]))
