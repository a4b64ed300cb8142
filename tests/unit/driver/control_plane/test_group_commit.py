"""Group commit, its failures and checkpoints, and the metadata feed."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.driver.control_plane.group_commit import GroupCommitter
from sparklog.driver.control_plane.journal import (
    CommitHeader,
    Journal,
    JournalConflict,
    checkpoint_name,
    commit_name,
)
from sparklog.driver.control_plane.metadata_feed import COMMITS_MAX, MetadataFeed
from sparklog.errors import StorageError
from sparklog.metadata import BrokerIdAssigned, ClusterImage, Record, encode_records
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.protocol.private import WatchMetadataRequest, WatchMetadataResponse

DAY_MS = 24 * 60 * 60 * 1000
TIMEOUT_S = 60.0


def assigned(broker_id: int) -> BrokerIdAssigned:
    return BrokerIdAssigned(broker_id=broker_id)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await story()

    asyncio.run(limited())


class UnderTest:
    """A group committer with its journal; ``now_ms`` is the time of day."""

    def __init__(self, **limits: Any) -> None:
        self.backend = MemoryBackend()
        self.journal = Journal(self.backend)
        self.now_ms = 0
        self.published: list[bytes] = []
        self.given_up = 0
        nonces = itertools.count()
        self.committer = GroupCommitter(
            self.journal,
            ClusterImage(),
            wall_ms=lambda: self.now_ms,
            new_nonce=lambda: f"nonce-{next(nonces)}",
            on_commit=self.published.append,
            on_give_up=self.give_up,
            **limits,
        )

    def give_up(self) -> None:
        self.given_up += 1
        assert self.committer.idle

    def add(self, *records: Record) -> "asyncio.Future[int]":
        """Add records.  Returns a future of the image's version when they are durable."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_outcome(error: StorageError | None) -> None:
            if error is None:
                future.set_result(self.committer.image.version)
            else:
                future.set_exception(error)

        self.committer.add(records, on_outcome)
        return future


def test_decisions_of_one_moment_share_a_commit() -> None:
    async def story() -> None:
        under_test = UnderTest()
        futures = [under_test.add(assigned(number)) for number in (1, 2, 3)]
        running = asyncio.create_task(under_test.committer.run())
        assert await asyncio.gather(*futures) == [1, 1, 1]
        assert under_test.committer.idle
        assert await under_test.add(assigned(4)) == 2
        under_test.committer.stop()
        await running
        assert under_test.journal.load() == under_test.committer.image
        assert under_test.backend.list("") == [commit_name(1), commit_name(2)]
        assert under_test.published == [
            encode_records(map(assigned, (1, 2, 3))),
            encode_records([assigned(4)]),
        ]

    run(story)


def test_answers_without_records_wait_for_what_was_decided_before_them() -> None:
    async def story() -> None:
        under_test = UnderTest()
        may_write = threading.Event()

        def wait_for_permission(operation: str, _path: str) -> None:
            if operation == "put_if_absent":
                may_write.wait(TIMEOUT_S)

        under_test.backend.faults.slow = wait_for_permission
        running = asyncio.create_task(under_test.committer.run())
        first = under_test.add(assigned(1))
        await asyncio.sleep(0)
        refusal = under_test.add()
        assert not under_test.committer.idle
        assert not (await asyncio.wait([first, refusal], timeout=0.05))[0]
        assert under_test.committer.image.version == 0
        may_write.set()
        assert await asyncio.gather(first, refusal) == [1, 1]
        under_test.committer.stop()
        await running
        assert under_test.committer.commits == 1

    run(story)


def test_stopping_commits_what_was_decided() -> None:
    async def story() -> None:
        under_test = UnderTest()
        future = under_test.add(assigned(1))
        under_test.committer.stop()
        await under_test.committer.run()
        assert future.result() == 1

    run(story)


def test_what_storage_refuses_is_given_up_with_all_that_was_decided_after_it() -> None:
    async def story() -> None:
        under_test = UnderTest()
        under_test.backend.faults.capacity_bytes = 0
        first = under_test.add(assigned(1))
        running = asyncio.create_task(under_test.committer.run())

        def decide_more(operation: str, _path: str) -> None:
            if operation == "exists":
                loop.call_soon_threadsafe(lambda: late.append(under_test.add()))

        loop, late = asyncio.get_running_loop(), []
        under_test.backend.faults.slow = decide_more
        with pytest.raises(StorageError, match="full"):
            await first
        for future in late:
            with pytest.raises(StorageError, match="full"):
                await future
        assert (len(late), under_test.given_up, under_test.published) == (1, 1, [])
        assert under_test.committer.image == ClusterImage()
        under_test.backend.faults.clear()
        assert await under_test.add(assigned(2)) == 1
        under_test.committer.stop()
        await running
        assert under_test.journal.load() == under_test.committer.image

    run(story)


def test_a_commit_that_may_have_been_written_ends_it_and_answers_nobody() -> None:
    async def story() -> None:
        under_test = UnderTest()
        under_test.backend.faults.fail_next(count=2, operation="put_if_absent", after=True)
        future = under_test.add(assigned(1))
        with pytest.raises(StorageError):
            await under_test.committer.run()
        assert not future.done()
        assert (under_test.given_up, under_test.committer.image) == (0, ClusterImage())
        assert under_test.backend.list("") == [commit_name(1)]

    run(story)


def test_a_collision_with_another_controller_ends_it() -> None:
    async def story() -> None:
        under_test = UnderTest()
        other = CommitHeader(version=1, controller_epoch=5, nonce="other", time_ms=0)
        under_test.journal.commit(other, encode_records([assigned(9)]))
        future = under_test.add(assigned(1))
        with pytest.raises(JournalConflict, match="controller of epoch 5"):
            await under_test.committer.run()
        assert not future.done()

    run(story)


@pytest.mark.parametrize("idle_s", [0, 60])
def test_an_idle_controller_notices_that_it_was_replaced(idle_s: int) -> None:
    """By the next commit, and once a minute by the head of the journal."""

    async def story() -> None:
        under_test = UnderTest(idle_check_s=0.01)
        under_test.now_ms = idle_s * 1000
        running = asyncio.create_task(under_test.committer.run())
        await asyncio.wait([running], timeout=0.05)
        assert not running.done()
        other = CommitHeader(version=1, controller_epoch=5, nonce="other", time_ms=0)
        under_test.journal.commit(other, encode_records([assigned(9)]))
        with pytest.raises(JournalConflict, match="another controller has written"):
            await running

    run(story)


def test_leadership_is_confirmed_between_commits() -> None:
    async def story() -> None:
        under_test = UnderTest()
        running = asyncio.create_task(under_test.committer.run())
        confirm = under_test.committer.confirm_leadership
        futures = [under_test.add(assigned(number)) for number in (1, 2)]
        await asyncio.gather(confirm(), under_test.add(assigned(3)), confirm(), *futures)
        await confirm()
        assert under_test.committer.image.version == under_test.committer.commits
        under_test.committer.stop()
        await running
        with pytest.raises(JournalConflict, match="this controller has ended"):
            await confirm()

    run(story)


def test_a_replaced_controller_confirms_nothing_and_ends() -> None:
    async def story() -> None:
        under_test = UnderTest()
        running = asyncio.create_task(under_test.committer.run())
        await under_test.add(assigned(1))
        other = CommitHeader(version=2, controller_epoch=5, nonce="other", time_ms=0)
        under_test.journal.commit(other, encode_records([assigned(9)]))
        with pytest.raises(JournalConflict, match="another controller has written"):
            await under_test.committer.confirm_leadership()
        with pytest.raises(JournalConflict, match="another controller has written"):
            await running

    run(story)


def test_a_journal_that_cannot_be_read_confirms_nothing_but_goes_on() -> None:
    async def story() -> None:
        under_test = UnderTest()
        running = asyncio.create_task(under_test.committer.run())
        under_test.backend.faults.fail_next(operation="exists")
        with pytest.raises(StorageError):
            await under_test.committer.confirm_leadership()
        await under_test.committer.confirm_leadership()
        assert await under_test.add(assigned(1)) == 1
        under_test.committer.stop()
        await running

    run(story)


def test_after_a_long_sleep_the_head_is_read_before_a_commit() -> None:
    async def story() -> None:
        under_test = UnderTest()
        under_test.now_ms = 2 * DAY_MS
        future = under_test.add(assigned(1))
        under_test.committer.stop()
        await under_test.committer.run()
        assert future.result() == 1
        under_test.now_ms = 4 * DAY_MS
        under_test.journal.write_checkpoint(
            CommitHeader(version=7, controller_epoch=2, nonce="other", time_ms=0), ()
        )
        under_test.add(assigned(2))
        with pytest.raises(JournalConflict, match="another controller has written"):
            await under_test.committer.run()
        assert under_test.backend.list("") == [commit_name(1), checkpoint_name(7)]

    run(story)


def test_a_commit_during_which_it_slept_too_long_is_not_believed() -> None:
    async def story() -> None:
        under_test = UnderTest()

        def sleep_long(operation: str, _path: str) -> None:
            if operation == "put_if_absent":
                under_test.now_ms += DAY_MS

        under_test.backend.faults.slow = sleep_long
        future = under_test.add(assigned(1))
        with pytest.raises(JournalConflict, match="stood still for 86400 s"):
            await under_test.committer.run()
        assert not future.done()

    run(story)


def test_checkpoints_come_every_so_many_commits_and_may_fail() -> None:
    async def story() -> None:
        under_test = UnderTest(checkpoint_every=2)
        under_test.backend.faults.fail_next(operation="put_if_absent", under="checkpoint")
        running = asyncio.create_task(under_test.committer.run())
        for number in (1, 2, 3, 4, 5):
            await under_test.add(assigned(number))
        under_test.committer.stop()
        await running
        written = [name for name in under_test.backend.list("") if "checkpoint" in name]
        assert written == [checkpoint_name(4)]
        for number in (1, 2, 3, 4):
            under_test.backend.delete(commit_name(number))
        assert under_test.journal.load() == under_test.committer.image

    run(story)


def test_checkpoints_come_earlier_when_commits_are_large_those_before_a_start_included() -> None:
    async def story() -> None:
        under_test = UnderTest(tail_bytes_max=480)
        for version in (1, 2):
            data = encode_records((assigned(version),))
            under_test.journal.commit(under_test.committer._header(version), data)
        under_test.committer.image = under_test.journal.load()
        running = asyncio.create_task(under_test.committer.run())
        for number in range(3, 9):
            await under_test.add(assigned(number))
        under_test.committer.stop()
        await running
        written = [name for name in under_test.backend.list("") if "checkpoint" in name]
        assert written == [checkpoint_name(4), checkpoint_name(8)]
        assert under_test.journal.load() == under_test.committer.image

    run(story)


# -- the metadata feed


class Feed:
    """A metadata feed and its image."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.feed = MetadataFeed(lambda: self.image)

    def commit(self, broker_id: int) -> bytes:
        records = (assigned(broker_id),)
        self.image.replay_commit(self.image.version + 1, records)
        encoded = encode_records(records)
        self.feed.publish(encoded)
        return encoded

    def watch(self, since: int, max_wait_ms: int = 0) -> Any:
        return self.feed.watch(WatchMetadataRequest(since=since, max_wait_ms=max_wait_ms))


def news(version: int, *commits: bytes, snapshot: bool = False) -> WatchMetadataResponse:
    return WatchMetadataResponse(
        controller_epoch=0, snapshot=snapshot, version=version, commits=commits
    )


def test_watchers_get_what_they_have_not_seen() -> None:
    feed = Feed()
    commits = [feed.commit(number) for number in (1, 2, 3)]
    snapshot = encode_records(feed.image.snapshot_records())
    assert feed.watch(since=3) == news(3)
    assert feed.watch(since=1) == news(3, *commits[1:])
    assert feed.watch(since=0) == news(3, *commits)
    assert feed.watch(since=-1) == news(3, snapshot, snapshot=True)
    assert feed.watch(since=4) == news(3, snapshot, snapshot=True)


def test_who_is_too_far_behind_gets_a_snapshot() -> None:
    feed = Feed()
    last = [feed.commit(number) for number in range(COMMITS_MAX + 1)]
    version = COMMITS_MAX + 1
    assert feed.watch(since=1) == news(version, *last[1:])
    assert feed.watch(since=0).snapshot


def test_a_snapshot_is_used_again_until_the_commits_since_are_larger() -> None:
    feed = Feed()
    for number in range(1, 11):
        feed.commit(number)
    snapshot = encode_records(feed.image.snapshot_records())
    assert feed.watch(since=-1) == news(10, snapshot, snapshot=True)
    later: list[bytes] = []
    while sum(map(len, later)) <= len(snapshot):
        version = feed.image.version
        assert feed.watch(since=-1) == news(version, snapshot, *later, snapshot=True)
        later.append(feed.commit(version + 1))
    fresh = encode_records(feed.image.snapshot_records())
    assert feed.watch(since=-1) == news(feed.image.version, fresh, snapshot=True)
    feed.commit(1)
    for number in range(COMMITS_MAX):
        feed.commit(number)
    fresh = encode_records(feed.image.snapshot_records())
    assert feed.watch(since=-1) == news(feed.image.version, fresh, snapshot=True)


def test_watchers_wait_for_the_next_commit() -> None:
    async def story() -> None:
        feed = Feed()
        first = feed.watch(since=0, max_wait_ms=5000)
        second = feed.watch(since=0, max_wait_ms=5000)
        assert feed.feed.watchers == 2
        encoded = feed.commit(1)
        assert await first == await second == news(1, encoded)
        assert feed.feed.watchers == 0

    run(story)


def test_waiting_ends_after_its_time_and_at_the_end() -> None:
    async def story() -> None:
        feed = Feed()
        assert await feed.watch(since=0, max_wait_ms=10) == news(0)
        waiting = feed.watch(since=0, max_wait_ms=5000)
        feed.feed.close()
        assert await waiting == news(0)
        assert feed.watch(since=0, max_wait_ms=5000) == news(0)

    run(story)
