"""Removing brokers from a running cluster: drain, stop, forget.

Owns: the order, and what happens when it cannot be done.  Must not know where their replicas go.

Interrupted while replicas move, the brokers stay.  Later, or when this process or the control plane
has died, they go on draining: the same removal goes on from there, and ``keep_brokers`` takes it
back.
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
#: How long a stopped broker may take to be known as such.
FORGET_SECONDS_MAX = 30.0


class RemovalCalls(Protocol):
    """What is asked of the control plane."""

    def report_losses(self, broker_ids: Collection[int]) -> None:
        """These brokers do not run any more.  Raises SparklogError."""

    def drain_brokers(
        self, broker_ids: Iterable[int], cancel: bool = False
    ) -> tuple[DrainedBroker, ...]:
        """Have brokers lose their replicas, and tell how far that is; without ids, of all that are
        losing theirs.  Raises SparklogError."""

    def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that is stopped and drained.  Raises SparklogError."""


def remove_brokers(
    fleet: Fleet,
    calls: RemovalCalls,
    broker_ids: Collection[int],
    watch: Callable[[Sequence[DrainedBroker]], None],
    *,
    stop_seconds: float,
) -> None:
    """Raises what ``watch`` raises, KeyboardInterrupt and refusals; then the brokers stay, with the
    replicas that they have left."""
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
    """Take back removals that were not done to the end; the brokers that draining had begun of.

    One that was stopping is stopped; it has to be added again.  Raises SparklogError.
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
        except ConnectError as error:  # it may be restarting, and goes on by itself then
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
            calls.report_losses([broker_id])  # for one that did not stop cleanly
            calls.unregister_broker(broker_id)
            return
        except SparklogError as error:
            if time.monotonic() > end:
                log.warning("broker %s is stopped and still known: %s", broker_id, error)
                return
            time.sleep(POLL_SECONDS)
