"""The table of states, and the records of ``__transaction_state``."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.transactions import (
    Transaction,
    TransactionRecord,
    TransactionState,
    read_transaction_record,
    transaction_record,
)
from sparklog.driver.transactions.transaction import IllegalTransitionError
from sparklog.driver.transactions.transaction_state import TRANSITIONS, diagram
from sparklog.errors import DecodeError
from sparklog.types import TopicPartition

INT64 = st.integers(-1, 2**63 - 1)
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([each for each in TransactionState if each.name != "DEAD"]),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 99)), max_size=5
    ),
    start_ms=INT64,
    update_ms=INT64,
    client_version=st.integers(0, 2),
)


@given(TRANSACTIONS)
def test_records_are_read_as_they_were_written(transaction: Transaction) -> None:
    if transaction.state == TransactionState.EMPTY:
        transaction = replace(transaction, partitions=frozenset())
    read = read_transaction_record(transaction_record(transaction))
    assert read is not None
    transactional_id, found = read
    assert transactional_id == transaction.transactional_id
    assert found is not None
    assert found == transaction  # the last epoch is not in Kafka's schema


def test_the_bytes_of_a_record_are_kafkas() -> None:
    record = transaction_record(
        Transaction(
            transactional_id="x",
            producer_id=5,
            previous_producer_id=4,
            producer_epoch=2,
            timeout_ms=1000,
            state=TransactionState.ONGOING,
            partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
            start_ms=7,
            update_ms=8,
            client_version=2,
        )
    )
    assert record.key.hex() == "0000000178"
    assert record.value is not None
    assert record.value.hex() == (
        "0001"  # the version
        "0000000000000005"  # the producer id
        "0002"  # its epoch
        "000003e8"  # the timeout
        "01"  # Ongoing
        "02"
        "0274"
        "03"
        "00000000"
        "00000001"
        "00"  # t with partitions 0 and 1
        "0000000000000008"  # the update
        "0000000000000007"  # the start
        "02"  # two tagged fields
        "00"
        "08"
        "0000000000000004"  # the previous producer id
        "02"
        "02"
        "0002"  # the client's transaction version
    )


def test_records_of_kafkas_first_version_are_read() -> None:
    key = bytes.fromhex("0000000178")
    value = bytes.fromhex(
        "000000000000000000050002000003e804ffffffff0000000000000008ffffffffffffffff"
    )
    assert read_transaction_record(TransactionRecord(key, value)) == (
        "x",
        Transaction(
            transactional_id="x",
            producer_id=5,
            producer_epoch=2,
            timeout_ms=1000,
            state=TransactionState.COMPLETE_COMMIT,
            update_ms=8,
        ),
    )


def test_a_dead_transactional_id_is_a_tombstone() -> None:
    dead = Transaction(transactional_id="x", producer_id=1, timeout_ms=1, update_ms=1).dead()
    record = transaction_record(dead)
    assert record.value is None
    assert read_transaction_record(record) == ("x", None)


@pytest.mark.parametrize(
    "record",
    [
        TransactionRecord(b"", None),
        TransactionRecord(b"\0", None),
        TransactionRecord(b"\0\0\0\x09x", None),
        TransactionRecord(b"\0\0\0\x01x", b""),
        TransactionRecord(b"\0\0\0\x01x", b"\0\x02"),
        TransactionRecord(b"\0\0\0\x01x", b"\0\0\0"),
        TransactionRecord(
            b"\0\0\0\x01x",
            bytes.fromhex("000000000000000000050002000003e809ffffffff" + "00" * 16),
        ),
    ],
)
def test_malformed_records(record: TransactionRecord) -> None:
    with pytest.raises(DecodeError):
        read_transaction_record(record)


def test_records_of_unknown_kinds_are_ignored() -> None:
    assert read_transaction_record(TransactionRecord(b"\0\x01abc", b"x")) is None


def test_what_the_table_does_not_have_is_an_error() -> None:
    transaction = Transaction(transactional_id="x", producer_id=1, timeout_ms=1, update_ms=1)
    with pytest.raises(IllegalTransitionError, match="'x' cannot go from Empty to CompleteAbort"):
        transaction.completed(1)


def test_the_diagram_has_every_transition() -> None:
    drawn = diagram()
    assert drawn.count("-->") == 2 + sum(len(each) for each in TRANSITIONS.values())
    assert "    Ongoing --> PrepareCommit\n" in drawn
