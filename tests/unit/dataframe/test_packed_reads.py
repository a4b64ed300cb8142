"""What both sides of the pickled partition rely on."""

import pickle

from sparklog.dataframe.jvm.constants import GIVE_BATCHES, GIVE_ROWS
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.reader import RangePartition
from sparklog.types import TopicPartition


def test_what_a_partition_gives_can_be_changed_in_its_bytes() -> None:
    item = OffsetRange(topic_partition=TopicPartition("topic", 1), start=2, end=3)
    pickled = pickle.dumps(RangePartition(item))
    assert pickled.count(GIVE_ROWS.encode()) == 1
    changed = pickle.loads(pickled.replace(GIVE_ROWS.encode(), GIVE_BATCHES.encode()))
    assert (changed.value, changed.gives) == (item, GIVE_BATCHES)
