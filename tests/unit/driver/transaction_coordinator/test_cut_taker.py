"""Consistent cuts over leaders: what they show, and what they leave behind when they fail."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from sparklog.driver.transaction_coordinator import partition_coordinator
from sparklog.driver.transactions import ConsistentCuts
from sparklog.errors import ClosedError, ErrorCode, KafkaError
from tests.support.waiting import until
from tests.unit.driver.transaction_coordinator.cut_rig import A0, A1, BOTH, CutRig
from tests.unit.driver.transaction_coordinator.fake_log import FakeLog


def run(story: Callable[[CutRig], Awaitable[None]]) -> None:
    async def within() -> None:
        with patch.object(partition_coordinator, "_RETRY_S", (0.001, 0.002)):
            rig = CutRig(FakeLog())
            await asyncio.wait_for(story(rig), 20)
            await rig.close()

    asyncio.run(within())


async def refused(cut: "asyncio.Task[object]") -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await cut
    return caught.value


async def offsets_one_by_one(rig: CutRig) -> "dict[object, int]":
    """The last stable offsets without a cut."""
    return {tp: rig.leaders.last_stable_offset(tp) for tp in sorted(BOTH)}


def test_a_cut_waits_for_the_marker_that_offsets_one_by_one_would_miss() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        await rig.commit("x", await rig.begin("x", A0, A1))
        rig.deliver(A0)
        assert await offsets_one_by_one(rig) == {A0: 2, A1: 0}  # a torn transaction
        cut = rig.take()
        await asyncio.sleep(0.01)
        assert (cut.done(), rig.leaders.asked) == (False, 0)
        rig.deliver(A1)
        assert await cut == {A0: 2, A1: 2}
        assert rig.leaders.refreshed == [["a"]]
        assert (rig.taker.taken, rig.taker.failed) == (1, 0)

    run(story)


async def commit_while_offsets_are_collected(rig: CutRig) -> "dict[object, int]":
    """The offset of partition 0 is read before the commit, that of partition 1 after its marker."""
    await rig.load()
    producer = await rig.begin("x", A0, A1)
    rig.leaders.answers.clear()
    cut = rig.take()
    await until(lambda: rig.leaders.asked == 2)
    committing = rig.commit("x", producer)
    await asyncio.wait((committing,), timeout=0.05)
    rig.deliver(A0, A1)
    rig.leaders.answers.set()
    offsets = await cut
    await committing
    return dict(offsets)


def test_a_commit_waits_until_the_offsets_are_collected() -> None:
    async def story(rig: CutRig) -> None:
        assert await commit_while_offsets_are_collected(rig) == {A0: 0, A1: 0}

    run(story)


def test_without_the_hold_the_same_story_tears_the_transaction() -> None:
    async def story(rig: CutRig) -> None:
        with patch.object(ConsistentCuts, "holds_commit", lambda *_: False):
            assert await commit_while_offsets_are_collected(rig) == {A0: 0, A1: 2}

    run(story)


def test_a_late_cut_fails_and_what_it_held_back_goes_on() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        producer = await rig.begin("x", A0, A1)
        rig.leaders.answers.clear()
        cut = rig.take(max_wait_ms=100)
        await until(lambda: rig.leaders.asked == 2)
        committing = rig.commit("x", producer)
        error = await refused(cut)
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert error.message == "the leaders have not told their last stable offsets in time"
        assert await committing == producer
        assert (rig.taker.taken, rig.taker.failed) == (0, 1)

    run(story)


def test_a_cut_that_drains_too_long_names_the_transaction() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        await rig.commit("x", await rig.begin("x", A0, A1))
        rig.deliver(A1)
        cut = rig.take(max_wait_ms=100)
        beginning = asyncio.ensure_future(rig.begin("y", A0))
        await asyncio.sleep(0.02)
        assert not beginning.done()
        error = await refused(cut)
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert "transaction 'x' was open in a-0" in str(error)
        await beginning

    run(story)


def test_a_cut_is_refused_at_once_because_of_a_transaction_that_is_open_for_long() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        await rig.begin("old", A0)
        await rig.commit("x", await rig.begin("x", A0, A1))
        rig.deliver(A0, A1)
        await asyncio.sleep(0.02)
        error = await refused(rig.take(max_wait_ms=10))
        assert error.code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert "transaction 'old' was open in a-0" in str(error)

    run(story)


def test_a_cut_whose_client_has_gone_holds_nothing_back() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        producer = await rig.begin("x", A0, A1)
        rig.leaders.answers.clear()
        cut = rig.take()
        await until(lambda: rig.leaders.asked == 2)
        committing = rig.commit("x", producer)
        cut.cancel()
        assert await committing == producer

    run(story)


def test_cuts_of_the_same_partitions_come_one_after_the_other() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        producer = await rig.begin("x", A0, A1)
        rig.leaders.answers.clear()
        first, second = rig.take(), rig.take()
        await until(lambda: rig.leaders.asked == 2)
        committing = rig.commit("x", producer)
        rig.leaders.answers.set()
        assert await first == {A0: 0, A1: 0}
        await committing
        rig.deliver(A0, A1)
        assert await second == {A0: 2, A1: 2}

    run(story)


def test_without_transactions_a_cut_needs_no_coordinator() -> None:
    async def story(rig: CutRig) -> None:
        rig.leaders.append(A0, "plain")
        rig.leaders.mark(A0, "plain")
        assert await rig.take() == {A0: 2, A1: 0}

    run(story)


def test_transactions_that_begin_with_the_topic_make_a_cut_fail() -> None:
    async def story(rig: CutRig) -> None:
        rig.leaders.answers.clear()
        cut = rig.take()
        await until(lambda: rig.leaders.asked == 2)
        await rig.load()
        rig.leaders.answers.set()
        assert (await refused(cut)).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(story)


def test_there_is_no_cut_while_transactions_are_loaded() -> None:
    async def story(rig: CutRig) -> None:
        rig.partitions.append(rig.partition)
        assert (await refused(rig.take())).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(story)


def test_a_cut_fails_when_transactions_are_loaded_again_meanwhile() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        await rig.begin("x", A0, A1)
        await rig.begin("y", A0)
        rig.leaders.answers.clear()
        cut = rig.take()
        await until(lambda: rig.leaders.asked == 2)
        before = rig.partition.shard
        rig.fake.forget(1)
        with pytest.raises(KafkaError):
            await rig.begin("z", A0)
        await until(lambda: rig.partition.shard not in (before, None))
        rig.leaders.answers.set()
        error = await refused(cut)
        assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert error.message == "transactions were loaded while the cut was taken"

    run(story)


def test_a_controller_that_was_replaced_gives_no_cut() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        rig.leadership = KafkaError(ErrorCode.NOT_CONTROLLER, "another controller")
        assert await refused(rig.take()) == rig.leadership

    run(story)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "a-1"), ErrorCode.LEADER_NOT_AVAILABLE),
        (ClosedError("the client is closed"), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_without_the_offsets_of_a_leader_there_is_no_cut(error: Exception, code: ErrorCode) -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        producer = await rig.begin("x", A0, A1)
        rig.leaders.error = error
        assert (await refused(rig.take())).code == code
        await rig.commit("x", producer)

    run(story)


def test_a_coordinator_that_stops_refuses_cuts_that_drain() -> None:
    async def story(rig: CutRig) -> None:
        await rig.load()
        await rig.commit("x", await rig.begin("x", A0, A1))
        cut = rig.take()
        await asyncio.sleep(0.01)
        rig.taker.close()
        assert (await refused(cut)).code == ErrorCode.NOT_CONTROLLER

    run(story)
