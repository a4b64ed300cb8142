"""The data half of the client for code without an event loop: metadata and data requests.

Owns: blocking calls into the loop of this process.  Every call has a deadline.  A forked process
gets its own loop; objects made before the fork refuse to work in it.  Must not know administration,
producers and consumers: Spark starts many short processes that need only this module, and they pay
for every import.
"""

import concurrent.futures
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import ClusterView, TopicView
from sparklog.client.data_client import ACKS_ALL, DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.event_loop_thread import DEFAULT_TIMEOUT_S, GRACE_S, shared_event_loop_thread
from sparklog.client.fetch_api import Fetched
from sparklog.client.preferred_read_replicas import NO_RACK, RackOf
from sparklog.client.produce_api import Produced
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.transport import Buffer
from sparklog.types import Endpoint, Isolation, OffsetTimestamp, TopicPartition

T = TypeVar("T")


class BlockingDataClient:
    """A cluster for blocking code: metadata and data requests.

    ``cluster`` and ``data_client`` are the asynchronous clients inside, for ``submit`` and ``run``.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[Endpoint],
        *,
        client_id: str = "sparklog",
        secret: bytes | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        rack_of: RackOf = NO_RACK,
    ) -> None:
        """``timeout_s`` is the deadline of calls without a deadline of their own; fetches go to
        replicas in the rack that ``rack_of`` returns."""
        self.timeout_s = timeout_s
        self._thread = shared_event_loop_thread()
        self.cluster = ClusterClient(bootstrap, client_id=client_id, secret=secret)
        self.data_client = DataClient(self.cluster, rack_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def usable(self) -> bool:
        """False in a process that was forked after this client was made."""
        return self._thread.pid == os.getpid()

    def close(self) -> None:
        """May be called twice; does nothing in a forked process."""
        if self.usable:
            self.run(self.cluster.close(), GRACE_S)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Start a coroutine of ``cluster`` or ``data_client``; ``result`` waits for it."""
        return self._thread.submit(coroutine)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """See ``EventLoopThread.call``."""
        self._thread.call(function, *arguments)

    def result(self, future: "concurrent.futures.Future[T]", timeout_s: float | None = None) -> T:
        """See ``EventLoopThread.result``."""
        return self._thread.result(future, self._limit(timeout_s))

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine of ``cluster`` or ``data_client``; see ``EventLoopThread.result``."""
        return self._thread.run(coroutine, self._limit(timeout_s))

    def metadata(
        self, topics: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> ClusterView:
        """The cluster with these topics, or with all topics (None), from a new Metadata request."""
        limit = self._limit(timeout_s)
        return self.run(self.cluster.refresh(topics, Deadline(limit)), limit)

    def topic(
        self, name: str, *, create: bool = False, timeout_s: float | None = None
    ) -> TopicView:
        """A topic; see ``ClusterClient.topic``."""
        limit = self._limit(timeout_s)
        return self.run(self.cluster.topic(name, Deadline(limit), create=create), limit)

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetTimestamp]:
        """See ``DataClient.list_offsets``."""
        limit = self._limit(timeout_s)
        call = self.data_client.list_offsets(wanted, isolation=isolation, timeout_s=limit)
        return self.run(call, limit)

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        max_wait_ms: int = 500,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float | None = None,
    ) -> Fetched:
        """See ``DataClient.fetch``."""
        limit = self._limit(timeout_s)
        call = self.data_client.fetch(
            tp,
            offset,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
            timeout_s=limit,
        )
        return self.run(call, limit)

    def produce(
        self,
        tp: TopicPartition,
        batches: Sequence[Buffer],
        *,
        acks: int = ACKS_ALL,
        timeout_s: float | None = None,
    ) -> Produced:
        """See ``DataClient.produce``."""
        limit = self._limit(timeout_s)
        return self.run(self.data_client.produce(tp, batches, acks=acks, timeout_s=limit), limit)

    def init_producer_id(self, *, timeout_s: float | None = None) -> ProducerIdentity:
        """A new producer id."""
        limit = self._limit(timeout_s)
        return self.run(self.data_client.init_producer_id(timeout_s=limit), limit)

    def _limit(self, timeout_s: float | None) -> float:
        return self.timeout_s if timeout_s is None else timeout_s
