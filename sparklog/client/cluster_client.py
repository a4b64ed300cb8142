"""The client of a whole cluster: connections by node, cached metadata, routing and retries.

Owns: the node that a request is sent to, and when metadata is refreshed.  Must not know the
requests of producers and consumers.

Responses of one connection arrive in order.  So requests that wait at the broker (fetches) travel
in a *lane*, which is a separate connection per node.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from sparklog.client.cluster_view import ClusterView, TopicView
from sparklog.client.connection import DEFAULT_FRAME_BYTES_MAX, Connection
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES, Backoff, Deadline, retry
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError, ProtocolError
from sparklog.plurals import counted
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from sparklog.wire.protocol.schema import Request

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: Time in which a node must accept and negotiate before another node is tried.
CONNECT_TIMEOUT_S: Final = 5.0
#: Time for which an unknown topic is asked for: brokers learn of a new topic a moment later.
UNKNOWN_TOPIC_GRACE_S: Final = 2.0

#: Age at which a topic's metadata is refreshed, so that new partitions are noticed.
TOPIC_AGE_S_MAX: Final = 300.0

#: One request to one leader: results, or errors, by partition.
LeaderCall = Callable[
    [int, dict[TopicPartition, ItemT], Deadline],
    Awaitable[Mapping[TopicPartition, ResultT | KafkaError]],
]
#: (partition, leader) -> the node to ask.
NodeOf = Callable[[TopicPartition, int], int]
#: Called with the errors of the partitions that are asked again while there is time.
OnRetry = Callable[[Mapping[TopicPartition, KafkaError]], None]


def _leader(_tp: TopicPartition, leader: int) -> int:
    return leader


class ClusterClient:
    """The client of a cluster, shared by all users on one event loop."""

    def __init__(
        self,
        bootstrap: str | Iterable[Endpoint],
        *,
        client_id: str = "sparklog",
        secret: bytes | None = None,
        max_frame_bytes: int = DEFAULT_FRAME_BYTES_MAX,
        runtime: RuntimeEnvironment = SYSTEM,
    ) -> None:
        """``bootstrap``: ``HOST:PORT,HOST:PORT`` or endpoints.  Raises ValueError."""
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.view = ClusterView()
        self.runtime = runtime
        self._random = runtime.new_random()
        self._secret = secret
        self._max_frame_bytes = max_frame_bytes
        self._connections: dict[tuple[Endpoint, str], asyncio.Task[Connection]] = {}
        self._asked: dict[str, Deadline] = {}
        self._lanes = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        await self._close_where(lambda _lane: True)

    # connections

    def new_lane(self) -> str:
        """A new lane, for one user; ``close_lane`` ends it."""
        self._lanes += 1
        return f"lane-{self._lanes}"

    async def close_lane(self, lane: str) -> None:
        """Close the connections of a lane."""
        await self._close_where(lambda other: other == lane)

    async def _close_where(self, wanted: Callable[[str], bool]) -> None:
        keys = [key for key in self._connections if wanted(key[1])]
        tasks = [self._connections.pop(key) for key in keys]
        for task in tasks:
            task.cancel()
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(opened, Connection):
                opened.close()

    async def connect(self, endpoint: Endpoint, deadline: Deadline, lane: str = "") -> Connection:
        """The connection of a lane, opened if necessary.  Raises ConnectError, ClosedError."""
        self._check_open()
        key = (endpoint, lane)
        task = self._connections.get(key)
        if task is None or _is_spent(task):
            task = asyncio.ensure_future(
                Connection.open(
                    endpoint,
                    client_id=self.client_id,
                    secret=self._secret,
                    timeout_s=CONNECT_TIMEOUT_S,
                    max_frame_bytes=self._max_frame_bytes,
                    runtime=self.runtime,
                )
            )
            task.add_done_callback(_retrieve)
            self._connections[key] = task
        try:
            # Other callers may wait for the same connection: a cancelled caller does not end it.
            # asyncio.wait_for would lose a cancellation while the task is done (Python 3.11).
            async with asyncio.timeout(max(deadline.left_s, 0.001)):
                return await asyncio.shield(task)
        except TimeoutError:
            raise ConnectError(f"{endpoint} did not answer in time") from None
        except asyncio.CancelledError:
            if task.cancelled():  # ``close`` cancelled the attempt, not the caller
                self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed; make a new one")

    async def connect_node(self, node_id: int, deadline: Deadline, lane: str = "") -> Connection:
        """The connection to a node of a lane.

        Raises KafkaError(BROKER_NOT_AVAILABLE) for a node that is not in the metadata.
        """
        endpoint = self.view.nodes.get(node_id)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"node {node_id} is not in the cluster's metadata"
            )
        return await self.connect(endpoint, deadline, lane)

    async def _connect_any(self, deadline: Deadline) -> Connection:
        """A connection to any node: an open one, or one to a known node or bootstrap address."""
        for task in self._connections.values():
            if task.done() and not _is_spent(task):
                return task.result()
        known = list(self.view.nodes.values())
        self._random.shuffle(known)
        candidates = list(dict.fromkeys((*known, *self.bootstrap)))
        failures = []
        for endpoint in candidates:
            try:
                return await self.connect(endpoint, deadline)
            except ClosedError:
                raise
            except (ConnectError, ProtocolError, KafkaError) as error:
                failures.append(str(error))
        raise ConnectError(f"no node of the cluster can be reached: {'; '.join(failures)}")

    # requests

    async def ask(self, request: Request, deadline: Deadline, node_id: int | None = None) -> Any:
        """Ask one node, or any node (None), once.  Raises ConnectError or KafkaError."""
        if node_id is None:
            connection = await self._connect_any(deadline)
        else:
            connection = await self.connect_node(node_id, deadline)
        return await connection.request(request, timeout_s=max(deadline.left_s, 0.001))

    async def ask_any(self, request: Request, deadline: Deadline) -> Any:
        """Ask any node, until one responds or time is up."""
        return await retry(lambda: self.ask(request, deadline), deadline)

    async def ask_broker(self, request: Request, deadline: Deadline) -> Any:
        """Ask any node once, if possible another node than the controller."""
        if not self.view.nodes:
            await self._refresh(deadline)
        brokers = [node for node in self.view.nodes if node != self.view.controller_id]
        if not brokers and not self.view.nodes:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the cluster has no broker yet")
        try:
            return await self.ask(
                request, deadline, self._random.choice(brokers or [*self.view.nodes])
            )
        except ConnectError:
            await self._refresh_quietly(deadline)
            raise

    async def ask_controller(
        self,
        request: Request,
        deadline: Deadline,
        check_response: Callable[[Any], None] = lambda _response: None,
    ) -> Any:
        """Ask the controller, found through metadata; retried while it cannot be reached.

        ``check_response`` raises KafkaError for responses with an error.  NOT_CONTROLLER and other
        retriable errors are retried, except unknown topics: the controller knows every topic.
        """

        async def attempt() -> Any:
            if self.view.controller_id not in self.view.nodes:
                await self._refresh(deadline)
            if self.view.controller_id not in self.view.nodes:
                raise KafkaError(
                    ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment"
                )
            response = await self.ask(request, deadline, self.view.controller_id)
            check_response(response)
            return response

        async def look_again() -> None:
            await self._refresh_quietly(deadline)

        return await retry(attempt, deadline, look_again, final=UNKNOWN_TOPIC_CODES)

    # metadata

    async def refresh(
        self,
        topics: Sequence[str] | None,
        deadline: Deadline,
        *,
        create: bool = False,
    ) -> ClusterView:
        """Refresh these topics, or all topics (None).  ``create`` creates missing topics.

        Raises ConnectError when no node responds until the deadline.
        """
        await retry(lambda: self._refresh(deadline, topics, create=create), deadline)
        return self.view

    async def topic(self, name: str, deadline: Deadline, *, create: bool = False) -> TopicView:
        """A topic, from the cache (at most ``TOPIC_AGE_S_MAX`` old) or from the cluster.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION at once, UNKNOWN_TOPIC_OR_PARTITION when no node
        has known the topic for a moment (with ``create``: the cluster creates no topics).
        """
        self._check_open()
        found = self.view.topics.get(name)
        asked = self._asked.get(name)
        if found is not None and asked is not None and not asked.expired:
            return found

        async def attempt() -> TopicView:
            await self._refresh(deadline, (name,), create=create)
            return self.view.topic(name)

        return await retry(
            attempt,
            deadline,
            final=UNKNOWN_TOPIC_CODES,
            grace=deadline.capped(UNKNOWN_TOPIC_GRACE_S),
        )

    def expire_topics(self) -> None:
        """Let ``topic`` refresh every topic; the known leaders stay in use."""
        self._asked = {}

    async def _refresh(
        self,
        deadline: Deadline,
        topics: Sequence[str] | None = (),
        *,
        create: bool = False,
    ) -> None:
        wanted = None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics)
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response: MetadataResponse = await self.ask(request, deadline.capped(CONNECT_TIMEOUT_S * 2))
        self.view = self.view.merge(response, whole=topics is None)
        age = Deadline(TOPIC_AGE_S_MAX)
        self._asked |= dict.fromkeys((t.name for t in response.topics if t.name is not None), age)

    async def _refresh_quietly(self, deadline: Deadline, topics: Sequence[str] = ()) -> None:
        with contextlib.suppress(ConnectError, KafkaError):
            await self._refresh(deadline, topics)

    # leaders

    async def ask_leaders(
        self,
        items: Mapping[TopicPartition, ItemT],
        call: LeaderCall[ItemT, ResultT],
        deadline: Deadline,
        *,
        create: bool = False,
        node_of: NodeOf = _leader,
        on_retry: OnRetry | None = None,
        final: Container[ErrorCode] = (),
    ) -> dict[TopicPartition, ResultT | KafkaError]:
        """One request per leader, all at once; retriable failures are retried at the new leaders.

        The result has an entry for every item.  ``call`` may raise ConnectError or KafkaError for
        all its partitions.  ``node_of`` may choose another node than a partition's leader.  Codes
        in ``final`` are not retried, although Kafka calls them retriable.
        """
        done: dict[TopicPartition, ResultT | KafkaError] = {}
        pending = dict(items)
        backoff = Backoff(deadline)
        while True:
            by_node, failed, missing = await self._by_node(pending, deadline, create, node_of)
            done |= missing
            answers = await asyncio.gather(
                *(_guarded(call, node, group, deadline) for node, group in by_node.items())
            )
            for answer in answers:
                for tp, result in answer.items():
                    if (
                        isinstance(result, KafkaError)
                        and result.retriable
                        and result.code not in final
                    ):
                        failed[tp] = result
                    else:
                        done[tp] = result
            if not failed:
                return done
            if on_retry is not None:
                on_retry(failed)
            if not await backoff.pause():
                return done | failed
            pending = {tp: pending[tp] for tp in failed}
            await self._refresh_quietly(deadline, sorted({tp.topic for tp in pending}))

    async def _by_node(
        self,
        items: Mapping[TopicPartition, ItemT],
        deadline: Deadline,
        create: bool,
        node_of: NodeOf,
    ) -> tuple[
        dict[int, dict[TopicPartition, ItemT]],
        dict[TopicPartition, KafkaError],
        dict[TopicPartition, KafkaError],
    ]:
        """Items by node, partitions without a leader now, and partitions that do not exist."""
        final: dict[TopicPartition, KafkaError] = {}
        unknown: dict[str, KafkaError] = {}
        for name in sorted({tp.topic for tp in items} - self.view.topics.keys()):
            try:
                await self.topic(name, deadline, create=create)
            except ClosedError:
                raise
            except KafkaError as error:
                unknown[name] = error
            except ConnectError as error:
                unknown[name] = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        by_node: dict[int, dict[TopicPartition, ItemT]] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for tp, item in items.items():
            topic = self.view.topics.get(tp.topic)
            leader = self.view.leader(tp)
            if leader is not None:
                by_node.setdefault(node_of(tp, leader.leader), {})[tp] = item
            elif tp.topic in unknown:
                final[tp] = unknown[tp.topic]
            elif topic is not None and tp.partition not in topic.partitions:
                final[tp] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {tp.topic!r} has {counted(len(topic.partitions), 'partition')}, "
                    f"no number {tp.partition}",
                )
            else:
                failed[tp] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
        return by_node, failed, final


async def _guarded(
    call: LeaderCall[ItemT, ResultT],
    node_id: int,
    group: dict[TopicPartition, ItemT],
    deadline: Deadline,
) -> Mapping[TopicPartition, ResultT | KafkaError]:
    try:
        return await call(node_id, group, deadline)
    except ClosedError:
        raise
    except KafkaError as error:
        return dict.fromkeys(group, error)
    except ConnectError as error:
        return dict.fromkeys(group, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))


def parse_bootstrap(bootstrap: str | Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """``HOST:PORT,HOST:PORT`` or endpoints -> endpoints.  Raises ValueError."""
    if isinstance(bootstrap, str):
        bootstrap = [Endpoint.parse(part) for part in bootstrap.split(",") if part.strip()]
    endpoints = tuple(bootstrap)
    if not endpoints:
        raise ValueError("bootstrap servers are missing: expected HOST:PORT,HOST:PORT")
    return endpoints


def _is_spent(task: "asyncio.Task[Connection]") -> bool:
    """Whether an attempt to connect has failed, or its connection is closed."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().closed


def _retrieve(task: "asyncio.Task[Connection]") -> None:
    """Mark a failure as seen, so that asyncio does not log it when no caller waits for it."""
    if not task.cancelled():
        task.exception()
