"""Trouble with the disk, said in the broker's log.

Owns: how often it is said.  Must not know what went wrong.

Clients show the code of an error and hardly ever its message; whoever runs the broker needs the
message, but not once per retry of every producer.
"""

import logging
from collections.abc import Callable

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

#: The same partition complains once in this time.
PERIOD_MS = 10_000
_PARTITIONS_MAX = 10_000


class StorageErrors:
    """``now_ms`` is the time of day; ``on_trouble`` is told every time."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        on_trouble: Callable[[TopicPartition], None] = lambda _: None,
    ) -> None:
        self._now_ms = now_ms
        self._on_trouble = on_trouble
        self._said_ms: dict[TopicPartition, int] = {}

    def report_error(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """Log an error that storage is at fault for; others are between client and broker."""
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            return
        self._on_trouble(topic_partition)
        now_ms = self._now_ms()
        said_ms = self._said_ms.get(topic_partition)
        if said_ms is not None and now_ms - said_ms < PERIOD_MS:
            return
        if len(self._said_ms) >= _PARTITIONS_MAX:
            self._said_ms.clear()
        self._said_ms[topic_partition] = now_ms
        logger.error("%s: %s", topic_partition, error.message)
