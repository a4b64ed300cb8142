"""The bodies of a transactional producer's requests.

Owns: making requests from partitions and offsets, and errors from responses.  Must not know the
coordinators' addresses, nor the state of the producer.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.client.deadline import kafka_error
from sparklog.client.groups import GroupIdentity, OffsetAndMetadata
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition, numbers_by_topic
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

#: The last version of AddPartitionsToTxn for clients; later ones are for brokers.
ADD_PARTITIONS_VERSION_MAX: Final = 3
#: The last versions before transaction version 2, in which a first batch adds its partition.
PRODUCE_VERSION_BEFORE_2: Final = 11
END_TXN_VERSION_BEFORE_2: Final = 4
TXN_OFFSET_COMMIT_VERSION_BEFORE_2: Final = 4
#: The last version of InitProducerId without prepared transactions (KIP-939).
INIT_PRODUCER_ID_VERSION_MAX: Final = 5
#: The first version of InitProducerId in which a producer asks for its next epoch (KIP-360).
NEXT_EPOCH_FROM: Final = 3


def add_partitions_request(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in numbers_by_topic(sorted(partitions)).items()
        ),
    )


def check_added_partitions(response: AddPartitionsToTxnResponse) -> None:
    """Raises KafkaError with the error of a partition; one that names a cause comes first."""
    refused = [
        (part.partition_error_code, TopicPartition(topic.name, part.partition_index))
        for topic in response.results_by_topic_v3_and_below
        for part in topic.results_by_partition
        if part.partition_error_code
    ]
    for code, tp in sorted(refused, key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
        raise kafka_error(code, f"{tp} was not added to the transaction")


def txn_offset_commit_request(
    transactional_id: str,
    identity: ProducerIdentity,
    group: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def check_offsets_taken(response: TxnOffsetCommitResponse, group_id: str) -> None:
    """Raises KafkaError with the first error of a partition."""
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                tp = TopicPartition(topic.name, part.partition_index)
                raise _offset_error(part.error_code, group_id, tp)


def _offset_error(code: int, group_id: str, tp: TopicPartition) -> KafkaError:
    words = f"the group {group_id!r} did not take the offset of {tp}"
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        words += ": the group has rebalanced, and other members may own the partitions now"
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        words += ": another consumer uses the same group_instance_id"
    return kafka_error(code, words)
