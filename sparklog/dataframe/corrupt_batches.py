"""Unreadable records of a DataFrame read: raised as an error, or skipped, logged and counted.

Owns: the option ``failOnCorruptBatch`` in a task, and its log messages.  Must not know how records
are decoded, nor Spark.
"""

import logging
from typing import Final

from sparklog.errors import CorruptBatchError, SparklogError
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

OPTION: Final = "failOnCorruptBatch"
REMEDY: Final = (
    "Read other offsets (startingOffsets, endingOffsets), or leave these records out with option "
    f"{OPTION}=false"
)
#: Most warnings about single batches of one range; further batches are only counted.
WARNINGS_MAX: Final = 20


class CorruptBatches:
    """The unreadable records of one range of offsets, [start, end)."""

    def __init__(self, tp: TopicPartition, start: int, end: int, *, fail: bool) -> None:
        self.fail = fail
        #: Batches with skipped records, and the number of skipped offsets.
        self.batches = 0
        self.offsets = 0
        self._topic_partition = tp
        self._start = start
        self._end = end
        #: The offset at which a task has given a read up, and the error, which names an object.
        self._given_up: tuple[int, SparklogError] | None = None

    def note_given_up(self, offset: int, error: SparklogError) -> None:
        """Remember why this task could not read an offset from the bucket: a broker that cannot
        either gives a code only."""
        self._given_up = offset, error

    def skip_or_raise(self, first: int, last: int, error: SparklogError) -> None:
        """Skip the records at the offsets [first, last], which cannot be read.

        Raises CorruptBatchError unless the option skips such records.
        """
        first = min(max(first, self._start), self._end - 1)
        last = max(min(last, self._end - 1), first)
        reason = str(error)
        if self._given_up is not None and first <= self._given_up[0] <= last:
            reason = f"{reason}; the task itself has failed before: {self._given_up[1]}"
        if self.fail:
            tp = str(self._topic_partition)
            raise CorruptBatchError(tp, first, last, reason, REMEDY) from error
        self.batches += 1
        self.offsets += last - first + 1
        if self.batches <= WARNINGS_MAX:
            logger.warning(
                "%s: the records at offsets %d to %d cannot be read and are left out (%s=false): "
                "%s",
                self._topic_partition, first, last, OPTION, reason,
            )  # fmt: skip

    def log_skipped(self) -> None:
        """Log the number of skipped batches and offsets, at the end of the range."""
        if self.batches:
            logger.warning(
                "%s: of the offsets [%d, %d), %d in %d batches could not be read and were left out "
                "(%s=false)",
                self._topic_partition, self._start, self._end, self.offsets, self.batches, OPTION,
            )  # fmt: skip
