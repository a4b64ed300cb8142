"""One shard of a coordinator: the state machine of one partition that this broker leads.

Owns: the life of the state machine (loading, active, failed, unloaded), its timer, the appends of
its records, and the requests that wait for it.  Must not know what requests mean, or which shard
they are for.

The records of all decisions of one turn of the event loop are appended together at its end.  They
are replayed at once, so that the next decision sees them.  Therefore the state machine is ahead of
the log until the append, and after an append that failed it is of no use: it is dropped, and a new
one is loaded from the log.  While the partition has too few in-sync replicas, appends would fail,
so requests that may write are refused before they are decided, and time does not pass.

Records of a transaction, and the marker that ends one, are appended at once, behind the records
that were decided before them, and they are replayed after that.  So their producer may be fenced
without harm to the state machine.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklog.client.backoff import ExponentialBackoff
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.executors.coordinator.deadline_timer import DeadlineTimer
from sparklog.executors.coordinator.delayed_responses import (
    CoordinatorAnswer,
    DelayedResponses,
    ResponseFuture,
    ResponseOwner,
    respond,
)
from sparklog.executors.coordinator.deleted_topics import missing_topics
from sparklog.executors.coordinator.log_loader import LogLoader
from sparklog.executors.coordinator.metrics import CoordinatorMetrics
from sparklog.executors.coordinator.operation_errors import operation_error
from sparklog.executors.coordinator.record_batches import (
    PendingBatch,
    RecordBatches,
    encode_in_transaction,
    fits,
)
from sparklog.executors.coordinator.state_machine import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    CoordinatorStateMachine,
    Decision,
    DeletedTopic,
    Now,
    StoredTopic,
    TransactionalProducer,
)
from sparklog.executors.partition import (
    ACKS_ALL,
    Appended,
    Partition,
    RequiredOffset,
    TransactionEnd,
)
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import Compression
from sparklog.wire.records.control import ControlType

#: Seconds before a load is repeated, or follows a failed append: the first and the longest time.
RETRY_S: Final = (0.1, 5.0)
#: The pause after an error in ``pass_time``.
TIMER_REST_MS: Final = 1_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTools:
    """The parts that all shards of a runtime share.

    ``commit_timeout_ms`` returns how long a response waits for its records to be replicated.
    """

    replica_manager: ReplicaManager
    make_state_machine: Callable[[], CoordinatorStateMachine]
    loader: LogLoader
    metrics: CoordinatorMetrics
    commit_timeout_ms: Callable[[], int]
    compression: Compression

    def now(self) -> Now:
        return Now(self.replica_manager.monotonic_ms(), self.replica_manager.now_ms())


class Shard:
    """One shard, in one leader epoch.  It begins to load when it is made."""

    def __init__(self, partition: Partition, tools: ShardTools) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._tools = tools
        self._machine: CoordinatorStateMachine | None = None
        #: The answer to requests while there is no state machine.
        self._refusal = self._error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "is still loading")
        self._requests: dict[int, ResponseFuture] = {}
        self._batches: RecordBatches[CoordinatorAnswer] = RecordBatches()
        #: The last offsets that were written, until the high watermark has passed them.
        self._written: RequiredOffset | None = None
        self._append_planned: asyncio.Handle | None = None
        self._timer = DeadlineTimer(tools.replica_manager.monotonic_ms, self._pass_time)
        #: The pauses after failed appends, until an append succeeds.
        self._append_pauses = ExponentialBackoff(*RETRY_S)
        self._owner = ResponseOwner()
        #: Set when the partition may take appends again.
        self._partition_changed = asyncio.Event()
        self._loading = self._start_load(self._load())

    @property
    def is_active(self) -> bool:
        return self._machine is not None

    # requests

    def submit(self, request: CoordinatorRequest, future: ResponseFuture) -> None:
        """Decide on a request; ``future`` completes with the response, maybe much later.

        Raises KafkaError: the shard is not active.
        """
        machine = self.require_active()
        if not has_enough_replicas(self.partition) and machine.may_write(request):
            raise self._error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "takes no changes: fewer replicas are in sync than min.insync.replicas",
            )
        self._requests[request.request_id] = future
        try:
            decision = machine.handle(request, now := self._tools.now())
        except Exception:
            logger.exception("%s: a request was not decided", self._name)
            self._requests.pop(request.request_id, None)
            raise self._error(ErrorCode.UNKNOWN_SERVER_ERROR, "failed") from None
        if request.producer is None or not decision.records:
            self._carry_out(decision, now)
        else:
            self._carry_out_in_transaction(decision, request.producer, now)
        if request.request_id in self._requests:
            future.add_done_callback(partial(self._withdraw, request.request_id))

    def end_transaction(self, end: TransactionEnd) -> Appended:
        """See ``CoordinatorRuntime.end_transaction``."""
        self.require_active()
        self.append_now()
        machine = self.require_active()
        appended = self._tools.replica_manager.end_transaction(self.partition, end)
        committed = end.marker.control_type is ControlType.COMMIT
        self._replay(lambda: machine.replay_transaction_end(end.producer_id, committed=committed))
        self._written = appended.required_offset or self._written
        self._arm_timer()
        return appended

    def require_active(self) -> CoordinatorStateMachine:
        """The state machine.  Raises KafkaError: the shard is not active."""
        if self._machine is None:
            raise KafkaError(self._refusal.code, self._refusal.message)
        return self._machine

    def topics_deleted(self, topics: Collection[DeletedTopic]) -> None:
        """These topics were deleted; a shard that loads finds that out afterwards."""
        if self._machine is not None:
            self._machine.topics_deleted(topics, self._tools.now())
            self._arm_timer()

    def partition_changed(self) -> None:
        """The in-sync replicas or the settings of the partition have changed."""
        self._partition_changed.set()
        self._arm_timer()

    def unload(self, error: KafkaError) -> "asyncio.Task[None]":
        """Refuse every request that waits; the shard is used no more.

        Returns the load, which ends soon if it has not ended yet.
        """
        self._drop(error)
        self._owner.refuse_all(self._tools.replica_manager, error)
        self._loading.cancel()
        return self._loading

    def append_now(self) -> None:
        """Append the records of this turn without waiting for its end."""
        if self._append_planned is not None:
            self._append_planned.cancel()
            self._append()

    # loading

    def _start_load(self, load: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(load)

    async def _load_when_writable(self) -> None:
        """Load again after a failed append, once there are enough in-sync replicas."""
        await self._append_pauses.wait()
        while not has_enough_replicas(self.partition):
            self._partition_changed.clear()
            await self._partition_changed.wait()
        self._refusal = self._error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "is loading again")
        await self._load()

    async def _load(self) -> None:
        """Load until that succeeds."""
        tools, pauses = self._tools, ExponentialBackoff(*RETRY_S)
        while True:
            try:
                machine = tools.make_state_machine()
                end = await tools.loader.load(self.partition, machine)
                stored = await run_blocking(_begin, machine, tools.now())
                self._require_end(end)
            except SparklogError as error:
                logger.error("%s was not loaded: %s", self._name, error)
                if isinstance(error, KafkaError):
                    tools.replica_manager.report_error(self.partition.topic_partition, error)
            except Exception:
                logger.exception("%s was not loaded", self._name)
            else:
                self._activate(machine, end, stored)
                return
            tools.metrics.load_failures += 1
            self._refusal = self._error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "cannot be loaded")
            await pauses.wait()

    def _require_end(self, end: int) -> None:
        """Raises KafkaError: something was appended since the load has read the log's end."""
        log_end = self.partition.log.log_end_offset
        if log_end != end:
            raise self._error(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"was loaded up to {end} of {log_end}"
            )

    def _activate(
        self, machine: CoordinatorStateMachine, end: int, stored: Collection[StoredTopic]
    ) -> None:
        self._machine = machine
        self._tools.metrics.loads += 1
        if self.partition.high_watermark < end:
            self._written = RequiredOffset(end, self.leader_epoch, committed=True)
        logger.info("%s is loaded up to offset %d", self._name, end)
        # Topics may have been deleted while nobody, or another broker, coordinated the partition.
        self.topics_deleted(missing_topics(self._tools.replica_manager.image, stored))
        self._arm_timer()

    def _load_again(self, error: KafkaError) -> None:
        """Drop the state machine, which is ahead of the log, and load a new one."""
        logger.error("%s is loaded again, because an append failed: %s", self._name, error)
        self._drop(operation_error(error))
        if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            self._refusal = operation_error(error)
        self._loading = self._start_load(self._load_when_writable())

    def _drop(self, error: KafkaError) -> None:
        """Refuse the requests that wait for a decision or for an append."""
        machine, self._machine = self._machine, None
        self._refusal = self._error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "is loading again")
        self._timer.cancel()
        if self._append_planned is not None:
            self._append_planned.cancel()
            self._append_planned = None
        self._refuse(self._batches.take(), error)
        if machine is not None:
            try:
                completions = machine.unload(error)
            except Exception:
                logger.exception("%s was not unloaded", self._name)
                completions = ()
            for completion in completions:
                future = self._requests.pop(completion.request_id, None)
                if future is not None:
                    respond(future, completion.response)
        requests, self._requests = self._requests, {}
        for future in requests.values():
            respond(future, error)

    # decisions

    def _let_decide(self, decide: Callable[[Now], Decision]) -> bool:
        """Carry out a decision on another event than a request; return whether there was one."""
        now = self._tools.now()
        try:
            decision = decide(now)
        except Exception:
            logger.exception("%s: an event was not decided", self._name)
            return False
        self._carry_out(decision, now)
        return True

    def _carry_out(self, decision: Decision, now: Now) -> None:
        machine, records = self._machine, decision.records
        assert machine is not None
        if records:
            config = self.partition.config
            bytes_max = min(config.max_message_bytes, config.segment_bytes)
            divisible = decision.divisible or not decision.completions
            if not fits(records, bytes_max, divisible=divisible):
                logger.error("%s: a decision has records for more than one batch", self._name)
                too_large = self._error(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"cannot append so many records together: max.message.bytes is {bytes_max}",
                )
                self._refuse_all(decision.completions, too_large)
                self._arm_timer()
                return
            if not self._replay(lambda: _replay_all(machine, records), decision.completions):
                return
            self._batches.add(records, now.wall_ms, bytes_max)
            self._plan_append()
        for completion in decision.completions:
            self._complete(completion)
        self._arm_timer()

    def _carry_out_in_transaction(
        self, decision: Decision, producer: TransactionalProducer, now: Now
    ) -> None:
        self.append_now()
        machine, records = self._machine, decision.records
        if machine is None:
            return  # every request was refused, because that append failed
        replica_manager = self._tools.replica_manager
        batch = encode_in_transaction(records, producer, now.wall_ms, self._tools.compression)
        try:
            appended = replica_manager.append_as_coordinator(self.partition, batch)
        except KafkaError as error:
            replica_manager.report_error(self.partition.topic_partition, error)
            self._refuse_all(decision.completions, operation_error(error))
            return
        self._written = appended.required_offset or self._written
        completions = decision.completions
        if appended.refusal is not None:
            refusal = operation_error(appended.refusal)
            completions = tuple(each._replace(response=refusal) for each in completions)
        elif not self._replay(
            lambda: _replay_in_transaction(machine, records, producer), completions
        ):
            return
        else:
            self._tools.metrics.records_written += len(records)
        for completion in completions:
            self._complete(completion)
        self._arm_timer()

    def _replay(self, replay: Callable[[], None], completions: Iterable[Completion] = ()) -> bool:
        """Replay records; after a failure refuse the completions, load again and return False."""
        try:
            replay()
        except Exception:
            logger.exception("%s: a record was not replayed", self._name)
            self._refuse_all(completions, self._error(ErrorCode.UNKNOWN_SERVER_ERROR, "failed"))
            self._load_again(self._error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "failed"))
            return False
        return True

    def _refuse_all(self, completions: Iterable[Completion], error: KafkaError) -> None:
        """Refuse the requests that a decision would have completed."""
        for completion in completions:
            future = self._requests.pop(completion.request_id, None)
            if future is not None:
                respond(future, error)

    def _complete(self, completion: Completion) -> None:
        """Complete a request now, or together with everything that was written before."""
        future = self._requests.pop(completion.request_id, None)
        if future is None:
            return  # its client has gone
        batch, written = self._batches.last, self._written
        if written is not None and self.partition.high_watermark >= written.offset:
            written = self._written = None
        if completion.at_once or (batch is None and written is None):
            respond(future, completion.response)
        elif batch is not None:
            batch.answers.append((future, completion.response))
        else:
            assert written is not None
            self._wait_for([(written, (future, completion.response))])

    def _withdraw(self, request_id: int, future: ResponseFuture) -> None:
        """The future of a request has ended; if its client has gone, nothing waits for it."""
        if self._requests.pop(request_id, None) is None or not future.cancelled():
            return
        if self._machine is not None:
            self._machine.withdraw(request_id)
            self._arm_timer()

    # appends

    def _plan_append(self) -> None:
        if self._append_planned is None:
            self._append_planned = asyncio.get_running_loop().call_soon(self._append)

    def _append(self) -> None:
        """Append the batches of this turn; the first batch that fails ends the state machine."""
        self._append_planned = None
        tools, batches = self._tools, self._batches.take()
        due: list[tuple[RequiredOffset, CoordinatorAnswer]] = []
        for number, batch in enumerate(batches):
            result = self._append_batch(batch)
            if isinstance(result, KafkaError):
                self._refuse(batches[number:], operation_error(result))
                self._load_again(result)
                break
            tools.metrics.records_written += len(batch.records)
            self._append_pauses.reset()
            if result.required_offset is None:
                for answer in batch.answers:
                    respond(*answer)
            else:
                self._written = result.required_offset
                due += [(result.required_offset, answer) for answer in batch.answers]
        self._wait_for(due)

    def _append_batch(self, batch: PendingBatch[CoordinatorAnswer]) -> Appended | KafkaError:
        replica_manager = self._tools.replica_manager
        try:
            records = batch.encode(self._tools.compression)
            (result,) = replica_manager.append_records(
                self.partition, ((records, ACKS_ALL),), now_ms=replica_manager.now_ms()
            )
        except Exception:
            logger.exception("%s: a batch was not appended", self._name)
            return self._error(ErrorCode.UNKNOWN_SERVER_ERROR, "failed")
        if isinstance(result, KafkaError):
            replica_manager.report_error(self.partition.topic_partition, result)
        return result

    def _wait_for(self, answers: Iterable[tuple[RequiredOffset, CoordinatorAnswer]]) -> None:
        """Complete requests when the high watermark has passed what they wait for."""
        delayed = DelayedResponses(
            self._tools.replica_manager, self.partition.topic_partition, self._owner
        )
        for wait, answer in answers:
            delayed.add(wait, answer)
        delayed.complete_or_wait(self._tools.commit_timeout_ms())

    @staticmethod
    def _refuse(batches: Iterable[PendingBatch[CoordinatorAnswer]], error: KafkaError) -> None:
        for batch in batches:
            for future, _ in batch.answers:
                respond(future, error)

    # time

    def _arm_timer(self) -> None:
        if self._machine is not None:
            self._timer.arm(self._machine.next_deadline_ms())

    def _pass_time(self) -> None:
        machine = self._machine
        if machine is None or not has_enough_replicas(self.partition):
            return  # ``partition_changed`` arms the timer again
        deadline_ms = machine.next_deadline_ms()
        now_ms = self._tools.replica_manager.monotonic_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            self._timer.arm(deadline_ms)
        elif not self._let_decide(machine.pass_time):
            self._timer.arm(now_ms + TIMER_REST_MS)

    # texts

    @property
    def _name(self) -> str:
        return f"the coordinator of {self.partition.topic_partition}"

    def _error(self, code: ErrorCode, what: str) -> KafkaError:
        return KafkaError(code, f"{self._name} {what}")


def _begin(machine: CoordinatorStateMachine, now: Now) -> Collection[StoredTopic]:
    """End a load, and find out what is stored about topics.  Blocks."""
    machine.loaded(now)
    return machine.stored_topics()


def _replay_all(machine: CoordinatorStateMachine, records: Iterable[CoordinatorRecord]) -> None:
    for record in records:
        machine.replay(record)


def _replay_in_transaction(
    machine: CoordinatorStateMachine,
    records: Iterable[CoordinatorRecord],
    producer: TransactionalProducer,
) -> None:
    for record in records:
        machine.replay_in_transaction(record, producer.producer_id)


def has_enough_replicas(partition: Partition) -> bool:
    """Whether appends with acks=all are taken now."""
    state = partition.state
    required = partition.config.min_insync_replicas
    return state is not None and len(state.isr) >= state.required_isr(required)
