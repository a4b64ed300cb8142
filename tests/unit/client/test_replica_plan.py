from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.replica_plan import Assignment, moved_replicas, plan_replicas
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition


def topic(name: str, *replicas: Sequence[int]) -> Assignment:
    return {TopicPartition(name, n): tuple(each) for n, each in enumerate(replicas)}


def racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def loads(assignment: Mapping[TopicPartition, Sequence[int]]) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def leads(assignment: Mapping[TopicPartition, Sequence[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def test_what_is_even_stays_as_it_is() -> None:
    assert plan_replicas(topic("t", [1, 2], [2, 3], [3, 1]), racks(1, 2, 3)) == {}


def test_a_removed_broker_gives_its_replicas_to_the_others() -> None:
    current = topic("t", [1, 2], [2, 3], [3, 1])
    plan = plan_replicas(current, racks(1, 2))
    assert loads(current | plan) == {1: 3, 2: 3}
    assert moved_replicas(current, plan) == {
        TopicPartition("t", 1): (1,),
        TopicPartition("t", 2): (2,),
    }


def test_an_added_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = topic("t", *([n] for n in (1, 2, 3) for _ in range(4)))
    plan = plan_replicas(current, racks(1, 2, 3, 4))
    assert loads(current | plan) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert sorted(plan.values()) == [(4,), (4,), (4,)]


def test_many_small_topics_share_an_added_broker() -> None:
    current: Assignment = {}
    for number in range(8):
        current |= topic(f"t{number}", [number % 2 + 1])
    assert loads(current | plan_replicas(current, racks(1, 2, 3, 4))) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_more_replicas_go_to_other_racks() -> None:
    plan = plan_replicas(topic("t", [1], [3]), {1: "a", 2: "a", 3: "b", 4: "b"}, 2)
    assert loads(plan) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert all(len({"ab"[(broker - 1) // 2] for broker in each}) == 2 for each in plan.values())


def test_fewer_replicas_keep_one_in_each_rack() -> None:
    plan = plan_replicas(topic("t", [1, 2, 3]), {1: "a", 2: "a", 3: "b"}, 2)
    assert plan == topic("t", [1, 3])


def test_a_move_does_not_bring_replicas_into_one_rack() -> None:
    """Broker 4 is empty, but only the partitions' other replicas are in its rack."""
    current = topic("t", [1, 3], [3, 1])
    assert plan_replicas(current, {1: "a", 3: "b", 4: "c"}) != {}
    assert plan_replicas({TopicPartition("t", 0): (1, 3)}, {1: "a", 3: "b", 4: "b"}) == {}
    plan = plan_replicas(topic("t", [1, 3], [1, 3]), {1: "a", 3: "b", 4: "b"})
    assert sorted(loads(topic("t", [1, 3], [1, 3]) | plan).items()) == [(1, 2), (3, 1), (4, 1)]


def test_leaders_are_shared_by_order_alone() -> None:
    current = topic("t", [1, 2], [1, 2], [1, 2], [1, 2])
    plan = plan_replicas(current, racks(1, 2))
    assert (leads(current | plan), moved_replicas(current, plan)) == ({1: 2, 2: 2}, {})


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(KafkaError, match="t-0 cannot have 3 replicas on 2 brokers") as caught:
        plan_replicas(topic("t", [1]), racks(1, 2), 3)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


@given(st.data())
def test_every_plan_is_whole_even_and_has_distinct_replicas(data: st.DataObject) -> None:
    brokers = data.draw(st.lists(st.integers(1, 9), min_size=3, max_size=6, unique=True))
    replicas = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)
    current: Assignment = {}
    for name in "ab":
        current |= topic(name, *data.draw(st.lists(replicas, max_size=12)))
    factor = data.draw(st.none() | st.integers(1, 3))
    result = current | plan_replicas(current, racks(*brokers), factor)
    for tp, each in result.items():
        assert len(each) == len(set(each)) == (factor or len(current[tp]))
        assert set(each) <= set(brokers)
    for name in "ab":
        of_topic = loads({tp: each for tp, each in result.items() if tp.topic == name})
        counts = [of_topic[broker] for broker in brokers]
        assert max(counts) - min(counts) <= 1
    everything = loads(result)
    assert max(everything[b] for b in brokers) - min(everything[b] for b in brokers) <= 2
