"""Copying from one leader: a connection, requests and answers, and what the answers do to the logs.

Owns: the connection, at most one request that waits and the one that overtakes it, and when it is
tried again.  Must not know which replicas follow which leader, nor what is asked (``LeaderFetch``).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, assert_never

from sparklog.client.connection import Connection
from sparklog.errors import ConnectError, DecodeError, KafkaError, ProtocolError
from sparklog.executors.leader_fetch import (
    Answered,
    Diverged,
    FellBehind,
    Fetched,
    LeaderFetch,
    Refused,
)
from sparklog.executors.partition import Partition
from sparklog.executors.partitions import PartitionTable
from sparklog.metadata import BrokerImage
from sparklog.service.doubts import Doubts
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.codec import encode_request
from sparklog.wire.fetch import decode_fetch_response
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse

RETRY_S_MIN = 0.05
#: A leader that takes so much longer than it may is given up, and connected to anew.
ANSWER_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


#: Takes what a leader said of a log that is not its own.
Truncate: TypeAlias = Callable[[Diverged[Partition] | FellBehind[Partition]], None]


class _UnderWay(NamedTuple):
    correlation_id: int
    answer: "asyncio.Task[memoryview]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherTools:
    """What every fetcher of a broker works with.

    ``broker``: as the image has it.  ``broker_epoch``: of this one.  ``doubts`` hears of leaders
    whose connection breaks.
    """

    table: PartitionTable
    connect: Callable[[Endpoint], Awaitable[Connection]]
    broker: Callable[[int], BrokerImage | None]
    broker_epoch: Callable[[], int]
    doubts: Doubts


class ReplicaFetcher:
    """Follows one leader until it is cancelled; ``run`` it in a task.

    ``truncate`` returns at once and sees to it that the replica is followed again when it is done.
    """

    def __init__(self, leader_id: int, tools: FetcherTools, truncate: Truncate) -> None:
        table = tools.table
        self.leader_id = leader_id
        self._tools = tools
        self._truncate = truncate
        self._table = table
        self._fetch: LeaderFetch[Partition] = LeaderFetch(
            table.node_id, table.broker_config, table.throttle.wait_ms
        )
        self._woken = asyncio.Event()
        self._moved = asyncio.Event()
        self._leader: BrokerImage | None = None
        self._failures = 0

    def __len__(self) -> int:
        return len(self._fetch)

    # replicas

    def follow(self, partition: Partition) -> None:
        """Fetch this replica, at once."""
        self._fetch.follow(partition)
        self._woken.set()

    def leave(self, topic_partition: TopicPartition) -> None:
        """Fetch it no more."""
        self._fetch.leave(topic_partition)

    def touch(self, topic_partition: TopicPartition) -> None:
        """The position of a replica may be another one."""
        self._fetch.touch(topic_partition)
        self._woken.set()

    def delay(self, topic_partition: TopicPartition) -> None:
        """Something is wrong with a replica: fetch it later."""
        self._fetch.delay(topic_partition, self._now_ms())
        self._woken.set()

    def look_for_leader(self) -> None:
        """The image is another one: the leader may be another process."""
        if self._tools.broker(self.leader_id) != self._leader:
            self._moved.set()
            self._woken.set()

    # the connection

    async def run(self) -> None:
        """Fetch for ever; trouble is tried again, soon at first."""
        while True:
            try:
                await self._connect_and_fetch()
            except (ConnectError, ProtocolError, DecodeError, KafkaError) as error:
                level = logging.DEBUG if self._failures else logging.INFO
                logger.log(level, "no fetch from broker %d: %s", self.leader_id, error)
            if not self._moved.is_set():
                await self._pause()

    async def _connect_and_fetch(self) -> None:
        """Returns when the leader has moved."""
        self._moved.clear()
        leader = self._leader = self._tools.broker(self.leader_id)
        if leader is None or not leader.registered:
            raise ConnectError(f"it is not known where broker {self.leader_id} listens")
        connection = await self._tools.connect(leader.endpoint)
        doubts = self._tools.doubts
        doubts.heard(self.leader_id)
        connection.call_on_loss(partial(doubts.lost, self.leader_id, leader.broker_epoch))
        try:
            await self._converse(connection)
        finally:
            self._fetch.lost()
            connection.close()

    async def _pause(self) -> None:
        longest_s = self._table.broker_config.replica_fetch_backoff_ms / 1000
        pause_s = min(RETRY_S_MIN * 2 ** min(self._failures, 20), longest_s)
        self._failures += 1
        try:
            async with asyncio.timeout(pause_s):  # wait_for can lose a cancellation
                await self._moved.wait()
        except TimeoutError:
            return

    async def _converse(self, connection: Connection) -> None:
        version = connection.version_for(FetchRequest)
        under_way: deque[_UnderWay] = deque()
        try:
            while not self._moved.is_set():
                self._woken.clear()
                while under_way and under_way[0].answer.done():
                    correlation_id, answer = under_way.popleft()
                    received = answer.result()
                    answered_id, response = decode_fetch_response(version, received)
                    connection.check_correlation(correlation_id, answered_id)
                    self._take(response)
                    connection.give_back(received)
                request = self._fetch.next_request(self._tools.broker_epoch(), self._now_ms())
                if request is not None:
                    under_way.append(self._send(connection, version, request))
                await self._wait()
        finally:
            for each in under_way:
                each.answer.cancel()
            await asyncio.gather(*(each.answer for each in under_way), return_exceptions=True)

    async def _wait(self) -> None:
        """Until there is an answer or something to ask."""
        retry_ms = self._fetch.retry_ms
        if retry_ms is None:
            await self._woken.wait()
            return
        pause_s = max(retry_ms - self._now_ms(), 0) / 1000
        timer = asyncio.get_running_loop().call_later(pause_s, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    def _send(self, connection: Connection, version: int, request: FetchRequest) -> _UnderWay:
        correlation_id = connection.next_correlation_id()
        payload = encode_request(request, version, correlation_id, connection.client_id)
        timeout_s = request.max_wait_ms / 1000 + ANSWER_TIMEOUT_S
        answer = asyncio.create_task(
            connection.exchange(FetchRequest.API_KEY, (payload,), timeout_s=timeout_s)
        )
        answer.add_done_callback(lambda _: self._woken.set())
        return _UnderWay(correlation_id, answer)

    # answers

    def _take(self, response: FetchResponse) -> None:
        for each in self._fetch.answered(response, self._now_ms()):
            self._carry_out(each)
        self._failures = 0

    def _carry_out(self, answered: Answered[Partition]) -> None:
        match answered:
            case Fetched():
                self._append(answered)
            case Diverged() | FellBehind():
                self._truncate(answered)
            case Refused():
                logger.debug(
                    "broker %d gives nothing of %s: error %d",
                    self.leader_id, answered.replica.topic_partition, answered.code,
                )  # fmt: skip
            case _:
                assert_never(answered)

    def _append(self, fetched: Fetched[Partition]) -> None:
        partition, size = fetched.replica, len(fetched.records)
        tp = partition.topic_partition
        try:
            effects = partition.append_as_follower(
                fetched.records,
                fetch_offset=fetched.position.offset,
                leader_epoch=fetched.position.current_leader_epoch,
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
                now_ms=self._table.now_ms(),
            )
        except KafkaError as error:
            logger.warning("records of %s are not taken: %s", tp, error)
            self._table.hear(tp, error)
            self._table.carry_out(partition.plan_flush(self._table.now_ms()))
            self._fetch.delay(tp, self._now_ms())
            return
        self._table.carry_out(effects)
        self._table.counters.replication_bytes_in += size
        self._table.throttle.fetched(partition, size, self._now_ms())
        self._fetch.touch(tp)
        if size and partition.fetch_position() == fetched.position:
            self._fetch.delay(tp, self._now_ms())  # it would be sent again and again

    def _now_ms(self) -> int:
        """Of the loop's clock, because that of the day may jump."""
        return int(asyncio.get_running_loop().time() * 1000)
