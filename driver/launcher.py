"""Starts a cluster, keeps it whole, stops it cleanly.

Owns: the order of things: lock, control plane, broker ids, supervisors; and at the end brokers,
supervisors, control plane, lock.  Must not know how supervisors run (the engine does) and carries
no data and no request.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sparklog.driver.broker_keeper import BrokerKeeper, Placer
from sparklog.driver.control_process import ControlPlaneProcess, ControlProcessOptions
from sparklog.driver.engines import Engine
from sparklog.driver.spark_jobs import ExecutorSlots
from sparklog.errors import LockedError, SparklogError, StartError, StorageError
from sparklog.process import local_folder
from sparklog.storage_backends.base import Lock
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import Endpoint
from sparklog.wire.private import AssignedBroker

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
#: How long a broker that is just being restarted may take until it can be asked to stop.
ASK_SECONDS_MAX = 5.0
ASK_AGAIN_SECONDS = 0.2
CANCEL_AGAIN_SECONDS = 1.0
CANCEL_SECONDS_MAX = 8.0
LOCK_FILE = "cluster.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What to start.

    ``data_dir`` is a folder (or file URL) that every executor has under that name, and so are
    ``more_data_dirs``, on other disks, over which brokers spread their logs; ``host`` is
    where the control plane listens; ``broker_host`` the same for brokers (None: the host of their
    executor); ``port`` 0 takes any.  ``settings`` by Kafka's names.  ``storage_options`` open the
    object store that holds the journal.  Times in seconds.
    """

    brokers: int
    data_dir: str
    host: str
    more_data_dirs: tuple[str, ...] = ()
    journal_dir: str | None = None
    broker_host: str | None = None
    port: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    start_seconds: float = 120.0
    stop_seconds: float = 30.0


class MemberCalls(Protocol):
    """Requests of a cluster member, each with a deadline of its own."""

    def assign_brokers(self, count: int) -> tuple[AssignedBroker, ...]:
        """The broker ids to start.  Raises SparklogError."""

    def report_loss(self, broker_id: int) -> None:
        """A broker's executor is gone.  Raises SparklogError."""

    def alive_brokers(self) -> dict[int, Endpoint]:
        """The registered brokers.  Raises SparklogError."""

    def stop_nodes(self, nodes: tuple[Endpoint, ...], reason: str) -> tuple[Endpoint, ...]:
        """Ask nodes for a clean stop; those that agreed."""

    def close(self) -> None:
        """Let go of connections."""


MakeCalls = Callable[[Endpoint, bytes], MemberCalls]


class Launcher:
    """One cluster's processes."""

    def __init__(self, options: LaunchOptions, engine: Engine, make_calls: MakeCalls) -> None:
        self._options = options
        self._engine = engine
        self._make_calls = make_calls
        self._locks: list[Lock] = []
        self._calls: MemberCalls | None = None
        self._keepers: list[BrokerKeeper] = []
        self._seen: dict[int, Endpoint] = {}
        self._placer = Placer()
        self._stop_lock = threading.Lock()
        self._stopped = False
        self.data_folder = _require_local(options.data_dir)
        for further in options.more_data_dirs:
            _require_local(further)
        self.control_plane = ControlPlaneProcess(self._control_options())

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(keeper.broker_id for keeper in self._keepers)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def start(self) -> None:
        """Returns when every broker is registered.  Raises StartError; then nothing is left."""
        try:
            self._start()
        except BaseException:
            self.stop("the start failed")
            raise

    def stop(self, reason: str = "the cluster stops") -> None:
        """Stop brokers cleanly, then everything else.  May be called twice, from any thread."""
        with self._stop_lock:
            if self._stopped:
                return
            self._stopped = True
            for keeper in self._keepers:
                keeper.ask_to_stop()
            with ExitStack() as afterwards:  # in reverse, whatever fails before
                for lock in self._locks:
                    afterwards.callback(lock.release)
                afterwards.callback(self._engine.close)
                if self._calls is not None:
                    afterwards.callback(self._calls.close)
                afterwards.callback(self.control_plane.stop)
                self._stop_brokers(reason)

    def _start(self) -> None:
        self._engine.require_slots(self._options.brokers)
        self._take_locks()
        self._engine.prepare()
        self.control_plane.start()
        self._calls = self._make_calls(self.control_plane.endpoint, self.control_plane.secret)
        self._keepers = [self._keeper(broker) for broker in self._assign_brokers(self._calls)]
        for keeper in self._keepers:
            keeper.start()
        self._await_brokers()

    def _assign_brokers(self, calls: MemberCalls) -> tuple[AssignedBroker, ...]:
        """The brokers to start, none of which counts as alive."""
        wanted = self._options.brokers
        try:
            brokers = calls.assign_brokers(wanted)
            for broker in brokers:
                if not broker.new:  # its registration may be of a driver that was killed
                    calls.report_loss(broker.broker_id)
        except SparklogError as error:
            raise StartError(
                f"the control plane assigns no brokers: {error}; see {self._control_log}"
            ) from error
        if len(brokers) > wanted:
            try:
                self._engine.require_slots(len(brokers))
            except StartError as error:
                raise StartError(
                    f"{self._options.data_dir} holds the data of {len(brokers)} brokers, and all "
                    f"of them have to run, not {wanted}: {error}"
                ) from error
        return brokers

    def _take_locks(self) -> None:
        """One cluster per data_dir, and per journal as far as this host can tell."""
        locations = {"data_dir": self._options.data_dir}
        journal_dir = self._options.journal_dir
        if journal_dir and local_folder(journal_dir) not in (None, self.data_folder):
            locations["journal_dir"] = journal_dir
        further = {location: location for location in self._options.more_data_dirs}
        for name, location in (locations | further).items():
            try:
                half = open_file_half(location)
                if location in further and not half.is_folder(""):
                    continue  # a disk that is missing is the brokers' business
                half.make_folder("")
                self._locks.append(half.lock(LOCK_FILE))
            except LockedError as error:
                raise StartError(f"a cluster runs on this {name} already: {error}") from error
            except StorageError as error:
                if location not in further:
                    raise StartError(f"{name}={location} cannot be used: {error}") from error
                log.warning("%s cannot be used here: %s", location, error)

    def _await_brokers(self) -> None:
        end = time.monotonic() + self._options.start_seconds
        waiting = {keeper.broker_id: keeper for keeper in self._keepers}
        while waiting:
            for broker_id in self._alive().keys() & waiting.keys():
                waiting.pop(broker_id).note_registered()
            self._raise_failures()
            if waiting and time.monotonic() > end:
                names = ", ".join(map(str, sorted(waiting)))
                raise StartError(
                    f"broker {names} did not register within {self._options.start_seconds:g} s; "
                    f"see {self.data_folder / 'logs'}; a slot may be held by another job"
                )
            if waiting:
                time.sleep(LOOK_SECONDS)

    def _alive(self) -> dict[int, Endpoint]:
        """The registered brokers; empty while the control plane is away."""
        assert self._calls is not None
        try:
            alive = self._calls.alive_brokers()
        except SparklogError as error:  # it may be restarting
            log.warning("the control plane does not answer: %s", error)
            return {}
        self._seen |= alive
        return alive

    def _raise_failures(self) -> None:
        for keeper in self._keepers:
            if keeper.failure is not None:
                raise StartError(f"broker {keeper.broker_id} does not start: {keeper.failure}")

    def _stop_brokers(self, reason: str) -> None:
        """Ask, wait for the supervisors to return, cancel what is left."""
        end = time.monotonic() + self._options.stop_seconds
        asked = set() if self._engine.is_over() else self._ask_to_stop(reason)
        unasked = [keeper for keeper in self._keepers if keeper.broker_id not in asked]
        while time.monotonic() < end and (running := [k for k in unasked if not k.has_ended]):
            for keeper in running:
                keeper.cancel()  # more than once: its job may be on its way to the engine
            running[0].join(CANCEL_AGAIN_SECONDS)
        left = [keeper for keeper in self._keepers if not keeper.join(end - time.monotonic())]
        for keeper in left:
            log.warning("broker %s did not stop in time and is cancelled", keeper.broker_id)
            keeper.cancel()
        for keeper in left:
            keeper.join(CANCEL_SECONDS_MAX)

    def _ask_to_stop(self, reason: str) -> set[int]:
        """The brokers that agreed.  One that is just being restarted gets some time to listen."""
        end = time.monotonic() + ASK_SECONDS_MAX
        asked: set[int] = set()
        while time.monotonic() < end:
            waiting = {
                keeper.broker_id
                for keeper in self._keepers
                if keeper.is_registered and not keeper.has_ended and keeper.broker_id not in asked
            }
            if not waiting or self._calls is None:
                break
            alive = self._alive() or self._seen
            nodes = {alive[broker_id]: broker_id for broker_id in waiting & alive.keys()}
            with suppress(SparklogError):
                asked |= {nodes[node] for node in self._calls.stop_nodes(tuple(nodes), reason)}
            if waiting - asked:
                time.sleep(ASK_AGAIN_SECONDS)
        return asked

    def _keeper(self, broker: AssignedBroker) -> BrokerKeeper:
        def make_payload(executor: ExecutorSlots, new: bool) -> dict[str, Any]:
            return self._payload(broker.broker_id, executor, new)

        return BrokerKeeper(
            broker_id=broker.broker_id,
            host=broker.host,
            new=broker.new,
            engine=self._engine,
            placer=self._placer,
            make_payload=make_payload,
            on_loss=self._report_loss,
            on_failure=self._look_at_failure,
        )

    def _payload(self, broker_id: int, executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        options, control = self._options, self.control_plane
        host = options.broker_host or executor.host
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
            "settings": dict(options.settings),
            "lock_wait_s": 15,
        }
        return {"broker": broker, "executor_id": executor.executor_id}

    def _report_loss(self, broker_id: int, reason: str) -> None:
        log.warning("broker %s is lost: %s", broker_id, reason)
        if self._calls is not None:
            self._calls.report_loss(broker_id)

    def _look_at_failure(self) -> None:
        """After ``spark.stop()`` nothing can run again: the rest is put away."""
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
    """Whose broker directories lie in a folder.  Raises StartError when they have two owners."""
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
