"""The directories of lost logs, which are kept until the replica has a complete copy again.

Owns: the order in which such a directory is set aside or deleted.  Must not know open logs or
roles.  All calls block.

The rest of a lost log is kept in one directory, ``TOPIC-N.TOPICID-lost``.  If the log is
lost again before its copy is complete, the first directory stays, because it may hold more.
"""

from uuid import UUID

from sparklog.executors.log import LOG_SUFFIX
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.partition_dirs import delete_partition_dir, lost_dir_name
from sparklog.types import TopicPartition


def set_aside_lost_dir(log_dir: BrokerDir, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """Make room for a new log: rename the directory of the lost log.

    A directory without a log file is deleted.  Raises StorageError, among others when the whole log
    directory is gone.
    """
    log_dir.require_here()
    half, root = log_dir.half, log_dir.path
    source, target = (
        f"{root}/{topic_partition}",
        f"{root}/{lost_dir_name(topic_partition, topic_id)}",
    )
    is_worth_keeping = any(name.endswith(LOG_SUFFIX) for name in half.list(source))
    if is_worth_keeping and not half.is_folder(target):
        half.rename_folder(source, target)
        half.flush_folder(root)
    else:
        delete_partition_dir(half, root, str(topic_partition), topic_id)


def delete_lost_dir(log_dir: BrokerDir, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """Delete the directory of a lost log.

    Call this when the replica has a complete copy, or the broker has no such partition any more.
    """
    log_dir.half.remove_folder(f"{log_dir.path}/{lost_dir_name(topic_partition, topic_id)}")
