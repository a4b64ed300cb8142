"""The values between the transaction coordinator's state machine and the shell that carries it.

Owns: requests, responses and effects as values.  Must not know how they travel.

The shell appends the records of a decision to the shard's partition of ``__transaction_state``,
those of one loop tick in one batch, and reports each one with ``TransactionShard.appended`` when it
is durable.  An append of unknown outcome is repeated until its outcome is known.  The shell sends
the completions of a decision at once: a completion that depends on a record is in the decision of
``appended``.
"""

from dataclasses import dataclass
from typing import NamedTuple

from sparklog.driver.transactions.records import TransactionRecord
from sparklog.errors import KafkaError
from sparklog.types import TopicPartition


class Now(NamedTuple):
    """The time of an event in milliseconds.

    ``monotonic_ms`` never goes back and measures durations.  ``wall_ms`` is the time of day, which
    records keep.
    """

    monotonic_ms: int
    wall_ms: int


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer starts with a transactional id, or goes on after an error (KIP-360).

    Args:
        request_id: unique in the shard; the ``Completion`` names it.
        timeout_ms: milliseconds after which the producer's transactions are aborted.
        expected: the identity that the producer had, if it goes on; None if it starts.
    """

    request_id: int
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """The transaction will write to these partitions.

    Args:
        connection: the number of the client's connection; later connections have higher numbers.
        client_version: 2 when a broker adds the partitions of a Produce request (KIP-890).
    """

    request_id: int
    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    connection: int
    client_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """A broker asks whether the open transaction has these partitions (KIP-890, part 1)."""

    request_id: int
    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The producer commits or aborts its transaction."""

    request_id: int
    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    connection: int
    client_version: int


TransactionRequest = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The outcome of a request.

    Args:
        result: the identity that the producer uses from now on, for InitProducerId and
            EndTransaction; the partitions that the open transaction does not have, for
            VerifyPartitions; None for AddPartitions; the refusal otherwise.
    """

    request_id: int
    result: ProducerIdentity | frozenset[TopicPartition] | KafkaError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A record to append; ``TransactionShard.appended`` gets ``transactional_id`` back."""

    transactional_id: str
    record: TransactionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """Write the end of a transaction to each of its partitions.

    The shell repeats it until each partition has the marker or is deleted, and reports partitions
    with ``TransactionShard.markers_written``.
    """

    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    partitions: frozenset[TopicPartition]
    client_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of one event."""

    appends: tuple[Append, ...] = ()
    completions: tuple[Completion, ...] = ()
    markers: tuple[WriteMarkers, ...] = ()
