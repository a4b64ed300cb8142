"""One partition of ``__transaction_state``: its state machine and what carries it.

Owns: the life of the state machine (loading, active, closed), the requests that wait for it, and
the order of its appends.  Must not know what requests mean.

All transitions that are decided while an append is under way share the next batch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from sparklog.client.backoff import ExponentialBackoff
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender
from sparklog.driver.transaction_coordinator.transaction_log import (
    CoordinatorFencedError,
    TransactionLog,
)
from sparklog.driver.transactions import (
    Append,
    Completion,
    Decision,
    Now,
    ProducerIdentity,
    TransactionRequest,
    TransactionShard,
)
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition

#: The result of a request: see ``Completion``.
TransactionResult: TypeAlias = ProducerIdentity | frozenset[TopicPartition] | None
ResultFuture: TypeAlias = "asyncio.Future[TransactionResult]"

#: The most bytes of keys and values in one batch; a larger record is a batch of its own.
_BATCH_BYTES: Final = 256 * 1024
#: Pauses between attempts to load in seconds: the first and the longest.
_RETRY_S: Final = (0.1, 5.0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTools:
    """What the partitions of one coordinator share.

    Args:
        new_shard: makes an empty state machine.
        loads: bounds how many partitions load at once.
        on_fenced: a later controller owns a partition.
        on_event: called after each event of a state machine.
    """

    new_shard: Callable[[], TransactionShard]
    now: Callable[[], Now]
    markers: MarkerSender
    loads: asyncio.Semaphore
    on_fenced: Callable[[CoordinatorFencedError], None]
    on_event: Callable[[], None] = lambda: None


class PartitionCoordinator:
    """One partition; ``run`` it until it is cancelled."""

    def __init__(self, log: TransactionLog, tools: PartitionTools) -> None:
        self._log = log
        self._tools = tools
        self._shard: TransactionShard | None = None
        self._requests: dict[int, ResultFuture] = {}
        self._unwritten: deque[Append] = deque()
        self._has_unwritten = asyncio.Event()
        #: Why the state machine has to be loaded again.
        self._error: Exception | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    @property
    def shard(self) -> TransactionShard | None:
        """The state machine; None while it loads."""
        return self._shard

    def require_shard(self) -> TransactionShard:
        """The state machine.  Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._shard is None:
            raise self._loading()
        return self._shard

    def submit(self, request: TransactionRequest) -> ResultFuture:
        """Decide on a request.

        Returns:
            The future of the result, or of a KafkaError.  Cancelling it withdraws the request.
            NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS of the future leave the outcome
            unknown: the record may be in the log, or come there.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, and then nothing has changed.
        """
        decision = self.require_shard().handle(request, self._tools.now())
        future: ResultFuture = asyncio.get_running_loop().create_future()
        self._requests[request.request_id] = future
        future.add_done_callback(lambda _: self._answered(request))
        self._carry_out(decision)
        return future

    def pass_time(self) -> None:
        """Let the state machine do what is due.  Raises nothing."""
        shard = self._shard
        if shard is None:
            return
        with self._load_after_error():
            now, deadline_ms = self._tools.now(), shard.next_deadline_ms()
            if deadline_ms is not None and now.monotonic_ms >= deadline_ms:
                self._carry_out(shard.pass_time(now))

    def release_held(self) -> None:
        """Decide on the requests that a consistent cut has held back.  Raises nothing."""
        if self._shard is None:
            return
        with self._load_after_error():
            self._carry_out(self._shard.release_held(self._tools.now()))

    async def run(self) -> None:
        """Load, and append what is decided; load again when the log has changed."""
        pauses = ExponentialBackoff(*_RETRY_S)
        while True:
            try:
                await self._load()
                pauses.reset()
                await self._append_for_ever()
            except CoordinatorFencedError as error:
                self._unload(KafkaError(ErrorCode.NOT_COORDINATOR, str(error)))
                self._tools.on_fenced(error)
                return
            except SparklogError as error:
                logger.warning("%s is loaded again: %s", self.topic_partition, error)
            except Exception:
                logger.exception("%s is loaded again after an error", self.topic_partition)
            finally:
                self._unload(self._loading())
            await pauses.wait()

    async def _load(self) -> None:
        shard = self._tools.new_shard()
        async with self._tools.loads:
            offset = await self._log.load(shard.replay)
        self._shard = shard
        logger.info("transactions of %s are loaded up to offset %d", self.topic_partition, offset)
        self._carry_out(shard.loaded(self._tools.now()))

    async def _append_for_ever(self) -> None:
        while True:
            await self._has_unwritten.wait()
            self._has_unwritten.clear()
            if self._error is not None:
                raise self._error
            while self._unwritten:
                await self._append(self._next_batch())

    def _next_batch(self) -> list[Append]:
        batch = [self._unwritten.popleft()]
        size = _size(batch[0])
        while self._unwritten and (size := size + _size(self._unwritten[0])) <= _BATCH_BYTES:
            batch.append(self._unwritten.popleft())
        return batch

    async def _append(self, batch: list[Append]) -> None:
        refusal: KafkaError | None = None
        try:
            await self._log.append([append.record for append in batch])
        except KafkaError as error:
            if len(batch) > 1:  # one of the records may be the reason
                for append in batch:
                    await self._append([append])
                return
            logger.error("a record for %s was refused: %s", self.topic_partition, error)
            refusal = error
        shard = self._shard
        assert shard is not None
        for append in batch:
            now, transactional_id = self._tools.now(), append.transactional_id
            self._carry_out(
                shard.appended(transactional_id, now)
                if refusal is None
                else shard.append_refused(transactional_id, refusal, now)
            )

    @contextmanager
    def _load_after_error(self) -> Iterator[None]:
        """Load again when an event was not decided: the state machine may be ahead of the log.

        The error ends nothing else, because other partitions share the caller.
        """
        try:
            yield
        except Exception as error:
            logger.exception("%s: an event was not decided", self.topic_partition)
            self._error = error
            self._has_unwritten.set()

    def _carry_out(self, decision: Decision) -> None:
        if decision.appends:
            self._unwritten += decision.appends
            self._has_unwritten.set()
        for completion in decision.completions:
            self._complete(completion)
        for write in decision.markers:
            self._tools.markers.write(write, self._markers_written)
        self._tools.on_event()

    def _markers_written(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
    ) -> None:
        shard = self._shard
        if shard is None:
            return
        with self._load_after_error():
            now = self._tools.now()
            self._carry_out(shard.markers_written(transactional_id, producer, partitions, now))

    def _complete(self, completion: Completion) -> None:
        future = self._requests.pop(completion.request_id, None)
        if future is None or future.done():
            return
        if isinstance(completion.result, KafkaError):
            future.set_exception(completion.result)
            future.exception()  # its client may have gone
        else:
            future.set_result(completion.result)

    def _answered(self, request: TransactionRequest) -> None:
        """The future of a request is done; if it was cancelled, its client has gone."""
        if self._requests.pop(request.request_id, None) is not None and self._shard is not None:
            self._shard.withdraw(request.request_id, request.transactional_id)

    def _unload(self, error: KafkaError) -> None:
        shard, self._shard = self._shard, None
        self._error = None
        self._unwritten.clear()
        self._has_unwritten.clear()
        self._tools.markers.forget(self._markers_written)
        if shard is not None:
            for completion in shard.unload(error):
                self._complete(completion)
        requests, self._requests = self._requests, {}
        for future in requests.values():
            if not future.done():
                future.set_exception(KafkaError(error.code, error.message))
                future.exception()
        self._tools.on_event()

    def _loading(self) -> KafkaError:
        return KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"the transactions of {self.topic_partition} are being loaded",
        )


def _size(append: Append) -> int:
    return len(append.record.key) + len(append.record.value or b"")
