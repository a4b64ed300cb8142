"""The log directories of a broker.

Owns: a broker's directory and its identity, the directories of partitions, stray and lost
directories, checkpoints, and checks of the disk.  Must not know partitions' roles or clients.
"""

from sparklog.executors.log_dirs.broker_dir import BrokerDir, BrokerStartError, LogOffsets
from sparklog.executors.log_dirs.checkpoints import LogCheckpoints
from sparklog.executors.log_dirs.disk_watch import DiskWatch
from sparklog.executors.log_dirs.log_dirs import LogDirs, lock_log_dirs, open_data_dirs
from sparklog.executors.log_dirs.log_watch import LogWatch
from sparklog.executors.log_dirs.lost_dirs import delete_lost_dir, set_aside_lost_dir
from sparklog.executors.log_dirs.partition_dirs import delete_partition_dir, parse_lost_dir
from sparklog.executors.log_dirs.stray_dirs import StrayDirs

__all__ = [
    "BrokerDir",
    "BrokerStartError",
    "DiskWatch",
    "LogCheckpoints",
    "LogDirs",
    "LogOffsets",
    "LogWatch",
    "StrayDirs",
    "delete_lost_dir",
    "delete_partition_dir",
    "lock_log_dirs",
    "open_data_dirs",
    "parse_lost_dir",
    "set_aside_lost_dir",
]
