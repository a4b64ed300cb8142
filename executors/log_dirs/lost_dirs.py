"""The folders of logs that were lost: what is left of them, put aside until nobody needs it.

Owns: the order in which a folder is put aside or removed.  Must not
know open logs or roles.  All of it blocks.

The remains of a partition's log keep one folder, ``TOPIC-N.TOPICID-lost``.  When a log is lost
again before its copy was complete, the first remains stay, which may hold more.
"""

from uuid import UUID

from sparklog.executors.log import LOG_SUFFIX
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.partition_dirs import delete_folder, lost_name
from sparklog.types import TopicPartition


def put_aside(folder: BrokerDir, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """Make room for a new log; what is left of the lost one keeps another name.

    A folder without a log file is removed.  Raises StorageError, among others when the whole data
    directory is gone.
    """
    folder.require_here()
    half, root = folder.half, folder.path
    source, target = f"{root}/{topic_partition}", f"{root}/{lost_name(topic_partition, topic_id)}"
    is_worth_keeping = any(name.endswith(LOG_SUFFIX) for name in half.list(source))
    if is_worth_keeping and not half.is_folder(target):
        half.rename_folder(source, target)
        half.flush_folder(root)
    else:
        delete_folder(half, root, str(topic_partition), topic_id)


def remove_remains(folder: BrokerDir, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """The log has a complete copy again, or its partition is not here any more."""
    folder.half.remove_folder(f"{folder.path}/{lost_name(topic_partition, topic_id)}")
