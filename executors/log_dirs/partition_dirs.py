"""The folders of partitions inside a broker's folder: their names, whose they are, their end.

Owns: what a folder's name says, and the order of deleting one.  Must not know open logs.  All of it
blocks.
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

#: A folder that is being deleted; the name says nothing about a partition any more.
DELETED_FOLDER_SUFFIX = "-delete"
#: A folder that was set aside (``UnifiedLog.StrayDirSuffix``); brokers leave it alone.
STRAY_FOLDER_SUFFIX = "-stray"
#: Characters of a file's name that file systems take.
FOLDER_NAME_MAX = 255


#: What a name may take of the topic's, so that it stays below 255 bytes.
_TOPIC_CHARACTERS_MAX: Final = 180
_NAME: Final = re.compile(r".+-(\d+)\.([0-9a-f]{32})-lost")


def lost_name(topic_partition: TopicPartition, topic_id: UUID) -> str:
    """The name of the folder with a lost log's remains."""
    topic = topic_partition.topic[:_TOPIC_CHARACTERS_MAX]
    return f"{topic}-{topic_partition.partition}.{topic_id.hex}-lost"


def parse_lost(name: str) -> tuple[UUID, int] | None:
    """Topic id and partition of remains; None when the name is another one."""
    match = _NAME.fullmatch(name)
    return None if match is None else (UUID(hex=match[2]), int(match[1]))


def parse_folder(name: str) -> TopicPartition | None:
    """The partition that a folder's name says, if it says one."""
    topic, dash, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if dash and number.isdecimal() else None


def is_stray(half: FileHalf, root: str, name: str, image: ClusterImage, node_id: int) -> bool:
    """Whether a folder belongs to a partition that the image does not place here."""
    if not half.is_folder(f"{root}/{name}"):
        return False
    if name.endswith(DELETED_FOLDER_SUFFIX):
        return True
    remains = parse_lost(name)
    if remains is not None:
        topic = image.topic_by_id(remains[0])
        state = None if topic is None else topic.partitions.get(remains[1])
        return state is None or node_id not in state.replicas
    tp = parse_folder(name)
    if tp is None:
        return False
    state = image.partition(tp)
    if state is None or node_id not in state.replicas:
        return True
    return belongs_to_another(half, root, name, image.topics[tp.topic].topic_id)


def belongs_to_another(half: FileHalf, root: str, name: str, topic_id: UUID) -> bool:
    """Whether a partition's folder says that it is of a topic with another id."""
    metadata = f"{root}/{name}/{PARTITION_METADATA}"
    if not half.exists(metadata):
        return False
    try:
        return decode_partition_metadata(half.read(metadata)) != topic_id
    except SparklogError:
        return False


def find_strays(folder: BrokerDir, image: ClusterImage, node_id: int) -> list[str]:
    """The folders of partitions that the image does not place here."""
    half, root = folder.half, folder.path
    return [name for name in half.list(root) if is_stray(half, root, name, image, node_id)]


def is_half_deleted(name: str) -> bool:
    """Whether a folder was being deleted when its broker ended."""
    return name.endswith(DELETED_FOLDER_SUFFIX)


def set_aside(half: FileHalf, root: str, name: str) -> str:
    """Rename a stray folder, so that it is no partition's any more; its new name.

    As Kafka does, nothing of it is deleted: the cluster's metadata may have been restored from an
    older copy, or repaired without its last commits, and this may be all that is left of a topic.
    """
    number = 1
    # Asked by name: a folder of thousands of strays is not listed for each of them.
    while half.exists(f"{root}/{(target := _stray_name(name, number))}"):
        number += 1
    half.rename_folder(f"{root}/{name}", f"{root}/{target}")
    return target


def _stray_name(name: str, number: int) -> str:
    suffix = f".{number}{STRAY_FOLDER_SUFFIX}"
    return f"{name[: FOLDER_NAME_MAX - len(suffix)]}{suffix}"


def delete_folder(half: FileHalf, root: str, name: str, topic_id: UUID) -> None:
    """Renamed first: a topic of the same name may come back while files are deleted."""
    if not half.is_folder(f"{root}/{name}"):
        return
    number = name.rpartition("-")[2]
    target = f"{root}/{topic_id.hex}.{number}{DELETED_FOLDER_SUFFIX}"
    half.rename_folder(f"{root}/{name}", target)
    half.remove_folder(target)
