"""The control plane: the controller, its journal and its server, as one process on one loop.

Owns: the takeover of the journal, the clocks, the composition, and the end of the process.  Must
not know how anything is decided.

The path of a request: dispatch -> handler -> ``decide`` -> controller (on its speculative image) ->
group commit (one commit for several decisions) -> answer.  Reads are served from the committed
image.
"""

import asyncio
import inspect
import logging
import os
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller import (
    BrokenImageError,
    Controller,
    CountUncleanRecoveries,
    Decision,
    Event,
    TimePassed,
    WarnOperator,
)
from sparklog.driver.control_plane.first_commit import first_records
from sparklog.driver.control_plane.group_commit import GroupCommitter
from sparklog.driver.control_plane.handlers import handlers
from sparklog.driver.control_plane.journal import (
    SECRET_BYTES,
    CommitHeader,
    Journal,
    JournalConflict,
)
from sparklog.driver.control_plane.metadata_feed import MetadataFeed
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.driver.control_plane.remote_dir import (
    check_policy_of_tiered,
    check_remote_dir,
    open_remote_logs,
)
from sparklog.driver.control_plane.spare_supervisors import SpareSupervisors
from sparklog.driver.control_plane.topic_sweep import TopicSweep
from sparklog.driver.transaction_coordinator import TransactionCoordinator
from sparklog.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    StartError,
    StorageError,
)
from sparklog.metadata import ClusterImage, encode_records
from sparklog.process import descriptors_max
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.service.dispatch import Dispatcher
from sparklog.service.settings import changed_config, server_limits
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.storage_backends.blocking import run_blocking
from sparklog.storage_backends.registry import open_backend
from sparklog.transport import HandlerResult, Server, ServerConnection, serve
from sparklog.types import CONTROLLER_NODE_ID, Endpoint
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.schema import Response

logger = logging.getLogger(__name__)

#: How often a starting controller tries to take over the journal's head.  If a live controller
#: commits all the time, the takeover has to succeed between two of its commits.
TAKEOVERS_MAX = 1_000
#: Wildcard addresses, to which clients cannot connect.
_ANY_HOST = frozenset({"0.0.0.0", "::"})
#: Ticks per session timeout.
_TICKS = 10


class ForeignClusterError(StartError):
    """The journal belongs to another cluster than the caller expects."""


class ControlPlane:
    """Node 0 of the cluster.  Call ``start``, then ``run``.

    Args:
        options: what to start.
        runtime: clocks, randomness and ids; the simulation gives its own.

    Raises:
        ConfigError: a setting is wrong.
        StorageError: the journal's URL is wrong.
    """

    def __init__(self, options: ControlPlaneOptions, runtime: RuntimeEnvironment = SYSTEM) -> None:
        self.options = options
        self.runtime = runtime
        self.config = BrokerConfig.resolve(options.settings)
        self.secret = b""
        self.unclean_recoveries = 0
        self.spare_supervisors = SpareSupervisors(runtime.monotonic_ms)
        self.suspected_brokers = SuspectedBrokers(runtime.monotonic_ms)
        self._topic_sweep = self._new_topic_sweep()
        self._journal = Journal(open_backend(options.journal_dir, options.storage_options))
        self._end: asyncio.Future[None]
        self._started_ms = runtime.wall_ms()
        self._changed_settings: Mapping[str, str] = {}
        self._dispatcher: Dispatcher | None = None
        self._server: Server
        self._controller: Controller
        self._committer: GroupCommitter
        self._metadata_feed: MetadataFeed
        self._transaction_coordinator: TransactionCoordinator

    @property
    def image(self) -> ClusterImage:
        """The committed image."""
        return self._committer.image

    @property
    def settings(self) -> Mapping[str, str]:
        return self.options.settings

    @property
    def journal_url(self) -> str:
        return self._journal.url

    @property
    def metadata_feed(self) -> MetadataFeed:
        return self._metadata_feed

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        return self._transaction_coordinator

    @property
    def port(self) -> int:
        return self._server.port

    # -- life

    async def start(self) -> None:
        """Listen, take the journal over, and serve.

        Raises:
            SparklogError: the control plane cannot start.  No socket is left open then.
        """
        await run_blocking(self._journal.check_backend)
        if self.options.listen_host in _ANY_HOST and not self.options.advertised_host:
            raise ConfigError(
                f"listening at {self.options.listen_host} needs an advertised_host that clients "
                "can reach"
            )
        self._end = asyncio.get_running_loop().create_future()
        # Listen first: a process that cannot serve must not take the journal over.
        self._server = await serve(
            self.options.listen_host,
            self.options.port,
            self._receive,
            limits=server_limits(self.config, descriptors_max()),
            over_limit_handler=self._receive_over_limit,
        )
        try:
            image, first_commit = await run_blocking(self._take_over)
            self.secret = await run_blocking(self._journal.secret, self._new_secret)
        except BaseException:
            await self._server.close(0)
            raise
        self._committer = GroupCommitter(
            self._journal,
            image,
            wall_ms=self.runtime.wall_ms,
            new_nonce=self._new_nonce,
            on_commit=self._publish,
            on_give_up=self._reset_controller,
            idle_check_s=self.config.broker_session_timeout_ms / 1000,
        )
        self._metadata_feed = MetadataFeed(lambda: self.image)
        # Brokers that followed the former controller lack only this commit.
        self._metadata_feed.publish(first_commit)
        self._reset_controller()
        self._apply_settings()
        self._transaction_coordinator = TransactionCoordinator(
            lambda: self.image,
            config=self.config,
            secret=self.secret,
            runtime=self.runtime,
            allocate_producer_id=self._new_producer_id,
            on_fenced=self._end_with,
            confirm_leadership=self._confirm_leadership,
        )
        self._transaction_coordinator.image_changed()
        self._dispatcher = Dispatcher(handlers(self))

    async def run(self) -> None:
        """Serve until ``stop``.

        Raises:
            SparklogError: the content of the journal has become uncertain, or another controller
                has taken the journal over.
        """
        committing = asyncio.create_task(self._committer.run())
        ticking = asyncio.create_task(self._tick())
        ends = [committing, ticking, self._end]
        sweeping = asyncio.create_task(self._topic_sweep.run()) if self.config.remote_dir else None
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()  # raises unless ``stop`` was called
            await self._drain(committing)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await self._transaction_coordinator.close()
            await self._server.close(0)
            if sweeping is not None:  # it may be in the midst of a deletion
                sweeping.cancel()
                await asyncio.gather(sweeping, return_exceptions=True)

    def has_failed(self, broker_id: int, topic_id: UUID, partition: int) -> bool:
        """Whether an alive broker has reported its replica of the partition as offline."""
        return self._controller.has_failed(broker_id, topic_id, partition)

    def stop(self, reason: str) -> None:
        """Let ``run`` end once every decision is durable and every response was sent."""
        logger.info("stopping: %s", reason)
        if not self._end.done():
            self._end.set_result(None)

    def _end_with(self, error: Exception) -> None:
        """Let ``run`` end with this error."""
        if not self._end.done():
            self._end.set_exception(error)

    async def _new_producer_id(self) -> int:
        """An unused producer id.  Raises KafkaError while the journal cannot be written."""
        decided = self.decide(InitProducerIdRequest())
        response = await decided if inspect.isawaitable(decided) else decided
        assert isinstance(response, InitProducerIdResponse)
        return response.producer_id

    async def _confirm_leadership(self) -> None:
        """Return when no other controller had taken over at the time of the call.

        Raises:
            KafkaError: NOT_CONTROLLER, or KAFKA_STORAGE_ERROR when the journal cannot be read.
        """
        try:
            await self._committer.confirm_leadership()
        except JournalConflict as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    async def _drain(self, committing: "asyncio.Task[None]") -> None:
        self._metadata_feed.close()
        self.spare_supervisors.close()
        await self._transaction_coordinator.close()
        await self._server.close()
        self._committer.stop()
        await committing

    async def _tick(self) -> None:
        interval_s = self.config.broker_session_timeout_ms / _TICKS / 1000
        while True:
            await asyncio.sleep(interval_s)
            self.decide(TimePassed())

    def _apply_settings(self) -> None:
        """Apply the settings that were changed at run time, for all brokers or for this node."""
        changed = self.image.broker_overrides(CONTROLLER_NODE_ID)
        if changed != self._changed_settings:
            self._changed_settings = changed
            config = changed_config(self.config, changed)
            self._server.set_limits(server_limits(config, descriptors_max()))

    def _reset_controller(self) -> None:
        """Replace the controller by one that starts from the committed image."""
        image = self.image.copy()
        runtime = self.runtime
        self._controller = Controller(
            image,
            self.config,
            new_id=runtime.new_id,
            wall_ms=runtime.wall_ms,
            now_ms=runtime.monotonic_ms(),
        )

    # -- taking over

    def _take_over(self) -> tuple[ClusterImage, bytes]:
        """Take over the journal's head, with a controller epoch above all former ones.

        Returns:
            The image, and the encoded records of the commit that took the journal over.
        """
        self._journal.remove_leftovers()
        image = self._journal.load()
        is_new = image.version == 0
        if not is_new:  # a cluster that cannot start must not be taken over
            self._check_cluster(image)
            self._check_remote_dir(image)
        for _ in range(TAKEOVERS_MAX):
            self._check_cluster(image)
            host = self.options.advertised_host or self._server.host
            controller_epoch, records = first_records(
                image,
                Endpoint(host, self._server.port),
                self.runtime,
                journal_may_be_old=self.options.journal_may_be_old,
            )
            header = CommitHeader(
                version=image.version + 1,
                controller_epoch=controller_epoch,
                nonce=self._new_nonce(),
                time_ms=self.runtime.wall_ms(),
            )
            encoded = encode_records(records)
            try:
                self._journal.commit(header, encoded)
            except JournalConflict:
                self._journal.catch_up(image)  # the former controller was faster
                continue
            image.replay_commit(header.version, records)
            if is_new:
                self._check_remote_dir(image)
            return image, encoded
        raise StartError(f"another controller keeps writing to {self._journal.url}; stop it first")

    def _check_cluster(self, image: ClusterImage) -> None:
        expected = self.options.expected_cluster_id
        if expected is not None and expected != image.cluster_id:
            raise ForeignClusterError(
                f"{self._journal.url} holds cluster {image.cluster_id or '(none)'!r}, not "
                f"{expected!r}; choose the journal_dir and data_dir of one cluster"
            )

    def _check_remote_dir(self, image: ClusterImage) -> None:
        if self.options.checks_remote_dir:
            check_policy_of_tiered(self.config, image)
            check_remote_dir(self.config.remote_dir, self.options.storage_options, image)

    def _new_topic_sweep(self) -> TopicSweep:
        """It runs in a cluster with a remote_dir."""
        remote_dir, options = self.config.remote_dir, self.options.storage_options
        return TopicSweep(
            lambda: open_remote_logs(remote_dir, options),
            lambda: self.image,
            self._confirm_leadership,
            self.decide,
            self.runtime.wall_ms,
        )

    def _new_nonce(self) -> str:
        return self.runtime.random_bytes(8).hex()

    def _new_secret(self) -> bytes:
        return self.runtime.random_bytes(SECRET_BYTES)

    # -- requests

    def _receive(
        self, connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        if self._dispatcher is None:
            connection.abort()  # the journal is not taken over yet; clients try again
            frames.clear()
            return ()
        return self._dispatcher(connection, frames)

    def _receive_over_limit(
        self, connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        if self._dispatcher is None:
            return self._receive(connection, frames)
        return self._dispatcher.handle_over_limit(connection, frames)

    def redispatch(self, connection: ServerConnection, frame: memoryview) -> HandlerResult:
        """Handle a client's request that a broker has forwarded."""
        answers = self._receive(connection, deque([frame]))
        return answers[0] if answers else None

    def decide(self, event: Event) -> "Response | Awaitable[Response | None] | None":
        """Let the controller decide on an event.

        Returns:
            The response, or an awaitable of it while state that it depends on is not durable yet.
            The awaitable raises KafkaError for a refusal, and KAFKA_STORAGE_ERROR when the journal
            cannot be written.

        Raises:
            KafkaError: the controller refuses, and the state behind the refusal is durable.
        """
        decision: Decision | None = None
        refusal: KafkaError | None = None
        try:
            decision = self._controller.handle(event, self.runtime.monotonic_ms())
        except KafkaError as error:
            refusal = error
        except BrokenImageError as error:
            self._end_with(error)
            raise
        records = decision.records if decision else ()
        if not records and self._committer.idle:
            return self._outcome(decision, refusal)
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self._committer.add(
            records, lambda failure: self._complete(future, decision, _refusal(failure) or refusal)
        )
        return future

    def _complete(
        self,
        future: "asyncio.Future[Response | None]",
        decision: Decision | None,
        refusal: KafkaError | None,
    ) -> None:
        try:
            response = self._outcome(decision, refusal)
        except KafkaError as error:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nothing awaits the outcome of a clock tick
            return
        if not future.done():
            future.set_result(response)

    def _outcome(self, decision: Decision | None, refusal: KafkaError | None) -> Response | None:
        if refusal is not None:
            raise refusal
        assert decision is not None
        for effect in decision.effects:
            match effect:
                case WarnOperator():
                    logger.warning("%s", effect.message)
                case CountUncleanRecoveries():
                    self.unclean_recoveries += effect.partitions
        return decision.response

    def _publish(self, encoded_records: bytes) -> None:
        self._apply_settings()
        self._metadata_feed.publish(encoded_records)
        self._transaction_coordinator.image_changed()

    def status(self) -> dict[str, Any]:
        """The counters of this node, for tests and the command line."""
        image, dispatcher, server = self.image, self._dispatcher, self._server
        assert dispatcher is not None
        return {
            "role": "control-plane",
            "pid": os.getpid(),
            "cluster_id": image.cluster_id,
            "controller_epoch": image.controller_epoch,
            "version": image.version,
            "commits": self._committer.commits,
            "unclean_recoveries": self.unclean_recoveries,
            "watchers": self._metadata_feed.watchers,
            **self._topic_sweep.status(),
            "spares": self.spare_supervisors.spares,
            "transactions": self._transaction_coordinator.as_json(),
            "brokers": len(image.brokers),
            "brokers_alive": len(image.alive_brokers()),
            "topics": len(image.topics),
            "connections": len(server.connections),
            "connections_refused": server.connections_refused,
            "connections_idle": server.connections_idle,
            **server.memory.as_json(),
            "frames_refused": server.frames_refused,
            "errors": dispatcher.errors,
            "requests": {str(key): count for key, count in sorted(dispatcher.requests.items())},
            "uptime_ms": self.runtime.wall_ms() - self._started_ms,
        }


def _refusal(failure: StorageError | None) -> KafkaError | None:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) if failure else None
