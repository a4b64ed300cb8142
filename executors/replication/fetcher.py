"""Copying from one leader: a connection, requests and answers, and what the answers do to the logs.

Owns: the connection, at most one request that waits and the one that overtakes it, and when it is
tried again.  Must not know which replicas follow which leader, nor what is asked
(``FollowerFetch``).

An answer is taken, and the next request sent, as it is received: under load that is most of what a
broker does, so no task stands between them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never

from sparklog.client.connection import Connection
from sparklog.errors import ConnectError, DecodeError, ErrorCode, KafkaError, ProtocolError
from sparklog.executors.partition import Partition, sound_until
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.replication.follower_fetch import (
    Answered,
    Diverged,
    FellBehind,
    Fetched,
    FollowerFetch,
    Refused,
)
from sparklog.metadata import BrokerImage
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.protocol.private import ReportDamageRequest

RETRY_S_MIN = 0.05
#: Errors of records that a leader sent, and that it should look at again.
_DAMAGE_CODES = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
#: A leader that takes so much longer than it may is given up, and connected to anew.
ANSWER_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


#: Takes what a leader said of a log that is not its own.
Truncate: TypeAlias = Callable[[Diverged[Partition] | FellBehind[Partition]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherTools:
    """What every fetcher of a broker works with.

    ``broker``: as the image has it.  ``broker_epoch``: of this one.  ``suspected_brokers`` gets the
    leaders whose connection breaks.
    """

    replica_manager: ReplicaManager
    connect: Callable[[Endpoint], Awaitable[Connection]]
    broker: Callable[[int], BrokerImage | None]
    broker_epoch: Callable[[], int]
    suspected_brokers: SuspectedBrokers


class ReplicaFetcher:
    """Follows one leader until it is cancelled; ``run`` it in a task.

    ``truncate`` returns at once and sees to it that the replica is followed again when it is done.
    """

    def __init__(self, leader_id: int, tools: FetcherTools, truncate: Truncate) -> None:
        replica_manager = tools.replica_manager
        self.leader_id = leader_id
        self._tools = tools
        self._truncate = truncate
        self._replica_manager = replica_manager
        self._fetch: FollowerFetch[Partition] = FollowerFetch(
            replica_manager.node_id, replica_manager.broker_config, replica_manager.throttle.wait_ms
        )
        self._moved = asyncio.Event()
        self._leader: BrokerImage | None = None
        self._failures = 0
        #: The one that is open, and what ends it.
        self._talk: _Talk | None = None

    def __len__(self) -> int:
        return len(self._fetch)

    # replicas

    def follow(self, partition: Partition) -> None:
        """Fetch this replica, at once."""
        self._fetch.follow(partition)
        self._wake()

    def leave(self, topic_partition: TopicPartition) -> None:
        """Fetch it no more."""
        self._fetch.leave(topic_partition)

    def touch(self, topic_partition: TopicPartition) -> None:
        """The position of a replica may be another one."""
        self._fetch.touch(topic_partition)
        self._wake()

    def delay(self, topic_partition: TopicPartition) -> None:
        """Something is wrong with a replica: fetch it later."""
        self._fetch.delay(topic_partition, self._now_ms())
        self._wake()

    def look_for_leader(self) -> None:
        """The image is another one: the leader may be another process."""
        if self._tools.broker(self.leader_id) != self._leader:
            self._moved.set()
            if self._talk is not None:
                self._talk.end(None)

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
        suspected_brokers = self._tools.suspected_brokers
        suspected_brokers.mark_alive(self.leader_id)
        connection.call_on_loss(
            partial(suspected_brokers.connection_lost, self.leader_id, leader.broker_epoch)
        )
        try:
            await self._converse(connection)
        finally:
            self._fetch.lost()
            connection.close()

    async def _pause(self) -> None:
        longest_s = self._replica_manager.broker_config.replica_fetch_backoff_ms / 1000
        pause_s = min(RETRY_S_MIN * 2 ** min(self._failures, 20), longest_s)
        self._failures += 1
        try:
            async with asyncio.timeout(pause_s):  # wait_for can lose a cancellation
                await self._moved.wait()
        except TimeoutError:
            return

    async def _converse(self, connection: Connection) -> None:
        """Returns when the leader has moved; raises what broke."""
        talk = self._talk = _Talk(connection)
        try:
            if not self._moved.is_set():
                self._ask(talk)
                await talk.ended
        finally:
            self._talk = None
            talk.close()

    def _wake(self) -> None:
        """There may be something to ask; of all that comes up in this turn of the loop at once."""
        talk = self._talk
        if talk is not None and not talk.turn_wanted:
            talk.turn_wanted = True
            talk.loop.call_soon(self._turn, talk)

    def _turn(self, talk: "_Talk") -> None:
        talk.turn_wanted = False
        if self._talk is talk and not talk.ended.done():
            self._ask(talk)

    def _ask(self, talk: "_Talk") -> None:
        """Send what is to be said now, and come back when the next delay ends."""
        try:
            request = self._fetch.next_request(self._tools.broker_epoch(), self._now_ms())
            if request is not None:
                self._send(talk, request)
        except Exception as error:
            talk.end(error)
            return
        retry_ms = self._fetch.retry_ms
        # By what is left of it: a moment in milliseconds may lie a rounding error after its second.
        left_s = None if retry_ms is None else max(retry_ms - self._now_ms(), 0) / 1000
        talk.call_after(left_s, self._wake)

    def _send(self, talk: "_Talk", request: FetchRequest) -> None:
        connection, version = talk.connection, talk.version
        correlation_id = connection.next_correlation_id()
        payload = encode_request(request, version, correlation_id, connection.client_id)
        connection.ask((payload,), partial(self._received, talk, correlation_id))
        talk.expect(request.max_wait_ms / 1000 + ANSWER_TIMEOUT_S)

    def _received(
        self, talk: "_Talk", correlation_id: int, received: memoryview | ConnectError
    ) -> None:
        if self._talk is not talk or talk.ended.done():
            return
        try:
            if isinstance(received, ConnectError):
                raise received
            talk.heard()
            answered_id, response = decode_fetch_response(talk.version, received)
            talk.connection.check_correlation(correlation_id, answered_id)
            self._take(response)
            talk.connection.give_back(received)
        except Exception as error:
            talk.end(error)
            return
        self._ask(talk)

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
                now_ms=self._replica_manager.now_ms(),
            )
        except KafkaError as error:
            logger.warning("records of %s are not taken: %s", tp, error)
            self._replica_manager.report_error(tp, error)
            self._replica_manager.carry_out(partition.plan_flush(self._replica_manager.now_ms()))
            self._fetch.delay(tp, self._now_ms())
            if error.code in _DAMAGE_CODES:
                self._report_damage(fetched)
            return
        self._replica_manager.carry_out(effects)
        self._replica_manager.counters.replication_bytes_in += size
        self._replica_manager.throttle.fetched(partition, size, self._now_ms())
        self._fetch.touch(tp)
        if size and partition.fetch_position() == fetched.position:
            self._fetch.delay(tp, self._now_ms())  # it would be sent again and again

    def _report_damage(self, fetched: Fetched[Partition]) -> None:
        """Have the leader look at the bytes that it sent; they are fetched again after the pause.

        A report that is lost follows the next fetch.
        """
        if self._talk is None:
            return
        partition, connection = fetched.replica, self._talk.connection
        report = ReportDamageRequest(
            topic_id=partition.topic_id,
            partition=partition.topic_partition.partition,
            offset=sound_until(fetched.records, fetched.position.offset),
        )
        correlation_id = connection.next_correlation_id()
        connection.ask(
            (encode_request(report, 0, correlation_id, connection.client_id),), lambda _: None
        )

    def _now_ms(self) -> int:
        """Of the loop's clock, because that of the day may jump."""
        return int(asyncio.get_running_loop().time() * 1000)


class _Talk:
    """One open connection: when it ends, and what it waits for."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.version = connection.version_for(FetchRequest)
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.turn_wanted = False
        #: When the answers to the requests under way are overdue.
        self._deadlines_s: deque[float] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None

    def end(self, error: BaseException | None) -> None:
        """Because of ``error``, or because the leader is elsewhere."""
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def close(self) -> None:
        """Wait for nothing any more."""
        for timer in (self._watch, self._delay):
            if timer is not None:
                timer.cancel()
        if not self.ended.cancel() and not self.ended.cancelled():
            self.ended.exception()  # somebody looked

    def call_after(self, delay_s: float | None, callback: Callable[[], None]) -> None:
        """Once, instead of what was asked for before; None: not at all."""
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
        if delay_s is not None:
            self._delay = self.loop.call_later(delay_s, callback)

    def expect(self, timeout_s: float) -> None:
        """A request is under way that is answered within so long."""
        self._deadlines_s.append(self.loop.time() + timeout_s)
        if self._watch is None:
            self._watch = self.loop.call_at(self._deadlines_s[0], self._look)

    def heard(self) -> None:
        """The oldest request was answered."""
        self._deadlines_s.popleft()

    def _look(self) -> None:
        # One timer for many answers: it is armed anew only when it has fired.
        self._watch = None
        if not self._deadlines_s:
            return
        if self._deadlines_s[0] > self.loop.time():
            self._watch = self.loop.call_at(self._deadlines_s[0], self._look)
            return
        late = f"{self.connection.endpoint} did not answer a fetch in time"
        self.end(KafkaError(ErrorCode.REQUEST_TIMED_OUT, late))
