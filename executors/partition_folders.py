"""The folders of partitions inside a broker's folder: their names, whose they are, their end.

Owns: what a folder's name says, and the order of deleting one.  Must not know open logs.  All of it
blocks.
"""

from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.executors.broker_folder import BrokerFolder
from sparklog.executors.log.names import PARTITION_METADATA
from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.metadata import ClusterImage
from sparklog.storage_backends.base import FileHalf
from sparklog.types import TopicPartition

#: A folder that is being deleted; the name says nothing about a partition any more.
DELETED_FOLDER_SUFFIX = "-delete"


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


def find_strays(folder: BrokerFolder, image: ClusterImage, node_id: int) -> list[str]:
    """The folders of partitions that the image does not place here."""
    half, root = folder.half, folder.path
    return [name for name in half.list(root) if is_stray(half, root, name, image, node_id)]


def delete_stray(half: FileHalf, root: str, name: str) -> None:
    """Renamed first: what a crash leaves of it must not pass for a folder without metadata."""
    target = name if name.endswith(DELETED_FOLDER_SUFFIX) else f"{name}{DELETED_FOLDER_SUFFIX}"
    if target != name:
        if half.is_folder(f"{root}/{target}"):
            half.remove_folder(f"{root}/{target}")
        half.rename_folder(f"{root}/{name}", f"{root}/{target}")
    half.remove_folder(f"{root}/{target}")


def delete_folder(half: FileHalf, root: str, name: str, topic_id: UUID) -> None:
    """Renamed first: a topic of the same name may come back while files are deleted."""
    if not half.is_folder(f"{root}/{name}"):
        return
    number = name.rpartition("-")[2]
    target = f"{root}/{topic_id.hex}.{number}{DELETED_FOLDER_SUFFIX}"
    half.rename_folder(f"{root}/{name}", target)
    half.remove_folder(target)
