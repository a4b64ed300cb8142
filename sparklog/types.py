"""Small frozen values that every room shares.

Owns: names of topics, partitions, nodes, and the protocol's enumerations and sentinels.  Must not
know anything but the standard library.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

#: Node id of the control plane; brokers count from 1.
CONTROLLER_NODE_ID = 0
NO_NODE = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_BROKER_EPOCH = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
MAX_INT16 = 2**15 - 1
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
#: The first producer id that is reserved for coordinators, which write with a producer id of their
#: own; its state never expires.  Clients get ids below.
COORDINATOR_PRODUCER_ID_BASE: Final = 2**62


class TimestampType(IntEnum):
    """The origin of a record's timestamp (``timestampType`` in Spark's Kafka source)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """Codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """Special timestamps of ListOffsets (KIP-734, KIP-405, KIP-1005, KIP-1023)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ResourceType(IntEnum):
    """Resource types of the config APIs (``ConfigResource.Type``)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4


class ElectionType(IntEnum):
    """PREFERRED: the first replica, if in sync.  UNCLEAN: any live replica, if none is in sync."""

    PREFERRED = 0
    UNCLEAN = 1


class ConfigSource(IntEnum):
    """The origin of a setting's value (``DescribeConfigsResponse.ConfigSource``)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class TopicPartition(NamedTuple):
    """A partition by name; prints like the directory of its log, ``topic-3``.

    A tuple, because every request makes and looks up several of them.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """The partition numbers of each topic, as most requests name partitions; the order is kept."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in found.items()}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a node; prints as ``host:port``, IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """``HOST:PORT`` (IPv6 hosts in brackets).  Raises ValueError naming the text."""
        host, separator, port = text.strip().rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
        if not separator or not is_port:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not _is_host(host):
            raise ValueError(f"{text!r} is not HOST:PORT: {host!r} cannot be a host")
        return cls(host, int(port))


def _is_host(host: str) -> bool:
    """Whether a resolver accepts the name: no invalid characters, and no empty or too long
    label."""
    if not host or not host.isprintable() or any(each in " []/\\@#?,'\"" for each in host):
        return False
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTimestamp:
    """An offset, its record's timestamp in milliseconds, and the leader epoch it was read at."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_LEADER_EPOCH
