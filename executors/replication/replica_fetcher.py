"""The fetcher of one leader: a connection, fetch requests, and the appends of their responses.

It does the work of Kafka's ``ReplicaFetcherThread``, without a thread.

Owns: the connection, at most one request that waits and one that overtakes it, and the retries.
Must not know which replicas follow which leader, nor the content of a request
(``FetchSessionHandler``).

A response is appended, and the next request sent, in the callback that receives the response.
Under load this is most of a broker's work, so no task stands in between.
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
from sparklog.executors.partition import Partition, TieredStart, sound_until
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.replication.fetch_session_handler import (
    Answered,
    Diverged,
    Fetched,
    FetchSessionHandler,
    Misplaced,
    MovedToTieredStorage,
    OffsetOutOfRange,
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
#: Errors of records from the leader, after which the leader should check its own log.
_DAMAGE_CODES = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
#: A response this late, in seconds, closes the connection, and the fetcher connects again.
ANSWER_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


#: Where a follower may start, by the partition and the log starts of its leader: of the whole log,
#: and of the leader's files.  Raises SparklogError.
RemoteStart: TypeAlias = Callable[[Partition, int, int], Awaitable[TieredStart]]
#: Begins the truncation that a response asks for.
Truncate: TypeAlias = Callable[[Misplaced[Partition]], None]


async def no_remote_start(partition: Partition, *starts: int) -> TieredStart:
    """The ``RemoteStart`` of a broker without a remote_dir.  Raises KafkaError."""
    del starts
    raise KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the beginning of {partition.topic_partition} is in a remote_dir, and this cluster was "
        "started without one; start it with its remote_dir",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherTools:
    """The parts that all fetchers of a broker share.

    ``broker`` returns a broker of the cluster image, ``broker_epoch`` the epoch of this broker.
    ``suspected_brokers`` gets the leaders whose connection breaks.  ``remote_start`` looks in the
    bucket where a follower may start.
    """

    replica_manager: ReplicaManager
    connect: Callable[[Endpoint], Awaitable[Connection]]
    broker: Callable[[int], BrokerImage | None]
    broker_epoch: Callable[[], int]
    suspected_brokers: SuspectedBrokers
    remote_start: RemoteStart


class ReplicaFetcher:
    """Fetches from one leader; ``run`` it in a task and cancel the task to stop.

    ``truncate`` returns at once.  It begins a truncation, and the replica fetches again afterwards.
    """

    def __init__(self, leader_id: int, tools: FetcherTools, truncate: Truncate) -> None:
        replica_manager = tools.replica_manager
        self.leader_id = leader_id
        self._tools = tools
        self._truncate = truncate
        self._replica_manager = replica_manager
        self._fetch: FetchSessionHandler[Partition] = FetchSessionHandler(
            replica_manager.node_id, replica_manager.broker_config, replica_manager.throttle.wait_ms
        )
        self._moved = asyncio.Event()
        self._leader: BrokerImage | None = None
        self._failures = 0
        #: The open connection; None while there is none.
        self._open_connection: _OpenConnection | None = None

    def __len__(self) -> int:
        return len(self._fetch)

    # replicas

    def add_partition(self, partition: Partition) -> None:
        """Fetch a partition, without backoff."""
        self._fetch.add_partition(partition)
        self._plan_send()

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition."""
        self._fetch.remove_partition(topic_partition)

    def position_changed(self, topic_partition: TopicPartition) -> None:
        """The fetch position of a replica may have changed."""
        self._fetch.position_changed(topic_partition)
        self._plan_send()

    def delay_partition(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition again after its backoff, because of an error."""
        self._fetch.delay_partition(topic_partition, self._now_ms())
        self._plan_send()

    def reconnect_if_leader_moved(self) -> None:
        """Connect again if the new cluster image has another process for the leader."""
        if self._tools.broker(self.leader_id) != self._leader:
            self._moved.set()
            if self._open_connection is not None:
                self._open_connection.end(None)

    # the connection

    async def run(self) -> None:
        """Fetch until cancelled; errors are retried with a growing backoff."""
        while True:
            try:
                await self._connect_and_fetch()
            except (ConnectError, ProtocolError, DecodeError, KafkaError) as error:
                level = logging.DEBUG if self._failures else logging.INFO
                logger.log(level, "no fetch from broker %d: %s", self.leader_id, error)
            if not self._moved.is_set():
                await self._pause()

    async def _connect_and_fetch(self) -> None:
        """Fetch until the leader has moved."""
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
            await self._fetch_until_ended(connection)
        finally:
            self._fetch.connection_lost()
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

    async def _fetch_until_ended(self, connection: Connection) -> None:
        """Fetch until the leader has moved; raises the error that ends the connection."""
        opened = self._open_connection = _OpenConnection(connection)
        try:
            if not self._moved.is_set():
                self._send_next(opened)
                await opened.ended
        finally:
            self._open_connection = None
            opened.close()

    def _plan_send(self) -> None:
        """Send a request at the end of this turn of the loop, for all changes of this turn."""
        opened = self._open_connection
        if opened is not None and not opened.send_planned:
            opened.send_planned = True
            opened.loop.call_soon(self._send_at_end_of_turn, opened)

    def _send_at_end_of_turn(self, opened: "_OpenConnection") -> None:
        opened.send_planned = False
        if self._open_connection is opened and not opened.ended.done():
            self._send_next(opened)

    def _send_next(self, opened: "_OpenConnection") -> None:
        """Send the next request, if any, and wake up at the end of the next backoff."""
        try:
            request = self._fetch.next_request(self._tools.broker_epoch(), self._now_ms())
            if request is not None:
                self._send(opened, request)
        except Exception as error:
            opened.end(error)
            return
        retry_ms = self._fetch.retry_ms
        # A relative delay: an absolute time in ms may be a rounding error late in seconds.
        left_s = None if retry_ms is None else max(retry_ms - self._now_ms(), 0) / 1000
        opened.call_after(left_s, self._plan_send)

    def _send(self, opened: "_OpenConnection", request: FetchRequest) -> None:
        connection, version = opened.connection, opened.version
        correlation_id = connection.next_correlation_id()
        payload = encode_request(request, version, correlation_id, connection.client_id)
        connection.ask((payload,), partial(self._received, opened, correlation_id))
        opened.request_sent(request.max_wait_ms / 1000 + ANSWER_TIMEOUT_S)

    def _received(
        self,
        opened: "_OpenConnection",
        correlation_id: int,
        received: memoryview | ConnectError,
    ) -> None:
        if self._open_connection is not opened or opened.ended.done():
            return
        try:
            if isinstance(received, ConnectError):
                raise received
            opened.response_received()
            answered_id, response = decode_fetch_response(opened.version, received)
            opened.connection.check_correlation(correlation_id, answered_id)
            self._handle(response)
            opened.connection.give_back(received)
        except Exception as error:
            opened.end(error)
            return
        self._send_next(opened)

    # responses

    def _handle(self, response: FetchResponse) -> None:
        for each in self._fetch.handle_response(response, self._now_ms()):
            self._carry_out(each)
        self._failures = 0

    def _carry_out(self, answered: Answered[Partition]) -> None:
        match answered:
            case Fetched():
                self._append(answered)
            case Diverged() | OffsetOutOfRange() | MovedToTieredStorage():
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
            self._fetch.delay_partition(tp, self._now_ms())
            if error.code in _DAMAGE_CODES:
                self._report_damage(fetched)
            return
        self._replica_manager.carry_out(effects)
        self._replica_manager.counters.replication_bytes_in += size
        self._replica_manager.throttle.record_fetched(partition, size, self._now_ms())
        self._fetch.position_changed(tp)
        if size and partition.fetch_position() == fetched.position:
            self._fetch.delay_partition(
                tp, self._now_ms()
            )  # the leader would send the same again and again

    def _report_damage(self, fetched: Fetched[Partition]) -> None:
        """Have the leader check the bytes that it sent; they are fetched again after the backoff.

        If the report is lost, the next fetch brings the next report.
        """
        if self._open_connection is None:
            return
        partition, connection = fetched.replica, self._open_connection.connection
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
        """The loop's clock, because the wall clock may jump."""
        return int(asyncio.get_running_loop().time() * 1000)


class _OpenConnection:
    """One open connection, with its timers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.version = connection.version_for(FetchRequest)
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.send_planned = False
        #: The deadlines of the requests in flight.
        self._deadlines_s: deque[float] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None

    def end(self, error: BaseException | None) -> None:
        """End with an error, or with None because the leader has moved."""
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def close(self) -> None:
        """Cancel the timers."""
        for timer in (self._watch, self._delay):
            if timer is not None:
                timer.cancel()
        if not self.ended.cancel() and not self.ended.cancelled():
            self.ended.exception()  # mark the exception as retrieved

    def call_after(self, delay_s: float | None, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, in place of an earlier one; None only cancels the earlier one."""
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
        if delay_s is not None:
            self._delay = self.loop.call_later(delay_s, callback)

    def request_sent(self, timeout_s: float) -> None:
        """A request is in flight, with this timeout."""
        self._deadlines_s.append(self.loop.time() + timeout_s)
        if self._watch is None:
            self._watch = self.loop.call_at(self._deadlines_s[0], self._check_timeout)

    def response_received(self) -> None:
        """The oldest request in flight has its response."""
        self._deadlines_s.popleft()

    def _check_timeout(self) -> None:
        # One timer for many responses: it is set again only after it has fired.
        self._watch = None
        if not self._deadlines_s:
            return
        if self._deadlines_s[0] > self.loop.time():
            self._watch = self.loop.call_at(self._deadlines_s[0], self._check_timeout)
            return
        late = f"{self.connection.endpoint} did not answer a fetch in time"
        self.end(KafkaError(ErrorCode.REQUEST_TIMED_OUT, late))
