"""Options of ``format("sparklog")`` -> values, once.

Owns: names, defaults and rules of the options (those of Spark's Kafka source) and their error
messages.  Must not know Spark, the client or the clock.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sparklog.config import COMPRESSION_NAMES, nearest
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, Compression, Endpoint, OffsetSpec, TopicPartition

Parsed = TypeVar("Parsed")

BOOTSTRAP_OPTIONS = ("kafka.bootstrap.servers", "bootstrap.servers")
#: Ours alone: marks a scan that shares its source with no other (see ``own_scans``).
OWN_SCAN_OPTION = "sparklog.own.scan"
TRUE_TEXTS = {"true": True, "false": False}

READ_OPTIONS = frozenset(
    {
        *BOOTSTRAP_OPTIONS,
        *("assign", "subscribe"),
        *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("minPartitions", "includeHeaders", "kafkaConsumer.pollTimeoutMs"),
        OWN_SCAN_OPTION,
        *("kafka.client.id", "kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes"),
    }
)
WRITE_OPTIONS = frozenset(
    {
        *BOOTSTRAP_OPTIONS,
        *("topic", "kafka.acks", "kafka.compression.type", "kafka.batch.size"),
        *("kafka.client.id", "kafka.delivery.timeout.ms", "kafka.enable.idempotence"),
    }
)

#: What Spark's Kafka source refuses, and why we do.
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are read as binary; cast the column",
    "kafka.value.deserializer": "values are read as binary; cast the column",
    "kafka.key.serializer": "keys are written as string or binary; cast the column",
    "kafka.value.serializer": "values are written as string or binary; cast the column",
    "kafka.enable.auto.commit": "a batch read commits no offsets",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "path": "topics are no files; name them with subscribe or assign (read) or topic (write)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read starts or ends: one special offset for all, offsets by partition, or a time."""

    special: OffsetSpec | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A batch read; times in milliseconds, sizes in bytes."""

    bootstrap: tuple[Endpoint, ...]
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound = field(default_factory=lambda: Bound(special=OffsetSpec.EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound(special=OffsetSpec.LATEST))
    min_partitions: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    fetch_max_bytes: int = 8 * 1024 * 1024
    client_id: str = "sparklog-dataframe"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A batch write; times in milliseconds, sizes in bytes."""

    bootstrap: tuple[Endpoint, ...]
    topic: str | None = None
    acks: int = -1
    compression: Compression = Compression.NONE
    batch_bytes: int = 512 * 1024
    delivery_timeout_ms: int = 120_000
    idempotent: bool = True
    client_id: str = "sparklog-dataframe"


def parse_read_options(options: Mapping[str, str], found_bootstrap: str | None) -> ReadOptions:
    """Raises ConfigError naming the option and what it should be."""
    given = _Given(options, READ_OPTIONS, "read")
    topics, assigned = _selection(given)
    return ReadOptions(
        bootstrap=_bootstrap(given, found_bootstrap),
        topics=topics,
        assigned=assigned,
        starting=_bound(given, "starting", OffsetSpec.EARLIEST),
        ending=_bound(given, "ending", OffsetSpec.LATEST),
        min_partitions=given.optional("minPartitions", positive_int),
        include_headers=given.get("includeHeaders", boolean, False),
        poll_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs", positive_int, 120_000),
        fetch_max_bytes=given.get(
            "kafka.max.partition.fetch.bytes",
            positive_int,
            given.get("kafka.fetch.max.bytes", positive_int, 8 * 1024 * 1024),
        ),
        client_id=given.get("kafka.client.id", str, "sparklog-dataframe"),
    )


def parse_write_options(options: Mapping[str, str], found_bootstrap: str | None) -> WriteOptions:
    """Raises ConfigError naming the option and what it should be."""
    given = _Given(options, WRITE_OPTIONS, "write")
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
        batch_bytes=given.get("kafka.batch.size", positive_int, 512 * 1024),
        delivery_timeout_ms=given.get("kafka.delivery.timeout.ms", positive_int, 120_000),
        idempotent=idempotent,
        client_id=given.get("kafka.client.id", str, "sparklog-dataframe"),
    )


class _Given:
    """The options as given: names are case-insensitive in Spark, values are text."""

    def __init__(self, options: Mapping[str, str], known: frozenset[str], use: str) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}
        self._check_names(options, known, use)

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
    def _check_names(options: Mapping[str, str], known: frozenset[str], use: str) -> None:
        known_lower = {name.lower(): name for name in known}
        refused = {name.lower(): (name, remedy) for name, remedy in REFUSED.items()}
        for name in options:
            if name.lower() in refused:
                shown, remedy = refused[name.lower()]
                raise ConfigError(f"option {shown} is not supported: {remedy}")
            if name.lower() not in known_lower:
                near = nearest(name.lower(), known_lower)
                hint = f"; did you mean {known_lower[near]}?" if near else ""
                raise ConfigError(f"unknown option {name!r} for a batch {use}{hint}")


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


def _selection(given: _Given) -> tuple[tuple[str, ...], tuple[TopicPartition, ...]]:
    chosen = [name for name in ("assign", "subscribe") if given.has(name)]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "neither"
        raise ConfigError(
            f"exactly one of the options assign and subscribe is needed, found {found}"
        )
    assigned = given.optional("assign", assignment)
    return given.get("subscribe", topic_list, ()), assigned or ()


def _bound(given: _Given, side: str, default: OffsetSpec) -> Bound:
    timestamp = given.optional(f"{side}Timestamp", timestamp_ms)
    if timestamp is not None:
        return Bound(timestamp_ms=timestamp)
    refused = {"earliest"} if side == "ending" else {"latest"}
    bound = given.optional(f"{side}Offsets", lambda text: offsets_bound(text, refused, side))
    return bound or Bound(special=default)


def offsets_bound(text: str, refused: set[str], side: str) -> Bound:
    """``earliest``, ``latest`` or JSON ``{"topic": {"0": 23}}`` (-2 earliest, -1 latest)."""
    word = text.strip().lower()
    names = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
    if word in refused:
        raise ValueError(f"a batch read cannot have {word} {side} offsets")
    if word in names:
        return Bound(special=names[word])
    offsets = {
        TopicPartition(topic, partition): _offset(value, refused)
        for topic, by_partition in _json_object(text).items()
        for partition, value in _by_partition(topic, by_partition)
    }
    return Bound(offsets=offsets)


def _offset(value: object, refused: set[str]) -> int:
    special = {-2: "earliest", -1: "latest"}
    if not isinstance(value, int) or isinstance(value, bool) or value < -2:
        raise ValueError(f"{value!r} is not an offset (a number, -2 for earliest, -1 for latest)")
    if special.get(value) in refused:
        raise ValueError(f"{value} ({special[value]}) cannot be used here in a batch read")
    return value


def _by_partition(topic: str, value: object) -> list[tuple[int, object]]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"expected {{partition: offset}} for topic {topic!r}")
    return [(partition_number(name), offset) for name, offset in value.items()]


def partition_number(text: object) -> int:
    number = int(text) if isinstance(text, (str, int)) and str(text).isdigit() else -1
    if not 0 <= number <= MAX_INT32:
        raise ValueError(f"{text!r} is not a partition number")
    return number


def assignment(text: str) -> tuple[TopicPartition, ...]:
    """JSON ``{"topic": [0, 1]}``."""
    found = [
        TopicPartition(topic_name(topic), partition_number(number))
        for topic, numbers in _json_object(text).items()
        for number in (numbers if isinstance(numbers, list) else [numbers])
    ]
    if not found:
        raise ValueError('no partitions; expected {"topic": [0, 1]}')
    return tuple(sorted(set(found)))


def _json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object by topic")
    return value


def topic_list(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(topic_name(part) for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("expected topic names separated by commas")
    return names


def topic_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise ValueError("expected a topic name")
    return name


def bootstrap_servers(text: str) -> tuple[Endpoint, ...]:
    endpoints = tuple(Endpoint.parse(part) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ValueError("expected HOST:PORT,HOST:PORT")
    return endpoints


def positive_int(text: str) -> int:
    if not text.strip().isdigit() or not 0 < int(text) <= MAX_INT32:
        raise ValueError("expected a positive whole number")
    return int(text)


def timestamp_ms(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError("expected milliseconds since 1970-01-01 UTC")
    return int(text)


def boolean(text: str) -> bool:
    value = TRUE_TEXTS.get(text.strip().lower())
    if value is None:
        raise ValueError("expected true or false")
    return value


def acknowledgements(text: str) -> int:
    values = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if text.strip().lower() not in values:
        raise ValueError("expected all, 1 or 0")
    return values[text.strip().lower()]


def compression(text: str) -> Compression:
    codec = COMPRESSION_NAMES.get(text.strip().lower())
    if codec is None:
        raise ValueError(f"expected one of {', '.join(COMPRESSION_NAMES)}")
    return codec
