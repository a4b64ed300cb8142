"""A transactional producer's requests to coordinators, in the order that its state allows.

Owns: the way to the transaction coordinator and to the coordinators of groups, retries, and errors
as the state machine sees them.  Must not know batches: the producer sends them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from sparklog.client.cluster_client import UNKNOWN_TOPIC_GRACE_S, ClusterClient
from sparklog.client.coordinator_channel import CoordinatorChannel
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES, Deadline, check, is_retriable, retry
from sparklog.client.find_coordinator_api import CoordinatorType
from sparklog.client.groups import GroupIdentity, OffsetAndMetadata
from sparklog.client.producer_sequences import BatchIdentity, ProducerIdentity
from sparklog.client.transactions.producer_state import ProducerState
from sparklog.client.transactions.transaction_errors import unfinished_error
from sparklog.client.transactions.transaction_manager import TransactionManager
from sparklog.client.transactions.transaction_requests import (
    ADD_PARTITIONS_VERSION_MAX,
    END_TXN_VERSION_BEFORE_2,
    INIT_PRODUCER_ID_VERSION_MAX,
    NEXT_EPOCH_FROM,
    PRODUCE_VERSION_BEFORE_2,
    TXN_OFFSET_COMMIT_VERSION_BEFORE_2,
    add_partitions_request,
    check_added_partitions,
    check_offsets_taken,
    txn_offset_commit_request,
)
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError, ProtocolError
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from sparklog.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.schema import Request

T = TypeVar("T")

TRANSACTION_VERSION: Final = "transaction.version"
#: Time limit in seconds of one request to a coordinator; the deadline of the call allows several.
_REQUEST_TIMEOUT_S: Final = 30.0
_NO_IDENTITY: Final = ProducerIdentity(producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


class ProducerTransaction:
    """The transactions of one producer, one after the other.

    Every call raises KafkaError; ``transaction_errors`` says what its code means.
    """

    def __init__(self, cluster: ClusterClient, transactional_id: str, timeout_ms: int) -> None:
        """``timeout_ms``: the coordinator aborts a transaction that takes longer."""
        self.manager = TransactionManager(transactional_id)
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator = CoordinatorChannel(
            cluster, CoordinatorType.TRANSACTION, transactional_id, _REQUEST_TIMEOUT_S
        )
        self._group_coordinators: dict[str, CoordinatorChannel] = {}
        self._adding = asyncio.Lock()

    @property
    def transactional_id(self) -> str:
        return self.manager.transactional_id

    async def close(self) -> None:
        for channel in (self._coordinator, *self._group_coordinators.values()):
            await channel.close()

    # the life of a producer

    async def initialize(self, deadline: Deadline) -> None:
        """Get a producer id and epoch; an open transaction of an earlier producer is aborted."""
        self.manager.begin_initializing()
        manager = self.manager
        identity = manager.identity or _NO_IDENTITY
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

        async def attempt() -> ProducerIdentity:
            if manager.is_recovering:
                await self._check_next_epoch(deadline)
            response: InitProducerIdResponse = await self._ask(
                self._coordinator, request, deadline, INIT_PRODUCER_ID_VERSION_MAX
            )
            check(response.error_code, f"no producer id for {self.transactional_id!r}")
            return ProducerIdentity(
                producer_id=response.producer_id, producer_epoch=response.producer_epoch
            )

        call = "abort_transaction" if manager.is_recovering else "init_transactions"
        manager.initialized(await self._finish(call, self._coordinator, attempt, deadline))

    async def _check_next_epoch(self, deadline: Deadline) -> None:
        """Before KIP-360 a fenced producer that asks again would fence the producer after it."""
        connection = await self._coordinator.connect(deadline)
        if connection.version_for(InitProducerIdRequest) < NEXT_EPOCH_FROM:
            raise ProtocolError(
                f"{connection.endpoint} cannot give this producer its next epoch (InitProducerId "
                f"v{NEXT_EPOCH_FROM})"
            )

    def begin(self) -> None:
        """Begin a transaction of the version that the coordinator told last; nothing is sent."""
        self.manager.begin(self._coordinator.features.get(TRANSACTION_VERSION, 0))

    async def commit(self, deadline: Deadline) -> None:
        """Decide for the commit; every record has been delivered.  May be repeated."""
        self.manager.begin_commit()
        await self._end(deadline, committed=True)

    async def abort(self, deadline: Deadline) -> None:
        """Decide for the abort; no batch is under way.  May be repeated."""
        self.manager.begin_abort()
        if self.manager.state is ProducerState.ABORTING_TRANSACTION:
            await self._end(deadline, committed=False)
        if self.manager.is_recovering:
            await self.initialize(deadline)

    async def _end(self, deadline: Deadline, *, committed: bool) -> None:
        manager = self.manager
        if not manager.needs_end_txn:
            manager.ended(None)
            return
        identity = self._identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        version_max = None if manager.adds_implicitly else END_TXN_VERSION_BEFORE_2

        async def attempt() -> ProducerIdentity | None:
            response: EndTxnResponse = await self._ask(
                self._coordinator, request, deadline, version_max
            )
            words = f"the transaction of {self.transactional_id!r} was not "
            check(response.error_code, words + ("committed" if committed else "aborted"))
            if response.producer_id == NO_PRODUCER_ID:
                return None
            return ProducerIdentity(
                producer_id=response.producer_id, producer_epoch=response.producer_epoch
            )

        call = "commit_transaction" if committed else "abort_transaction"
        manager.ended(await self._finish(call, self._coordinator, attempt, deadline))

    # what a transaction contains

    @property
    def produce_version_max(self) -> int | None:
        """The highest version of Produce for batches of the open transaction; None: any."""
        return None if self.manager.adds_implicitly else PRODUCE_VERSION_BEFORE_2

    async def next_batch(self, tp: TopicPartition, timeout_s: float) -> BatchIdentity:
        """The header fields of the next batch of a partition, which is in the transaction then."""
        if self.manager.partitions_to_add(tp):
            deadline = Deadline(timeout_s)
            async with self._adding:  # the partitions of several first batches share a request
                while partitions := self.manager.partitions_to_add(tp):
                    await self._add(partitions, deadline)
        return self.manager.next_batch(tp)

    async def _add(self, partitions: frozenset[TopicPartition], deadline: Deadline) -> None:
        request = add_partitions_request(self.transactional_id, self._identity, partitions)

        async def attempt() -> None:
            response = await self._ask(
                self._coordinator, request, deadline, ADD_PARTITIONS_VERSION_MAX
            )
            check_added_partitions(response)

        await self._within(self._coordinator, attempt, deadline)
        self.manager.partitions_added(partitions)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupIdentity,
        deadline: Deadline,
    ) -> None:
        """Commit a group's offsets as part of the transaction."""
        self.manager.check_open("send_offsets_to_transaction")
        if not offsets:
            return
        if self.manager.must_add_offsets(group.group_id):
            await self._add_offsets(group.group_id, deadline)
        given = {
            tp: OffsetAndMetadata(offset=each) if isinstance(each, int) else each
            for tp, each in offsets.items()
        }
        request = txn_offset_commit_request(self.transactional_id, self._identity, group, given)
        version_max = None if self.manager.adds_implicitly else TXN_OFFSET_COMMIT_VERSION_BEFORE_2
        channel = self._group_coordinator(group.group_id)

        async def attempt() -> None:
            response = await self._ask(channel, request, deadline, version_max)
            check_offsets_taken(response, group.group_id)

        await self._within(channel, attempt, deadline)

    async def _add_offsets(self, group_id: str, deadline: Deadline) -> None:
        identity = self._identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            response = await self._ask(self._coordinator, request, deadline, None)
            words = f"the offsets of the group {group_id!r} were not added to the transaction"
            check(response.error_code, words)

        await self._within(self._coordinator, attempt, deadline)
        self.manager.offsets_added(group_id)

    def _group_coordinator(self, group_id: str) -> CoordinatorChannel:
        channel = self._group_coordinators.get(group_id)
        if channel is None:
            channel = self._group_coordinators[group_id] = CoordinatorChannel(
                self._cluster, CoordinatorType.GROUP, group_id, _REQUEST_TIMEOUT_S
            )
        return channel

    # requests

    @property
    def _identity(self) -> ProducerIdentity:
        assert self.manager.identity is not None
        return self.manager.identity

    async def _ask(
        self,
        channel: CoordinatorChannel,
        request: Request,
        deadline: Deadline,
        version_max: int | None,
    ) -> Any:
        """One attempt."""
        limit_s = min(deadline.left_s, _REQUEST_TIMEOUT_S)
        return await channel.request(request, timeout_s=limit_s, at_most=version_max)

    async def _within(
        self, channel: CoordinatorChannel, attempt: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        """A request within the transaction, which has failed when the time is up."""
        try:
            return await self._retried(channel, attempt, deadline)
        except ClosedError:
            raise
        except ConnectError as error:
            refusal = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
            raise self.manager.request_failed(refusal) from error
        except KafkaError as error:
            raise self.manager.request_failed(error) from error

    async def _finish(
        self,
        call: str,
        channel: CoordinatorChannel,
        attempt: Callable[[], Awaitable[T]],
        deadline: Deadline,
    ) -> T:
        """A request whose outcome is unknown when the time is up; ``call`` may be repeated then."""
        try:
            return await self._retried(channel, attempt, deadline)
        except ClosedError:
            raise
        except (ConnectError, KafkaError) as error:
            if isinstance(error, KafkaError) and not is_retriable(error):
                raise self.manager.end_refused(error) from error
            raise unfinished_error(self.transactional_id, call, error) from error

    async def _retried(
        self, channel: CoordinatorChannel, attempt: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        async def noting_moves() -> T:
            try:
                return await attempt()
            except KafkaError as error:
                channel.note_refusal(error)
                raise

        try:
            return await retry(
                noting_moves,
                deadline,
                final=UNKNOWN_TOPIC_CODES,
                grace=deadline.capped(UNKNOWN_TOPIC_GRACE_S),
            )
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
