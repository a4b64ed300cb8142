"""How transactions end, for clients before and with transaction version 2."""

import pytest

from sparklog.driver.transactions import ProducerIdentity, TransactionState
from sparklog.driver.transactions.transaction import EPOCH_MAX
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import MAX_INT16
from tests.unit.driver.transactions.shard_rig import (
    T0,
    T1,
    TIMEOUT_MS,
    V1,
    V2,
    ShardRig,
    last_epoch_record,
)

COMMIT, ABORT = True, False


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_a_transaction_ends_when_its_markers_are_written(version: int, committed: bool) -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0, T1, version=version)
    ending = rig.end(producer, committed=committed, version=version)
    assert (rig.is_waiting(ending), rig.markers) == (True, [])
    rig.append_all()
    assert not rig.is_waiting(ending)
    assert rig.transaction().state.label == ("PrepareCommit" if committed else "PrepareAbort")
    (markers,) = rig.markers
    assert (markers.committed, markers.partitions) == (committed, {T0, T1})
    rig.report(markers, T1)
    assert (rig.appends, rig.shard.unwritten("x")) == ([], {T0})
    rig.report(markers, T1)
    assert rig.appends == []
    rig.report(markers, T0)
    rig.append_all()
    transaction = rig.transaction()
    assert transaction.state.label == ("CompleteCommit" if committed else "CompleteAbort")
    assert (transaction.partitions, rig.shard.unwritten("x")) == (frozenset(), frozenset())


def test_the_epoch_of_an_old_client_stays() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    ending = rig.end(producer)
    rig.settle()
    assert rig.result(ending) == producer
    assert rig.transaction().producer_epoch == producer.epoch


def test_each_transaction_of_version_2_has_its_own_epoch() -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=V2)
    ending = rig.end(producer, version=V2)
    rig.append_all()
    (markers,) = rig.markers
    assert markers.producer == (producer.producer_id, producer.epoch + 1)
    assert rig.result(ending) == markers.producer


#: What Kafka answers to a second end, by version: (state, retry of the end before, commit).
#: None is success without another transition.
SECOND_ENDS = {
    (V1, COMMIT, COMMIT): None,
    (V1, COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
    (V1, ABORT, ABORT): None,
    (V1, ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
    (V2, COMMIT, COMMIT): None,
    (V2, COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
    (V2, ABORT, ABORT): None,
    (V2, ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
}


@pytest.mark.parametrize(("version", "first", "second"), SECOND_ENDS)
def test_a_repeated_end(version: int, first: bool, second: bool) -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=version)
    rig.end(producer, committed=first, version=version)
    rig.settle()
    after = rig.transaction()
    again = rig.end(producer, committed=second, version=version)
    expected = SECOND_ENDS[version, first, second]
    if expected is None:
        assert rig.result(again) == (after.producer_id, after.producer_epoch)
    else:
        assert rig.refusal(again) == expected
    assert (rig.appends, rig.transaction()) == ([], after)


@pytest.mark.parametrize("first", [COMMIT, ABORT])
def test_a_client_of_version_2_may_abort_without_partitions(first: bool) -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=V2)
    ended = rig.end(producer, committed=first, version=V2)
    rig.settle()
    producer = rig.result(ended)  # type: ignore[assignment]
    refused = rig.end(producer, committed=COMMIT, version=V2)
    assert rig.refusal(refused) == ErrorCode.INVALID_TXN_STATE
    aborting = rig.end(producer, committed=ABORT, version=V2)
    rig.settle()
    assert rig.result(aborting) == (producer.producer_id, producer.epoch + 1)
    assert rig.transaction().state == TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("version", "committed", "expected"),
    [
        (V1, COMMIT, ErrorCode.INVALID_TXN_STATE),
        (V1, ABORT, ErrorCode.INVALID_TXN_STATE),
        (V2, COMMIT, ErrorCode.INVALID_TXN_STATE),
        (V2, ABORT, None),
    ],
)
def test_the_end_of_no_transaction(
    version: int, committed: bool, expected: ErrorCode | None
) -> None:
    rig = ShardRig()
    producer = rig.started()
    ending = rig.end(producer, committed=committed, version=version)
    rig.settle()
    if expected is None:
        assert rig.result(ending) == (producer.producer_id, producer.epoch + 1)
    else:
        assert rig.refusal(ending) == expected


@pytest.mark.parametrize("version", [V1, V2])
def test_ends_of_strangers(version: int) -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=version)
    stranger = ProducerIdentity(producer.producer_id + 7, producer.epoch)
    assert rig.refusal(rig.end(stranger, version=version)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (producer.epoch - 1, producer.epoch + 1):
        zombie = ProducerIdentity(producer.producer_id, epoch)
        assert rig.refusal(rig.end(zombie, version=version)) == ErrorCode.PRODUCER_FENCED
    unknown = rig.end(producer, transactional_id="y", version=version)
    assert rig.refusal(unknown) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_epochs_that_run_out_lead_to_the_next_producer_id() -> None:
    rig = ShardRig()
    producer = rig.started()
    while producer.epoch < MAX_INT16 - 1:
        producer = rig.started()
    rig.add(producer, T0, version=V2)
    rig.append_all()
    ending = rig.end(producer, version=V2)
    rig.append_all()
    (markers,) = rig.markers
    assert markers.producer == (producer.producer_id, MAX_INT16)
    rotated = rig.result(ending)
    assert isinstance(rotated, ProducerIdentity)
    assert (rotated.producer_id != producer.producer_id, rotated.epoch) == (True, 0)
    adding = rig.add(rotated, T0, version=V2)  # before the markers are written
    assert rig.is_waiting(adding)
    rig.settle()
    assert rig.result(adding) is None
    assert rig.transaction().producer_id == rotated.producer_id


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("are_markers_written", [False, True])
def test_a_producer_that_timed_out_at_the_last_epoch_has_to_be_started_again(
    committed: bool, are_markers_written: bool
) -> None:
    rig = ShardRig(log=[last_epoch_record()])
    producer = ProducerIdentity(7, EPOCH_MAX)
    rig.add(producer, T0, version=V2)
    rig.settle()
    rig.pass_time(TIMEOUT_MS * 2)
    rig.append_all()
    assert rig.transaction().producer_epoch == MAX_INT16
    if are_markers_written:
        rig.settle()
    ending = rig.end(producer, committed=committed, version=V2)
    assert rig.refusal(ending) is ErrorCode.PRODUCER_FENCED
    rig.settle()
    starting = rig.init(expected=producer)
    rig.settle()
    assert rig.result(starting) == (100, 0)


@pytest.mark.parametrize("version", [V1, V2])
def test_no_client_works_with_the_epoch_of_abort_markers(version: int) -> None:
    rig = ShardRig(log=[last_epoch_record()])
    rig.add(ProducerIdentity(7, EPOCH_MAX), T0, version=version)
    rig.settle()
    rig.pass_time(TIMEOUT_MS * 2)
    rig.settle()
    forged = ProducerIdentity(7, MAX_INT16)
    assert rig.refusal(rig.add(forged, T0, version=version)) is ErrorCode.PRODUCER_FENCED
    aborting = rig.end(forged, committed=ABORT, version=version)
    assert rig.refusal(aborting) is ErrorCode.PRODUCER_FENCED
    assert rig.refusal(rig.verify(forged, T0)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_an_end_of_an_old_client_is_no_end_of_the_producer_that_it_fenced(committed: bool) -> None:
    rig = ShardRig()
    zombie = rig.ongoing(version=V2)
    rig.end(zombie, version=V2)
    rig.settle()
    zombie = ProducerIdentity(zombie.producer_id, rig.transaction().producer_epoch)
    successor = rig.ongoing(version=V1)
    assert successor == (zombie.producer_id, zombie.epoch + 1)
    ending = rig.end(successor, committed=committed, version=V1)
    rig.append_all()
    assert (
        rig.refusal(rig.end(zombie, committed=committed, version=V2)) is ErrorCode.PRODUCER_FENCED
    )
    rig.settle()
    assert rig.result(ending) == successor
    assert (
        rig.refusal(rig.end(zombie, committed=committed, version=V2)) is ErrorCode.PRODUCER_FENCED
    )


def test_a_retry_after_the_rotation_gets_the_next_producer_id() -> None:
    rig = ShardRig()
    producer = rig.started()
    while producer.epoch < MAX_INT16 - 1:
        producer = rig.started()
    rig.add(producer, T0, version=V2)
    rig.append_all()
    first = rig.end(producer, version=V2)
    again = rig.end(producer, version=V2)
    rig.settle()
    assert rig.result(first) == rig.result(again)


def test_an_end_that_was_delayed_on_an_old_connection_ends_no_later_transaction() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    rig.end(producer, connection=2)
    rig.settle()
    rig.add(producer, T1, connection=2)
    rig.settle()
    delayed = rig.end(producer, connection=1)
    assert rig.refusal(delayed) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.transaction().state == TransactionState.ONGOING
    assert rig.refusal(rig.add(producer, T0, connection=1)) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_end_that_was_delayed_does_nothing_to_version_2() -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=V2)
    first = rig.end(producer, version=V2, connection=2)
    rig.settle()
    later = rig.result(first)
    assert isinstance(later, ProducerIdentity)
    rig.add(later, T0, version=V2, connection=2)
    rig.settle()
    delayed = rig.end(producer, version=V2, connection=1)
    assert rig.refusal(delayed) == ErrorCode.PRODUCER_FENCED
    assert rig.transaction().state == TransactionState.ONGOING


def test_a_decision_that_is_not_durable_writes_no_marker_and_survives_no_crash() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    rig.end(producer)
    rig.load()
    assert (rig.transaction().state, rig.markers) == (TransactionState.ONGOING, [])
    ending = rig.end(producer, committed=ABORT)
    rig.settle()
    assert rig.result(ending) == producer


def test_a_decision_survives_a_crash_and_its_markers_are_written_again() -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0, T1)
    rig.end(producer)
    rig.append_all()
    (before,) = rig.markers
    rig.report(before, T0)
    rig.load()
    assert rig.markers == [before]
    rig.settle()
    assert rig.transaction().state == TransactionState.COMPLETE_COMMIT


def test_a_late_report_of_markers_completes_no_later_transaction() -> None:
    rig = ShardRig()
    producer = rig.ongoing(version=V2)
    ended = rig.end(producer, version=V2)
    rig.append_all()
    (first,) = rig.markers
    rig.settle()
    producer = rig.result(ended)  # type: ignore[assignment]
    rig.add(producer, T0, version=V2)
    rig.append_all()
    rig.end(producer, version=V2)
    rig.append_all()
    rig.report(first)
    assert rig.transaction().state == TransactionState.PREPARE_COMMIT
    assert rig.appends == []


def test_a_refused_append_changes_nothing() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    ending = rig.end(producer)
    rig.refuse_next(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too many partitions"))
    assert rig.refusal(ending) == ErrorCode.MESSAGE_TOO_LARGE
    assert rig.transaction().state == TransactionState.ONGOING
    again = rig.end(producer)
    rig.settle()
    assert rig.result(again) == producer
