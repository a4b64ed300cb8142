"""Draining: brokers lose their replicas, and are then unregistered."""

import pytest

from sparklog.driver.control_plane.controller import Decision, TimePassed
from sparklog.driver.control_plane.controller import draining as draining_module
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import BrokerDraining, BrokerRemoved, PartitionImage
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from sparklog.wire.protocol.private import DrainBrokersRequest, DrainBrokersResponse, DrainedBroker
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, incarnation

#: ``broker.replacement.delay.ms``.
DELAY_MS = 600_000


def on(*replicas: int) -> PartitionImage:
    return PartitionImage(replicas=replicas, isr=replicas, last_known=replicas, leader=replicas[0])


def brokers(count: int, *partitions: PartitionImage) -> ControllerUnderTest:
    under_test = ControllerUnderTest()
    under_test.register_all(count)
    if partitions:
        under_test.place("a", *partitions)
    return under_test


def drain(under_test: ControllerUnderTest, *broker_ids: int, cancel: bool = False) -> Decision:
    return under_test.handle(DrainBrokersRequest(broker_ids=broker_ids, cancel=cancel))


def progress(under_test: ControllerUnderTest, *broker_ids: int) -> list[tuple[int, int, int]]:
    """(broker, partitions left, number of them that are stuck)."""
    response = drain(under_test, *broker_ids).response
    assert isinstance(response, DrainBrokersResponse)
    return [(b.broker_id, b.partitions_left, b.partitions_stuck) for b in response.brokers]


def catch_up(under_test: ControllerUnderTest) -> None:
    """Every replica that is being added joins the ISR."""
    for tp, state in list(under_test.image.partitions()):
        if all(map(under_test.image.is_alive, state.adding)) and state.adding and not state.offline:
            _propose(under_test, tp, state)


def _propose(under_test: ControllerUnderTest, tp: TopicPartition, state: PartitionImage) -> None:
    proposal = PartitionData(
        partition_index=tp.partition,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=b, broker_epoch=under_test.epoch_of(b))
            for b in state.replicas
            if under_test.image.is_alive(b)
        ),
    )
    topic = TopicData(topic_id=under_test.image.topics[tp.topic].topic_id, partitions=(proposal,))
    under_test.handle(
        AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=under_test.epoch_of(state.leader),
            topics=(topic,),
        )
    )


def replicas(under_test: ControllerUnderTest) -> list[tuple[int, ...]]:
    return [state.replicas for _, state in under_test.image.partitions()]


def test_a_draining_broker_is_replaced_in_its_place() -> None:
    under_test = brokers(4, on(1, 2), on(2, 3), on(4, 1))
    assert drain(under_test, 2) == Decision(
        records=(BrokerDraining(broker_id=2, draining=True),),
        response=DrainBrokersResponse(brokers=(DrainedBroker(broker_id=2, partitions_left=2),)),
    )
    under_test.handle(TimePassed())
    assert replicas(under_test) == [(1, 3, 2), (4, 3, 2), (4, 1)]
    catch_up(under_test)
    assert replicas(under_test) == [(1, 3), (4, 3), (4, 1)]
    assert progress(under_test, 2) == [(2, 0, 0)]
    assert under_test.leaders() == {"a-0": 1, "a-1": 4, "a-2": 4}


def test_several_brokers_go_at_once() -> None:
    under_test = brokers(4, on(3, 4), on(4, 1))
    drain(under_test, 3, 4)
    under_test.handle(TimePassed())
    catch_up(under_test)
    assert sorted(map(sorted, replicas(under_test))) == [[1, 2], [1, 2]]
    assert progress(under_test, 3, 4) == [(3, 0, 0), (4, 0, 0)]


def test_a_limited_number_of_partitions_moves_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining_module, "MOVES_MAX", 2)
    under_test = brokers(3, *(on(1) for _ in range(5)))
    drain(under_test, 1)
    moving: list[int] = []
    while progress(under_test, 1) != [(1, 0, 0)]:
        under_test.handle(TimePassed())
        under_test.handle(TimePassed())
        moving.append(sum(bool(state.adding) for _, state in under_test.image.partitions()))
        catch_up(under_test)
    assert moving == [2, 2, 1]
    assert sorted(replicas(under_test)) == [(2,), (2,), (2,), (3,), (3,)]


def test_moves_to_where_nobody_is_do_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draining_module, "MOVES_MAX", 1)
    under_test = brokers(3, *(on(1) for _ in range(3)))
    drain(under_test, 1)
    under_test.handle(TimePassed())
    assert replicas(under_test) == [(2, 1), (1,), (1,)]
    under_test.lose(2)
    for _ in range(3):
        under_test.handle(TimePassed())
        catch_up(under_test)
    assert progress(under_test, 1) == [(1, 1, 1)]
    under_test.register(2, incarnation=incarnation(12))
    catch_up(under_test)
    assert progress(under_test, 1) == [(1, 0, 0)]


def test_a_draining_broker_gets_no_new_replicas_even_after_a_restart() -> None:
    under_test = brokers(3)
    drain(under_test, 1)
    under_test.register(1, incarnation=incarnation(11), clean_stop=True)
    under_test.create("b", partitions=4)
    assert set(under_test.leaders().values()) == {2, 3}
    assigned = CreatableTopic(
        name="c",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
    )
    response = under_test.handle(CreateTopicsRequest(topics=(assigned,))).response
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_dead_broker_is_drained_too_where_others_lead() -> None:
    under_test = brokers(3, on(1, 2), on(1))
    under_test.heartbeat(1, has_stopped=True)
    drain(under_test, 1)
    under_test.handle(TimePassed())
    catch_up(under_test)
    assert replicas(under_test) == [(3, 2), (1,)]
    assert progress(under_test, 1) == [(1, 1, 1)]


def test_without_enough_living_brokers_a_partition_stays() -> None:
    under_test = brokers(3, on(1, 2))
    under_test.heartbeat(3, has_stopped=True)
    drain(under_test, 1)
    assert under_test.handle(TimePassed()).records == ()
    assert progress(under_test, 1) == [(1, 1, 1)]
    under_test.register(3, clean_stop=True)
    under_test.handle(TimePassed())
    assert progress(under_test, 1) == [(1, 1, 0)]
    under_test.heartbeat(3, has_stopped=True)
    assert progress(under_test, 1) == [(1, 1, 1)]


def moving_to_a_dead_broker(**settings: str) -> ControllerUnderTest:
    """A replica moves from broker 1 to broker 3, which has died; broker 4 is available, too."""
    under_test = brokers(3)
    under_test.place("a", on(1, 2), **settings)
    under_test.register(4)
    under_test.heartbeat(4, has_stopped=True)
    drain(under_test, 1)
    under_test.tick(0)
    assert replicas(under_test) == [(3, 2, 1)]
    under_test.lose(3)
    under_test.register(4, clean_stop=True, incarnation=incarnation(14))
    return under_test


def test_what_was_to_go_to_a_broker_that_stays_away_goes_elsewhere() -> None:
    under_test = moving_to_a_dead_broker()
    assert progress(under_test, 1) == [(1, 1, 1)]
    under_test.tick(1_000)
    assert under_test.tick(1_000 + DELAY_MS - 1).records == ()
    under_test.tick(1_000 + DELAY_MS)
    assert replicas(under_test) == [(4, 2, 1)]
    assert progress(under_test, 1) == [(1, 1, 0)]
    catch_up(under_test)
    assert replicas(under_test) == [(4, 2)]


def test_a_broker_that_restarts_keeps_what_it_has_copied() -> None:
    under_test = moving_to_a_dead_broker()
    under_test.tick(1_000)
    under_test.tick(DELAY_MS)
    under_test.register(3, incarnation=incarnation(13))
    under_test.tick(DELAY_MS + 900)
    under_test.lose(3)
    for now_ms in (DELAY_MS + 1_800, DELAY_MS + 2_000, DELAY_MS + 3_000):
        assert under_test.tick(now_ms).records == ()
    assert replicas(under_test) == [(3, 2, 1)]


def test_a_broker_that_is_removed_while_it_is_dead_gets_nothing_any_more() -> None:
    under_test = moving_to_a_dead_broker()
    drain(under_test, 3)
    under_test.tick(1_000)
    catch_up(under_test)
    assert progress(under_test, 1, 3) == [(1, 0, 0), (3, 0, 0)]
    assert replicas(under_test) == [(4, 2)]


def test_a_dead_broker_that_holds_what_others_lack_is_waited_for() -> None:
    under_test = moving_to_a_dead_broker(min_insync_replicas="2")
    under_test.register(3, incarnation=incarnation(13))
    under_test.lose(2)
    catch_up(under_test)
    state = under_test.state("a")
    assert (state.isr, state.replicas) == ((3, 1), (3, 2, 1))
    assert progress(under_test, 1) == [(1, 1, 1)]  # of the replicas to come only 3 is there
    under_test.lose(3)
    assert under_test.state("a").eligible == (3,)
    under_test.tick(1_000)
    assert under_test.tick(1_000 + DELAY_MS).records == ()
    assert replicas(under_test) == [(3, 2, 1)]


def test_a_dead_replica_that_stays_holds_up_nothing_while_enough_are_in_sync() -> None:
    under_test = brokers(4, on(1, 2, 3))
    under_test.lose(2)
    drain(under_test, 1)
    under_test.tick(0)
    assert progress(under_test, 1) == [(1, 1, 0)]
    catch_up(under_test)
    assert replicas(under_test) == [(4, 2, 3)]


def test_draining_may_be_called_off() -> None:
    under_test = brokers(3, on(1, 2))
    drain(under_test, 1)
    assert drain(under_test, 1, cancel=True).records == (
        BrokerDraining(broker_id=1, draining=False),
    )
    assert drain(under_test, 1, cancel=True).records == ()
    assert drain(under_test, cancel=True) == Decision(response=DrainBrokersResponse())
    assert under_test.handle(TimePassed()).records == ()


def test_those_that_are_draining_are_told_without_being_named() -> None:
    under_test = brokers(3, on(1, 2))
    assert progress(under_test) == []
    drain(under_test, 1)
    before = under_test.image.copy()
    assert progress(under_test) == [(1, 1, 0)]
    assert under_test.image == before


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ((9,), ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered"),
        ((1, 2, 3), ErrorCode.INVALID_REQUEST, "no broker would be left to take the replicas"),
        (
            (1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "a-0 has 2 replicas, and 1 brokers would be left to hold them",
        ),
    ],
)
def test_brokers_that_cannot_be_drained(
    wanted: tuple[int, ...], code: ErrorCode, message: str
) -> None:
    under_test = brokers(3, on(1, 2))
    with pytest.raises(KafkaError) as caught:
        drain(under_test, *wanted)
    assert (caught.value.code, caught.value.message) == (code, message)
    assert not any(broker.draining for broker in under_test.image.brokers.values())


# -- unregistering


def test_a_stopped_broker_without_replicas_is_forgotten() -> None:
    under_test = brokers(2)
    under_test.heartbeat(2, has_stopped=True)
    assert under_test.handle(UnregisterBrokerRequest(broker_id=2)) == Decision(
        records=(BrokerRemoved(broker_id=2),), response=UnregisterBrokerResponse()
    )
    assert list(under_test.image.brokers) == [1]
    assert under_test.refusal(UnregisterBrokerRequest(broker_id=2)) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED
    )


def test_a_broker_that_lives_or_has_replicas_is_not_forgotten() -> None:
    under_test = brokers(2, on(2, 1))
    for message in (
        "broker 2 is alive at 127.0.0.1:9102; stop it first",
        "broker 2 has replicas of 1 partitions; move them to other brokers first",
    ):
        with pytest.raises(KafkaError) as caught:
            under_test.handle(UnregisterBrokerRequest(broker_id=2))
        assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)
        if under_test.image.is_alive(2):
            under_test.heartbeat(2, has_stopped=True)
