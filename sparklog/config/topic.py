"""The settings of topics: the table, and their resolved values.

Owns: all topic settings.  Must not know where a setting is used.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sparklog.config.cleaner import COMPACTION_SETTINGS
from sparklog.config.setting import DAY_MS, NO_LIMIT, Setting, Synonym, require_setting
from sparklog.config.tiering import LIKE_WHOLE_LOG, TIERING_SETTINGS
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64, TimestampType


def _check_throttled(replicas: tuple[str, ...]) -> str | None:
    parts = [replica.partition(":") for replica in replicas]
    numbers = [number for first, _, second in parts for number in (first, second)]
    if replicas == ("*",) or all(n.isascii() and n.isdigit() for n in numbers):
        return None
    return "*, or a list of partition:broker"


TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="cleanup.policy",
        kind="LIST",
        default=("delete",),
        choices=("compact", "delete"),
        synonyms=(Synonym(name="log.cleanup.policy"),),
        doc="What happens to old segments. delete: they are deleted by age and size. compact: the "
        "last record of every key stays, and records need keys. Both may be given.",
    ),
    Setting(
        name="compression.type",
        kind="STRING",
        default="producer",
        choices=("producer",),
        synonyms=(Synonym(name="compression.type"),),
        doc="Batches are stored as the producer compressed them.",
    ),
    Setting(
        name="file.delete.delay.ms",
        kind="LONG",
        default=60_000,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.segment.delete.delay.ms"),),
        doc="Time between the renaming of a deleted segment to .deleted and its removal.",
    ),
    Setting(
        name="flush.messages",
        kind="LONG",
        default=MAX_INT64,
        minimum=1,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.flush.interval.messages"),),
        doc="Records after which the log is flushed to disk before they are acknowledged.",
    ),
    Setting(
        name="flush.ms",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(
            Synonym(name="log.flush.interval.ms"),
            Synonym(name="log.flush.scheduler.interval.ms"),
        ),
        doc="Longest time that an appended record stays unflushed.",
    ),
    Setting(
        name="follower.replication.throttled.replicas",
        kind="LIST",
        default=(),
        check=_check_throttled,
        doc="Replicas that follow at no more than follower.replication.throttled.rate while they "
        "are not in sync: * for all, or partition:broker, ...",
    ),
    Setting(
        name="index.interval.bytes",
        kind="INT",
        default=4096,
        minimum=0,
        maximum=MAX_INT32,
        synonyms=(Synonym(name="log.index.interval.bytes"),),
        doc="Bytes of log between two index entries.",
    ),
    Setting(
        name="leader.replication.throttled.replicas",
        kind="LIST",
        default=(),
        check=_check_throttled,
        doc="Replicas that, as leaders, send no more than leader.replication.throttled.rate to "
        "followers that are not in sync: * for all, or partition:broker, ...",
    ),
    Setting(
        name="max.message.bytes",
        kind="INT",
        default=1_048_588,
        minimum=0,
        maximum=MAX_INT32,
        synonyms=(Synonym(name="message.max.bytes"),),
        doc="Largest record batch, as sent (compressed).",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        kind="LONG",
        default=3_600_000,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.message.timestamp.after.max.ms"),),
        doc="How far a CreateTime may lie after the broker's clock.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.message.timestamp.before.max.ms"),),
        doc="How far a CreateTime may lie before the broker's clock.",
    ),
    Setting(
        name="message.timestamp.type",
        kind="STRING",
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=(Synonym(name="log.message.timestamp.type"),),
        doc="Whose clock stamps the records: the producer's or the broker's.",
    ),
    Setting(
        name="min.insync.replicas",
        kind="INT",
        default=1,
        minimum=1,
        maximum=MAX_INT32,
        synonyms=(Synonym(name="min.insync.replicas"),),
        doc="In-sync replicas that acks=all needs.",
    ),
    Setting(
        name="preallocate",
        kind="BOOLEAN",
        default=False,
        synonyms=(Synonym(name="log.preallocate"),),
        doc="Preallocate segment files. Accepted for compatibility; has no effect.",
    ),
    Setting(
        name="retention.bytes",
        kind="LONG",
        default=NO_LIMIT,
        minimum=-1,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.retention.bytes"),),
        doc="Largest size of a partition before old segments are deleted; -1 for none.",
    ),
    Setting(
        name="retention.ms",
        kind="LONG",
        default=7 * DAY_MS,
        minimum=-1,
        maximum=MAX_INT64,
        synonyms=(
            Synonym(name="log.retention.ms"),
            Synonym(name="log.retention.minutes", factor=60_000, kind="INT", minimum=-1),
            Synonym(name="log.retention.hours", factor=3_600_000, kind="INT", minimum=-1),
        ),
        doc="Age by record timestamp after which segments are deleted; -1 for never.",
    ),
    Setting(
        name="segment.bytes",
        kind="INT",
        default=1_073_741_824,
        minimum=14,
        maximum=MAX_INT32,
        synonyms=(Synonym(name="log.segment.bytes"),),
        doc="Size at which a segment is rolled.",
    ),
    Setting(
        name="segment.index.bytes",
        kind="INT",
        default=10_485_760,
        minimum=16,
        maximum=MAX_INT32,
        synonyms=(Synonym(name="log.index.size.max.bytes"),),
        doc="Size of an offset index; a full index rolls its segment.",
    ),
    Setting(
        name="segment.jitter.ms",
        kind="LONG",
        default=0,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(
            Synonym(name="log.roll.jitter.ms"),
            Synonym(name="log.roll.jitter.hours", factor=3_600_000, kind="INT", minimum=0),
        ),
        doc="Largest random time taken off segment.ms.",
    ),
    Setting(
        name="segment.ms",
        kind="LONG",
        default=7 * DAY_MS,
        minimum=1,
        maximum=MAX_INT64,
        synonyms=(
            Synonym(name="log.roll.ms"),
            Synonym(name="log.roll.hours", factor=3_600_000, kind="INT", minimum=1),
        ),
        doc="Span of record timestamps after which a segment is rolled.",
    ),
    Setting(
        name="sparklog.validate.batches",
        kind="STRING",
        default="header",
        choices=("header", "records"),
        doc="What is checked of a batch before it is appended. header: the header, the CRC, and "
        "that the record count is possible for the size. records: also that every record can be "
        "decoded, in worker threads; a batch that cannot is refused with INVALID_RECORD.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind="BOOLEAN",
        default=False,
        synonyms=(Synonym(name="unclean.leader.election.enable"),),
        doc="Whether a replica that may lack acknowledged records may lead.",
    ),
    *COMPACTION_SETTINGS,
    *TIERING_SETTINGS,
)

TOPIC_SETTING_BY_NAME: Mapping[str, Setting] = {s.name: s for s in TOPIC_SETTINGS}


class TopicDefaults(Protocol):
    """The settings of brokers, as topics see them."""

    @property
    def topic_defaults(self) -> Mapping[str, Any]:
        """The given defaults, by the field of the topic setting; others have Kafka's default."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The resolved settings of one topic; times in milliseconds, sizes in bytes."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = LIKE_WHOLE_LOG
    local_retention_ms: int = LIKE_WHOLE_LOG
    max_compaction_lag_ms: int = MAX_INT64
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = NO_LIMIT
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    sparklog_validate_batches: str = "header"
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        """Whether the log cleaner keeps only the last record of every key.

        A tiered log is never compacted: the offsets of its segments and of those in the remote_dir
        must have the same records.  The policy is refused for such a topic (``problems``).  But a
        topic may inherit it from a broker that was started with other settings.
        """
        return "compact" in self.cleanup_policy and not self.may_be_remote

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size.

        Those of a tiered log are deleted where they would be compacted otherwise; without any
        policy nothing is.
        """
        return "delete" in self.cleanup_policy or (
            "compact" in self.cleanup_policy and self.may_be_remote
        )

    @property
    def copies_segments(self) -> bool:
        """Whether sealed segments are copied to the remote_dir."""
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def leaves_remote_storage(self) -> bool:
        """Whether the topic is to have nothing in the remote_dir any more, or never had."""
        return self.remote_log_delete_on_disable and not self.remote_storage_enable

    @property
    def may_be_remote(self) -> bool:
        """Whether the remote_dir may have something of the topic."""
        return self.remote_storage_enable or self.remote_log_delete_on_disable

    @property
    def local_retention(self) -> tuple[int, int]:
        """The limits of the part of a tiered log on a broker's disk: age in ms, size in bytes;
        NO_LIMIT for none."""
        age_ms, size = self.local_retention_ms, self.local_retention_bytes
        return (
            self.retention_ms if age_ms == LIKE_WHOLE_LOG else age_ms,
            self.retention_bytes if size == LIKE_WHOLE_LOG else size,
        )

    @property
    def timestamp_type(self) -> TimestampType:
        if self.message_timestamp_type == "LogAppendTime":
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> "TopicConfig":
        """Resolve a topic's overrides over the broker's defaults.  Raises ConfigError."""
        values = dict(broker.topic_defaults)
        for name, text in overrides.items():
            setting = require_setting(TOPIC_SETTING_BY_NAME, name, "topic")
            values[setting.field] = setting.parse(text)
        return cls(**values)

    def problems(
        self, *, has_remote_dir: bool = False, shown: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """The rules between settings that are broken, as messages.

        ``resolve`` does not ask for them: the defaults of a topic may have changed.

        Args:
            has_remote_dir: the cluster has a remote_dir.
            shown: what a message has instead of a topic setting's name, such as the broker setting
                whose value the topic has.
        """
        names = shown or {}
        yield from self._tiering_problems(has_remote_dir, names)
        yield from self._compaction_lag_problems(names)

    def _tiering_problems(self, has_remote_dir: bool, names: Mapping[str, str]) -> Iterator[str]:
        if self.remote_storage_enable and not has_remote_dir:
            yield (
                "remote.storage.enable=true needs a place for the segments; start the cluster with "
                "a remote_dir"
            )
        policy = names.get("cleanup.policy", "cleanup.policy")
        remedy = "; set cleanup.policy=delete" if "cleanup.policy" in names else ""
        if self.remote_storage_enable and "compact" in self.cleanup_policy:
            yield (
                f"remote.storage.enable=true does not go with {policy}=compact: compacted topics "
                f"stay on the brokers' disks{remedy}"
            )
        if self.leaves_remote_storage and "compact" in self.cleanup_policy:
            yield (
                f"remote.log.delete.on.disable=true does not go with {policy}=compact: the "
                f"remote_dir may still have records of the topic{remedy}"
            )
        if self.remote_storage_enable:
            yield from self._local_retention_problems(names)

    def _local_retention_problems(self, names: Mapping[str, str]) -> Iterator[str]:
        for name, local, whole in (
            ("retention.ms", self.local_retention_ms, self.retention_ms),
            ("retention.bytes", self.local_retention_bytes, self.retention_bytes),
        ):
            of_local = f"{names.get(f'local.{name}', f'local.{name}')}={local}"
            of_whole = f"{names.get(name, name)}={whole}"
            if self.remote_log_copy_disable:
                if local not in (LIKE_WHOLE_LOG, whole):
                    yield (
                        f"{of_local} does not go with remote.log.copy.disable=true: what is not "
                        f"copied stays on the disks for {of_whole}; expected that, or -2"
                    )
            elif local > whole != NO_LIMIT or (local == NO_LIMIT != whole):
                remedy = "expected at most that, or -2 for the same"
                yield f"{of_local} is more than {of_whole}; {remedy}"

    def _compaction_lag_problems(self, names: Mapping[str, str]) -> Iterator[str]:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            least, most = (
                names.get(name, name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
            )
            yield (
                f"{least}={self.min_compaction_lag_ms} is more than "
                f"{most}={self.max_compaction_lag_ms}; expected at most that"
            )


_DEFAULT_NAMES = {s.name: s.synonyms[0].name for s in TOPIC_SETTINGS if s.synonyms}

#: The topic settings whose defaults have rules between them.
_WITH_RULES = (
    *("local.retention.ms", "local.retention.bytes", "retention.ms", "retention.bytes"),
    *("min.compaction.lag.ms", "max.compaction.lag.ms"),
)
#: The dynamic broker settings that ``check_defaults`` is about.
DEFAULTS_WITH_RULES = frozenset(_DEFAULT_NAMES[name] for name in _WITH_RULES)


def check_defaults(broker: TopicDefaults, *, has_remote_dir: bool) -> None:
    """Check the rules between the defaults that brokers have for topics.  Raises ConfigError.

    A topic that inherits local retentions which contradict the others could not be tiered; without
    a remote_dir they have no effect (Kafka: ``LogConfig.validateBrokerLogConfigValues``).
    """
    config = TopicConfig.resolve({}, broker)
    problems = [*config._compaction_lag_problems(_DEFAULT_NAMES)]
    if has_remote_dir:
        problems += config._local_retention_problems(_DEFAULT_NAMES)
    for problem in problems:
        raise ConfigError(problem)


def inherited_names(overrides: Collection[str], broker: TopicDefaults) -> dict[str, str]:
    """How messages name the settings that a topic with these overrides has from its broker."""
    return {
        name: f"the brokers' default {_DEFAULT_NAMES[name]}"
        for name, setting in TOPIC_SETTING_BY_NAME.items()
        if name not in overrides and setting.field in broker.topic_defaults
    }
