"""The settings of producer ids, the transaction coordinator and ``__transaction_state``.

Owns: their rows in the table of settings, with Kafka's names, defaults and ranges
(``TransactionLogConfig``, ``TransactionStateManagerConfig``).  Must not know where a setting is
used.
"""

from dataclasses import dataclass

from sparklog.config.setting import Setting
from sparklog.types import MAX_INT16, MAX_INT32

TRANSACTION_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="producer.id.expiration.ms",
        kind="INT",
        default=86_400_000,
        minimum=1,
        maximum=MAX_INT32,
        doc="Idle time after which a partition forgets a producer id.",
    ),
    Setting(
        name="producer.id.expiration.check.interval.ms",
        kind="INT",
        default=600_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two looks for producer ids to forget.",
    ),
    Setting(
        name="transactional.id.expiration.ms",
        kind="INT",
        default=604_800_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How long the coordinator remembers a transactional id that no producer uses.",
    ),
    Setting(
        name="transaction.max.timeout.ms",
        kind="INT",
        default=900_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Longest transaction timeout that a producer may ask for.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        kind="BOOLEAN",
        default=True,
        doc="Whether a leader asks the transaction coordinator before it appends the first batch "
        "of a transaction whose producer names the partitions itself (before transaction version "
        "2).",
    ),
    Setting(
        name="sparklog.client.abort.markers.enable",
        kind="BOOLEAN",
        default=False,
        doc="Whether brokers take abort markers from clients, as tools send them to abort a "
        "hanging transaction. Such a marker ends a transaction in one partition only, so the "
        "setting should be on no longer than the tool is used.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        kind="INT",
        default=10_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two looks for transactions that have timed out.",
    ),
    Setting(
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
        kind="INT",
        default=3_600_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two looks for transactional ids to expire.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        kind="INT",
        default=50,
        minimum=1,
        maximum=10_000,
        dynamic=False,
        doc="Partitions of __transaction_state; a change has no effect on a topic that exists.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        kind="SHORT",
        default=3,
        minimum=1,
        maximum=MAX_INT16,
        dynamic=False,
        doc="Replicas of each partition of __transaction_state; with fewer brokers there are as "
        "many replicas as brokers.",
    ),
    Setting(
        name="transaction.state.log.min.isr",
        kind="INT",
        default=2,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="In-sync replicas that a partition of __transaction_state needs for a new record.",
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        kind="INT",
        default=104_857_600,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Size at which a segment of __transaction_state is rolled.",
    ),
    Setting(
        name="transaction.state.log.load.buffer.size",
        kind="INT",
        default=5_242_880,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Bytes of a partition of __transaction_state that a new coordinator reads at once; a "
        "larger batch comes nevertheless.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The resolved values of these settings, which are part of those of a broker."""

    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = True
    sparklog_client_abort_markers_enable: bool = False
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104_857_600
    transaction_state_log_load_buffer_size: int = 5_242_880
