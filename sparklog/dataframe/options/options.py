"""Options of ``format("sparklog")`` -> values.

Owns: names, defaults, precedence and rules of the options (as in Spark's Kafka source) and their
error messages.  Must not know Spark, the client or the clock.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from sparklog.config import nearest
from sparklog.dataframe.options.kafka_options import (
    READ_WITHOUT_EFFECT,
    WRITE_WITHOUT_EFFECT,
    refusal,
)
from sparklog.dataframe.options.option_values import (
    acknowledgements,
    assignment,
    boolean,
    bootstrap_servers,
    compression,
    error_or_latest,
    int32,
    isolation,
    offsets_by_partition,
    positive_int,
    timestamp_ms,
    timestamps_by_partition,
    topic_list,
    topic_name,
    whole_number,
)
from sparklog.dataframe.options.topic_pattern import topic_matcher
from sparklog.dataframe.partitioners import (
    DEFAULT,
    STICKY,
    Partitioner,
    java_partitioner,
    named_partitioner,
)
from sparklog.errors import ConfigError
from sparklog.types import Compression, Endpoint, Isolation, OffsetSpec, TopicPartition

log = logging.getLogger(__name__)
Parsed = TypeVar("Parsed")
Choice = TypeVar("Choice", bound=Enum)

BOOTSTRAP_OPTIONS = ("kafka.bootstrap.servers", "bootstrap.servers")
#: Internal option: marks a scan that does not share its source with other scans (``own_scans``).
OWN_SCAN_OPTION = "sparklog.own.scan"
#: Internal option: the schema of packed rows, as JSON (see ``packed_writes``).
PACKED_OPTION = "sparklog.packed"
#: The default of ``kafka.batch.size``, as in librdkafka; it fits a topic's default maximum.
BATCH_BYTES = 1_000_000
#: The default of ``kafka.buffer.memory``: two requests to a leader and the batches behind them.
#: More memory must be allocated by Python, and is no longer in CPU caches when it is sent.
BUFFER_BYTES = 16 * 1024 * 1024
#: The default of ``kafka.delivery.timeout.ms``, and of ``kafka.client.id``.
DELIVERY_TIMEOUT_MS = 120_000
CLIENT_ID = "sparklog-dataframe"
SELECTIONS = ("assign", "subscribe", "subscribePattern")
#: Spark's Kafka source accepts these options in a batch read and warns that they have no effect.
STREAM_OPTIONS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

READ_OPTIONS = frozenset(
    {
        *BOOTSTRAP_OPTIONS,
        *SELECTIONS,
        *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
        *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
        *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "failOnCorruptBatch"),
        *("minPartitions", "maxRecordsPerPartition", "includeHeaders", "consistentCut"),
        "remoteReads",
        *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        *("groupIdPrefix", *STREAM_OPTIONS),
        OWN_SCAN_OPTION,
        *("kafka.client.id", "kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes"),
        *("kafka.client.rack", "kafka.isolation.level"),
        *READ_WITHOUT_EFFECT,
    }
)
WRITE_OPTIONS = frozenset(
    {
        *BOOTSTRAP_OPTIONS,
        *("topic", "includeHeaders", "kafka.acks", "kafka.compression.type", "kafka.batch.size"),
        *("kafka.client.id", "kafka.delivery.timeout.ms", "kafka.enable.idempotence"),
        *("partitioner", "kafka.partitioner", "kafka.partitioner.class"),
        *("kafka.partitioner.ignore.keys", "kafka.buffer.memory"),
        PACKED_OPTION,
        *WRITE_WITHOUT_EFFECT,
    }
)


#: Table properties that Spark adds to the options of a table whose columns CREATE TABLE leaves out.
_TABLE_PROPERTIES = frozenset({"owner", "is_managed_location", "external"})
#: The remedy for tables of Spark's catalog.
NO_TABLES = (
    "Spark hands the options of CREATE TABLE to no source that is made in Python: use "
    "CREATE TEMPORARY VIEW name USING sparklog OPTIONS (subscribe 'TOPIC', topic 'TOPIC')"
)


def table_hint(options: Mapping[str, str]) -> str:
    """The hint to add to an error about a missing option if no option is given at all."""
    given = {name.lower() for name in options} - {OWN_SCAN_OPTION, PACKED_OPTION}
    return "" if given else f"; if this is a table: {NO_TABLES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """The use of options, read or write: their names, and the words for them in errors."""

    name: str
    options: frozenset[str]
    #: The message about an option of the other use.
    other: str


_READ = _Use(
    name="read",
    options=READ_OPTIONS,
    other="is for writes; a read names its topics with subscribe, assign or subscribePattern, "
    "and a view that reads and inserts has one of them and topic",
)
_WRITE = _Use(
    name="write",
    options=WRITE_OPTIONS,
    other="is for reads; a write names its topic with topic, and a view that reads and inserts "
    "has topic and one of subscribe, assign and subscribePattern",
)


def is_two_way(options: Mapping[str, str]) -> bool:
    """Whether one set of options serves reads and inserts, as for a view.

    Such options name both the topics to read and the topic to write to.  A read then ignores the
    options of writes, and a write ignores the options of reads.
    """
    names = {name.lower() for name in options}
    return "topic" in names and any(name.lower() in names for name in SELECTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The start or end of a read: exactly one field is set; times in milliseconds."""

    special: OffsetSpec | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None

    @property
    def by_partition(self) -> Mapping[TopicPartition, int] | None:
        """The values by partition, which must then name all partitions."""
        return self.offsets if self.offsets is not None else self.timestamps

    def time_of(self, partition: TopicPartition) -> int | None:
        """The time at which a partition's range starts or ends, if a time is set."""
        return self.timestamp_ms if self.timestamps is None else self.timestamps.get(partition)

    def is_latest(self, partition: TopicPartition) -> bool:
        """Whether a partition's range starts or ends at its latest offset, whatever that is."""
        if self.offsets is not None:
            return self.offsets.get(partition) == OffsetSpec.LATEST
        return self.special is OffsetSpec.LATEST

    def option(self, side: str) -> str:
        """The name of the option that set this bound; ``side`` is ``starting`` or ``ending``."""
        if self.timestamp_ms is not None:
            return f"{side}Timestamp"
        return f"{side}Offsets" if self.timestamps is None else f"{side}OffsetsByTimestamp"


class ConsistentCut(Enum):
    """What a read does about transactions that end while it is planned."""

    REQUIRE = "require"
    PREFER = "prefer"
    OFF = "off"


class RemoteReads(Enum):
    """How records of a tiered topic are read that are in the bucket only."""

    DIRECT = "direct"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A batch read; times in milliseconds, sizes in bytes.

    Exactly one of ``topics``, ``assigned`` and ``pattern`` (Java's syntax) is set.
    """

    bootstrap: tuple[Endpoint, ...]
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    pattern: str | None = None
    starting: Bound = field(default_factory=lambda: Bound(special=OffsetSpec.EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound(special=OffsetSpec.LATEST))
    #: Nothing is read of a partition without a record as new as the starting time.
    unmatched_starts_latest: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    fail_on_corrupt_batch: bool = True
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED
    consistent_cut: ConsistentCut = ConsistentCut.PREFER
    remote_reads: RemoteReads = RemoteReads.DIRECT
    poll_timeout_ms: int = 120_000
    plan_tries: int = 3
    plan_pause_ms: int = 1000
    fetch_max_bytes: int = 4 * 1024 * 1024
    #: Rack of the replicas to read (KIP-392); None: the rack of the task's host, empty: leaders.
    rack: str | None = None
    client_id: str = CLIENT_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A batch write; times in milliseconds, sizes in bytes."""

    bootstrap: tuple[Endpoint, ...]
    topic: str | None = None
    acks: int = -1
    compression: Compression = Compression.NONE
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    idempotent: bool = True
    partitioner: Partitioner = DEFAULT
    #: Encoded bytes that may await acknowledgement before a task takes no more rows.
    buffer_bytes: int = BUFFER_BYTES
    client_id: str = CLIENT_ID


def parse_read_options(options: Mapping[str, str], found_bootstrap: str | None) -> ReadOptions:
    """Raises ConfigError naming the option and what it should be."""
    given = _Given(options, _READ, _WRITE)
    for name in filter(given.has, STREAM_OPTIONS):
        log.warning("option %s is for streams; this batch read ignores it", name)
    _check_selection(given)
    return ReadOptions(
        bootstrap=_bootstrap(given, found_bootstrap),
        topics=given.get("subscribe", topic_list, ()),
        assigned=given.get("assign", assignment, ()),
        pattern=given.optional("subscribePattern", _pattern),
        starting=_bound(given, "starting", OffsetSpec.EARLIEST, refused="latest"),
        ending=_bound(given, "ending", OffsetSpec.LATEST, refused="earliest"),
        unmatched_starts_latest=given.get(
            "startingOffsetsByTimestampStrategy", error_or_latest, "error"
        )
        == "latest",
        min_partitions=given.optional("minPartitions", int32),
        max_records_per_partition=given.optional("maxRecordsPerPartition", positive_int),
        fail_on_data_loss=given.get("failOnDataLoss", boolean, True),
        fail_on_corrupt_batch=given.get("failOnCorruptBatch", boolean, True),
        include_headers=given.get("includeHeaders", boolean, False),
        isolation=given.get("kafka.isolation.level", isolation, Isolation.READ_COMMITTED),
        consistent_cut=given.get("consistentCut", _choice_of(ConsistentCut), ConsistentCut.PREFER),
        remote_reads=given.get("remoteReads", _choice_of(RemoteReads), RemoteReads.DIRECT),
        poll_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs", int32, 120_000),
        plan_tries=given.get("fetchOffset.numRetries", int32, 3),
        plan_pause_ms=given.get("fetchOffset.retryIntervalMs", whole_number, 1000),
        fetch_max_bytes=given.get(
            "kafka.max.partition.fetch.bytes",
            int32,
            given.get("kafka.fetch.max.bytes", int32, 4 * 1024 * 1024),
        ),
        rack=given.optional("kafka.client.rack", str.strip),
        client_id=given.get("kafka.client.id", str, CLIENT_ID),
    )


def parse_write_options(options: Mapping[str, str], found_bootstrap: str | None) -> WriteOptions:
    """Raises ConfigError naming the option and what it should be."""
    given = _Given(options, _WRITE, _READ)
    acks = given.get("kafka.acks", acknowledgements, -1)
    idempotent = given.get("kafka.enable.idempotence", boolean, acks == -1)
    if idempotent and acks != -1:
        raise ConfigError(
            "kafka.enable.idempotence=true needs kafka.acks=all; leave one of them out"
        )
    return WriteOptions(
        bootstrap=_bootstrap(given, found_bootstrap),
        topic=given.optional("topic", topic_name),
        acks=acks,
        compression=given.get("kafka.compression.type", compression, Compression.NONE),
        batch_bytes=given.get("kafka.batch.size", int32, BATCH_BYTES),
        delivery_timeout_ms=given.get("kafka.delivery.timeout.ms", int32, DELIVERY_TIMEOUT_MS),
        idempotent=idempotent,
        partitioner=_partitioner(given),
        buffer_bytes=given.get("kafka.buffer.memory", positive_int, BUFFER_BYTES),
        client_id=given.get("kafka.client.id", str, CLIENT_ID),
    )


class _Given:
    """The options as the user set them: case-insensitive names, text values."""

    def __init__(self, options: Mapping[str, str], use: _Use, other: _Use) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}
        self._check_names(options, use, other)

    @property
    def table_hint(self) -> str:
        return table_hint(self._texts)

    def has(self, name: str) -> bool:
        return name.lower() in self._texts

    def optional(self, name: str, parse: Callable[[str], Parsed]) -> Parsed | None:
        text = self._texts.get(name.lower())
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigError(f"option {name}={text!r}: {error}") from None

    def get(self, name: str, parse: Callable[[str], Parsed], default: Parsed) -> Parsed:
        value = self.optional(name, parse)
        return default if value is None else value

    @staticmethod
    def _check_names(options: Mapping[str, str], use: _Use, other: _Use) -> None:
        known = {name.lower(): name for name in use.options}
        known_there = {name.lower() for name in other.options}
        if _TABLE_PROPERTIES & options.keys():
            raise ConfigError(f"CREATE TABLE is not supported: {NO_TABLES}")
        two_way = is_two_way(options)
        for name, text in options.items():
            why = refusal(name.lower(), text)
            if why is not None:
                raise ConfigError(f"option {name} is not supported: {why}")
            if name.lower() in known:
                continue
            if name.lower() not in known_there:
                near = nearest(name.lower(), known)
                hint = f"; did you mean {known[near]}?" if near else ""
                raise ConfigError(f"unknown option {name!r} for a batch {use.name}{hint}")
            if not two_way:
                raise ConfigError(f"option {name!r} {use.other}")
            log.info("option %s is for a batch %s; this %s ignores it", name, other.name, use.name)


def _bootstrap(given: _Given, found: str | None) -> tuple[Endpoint, ...]:
    for name in BOOTSTRAP_OPTIONS:
        endpoints = given.optional(name, bootstrap_servers)
        if endpoints:
            return endpoints
    if found:
        return bootstrap_servers(found)
    raise ConfigError(
        "no cluster: start one with sparklog.start(spark) in this application, "
        "or give option('kafka.bootstrap.servers', 'HOST:PORT')"
    )


def _check_selection(given: _Given) -> None:
    chosen = [name for name in SELECTIONS if given.has(name)]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        raise ConfigError(
            "exactly one of the options assign, subscribe and subscribePattern is needed, "
            f"found {found}{given.table_hint}"
        )


def _partitioner(given: _Given) -> Partitioner:
    """The partitioner; the first option that is set counts."""
    if given.get("kafka.partitioner.ignore.keys", boolean, False):
        return STICKY
    for name in ("partitioner", "kafka.partitioner"):
        if given.has(name):
            return given.get(name, named_partitioner, DEFAULT)
    return given.get("kafka.partitioner.class", java_partitioner, DEFAULT)


def _pattern(text: str) -> str:
    topic_matcher(text)
    return text


def _choice_of(choices: type[Choice]) -> Callable[[str], Choice]:
    def parse(text: str) -> Choice:
        names = {str(choice.value): choice for choice in choices}
        if text.strip().lower() not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return names[text.strip().lower()]

    return parse


def _bound(given: _Given, side: str, default: OffsetSpec, refused: str) -> Bound:
    """A bound; the first option that is set counts, the others are ignored."""
    if given.has(f"{side}Timestamp"):
        return Bound(timestamp_ms=given.optional(f"{side}Timestamp", timestamp_ms))
    if given.has(f"{side}OffsetsByTimestamp"):
        times = given.optional(f"{side}OffsetsByTimestamp", timestamps_by_partition)
        return Bound(timestamps=times)

    def parse(text: str) -> Bound:
        word = text.strip().lower()
        if word == refused:
            raise ValueError(f"a batch read cannot have {word} {side} offsets")
        specials = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        if word in specials:
            return Bound(special=specials[word])
        return Bound(offsets=offsets_by_partition(text, refused))

    return given.get(f"{side}Offsets", parse, Bound(special=default))
