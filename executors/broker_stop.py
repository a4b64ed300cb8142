"""The steps of a broker's clean stop.

Owns: how others come to lead in its place, how long a disk may take to close the logs, and which
log directories get the clean marker.  Must not know the order of the steps, or why the broker
stops.
"""

import asyncio
import logging

from sparklog.errors import ConnectError, KafkaError, StorageError
from sparklog.executors.controller_link import BrokerLifecycle
from sparklog.executors.log_dirs import LogDirs
from sparklog.executors.replica_manager import BrokerMetrics, ReplicaManager
from sparklog.storage_backends.blocking import run_blocking

#: How long a broker that stops waits for others to lead in its place.
HAND_OVER_S = 5.0
HAND_OVER_RETRY_S = 0.1
#: How long closing the logs may stand still.
STALLED_S = 30.0

logger = logging.getLogger(__name__)


async def hand_over(
    lifecycle: BrokerLifecycle, replica_manager: ReplicaManager, image_applied: asyncio.Event
) -> None:
    """Hand leadership over where possible, so that clients need not wait for an election.

    ``image_applied`` is set after each image that was applied.
    """
    try:
        async with asyncio.timeout(HAND_OVER_S):
            while not await lifecycle.prepare_stop():
                await asyncio.sleep(HAND_OVER_RETRY_S)
            while lifecycle.is_registered and _could_be_led_by_others(replica_manager):
                image_applied.clear()
                await image_applied.wait()
    except (TimeoutError, ConnectError, KafkaError) as error:
        logger.info("not everything is handed over before the stop: %s", error)


def _could_be_led_by_others(replica_manager: ReplicaManager) -> bool:
    """Whether the image still shows a leadership of this broker that can move."""
    image, own = replica_manager.image, replica_manager.node_id
    return any(
        other != own and image.is_alive(other)
        for state in image.partitions_led_by(own).values()
        for other in state.isr
    )


async def cancel_when_stalled(counters: BrokerMetrics, heartbeats: "asyncio.Task[None]") -> None:
    """Cancel the heartbeats when no log was closed for ``STALLED_S``.

    A supervisor that stops this broker waits while heartbeats come, which is while logs close.
    """
    closed = -1
    while counters.partitions_closed > closed:
        closed = counters.partitions_closed
        await asyncio.sleep(STALLED_S)
    logger.error("no log was closed for %g s: a disk does not answer", STALLED_S)
    await cancel([heartbeats])


async def leave_log_dirs(
    log_dirs: LogDirs, replica_manager: ReplicaManager | None, broker_epoch: int
) -> None:
    """Close the logs and release the log directories.

    A log directory gets the clean marker where all is whole and the control plane knows the past.
    A start that recovered logs but never registered (``broker_epoch`` -1) leaves no marker: the
    next start must still report the unclean stop.
    """
    try:
        whole = list(log_dirs) if replica_manager is None else await replica_manager.close()
        for log_dir in log_dirs:
            if log_dir in whole and (log_dir.clean or broker_epoch >= 0):
                epoch = broker_epoch if broker_epoch >= 0 else log_dir.clean_epoch
                await run_blocking(log_dir.write_clean_marker, epoch)
            else:
                logger.warning(
                    "no clean marker in %s: the next start recovers its logs", log_dir.location
                )
    except StorageError as error:
        logger.error("the stop is not clean: %s", error)
    finally:
        log_dirs.release()


async def cancel(tasks: "list[asyncio.Task[None]]") -> None:
    """Cancel the tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
