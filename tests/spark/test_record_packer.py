"""The packer, on rows as steps of Spark make them: its pieces have the bytes that Python makes."""

import random

import pytest
from dataframe_rig import Rig
from jvm_packer import JvmPacker, Row

from sparklog.dataframe.packed_records import packed_batch
from sparklog.dataframe.record_packer import FIRST_PIECE_BYTES
from sparklog.wire.batch import BATCH_OVERHEAD
from sparklog.wire.builder import Record, encode_batch

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

SIZES = (0, 1, 2, 56, 63, 64, 127, 128, 8191, 8192, 200_000)
FAR = (0, -1, -1000, 999, 1000, 63_999, -64_001, 8_192_000, 10**15, -(10**15))


def by_python(rows: list[Row]) -> bytes:
    records = [
        Record(key=None, value=value, timestamp=micros // 1000, headers=(), offset=offset)
        for offset, (value, micros) in enumerate(rows)
    ]
    return encode_batch(records)[BATCH_OVERHEAD:]


@pytest.mark.parametrize("kind", ["generic", "unsafe", "off heap", "string"])
@pytest.mark.parametrize("limit", [16_000, 1_000_000])
def test_pieces_are_the_records_of_their_rows(rig: Rig, kind: str, limit: int) -> None:
    chance = random.Random(limit)
    rows: list[Row] = [
        (None if chance.random() < 0.1 else bytes([97]) * chance.choice(SIZES[:-1]), micros)
        for micros in chance.choices(FAR, k=130)
    ]
    rows[100:100] = [(b"v" * SIZES[-1], 7), (b"", 7_000), (None, -7)]
    packer = JvmPacker(rig.spark, kind, limit)
    start = 0
    for batch in map(packed_batch, packer.batches(rows)):
        assert (batch.acknowledged, batch.handover) == (0, None)
        for piece in batch.pieces:
            taken = rows[start : start + piece.record_count]
            assert bytes(piece.records) == by_python(taken)
            times = [at // 1000 for _, at in taken]
            assert (piece.base_timestamp, piece.max_timestamp) == (times[0], max(times))
            assert len(piece.records) <= min(limit, FIRST_PIECE_BYTES) or piece.record_count == 1
            assert piece.partition is None
            start += piece.record_count
    assert start == len(rows) == packer.metric.value()


def test_without_rows_there_is_no_piece(rig: Rig) -> None:
    assert list(JvmPacker(rig.spark, "unsafe", 16_000).batches([])) == []
