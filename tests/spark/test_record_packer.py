"""The packer, on rows as steps of Spark make them: its pieces have the bytes that Python makes."""

import random

import pytest

from sparklog.dataframe.jvm.constants import FIRST_PIECE_BYTES
from sparklog.dataframe.write.packed_records import packed_batch
from sparklog.wire.records.batch import BATCH_OVERHEAD
from sparklog.wire.records.builder import Record, encode_batch
from tests.spark.dataframe_rig import Rig
from tests.spark.jvm_packer import JvmPacker, Row

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

SIZES = (0, 1, 2, 56, 63, 64, 127, 128, 8191, 8192, 200_000)
FAR = (0, -1, -1000, 999, 1000, 63_999, -64_001, 8_192_000, 10**15, -(10**15))


def by_python(rows: list[Row]) -> bytes:
    records = [
        Record(value=row[0], timestamp=row[1] // 1000, key=(*row, None)[2], offset=offset)
        for offset, row in enumerate(rows)
    ]
    return encode_batch(records)[BATCH_OVERHEAD:]


def some_rows(chance: random.Random, keyed: bool) -> list[Row]:
    def some_bytes() -> bytes | None:
        return None if chance.random() < 0.1 else bytes([97]) * chance.choice(SIZES[:-1])

    values = [(some_bytes(), micros) for micros in chance.choices(FAR, k=130)]
    values[100:100] = [(b"v" * SIZES[-1], 7), (b"", 7_000), (None, -7)]
    return [(*row, some_bytes()) for row in values] if keyed else list(values)


@pytest.mark.parametrize("kind", ["generic", "unsafe", "off heap", "string"])
@pytest.mark.parametrize("limit", [16_000, 1_000_000])
@pytest.mark.parametrize("keyed", [False, True])
def test_pieces_are_the_records_of_their_rows(rig: Rig, kind: str, limit: int, keyed: bool) -> None:
    """Where nobody says how many partitions there are, any key may be in a piece."""
    rows = some_rows(random.Random(limit), keyed)
    packer = JvmPacker(rig.spark, kind, limit, keyed=keyed)
    start = 0
    for batch in map(packed_batch, packer.batches(rows)):
        assert (batch.acknowledged, batch.handover) == (0, None)
        for piece in batch.pieces:
            taken = rows[start : start + piece.record_count]
            assert bytes(piece.records) == by_python(taken)
            times = [row[1] // 1000 for row in taken]
            assert (piece.base_timestamp, piece.max_timestamp) == (times[0], max(times))
            assert len(piece.records) <= min(limit, FIRST_PIECE_BYTES) or piece.record_count == 1
            assert (piece.partition, piece.by_key) == (None, keyed)
            start += piece.record_count
    assert start == len(rows) == packer.metric.value()


def test_without_rows_there_is_no_piece(rig: Rig) -> None:
    assert list(JvmPacker(rig.spark, "unsafe", 16_000).batches([])) == []
