"""One transactional producer of the real client, and everything that it asks and hears as events.

Owns: what an answer says for sure about a transaction, and how an old client behaves.  Must not
know what a transaction is for, or when an instance dies.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.coordinator_channel import CoordinatorChannel
from sparklog.client.deadline import Deadline
from sparklog.client.groups import GroupIdentity
from sparklog.client.producer import Producer
from sparklog.client.producer_batches import Delivered
from sparklog.client.producer_options import ProducerOptions
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.client.transactions import ProducerTransaction
from sparklog.client.transactions.transaction_manager import TransactionManager
from sparklog.client.transactions.transaction_requests import (
    ADD_PARTITIONS_VERSION_MAX,
    END_TXN_VERSION_BEFORE_2,
    PRODUCE_VERSION_BEFORE_2,
    add_partitions_request,
)
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from sparklog.wire.protocol.schema import Request
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetCommitRefused,
)
from tests.simulation.transaction_events import (
    ABORTED,
    EndTxnAnswered,
    EndTxnInvoked,
    ProducerInitialized,
    TransactionalRecordAcked,
    TransactionalRecordSent,
    TransactionBegun,
)
from tests.simulation.transaction_events import Producer as ProducerId
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.group_requests import REFUSALS, logs_by_partition
from tests.simulation.workloads.late_requests import delay_next_request
from tests.simulation.workloads.scene import Scene, encoded

#: Calls of the client after which an instance gives up.
ATTEMPTS_MAX = 8
#: The share of EndTxn requests that arrive late, of old clients and of others, and how long the
#: client waits for the answer before it asks again on another connection, in seconds.
LATE_SHARE_OLD, LATE_SHARE = 0.5, 0.1
PATIENCE_S = 0.2
#: Codes of EndTxn that say that the attempt has decided nothing.  COORDINATOR_LOAD_IN_PROGRESS does
#: not: a coordinator that ends also answers it when the record of the decision is under way.
NOT_ENDED = frozenset(
    {
        *(ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        *(ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        *(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class _OldManager(TransactionManager):
    """A client that does not know ``transaction.version``: it adds partitions itself."""

    def begin(self, transaction_version: int) -> None:
        super().begin(0)


class _SeenTransaction(ProducerTransaction):
    """The requests of one instance about transactions, written down."""

    def __init__(
        self,
        scene: Scene,
        cluster: ClusterClient,
        transactional_id: str,
        timeout_ms: int,
        instance: str,
        *,
        is_old: bool,
    ) -> None:
        super().__init__(cluster, transactional_id, timeout_ms)
        if is_old:
            self.manager = _OldManager(transactional_id)
        self.scene = scene
        self.instance = instance
        self._late = scene.world.stream(f"late requests of {instance}")
        self._late_share = LATE_SHARE_OLD if is_old else LATE_SHARE
        #: The number of the open transaction, or of the last one.
        self.number = 0
        #: Attempts to commit offsets in the open transaction.
        self.offset_ops: list[int] = []

    async def _ask(
        self,
        channel: CoordinatorChannel,
        request: Request,
        deadline: Deadline,
        version_max: int | None,
    ) -> Any:
        history, asked, op = self.scene.history, self.scene.history.position, 0
        starts = isinstance(request, InitProducerIdRequest) and self.manager.identity is None
        match request:
            case EndTxnRequest():
                op = history.new_op()
                history.record(
                    EndTxnInvoked(op=op, transaction=self.number, committed=request.committed)
                )
                if self._late.random() < self._late_share and not self.scene.over:
                    delay_next_request(self.scene)
                    deadline = Deadline(min(deadline.left_s, PATIENCE_S))
            case TxnOffsetCommitRequest():
                op = history.new_op()
                self.offset_ops.append(op)
                history.record(_offsets_invoked(self.scene, op, request))
            case _:
                pass
        response = await super()._ask(channel, request, deadline, version_max)
        match response:
            case InitProducerIdResponse() if starts and not response.error_code:
                history.record(
                    ProducerInitialized(
                        asked=asked,
                        transactional_id=self.transactional_id,
                        instance=self.instance,
                        producer=ProducerId(response.producer_id, response.producer_epoch),
                    )
                )
            case EndTxnResponse():
                self._end_answered(op, request, response)
            case TxnOffsetCommitResponse():
                self._offsets_answered(op, response)
            case _:
                pass
        return response

    def _end_answered(self, op: int, request: Request, response: EndTxnResponse) -> None:
        assert isinstance(request, EndTxnRequest)
        history, code = self.scene.history, ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self.scene.count(
                "transactions_committed" if request.committed else "transactions_aborted"
            )
            history.record(EndTxnAnswered(op=op, code=""))
            for offset_op in self.offset_ops:
                history.record(
                    OffsetCommitAcked(op=offset_op)
                    if request.committed
                    else OffsetCommitRefused(op=offset_op, code=ABORTED)
                )
            self.offset_ops.clear()
        elif code in NOT_ENDED:
            history.record(EndTxnAnswered(op=op, code=code.name))

    def _offsets_answered(self, op: int, response: TxnOffsetCommitResponse) -> None:
        codes = {ErrorCode.of(p.error_code) for topic in response.topics for p in topic.partitions}
        if codes == {ErrorCode.NONE}:
            self.scene.count("transactional_offset_commits")
        elif codes <= REFUSALS:
            self.scene.count("transactional_offset_commits_refused")
            self.offset_ops.remove(op)
            text = ", ".join(sorted(code.name for code in codes))
            self.scene.history.record(OffsetCommitRefused(op=op, code=text))


def _offsets_invoked(scene: Scene, op: int, request: TxnOffsetCommitRequest) -> OffsetCommitInvoked:
    logs = logs_by_partition(scene)
    return OffsetCommitInvoked(
        op=op,
        group=request.group_id,
        generation=request.generation_id,
        offsets=tuple(
            (logs[TopicPartition(topic.name, part.partition_index)], part.committed_offset)
            for topic in request.topics
            for part in topic.partitions
        ),
        producer_id=request.producer_id,
    )


class Instance:
    """A transactional producer from its start to its end.

    ``call_s`` bounds each call; a call without an answer is repeated on another connection.
    """

    def __init__(
        self,
        scene: Scene,
        cluster: ClusterClient,
        transactional_id: str,
        name: str,
        chance: random.Random,
        *,
        is_old: bool,
    ) -> None:
        self.transactional_id = transactional_id
        self.name = name
        self.is_old = is_old
        self.is_fenced = False
        self._scene = scene
        self._call_s = chance.choice((0.4, 1.5, 4.0))
        #: Records by partition of which it is not known that they are in the log.
        self._unanswered: Counter[LogId] = Counter()
        options = ProducerOptions(
            transactional_id=transactional_id,
            transaction_timeout_ms=chance.choice((800, 2000, 4000)),
            delivery_timeout_s=chance.choice((0.7, 3.0)),
            linger_ms=chance.choice((0, 5)),
            create_topics=False,
        )
        self.producer = Producer(cluster, options)
        self._seen = _SeenTransaction(
            scene,
            cluster,
            transactional_id,
            options.transaction_timeout_ms,
            name,
            is_old=is_old,
        )
        self.producer._transaction = self._seen

    @property
    def number(self) -> int:
        """Of the open transaction, or of the last one."""
        return self._seen.number

    async def initialize(self, *, forever: bool = False) -> bool:
        """Take over the transactional id; return whether this instance may begin.

        Unless ``forever``, the end of the run ends the attempts.
        """
        while forever or not self._scene.over:
            try:
                await self.producer.init_transactions(self._call_s)
                return True
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    return False
        return False

    def begin(self) -> None:
        """Raises KafkaError."""
        self.producer.begin_transaction()
        self._begun()

    async def send(self, log: LogId, value: bytes) -> None:
        """Queue a record of the open transaction.  Raises KafkaError."""
        scene, number = self._scene, self._seen.number
        scene.history.record(TransactionalRecordSent(transaction=number, log=log, value=value))
        self._unanswered[log] += 1
        sent = await self.producer.send(
            log.topic, value, partition=log.partition, timestamp=scene.wall_ms
        )

        def delivered(future: "asyncio.Future[Delivered]") -> None:
            if not future.cancelled() and future.exception() is None:
                self._unanswered[log] -= 1
                scene.history.record(TransactionalRecordAcked(transaction=number, value=value))

        sent.add_done_callback(delivered)

    async def send_offsets(self, offsets: dict[TopicPartition, int], group: GroupIdentity) -> None:
        """Raises KafkaError."""
        await self.producer.send_offsets_to_transaction(offsets, group, self._call_s)

    async def end(self, *, commits: bool) -> bool | None:
        """End the transaction, by an abort where a commit is not possible.

        Returns:
            Whether it was committed; None when the instance cannot go on.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                if commits:
                    await self.producer.commit_transaction(self._call_s)
                else:
                    await self.producer.abort_transaction(self._call_s)
                return commits
            except KafkaError as error:
                if error.code is ErrorCode.TRANSACTION_ABORTABLE:
                    commits = False
                elif error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    self.is_fenced = error.code is ErrorCode.PRODUCER_FENCED
                    self._scene.count("producers_fenced", self.is_fenced)
                    return None
        return None

    async def haunt(self, log: LogId, value: bytes) -> None:
        """Go on as if this instance were not fenced, with requests that no client sends.

        The sequence of a batch without an answer is used again.  The next batch of such a partition
        would pass for its repetition, which is acknowledged and not appended; so there is none.
        """
        scene, seen = self._scene, self._seen
        identity = seen.manager.identity
        assert identity is not None
        self._begun()
        scene.count("zombie_transactions")
        if not self._unanswered[log]:
            with suppress(SparklogError):
                await self._haunt_partition(log, value, identity)
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=True,
        )
        version_max = END_TXN_VERSION_BEFORE_2 if self.is_old else None
        with suppress(SparklogError):
            await seen._ask(seen._coordinator, request, Deadline(self._call_s), version_max)

    async def _haunt_partition(self, log: LogId, value: bytes, identity: ProducerIdentity) -> None:
        scene, seen, tp = self._scene, self._seen, tp_of(log)
        if self.is_old:
            adding = add_partitions_request(self.transactional_id, identity, (tp,))
            deadline = Deadline(self._call_s)
            await seen._ask(seen._coordinator, adding, deadline, ADD_PARTITIONS_VERSION_MAX)
        number = seen.number
        scene.history.record(TransactionalRecordSent(transaction=number, log=log, value=value))
        batch = encoded((value,), scene.wall_ms, transactional=True, **seen.manager.next_batch(tp))
        await self.producer._data_client.produce(
            tp,
            [batch],
            timeout_s=self._call_s,
            transactional_id=self.transactional_id,
            version_max=PRODUCE_VERSION_BEFORE_2 if self.is_old else None,
        )
        scene.history.record(TransactionalRecordAcked(transaction=number, value=value))

    async def close(self) -> None:
        with suppress(SparklogError, TimeoutError):
            await self.producer.close(self._call_s)

    def _begun(self) -> None:
        number = self._seen.number = self._scene.history.new_op()
        self._seen.offset_ops.clear()
        self._scene.history.record(
            TransactionBegun(
                transaction=number, transactional_id=self.transactional_id, instance=self.name
            )
        )
