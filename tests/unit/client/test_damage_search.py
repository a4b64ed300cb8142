"""The search for the end of a damaged range, beside a leader that answers as a test scripts it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.client import damaged_ranges
from sparklog.client.data_client import DataClient
from sparklog.client.fetch_api import Fetched
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Isolation, TopicPartition
from tests.support.batches import batch

TP = TopicPartition("t", 0)
END = 40
DAMAGED = range(5, 23)
TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
NOTHING = Fetched(
    records=memoryview(b""), high_watermark=END, last_stable_offset=END, log_start_offset=0
)


class Leader:
    """``slow`` gives what the n-th fetch gets instead of an answer; None: the answer."""

    def __init__(self, slow: Callable[[int], Fetched | KafkaError | None]) -> None:
        self._slow = slow
        self.fetches = 0

    async def list_offsets(self, wanted: Any, **_: Any) -> Any:
        return {TP: SimpleNamespace(offset=END)}

    async def fetch(self, _tp: TopicPartition, offset: int, **_: Any) -> Fetched:
        instead = self._slow(self.fetches)
        self.fetches += 1
        if isinstance(instead, KafkaError):
            raise instead
        if instead is not None:
            return instead
        if offset in DAMAGED:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")
        return Fetched(
            records=memoryview(batch(b"x", base_offset=offset)),
            high_watermark=END,
            last_stable_offset=END,
            log_start_offset=0,
        )


def search(leader: Leader) -> int:
    return asyncio.run(
        damaged_ranges.find_readable(
            cast(DataClient, leader), TP, DAMAGED.start, isolation=Isolation.READ_COMMITTED
        )
    )


def test_the_first_offset_behind_the_damage_is_found() -> None:
    assert search(Leader(lambda _: None)) == DAMAGED.stop


@pytest.mark.parametrize("instead", [TIMED_OUT, NOTHING])
def test_a_slow_leader_is_asked_again(instead: Fetched | KafkaError) -> None:
    assert search(Leader(lambda number: instead if number % 4 else None)) == DAMAGED.stop


def test_empty_answers_are_taken_for_damage() -> None:
    """A leader that cannot step over a damaged header may have nothing to send."""
    assert search(Leader(lambda number: NOTHING if number > 2 else None)) == END


def test_what_is_slow_is_not_taken_for_damaged() -> None:
    leader = Leader(lambda number: TIMED_OUT if number > 2 else None)
    with pytest.raises(KafkaError, match="t-0 answered none of 5 fetches at offset 20") as caught:
        search(leader)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert leader.fetches == 3 + damaged_ranges.PROBES_MAX
