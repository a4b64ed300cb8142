"""What both sides of the pickled partition rely on; where the strategy cannot be installed."""

import logging
import pickle
from types import SimpleNamespace

import pytest

from sparklog.dataframe import packed_reads
from sparklog.dataframe.plan import OffsetRange
from sparklog.dataframe.reader import RangePartition
from sparklog.dataframe.record_unpacker import GIVE_BATCHES, GIVE_ROWS
from sparklog.types import TopicPartition


class Context(SimpleNamespace):
    """A Spark context without a JVM; hashable, as contexts are."""

    __hash__ = object.__hash__


def test_what_a_partition_gives_can_be_changed_in_its_bytes() -> None:
    item = OffsetRange(topic_partition=TopicPartition("topic", 1), start=2, end=3)
    pickled = pickle.dumps(RangePartition(item))
    assert pickled.count(GIVE_ROWS.encode()) == 1
    changed = pickle.loads(pickled.replace(GIVE_ROWS.encode(), GIVE_BATCHES.encode()))
    assert (changed.value, changed.gives) == (item, GIVE_BATCHES)


def test_a_session_without_a_jvm_has_no_strategy() -> None:
    assert packed_reads.install(SimpleNamespace()) is False


def test_a_spark_that_lacks_what_the_strategy_needs_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert packed_reads.install(SimpleNamespace(sparkContext=Context())) is False
    assert [record.message for record in caplog.records] == [
        "rows are made by Python: 'Context' object has no attribute '_jvm'"
    ]
