"""The removal of brokers from a running cluster: drain, stop, unregister.

Owns: the order of these steps, and what happens when a step fails.  Must not know where replicas
are moved.

When a removal is interrupted while replicas move, the brokers stay in the cluster.  When it is
interrupted later, or when this process or the control plane dies, the brokers go on draining: the
same removal can be continued, and ``keep_brokers`` cancels it.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from sparklog.driver.launcher.fleet import Fleet
from sparklog.errors import ConnectError, SparklogError
from sparklog.wire.protocol.private import DrainedBroker

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
#: How long the control plane may take to unregister a stopped broker.
FORGET_SECONDS_MAX = 30.0


class RemovalCalls(Protocol):
    """The requests of a removal to the control plane."""

    def report_broker_deaths(self, broker_ids: Collection[int]) -> None:
        """Report that these brokers do not run any more.  Raises SparklogError."""

    def drain_brokers(
        self, broker_ids: Iterable[int], cancel: bool = False
    ) -> tuple[DrainedBroker, ...]:
        """Begin (or ``cancel``) draining brokers; without ids, ask about all draining brokers.
        Returns the progress of each broker.  Raises SparklogError."""

    def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker that is stopped and drained.  Raises SparklogError."""


def remove_brokers(
    fleet: Fleet,
    calls: RemovalCalls,
    broker_ids: Collection[int],
    watch: Callable[[Sequence[DrainedBroker]], None],
    *,
    stop_seconds: float,
) -> None:
    """Drain, stop and unregister brokers.

    Args:
        watch: called with the progress of all brokers until they are drained.
        stop_seconds: time limit of a clean stop.

    Raises:
        KafkaError: the controller refuses to drain the brokers.
        BaseException: anything that ``watch`` raises, and KeyboardInterrupt.  After an exception
            the brokers stay, with the replicas that they still have.
    """
    try:
        _drain(calls, broker_ids, watch)
    except BaseException:
        with suppress(SparklogError):
            calls.drain_brokers(broker_ids, cancel=True)
        raise
    fleet.stop(broker_ids, "it is removed", stop_seconds)
    for broker_id in broker_ids:
        _forget(calls, broker_id)


def keep_brokers(
    fleet: Fleet, calls: RemovalCalls, broker_ids: Collection[int], *, stop_seconds: float
) -> tuple[int, ...]:
    """Cancel interrupted removals.

    A broker that was being stopped is stopped completely, and has to be added again.

    Returns:
        The ids of those of the brokers that were draining.

    Raises:
        SparklogError: the control plane did not answer.
    """
    draining = {broker.broker_id for broker in calls.drain_brokers(())}
    kept = tuple(sorted(draining.intersection(broker_ids)))
    if kept:
        half = [broker_id for broker_id in fleet.stopping_ids if broker_id in kept]
        fleet.stop(half, "it is started again", stop_seconds)
        calls.drain_brokers(kept, cancel=True)
    return kept


def _drain(
    calls: RemovalCalls,
    broker_ids: Collection[int],
    watch: Callable[[Sequence[DrainedBroker]], None],
) -> None:
    while True:
        try:
            drained = calls.drain_brokers(broker_ids)
        except ConnectError as error:  # the control plane may be restarting; draining continues
            log.warning("the control plane does not answer: %s", error)
        else:
            watch(drained)
            if not any(broker.partitions_left for broker in drained):
                return
        time.sleep(POLL_SECONDS)


def _forget(calls: RemovalCalls, broker_id: int) -> None:
    end = time.monotonic() + FORGET_SECONDS_MAX
    while True:
        try:
            calls.report_broker_deaths([broker_id])  # for a broker that did not stop cleanly
            calls.unregister_broker(broker_id)
            return
        except SparklogError as error:
            if time.monotonic() > end:
                log.warning("broker %s is stopped and still known: %s", broker_id, error)
                return
            time.sleep(POLL_SECONDS)
