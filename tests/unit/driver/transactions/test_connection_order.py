"""Requests of old clients on several connections: delayed ones do nothing, and hinder nobody."""

from sparklog.driver.transactions import ProducerIdentity, TransactionState
from sparklog.errors import ErrorCode
from tests.unit.driver.transactions.shard_rig import T0, T1, V2, ShardRig

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_request_that_was_delayed_on_an_old_connection_reaches_no_later_transaction() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    rig.end(producer, connection=2)
    rig.settle()
    rig.add(producer, T1, connection=2)
    rig.settle()
    assert rig.refusal(rig.end(producer, connection=1)) == CONCURRENT
    assert rig.refusal(rig.add(producer, T0, connection=1)) == CONCURRENT
    assert rig.transaction().state == TransactionState.ONGOING
    assert rig.result(rig.add(producer, T1, connection=3)) is None


def test_a_fenced_producer_on_a_later_connection_does_not_lock_the_live_one_out() -> None:
    rig = ShardRig()
    zombie = rig.ongoing()
    producer = rig.started()
    assert producer.epoch > zombie.epoch
    rig.add(producer, T0, connection=2)
    rig.settle()
    for request in (rig.end(zombie, connection=3), rig.add(zombie, T1, connection=4)):
        assert rig.refusal(request) == ErrorCode.PRODUCER_FENCED
    stranger = ProducerIdentity(producer.producer_id + 1, producer.epoch)
    refused = rig.end(stranger, connection=5)
    assert rig.refusal(refused) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ending = rig.end(producer, connection=2)
    rig.settle()
    assert rig.result(ending) == producer


def test_a_producer_may_start_again_on_an_earlier_connection() -> None:
    rig = ShardRig()
    rig.add(rig.started(), T0, connection=9)
    rig.settle()
    producer = rig.started()
    adding = rig.add(producer, T0, connection=2)
    rig.settle()
    assert rig.result(adding) is None


def test_requests_with_a_bumped_epoch_need_no_order() -> None:
    rig = ShardRig()
    producer = rig.started()
    rig.add(producer, T0, version=V2, connection=0)
    rig.settle()
    rig.add(producer, T1, version=V2, connection=0)
    ending = rig.end(producer, version=V2, connection=7)
    rig.settle()
    later = rig.result(ending)
    assert isinstance(later, ProducerIdentity)
    adding = rig.add(later, T0, version=V2, connection=0)
    rig.settle()
    assert rig.result(adding) is None
