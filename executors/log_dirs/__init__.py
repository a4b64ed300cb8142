"""The log directories of a broker.

Owns: a broker's directory and its identity, the directories of partitions, stray and lost
directories, checkpoints, and checks of the disk.  Must not know partitions' roles or clients.
"""

from sparklog.executors.log_dirs.broker_dir import BrokerDir, BrokerStartError
from sparklog.executors.log_dirs.checkpoints import LogCheckpoints
from sparklog.executors.log_dirs.disk_watch import DiskWatch
from sparklog.executors.log_dirs.log_dirs import LogDirs, open_data_dirs, take_folders
from sparklog.executors.log_dirs.log_watch import LogWatch
from sparklog.executors.log_dirs.lost_dirs import put_aside, remove_remains
from sparklog.executors.log_dirs.partition_dirs import delete_folder, parse_lost
from sparklog.executors.log_dirs.stray_dirs import StrayDirs

__all__ = [
    "BrokerDir",
    "BrokerStartError",
    "DiskWatch",
    "LogCheckpoints",
    "LogDirs",
    "LogWatch",
    "StrayDirs",
    "delete_folder",
    "open_data_dirs",
    "parse_lost",
    "put_aside",
    "remove_remains",
    "take_folders",
]
