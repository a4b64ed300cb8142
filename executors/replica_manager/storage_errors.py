"""The log messages about the storage errors of requests.

Owns: how often an error is logged.  Must not know the cause of an error, or the checks after it.

Clients show the code of an error and hardly ever its message.  The operator of the broker needs the
message, but not once per retry of every producer.
"""

import logging
from collections.abc import Callable

from sparklog.errors import KafkaError
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

#: The errors of one partition are logged once in this time.
PERIOD_MS = 10_000
_PARTITIONS_MAX = 10_000


class StorageErrorLogger:
    """Logs the storage errors of requests; ``now_ms`` is the time of day."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._logged_ms: dict[TopicPartition, int] = {}

    def log(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """Log the error, unless another one of this partition has just been logged."""
        now_ms = self._now_ms()
        logged_ms = self._logged_ms.get(topic_partition)
        if logged_ms is not None and now_ms - logged_ms < PERIOD_MS:
            return
        if len(self._logged_ms) >= _PARTITIONS_MAX:
            self._logged_ms.clear()
        self._logged_ms[topic_partition] = now_ms
        logger.error("%s: %s", topic_partition, error.message)
