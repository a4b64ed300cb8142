"""Closing the log of one partition when the broker stops.

Owns: when a log counts as cleanly closed.  Must not know which logs are closed, or when.
"""

import logging
from collections.abc import Callable

from sparklog.errors import SparklogError
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.storage_backends.blocking import run_blocking

logger = logging.getLogger(__name__)


async def close_log(
    partition: Partition, *, now_ms: Callable[[], int], counters: BrokerMetrics
) -> bool:
    """Flush and close the log.  Returns False when the log is offline or could not be flushed."""
    log = partition.log
    if log.offline is not None:
        log.close(now_ms(), clean=False)
        return False
    try:
        await run_blocking(log.close, now_ms())
    except SparklogError as error:
        logger.error("%s did not close: %s", partition.topic_partition, error)
        return False
    finally:
        counters.partitions_closed += 1
    return True
