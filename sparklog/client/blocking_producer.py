"""``Producer`` for code without an event loop.

Owns: blocking calls into the event loop thread, and the records that wait to be passed to it.  Must
not know batches, nor how a transaction works.
"""

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.event_loop_thread import GRACE_S
from sparklog.client.groups import GroupIdentity, OffsetAndMetadata
from sparklog.client.producer import Producer
from sparklog.client.producer_batches import Headers
from sparklog.client.producer_options import ProducerOptions
from sparklog.errors import ClosedError
from sparklog.types import TopicPartition

T = TypeVar("T")

#: Records that are passed to the loop at once.
_HAND_OVER: Final = 1000


class BlockingProducer:
    """``Producer`` for blocking code.  The next ``flush`` or commit raises failures."""

    def __init__(self, client: BlockingDataClient, options: ProducerOptions | None) -> None:
        self._client = client
        self._closed = False
        self._waiting: list[tuple[Any, dict[str, Any]]] = []
        self._producer: Producer = client.run(self._make(options), GRACE_S)
        self._is_transactional = self._producer.options.transactional_id is not None

    async def _make(self, options: ProducerOptions | None) -> Producer:
        return Producer(self._client.cluster, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Queue a record; see ``Producer.send``.  Raises ClosedError after ``close``."""
        if self._closed:
            raise ClosedError("the producer is closed; make a new one")
        if self._is_transactional:
            self._producer.check_in_transaction()
        options = {"partition": partition, "timestamp": timestamp, "headers": headers}
        self._waiting.append(((topic, value, key), options))
        if len(self._waiting) >= _HAND_OVER:
            self._hand_over()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all deliveries; raises the first failure."""
        limit = self._client.timeout_s if timeout_s is None else timeout_s
        self._hand_over()
        self._client.run(self._producer.flush(limit), limit)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and stop; an open transaction is aborted."""
        limit = self._client.timeout_s if timeout_s is None else timeout_s
        if self._is_transactional:
            self._waiting = []
        self._hand_over()
        self._closed = True
        self._client.run(self._producer.close(limit), limit)

    # transactions

    def init_transactions(self, timeout_s: float | None = None) -> None:
        """See ``Producer.init_transactions``."""
        self._run(self._producer.init_transactions(timeout_s), timeout_s)

    def begin_transaction(self) -> None:
        """See ``Producer.begin_transaction``."""

        async def begin() -> None:
            self._producer.begin_transaction()

        self._run(begin())

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: GroupIdentity,
        timeout_s: float | None = None,
    ) -> None:
        """See ``Producer.send_offsets_to_transaction``."""
        call = self._producer.send_offsets_to_transaction(offsets, group_metadata, timeout_s)
        self._run(call, timeout_s)

    def commit_transaction(self, timeout_s: float | None = None) -> None:
        """See ``Producer.commit_transaction``."""
        self._hand_over()
        self._run(self._producer.commit_transaction(timeout_s), timeout_s)

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        """See ``Producer.abort_transaction``."""
        self._waiting = []
        self._run(self._producer.abort_transaction(timeout_s), timeout_s)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """See ``Producer.transaction``."""
        self.begin_transaction()
        try:
            yield self
            self._hand_over()
        except BaseException as error:
            self._waiting = []
            self._run(self._producer.leave_transaction(error))
            raise
        self._run(self._producer.leave_transaction(None))

    def _run(self, call: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        limit = self._producer.options.delivery_timeout_s if timeout_s is None else timeout_s
        return self._client.run(call, limit)

    def _hand_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._client.run(self._send_all(waiting), self._client.timeout_s)

    async def _send_all(self, waiting: list[tuple[Any, dict[str, Any]]]) -> None:
        try:
            for args, options in waiting:
                await self._producer.send(*args, **options)
        except BaseException as error:  # such as a cancellation: the others are not sent
            self._producer.fail_transaction(error)
            raise
