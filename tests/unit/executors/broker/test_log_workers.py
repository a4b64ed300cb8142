"""The work on logs beside their appends."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from sparklog.errors import StorageError
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.types import TopicPartition


class Statistics:
    """Of segments that wait for their measurement; that of the first one fails."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._pending = iter((1, 2, 3))

    def next_pending(self) -> Any:
        number = next(self._pending, None)
        return number and SimpleNamespace(number=number, measure_more=lambda: self._measure(number))

    def _measure(self, number: int) -> bool:
        if number == 1:
            raise StorageError("the disk is full")
        return False

    def is_current(self, measuring: Any) -> bool:
        return True

    def take(self, measuring: Any) -> Iterator[Any]:
        yield lambda: self.taken.append(measuring.number)


def test_a_segment_that_cannot_be_measured_does_not_keep_the_next_ones_waiting() -> None:
    """The copier waits for each measurement, so it would stop at the second segment."""
    log: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0), statistics=Statistics())

    async def test() -> None:
        workers = LogWorkers()
        workers.measure(log)
        while workers._measuring:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(test(), 10))
    assert log.statistics.taken == [2, 3]
