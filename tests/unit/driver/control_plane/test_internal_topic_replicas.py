"""The replicas of internal topics follow the brokers that are added and removed."""

from collections import Counter

from sparklog.driver.control_plane.controller import Decision, TimePassed
from sparklog.errors import ErrorCode
from sparklog.metadata import (
    ClusterImage,
    PartitionImage,
    TopicDeleted,
    decode_records,
    encode_records,
)
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.private import (
    DrainBrokersRequest,
    DrainBrokersResponse,
    DrainedBroker,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest
from tests.unit.driver.control_plane.internal_topic_fakes import (
    CREATE,
    catch_up,
    cluster,
    created,
    join,
    on,
    refused,
    replicas,
    settle,
    tick,
)


def test_the_factor_rises_with_the_brokers() -> None:
    under_test = cluster(1)
    assert under_test.handle(CREATE) == created(on(1), on(1), on(1), deferred=True)
    assert tick(under_test) == Decision()
    join(under_test, 2)
    settle(under_test)
    assert Counter(map(len, replicas(under_test))) == {2: 3}
    assert under_test.image.deferred_factors == {CONSUMER_OFFSETS}
    join(under_test, 3)
    join(under_test, 4)
    settle(under_test)
    assert Counter(map(len, replicas(under_test))) == {3: 3}
    assert under_test.image.deferred_factors == set()


def test_the_new_replicas_and_the_preferred_leaders_are_balanced() -> None:
    under_test = cluster(1, offsets_topic_num_partitions="50")
    under_test.handle(CREATE)
    for broker_id in (2, 3, 4, 5):
        join(under_test, broker_id)
    settle(under_test)
    found = replicas(under_test)
    hosted = Counter(broker_id for chosen in found for broker_id in chosen)
    assert hosted == {1: 50, 2: 25, 3: 25, 4: 25, 5: 25}
    assert Counter(chosen[0] for chosen in found) == dict.fromkeys(range(1, 6), 10)


def test_the_first_step_is_a_reassignment() -> None:
    under_test = cluster(1, offsets_topic_num_partitions="1")
    under_test.handle(CREATE)
    join(under_test, 2)
    assert [record.state for record in tick(under_test).records] == [  # type: ignore[union-attr]
        PartitionImage(
            replicas=(1, 2),
            isr=(1,),
            last_known=(1,),
            adding=(2,),
            leader=1,
            partition_epoch=1,
        )
    ]
    assert tick(under_test) == Decision()
    catch_up(under_test)
    assert under_test.state(CONSUMER_OFFSETS).isr == (1, 2)


def test_a_limited_number_of_partitions_moves_at_a_time() -> None:
    under_test = cluster(1, offsets_topic_num_partitions="25")
    under_test.handle(CREATE)
    join(under_test, 2)
    join(under_test, 3)
    moved = []
    while tick(under_test).records:
        assert tick(under_test) == Decision()
        moved.append(catch_up(under_test))
    assert moved == [10, 10, 5, 0]  # the last tick takes note that all have their replicas


def test_moves_to_a_dead_broker_do_not_stop_the_others() -> None:
    under_test = cluster(1, offsets_topic_num_partitions="12")
    under_test.handle(CREATE)
    join(under_test, 2)
    tick(under_test)
    under_test.lose(2)
    join(under_test, 3)
    tick(under_test)
    catch_up(under_test)
    assert Counter(map(len, replicas(under_test))) == {2: 12}
    under_test.crash(2, executor_host="host-2")
    settle(under_test)
    assert Counter(map(len, replicas(under_test))) == {3: 12}


def test_nothing_is_added_while_a_broker_drains() -> None:
    under_test = cluster(1)
    under_test.handle(CREATE)
    join(under_test, 2)
    join(under_test, 3)
    under_test.handle(DrainBrokersRequest(broker_ids=(3,)))
    assert tick(under_test) == Decision()
    under_test.handle(DrainBrokersRequest(broker_ids=(3,), cancel=True))
    settle(under_test)
    assert Counter(map(len, replicas(under_test))) == {3: 3}


def test_brokers_can_be_removed_below_the_factor_of_an_internal_topic() -> None:
    under_test = cluster(3)
    under_test.handle(CREATE)
    drained = under_test.handle(DrainBrokersRequest(broker_ids=(3,))).response
    assert drained == DrainBrokersResponse(
        brokers=(DrainedBroker(broker_id=3, partitions_left=3, partitions_stuck=0),)
    )
    settle(under_test)
    assert sorted(map(sorted, replicas(under_test))) == [[1, 2]] * 3
    assert under_test.image.deferred_factors == {CONSUMER_OFFSETS}
    under_test.handle(DrainBrokersRequest(broker_ids=(2,)))
    settle(under_test)
    assert replicas(under_test) == [(1,)] * 3
    under_test.handle(DrainBrokersRequest(broker_ids=(2, 3), cancel=True))
    settle(under_test)
    assert Counter(map(len, replicas(under_test))) == {3: 3}
    assert under_test.image.deferred_factors == set()


def test_replicas_on_removed_brokers_move_where_they_can() -> None:
    under_test = cluster(4, offsets_topic_num_partitions="8")
    under_test.handle(CREATE)
    under_test.handle(DrainBrokersRequest(broker_ids=(3, 4)))
    settle(under_test)
    assert sorted(map(sorted, replicas(under_test))) == [[1, 2]] * 8


def test_topics_of_clients_still_refuse_a_drain_that_they_cannot_bear() -> None:
    under_test = cluster(3)
    under_test.handle(CREATE)
    under_test.place("a", on(1, 2, 3))
    code, message = refused(under_test, DrainBrokersRequest(broker_ids=(3,)))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message.startswith("a-0 has 3 replicas")


def test_a_removal_waits_for_a_fenced_broker_and_gives_up_nothing_for_it() -> None:
    under_test = cluster(4, offsets_topic_num_partitions="1")
    under_test.handle(CREATE)
    assert replicas(under_test) == [(1, 2, 3)]
    under_test.lose(4)
    under_test.handle(DrainBrokersRequest(broker_ids=(3,)))
    assert tick(under_test) == Decision()
    under_test.crash(4, executor_host="host-4")
    settle(under_test)
    assert replicas(under_test) == [(1, 2, 4)]


def test_offline_partitions_wait() -> None:
    under_test = cluster(1)
    under_test.handle(CREATE)
    under_test.lose(1)
    for broker_id in (2, 3):
        join(under_test, broker_id)
    assert tick(under_test) == Decision()


def test_a_factor_that_an_operator_lowers_stays() -> None:
    under_test = cluster(3)
    under_test.handle(CREATE)
    parts = tuple(ReassignablePartition(partition_index=n, replicas=(1,)) for n in range(3))
    response = under_test.handle(
        AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=CONSUMER_OFFSETS, partitions=parts),)
        )
    ).response
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert {part.error_code for part in response.responses[0].partitions} == {0}
    settle(under_test)
    assert replicas(under_test) == [(1,)] * 3


def test_a_factor_below_the_brokers_by_choice_stays() -> None:
    under_test = cluster(1, offsets_topic_replication_factor="1")
    under_test.handle(CREATE)
    join(under_test, 2)
    assert tick(under_test) == Decision()
    assert replicas(under_test) == [(1,)] * 3


def test_topics_of_clients_keep_their_factor() -> None:
    under_test = cluster(1)
    under_test.create("a")
    join(under_test, 2)
    assert tick(under_test) == Decision()


def test_a_controller_that_takes_over_goes_on() -> None:
    under_test = cluster(1)
    under_test.handle(CREATE)
    records = decode_records(encode_records(under_test.image.snapshot_records()))
    loaded = ClusterImage.from_snapshot(under_test.image.version, records)
    assert loaded == under_test.image
    successor = ControllerUnderTest(loaded)
    join(successor, 2)
    successor.heartbeat(1)
    settle(successor)
    assert Counter(map(len, replicas(successor))) == {2: 3}


def test_deleting_a_topic_forgets_that_its_factor_was_deferred() -> None:
    under_test = cluster(1)
    under_test.handle(CREATE)
    image = under_test.image
    topic = image.topics[CONSUMER_OFFSETS]
    image.replay(TopicDeleted(topic=topic.name, topic_id=topic.topic_id))
    image.check_invariants()
    assert image.deferred_factors == set()
    assert under_test.handle(TimePassed()) == Decision()
