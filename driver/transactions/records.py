"""Records of ``__transaction_state`` <-> transactions.

Owns: the choice of versions and the mapping of fields.  Must not know how a record is chosen.
Kafka: ``TransactionLog``.
"""

from typing import Final, NamedTuple

from sparklog.driver.transactions.record_schemas import (
    FLEXIBLE_VALUE_VERSION,
    KEY_VERSION,
    VALUE_VERSIONS,
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
)
from sparklog.driver.transactions.transaction import NO_PARTITIONS, Transaction
from sparklog.driver.transactions.transaction_state import TransactionState
from sparklog.errors import DecodeError
from sparklog.types import TopicPartition, numbers_by_topic
from sparklog.wire.protocol.versioned_values import (
    decode_versioned,
    encode_versioned,
    version_of,
)

#: The version that Kafka writes when transaction versions 1 and 2 are on (KIP-915).
_WRITTEN_VALUE_VERSION: Final = 1


class TransactionRecord(NamedTuple):
    """A record; a ``value`` of None ends the transactional id."""

    key: bytes
    value: bytes | None


def transaction_record(transaction: Transaction) -> TransactionRecord:
    """The record of a transaction; that of a dead one is a tombstone."""
    key = encode_versioned(
        KEY_VERSION, TransactionLogKey(transactional_id=transaction.transactional_id)
    )
    if transaction.state == TransactionState.DEAD:
        return TransactionRecord(key, None)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return TransactionRecord(key, encode_versioned(_WRITTEN_VALUE_VERSION, value, flexible=True))


def read_transaction_record(record: TransactionRecord) -> tuple[str, Transaction | None] | None:
    """The transactional id of a record with its transaction, which is None at its end.

    A record whose key has an unknown version gives None and is to be ignored, as Kafka does.

    Raises:
        DecodeError: the bytes do not follow their schema.
    """
    if version_of(record.key) != KEY_VERSION:
        return None
    transactional_id = decode_versioned(TransactionLogKey, record.key).transactional_id
    if record.value is None:
        return transactional_id, None
    if version_of(record.value) not in VALUE_VERSIONS:
        raise DecodeError(f"TransactionLogValue v{version_of(record.value)} is unknown")
    value = decode_versioned(
        TransactionLogValue, record.value, flexible_from=FLEXIBLE_VALUE_VERSION
    )
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise DecodeError(f"transaction status {value.transaction_status} is unknown") from None
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions
            for partition in each.partition_ids
        )
        if value.transaction_partitions
        else NO_PARTITIONS,
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _by_topic(transaction: Transaction) -> tuple[PartitionsOfTopic, ...] | None:
    """Kafka writes null for a transactional id without a transaction."""
    if transaction.state == TransactionState.EMPTY:
        return None
    return tuple(
        PartitionsOfTopic(topic=topic, partition_ids=numbers)
        for topic, numbers in numbers_by_topic(sorted(transaction.partitions)).items()
    )
