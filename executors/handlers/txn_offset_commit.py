"""TxnOffsetCommit (key 28) v0-5: write down, in a transaction, how far a group has read.

The offsets are written in the producer's transaction, and they are committed by its marker; until
then OffsetFetch shows the offsets before them, or that they are not stable.  The commit is fenced
by the epoch of the producer, and from v3 on by the generation and the member of the group too.

Before the first offsets of a transaction are written to a partition of ``__consumer_offsets``, the
transaction coordinator confirms that the partition belongs to the transaction.  From v5 on it adds
the partition itself (KIP-890).  If a transaction of the producer ends in the partition meanwhile,
the answer is COORDINATOR_LOAD_IN_PROGRESS, upon which clients repeat the commit, and it is
confirmed anew; Kafka answers INVALID_TXN_STATE, which ends the client.  A commit before v5 is also
repeated if another commit of the producer is written meanwhile, which may be one of the next
transaction.

The same answer gets a commit before v5 that comes on a connection that the producer has given up
(``latest_connections``).  A commit whose client goes while it is confirmed is not written.

COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before v2, as in Kafka, because clients of
that time do not know it.  PRODUCER_FENCED of the transaction coordinator is INVALID_PRODUCER_EPOCH,
as in Kafka.  A commit of many partitions is decided in parts, as in OffsetCommit.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import ResponseFuture, TransactionalProducer
from sparklog.executors.handlers.group_requests import GroupRequests, failed, require_group_id
from sparklog.executors.handlers.latest_connections import LatestConnections
from sparklog.executors.handlers.offset_commit import (
    CheckedTopic,
    check_topics,
    committed_codes,
    respond,
)
from sparklog.executors.handlers.request_parts import parts_of
from sparklog.executors.replica_manager import VerifyTransaction
from sparklog.service.gone_clients import cancel_with_client
from sparklog.service.group_error_responses import refuse_txn_offset_commit
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transactional_ids import require_transactional_id
from sparklog.slices import Slices, in_groups
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

#: TxnOffsetCommit versions whose clients know COORDINATOR_LOAD_IN_PROGRESS and
#: TRANSACTION_ABORTABLE, and whose partition is added to the transaction by this broker.
_LOAD_IN_PROGRESS_FROM: Final = 2
_ABORTABLE_FROM: Final = 4
_ADDS_PARTITION_FROM: Final = 5
#: A version of OffsetCommit that names topics.
_BY_NAME: Final = 9
#: Errors on the way to the transaction coordinator.  The client repeats the commit at the same
#: broker, and need not look for the group's coordinator.
_REPEATED: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)
_NONE: Final = int(ErrorCode.NONE)
_PARTITION_UNITS: Final = 2


def handler(groups: GroupRequests, verify: VerifyTransaction) -> ApiHandler:
    latest = LatestConnections()

    def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Slices[Any]:
        try:
            require_group_id(request.group_id)
            require_transactional_id(request.transactional_id)
            producer = _producer_of(request)
            commit = yield from _as_offset_commit(request)
            checked = yield from check_topics(groups.image, _BY_NAME, commit.topics)
            topics = tuple([found for topic in checked if (found := topic.accepted()) is not None])
            if not topics:
                return (yield from _response(context.version, checked, {}, _NONE))
            partition = groups.partition_of(request.group_id)
            transaction = _Transaction(context, groups, partition, producer, latest)
        except KafkaError as error:
            return (yield from _refusal(context.version, request, error))
        commit = replace(commit, topics=topics)
        return _commit(context, request, commit, checked, transaction, verify)

    return ApiHandler(
        api_key=TxnOffsetCommitRequest.API_KEY,
        min_version=TxnOffsetCommitRequest.MIN_VERSION,
        max_version=TxnOffsetCommitRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_txn_offset_commit,
    )


class _Transaction:
    """The transaction of a producer in one partition of the internal topic."""

    def __init__(
        self,
        context: RequestContext,
        groups: GroupRequests,
        partition: int,
        producer: TransactionalProducer,
        latest: LatestConnections,
    ) -> None:
        """Raises KafkaError: the partition is not coordinated here, or the commit is late."""
        self._context = context
        self._groups = groups
        self._partition = partition
        self._producer = producer
        self._latest = latest
        self._adds = context.version >= _ADDS_PARTITION_FROM
        self._known = groups.producer_entry(partition, producer.producer_id)
        self._check_connection()

    async def verify(self, transactional_id: str, verify: VerifyTransaction) -> None:
        """Let the coordinator confirm the transaction, unless the partition has it open.

        Raises KafkaError.
        """
        if self._is_open():
            return
        partition = self._groups.topic_partition(self._partition)
        client: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancel_with_client(self._context.connection, client)
        try:
            await verify(transactional_id, *self._producer, (partition,), add=self._adds)
        except KafkaError as error:
            if error.code in _REPEATED:
                raise _repeat(error.message) from error
            raise
        finally:
            client_has_gone = client.cancelled()
            client.cancel()
        if client_has_gone:
            raise _repeat("the client has gone")
        self._check_connection()

    def submit(self, commit: OffsetCommitRequest) -> ResponseFuture:
        """Decide on a part of the commit, and write it at once."""
        groups, number = self._groups, self._partition
        try:
            self._require_same()
        except KafkaError as error:
            return failed(error)
        future = groups.try_submit(self._context, number, commit, self._producer)
        with suppress(KafkaError):  # the coordinator loads again, and refuses the next part
            self._known = groups.producer_entry(number, self._producer.producer_id)
        return future

    def _require_same(self) -> None:
        """Raises KafkaError: the confirmed transaction may have ended.

        The next transaction of an old client has the same epoch, so an open transaction is the
        confirmed one only if nothing but this commit was written since.
        """
        producer_id = self._producer.producer_id
        if self._groups.producer_entry(self._partition, producer_id) is self._known:
            return
        if not self._adds or not self._is_open():
            raise _repeat(
                f"producer {producer_id} has written something else, or its transaction has "
                "ended, since the transaction was confirmed"
            )

    def topic_exists(self, topic: OffsetCommitRequestTopic) -> bool:
        """Whether a topic that existed is still there."""
        return self._groups.image.topic_by_id(topic.topic_id) is not None

    def _check_connection(self) -> None:
        number = self._context.connection.number
        if not self._adds and self._latest.take(self._producer, number):
            raise _repeat("the producer has sent commits on a later connection")

    def _is_open(self) -> bool:
        entry = self._groups.producer_entry(self._partition, self._producer.producer_id)
        return entry is not None and entry.is_in_transaction(self._producer.producer_epoch)


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    commit: OffsetCommitRequest,
    checked: Sequence[CheckedTopic],
    transaction: _Transaction,
    verify: VerifyTransaction,
) -> Slices[TxnOffsetCommitResponse]:
    version = context.version
    try:
        await transaction.verify(request.transactional_id, verify)
    except KafkaError as error:
        return _refusal(version, request, error)
    parts: list[tuple[OffsetCommitRequestTopic, ...]] = []
    futures: list[ResponseFuture] = []
    for part in parts_of(commit.topics):
        if parts:
            await asyncio.sleep(0)
        present = tuple([topic for topic in part if transaction.topic_exists(topic)])
        if present:
            parts.append(present)
            futures.append(transaction.submit(replace(commit, topics=present)))
    codes = await committed_codes(parts, futures)
    return _response(version, checked, codes, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _repeat(why: str | None) -> KafkaError:
    """A refusal upon which a client that is alive sends the commit again."""
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)


def _producer_of(request: TxnOffsetCommitRequest) -> TransactionalProducer:
    if not 0 <= request.producer_id < COORDINATOR_PRODUCER_ID_BASE:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"no producer has the id {request.producer_id}"
        )
    if request.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {request.producer_id} sent the invalid epoch {request.producer_epoch}",
        )
    return TransactionalProducer(request.producer_id, request.producer_epoch)


def _as_offset_commit(request: TxnOffsetCommitRequest) -> Slices[OffsetCommitRequest]:
    """The form of the commit for the state machine."""
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: OffsetCommitRequestPartition(
            partition_index=part.partition_index,
            committed_offset=part.committed_offset,
            committed_leader_epoch=part.committed_leader_epoch,
            committed_metadata=part.committed_metadata,
        ),
        lambda topic, parts: OffsetCommitRequestTopic(name=topic.name, partitions=parts),
        _PARTITION_UNITS,
    )
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _refusal(
    version: int, request: TxnOffsetCommitRequest, error: KafkaError
) -> Slices[TxnOffsetCommitResponse]:
    known = KafkaError(ErrorCode(_known_code(version, error.code)), error.message)
    return (yield from refuse_txn_offset_commit(request, known))


def _response(
    version: int, checked: Sequence[CheckedTopic], codes: dict[tuple[str, int], int], missing: int
) -> Slices[TxnOffsetCommitResponse]:
    """See ``offset_commit.respond``."""
    response = yield from respond(checked, codes, missing)
    topics = yield from in_groups(
        response.topics,
        lambda topic: topic.partitions,
        lambda _, part: TxnOffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=_known_code(version, part.error_code)
        ),
        lambda topic, parts: TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts),
        _PARTITION_UNITS,
    )
    return TxnOffsetCommitResponse(topics=topics)


def _known_code(version: int, code: int) -> int:
    """The error code that clients of a version know."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOAD_IN_PROGRESS_FROM:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return int(ErrorCode.INVALID_TXN_STATE)
    if code == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)
