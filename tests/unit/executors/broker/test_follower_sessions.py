"""What the fetches of followers come to at their leader: marks, waiting, and who may ask.

The real handler over real partitions; the follower says what it wants by hand.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers import fetch
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.metadata import BrokerImage
from sparklog.metadata.records import BrokerRegistered
from sparklog.service.handler import RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tests.support.batches import batch
from tests.unit.executors.broker.test_session_model import (
    BIG,
    FOLLOWER,
    NOW,
    TOPIC_ID,
    Peer,
    open_table,
    told_in,
)

WAIT_MS = 60_000
THIRD = FOLLOWER + 1


class Leader:
    """A broker that leads partitions of one topic."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self.replica_manager = replica_manager

    @property
    def partition(self) -> Partition:
        partition = self.replica_manager.get(TopicPartition("t", 0))
        assert partition is not None
        return partition

    def append(self, *values: bytes) -> None:
        appended = self.partition.append_as_leader(batch(*values), acks=1, now_ms=NOW)
        self.replica_manager.carry_out(appended.effects)

    def ask(
        self,
        session: tuple[int, int],
        offset: int | None = None,
        *,
        replica_id: int = FOLLOWER,
        replica_epoch: int = -1,
        max_wait_ms: int = 0,
        **more: int,
    ) -> Any:
        parts = (
            () if offset is None else (FetchPartition(partition=0, fetch_offset=offset, **more),)
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
            session_id=session[0],
            session_epoch=session[1],
            max_bytes=BIG,
            min_bytes=1,
            max_wait_ms=max_wait_ms,
            topics=(FetchTopic(topic_id=TOPIC_ID, partitions=parts),) if parts else (),
        )
        header = RequestHeader(api_key=1, api_version=18, correlation_id=1, client_id="t")
        context = RequestContext(header=header, connection=Peer())  # type: ignore[arg-type]
        return fetch.handler(self.replica_manager).handle(context, request)


def lead(test: Callable[[Leader], Awaitable[None]]) -> None:
    async def within() -> None:
        replica_manager = await open_table()
        await test(Leader(replica_manager))
        await replica_manager.close()

    asyncio.run(within())


def test_a_follower_hears_of_the_high_watermark_that_its_own_fetch_moved() -> None:
    async def test(leader: Leader) -> None:
        session_id = leader.ask((0, 0), 0).session_id
        leader.append(b"a")
        ((mark, values),) = told_in(leader.ask((session_id, 1))).values()
        assert (mark, values) == ((0, 0, 0), [b"a"])
        # The follower has it: that alone moves the high watermark.
        heard = [told_in(leader.ask((session_id, 2), 1)), told_in(leader.ask((session_id, 3)))]
        assert leader.partition.high_watermark == 1
        marks = [told[0][0] for told in heard if told]
        assert marks[-1] == (0, 1, 0)

    lead(test)


def test_a_follower_that_waits_hears_of_the_high_watermark_a_little_later() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        session_id = leader.ask((0, 0), 0, high_watermark=0).session_id
        # What it fetched has come, and so does the mark that it moves by asking for more.
        answer = leader.ask((session_id, 1), 1, high_watermark=0, max_wait_ms=WAIT_MS)
        assert not answer.done()
        assert told_in(await answer) == {0: ((0, 1, 0), [])}
        waiting = leader.ask((session_id, 2), max_wait_ms=WAIT_MS)
        assert not waiting.done()

    lead(test)


def test_a_high_watermark_that_moves_while_a_follower_waits_is_told_with_the_next_records() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        session_id = leader.ask((0, 0), 1, high_watermark=0).session_id
        state = leader.partition.state
        assert state is not None
        three = (leader.partition.node_id, FOLLOWER, THIRD)
        more = replace(state, replicas=three, isr=three, partition_epoch=state.partition_epoch + 1)
        leader.partition.make_leader_or_follower(more, 0)
        leader.append(b"b")
        told_in(leader.ask((session_id, 1), 1))
        waiting = leader.ask((session_id, 2), 2, max_wait_ms=WAIT_MS)
        leader.replica_manager.carry_out(leader.partition.update_follower_fetch_state(THIRD, 2))
        assert not waiting.done()
        assert leader.partition.high_watermark == 2
        leader.append(b"c")
        assert waiting.done()
        assert told_in(await waiting) == {0: ((0, 2, 0), [b"c"])}

    lead(test)


def test_a_follower_without_a_session_says_which_high_watermark_it_has() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        once = (0, -1)
        answer = leader.ask(once, 1, high_watermark=0, max_wait_ms=WAIT_MS)
        assert told_in(await answer) == {0: ((0, 1, 0), [])}
        assert not leader.ask(once, 1, high_watermark=1, max_wait_ms=WAIT_MS).done()

    lead(test)


def test_what_a_follower_says_it_has_is_told_again_when_it_was_lost() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        session_id = leader.ask((0, 0), 1).session_id
        assert told_in(leader.ask((session_id, 1), 1, high_watermark=1)) == {}
        assert told_in(leader.ask((session_id, 2), 1, high_watermark=0)) == {0: ((0, 1, 0), [])}

    lead(test)


def test_a_log_start_that_was_told_in_vain_is_told_again() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a", b"b")
        session_id = leader.ask((0, 0), 2, high_watermark=0, log_start_offset=0).session_id
        leader.replica_manager.carry_out(leader.partition.delete_records(2))
        assert told_in(leader.ask((session_id, 1))) == {0: ((0, 2, 2), [])}
        # Its own retention came first, so it asks again instead of taking the answer.
        answer = leader.ask((session_id, 2), 2, high_watermark=2, log_start_offset=1)
        assert told_in(answer) == {0: ((0, 2, 2), [])}
        answer = leader.ask((session_id, 3), 2, high_watermark=2, log_start_offset=2)
        assert told_in(answer) == {}

    lead(test)


def test_a_follower_that_is_out_of_range_learns_where_the_log_starts() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a", b"b")
        leader.ask((0, -1), 2)
        leader.partition.delete_records(1)
        out_of_range = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        assert told_in(leader.ask((0, -1), 0)) == {0: ((out_of_range, -1, 1), [])}
        assert told_in(leader.ask((0, -1), 0, replica_id=-1)) == {0: ((out_of_range, -1, -1), [])}

    lead(test)


def test_a_broker_without_a_replica_gets_nothing() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        elsewhere = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert told_in(leader.ask((0, -1), 1, replica_id=7)) == {0: ((elsewhere, -1, -1), [])}
        assert leader.partition.high_watermark == 0

    lead(test)


def test_a_process_that_has_had_a_successor_is_not_heard() -> None:
    async def test(leader: Leader) -> None:
        leader.append(b"a")
        broker = BrokerImage(broker_id=FOLLOWER, directory_id=UUID(int=3), broker_epoch=9)
        leader.replica_manager.image.replay(BrokerRegistered(broker=broker, clean=False))
        with pytest.raises(KafkaError) as refused:
            leader.ask((0, -1), 1, replica_epoch=8)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert leader.partition.high_watermark == 0
        leader.ask((0, -1), 1, replica_epoch=9)
        assert leader.partition.high_watermark == 1

    lead(test)
