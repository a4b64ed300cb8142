"""The partition of an internal topic that a key belongs to, and the broker that coordinates it.

Owns: Kafka's mapping of a group id or transactional id to a partition, which every client's tools
rely on (``GroupCoordinatorService.partitionFor``).  Must not know what a coordinator does.
"""

from functools import lru_cache
from typing import Final

from sparklog.metadata.image import ClusterImage
from sparklog.metadata.values import BrokerImage
from sparklog.types import MAX_INT32, TopicPartition

_INT_BITS: Final = 0xFFFFFFFF
#: Keys are remembered with their hashes, up to this number and length in characters.
_KEYS_MAX: Final = 1024
_KEY_CHARS_MAX: Final = 100


def java_string_hash(text: str) -> int:
    """``String.hashCode`` of Java, as an unsigned number of 32 bits.

    Java hashes UTF-16 code units, so characters outside the basic plane count twice.
    """
    return _hash(text) if len(text) > _KEY_CHARS_MAX else _remembered_hash(text)


def _hash(text: str) -> int:
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & _INT_BITS
    return result


_remembered_hash = lru_cache(_KEYS_MAX)(_hash)


def partition_for(key: str, partitions: int) -> int:
    """The partition that a key belongs to, of a topic with so many partitions."""
    return (java_string_hash(key) & MAX_INT32) % partitions


def coordinator_partition(image: ClusterImage, topic: str, key: str) -> int | None:
    """The partition of an internal topic that a key belongs to; None without the topic."""
    found = image.topic(topic)
    return None if found is None else partition_for(key, len(found.partitions))


def find_coordinator(image: ClusterImage, topic: str, key: str) -> BrokerImage | None:
    """The broker that coordinates a key: the live leader of its partition, if there is one."""
    number = coordinator_partition(image, topic, key)
    if number is None:
        return None
    state = image.partition(TopicPartition(topic, number))
    if state is None or not image.is_alive(state.leader):
        return None
    return image.broker(state.leader)
