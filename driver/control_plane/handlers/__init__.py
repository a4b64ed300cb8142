"""The control plane's APIs, one file per api key.

Owns: the list of APIs that node 0 serves.  Must not know how anything is decided.
"""

from sparklog.driver.control_plane.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    assign_brokers,
    await_work,
    broker_heartbeat,
    consistent_cut,
    create_internal_topic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_log_dirs,
    describe_transactions,
    drain_brokers,
    elect_leaders,
    end_txn,
    forward_request,
    give_work,
    incremental_alter_configs,
    init_producer_id,
    list_partition_reassignments,
    list_transactions,
    not_coordinator,
    not_leader,
    register_broker,
    report_log_ends,
    report_loss,
    stop_node,
    unregister_broker,
    watch_metadata,
)
from sparklog.driver.control_plane.handlers.auto_create import topic_creator
from sparklog.driver.control_plane.handlers.create_internal_topic import internal_topic_creator
from sparklog.driver.control_plane.handlers.node import Node
from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.service import (
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    find_coordinator,
    members,
    metadata,
    status,
)
from sparklog.service.handler import ApiHandler
from sparklog.types import CONTROLLER_NODE_ID


def handlers(node: Node) -> tuple[ApiHandler, ...]:
    """The handlers of all APIs that node 0 serves, except ApiVersions."""
    transactions = TransactionalRequests(node.transaction_coordinator)
    create = topic_creator(node.decide) if node.config.auto_create_topics_enable else None
    create_internal = internal_topic_creator(node.decide)

    decided = (
        create_topics,
        delete_topics,
        create_partitions,
        alter_partition_reassignments,
        drain_brokers,
        unregister_broker,
        incremental_alter_configs,
        alter_configs,
        register_broker,
        allocate_producer_ids,
        assign_brokers,
        create_internal_topic,
        report_loss,
        alter_partition,
        report_log_ends,
    )
    return (
        metadata.handler(lambda: node.image, create, node.suspected_brokers),
        describe_log_dirs.handler(node.journal_url),
        describe_cluster.handler(lambda: node.image),
        describe_topic_partitions.handler(
            lambda: node.image,
            node.config.max_request_partition_size_limit,
            node.has_failed,
        ),
        describe_configs.handler(
            lambda: node.image, node_id=CONTROLLER_NODE_ID, settings=node.settings
        ),
        list_partition_reassignments.handler(lambda: node.image),
        find_coordinator.handler(lambda: node.image, create_internal),
        *not_leader.handlers(),
        *not_coordinator.handlers(),
        *(module.handler(node.decide) for module in decided),
        init_producer_id.handler(node.decide, transactions),
        add_partitions_to_txn.handler(transactions, lambda: node.image),
        add_offsets_to_txn.handler(transactions, lambda: node.image, create_internal),
        end_txn.handler(transactions),
        describe_transactions.handler(transactions),
        list_transactions.handler(transactions, node.runtime.wall_ms),
        consistent_cut.handler(node.transaction_coordinator, lambda: node.image),
        elect_leaders.handler(node.decide, lambda: node.image),
        *members.handlers(node.secret, node.runtime.random_bytes),
        broker_heartbeat.handler(node.decide, node.suspected_brokers),
        watch_metadata.handler(node.metadata_feed),
        await_work.handler(node.spare_supervisors),
        give_work.handler(node.spare_supervisors),
        stop_node.handler(node.stop),
        forward_request.handler(node.redispatch),
        status.handler(node.status),
    )
