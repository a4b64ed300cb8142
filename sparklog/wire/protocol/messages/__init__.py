"""Kafka's messages, one module per API, and their index.  @generated

``python -m sparklog.wire.protocol.generate`` writes everything here; do not edit it.
Modules are imported when they are first needed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEntry:
    """An API, the module of its messages, and the versions whose schema is known."""

    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int


#: By api key.
APIS: dict[int, ApiEntry] = {
    0: ApiEntry(name="Produce", module="produce", min_version=3, max_version=13, flexible_from=9),
    1: ApiEntry(name="Fetch", module="fetch", min_version=4, max_version=18, flexible_from=12),
    2: ApiEntry(
        name="ListOffsets", module="list_offsets", min_version=1, max_version=11, flexible_from=6
    ),
    3: ApiEntry(name="Metadata", module="metadata", min_version=0, max_version=13, flexible_from=9),
    8: ApiEntry(
        name="OffsetCommit", module="offset_commit", min_version=2, max_version=10, flexible_from=8
    ),
    9: ApiEntry(
        name="OffsetFetch", module="offset_fetch", min_version=1, max_version=10, flexible_from=6
    ),
    10: ApiEntry(
        name="FindCoordinator",
        module="find_coordinator",
        min_version=0,
        max_version=6,
        flexible_from=3,
    ),
    11: ApiEntry(
        name="JoinGroup", module="join_group", min_version=0, max_version=9, flexible_from=6
    ),
    12: ApiEntry(
        name="Heartbeat", module="heartbeat", min_version=0, max_version=4, flexible_from=4
    ),
    13: ApiEntry(
        name="LeaveGroup", module="leave_group", min_version=0, max_version=5, flexible_from=4
    ),
    14: ApiEntry(
        name="SyncGroup", module="sync_group", min_version=0, max_version=5, flexible_from=4
    ),
    15: ApiEntry(
        name="DescribeGroups",
        module="describe_groups",
        min_version=0,
        max_version=6,
        flexible_from=5,
    ),
    16: ApiEntry(
        name="ListGroups", module="list_groups", min_version=0, max_version=5, flexible_from=3
    ),
    18: ApiEntry(
        name="ApiVersions", module="api_versions", min_version=0, max_version=4, flexible_from=3
    ),
    19: ApiEntry(
        name="CreateTopics", module="create_topics", min_version=2, max_version=7, flexible_from=5
    ),
    20: ApiEntry(
        name="DeleteTopics", module="delete_topics", min_version=1, max_version=6, flexible_from=4
    ),
    21: ApiEntry(
        name="DeleteRecords", module="delete_records", min_version=0, max_version=2, flexible_from=2
    ),
    22: ApiEntry(
        name="InitProducerId",
        module="init_producer_id",
        min_version=0,
        max_version=6,
        flexible_from=2,
    ),
    23: ApiEntry(
        name="OffsetForLeaderEpoch",
        module="offset_for_leader_epoch",
        min_version=2,
        max_version=4,
        flexible_from=4,
    ),
    24: ApiEntry(
        name="AddPartitionsToTxn",
        module="add_partitions_to_txn",
        min_version=0,
        max_version=5,
        flexible_from=3,
    ),
    25: ApiEntry(
        name="AddOffsetsToTxn",
        module="add_offsets_to_txn",
        min_version=0,
        max_version=4,
        flexible_from=3,
    ),
    26: ApiEntry(name="EndTxn", module="end_txn", min_version=0, max_version=5, flexible_from=3),
    27: ApiEntry(
        name="WriteTxnMarkers",
        module="write_txn_markers",
        min_version=1,
        max_version=2,
        flexible_from=1,
    ),
    28: ApiEntry(
        name="TxnOffsetCommit",
        module="txn_offset_commit",
        min_version=0,
        max_version=5,
        flexible_from=3,
    ),
    32: ApiEntry(
        name="DescribeConfigs",
        module="describe_configs",
        min_version=1,
        max_version=4,
        flexible_from=4,
    ),
    33: ApiEntry(
        name="AlterConfigs", module="alter_configs", min_version=0, max_version=2, flexible_from=2
    ),
    35: ApiEntry(
        name="DescribeLogDirs",
        module="describe_log_dirs",
        min_version=1,
        max_version=5,
        flexible_from=2,
    ),
    37: ApiEntry(
        name="CreatePartitions",
        module="create_partitions",
        min_version=0,
        max_version=3,
        flexible_from=2,
    ),
    42: ApiEntry(
        name="DeleteGroups", module="delete_groups", min_version=0, max_version=2, flexible_from=2
    ),
    43: ApiEntry(
        name="ElectLeaders", module="elect_leaders", min_version=0, max_version=2, flexible_from=2
    ),
    44: ApiEntry(
        name="IncrementalAlterConfigs",
        module="incremental_alter_configs",
        min_version=0,
        max_version=1,
        flexible_from=1,
    ),
    45: ApiEntry(
        name="AlterPartitionReassignments",
        module="alter_partition_reassignments",
        min_version=0,
        max_version=1,
        flexible_from=0,
    ),
    46: ApiEntry(
        name="ListPartitionReassignments",
        module="list_partition_reassignments",
        min_version=0,
        max_version=0,
        flexible_from=0,
    ),
    47: ApiEntry(
        name="OffsetDelete",
        module="offset_delete",
        min_version=0,
        max_version=0,
        flexible_from=32768,
    ),
    56: ApiEntry(
        name="AlterPartition",
        module="alter_partition",
        min_version=2,
        max_version=3,
        flexible_from=2,
    ),
    60: ApiEntry(
        name="DescribeCluster",
        module="describe_cluster",
        min_version=0,
        max_version=2,
        flexible_from=0,
    ),
    61: ApiEntry(
        name="DescribeProducers",
        module="describe_producers",
        min_version=0,
        max_version=0,
        flexible_from=0,
    ),
    64: ApiEntry(
        name="UnregisterBroker",
        module="unregister_broker",
        min_version=0,
        max_version=0,
        flexible_from=0,
    ),
    65: ApiEntry(
        name="DescribeTransactions",
        module="describe_transactions",
        min_version=0,
        max_version=0,
        flexible_from=0,
    ),
    66: ApiEntry(
        name="ListTransactions",
        module="list_transactions",
        min_version=0,
        max_version=2,
        flexible_from=0,
    ),
    75: ApiEntry(
        name="DescribeTopicPartitions",
        module="describe_topic_partitions",
        min_version=0,
        max_version=0,
        flexible_from=0,
    ),
}
