"""The launcher: it starts a cluster, keeps it running, scales it, and stops it cleanly.

Owns: the order of a start (lock, control plane, broker ids, supervisors) and of a stop (brokers,
supervisors, control plane, lock).  Must not know how supervisors run (the engine does).  It carries
no data and no client request.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sparklog.config import BrokerConfig
from sparklog.driver.cluster_lock import CLUSTER_LOCK_FILE
from sparklog.driver.launcher.control_plane_process import (
    ControlPlaneProcess,
    ControlProcessOptions,
)
from sparklog.driver.launcher.engines import Engine
from sparklog.driver.launcher.fleet import Fleet, FleetCalls, FleetOptions
from sparklog.driver.launcher.racks import NO_RACKS, Racks
from sparklog.driver.launcher.removal import RemovalCalls, keep_brokers, remove_brokers
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.errors import (
    ErrorCode,
    KafkaError,
    LockedError,
    SparklogError,
    StartError,
    StorageError,
)
from sparklog.process import local_folder
from sparklog.storage_backends.base import Lock
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import AssignedBroker, DrainedBroker

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The cluster to start.

    Args:
        brokers: the number of brokers.
        data_dir: a folder or file URL that every executor has under this name.
        host: the address on which the control plane listens.
        more_data_dirs: further data folders, on other disks; brokers spread their logs over all.
        spares: the number of slots that are held for brokers that lose theirs.
        journal_dir: folder or URL of the journal; None for a folder below ``data_dir``.
        broker_host: the address on which brokers listen; None for the host of their executor.
        port: the control plane's port; 0 takes any free port.
        settings: broker settings by Kafka's names.
        racks: the rack of each host.
        storage_options: options of the object stores that hold the journal and the remote logs.
        disks_are_lost: whether brokers of the journal may make new directories, because nothing is
            left of theirs; the journal may then be an old copy, too.
        start_seconds: time limit of a start.
        stop_seconds: time limit of a stop, except for brokers that are still closing their logs.
    """

    brokers: int
    data_dir: str
    host: str
    more_data_dirs: tuple[str, ...] = ()
    spares: int = 0
    journal_dir: str | None = None
    broker_host: str | None = None
    port: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    racks: Racks = NO_RACKS
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    disks_are_lost: bool = False
    start_seconds: float = 120.0
    stop_seconds: float = 30.0


class MemberCalls(FleetCalls, RemovalCalls, Protocol):
    """Requests of a cluster member, each with a deadline of its own."""

    def assign_brokers(self, count: int) -> tuple[AssignedBroker, ...]:
        """The brokers to start so that there are ``count``.  Raises SparklogError."""

    def close(self) -> None:
        """Close all connections."""


MakeCalls = Callable[[Endpoint, bytes], MemberCalls]


class Launcher:
    """Runs the processes of one cluster.

    Args:
        options: the cluster to start.
        engine: runs the supervisors.
        make_calls: opens the requests to a control plane, from its address and the cluster secret.

    Raises:
        StartError: a data folder is not local.
        ConfigError: a setting is wrong.
    """

    def __init__(self, options: LaunchOptions, engine: Engine, make_calls: MakeCalls) -> None:
        self._options = options
        self._engine = engine
        self._make_calls = make_calls
        self._locks: list[Lock] = []
        self._calls: MemberCalls | None = None
        self._fleet: Fleet | None = None
        self._scale_lock = threading.Lock()
        self._stop_lock = threading.Lock()
        self._stopped = False
        self._config = BrokerConfig.resolve(options.settings)
        self.data_folder = _require_local(options.data_dir)
        for further in options.more_data_dirs:
            _require_local(further)
        self.control_plane = ControlPlaneProcess(self._control_options())

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return self._fleet.broker_ids if self._fleet is not None else ()

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def start(self) -> None:
        """Start the cluster and wait until every broker is registered.

        Raises:
            StartError: the cluster could not be started.  Everything that ran is stopped again.
        """
        try:
            self._start()
        except BaseException:
            self.stop("the start failed")
            raise

    def stop(self, reason: str = "the cluster stops") -> None:
        """Stop the brokers cleanly, then everything else.

        This may be called more than once, and from any thread.

        Args:
            reason: the reason that brokers log.
        """
        with self._stop_lock:
            if self._stopped:
                return
            self._stopped = True
            if self._fleet is not None:
                self._fleet.ask_to_stop()
            with ExitStack() as afterwards:  # runs in reverse order, whatever fails before
                for lock in self._locks:
                    afterwards.callback(lock.release)
                afterwards.callback(self._engine.close)
                if self._calls is not None:
                    afterwards.callback(self._calls.close)
                afterwards.callback(self.control_plane.stop)
                if self._fleet is not None:
                    self._fleet.stop_all(reason, self._options.stop_seconds)

    def add_brokers(self, count: int) -> tuple[int, ...]:
        """Scale the cluster to ``count`` brokers in all and wait until the new ones serve.

        Returns:
            The ids of the new brokers.

        Raises:
            StartError: a new broker did not start.  New brokers that do not serve are dropped.
        """
        with self._scale_lock:
            fleet, calls = self._running()
            self._engine.require_slots(count, self._options.spares)
            try:
                assigned = calls.assign_brokers(count)
            except SparklogError as error:
                raise StartError(f"the control plane assigns no brokers: {error}") from error
            added = [b for b in assigned if b.broker_id not in fleet.broker_ids]
            fleet.add(added)
            ids = tuple(broker.broker_id for broker in added)
            try:
                fleet.await_registered(ids, self._options.start_seconds)
            except StartError:
                fleet.stop(fleet.unregistered(), "it did not start", self._options.stop_seconds)
                raise
            return ids

    def remove_brokers(
        self, broker_ids: Collection[int], watch: Callable[[Sequence[DrainedBroker]], None]
    ) -> None:
        """Move the brokers' replicas to the other brokers, then stop and unregister them.

        Args:
            broker_ids: the brokers to remove.
            watch: called with the progress from time to time; when it raises, the brokers stay.

        Raises:
            KafkaError: the other brokers could not hold the replicas.
            StartError: the cluster does not run.
        """
        with self._scale_lock:
            fleet, calls = self._running()
            seconds = self._options.stop_seconds
            remove_brokers(fleet, calls, broker_ids, watch, stop_seconds=seconds)

    def draining_brokers(self) -> tuple[int, ...]:
        """The brokers that are being drained, by a present or an interrupted removal.

        Raises:
            SparklogError: the control plane did not answer.
        """
        _, calls = self._running()
        return tuple(sorted(broker.broker_id for broker in calls.drain_brokers(())))

    def keep_brokers(self, broker_ids: Collection[int]) -> tuple[int, ...]:
        """Cancel interrupted removals of these brokers.

        Afterwards ``add_brokers`` starts those that had been stopped.

        Returns:
            The ids of the brokers whose removal was cancelled.

        Raises:
            SparklogError: the control plane did not answer.
        """
        with self._scale_lock:
            fleet, calls = self._running()
            seconds = self._options.stop_seconds
            return keep_brokers(fleet, calls, broker_ids, stop_seconds=seconds)

    def _running(self) -> tuple[Fleet, MemberCalls]:
        if self._fleet is None or self._calls is None or self._stopped:
            raise StartError("the cluster does not run")
        return self._fleet, self._calls

    def _start(self) -> None:
        self._engine.require_slots(self._options.brokers, self._options.spares)
        self._options.racks.require_known(each.host for each in self._engine.executors())
        self._take_locks()
        self._engine.prepare()
        self.control_plane.start()
        self._calls = self._make_calls(self.control_plane.endpoint, self.control_plane.secret)
        brokers = self._assign_brokers(self._calls)
        fleet_options = FleetOptions(
            make_payload=self._payload,
            on_failure=self._handle_keeper_failure,
            log_folder=self.data_folder / "logs",
            replacement_delay=self._config.broker_replacement_delay_ms / 1000,
            make_spare_payload=self._spare_payload,
            spares=self._options.spares,
            racks=self._options.racks,
        )
        self._fleet = Fleet(fleet_options, self._engine, self._calls)
        self._fleet.add(brokers)
        self._fleet.await_registered(self._fleet.broker_ids, self._options.start_seconds)
        self._fleet.start_spares()
        self._warn_of_interrupted_removals()

    def _warn_of_interrupted_removals(self) -> None:
        try:
            draining = self.draining_brokers()
        except SparklogError as error:
            log.warning("the control plane does not answer: %s", error)
            return
        if draining:
            names = ", ".join(map(str, draining))
            log.warning(
                "the removal of broker %s was interrupted: it gives its replicas to others; "
                "remove_brokers goes on with it, scale() to all of them takes it back",
                names,
            )

    def _assign_brokers(self, calls: MemberCalls) -> tuple[AssignedBroker, ...]:
        """The brokers to start.  None of them counts as alive afterwards."""
        wanted = self._options.brokers
        try:
            brokers = self._ask_for_brokers(calls, wanted)
        except SparklogError as error:
            raise StartError(
                f"the control plane assigns no brokers: {error}; see {self._control_log}"
            ) from error
        if len(brokers) > wanted:
            try:
                self._engine.require_slots(len(brokers), self._options.spares)
            except StartError as error:
                raise StartError(
                    f"{self._options.data_dir} holds the data of {len(brokers)} brokers, and all "
                    f"of them have to run, not {wanted}: {error}"
                ) from error
        if self._options.disks_are_lost:
            return tuple(replace(broker, new=True) for broker in brokers)
        return brokers

    def _ask_for_brokers(self, calls: MemberCalls, wanted: int) -> tuple[AssignedBroker, ...]:
        """Ask for brokers, again after a timeout: a busy machine may stand still for seconds."""
        end = time.monotonic() + self._options.start_seconds
        while True:
            try:
                brokers = calls.assign_brokers(wanted)
                # Registrations may be left over from a driver that was killed.
                calls.report_broker_deaths(
                    [broker.broker_id for broker in brokers if not broker.new]
                )
                return brokers
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() > end:
                    raise
                log.warning("asking the control plane for brokers again: %s", error)

    def _take_locks(self) -> None:
        """Lock the data directories and the journal, so that no other cluster uses them.

        The lock of the journal holds on this host only.
        """
        locations = {"data_dir": self._options.data_dir}
        journal_dir = self._options.journal_dir
        if journal_dir and local_folder(journal_dir) not in (None, self.data_folder):
            locations["journal_dir"] = journal_dir
        further = {location: location for location in self._options.more_data_dirs}
        for name, location in (locations | further).items():
            try:
                half = open_file_half(location)
                if location in further and not half.is_folder(""):
                    continue  # brokers deal with a missing disk themselves
                half.make_folder("")
                self._locks.append(half.lock(CLUSTER_LOCK_FILE))
            except LockedError as error:
                raise StartError(f"a cluster runs on this {name} already: {error}") from error
            except StorageError as error:
                if location not in further:
                    raise StartError(f"{name}={location} cannot be used: {error}") from error
                log.warning("%s cannot be used here: %s", location, error)

    def _payload(self, broker_id: int, executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        options, control = self._options, self.control_plane
        host = options.broker_host or executor.host
        if options.racks.lacks(executor.host):  # an executor that has come after the start
            log.warning("broker %s goes to %s, which has no rack", broker_id, executor.host)
        broker = {
            "cluster_id": control.cluster_id,
            "broker_id": broker_id,
            "data_dir": options.data_dir,
            "more_data_dirs": list(options.more_data_dirs),
            "new": new,
            "listen_host": host,
            "port": 0,
            "advertised_host": host,
            "controller": str(control.endpoint),
            "secret": control.secret.hex(),
            "executor_host": executor.host,
            "executor_id": executor.executor_id,
            "job": f"broker-{broker_id}",
            "settings": dict(options.settings) | options.racks.settings_on(executor.host),
            "remote_options": dict(options.storage_options) if self._config.remote_dir else {},
            "lock_wait_s": 15,
        }
        return {"broker": broker, "executor_id": executor.executor_id}

    def _spare_payload(self, name: str, executor: ExecutorSlots) -> dict[str, Any]:
        control = self.control_plane
        known = {"controller": str(control.endpoint), "secret": control.secret.hex()}
        return {"broker": known, "executor_id": executor.executor_id, "spare": name}

    def _handle_keeper_failure(self) -> None:
        """Stop the rest of the cluster after ``spark.stop()``: no job can run any more."""
        if self._engine.is_over() and not self._stopped:
            log.warning("the Spark application has ended without Cluster.stop()")
            threading.Thread(
                target=self.stop, args=("the application has ended",), name="launcher-stop"
            ).start()

    @property
    def _control_log(self) -> Path:
        return self.data_folder / "logs" / "control-plane.log"

    def _control_options(self) -> ControlProcessOptions:
        options = self._options
        return ControlProcessOptions(
            journal_dir=options.journal_dir or str(self.data_folder / "journal"),
            host=options.host,
            port=options.port,
            settings=options.settings,
            storage_options=options.storage_options,
            expected_cluster_id=_known_cluster_id(self.data_folder),
            journal_may_be_old=options.disks_are_lost,
            log_path=self._control_log,
        )


def _require_local(data_dir: str) -> Path:
    folder = local_folder(data_dir)
    if folder is None:
        raise StartError(
            f"data_dir={data_dir}: brokers keep their logs in local folders; give a path or a "
            "file:// URL (only journal_dir may be in an object store)"
        )
    return folder


def _known_cluster_id(data_folder: Path) -> str | None:
    """The id of the cluster whose broker directories lie in a folder; None without any.

    Raises:
        StartError: the directories belong to several clusters.
    """
    owners: dict[str, str] = {}
    for properties in sorted(data_folder.glob("broker-*/meta.properties")):
        with suppress(OSError):
            for line in properties.read_text(errors="replace").splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "cluster.id":
                    owners[value.strip()] = properties.parent.name
    if len(owners) > 1:
        found = ", ".join(f"{folder} of {owner}" for owner, folder in owners.items())
        raise StartError(f"{data_folder} holds brokers of several clusters: {found}")
    return next(iter(owners), None)
