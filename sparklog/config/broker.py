"""The settings of brokers: the table, and their resolved values.

Owns: all broker settings, the defaults of topic settings included, and the rules between settings.
Must not know where a setting is used.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.config.cleaner import LOG_CLEANER_SETTINGS
from sparklog.config.foreign import find_foreign
from sparklog.config.groups import GROUP_SETTINGS
from sparklog.config.replication import REPLICATION_SETTINGS
from sparklog.config.setting import Setting, require_setting
from sparklog.config.setting_lists import (
    check_overrides,
    check_partitions,
    parse_overrides,
)
from sparklog.config.tiering import REMOTE_LOG_SETTINGS
from sparklog.config.topic import TOPIC_SETTINGS, check_defaults
from sparklog.config.transactions import TRANSACTION_SETTINGS, TransactionSettings
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64

BROKER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="auto.create.topics.enable",
        kind="BOOLEAN",
        default=True,
        dynamic=False,
        doc="Create a topic when a client that allows it asks for its metadata.",
    ),
    Setting(
        name="num.partitions",
        kind="INT",
        default=1,
        minimum=1,
        maximum=10_000,
        dynamic=False,
        doc="Partitions of a topic that is created without a number.",
    ),
    Setting(
        name="default.replication.factor",
        kind="INT",
        default=1,
        minimum=1,
        maximum=32,
        dynamic=False,
        doc="Replicas of a topic that is created without a number.",
    ),
    Setting(
        name="socket.request.max.bytes",
        kind="INT",
        default=104_857_600,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Largest request frame; a larger one closes its connection.",
    ),
    Setting(
        name="queued.max.request.bytes",
        kind="LONG",
        default=268_435_456,
        minimum=-1,
        maximum=MAX_INT64,
        dynamic=False,
        doc="Memory for requests of clients that have not wholly arrived, or wait to be handled; "
        "when it is used up, connections are not read from until there is some, and a request that "
        "does not arrive while others wait costs its connection. One request of "
        "socket.request.max.bytes is always possible; -1 for no limit (the default in Kafka).",
    ),
    Setting(
        name="socket.listen.backlog.size",
        kind="INT",
        default=1024,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Connections that the kernel has accepted and the node has not yet (50 in Kafka).",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        kind="INT",
        default=-1,
        minimum=-1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="SO_RCVBUF of connections; -1, the default, lets the system find out what is best "
        "(102400 in Kafka).",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        kind="INT",
        default=-1,
        minimum=-1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="SO_SNDBUF of connections; -1, the default, lets the system find out what is best "
        "(102400 in Kafka).",
    ),
    Setting(
        name="max.connections",
        kind="INT",
        default=MAX_INT32,
        minimum=0,
        maximum=MAX_INT32,
        doc="Open connections of a node; it also keeps some of the files that it may open for its "
        "logs. One more is closed at once, unless it proves to be a member's.",
    ),
    Setting(
        name="max.connections.per.ip",
        kind="INT",
        default=MAX_INT32,
        minimum=0,
        maximum=MAX_INT32,
        doc="Open connections of a node from one address; 0 needs overrides.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        kind="STRING",
        default="",
        check=check_overrides,
        doc="Numbers for single addresses (not host names) in place of max.connections.per.ip, "
        "such as 127.0.0.1:200,10.0.0.7:5.",
    ),
    Setting(
        name="connections.max.idle.ms",
        kind="LONG",
        default=600_000,
        minimum=-1,
        maximum=MAX_INT64,
        dynamic=False,
        doc="A connection on which nothing moved for so long, and up to a quarter longer, is "
        "closed, also one whose client does not read its answers; -1 for never.",
    ),
    Setting(
        name="fetch.max.bytes",
        kind="INT",
        default=57_671_680,
        minimum=1024,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Largest answer to one fetch.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        kind="INT",
        default=1000,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Fetch sessions that are kept; clients that get none send all partitions every time.",
    ),
    Setting(
        name="max.request.partition.size.limit",
        kind="INT",
        default=2_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Most partitions in one answer of DescribeTopicPartitions.",
    ),
    Setting(
        name="delete.topic.enable",
        kind="BOOLEAN",
        default=True,
        dynamic=False,
        doc="Whether topics can be deleted.",
    ),
    Setting(
        name="broker.session.timeout.ms",
        kind="INT",
        default=9_000,
        minimum=100,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Silence after which the controller fences a broker.",
    ),
    Setting(
        name="broker.heartbeat.interval.ms",
        kind="INT",
        default=2_000,
        minimum=10,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two heartbeats of a broker.",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        kind="LONG",
        default=300_000,
        minimum=1,
        maximum=MAX_INT64,
        dynamic=False,
        doc="Time between two looks for segments to delete.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        kind="INT",
        default=60_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two writings of the recovery points.",
    ),
    Setting(
        name="log.flush.start.offset.checkpoint.interval.ms",
        kind="INT",
        default=60_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Time between two writings of the log start offsets. They are written together with "
        "the recovery points, at the shorter of the two times.",
    ),
    Setting(
        name="log.open.files.max",
        kind="INT",
        default=20_000,
        minimum=8,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Log files and index maps open at once; at most 40% of `ulimit -n` (not in Kafka).",
    ),
    Setting(
        name="log.dir.check.interval.ms",
        kind="LONG",
        default=1_000,
        minimum=10,
        maximum=MAX_INT64,
        dynamic=False,
        doc="Time between two looks whether the files of logs are still there, which finds "
        "directories that were deleted, moved or replaced: of up to 256 logs that were appended "
        "to, and of 32 others in turn (not in Kafka).",
    ),
    Setting(
        name="lost.logs.accept",
        kind="STRING",
        default="",
        check=check_partitions,
        doc="Partitions, such as orders-0,orders-11, whose log is lost, of which no other replica "
        "was to be kept, and that may go on with an empty log; tiered ones go on behind their "
        "records in the remote_dir. A name accepts one loss; take it out to name it again (not in "
        "Kafka).",
    ),
    Setting(
        name="log.direct.append.bytes",
        kind="INT",
        default=524_288,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Appends of at least so many bytes that nobody reads along go to the disk without the "
        "page cache while that is not much slower; 0 for never (not in Kafka).",
    ),
    Setting(
        name="log.scrub.interval.ms",
        kind="LONG",
        default=86_400_000,
        minimum=-1,
        maximum=MAX_INT64,
        doc="Time between two begins of a check of every sealed segment for damage; the first one "
        "begins after this time or ten minutes, whichever is shorter; -1 for never (not in Kafka).",
    ),
    Setting(
        name="log.scrub.io.max.bytes.per.second",
        kind="LONG",
        default=10_485_760,
        minimum=1024,
        maximum=MAX_INT64,
        doc="Bytes a second that a broker reads to check its segments for damage (not in Kafka).",
    ),
    Setting(
        name="num.recovery.threads.per.data.dir",
        kind="INT",
        default=2,
        minimum=1,
        maximum=MAX_INT32,
        doc="Logs that are opened or closed at the same time; more than 4 make no difference.",
    ),
    *REPLICATION_SETTINGS,
    *GROUP_SETTINGS,
    *LOG_CLEANER_SETTINGS,
    *REMOTE_LOG_SETTINGS,
    *TRANSACTION_SETTINGS,
)


def _broker_default(setting: Setting, position: int) -> Setting:
    """The row of a broker setting that is the default of a topic setting."""
    synonym = setting.synonyms[position]
    last = position == len(setting.synonyms) - 1
    unit = "" if synonym.factor == 1 else f" In units of {synonym.factor} ms."
    return Setting(
        name=synonym.name,
        kind=synonym.kind or setting.kind,
        default=setting.default // synonym.factor
        if last and synonym.factor > 1
        else setting.default
        if last
        else None,
        minimum=setting.minimum if synonym.minimum is None else synonym.minimum,
        maximum=MAX_INT32 if synonym.kind == "INT" else setting.maximum,
        choices=setting.choices,
        doc=f"Default of the topic setting {setting.name}. {setting.doc}{unit}",
        dynamic=position == 0,
    )


BROKER_SETTING_BY_NAME: Mapping[str, Setting] = {s.name: s for s in BROKER_SETTINGS} | {
    synonym.name: _broker_default(setting, position)
    for setting in TOPIC_SETTINGS
    for position, synonym in enumerate(setting.synonyms)
}


_OWN_NAMES = frozenset(setting.name for setting in BROKER_SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(TransactionSettings):
    """The resolved settings of one broker, with the topic defaults that were overridden for it.

    ``changed_defaults`` are the topic defaults that were given at run time.  ``ignored`` are names
    of Kafka's settings that were given and have no effect here.
    """

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = 268_435_456
    socket_listen_backlog_size: int = 1024
    socket_receive_buffer_bytes: int = -1
    socket_send_buffer_bytes: int = -1
    max_connections: int = MAX_INT32
    max_connections_per_ip: int = MAX_INT32
    max_connections_per_ip_overrides: str = ""
    connections_max_idle_ms: int = 600_000
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000
    max_request_partition_size_limit: int = 2_000
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9_000
    broker_heartbeat_interval_ms: int = 2_000
    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_open_files_max: int = 20_000
    log_dir_check_interval_ms: int = 1_000
    lost_logs_accept: str = ""
    log_direct_append_bytes: int = 524_288
    log_scrub_interval_ms: int = 86_400_000
    log_scrub_io_max_bytes_per_second: int = 10_485_760
    num_recovery_threads_per_data_dir: int = 2
    broker_rack: str | None = None
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    unclean_recovery_timeout_ms: int = 30_000
    broker_replacement_delay_ms: int = 600_000
    leader_replication_throttled_rate: int = MAX_INT64
    follower_replication_throttled_rate: int = MAX_INT64
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = MAX_INT32
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_load_buffer_size: int = 5_242_880
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 128 * 1024 * 1024
    log_cleaner_io_buffer_size: int = 512 * 1024
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    log_cleaner_backoff_ms: int = 15_000
    remote_dir: str = ""
    remote_log_manager_task_interval_ms: int = 30_000
    remote_log_manager_copy_max_bytes_per_second: int = MAX_INT64
    remote_log_manager_copy_quota_window_num: int = 11
    remote_log_manager_copy_quota_window_size_seconds: int = 1
    remote_log_manager_fetch_max_bytes_per_second: int = MAX_INT64
    remote_log_manager_fetch_quota_window_num: int = 11
    remote_log_manager_fetch_quota_window_size_seconds: int = 1
    remote_fetch_max_wait_ms: int = 500
    remote_signed_url_lifetime_ms: int = 4 * 3_600_000
    remote_cache_bytes: int = 1024 * 1024 * 1024
    remote_object_delete_delay_ms: int = 4 * 3_600_000
    topic_defaults: Mapping[str, Any] = field(default_factory=dict)
    changed_defaults: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()

    @property
    def connections_max_by_address(self) -> dict[str, int]:
        return parse_overrides(self.max_connections_per_ip_overrides)

    @classmethod
    def resolve(cls, overrides: Mapping[str, str]) -> "BrokerConfig":
        """Resolve settings, given by Kafka's names.

        Raises:
            ConfigError: names the wrong setting.
        """
        config = cls(**_read(overrides))
        config._check()
        check_defaults(config, has_remote_dir=bool(config.remote_dir))
        if "queued.max.request.bytes" in overrides:
            config._check_queued_bytes()
        return config

    def overlay(self, overrides: Mapping[str, str]) -> "BrokerConfig":
        """These settings, overlaid by changes at run time.  Raises ConfigError."""
        changed = _read(overrides)
        defaults = changed["topic_defaults"]
        kept = {
            "topic_defaults": {**self.topic_defaults, **defaults},
            "changed_defaults": self.changed_defaults | defaults.keys(),
            "ignored": self.ignored,
        }
        config = replace(self, **{**changed, **kept})
        config._check()
        return config

    def _check_queued_bytes(self) -> None:
        """Check Kafka's rule for a given value; the default yields to larger requests instead."""
        queued, largest = self.queued_max_request_bytes, self.socket_request_max_bytes
        if 0 <= queued < largest:
            raise ConfigError(
                f"queued.max.request.bytes={queued} is less than socket.request.max.bytes="
                f"{largest}; expected at least that, or -1 for no limit"
            )

    def _check(self) -> None:
        """Check the rules between settings."""
        if self.max_connections_per_ip == 0 and not self.connections_max_by_address:
            raise ConfigError(
                "max.connections.per.ip=0 refuses everybody; give max.connections.per.ip.overrides "
                "too, or a number from 1"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.group_min_session_timeout_ms} is more than "
                f"group.max.session.timeout.ms={self.group_max_session_timeout_ms}; no member "
                "could join a group"
            )
        if self.topic_defaults.get("retention_ms") == 0:
            raise ConfigError(
                "log.retention.ms=0 (or minutes, or hours) would delete at once; expected at least "
                "1, or -1 for never"
            )


def _read(overrides: Mapping[str, str]) -> dict[str, Any]:
    """The fields of BrokerConfig that the given settings determine."""
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    ignored: list[str] = []
    for name, text in overrides.items():
        if _is_ignored(name):
            ignored.append(name)
            continue
        setting = require_setting(BROKER_SETTING_BY_NAME, name, "broker")
        if name in _OWN_NAMES:
            fields[setting.field] = setting.parse(text)
        else:
            defaults[name] = setting.parse(text)
    return {**fields, "topic_defaults": _topic_defaults(defaults), "ignored": tuple(ignored)}


def _is_ignored(name: str) -> bool:
    foreign = None if name in BROKER_SETTING_BY_NAME else find_foreign(name)
    return foreign is not None and foreign.ignored


def _topic_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given topic defaults, by the field of the topic setting; the first synonym counts."""
    found: dict[str, Any] = {}
    for setting in TOPIC_SETTINGS:
        for synonym in setting.synonyms:
            if synonym.name in given:
                value = given[synonym.name]
                has_unit = synonym.factor > 1 and value > 0
                found[setting.field] = value * synonym.factor if has_unit else value
                break
    return found
