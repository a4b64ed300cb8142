"""Settings as values: one table of names, types, defaults, ranges and docs.

Owns: every setting that a topic or a broker understands, under Kafka's name where Kafka has one,
and the parsing of text into it.  Must not know who uses a setting or where its value is stored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64, Compression, TimestampType

NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table.

    ``kind`` is Kafka's ``ConfigDef.Type`` name; ``choices`` limits text, ``minimum``/``maximum``
    limit numbers (inclusive).  ``broker_name`` is the broker-wide default of a topic setting.
    """

    name: str
    kind: str
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    broker_name: str | None = None
    dynamic: bool = True

    @property
    def field(self) -> str:
        """The attribute that carries the value: the name with dots as underscores."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Any:
        """Text as Kafka's tools send it -> value.  Raises ConfigError naming setting and remedy."""
        try:
            value = _PARSERS[self.kind](text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}={text!r}: expected {self.expected}") from None
        self._check_range(value, text)
        return value

    def render(self, value: Any) -> str:
        """The value as text, as DescribeConfigs answers it."""
        if self.kind == "BOOLEAN":
            return "true" if value else "false"
        if self.kind == "LIST":
            return ",".join(value)
        return str(value)

    @property
    def expected(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        ]
        return f"{self.kind.lower()} {' and '.join(bounds)}".strip()

    def _check_range(self, value: Any, text: str) -> None:
        values = value if isinstance(value, tuple) else (value,)
        bad = (
            (self.choices and any(item not in self.choices for item in values))
            or (self.minimum is not None and value < self.minimum)
            or (self.maximum is not None and value > self.maximum)
        )
        if bad:
            raise ConfigError(f"{self.name}={text!r}: expected {self.expected}")


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "BOOLEAN": _parse_boolean,
    "INT": int,
    "LONG": int,
    "DOUBLE": float,
    "STRING": str,
    "LIST": lambda text: tuple(item.strip() for item in text.split(",") if item.strip()),
}

_DAY_MS = 24 * 60 * 60 * 1000

TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="cleanup.policy",
        kind="LIST",
        default=("delete",),
        choices=("delete",),
        broker_name="log.cleanup.policy",
        doc="What happens to old segments: delete.",
    ),
    Setting(
        name="compression.type",
        kind="STRING",
        default="producer",
        choices=("producer",),
        broker_name="compression.type",
        doc="Batches are stored as the producer compressed them.",
    ),
    Setting(
        name="file.delete.delay.ms",
        kind="LONG",
        default=60_000,
        minimum=0,
        maximum=MAX_INT64,
        broker_name="log.segment.delete.delay.ms",
        doc="Time between the renaming of a deleted segment to .deleted and its removal.",
    ),
    Setting(
        name="flush.messages",
        kind="LONG",
        default=MAX_INT64,
        minimum=1,
        maximum=MAX_INT64,
        broker_name="log.flush.interval.messages",
        doc="Records after which the log is flushed to disk before they are acknowledged.",
    ),
    Setting(
        name="flush.ms",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        broker_name="log.flush.interval.ms",
        doc="Longest time that an appended record stays unflushed.",
    ),
    Setting(
        name="index.interval.bytes",
        kind="INT",
        default=4096,
        minimum=0,
        maximum=MAX_INT32,
        broker_name="log.index.interval.bytes",
        doc="Bytes of log between two index entries.",
    ),
    Setting(
        name="max.message.bytes",
        kind="INT",
        default=1_048_588,
        minimum=0,
        maximum=MAX_INT32,
        broker_name="message.max.bytes",
        doc="Largest record batch, as sent (compressed).",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        kind="LONG",
        default=3_600_000,
        minimum=0,
        maximum=MAX_INT64,
        broker_name="log.message.timestamp.after.max.ms",
        doc="How far a CreateTime may lie after the broker's clock.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        broker_name="log.message.timestamp.before.max.ms",
        doc="How far a CreateTime may lie before the broker's clock.",
    ),
    Setting(
        name="message.timestamp.type",
        kind="STRING",
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
        doc="Whose clock stamps the records: the producer's or the broker's.",
    ),
    Setting(
        name="min.insync.replicas",
        kind="INT",
        default=1,
        minimum=1,
        maximum=MAX_INT32,
        broker_name="min.insync.replicas",
        doc="In-sync replicas that acks=all needs.",
    ),
    Setting(
        name="preallocate",
        kind="BOOLEAN",
        default=False,
        broker_name="log.preallocate",
        doc="Preallocate segment files. Accepted for compatibility; has no effect.",
    ),
    Setting(
        name="retention.bytes",
        kind="LONG",
        default=NO_LIMIT,
        minimum=-1,
        maximum=MAX_INT64,
        broker_name="log.retention.bytes",
        doc="Largest size of a partition before old segments are deleted; -1 for none.",
    ),
    Setting(
        name="retention.ms",
        kind="LONG",
        default=7 * _DAY_MS,
        minimum=-1,
        maximum=MAX_INT64,
        broker_name="log.retention.ms",
        doc="Age by record timestamp after which segments are deleted; -1 for never.",
    ),
    Setting(
        name="segment.bytes",
        kind="INT",
        default=1_073_741_824,
        minimum=14,
        maximum=MAX_INT32,
        broker_name="log.segment.bytes",
        doc="Size at which a segment is rolled.",
    ),
    Setting(
        name="segment.index.bytes",
        kind="INT",
        default=10_485_760,
        minimum=16,
        maximum=MAX_INT32,
        broker_name="log.index.size.max.bytes",
        doc="Size of an offset index; a full index rolls its segment.",
    ),
    Setting(
        name="segment.jitter.ms",
        kind="LONG",
        default=0,
        minimum=0,
        maximum=MAX_INT64,
        broker_name="log.roll.jitter.ms",
        doc="Largest random time taken off segment.ms.",
    ),
    Setting(
        name="segment.ms",
        kind="LONG",
        default=7 * _DAY_MS,
        minimum=1,
        maximum=MAX_INT64,
        broker_name="log.roll.ms",
        doc="Span of record timestamps after which a segment is rolled.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind="BOOLEAN",
        default=False,
        broker_name="unclean.leader.election.enable",
        doc="Whether a replica that may lack acknowledged records may lead.",
    ),
)

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
        name="fetch.max.bytes",
        kind="INT",
        default=57_671_680,
        minimum=1024,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Largest answer to one fetch.",
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
        name="log.open.files.max",
        kind="INT",
        default=400,
        minimum=8,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Log files and index maps kept open; the least recently used is closed (not in Kafka).",
    ),
    Setting(
        name="producer.id.expiration.ms",
        kind="INT",
        default=86_400_000,
        minimum=1,
        maximum=MAX_INT32,
        doc="Idle time after which a partition forgets a producer id.",
    ),
)

TOPIC_SETTING_BY_NAME: Mapping[str, Setting] = {s.name: s for s in TOPIC_SETTINGS}
BROKER_SETTING_BY_NAME: Mapping[str, Setting] = {s.name: s for s in BROKER_SETTINGS} | {
    s.broker_name: Setting(
        name=s.broker_name,
        kind=s.kind,
        default=s.default,
        minimum=s.minimum,
        maximum=s.maximum,
        choices=s.choices,
        doc=f"Default of the topic setting {s.name}. {s.doc}",
        dynamic=False,
    )
    for s in TOPIC_SETTINGS
    if s.broker_name
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic, resolved; times in milliseconds, sizes in bytes."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    file_delete_delay_ms: int = 60_000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_type: str = "CreateTime"
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = NO_LIMIT
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def timestamp_type(self) -> TimestampType:
        if self.message_timestamp_type == "LogAppendTime":
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: "BrokerConfig") -> "TopicConfig":
        """Topic overrides on top of the broker's defaults.  Raises ConfigError."""
        values = {s.field: _topic_default(s, broker) for s in TOPIC_SETTINGS}
        for name, text in overrides.items():
            setting = require_setting(TOPIC_SETTING_BY_NAME, name, "topic")
            values[setting.field] = setting.parse(text)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings of one broker, resolved, with the topic defaults that were overridden for it."""

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    socket_request_max_bytes: int = 104_857_600
    fetch_max_bytes: int = 57_671_680
    broker_session_timeout_ms: int = 9_000
    broker_heartbeat_interval_ms: int = 2_000
    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_open_files_max: int = 400
    producer_id_expiration_ms: int = 86_400_000
    topic_defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def resolve(cls, overrides: Mapping[str, str]) -> "BrokerConfig":
        """Settings by Kafka's names -> values.  Raises ConfigError naming the wrong one."""
        own = {s.name for s in BROKER_SETTINGS}
        values: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for name, text in overrides.items():
            setting = require_setting(BROKER_SETTING_BY_NAME, name, "broker")
            target = values if name in own else defaults
            target[setting.field if name in own else name] = setting.parse(text)
        return cls(**values, topic_defaults=defaults)


def require_setting(table: Mapping[str, Setting], name: str, kind: str) -> Setting:
    """Look a setting up.  Raises ConfigError that offers the nearest name."""
    setting = table.get(name)
    if setting is None:
        near = nearest(name, table)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"unknown {kind} setting {name!r}{hint}")
    return setting


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that a typing error most likely meant, or None."""
    from difflib import get_close_matches  # only on the way to an error

    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def _topic_default(setting: Setting, broker: BrokerConfig) -> Any:
    if setting.broker_name is None:
        return setting.default
    return broker.topic_defaults.get(setting.broker_name, setting.default)


COMPRESSION_NAMES: Mapping[str, Compression] = {c.name.lower(): c for c in Compression}
