"""The fleet: all brokers that a launcher keeps running.

Owns: the broker keepers, and the order of a stop: ask the brokers, wait for their supervisors to
return, cancel the jobs that are left.  Must not know why brokers are added or removed, nor locks,
nor the control plane's process.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparklog.client.replica_admin import ReplicasDescription
from sparklog.driver.launcher.broker_keeper import BrokerKeeper, KeeperOptions
from sparklog.driver.launcher.death_report_batcher import DeathReportBatcher
from sparklog.driver.launcher.engines import Engine
from sparklog.driver.launcher.racks import NO_RACKS, Racks
from sparklog.driver.launcher.slot_allocator import SlotAllocator
from sparklog.driver.launcher.spares import MakeSparePayload, SparePool
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.errors import SparklogError, StartError
from sparklog.types import NO_NODE, Endpoint
from sparklog.wire.protocol.private import AssignedBroker

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
#: How long to wait for a broker that is being restarted, until it can be asked to stop.
ASK_SECONDS_MAX = 5.0
ASK_AGAIN_SECONDS = 0.2
CANCEL_AGAIN_SECONDS = 1.0
CANCEL_SECONDS_MAX = 8.0
CLOSING_LOOK_SECONDS = 1.0
#: Additional time to stop for a broker that is still registered and closes its logs.
CLOSING_SECONDS_MAX = 600.0


class FleetCalls(Protocol):
    """The requests of a fleet to the control plane and to brokers."""

    def report_broker_deaths(self, broker_ids: Collection[int]) -> None:
        """Report that these brokers do not run any more.  Raises SparklogError."""

    def alive_brokers(self) -> dict[int, Endpoint]:
        """The registered brokers and their addresses, by id.  Raises SparklogError."""

    def partitions_of(self, broker_id: int) -> tuple[ReplicasDescription, ...]:
        """The partitions that have a replica on this broker.  Raises SparklogError."""

    def give_work(self, spare: str, work: bytes) -> bool:
        """Give a spare its work.  Returns whether the spare was waiting.  Raises SparklogError."""

    def stop_nodes(self, nodes: tuple[Endpoint, ...], reason: str) -> tuple[Endpoint, ...]:
        """Ask nodes for a clean stop.  Returns the nodes that agreed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The options of a fleet.

    Args:
        make_payload: makes a supervisor's payload for a broker id and an executor; the flag says
            whether the broker may create its directory.
        on_failure: called when a broker will never run.
        replacement_delay: seconds to wait for a missing broker directory before it is replaced.
        make_spare_payload: makes the payload of a spare supervisor by its name.
        spares: the number of slots to hold for brokers that lose theirs.
        racks: the racks over which brokers are spread.
    """

    make_payload: Callable[[int, ExecutorSlots, bool], dict[str, Any]]
    on_failure: Callable[[], None]
    log_folder: Path
    replacement_delay: float
    make_spare_payload: MakeSparePayload
    spares: int = 0
    racks: Racks = NO_RACKS


class Fleet:
    """All brokers and spares of one cluster.  Every method may be called from any thread."""

    def __init__(self, options: FleetOptions, engine: Engine, calls: FleetCalls) -> None:
        self._options = options
        self._engine = engine
        self._calls = calls
        self._slot_allocator = SlotAllocator(options.racks)
        self._deaths = DeathReportBatcher(calls.report_broker_deaths)
        self._spares = SparePool(
            options.spares,
            engine=engine,
            slot_allocator=self._slot_allocator,
            make_payload=options.make_spare_payload,
            give_work=calls.give_work,
        )
        self._keepers: dict[int, BrokerKeeper] = {}
        self._last_endpoints: dict[int, Endpoint] = {}
        self._lock = threading.Lock()
        self._stopping = False

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._keepers))

    @property
    def stopping_ids(self) -> tuple[int, ...]:
        """The brokers that were asked to stop and have not been removed from the fleet yet."""
        return tuple(i for i, keeper in sorted(self._keepers.items()) if keeper.is_stopping)

    def start_spares(self) -> None:
        """Begin to hold spare slots, without waiting for them."""
        self._spares.start()

    def unregistered(self) -> tuple[int, ...]:
        """The brokers that have not registered yet."""
        return tuple(i for i in self.broker_ids if not self._keepers[i].is_registered)

    def add(self, brokers: Iterable[AssignedBroker]) -> None:
        """Start these brokers and keep them running.

        Raises:
            StartError: the fleet is being stopped.
        """
        added = {broker.broker_id: self._keeper(broker) for broker in brokers}
        with self._lock:
            self._require_running()
            self._keepers = {**self._keepers, **added}
            for keeper in added.values():
                keeper.start()

    def await_registered(self, broker_ids: Collection[int], seconds: float) -> None:
        """Block until the brokers are registered.

        Brokers whose directory is missing are skipped if others lead all of their partitions.

        Args:
            seconds: the time limit.

        Raises:
            StartError: a broker cannot start, did not register in time, or the fleet stops.
        """
        end = time.monotonic() + seconds
        waiting = {broker_id: self._keepers[broker_id] for broker_id in broker_ids}
        while waiting:
            for broker_id in self._alive().keys() & waiting.keys():
                waiting.pop(broker_id).mark_registered()
            self._require_running()
            for keeper in waiting.values():
                if keeper.failure is not None:
                    raise StartError(f"broker {keeper.broker_id} does not start: {keeper.failure}")
            if waiting and self._can_do_without(waiting.values()):
                return
            if waiting and time.monotonic() > end:
                raise StartError(self._not_registered_message(waiting, seconds))
            if waiting:
                time.sleep(POLL_SECONDS)

    def _not_registered_message(self, waiting: Mapping[int, BrokerKeeper], seconds: float) -> str:
        names = ", ".join(map(str, sorted(waiting)))
        missing = next((keeper for keeper in waiting.values() if keeper.is_missing), None)
        return f"broker {names} did not register within {seconds:g} s; " + (
            f"see {self._options.log_folder}; a slot may be held by another job"
            if missing is None
            else f"{missing.absence_message}, because there are partitions that only it can lead"
        )

    def _can_do_without(self, waiting: Collection[BrokerKeeper]) -> bool:
        """Whether the cluster can start without these brokers, whose directories are missing.

        Raises:
            StartError: some partition can only be led by one of these brokers.
        """
        if not all(keeper.is_missing for keeper in waiting):
            return False
        alive = {i for i, keeper in self._keepers.items() if keeper.is_registered}
        for keeper in waiting:
            partitions = self._partitions_of(keeper.broker_id)
            dark = [each for each in partitions or () if each.leader == NO_NODE]
            if not alive or any(alive.isdisjoint(each.replicas) for each in dark):
                raise StartError(
                    f"broker {keeper.broker_id} does not start: {keeper.absence_message}"
                )
            if partitions is None or dark:
                return False  # others are about to lead them
        for keeper in waiting:
            log.warning("%s; the other brokers lead all that it had", keeper.absence_message)
            keeper.accept_absence()
        return True

    def _may_replace(self, broker_id: int) -> bool:
        nobody_else = (NO_NODE, broker_id)  # the control plane may not know of its death yet
        partitions = self._partitions_of(broker_id)
        return partitions is not None and all(each.leader not in nobody_else for each in partitions)

    def _partitions_of(self, broker_id: int) -> tuple[ReplicasDescription, ...] | None:
        """The broker's partitions; None while the control plane does not answer."""
        try:
            return self._calls.partitions_of(broker_id)
        except SparklogError as error:
            log.warning("the replicas of broker %s are not known: %s", broker_id, error)
            return None

    def stop_all(self, reason: str, seconds: float) -> None:
        """Stop all brokers and spares.  Call ``ask_to_stop`` first.

        Args:
            reason: the reason that brokers log.
            seconds: the time limit of a clean stop.
        """
        beside = threading.Thread(target=self._spares.stop, args=(seconds,), name="stop-spares")
        beside.start()
        self.stop(self.broker_ids, reason, seconds)
        beside.join()

    def ask_to_stop(self) -> None:
        """Do not restart or add brokers from now on."""
        with self._lock:
            self._stopping = True
            for keeper in self._keepers.values():
                keeper.ask_to_stop()

    def stop(self, broker_ids: Collection[int], reason: str, seconds: float) -> None:
        """Stop these brokers, cleanly where possible, and remove them from the fleet.

        A broker that agreed to stop may take longer than ``seconds`` while it is still registered:
        it is closing its logs, and that time grows with their number.
        """
        present = self._keepers
        keepers = [present[broker_id] for broker_id in broker_ids if broker_id in present]
        for keeper in keepers:
            keeper.ask_to_stop()
        end = time.monotonic() + seconds
        asked = set() if self._engine.is_over() else self._ask_nodes(keepers, reason)
        unasked = [keeper for keeper in keepers if keeper.broker_id not in asked]
        while time.monotonic() < end and (running := [k for k in unasked if not k.has_ended]):
            for keeper in running:
                keeper.cancel()  # more than once: its job may be on its way to the engine
            running[0].join(CANCEL_AGAIN_SECONDS)
        running = [keeper for keeper in keepers if not keeper.join(end - time.monotonic())]
        left = [keeper for keeper in running if keeper.broker_id not in asked]
        left += self._await_closing([k for k in running if k.broker_id in asked], reason)
        for keeper in left:
            log.warning("broker %s did not stop in time and is cancelled", keeper.broker_id)
            keeper.cancel()
        for keeper in left:
            if not keeper.join(CANCEL_SECONDS_MAX):
                keeper.cancel()
                keeper.join(CANCEL_SECONDS_MAX)
        with self._lock:
            gone = {keeper.broker_id for keeper in keepers}
            self._keepers = {i: each for i, each in self._keepers.items() if i not in gone}

    def _await_closing(self, keepers: list[BrokerKeeper], reason: str) -> list[BrokerKeeper]:
        """Wait for brokers that are closing their logs.  Returns those that do not end.

        A broker that is registered and accepts a stop request was restarted, so it is asked again.
        """
        end = time.monotonic() + CLOSING_SECONDS_MAX
        silent: list[BrokerKeeper] = []
        if keepers:
            names = ", ".join(str(keeper.broker_id) for keeper in keepers)
            log.info("broker %s takes longer to close its logs", names)
        while keepers and not self._engine.is_over():
            alive = self._alive() if time.monotonic() < end else {}
            registered = [keeper for keeper in keepers if keeper.broker_id in alive]
            silent += [keeper for keeper in keepers if keeper not in registered]
            with suppress(SparklogError):
                self._calls.stop_nodes(tuple(alive[k.broker_id] for k in registered), reason)
            end_of_look = time.monotonic() + CLOSING_LOOK_SECONDS
            keepers = [k for k in registered if not k.join(end_of_look - time.monotonic())]
        # A broker that is not registered any more may have been about to end.
        return [keeper for keeper in (*silent, *keepers) if not keeper.join(CLOSING_LOOK_SECONDS)]

    def _ask_nodes(self, keepers: Collection[BrokerKeeper], reason: str) -> set[int]:
        """Ask brokers to stop.  Returns those that agreed.

        A broker that is being restarted is asked again until it listens.
        """
        end = time.monotonic() + ASK_SECONDS_MAX
        asked: set[int] = set()
        for broker_id in self._alive().keys() & self._keepers.keys():
            self._keepers[broker_id].mark_registered()  # it may have come after the start
        while time.monotonic() < end:
            waiting = {
                keeper.broker_id
                for keeper in keepers
                if keeper.is_registered and not keeper.has_ended and keeper.broker_id not in asked
            }
            if not waiting:
                break
            alive = self._alive() or self._last_endpoints
            nodes = {alive[broker_id]: broker_id for broker_id in waiting & alive.keys()}
            with suppress(SparklogError):
                asked |= {nodes[node] for node in self._calls.stop_nodes(tuple(nodes), reason)}
            if waiting - asked:
                time.sleep(ASK_AGAIN_SECONDS)
        return asked

    def _require_running(self) -> None:
        if self._stopping:
            raise StartError("the cluster is being stopped")

    def _alive(self) -> dict[int, Endpoint]:
        """The registered brokers; empty while the control plane does not answer."""
        try:
            alive = self._calls.alive_brokers()
        except SparklogError as error:  # it may be restarting
            log.warning("the control plane does not answer: %s", error)
            return {}
        self._last_endpoints |= alive
        return alive

    def _keeper(self, broker: AssignedBroker) -> BrokerKeeper:
        def make_payload(executor: ExecutorSlots, new: bool) -> dict[str, Any]:
            return self._options.make_payload(broker.broker_id, executor, new)

        options = KeeperOptions(
            make_payload=make_payload,
            on_death=self._report_death,
            on_failure=self._options.on_failure,
            may_replace=self._may_replace,
            replacement_delay=self._options.replacement_delay,
        )
        return BrokerKeeper(
            broker,
            options,
            engine=self._engine,
            slot_allocator=self._slot_allocator,
            spares=self._spares,
        )

    def _report_death(self, broker_id: int, reason: str) -> None:
        log.warning("broker %s is lost: %s", broker_id, reason)
        self._deaths.report(broker_id)
