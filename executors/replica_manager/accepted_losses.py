"""The losses that the operator accepts, so that the partitions go on with empty logs.

Owns: which losses the setting ``lost.logs.accept`` still covers.  Must not know what a loss is.

Naming a partition in the setting accepts one loss.  The accepted losses are stored on disk.  So a
later loss of the same partition is not accepted only because its name was left in the setting.  A
partition that is removed from the setting may be named again.
"""

import logging

from sparklog.config.setting_lists import parse_partitions
from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log import decode_offsets, encode_offsets
from sparklog.executors.log_dirs import BrokerDir
from sparklog.types import TopicPartition

ACCEPTED_LOSSES = "accepted-losses-checkpoint"

logger = logging.getLogger(__name__)


class AcceptedLosses:
    """The accepted losses of one log directory.  Its methods block."""

    def __init__(self, log_dir: BrokerDir) -> None:
        self._half = log_dir.half
        self._path = f"{log_dir.path}/{ACCEPTED_LOSSES}"

    def use(self, topic_partition: TopicPartition, setting: str) -> bool:
        """Use up the acceptance of one loss.  Returns whether the setting accepts this loss.

        Raises StorageError, and then nothing is accepted.
        """
        named = {TopicPartition(*pair) for pair in parse_partitions(setting)}
        used = self._read()
        if topic_partition in used and topic_partition in named:
            logger.error(
                "%s was lost again: lost.logs.accept has named it since the loss before; take the "
                "name out of the setting, then put it in again",
                topic_partition,
            )
            return False
        if topic_partition not in named:
            self._write(used & named)
            return False
        self._write((used & named) | {topic_partition})
        return True

    def _read(self) -> set[TopicPartition]:
        if not self._half.exists(self._path):
            return set()
        try:
            return set(decode_offsets(self._half.read(self._path)))
        except DecodeError as error:
            raise StorageError(f"{self._path} cannot be read: {error}") from error

    def _write(self, used: set[TopicPartition]) -> None:
        if used != self._read():
            self._half.put(self._path, encode_offsets(dict.fromkeys(sorted(used), 0)))
