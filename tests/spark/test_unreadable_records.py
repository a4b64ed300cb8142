"""Batches that a DataFrame's read cannot read: an error that names them, or left out."""

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.dataframe.jvm.constants import PACKED_READS_CONF
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BATCH_OVERHEAD, pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from tests.spark.dataframe_rig import Rig
from tests.support.bombs import bomb

SHARES_CLUSTER = True
BOMB_RECORDS = 2_000_000


def good(*values: bytes) -> bytes:
    return encode_batch([Record(value=value) for value in values])


def around(section: bytes, count: int, codec: int = 0) -> bytes:
    """A right CRC around any bytes."""
    return pack_batch(
        section, attributes=codec, record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip


def topic_of(rig: Rig, *batches: bytes) -> str:
    topic = rig.new_topic(partitions=1)
    for batch in batches:
        rig.client.run(rig.client.data_client.produce(TopicPartition(topic, 0), [batch]))
    return topic


def values(frame: Any) -> list[bytes]:
    return [bytes(row.value) for row in frame.select("value", "offset").orderBy("offset").collect()]


GARBAGE = around(good(b"b")[BATCH_OVERHEAD:] + b"\x0e" + b"\xff" * 40, 3)
BROKEN = around(b"\x28\xb5\x2f\xfd" + b"\x55" * 90, 2, codec=4)


@pytest.mark.parametrize("packed", ["true", "false"])
@pytest.mark.parametrize("poison", [GARBAGE, BROKEN], ids=["garbage", "broken"])
def test_the_error_names_partition_offset_and_option(rig: Rig, packed: str, poison: bytes) -> None:
    topic = topic_of(rig, good(b"a"), poison, good(b"c"))
    with (
        rig.conf(PACKED_READS_CONF, packed),
        pytest.raises(Exception, match=rf"{topic}-0.*offset.*failOnCorruptBatch=false") as caught,
    ):
        values(rig.read(topic))
    assert "at offset" in str(caught.value)


def test_what_cannot_be_read_is_left_out_and_not_counted(rig: Rig) -> None:
    topic = topic_of(rig, good(b"a"), GARBAGE, BROKEN, good(b"c", b"d"))
    lenient = rig.read(topic, failOnCorruptBatch="false")
    assert values(lenient) == [b"a", b"b", b"c", b"d"]
    assert lenient.count() == 4
    assert rig.read(topic, failOnCorruptBatch="false", startingOffsets=at(topic, 4)).count() == 2


def at(topic: str, offset: int) -> str:
    return f'{{"{topic}": {{"0": {offset}}}}}'


@pytest.mark.parametrize(
    "query",
    [
        lambda frame: frame.count(),
        lambda frame: frame.selectExpr("count(offset) AS n").first().n,
        lambda frame: frame.selectExpr("count(value) + count(*) AS n").first().n,
    ],
)
def test_a_bomb_is_read_in_slices(rig: Rig, query: Callable[[Any], int]) -> None:
    topic = topic_of(rig, bomb(BOMB_RECORDS))
    assert query(rig.read(topic)) == BOMB_RECORDS
