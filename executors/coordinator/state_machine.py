"""The contract between a coordinator's state machine and the runtime that carries it.

Owns: the values that pass between them.  Must not know groups, transactions, partitions, logs,
clocks or asyncio.

There is one state machine for each partition of the internal topic that this broker leads (Kafka's
``CoordinatorShard``).  The runtime loads it with ``replay``, hands it requests and the passing of
time, replays the records that it returns at once, appends them to the partition, and sends the
responses when the high watermark has passed the records.  When an append fails, or the broker loses
the partition, the runtime drops the state machine and loads a new one.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from sparklog.errors import KafkaError
from sparklog.slices import Slices
from sparklog.wire.protocol.schema import Request, Response


class Now(NamedTuple):
    """The time of an event in milliseconds.

    ``monotonic_ms`` never goes back and measures durations, such as a session.  ``wall_ms`` is the
    time of day, which records keep.
    """

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRecord:
    """A record for the internal topic; a ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


class TransactionalProducer(NamedTuple):
    """A producer that has a transaction open."""

    producer_id: int
    producer_epoch: int


class CoordinatorRequest(NamedTuple):
    """A request for one state machine, with the parts of its context that decisions use.

    A tuple, as are ``Completion`` and ``Decision``, because every heartbeat makes one of each.
    ``request_id`` is unique in the runtime; the ``Completion`` names it.  With a ``producer``, the
    records of the decision belong to its transaction: they are appended at once in a batch of the
    producer, and after that replayed with ``replay_in_transaction``.
    """

    request_id: int
    body: Request
    version: int
    client_id: str
    client_host: str
    producer: TransactionalProducer | None = None


#: A response, or the slices that make a large one.  The slices show the state of the decision:
#: what they are made from does not change.
CoordinatorResponse: TypeAlias = Response | Slices[Response]


class Completion(NamedTuple):
    """The response to a request, of this event or of an earlier one.

    The response is sent when everything that the state machine has written so far is committed,
    because the response may show it.  ``at_once`` sends it without that wait: the response shows
    nothing that a new coordinator could take back.
    """

    request_id: int
    response: CoordinatorResponse | KafkaError
    at_once: bool = False


class StoredTopic(NamedTuple):
    """A topic of which a state machine stores something; an id of None is not known."""

    name: str
    topic_id: UUID | None


class DeletedTopic(NamedTuple):
    """A topic that was deleted.  Another topic may have its name by now, with another id.

    The id is None for what was stored without an id, while no topic has the name.
    """

    name: str
    topic_id: UUID | None


class Decision(NamedTuple):
    """The outcome of one event: records to append in their order, and responses.

    The records are appended in one batch.  When they do not fit into a batch, the runtime refuses
    the completions with MESSAGE_TOO_LARGE and applies none of the records.  A decision that is
    ``divisible``, or has no completions, is divided among several batches instead: its records
    need not survive together, and its client may repeat the request.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    completions: tuple[Completion, ...] = ()
    divisible: bool = False


class CoordinatorStateMachine(Protocol):
    """A coordinator's state for one partition of its internal topic.  Pure.

    The methods that return a ``Decision`` change volatile state (members, timers, requests that
    wait) themselves.  Durable state is changed by the ``replay`` methods alone.

    No call may take long, because the event loop waits for it.  Work on many records goes on in
    further calls of ``pass_time``.  Only ``replay`` while loading, ``loaded`` and ``stored_topics``
    run in a worker thread.
    """

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record: one that was just decided, or one of the log while loading.

        Records of unknown kinds are ignored, as Kafka's are.
        """

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Keep a record of a transaction until ``replay_transaction_end`` decides about it."""

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop what is kept for the transaction of a producer, if there is anything."""

    def loaded(self, now: Now) -> None:
        """All records of the log were replayed; requests and time begin."""

    def stored_topics(self) -> Collection[StoredTopic]:
        """The topics of which something is stored; called after ``loaded``.

        The topics that exist no longer are handed to ``topics_deleted``: their deletion may have
        come while nobody, or another broker, coordinated this partition.
        """

    def may_write(self, request: CoordinatorRequest) -> bool:
        """Whether the decision on a request may have records.

        Such requests, and ``pass_time``, wait while the partition takes no appends.
        """

    def handle(self, request: CoordinatorRequest, now: Now) -> Decision:
        """Decide on a request.  A refusal is a ``Completion``, so this raises nothing."""

    def answer(self, body: Request, now: Now) -> Response | None:
        """Answer a request without a decision; None: let ``handle`` decide on it.

        Such a request writes nothing, waits for nothing, makes no deadline come earlier, and its
        response shows nothing that a new coordinator could take back.
        """

    def pass_time(self, now: Now) -> Decision:
        """Do what is due at ``now``: sessions that end, rebalances that complete, expiry."""

    def topics_deleted(self, topics: Collection[DeletedTopic], now: Now) -> None:
        """Topics were deleted; what is stored about them is due to be forgotten, but nothing of a
        later topic of the same name.  ``pass_time`` does that.
        """

    def next_deadline_ms(self) -> int | None:
        """When ``pass_time`` is due next, in monotonic milliseconds; None when nothing waits."""

    def withdraw(self, request_id: int) -> None:
        """The client of a request that waits has gone; its response would reach nobody."""

    def unload(self, error: KafkaError) -> tuple[Completion, ...]:
        """Refuse every request that waits with ``error``; the state machine is used no more."""
