"""The APIs that a broker serves.

Owns: the list of handlers.  Must not know what any handler does.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.controller_link import Allocate, ProducerIds
from sparklog.executors.coordinator import CoordinatorRuntime
from sparklog.executors.handlers import (
    delete_records,
    describe_log_dirs,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    not_transaction_coordinator,
    offset_for_leader_epoch,
    produce,
    read_clean_offset,
    read_local_start,
    read_remote_segments,
    read_tiered_state,
    report_damage,
    stop_node,
    write_txn_markers,
)
from sparklog.executors.handlers.forward import Forward
from sparklog.executors.handlers.forward import handlers as forward_handlers
from sparklog.executors.handlers.group_apis import handlers as group_handlers
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.replica_manager import ReplicaManager, VerifyTransaction
from sparklog.service import (
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    find_coordinator,
    members,
    metadata,
)
from sparklog.service import status as node_status
from sparklog.service.handler import ApiHandler
from sparklog.service.internal_topic_creation import CreateInternalTopic
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.types import TopicPartition
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: "The cluster's default" in CreateTopics (KIP-464).
_DEFAULT_NUMBER = -1


def broker_handlers(
    replica_manager: ReplicaManager,
    *,
    settings: Mapping[str, str],
    secret: bytes,
    random_bytes: Callable[[int], bytes],
    auto_create: bool,
    suspected_brokers: SuspectedBrokers,
    forward: Forward,
    allocate_producer_ids: Allocate,
    ask_to_stop: Callable[[str], None],
    status: Callable[[], Mapping[str, Any]],
    group_runtime: CoordinatorRuntime,
    create_internal_topic: CreateInternalTopic,
    verify_transaction: VerifyTransaction,
) -> list[ApiHandler]:
    """All handlers of a broker.

    ``settings`` are those that the broker was started with; ``status`` makes the answer to
    NodeStatus; ``ask_to_stop`` takes the reason of the stop; ``create_internal_topic`` asks the
    controller for the topic of the group coordinators; ``verify_transaction`` asks the transaction
    coordinator.
    """
    create_topic = _topic_creator(forward) if auto_create else None
    return [
        produce.handler(replica_manager),
        fetch.handler(replica_manager),
        list_offsets.handler(replica_manager),
        metadata.handler(lambda: replica_manager.image, create_topic, suspected_brokers),
        find_coordinator.handler(lambda: replica_manager.image, create_internal_topic),
        *group_handlers(
            GroupRequests(group_runtime, lambda: replica_manager.image), verify_transaction
        ),
        *not_transaction_coordinator.handlers(),
        *forward_handlers(forward),
        delete_records.handler(replica_manager),
        init_producer_id.handler(ProducerIds(allocate_producer_ids)),
        write_txn_markers.handler(replica_manager, (group_runtime,)),
        describe_producers.handler(replica_manager),
        offset_for_leader_epoch.handler(replica_manager),
        describe_configs.handler(
            lambda: replica_manager.image, node_id=replica_manager.node_id, settings=settings
        ),
        describe_log_dirs.handler(replica_manager),
        describe_cluster.handler(lambda: replica_manager.image),
        describe_topic_partitions.handler(
            lambda: replica_manager.image,
            replica_manager.broker_config.max_request_partition_size_limit,
            partial(_has_failed, replica_manager),
        ),
        *members.handlers(secret, random_bytes),
        report_damage.handler(replica_manager),
        read_clean_offset.handler(replica_manager),
        read_tiered_state.handler(replica_manager),
        read_local_start.handler(replica_manager),
        read_remote_segments.handler(replica_manager),
        stop_node.handler(ask_to_stop),
        node_status.handler(status),
    ]


def _has_failed(
    replica_manager: ReplicaManager, broker_id: int, topic_id: UUID, number: int
) -> bool:
    """Whether the replica of this broker has failed; the failures of others are not known here."""
    topic = replica_manager.image.topic_by_id(topic_id)
    if broker_id != replica_manager.node_id or topic is None:
        return False
    return TopicPartition(topic.name, number) in replica_manager.failed


def _topic_creator(forward: Forward) -> Callable[[str], Awaitable[None]]:
    """A function that creates a topic with the cluster's defaults, or raises KafkaError."""
    version = CreateTopicsRequest.MAX_VERSION

    async def create(name: str) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=_DEFAULT_NUMBER, replication_factor=_DEFAULT_NUMBER
        )
        request = CreateTopicsRequest(topics=(topic,))
        answer = await forward(encode_request(request, version, 0, "auto-create"), version)
        _, response = decode_response(CreateTopicsResponse, version, answer)
        for result in response.topics:
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)

    return create
