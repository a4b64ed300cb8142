"""A broker: its parts put together, and its life from the folder's lock to the clean marker.

Owns: the order of start and stop, and the periodic work.  Must not know what any part does inside.

Start: lock the folder, learn the image, recover the logs, listen, register, take the roles that
the image gives.  Stop: have others lead what they can, answer what is owed, flush and close the
logs, leave the marker, tell the control plane.  While the control plane is away the broker goes on
with its last image.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from sparklog.client.connection import Connection
from sparklog.config import BrokerConfig
from sparklog.errors import (
    ConfigError,
    ConnectError,
    KafkaError,
    LockedError,
    SparklogError,
    StorageError,
)
from sparklog.executors.apis import broker_handlers
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.controller_link import BrokerIdentity, BrokerLifecycle
from sparklog.executors.log_dirs import BrokerStartError, LogDirs, lock_log_dirs, open_data_dirs
from sparklog.executors.replica_manager import (
    BrokerMetrics,
    LogEndReports,
    ReplicaManager,
    clean_up,
    expire_producers,
    offline_replicas,
    purge_deleted,
    synchronous,
)
from sparklog.executors.replication import Replication
from sparklog.metadata import ClusterImage
from sparklog.process import descriptors_max
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import ApiHandler
from sparklog.service.settings import server_limits
from sparklog.storage_backends.blocking import run_blocking
from sparklog.transport import Server, serve
from sparklog.types import Endpoint

LOCK_RETRY_S = 0.1
CONNECT_TIMEOUT_S = 5.0
DRAIN_S = 5.0
#: How long a broker that stops waits for others to lead in its place.
HAND_OVER_S = 5.0
HAND_OVER_RETRY_S = 0.1
PURGE_S = 30.0
OPEN_AGAIN_S = 10.0
STALLED_S = 30.0

logger = logging.getLogger(__name__)


class Broker:
    """One broker in this process.  ``start``, then ``run`` until it was asked to ``stop``."""

    def __init__(self, options: BrokerOptions, runtime: RuntimeEnvironment = SYSTEM) -> None:
        self.options = options
        self.runtime = runtime
        self.counters = BrokerMetrics()
        self.incarnation = runtime.new_id()
        try:
            self.config = BrokerConfig.resolve(options.settings)
            controller = Endpoint.parse(options.controller)
            secret = bytes.fromhex(options.secret)
        except (ConfigError, ValueError) as error:
            raise BrokerStartError("config", str(error)) from error
        for ignored in self.config.ignored:
            logger.warning("the setting %s has no effect here", ignored)
        name = f"broker-{options.broker_id}"
        self._secret = secret
        self._path = name
        self._registration = BrokerLifecycle(controller, secret, self.config, name, runtime=runtime)
        self._folders: LogDirs | None = None
        self._replica_manager: ReplicaManager | None = None
        self._replication: Replication | None = None
        self._dispatcher: Dispatcher | None = None
        self._server: Server | None = None
        self._reports: LogEndReports
        self._started_ms = runtime.wall_ms()
        self._applied = asyncio.Event()
        self._stop_asked = asyncio.Event()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def directory_id(self) -> UUID:
        assert self._folders is not None
        return self._folders.directory_id

    @property
    def replica_manager(self) -> ReplicaManager:
        assert self._replica_manager is not None
        return self._replica_manager

    @property
    def replication(self) -> Replication:
        assert self._replication is not None
        return self._replication

    # start

    async def start(self) -> None:
        """Serve, or raise BrokerStartError, LockedError, StorageError or StartError.

        A start that fails, or that is told to stop, leaves the folder clean if it was clean before.
        """
        starting = asyncio.create_task(self._start())
        stop_asked = asyncio.create_task(_wait_for(self._stop_asked))
        try:
            await asyncio.wait((starting, stop_asked), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise BrokerStartError("stopped", "asked to stop while starting")
            await starting
        except BaseException:
            await _cancel([starting])
            await self._close_all()
            raise
        finally:
            await _cancel([stop_asked])

    async def _start(self) -> None:
        options, registration = self.options, self._registration
        self._folders = await self._take_folders()
        self._replica_manager = ReplicaManager(
            node_id=options.broker_id,
            folders=self._folders,
            settings=options.settings,
            counters=self.counters,
            now_ms=self.runtime.wall_ms,
            monotonic_ms=self.runtime.monotonic_ms,
            random_bytes=self.runtime.random_bytes,
        )
        self._reports = LogEndReports(self._replica_manager, registration.report_log_ends)
        registration.offline_replicas = partial(offline_replicas, self._replica_manager)
        self._replica_manager.on_failure = registration.beat_now
        self._replication = self._make_replication(self._replica_manager)
        await registration.fetch_image()
        self._check_identity(registration.image, self._folders)
        await self._replica_manager.apply(registration.image, lead=False)
        self._dispatcher = Dispatcher(self._handlers())
        self._server = await serve(
            options.listen_host,
            options.port,
            self._dispatcher,
            limits=server_limits(self._replica_manager.broker_config, descriptors_max()),
            door=self._dispatcher.at_door,
        )
        await registration.register(self._identity(self._folders, self._server))
        # The controller has committed the registration, so its image lacks no topic.
        await self._replica_manager.strays.remove_all(registration.image)
        await self._apply(registration.image)
        logger.info(
            "broker %d serves %d partitions at port %d",
            options.broker_id,
            len(self._replica_manager),
            self._server.port,
        )

    async def _take_folders(self) -> LogDirs:
        """Wait for the folders' locks: a predecessor may be on its way out."""
        options = self.options
        loop = asyncio.get_running_loop()
        deadline = loop.time() + options.lock_wait_s
        data_dirs = (options.data_dir, *options.more_data_dirs)
        halves = open_data_dirs(data_dirs, self.config.log_direct_append_bytes)
        while True:
            taking = asyncio.ensure_future(
                run_blocking(
                    lock_log_dirs,
                    halves,
                    self._path,
                    cluster_id=options.cluster_id,
                    node_id=options.broker_id,
                    new=options.new,
                    new_id=self.runtime.new_id,
                )
            )
            try:
                return await asyncio.shield(taking)
            except LockedError:
                if loop.time() >= deadline:
                    raise
            except asyncio.CancelledError:
                with suppress(SparklogError):  # what the thread still takes is to be given back
                    self._folders = await taking
                raise
            await asyncio.sleep(LOCK_RETRY_S)

    def _check_identity(self, image: ClusterImage, folders: LogDirs) -> None:
        """Another folder than the one that the cluster knows may only come as a new one."""
        options, own = self.options, folders.directory_id
        if image.cluster_id != options.cluster_id:
            raise BrokerStartError(
                "foreign_cluster",
                f"the control plane at {options.controller} runs cluster "
                f"{image.cluster_id}, this broker belongs to {options.cluster_id}",
            )
        known = image.broker(options.broker_id)
        if known is not None and known.registered and known.directory_id != own and not options.new:
            raise BrokerStartError(
                "not_here",
                f"folder {self._path} has directory id {own}, and the cluster knows broker "
                f"{options.broker_id} by {known.directory_id}",
            )

    def _identity(self, folders: LogDirs, server: Server) -> BrokerIdentity:
        options = self.options
        host = options.advertised_host or options.listen_host
        return BrokerIdentity(
            cluster_id=options.cluster_id,
            broker_id=options.broker_id,
            directory_id=folders.directory_id,
            incarnation=self.incarnation,
            advertised=Endpoint(host, server.port),
            executor_host=options.executor_host,
            executor_id=options.executor_id,
            job=options.job,
            rack=self.config.broker_rack or "",
            clean_stop=folders.clean,
            clean_epoch=folders.clean_epoch,
        )

    def _make_replication(self, replica_manager: ReplicaManager) -> Replication:
        registration, runtime = self._registration, self.runtime

        async def connect(endpoint: Endpoint) -> Connection:
            return await Connection.open(
                endpoint,
                client_id=f"{self._path}-replica",
                secret=self._secret,
                timeout_s=CONNECT_TIMEOUT_S,
                runtime=runtime,
            )

        return Replication(
            replica_manager,
            connect=connect,
            broker_epoch=lambda: registration.broker_epoch,
            alter_partitions=registration.alter_partitions,
        )

    def _handlers(self) -> list[ApiHandler]:
        registration = self._registration
        return broker_handlers(
            self.replica_manager,
            settings=self.options.settings,
            secret=self._secret,
            random_bytes=self.runtime.random_bytes,
            auto_create=self.config.auto_create_topics_enable,
            suspected_brokers=self.replication.suspected_brokers,
            forward=registration.forward,
            allocate_producer_ids=registration.allocate_producer_ids,
            ask_to_stop=self.ask_to_stop,
            status=self.status,
        )

    # while serving

    async def run(self) -> None:
        """Serve until ``ask_to_stop``, then stop cleanly.

        Raises what ended the broker otherwise: it lost its id, or a part of it failed.
        """
        replica_manager, config = self.replica_manager, self.config
        retention_s = config.log_retention_check_interval_ms / 1000
        checkpoint_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        expiry_s = config.producer_id_expiration_check_interval_ms / 1000
        work: list[Coroutine[Any, Any, None]] = [
            self._registration.watch(self._apply),
            self._registration.heartbeat(),
            self._reports.run(),
            _every(retention_s, synchronous(partial(clean_up, replica_manager))),
            _every(config.log_dir_check_interval_ms / 1000, replica_manager.log_watch.look_around),
            _every(PURGE_S, partial(purge_deleted, replica_manager)),
            _every(OPEN_AGAIN_S, self._open_again),
            _every(checkpoint_ms / 1000, replica_manager.checkpoints.write),
            _every(expiry_s, synchronous(partial(expire_producers, replica_manager))),
            self._end_without_disks(),
            self.replication.run(),
            _wait_for(self._stop_asked),
        ]
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failure = next((t.exception() for t in tasks if t.done() and t.exception()), None)
            if failure is None:
                await self._hand_over()
        finally:
            # Heartbeats go on while answers drain, so that nobody is elected meanwhile.
            await _cancel([task for task in tasks if task is not tasks[1] or task.done()])
            await self._close_all(meanwhile=tasks[1])
        if failure is not None:
            raise failure

    async def _hand_over(self) -> None:
        """Let others lead what they can, so that clients need not wait for an election."""
        try:
            async with asyncio.timeout(HAND_OVER_S):
                while not await self._registration.prepare_stop():
                    await asyncio.sleep(HAND_OVER_RETRY_S)
                while self._registration.is_registered and self._could_be_led_by_others():
                    self._applied.clear()
                    await self._applied.wait()
        except (TimeoutError, ConnectError, KafkaError) as error:
            logger.info("not everything is handed over before the stop: %s", error)

    def _could_be_led_by_others(self) -> bool:
        """Whether the image still shows a leadership of this broker that can move."""
        image, own = self.replica_manager.image, self.options.broker_id
        return any(
            other != own and image.is_alive(other)
            for state in image.partitions_led_by(own).values()
            for other in state.isr
        )

    async def _end_without_disks(self) -> None:
        await self.replica_manager.disks_gone.wait()
        reasons = "; ".join(f"{f.location}: {f.error}" for f in self.replica_manager.folders.failed)
        raise StorageError(f"every data directory has failed: {reasons}")

    def ask_to_stop(self, reason: str) -> None:
        """Begin a clean stop; returns at once.  May be asked more than once."""
        if not self._stop_asked.is_set():
            logger.info("stopping: %s", reason or "no reason given")
            self._stop_asked.set()

    def status(self) -> dict[str, Any]:
        """What NodeStatus answers."""
        server, dispatcher, replica_manager = self._server, self._dispatcher, self.replica_manager
        assert server is not None
        assert dispatcher is not None
        self.counters.registrations = self._registration.registrations
        return {
            "role": "broker",
            "broker_id": self.options.broker_id,
            "pid": os.getpid(),
            "incarnation": str(self.incarnation),
            "directory_id": str(self.directory_id),
            "broker_epoch": self._registration.broker_epoch,
            "metadata_version": replica_manager.image.version,
            "started_ms": self._started_ms,
            "clean_start": replica_manager.folders.clean,
            "partitions": len(replica_manager),
            "partitions_led": sum(partition.is_leader for partition in replica_manager),
            "data_dirs": {folder.location: "" for folder in replica_manager.folders}
            | {failure.location: str(failure.error) for failure in replica_manager.folders.failed},
            "data_dirs_missing": [str(directory) for directory in replica_manager.folders.missing],
            "offline": {str(tp): str(error) for tp, error in replica_manager.offline.items()},
            "connections": len(server.connections),
            "connections_refused": server.connections_refused,
            "connections_idle": server.connections_idle,
            **server.memory.as_json(),
            "frames_refused": server.frames_refused,
            "wire_bytes_in": server.bytes_received,
            "wire_bytes_out": server.bytes_sent,
            "delayed_fetches": len(replica_manager.delayed_operations.readers)
            + len(replica_manager.delayed_operations.followers),
            "delayed_produces": len(replica_manager.delayed_operations.writers),
            "delayed_deletes": len(replica_manager.delayed_operations.deleters),
            **replica_manager.delayed_operations.sessions.as_json(),
            **self.replication.as_json(),
            "requests": {str(key): count for key, count in dispatcher.requests.items()},
            "undecodable": dispatcher.undecodable,
            "request_errors": dispatcher.errors,
            **self.counters.as_json(),
        }

    async def _apply(self, image: ClusterImage) -> None:
        """Roles are taken only while the image shows this process behind its broker id."""
        lead = self._registration.is_registered
        before = self.replica_manager.broker_config
        await self.replica_manager.apply(image, lead=lead)
        if self.replica_manager.broker_config is not before and self._server is not None:
            self._server.set_limits(
                server_limits(self.replica_manager.broker_config, descriptors_max())
            )
        if not lead:
            self.replica_manager.drop_roles()
        self._applied.set()
        self._opened()

    async def _open_again(self) -> None:
        if self._registration.is_registered and await self.replica_manager.open_again():
            self._opened()

    def _opened(self) -> None:
        self._reports.look()
        self.replication.image_changed()

    # stop

    async def _close_all(self, meanwhile: "asyncio.Task[None] | None" = None) -> None:
        if self._replica_manager is not None:
            self._replica_manager.delayed_operations.close_fetches()
        if self._server is not None:
            await self._server.close(DRAIN_S)
        if self._replication is not None:
            await self._replication.close()
        beside = [] if meanwhile is None else [meanwhile]
        beside += [asyncio.create_task(self._end_when_stalled(task)) for task in beside]
        try:
            if self._folders is not None:
                await self._leave_folders(self._folders)
        finally:
            await _cancel(beside)
        await self._registration.announce_stop()
        self._registration.close()

    async def _end_when_stalled(self, heartbeats: "asyncio.Task[None]") -> None:
        """Who stops this broker waits as long as it is heard of, which is while logs close."""
        closed = -1
        while self.counters.partitions_closed > closed:
            closed = self.counters.partitions_closed
            await asyncio.sleep(STALLED_S)
        logger.error("no log was closed for %g s: a disk does not answer", STALLED_S)
        await _cancel([heartbeats])

    async def _leave_folders(self, folders: LogDirs) -> None:
        """Release them, with a marker where all is whole and the control plane knows the past.

        A start that recovered logs but never registered leaves no marker: the next one must still
        report the unclean stop.
        """
        replica_manager, broker_epoch = self._replica_manager, self._registration.broker_epoch
        try:
            whole = list(folders) if replica_manager is None else await replica_manager.close()
            for folder in folders:
                if folder in whole and (folder.clean or broker_epoch >= 0):
                    epoch = broker_epoch if broker_epoch >= 0 else folder.clean_epoch
                    await run_blocking(folder.write_clean_marker, epoch)
                else:
                    logger.warning(
                        "no clean marker in %s: the next start recovers its logs", folder.location
                    )
        except StorageError as error:
            logger.error("the stop is not clean: %s", error)
        finally:
            folders.release()


async def _every(period_s: float, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            await action()
        except StorageError as error:
            logger.error("periodic work failed: %s", error)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
