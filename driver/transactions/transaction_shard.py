"""The state machine of one partition of ``__transaction_state``.

Owns: the transactions of the partition, the one pending transition of each transactional id, the
requests that wait for it, and the partitions whose markers are missing.  Must not know appends,
sockets or clocks.  Kafka: ``TransactionStateManager``.

A transition is pending from its decision until its record is durable.  Only then the transaction
changes, the client gets its response, and markers are written.  Another request for the same
transactional id waits meanwhile, for a bounded time.  A request that a consistent cut holds back
waits for the end of the cut.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from sparklog.driver.transactions.choices import (
    after_add_partitions,
    after_end_transaction,
    after_init_producer_id,
    check_init_producer_id,
    concurrent,
    missing_partitions,
)
from sparklog.driver.transactions.config import (
    EXPIRY_IDS_AT_ONCE,
    TIMEOUTS_AT_ONCE,
    TransactionConfig,
)
from sparklog.driver.transactions.connection_order import ConnectionOrder
from sparklog.driver.transactions.consistent_cuts import ConsistentCuts
from sparklog.driver.transactions.decision import (
    AddPartitions,
    Append,
    Completion,
    Decision,
    EndTransaction,
    InitProducerId,
    Now,
    ProducerIdentity,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from sparklog.driver.transactions.records import (
    TransactionRecord,
    read_transaction_record,
    transaction_record,
)
from sparklog.driver.transactions.transaction import Transaction
from sparklog.driver.transactions.transaction_state import AT_REST, PREPARED, TransactionState
from sparklog.driver.transactions.waiting_requests import (
    WaitingRequest,
    WaitingRequests,
    held_request,
    waiting_request,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_PRODUCER_ID, TopicPartition

_Transition = InitProducerId | AddPartitions | EndTransaction


@dataclass(frozen=True, slots=True)
class _Pending:
    """A transition whose record is not durable yet; ``waiting`` is the request that caused it."""

    transaction: Transaction
    waiting: WaitingRequest | None


@dataclass(slots=True)
class _Outcome:
    """The decision of one event while it is made."""

    appends: list[Append] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)

    def complete(
        self,
        request_id: int,
        result: ProducerIdentity | frozenset[TopicPartition] | KafkaError | None,
    ) -> None:
        self.completions.append(Completion(request_id=request_id, result=result))

    def decision(self) -> Decision:
        return Decision(
            appends=tuple(self.appends),
            completions=tuple(self.completions),
            markers=tuple(self.markers),
        )


class TransactionShard:
    """The coordinator's state for one partition of ``__transaction_state``.  Pure.

    Args:
        config: the settings.
        new_producer_id: takes an unused producer id.  It raises KafkaError when there is none now.
        cuts: the consistent cuts over all shards.
    """

    def __init__(
        self,
        config: TransactionConfig,
        new_producer_id: Callable[[], int],
        cuts: ConsistentCuts | None = None,
    ) -> None:
        self._config = config
        self._new_producer_id = new_producer_id
        self._cuts = ConsistentCuts() if cuts is None else cuts
        self._transactions: dict[str, Transaction] = {}
        #: The ids of ongoing transactions, in an order that does not depend on hashes.
        self._ongoing: dict[str, None] = {}
        self._pending: dict[str, _Pending] = {}
        self._unwritten: dict[str, set[TopicPartition]] = {}
        self._waiting = WaitingRequests()
        self._held = WaitingRequests()
        self._connections = ConnectionOrder()
        self._timeout_check_ms: int | None = None
        self._expiration_check_ms: int | None = None
        self._timeouts: Iterator[str] | None = None
        self._expirations: Iterator[str] | None = None

    # -- loading

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record of the log while loading.

        Raises:
            DecodeError: the record does not follow its schema.
        """
        read = read_transaction_record(record)
        if read is None:
            return
        transactional_id, transaction = read
        if transaction is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = transaction

    def loaded(self, now: Now) -> Decision:
        """All records were replayed: finish the transactions that were decided."""
        self._timeout_check_ms = now.monotonic_ms + self._config.timeout_check_ms
        self._expiration_check_ms = now.monotonic_ms + self._config.expiration_check_ms
        outcome = _Outcome()
        for transactional_id, transaction in self._transactions.items():
            if transaction.state == TransactionState.ONGOING:
                self._ongoing[transactional_id] = None
            elif transaction.state in PREPARED:
                self._write_markers(transaction, now, outcome)
        for transactional_id in (*self._ongoing, *self._unwritten):
            transaction = self._transactions[transactional_id]
            self._cuts.transactions.load(
                transactional_id, transaction.partitions, transaction.start_ms
            )
        return outcome.decision()

    # -- queries

    def get(self, transactional_id: str) -> Transaction | None:
        """The durable state of a transactional id."""
        return self._transactions.get(transactional_id)

    def transactions(self) -> Iterable[Transaction]:
        """The durable state of all transactional ids of the partition."""
        return self._transactions.values()

    @property
    def count(self) -> int:
        """The transactional ids of the partition."""
        return len(self._transactions)

    @property
    def ongoing_count(self) -> int:
        """The ongoing transactions of the partition."""
        return len(self._ongoing)

    def unwritten(self, transactional_id: str) -> frozenset[TopicPartition]:
        """The partitions whose markers are missing, once the transaction is decided."""
        return frozenset(self._unwritten.get(transactional_id, ()))

    def next_deadline_ms(self) -> int | None:
        """When ``pass_time`` is due next, in monotonic milliseconds; None before ``loaded``."""
        deadlines = [
            self._timeout_check_ms,
            self._expiration_check_ms,
            self._waiting.next_deadline_ms(),
            self._held.next_deadline_ms(),
        ]
        return min((each for each in deadlines if each is not None), default=None)

    # -- events

    def handle(self, request: TransactionRequest, now: Now) -> Decision:
        """Decide on a request.  A refusal is a ``Completion``, so this raises nothing."""
        outcome = _Outcome()
        if isinstance(request, VerifyPartitions):
            self._verify(request, outcome)
            return outcome.decision()
        if not isinstance(request, InitProducerId):  # whose new epoch fences earlier requests
            transaction = self._transactions.get(request.transactional_id)
            current = None if transaction is None else _identity(transaction)
            try:
                self._connections.check(request, current)
            except KafkaError as error:
                outcome.complete(request.request_id, error)
                return outcome.decision()
        waiting = waiting_request(request, self._config, now.monotonic_ms)
        self._decide(waiting, now, outcome)
        return outcome.decision()

    def appended(self, transactional_id: str, now: Now) -> Decision:
        """The record of the pending transition is durable."""
        outcome = _Outcome()
        pending = self._pending.pop(transactional_id)
        transaction = pending.transaction
        self._ongoing.pop(transactional_id, None)
        if transaction.state == TransactionState.DEAD:
            del self._transactions[transactional_id]
            self._connections.forget(transactional_id)
        else:
            self._transactions[transactional_id] = transaction
        if transaction.state == TransactionState.ONGOING:
            self._ongoing[transactional_id] = None
            self._cuts.transactions.join(transactional_id, transaction.partitions, now.wall_ms)
        if pending.waiting is not None:
            self._complete(pending.waiting, transaction, now, outcome)
        if transaction.state in PREPARED:
            self._write_markers(transaction, now, outcome)
        else:
            self._go_on(transactional_id, now, outcome)
        return outcome.decision()

    def append_refused(self, transactional_id: str, error: KafkaError, now: Now) -> Decision:
        """The record of the pending transition is certainly not in the log, nor will it be."""
        outcome = _Outcome()
        pending = self._pending.pop(transactional_id)
        if pending.waiting is not None:
            outcome.complete(pending.waiting.request.request_id, error)
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.state in PREPARED:
            self._complete_transaction(transaction, now, outcome)  # the decision stands
        else:
            self._go_on(transactional_id, now, outcome)
        return outcome.decision()

    def markers_written(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        now: Now,
    ) -> Decision:
        """These partitions have the marker of ``producer``, or are deleted."""
        outcome = _Outcome()
        transaction = self._transactions.get(transactional_id)
        unwritten = self._unwritten.get(transactional_id)
        if transaction is None or not unwritten or producer != _identity(transaction):
            return outcome.decision()  # a late response about an earlier transaction
        unwritten -= partitions
        self._cuts.transactions.leave(transactional_id, partitions)
        if not unwritten:
            self._complete_transaction(transaction, now, outcome)
        return outcome.decision()

    def pass_time(self, now: Now) -> Decision:
        """Do what is due: refuse requests that waited too long, abort, and forget ids."""
        outcome = _Outcome()
        late_requests = self._waiting.take_late(now.monotonic_ms)
        late_requests += self._held.take_late(now.monotonic_ms)
        for late in late_requests:
            error = concurrent(late.request.transactional_id)
            outcome.complete(late.request.request_id, error)
        self._abort_timed_out(now, outcome)
        self._expire(now, outcome)
        return outcome.decision()

    def withdraw(self, request_id: int, transactional_id: str) -> None:
        """The client of a request has gone; a request that only waits is not decided any more."""
        self._waiting.remove(request_id, transactional_id)
        self._held.remove(request_id, transactional_id)

    def release_held(self, now: Now) -> Decision:
        """A consistent cut has ended: decide on the requests that were held back, in their order.

        Those that another cut holds back wait on.
        """
        outcome = _Outcome()
        for held in self._held.take_all():
            waiting = waiting_request(held.request, self._config, now.monotonic_ms)
            self._decide(waiting, now, outcome)
        return outcome.decision()

    def unload(self, error: KafkaError) -> tuple[Completion, ...]:
        """Answer every request that has no response with ``error``; the shard is used no more.

        The outcome of a pending transition is unknown: its record may be in the log, or come there.
        """
        for transactional_id in (*self._ongoing, *self._unwritten):
            partitions = self._transactions[transactional_id].partitions
            self._cuts.transactions.leave(transactional_id, partitions)
        unanswered = [each.waiting for each in self._pending.values() if each.waiting is not None]
        return tuple(
            Completion(request_id=each.request.request_id, result=error)
            for each in (*unanswered, *self._waiting.all(), *self._held.all())
        )

    # -- requests

    def _verify(self, request: VerifyPartitions, outcome: _Outcome) -> None:
        pending = self._pending.get(request.transactional_id)
        ending = pending is not None and pending.transaction.state in PREPARED
        try:
            missing = missing_partitions(
                self._transactions.get(request.transactional_id), request, ending=ending
            )
        except KafkaError as error:
            outcome.complete(request.request_id, error)
        else:
            outcome.complete(request.request_id, missing)

    def _decide(self, waiting: WaitingRequest, now: Now, outcome: _Outcome) -> None:
        request = waiting.request
        if self._held.has(request.transactional_id):
            self._hold(waiting, now, outcome)  # the requests of one id keep their order
            return
        try:
            decided = self._after(request, now)
        except KafkaError as error:
            busy = error.code == ErrorCode.CONCURRENT_TRANSACTIONS
            if busy and self._waiting.add(waiting, now.monotonic_ms):
                return
            outcome.complete(request.request_id, error)
            return
        if not isinstance(decided, Transaction):
            outcome.complete(request.request_id, decided)
        elif self._is_held(decided):
            self._hold(waiting, now, outcome)
        else:
            self._append(decided, waiting, outcome)

    def _is_held(self, decided: Transaction) -> bool:
        """Whether a consistent cut holds this transition back."""
        if decided.state == TransactionState.PREPARE_COMMIT:
            return self._cuts.holds_commit(decided.partitions)
        if decided.state == TransactionState.ONGOING:
            joined = self._transactions[decided.transactional_id].partitions
            return self._cuts.holds_join(joined, decided.partitions)
        return False

    def _hold(self, waiting: WaitingRequest, now: Now, outcome: _Outcome) -> None:
        if not self._held.add(held_request(waiting, now.monotonic_ms), now.monotonic_ms):
            request = waiting.request
            outcome.complete(request.request_id, concurrent(request.transactional_id))

    def _after(self, request: _Transition, now: Now) -> Transaction | ProducerIdentity | None:
        transactional_id = request.transactional_id
        transaction = self._transactions.get(transactional_id)
        pending = transactional_id in self._pending
        match request:
            case AddPartitions():
                return after_add_partitions(transaction, request, now.wall_ms, pending=pending)
            case EndTransaction():
                return after_end_transaction(
                    transaction, request, now.wall_ms, self._new_producer_id, pending=pending
                )
        check_init_producer_id(request, self._config)
        if transaction is None:
            if pending:
                raise concurrent(transactional_id)
            transaction = Transaction(
                transactional_id=transactional_id,
                producer_id=self._new_producer_id(),
                timeout_ms=request.timeout_ms,
                update_ms=now.wall_ms,
            )
        return after_init_producer_id(
            transaction, request, now.wall_ms, self._new_producer_id, pending=pending
        )

    def _append(
        self, transaction: Transaction, waiting: WaitingRequest | None, outcome: _Outcome
    ) -> None:
        transactional_id, record = transaction.transactional_id, transaction_record(transaction)
        if transaction.state == TransactionState.PREPARE_COMMIT:
            self._cuts.transactions.decide_commit(transaction.partitions)
        self._pending[transactional_id] = _Pending(transaction, waiting)
        outcome.appends.append(Append(transactional_id=transactional_id, record=record))

    def _complete(
        self, waiting: WaitingRequest, transaction: Transaction, now: Now, outcome: _Outcome
    ) -> None:
        """The response to the request whose transition is durable now."""
        request = waiting.request
        match request:
            case AddPartitions():
                outcome.complete(request.request_id, None)
            case InitProducerId() if transaction.state in PREPARED:
                # The producer before this one is fenced; the request goes on after its abort.
                if not self._waiting.add(waiting, now.monotonic_ms, first=True):
                    outcome.complete(request.request_id, concurrent(request.transactional_id))
            case _:
                outcome.complete(request.request_id, _identity_afterwards(transaction))

    def _go_on(self, transactional_id: str, now: Now, outcome: _Outcome) -> None:
        """No transition is pending: decide on the requests that waited, in their order."""
        for each in self._waiting.take(transactional_id):
            self._decide(each, now, outcome)

    # -- markers

    def _write_markers(self, transaction: Transaction, now: Now, outcome: _Outcome) -> None:
        if not transaction.partitions:
            self._complete_transaction(transaction, now, outcome)
            return
        self._unwritten[transaction.transactional_id] = set(transaction.partitions)
        outcome.markers.append(
            WriteMarkers(
                transactional_id=transaction.transactional_id,
                producer=_identity(transaction),
                committed=transaction.state == TransactionState.PREPARE_COMMIT,
                partitions=transaction.partitions,
                client_version=transaction.client_version,
            )
        )

    def _complete_transaction(self, transaction: Transaction, now: Now, outcome: _Outcome) -> None:
        self._unwritten.pop(transaction.transactional_id, None)
        self._append(transaction.completed(now.wall_ms), None, outcome)

    # -- time

    def _abort_timed_out(self, now: Now, outcome: _Outcome) -> None:
        if self._timeout_check_ms is None or now.monotonic_ms < self._timeout_check_ms:
            return
        if self._timeouts is None:
            self._timeouts = iter(tuple(self._ongoing))
        some = tuple(islice(self._timeouts, TIMEOUTS_AT_ONCE))
        for transactional_id in some:
            transaction = self._transactions.get(transactional_id)
            if transaction is None or transactional_id in self._pending:
                continue
            if transaction.state != TransactionState.ONGOING:
                continue
            if now.wall_ms - transaction.start_ms > transaction.timeout_ms:
                fenced = transaction.fenced(now.wall_ms, transaction.client_version)
                self._append(fenced, None, outcome)
        if len(some) < TIMEOUTS_AT_ONCE:
            self._timeouts = None
            self._timeout_check_ms = now.monotonic_ms + self._config.timeout_check_ms

    def _expire(self, now: Now, outcome: _Outcome) -> None:
        if self._expiration_check_ms is None or now.monotonic_ms < self._expiration_check_ms:
            return
        if self._expirations is None:
            self._expirations = iter(tuple(self._transactions))
        some = tuple(islice(self._expirations, EXPIRY_IDS_AT_ONCE))
        for transactional_id in some:
            transaction = self._transactions.get(transactional_id)
            if transaction is None or transactional_id in self._pending:
                continue
            unused_ms = now.wall_ms - transaction.update_ms
            if transaction.state in AT_REST and unused_ms > self._config.id_expiration_ms:
                self._append(transaction.dead(), None, outcome)
        if len(some) < EXPIRY_IDS_AT_ONCE:
            self._expirations = None
            self._expiration_check_ms = now.monotonic_ms + self._config.expiration_check_ms


def _identity(transaction: Transaction) -> ProducerIdentity:
    """The identity that the producer has; in the markers of a decided transaction."""
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _identity_afterwards(transaction: Transaction) -> ProducerIdentity:
    """The identity that the producer uses after this transition."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(transaction.next_producer_id, 0)
    return _identity(transaction)
