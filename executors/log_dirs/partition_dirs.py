"""The partition directories inside a log directory.

Owns: the meaning of a directory's name, and the order of a deletion.  Must not know open logs.  All
calls on files block.
"""

import re
from typing import Final
from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.executors.log import PARTITION_METADATA, decode_partition_metadata
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.metadata import ClusterImage
from sparklog.storage_backends.base import FileHalf
from sparklog.types import TopicPartition

#: The suffix of a directory whose deletion has begun, and which belongs to no partition any more.
DELETED_DIR_SUFFIX = "-delete"
#: The suffix of a stray directory (``UnifiedLog.StrayDirSuffix``), which brokers never open.
STRAY_DIR_SUFFIX = "-stray"
#: The longest name that file systems take.
DIR_NAME_CHARACTERS_MAX = 255


#: Most characters of the topic in such a name, so that the name stays below 255 bytes.
_TOPIC_CHARACTERS_MAX: Final = 180
_NAME: Final = re.compile(r".+-(\d+)\.([0-9a-f]{32})-lost")


def lost_dir_name(topic_partition: TopicPartition, topic_id: UUID) -> str:
    """The name of the directory that keeps a lost log."""
    topic = topic_partition.topic[:_TOPIC_CHARACTERS_MAX]
    return f"{topic}-{topic_partition.partition}.{topic_id.hex}-lost"


def parse_lost_dir(name: str) -> tuple[UUID, int] | None:
    """Topic id and partition of a lost log's directory; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (UUID(hex=match[2]), int(match[1]))


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition of a directory's name; None for any other name."""
    topic, dash, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if dash and number.isdecimal() else None


def is_stray_dir(half: FileHalf, root: str, name: str, image: ClusterImage, node_id: int) -> bool:
    """Whether a directory belongs to a partition that the image does not place on this broker."""
    if not half.is_folder(f"{root}/{name}"):
        return False
    if name.endswith(DELETED_DIR_SUFFIX):
        return True
    remains = parse_lost_dir(name)
    if remains is not None:
        topic = image.topic_by_id(remains[0])
        state = None if topic is None else topic.partitions.get(remains[1])
        return state is None or node_id not in state.replicas
    tp = parse_partition_dir(name)
    if tp is None:
        return False
    state = image.partition(tp)
    if state is None or node_id not in state.replicas:
        return True
    return belongs_to_another(half, root, name, image.topics[tp.topic].topic_id)


def belongs_to_another(half: FileHalf, root: str, name: str, topic_id: UUID) -> bool:
    """Whether the ``partition.metadata`` in a directory names another topic id."""
    metadata = f"{root}/{name}/{PARTITION_METADATA}"
    if not half.exists(metadata):
        return False
    try:
        return decode_partition_metadata(half.read(metadata)) != topic_id
    except SparklogError:
        return False


def find_stray_dirs(log_dir: BrokerDir, image: ClusterImage, node_id: int) -> list[str]:
    """The directories of partitions that the image does not place on this broker."""
    half, root = log_dir.half, log_dir.path
    return [name for name in half.list(root) if is_stray_dir(half, root, name, image, node_id)]


def is_half_deleted(name: str) -> bool:
    """Whether a broker ended during the deletion of this directory."""
    return name.endswith(DELETED_DIR_SUFFIX)


def rename_stray_dir(half: FileHalf, root: str, name: str) -> str:
    """Rename a stray directory, so that it is no partition's any more; return the new name.

    As in Kafka, nothing is deleted: the cluster's metadata may have been restored from an older
    copy, or repaired without its last commits, and then the directory is all that is left of a
    topic.
    """
    number = 1
    # A lookup by name: a log directory with thousands of strays is not listed for each of them.
    while half.exists(f"{root}/{(target := _stray_name(name, number))}"):
        number += 1
    half.rename_folder(f"{root}/{name}", f"{root}/{target}")
    return target


def _stray_name(name: str, number: int) -> str:
    suffix = f".{number}{STRAY_DIR_SUFFIX}"
    return f"{name[: DIR_NAME_CHARACTERS_MAX - len(suffix)]}{suffix}"


def delete_partition_dir(half: FileHalf, root: str, name: str, topic_id: UUID) -> None:
    """Delete a partition directory.

    The directory is renamed first, because a topic of the same name may be created while the files
    are deleted.
    """
    if not half.is_folder(f"{root}/{name}"):
        return
    number = name.rpartition("-")[2]
    target = f"{root}/{topic_id.hex}.{number}{DELETED_DIR_SUFFIX}"
    half.rename_folder(f"{root}/{name}", target)
    half.remove_folder(target)
