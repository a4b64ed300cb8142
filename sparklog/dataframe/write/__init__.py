"""Batch writes to topics.

Owns: a task's producer, the partitions of rows, and the objects that Spark pickles for a write.
Must not know brokers but through ``sparklog.client``, nor reads.
"""

from sparklog.dataframe.write.writer import PackedTopicWriter, TopicWriter

__all__ = [
    "PackedTopicWriter",
    "TopicWriter",
]
