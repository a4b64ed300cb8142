"""A small cluster with a coordinator of one transactional id, at the coordinator's node.

Owns: the producer id and epoch, what is in the open transaction, and what was decided.  Must not
know the clients.
"""

from dataclasses import replace
from typing import Any

from sparklog.errors import ErrorCode
from sparklog.service.dispatch import ApiHandler, Dispatcher
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest, FinalizedFeatureKey
from sparklog.wire.protocol.messages.describe_transactions import DescribeTransactionsResponse
from sparklog.wire.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from sparklog.wire.protocol.messages.end_txn import EndTxnResponse
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.protocol.messages.list_transactions import ListTransactionsResponse
from sparklog.wire.protocol.messages.list_transactions import TransactionState as ListedTransaction
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.records.batch import BatchHeader, iter_batches
from tests.unit.client.groups.group_cluster import GroupCluster

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 0, 22, 24, 25, 26
TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 28, 65, 66
PRODUCER_ID = 77


class TransactionCluster(GroupCluster):
    #: Kafka's feature of this name, which every node tells.
    transaction_version = 2

    def __init__(self, brokers: int = 2, *, auto_create: bool = True) -> None:
        super().__init__(brokers, auto_create=auto_create)
        self.epoch = -1
        #: The state that the coordinator shows.
        self.state = "Ongoing"
        #: The partitions of each AddPartitionsToTxn, and the requests of other kinds, in order.
        self.added: list[list[TopicPartition]] = []
        self.initialized: list[Any] = []
        self.offset_commits: list[Any] = []
        #: (committed, producer epoch) of each EndTxn that was decided.
        self.ended: list[tuple[bool, int]] = []

    def batches(self, tp: TopicPartition) -> list[BatchHeader]:
        return [
            header
            for _, _, batch in self.logs[tp].batches
            for header, _ in iter_batches(memoryview(batch))
        ]

    def versions(self, api_key: int) -> set[int]:
        """The versions of the requests of an API."""
        return {version for _, key, version in self.requests if key == api_key}

    def _dispatcher(self, node_id: int) -> Dispatcher:
        dispatcher = super()._dispatcher(node_id)
        handlers = dispatcher._handlers
        told = handlers[ApiVersionsRequest.API_KEY]
        feature = FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.transaction_version
        )

        def handle(context: Any, request: Any) -> Any:
            response: Any = told.handle(context, request)
            return replace(response, finalized_features=(feature,), finalized_features_epoch=1)

        handlers[ApiVersionsRequest.API_KEY] = replace(told, handle=handle)
        return dispatcher

    def further_apis(self, node_id: int) -> list[ApiHandler]:
        if node_id == 0:
            return []
        return [
            *super().further_apis(node_id),
            self.api(node_id, ADD_PARTITIONS, 5, self._add_partitions),
            self.api(node_id, ADD_OFFSETS, 4, self._add_offsets),
            self.api(node_id, END_TXN, 5, self._end),
            self.api(node_id, TXN_OFFSET_COMMIT, 5, self._commit_offsets),
            self.api(node_id, DESCRIBE_TRANSACTIONS, 0, self._describe),
            *self._lists(node_id),
        ]

    def _refusal(self, node_id: int, epoch: int, code: ErrorCode) -> ErrorCode:
        if node_id != self.coordinator_id:
            return ErrorCode.NOT_COORDINATOR
        if not code and epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        return code

    def _init_producer_id(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        if request.transactional_id is None:
            return super()._init_producer_id(node_id, request, code)
        known = request.producer_epoch if request.producer_id >= 0 else self.epoch
        code = self._refusal(node_id, known, code)
        if code:
            return InitProducerIdResponse(error_code=code)
        self.initialized.append(request)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _add_partitions(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        code = self._refusal(node_id, request.v3_and_below_producer_epoch, code)
        topics = request.v3_and_below_topics
        if not code:
            self.added.append([TopicPartition(t.name, n) for t in topics for n in t.partitions])
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=code
                        )
                        for number in topic.partitions
                    ),
                )
                for topic in topics
            )
        )

    def _add_offsets(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        code = self._refusal(node_id, request.producer_epoch, code)
        return AddOffsetsToTxnResponse(error_code=code)

    def _end(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        repeated = (request.committed, request.producer_epoch) in self.ended
        if self.transaction_version >= 2 and repeated and node_id == self.coordinator_id:
            return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        code = self._refusal(node_id, request.producer_epoch, code)
        if code:
            return EndTxnResponse(error_code=code)
        self.ended.append((request.committed, self.epoch))
        self.epoch += self.transaction_version >= 2
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _lists(self, node_id: int) -> list[ApiHandler]:
        """Only the coordinator lists transactions."""
        if node_id != self.coordinator_id:
            return []
        return [self.api(node_id, LIST_TRANSACTIONS, 2, self._list)]

    def _list(self, _node_id: int, _request: Any, code: ErrorCode) -> Any:
        listed = ListedTransaction(
            transactional_id="x", producer_id=PRODUCER_ID, transaction_state=self.state
        )
        return ListTransactionsResponse(error_code=code, transaction_states=(listed,))

    def _describe(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        if node_id != self.coordinator_id:
            code = ErrorCode.NOT_COORDINATOR
        return DescribeTransactionsResponse(
            transaction_states=tuple(
                DescribedTransaction(
                    error_code=code or (name != "x" and ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
                    transactional_id=name,
                    transaction_state=self.state,
                    transaction_timeout_ms=1000,
                    producer_id=PRODUCER_ID,
                    producer_epoch=self.epoch,
                )
                for name in request.transactional_ids
            )
        )

    def _commit_offsets(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        code = self._refusal(node_id, request.producer_epoch, code)
        if not code:
            self.offset_commits.append(request)
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )


class OldTransactionCluster(TransactionCluster):
    """As Kafka before KIP-890."""

    transaction_version = 0
