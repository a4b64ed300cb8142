"""Batch reads of topics.

Owns: the plan of a read, filters that become offsets, and reading ranges as Arrow batches in
Spark's tasks.  Must not know brokers but through ``sparklog.client``, nor writes.
"""

from sparklog.dataframe.read.reader import PushdownTopicReader, TopicReader

__all__ = [
    "PushdownTopicReader",
    "TopicReader",
]
