"""A broker: its parts put together, and its life from locking the log directories to leaving them.

Owns: the order of start and stop, and the periodic work.  Must not know what any part does inside.

Start: lock the log directories, learn the image, recover the logs, listen, register, take the roles
that the image gives.  Stop: let other brokers lead what they can, answer the requests that came,
flush and close the logs, leave the clean marker, tell the control plane.  While the control plane
is away the broker goes on with its last image.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sparklog.client.connection import Connection
from sparklog.config import BrokerConfig
from sparklog.errors import (
    ConfigError,
    LockedError,
    SparklogError,
    StorageError,
)
from sparklog.executors.apis import broker_handlers
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.broker_status import broker_status
from sparklog.executors.broker_stop import cancel, cancel_when_stalled, hand_over, leave_log_dirs
from sparklog.executors.cleaner import LogCleaner
from sparklog.executors.controller_link import BrokerIdentity, BrokerLifecycle
from sparklog.executors.coordinator import CoordinatorRuntime
from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.executors.log_dirs import BrokerStartError, LogDirs, lock_log_dirs, open_data_dirs
from sparklog.executors.partition import Partition, TieredStart
from sparklog.executors.replica_manager import (
    BrokerMetrics,
    LogEndReports,
    ReplicaManager,
    apply_local_retention,
    apply_retention,
    close_idle_files,
    expire_producers,
    purge_deleted,
    synchronous,
)
from sparklog.executors.replication import Replication, no_remote_start
from sparklog.metadata import ClusterImage
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.process import descriptors_max
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import ApiHandler
from sparklog.service.settings import open_files_max, server_limits
from sparklog.storage_backends.blocking import run_blocking
from sparklog.transport import Server, serve
from sparklog.types import Compression, Endpoint

if TYPE_CHECKING:
    from sparklog.executors.tiering import Tiering

LOCK_RETRY_S = 0.1
CONNECT_TIMEOUT_S = 5.0
DRAIN_S = 5.0
PURGE_S = 30.0
OPEN_AGAIN_S = 10.0
IDLE_FILES_S = 10.0

logger = logging.getLogger(__name__)


class Broker:
    """One broker in this process.  ``start`` it, then ``run`` it until ``ask_to_stop``."""

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
        self._lifecycle = BrokerLifecycle(controller, secret, self.config, name, runtime=runtime)
        self._log_dirs: LogDirs | None = None
        self._replica_manager: ReplicaManager | None = None
        self._replication: Replication | None = None
        self._group_runtime: CoordinatorRuntime | None = None
        self._log_cleaner: LogCleaner | None = None
        #: None in a cluster without a remote_dir.
        self.tiering: Tiering | None = None
        self._dispatcher: Dispatcher | None = None
        self._server: Server | None = None
        self._reports: LogEndReports
        self._started_ms = runtime.wall_ms()
        #: Set after each image that was applied.
        self._image_applied = asyncio.Event()
        self._stop_asked = asyncio.Event()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def directory_id(self) -> UUID:
        assert self._log_dirs is not None
        return self._log_dirs.directory_id

    @property
    def replica_manager(self) -> ReplicaManager:
        assert self._replica_manager is not None
        return self._replica_manager

    @property
    def replication(self) -> Replication:
        assert self._replication is not None
        return self._replication

    @property
    def coordinators(self) -> tuple[CoordinatorRuntime, ...]:
        """The runtimes of this broker's coordinators; none while the start has not come to them."""
        return () if self._group_runtime is None else (self._group_runtime,)

    @property
    def group_runtime(self) -> CoordinatorRuntime:
        assert self._group_runtime is not None
        return self._group_runtime

    @property
    def log_cleaner(self) -> LogCleaner:
        assert self._log_cleaner is not None
        return self._log_cleaner

    # start

    async def start(self) -> None:
        """Serve, or raise BrokerStartError, LockedError, StorageError or StartError.

        A start that fails, or that is told to stop, leaves the log directories as clean as before.
        """
        starting = asyncio.create_task(self._start())
        stop_asked = asyncio.create_task(_wait_for(self._stop_asked))
        try:
            await asyncio.wait((starting, stop_asked), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise BrokerStartError("stopped", "asked to stop while starting")
            await starting
        except BaseException:
            await cancel([starting])
            await self._close_all()
            raise
        finally:
            await cancel([stop_asked])

    async def _start(self) -> None:
        options, lifecycle = self.options, self._lifecycle
        self._log_dirs = await self._lock_log_dirs()
        self._replica_manager = ReplicaManager(
            node_id=options.broker_id,
            log_dirs=self._log_dirs,
            settings=options.settings,
            counters=self.counters,
            now_ms=self.runtime.wall_ms,
            monotonic_ms=self.runtime.monotonic_ms,
            random_bytes=self.runtime.random_bytes,
            beat_now=lifecycle.beat_now,
            verify_transaction=lifecycle.verify_transaction,
            open_files_max=open_files_max(self.config, descriptors_max()),
        )
        self._reports = LogEndReports(self._replica_manager, lifecycle.report_log_ends)
        lifecycle.offline_replicas = self._replica_manager.offline_replicas
        self._replication = self._make_replication(self._replica_manager)
        self._group_runtime = self._make_group_runtime(self._replica_manager)
        self._log_cleaner = LogCleaner(self._replica_manager, self._replication.lowest_clean_offset)
        self.tiering = self._make_tiering(self._replica_manager, self._replication)
        await lifecycle.fetch_image()
        self._check_identity(lifecycle.image, self._log_dirs)
        await self._replica_manager.apply(lifecycle.image, lead=False)
        self._dispatcher = Dispatcher(self._handlers())
        self._server = await serve(
            options.listen_host,
            options.port,
            self._dispatcher,
            limits=server_limits(self._replica_manager.broker_config, descriptors_max()),
            over_limit_handler=self._dispatcher.handle_over_limit,
        )
        await lifecycle.register(self._identity(self._log_dirs, self._server))
        # The controller has committed the registration, so its image lacks no topic.
        await self._replica_manager.strays.remove_all(lifecycle.image)
        await self._apply(lifecycle.image)
        logger.info(
            "broker %d serves %d partitions at port %d",
            options.broker_id,
            len(self._replica_manager),
            self._server.port,
        )

    async def _lock_log_dirs(self) -> LogDirs:
        """Wait for the locks of the log directories: a predecessor may still be stopping."""
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
                with suppress(SparklogError):  # the thread's locks are to be released
                    self._log_dirs = await taking
                raise
            await asyncio.sleep(LOCK_RETRY_S)

    def _check_identity(self, image: ClusterImage, log_dirs: LogDirs) -> None:
        """Raise BrokerStartError for a log directory that the cluster does not know by its id.

        Only a broker that was started as new may have another directory id.
        """
        options, own = self.options, log_dirs.directory_id
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
                f"log directory {self._path} has directory id {own}, and the cluster knows broker "
                f"{options.broker_id} by {known.directory_id}",
            )

    def _identity(self, log_dirs: LogDirs, server: Server) -> BrokerIdentity:
        options = self.options
        host = options.advertised_host or options.listen_host
        return BrokerIdentity(
            cluster_id=options.cluster_id,
            broker_id=options.broker_id,
            directory_id=log_dirs.directory_id,
            incarnation=self.incarnation,
            advertised=Endpoint(host, server.port),
            executor_host=options.executor_host,
            executor_id=options.executor_id,
            job=options.job,
            rack=self.config.broker_rack or "",
            clean_stop=log_dirs.clean,
            clean_epoch=log_dirs.clean_epoch,
        )

    def _make_replication(self, replica_manager: ReplicaManager) -> Replication:
        lifecycle, runtime = self._lifecycle, self.runtime

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
            broker_epoch=lambda: lifecycle.broker_epoch,
            alter_partitions=lifecycle.alter_partitions,
            remote_start=self._remote_start,
        )

    def _make_tiering(
        self, replica_manager: ReplicaManager, replication: Replication
    ) -> "Tiering | None":
        options, config = self.options, self.config
        if not config.remote_dir:
            return None
        # A broker without a remote_dir has no memory for it.
        from sparklog.executors.tiering import Tiering, open_remote_logs

        remote = open_remote_logs(
            config.remote_dir,
            options=options.remote_options,
            cluster_id=options.cluster_id,
            data_dir=options.data_dir,
            cache_name=f"{self._path}-remote-cache",
            cache_bytes=config.remote_cache_bytes,
        )
        return Tiering(
            replica_manager,
            remote,
            ask_leader=replication.tiered_states.ask,
            ask_replicas=replication.local_starts.ask,
            read_replica=replication.replica_reads.read,
            sources=replication.replica_reads.sources,
            random_bytes=self.runtime.random_bytes,
        )

    async def _remote_start(self, partition: Partition, *starts: int) -> TieredStart:
        """See ``RemoteStart``."""
        if self.tiering is None:
            return await no_remote_start(partition, *starts)
        return await self.tiering.find_start(partition, *starts)

    def _make_group_runtime(self, replica_manager: ReplicaManager) -> CoordinatorRuntime:
        return CoordinatorRuntime(
            replica_manager,
            CONSUMER_OFFSETS,
            partial(GroupStateMachine, GroupConfig.of(self.config), self.runtime.new_id),
            load_buffer_bytes=lambda: replica_manager.broker_config.offsets_load_buffer_size,
            commit_timeout_ms=lambda: replica_manager.broker_config.offsets_commit_timeout_ms,
            compression=Compression(self.config.offsets_topic_compression_codec),
        )

    def _handlers(self) -> list[ApiHandler]:
        lifecycle = self._lifecycle
        return broker_handlers(
            self.replica_manager,
            settings=self.options.settings,
            secret=self._secret,
            random_bytes=self.runtime.random_bytes,
            auto_create=self.config.auto_create_topics_enable,
            suspected_brokers=self.replication.suspected_brokers,
            forward=lifecycle.forward,
            allocate_producer_ids=lifecycle.allocate_producer_ids,
            ask_to_stop=self.ask_to_stop,
            status=self.status,
            group_runtime=self.group_runtime,
            create_internal_topic=lifecycle.create_internal_topic,
            verify_transaction=lifecycle.verify_transaction,
        )

    # while serving

    async def run(self) -> None:
        """Serve until ``ask_to_stop``, then stop cleanly.

        Raises the error that ended the broker otherwise: it lost its id, or a part of it failed.
        """
        replica_manager, config = self.replica_manager, self.config
        retention_s = config.log_retention_check_interval_ms / 1000
        checkpoint_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        expiry_s = config.producer_id_expiration_check_interval_ms / 1000
        work: list[Coroutine[Any, Any, None]] = [
            self._lifecycle.watch(self._apply),
            self._lifecycle.heartbeat(),
            self._reports.run(),
            _every(retention_s, synchronous(partial(apply_retention, replica_manager))),
            _every(retention_s, partial(apply_local_retention, replica_manager)),
            _every(
                config.log_dir_check_interval_ms / 1000,
                replica_manager.failures.log_watch.check_round,
            ),
            _every(PURGE_S, partial(purge_deleted, replica_manager)),
            _every(OPEN_AGAIN_S, self._open_again),
            _every(IDLE_FILES_S, partial(close_idle_files, replica_manager)),
            _every(checkpoint_ms / 1000, replica_manager.checkpoints.write),
            _every(expiry_s, synchronous(partial(expire_producers, replica_manager))),
            self._end_without_disks(),
            self.replication.run(),
            self.log_cleaner.run(),
            *(() if self.tiering is None else (self.tiering.run(),)),
            _wait_for(self._stop_asked),
        ]
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failure = next((t.exception() for t in tasks if t.done() and t.exception()), None)
            if failure is None:
                await hand_over(self._lifecycle, replica_manager, self._image_applied)
        finally:
            # Heartbeats go on while answers drain, so that no other leader is elected meanwhile.
            await cancel([task for task in tasks if task is not tasks[1] or task.done()])
            await self._close_all(meanwhile=tasks[1])
        if failure is not None:
            raise failure

    async def _end_without_disks(self) -> None:
        await self.replica_manager.failures.disks_gone.wait()
        reasons = "; ".join(
            f"{f.location}: {f.error}" for f in self.replica_manager.log_dirs.failed
        )
        raise StorageError(f"every data directory has failed: {reasons}")

    def ask_to_stop(self, reason: str) -> None:
        """Begin a clean stop; returns at once.  Further calls have no effect."""
        if not self._stop_asked.is_set():
            logger.info("stopping: %s", reason or "no reason given")
            self._stop_asked.set()

    def status(self) -> dict[str, Any]:
        """The answer to NodeStatus."""
        assert self._server is not None
        assert self._dispatcher is not None
        self.counters.registrations = self._lifecycle.registrations
        return broker_status(
            self.replica_manager,
            self.replication,
            self.log_cleaner,
            self._server,
            self._dispatcher,
            incarnation=str(self.incarnation),
            broker_epoch=self._lifecycle.broker_epoch,
            started_ms=self._started_ms,
            coordinators=self.coordinators,
            tiering={} if self.tiering is None else self.tiering.as_json(),
        )

    async def _apply(self, image: ClusterImage) -> None:
        """Apply an image.  The broker leads only while the image shows this very process."""
        lead = self._lifecycle.is_registered
        before = self.replica_manager.broker_config
        await self.replica_manager.apply(image, lead=lead)
        if self.replica_manager.broker_config is not before and self._server is not None:
            self._server.set_limits(
                server_limits(self.replica_manager.broker_config, descriptors_max())
            )
        if not lead:
            self.replica_manager.drop_roles()
        self._image_applied.set()
        self._partitions_changed()

    async def _open_again(self) -> None:
        if self._lifecycle.is_registered and await self.replica_manager.open_again():
            self._partitions_changed()

    def _partitions_changed(self) -> None:
        self._reports.image_changed()
        self.replication.image_changed()

    # stop

    async def _close_all(self, meanwhile: "asyncio.Task[None] | None" = None) -> None:
        if self._replica_manager is not None:
            self._replica_manager.delayed_operations.close_fetches()
        if self._group_runtime is not None:
            await self._group_runtime.close()
        if self._server is not None:
            await self._server.close(DRAIN_S)
        if self.tiering is not None:
            await self.tiering.close()
        if self._replication is not None:
            await self._replication.close()
        beside = [] if meanwhile is None else [meanwhile]
        beside += [asyncio.create_task(cancel_when_stalled(self.counters, task)) for task in beside]
        try:
            if self._log_dirs is not None:
                broker_epoch = self._lifecycle.broker_epoch
                await leave_log_dirs(self._log_dirs, self._replica_manager, broker_epoch)
        finally:
            await cancel(beside)
        await self._lifecycle.announce_stop()
        self._lifecycle.close()


async def _every(period_s: float, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            await action()
        except StorageError as error:
            logger.error("periodic work failed: %s", error)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
