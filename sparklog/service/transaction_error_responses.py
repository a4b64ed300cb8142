"""The error responses of the requests about transactions, for brokers and the control plane.

Owns: the responses that answer a whole request with one error, in every version.  Must not know why
a request is refused.
"""

from collections.abc import Callable, Iterable

from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from sparklog.wire.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from sparklog.wire.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def refuse_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    """Versions before 4 have a code for each partition, later ones a code for the request."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=topic_results(
            request.v3_and_below_topics, lambda _topic, _partition: error.code
        ),
        error_code=int(error.code),
    )


def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], code_of: Callable[[str, int], ErrorCode]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    """The result of each partition of a request."""
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=int(code_of(topic.name, partition)),
                )
                for partition in topic.partitions
            ),
        )
        for topic in topics
    )


def refuse_add_offsets_to_txn(
    _request: AddOffsetsToTxnRequest, error: KafkaError
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=int(error.code))


def refuse_end_txn(_request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(error_code=int(error.code))


def refuse_describe_transactions(
    request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            DescribedTransaction(transactional_id=each, error_code=int(error.code))
            for each in request.transactional_ids
        )
    )


def refuse_list_transactions(
    _request: ListTransactionsRequest, error: KafkaError
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=int(error.code))
