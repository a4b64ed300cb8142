"""The order of commits, and how long one waits for the earlier ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sparklog.client.groups import OffsetAndMetadata
from sparklog.client.groups.offset_commits import OffsetCommits
from sparklog.client.groups.offset_requests import GroupIdentity
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.client.groups.test_cancellation import TURNS_MAX, ends_when_cancelled

T0 = TopicPartition("t", 0)
US = GroupIdentity(group_id="g")
API_TIMEOUT_S = 20.0


def at(offset: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
    return {T0: OffsetAndMetadata(offset=offset)}


class SlowLink:
    """A link whose commits end when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.done: list[int] = []
        self.limits: list[float] = []

    async def commit(self, _identity: GroupIdentity, offsets: Any, timeout_s: float) -> None:
        self.limits.append(timeout_s)
        await self.may_end.wait()
        self.done.append(offsets[T0].offset)


def slow_commits() -> tuple[OffsetCommits, SlowLink]:
    link = SlowLink()
    return OffsetCommits(link, API_TIMEOUT_S, lambda *_: None), link  # type: ignore[arg-type]


def test_a_commit_waits_for_its_turn_only_as_long_as_it_has_time() -> None:
    async def main() -> None:
        commits, link = slow_commits()
        commits.commit_later(US, at(1), None)
        while not commits.is_busy:
            await asyncio.sleep(0)
        async with asyncio.timeout(API_TIMEOUT_S / 2):
            with pytest.raises(
                KafkaError, match=r"an earlier commit did not end within 0\.05 s"
            ) as no:
                await commits.commit(US, at(2), 0.05)
        assert no.value.code == ErrorCode.REQUEST_TIMED_OUT
        link.may_end.set()
        await commits.finish(API_TIMEOUT_S)
        await commits.commit(US, at(3), 0.0)  # a turn that is free needs no time
        assert link.done == [1, 3]

    asyncio.run(main())


def test_the_wait_for_the_turn_counts_as_a_part_of_the_time() -> None:
    async def main() -> None:
        commits, link = slow_commits()
        commits.commit_later(US, at(1), None)
        second = asyncio.ensure_future(commits.commit(US, at(2)))
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, link.may_end.set)
        await second
        assert link.done == [1, 2]
        assert link.limits[1] < API_TIMEOUT_S - 0.05

    asyncio.run(main())


def test_a_commit_that_is_cancelled_while_its_turn_comes_ends_and_leaves_the_turn() -> None:
    async def main() -> None:
        for turns in range(TURNS_MAX):
            commits, link = slow_commits()
            commits.commit_later(US, at(1), None)

            async def commit_and_wait(commits: OffsetCommits = commits) -> None:
                await commits.commit(US, at(2))
                await asyncio.Event().wait()

            assert await ends_when_cancelled(commit_and_wait, turns, link.may_end.set), turns
            await commits.commit(US, at(3), API_TIMEOUT_S)
            assert link.done[-1] == 3
            assert not commits.is_busy

    asyncio.run(main())


def test_a_commit_does_not_overtake_a_commit_in_the_background_that_has_not_begun() -> None:
    async def main() -> None:
        commits, link = slow_commits()
        link.may_end.set()
        commits.commit_later(US, at(1), None)
        commits.commit_later(US, at(2), None)
        await commits.commit(US, at(3))
        assert link.done == [1, 2, 3]

    asyncio.run(main())
