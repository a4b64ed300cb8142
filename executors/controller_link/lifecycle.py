"""A broker's lifecycle at the control plane: its cluster image, registration and heartbeats.

Owns: the replayed cluster image, the broker epoch, and the reactions to a control plane that does
not answer (keep the last image, try again) or does not know this broker (register again, with the
same incarnation).  It also sends the broker's other requests to the control plane.  Must not know
partitions or clients.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sparklog.client.deadline import Deadline
from sparklog.config import BrokerConfig
from sparklog.errors import ConnectError, DecodeError, ErrorCode, KafkaError
from sparklog.executors.controller_link.connection import (
    RETRY_S_MIN,
    ControllerConnection,
    retry_pauses,
)
from sparklog.executors.controller_link.transaction_verifier import TransactionVerifier
from sparklog.executors.log_dirs import BrokerStartError
from sparklog.metadata import ClusterImage, ControllerChanged, Record, decode_records
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.types import NO_NODE, Endpoint
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    TopicData,
)
from sparklog.wire.protocol.private import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateInternalTopicRequest,
    CreateInternalTopicResponse,
    ForwardRequestRequest,
    ForwardRequestResponse,
    LogEnd,
    OfflineReplica,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportLogEndsRequest,
    ReportLogEndsResponse,
    WatchMetadataRequest,
    WatchMetadataResponse,
)

WATCH_WAIT_MS = 10_000
CALL_TIMEOUT_S = 5.0
FORWARD_TIMEOUT_S = 30.0
#: How long a starting broker waits for the control plane.
FIND_CONTROLLER_S = 30.0
#: Errors of a registration that a retry cannot fix.
_FATAL = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
_MUST_REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """The data with which a broker registers.

    ``incarnation`` identifies the broker's process; ``clean_epoch`` is the broker epoch of the
    clean shutdown marker, if ``clean_stop``.
    """

    cluster_id: str
    broker_id: int
    directory_id: UUID
    incarnation: UUID
    advertised: Endpoint
    executor_host: str
    executor_id: str
    job: str
    rack: str
    clean_stop: bool
    clean_epoch: int


class BrokerLifecycle:
    """One broker's session with the control plane.  The owner must ``close`` it.

    The session is also the way of every other request of the broker to the control plane:
    AlterPartition, log ends, blocks of producer ids, internal topics, and clients' requests that
    the broker forwards.

    Args:
        controller: the control plane's address.
        secret: the cluster secret.
        name: the prefix of the connections' client ids.
    """

    def __init__(
        self,
        controller: Endpoint,
        secret: bytes,
        config: BrokerConfig,
        name: str,
        *,
        runtime: RuntimeEnvironment = SYSTEM,
    ) -> None:
        self.image = ClusterImage()
        self.broker_epoch = -1
        self.registrations = 0
        #: Returns the offline replicas, which every registration and heartbeat reports.
        self.offline_replicas: Callable[[], tuple[OfflineReplica, ...]] = tuple
        self._identity: BrokerIdentity | None = None
        self._wants_stop = False
        self._beat_now = asyncio.Event()
        self._config = config
        link = partial(ControllerConnection, controller, secret, runtime=runtime)
        self._watch_link = link(client_id=f"{name}-watch")
        self._link = link(client_id=name)
        self._forward_link = link(client_id=f"{name}-forward")
        self._isr_link = link(client_id=f"{name}-isr")
        #: Asks the transaction coordinator.
        self.verify_transaction = TransactionVerifier(link(client_id=f"{name}-transactions"))

    def close(self) -> None:
        for link in (self._watch_link, self._link, self._forward_link, self._isr_link):
            link.close()
        self.verify_transaction.close()

    @property
    def is_registered(self) -> bool:
        """Whether the image shows this process, not another one, under its broker id."""
        identity = self._identity
        broker = self.image.broker(identity.broker_id) if identity is not None else None
        return (
            identity is not None
            and broker is not None
            and broker.incarnation == identity.incarnation
            and broker.broker_epoch >= self.broker_epoch
        )

    # start

    async def fetch_image(self) -> None:
        """Fetch the first image.

        Raises:
            BrokerStartError: no control plane answers within ``FIND_CONTROLLER_S``.
        """

        async def fetch() -> None:
            await self._watch_once(max_wait_ms=0)

        await self._retry_until_done(fetch, FIND_CONTROLLER_S)

    async def register(self, identity: BrokerIdentity) -> None:
        """Register this process, then wait for the image that shows the registration.

        Raises:
            BrokerStartError: the control plane refuses for good, or does not answer in time.
        """
        self._identity = identity
        session_s = self._config.broker_session_timeout_ms / 1000
        await self._retry_until_done(self._register_once, FIND_CONTROLLER_S + 2 * session_s)

        async def catch_up() -> None:
            while not self.is_registered:
                await self._watch_once(max_wait_ms=1000)

        try:
            async with asyncio.timeout(FIND_CONTROLLER_S):
                await self._retry_until_done(catch_up, FIND_CONTROLLER_S)
        except TimeoutError:
            raise BrokerStartError(
                "other", f"another process has registered as broker {identity.broker_id} since"
            ) from None

    async def _register_once(self) -> None:
        identity = self._identity
        assert identity is not None
        request = RegisterBrokerRequest(
            cluster_id=identity.cluster_id,
            broker_id=identity.broker_id,
            directory_id=identity.directory_id,
            incarnation=identity.incarnation,
            host=identity.advertised.host,
            port=identity.advertised.port,
            executor_host=identity.executor_host,
            executor_id=identity.executor_id,
            job=identity.job,
            rack=identity.rack,
            clean_stop=identity.clean_stop,
            clean_epoch=identity.clean_epoch,
            offline=self.offline_replicas(),
        )
        response = await self._link.call(request, RegisterBrokerResponse, CALL_TIMEOUT_S)
        self.broker_epoch = response.broker_epoch
        self.registrations += 1
        logger.info("registered with epoch %d", response.broker_epoch)

    async def _retry_until_done(self, step: Callable[[], Awaitable[None]], limit_s: float) -> None:
        deadline, pauses = Deadline(limit_s), retry_pauses()
        while True:
            try:
                return await step()
            except (ConnectError, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code in _FATAL:
                    raise BrokerStartError(_kind(error), str(error)) from error
                if deadline.left_s < pauses.next_s:
                    raise BrokerStartError("other", str(error)) from error
                logger.info("trying again: %s", error)
            await pauses.wait()

    # while serving

    async def watch(self, changed: Callable[[ClusterImage], Awaitable[None]]) -> None:
        """Follow the image for ever.

        Args:
            changed: awaited with the image after every change.
        """
        pauses, logged = retry_pauses(), None
        while True:
            try:
                if await self._watch_once(max_wait_ms=WATCH_WAIT_MS):
                    await changed(self.image)
                if pauses.begun:
                    logger.info("the control plane answers again")
                    pauses.reset()
                logged = None
                continue
            except (ConnectError, KafkaError) as error:
                kind = error.code if isinstance(error, KafkaError) else type(error)
                if kind != logged:  # log an error once, not at every retry
                    logger.warning("the image stays at version %d: %s", self.image.version, error)
                logged = kind
            await pauses.wait()

    async def heartbeat(self) -> None:
        """Send heartbeats for ever; register again when the control plane asks for it.

        Raises:
            BrokerStartError: another process holds this broker id for good.
        """
        while True:
            try:
                await self._beat()
            except KafkaError as error:
                logger.info("heartbeat refused: %s", error)
                if error.code in _MUST_REGISTER_AGAIN:
                    session_s = self._config.broker_session_timeout_ms / 1000
                    await self._retry_until_done(
                        self._register_once, FIND_CONTROLLER_S + 2 * session_s
                    )
                    continue
            except ConnectError as error:
                logger.debug("no heartbeat: %s", error)
                await asyncio.sleep(RETRY_S_MIN)
            await self._pause()

    def beat_now(self) -> None:
        """Send the next heartbeat at once, so that it reports changes without delay."""
        self._beat_now.set()

    async def _pause(self) -> None:
        # wait_for would ignore a cancellation if the event is set at the same time.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.broker_heartbeat_interval_ms / 1000):
                await self._beat_now.wait()
        self._beat_now.clear()

    async def prepare_stop(self) -> bool:
        """Begin a controlled shutdown; every later heartbeat asks for it as well.

        Returns:
            Whether the broker may stop: no leadership could still be handed over.

        Raises:
            ConnectError: the control plane does not answer.
            KafkaError: the control plane refuses the heartbeat.
        """
        self._wants_stop = True
        return (await self._beat()).may_stop

    async def report_log_ends(self, ends: tuple[LogEnd, ...]) -> None:
        """Report the log ends of replicas of leaderless partitions.

        Raises:
            ConnectError: the control plane does not answer.
            KafkaError: the control plane refuses the report.
        """
        request = ReportLogEndsRequest(
            broker_id=self._identity.broker_id if self._identity else -1,
            broker_epoch=self.broker_epoch,
            ends=ends,
        )
        await self._link.call(request, ReportLogEndsResponse, CALL_TIMEOUT_S)

    async def announce_stop(self) -> None:
        """Tell the control plane, if it answers, that this broker has stopped."""
        if self.broker_epoch < 0:
            return
        try:
            await self._beat(has_stopped=True)
        except (ConnectError, KafkaError) as error:
            logger.info("the control plane was not told of the stop: %s", error)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocate a block of producer ids.

        Returns:
            The first id, and the number of ids.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
        """
        identity = self._identity
        try:
            response = await self._link.call(
                AllocateProducerIdsRequest(
                    broker_id=identity.broker_id if identity else -1,
                    broker_epoch=self.broker_epoch,
                ),
                AllocateProducerIdsResponse,
                CALL_TIMEOUT_S,
            )
        except (ConnectError, KafkaError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids now: {error}"
            ) from error
        return response.first_producer_id, response.count

    async def create_internal_topic(self, name: str) -> None:
        """Create an internal topic if it is missing.

        The topic is durable afterwards; this broker's image shows it a moment later.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, which clients retry.
        """
        request = CreateInternalTopicRequest(name=name)
        try:
            await self._link.call(request, CreateInternalTopicResponse, CALL_TIMEOUT_S)
        except (ConnectError, KafkaError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created now: {error}"
            ) from error

    async def alter_partitions(self, topics: tuple[TopicData, ...]) -> AlterPartitionResponse:
        """Propose the in-sync replicas of partitions that this broker leads.

        Raises:
            ConnectError: the control plane does not answer; its decision is unknown.
            KafkaError: the control plane refuses the request.
        """
        request = AlterPartitionRequest(
            broker_id=self._identity.broker_id if self._identity else NO_NODE,
            broker_epoch=self.broker_epoch,
            topics=topics,
        )
        return await self._isr_link.call(request, AlterPartitionResponse, CALL_TIMEOUT_S)

    async def forward(self, frame: bytes, version: int) -> bytes:
        """Forward a client's request to the controller.

        Args:
            frame: the request, with its header.
            version: the API version of the client's request.

        Returns:
            The response, with its header.

        Raises:
            KafkaError: NOT_CONTROLLER when the controller does not answer.
        """
        request = ForwardRequestRequest(api_version=version, request=frame)
        try:
            response = await self._forward_link.call(
                request, ForwardRequestResponse, FORWARD_TIMEOUT_S
            )
        except ConnectError as error:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"the controller is away: {error}"
            ) from error
        return response.response

    async def _beat(self, *, has_stopped: bool = False) -> BrokerHeartbeatResponse:
        assert self._identity is not None
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            metadata_version=self.image.version,
            wants_stop=self._wants_stop,
            has_stopped=has_stopped,
            offline=self.offline_replicas(),
        )
        return await self._link.call(request, BrokerHeartbeatResponse, CALL_TIMEOUT_S)

    async def _watch_once(self, *, max_wait_ms: int) -> bool:
        """Fetch and replay new commits.  Returns whether there were any."""
        since = self.image.version if self.image.version else -1
        response = await self._watch_link.call(
            WatchMetadataRequest(since=since, max_wait_ms=max_wait_ms),
            WatchMetadataResponse,
            max_wait_ms / 1000 + CALL_TIMEOUT_S,
        )
        if response.controller_epoch < self.image.controller_epoch:
            self._watch_link.close()
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {response.controller_epoch} is over",
            )
        if response.version < self.image.version:
            # Commit numbers only grow.  Topics that are missing in the older image would look
            # deleted, and their logs would be deleted with them.
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller's journal ends at commit {response.version}, and this broker has "
                f"seen commit {self.image.version}: commits are lost, or the journal is an older "
                "copy; restore it, or stop the cluster before it is started from what is left",
            )
        try:
            commits = [decode_records(commit) for commit in response.commits]
            if not response.snapshot:
                self._check_epoch(response.controller_epoch, commits)
            if not commits and not response.snapshot:
                return False
            image = ClusterImage() if response.snapshot else self.image
            first = response.version - len(commits) + 1
            for version, records in enumerate(commits, start=first):
                image.replay_commit(version, records)
        except (DecodeError, LookupError) as error:
            # The image is half replayed now, and only a snapshot gives a complete image again.
            self.image.version = 0
            raise ConnectError(f"a commit could not be replayed: {error}") from error
        assert image.version == response.version
        self.image = image
        return True

    def _check_epoch(self, controller_epoch: int, commits: Sequence[Sequence[Record]]) -> None:
        """Refuse commits that do not continue those that this broker knows.

        Every controller epoch begins with a commit.  Suppose that this broker has never received
        the commit of the present epoch.  Then that commit has the number of another commit that the
        broker did receive: the journal has lost the latter and continues without it.
        """
        epochs = [
            r.controller_epoch for c in commits for r in c if isinstance(r, ControllerChanged)
        ]
        if controller_epoch != max(epochs, default=self.image.controller_epoch):
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the journal of controller epoch {controller_epoch} does not go on from commit "
                f"{self.image.version} that this broker has seen: commits are lost, or the journal "
                "is an older copy; restore it, or stop the cluster before it is started from what "
                "is left",
            )


def _kind(error: KafkaError) -> str:
    return "foreign_cluster" if error.code == ErrorCode.INCONSISTENT_CLUSTER_ID else "config"
