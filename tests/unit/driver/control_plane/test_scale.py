"""The cost of a decision depends on the partitions that it concerns, not on the cluster's size.

The cost is counted in bytecodes, so that it does not depend on the machine;
``benchmarks/control_plane.py`` measures times.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sparklog.metadata import decode_records, encode_records
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.private import LostBroker, ReportLossRequest
from tests.support.operations import count_operations
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest

FEW, MANY = 5, 25
#: With three replicas each, a broker has sixty of them.
PARTITIONS_PER_BROKER = 20
TP = TopicPartition("t", 0)


@dataclass
class Cluster:
    """``brokers`` brokers, each with as many partitions as in a cluster of any other size."""

    controller: ControllerUnderTest

    @classmethod
    def of(cls, brokers: int) -> "Cluster":
        under_test = ControllerUnderTest(default_replication_factor="3")
        under_test.register_all(brokers)
        cluster = cls(under_test)
        under_test.controller.handle(cluster.creation("t", brokers * PARTITIONS_PER_BROKER), 0)
        return cluster

    def creation(self, name: str, partitions: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        return CreateTopicsRequest(topics=(topic,))

    def lose_a_broker(self) -> int:
        request = ReportLossRequest(brokers=(LostBroker(broker_id=1),))
        decision = self.controller.controller.handle(request, 0)
        return len(decision.records)

    def create_a_topic(self) -> int:
        self.controller.controller.handle(self.creation("other", 1), 0)
        return 1

    def shrink_an_isr(self) -> int:
        state = self.controller.image.partition(TP)
        assert state is not None
        leader = self.controller.image.brokers[state.leader]
        partition = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=(
                BrokerState(broker_id=leader.broker_id, broker_epoch=leader.broker_epoch),
            ),
        )
        topic = self.controller.image.topics["t"]
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.broker_epoch,
            topics=(TopicData(topic_id=topic.topic_id, partitions=(partition,)),),
        )
        assert len(self.controller.controller.handle(request, 0).records) == 1
        return 1


@pytest.mark.parametrize(
    ("decide", "growth_max"),
    [
        (Cluster.lose_a_broker, 1.1),
        (Cluster.shrink_an_isr, 1.1),
        (Cluster.create_a_topic, MANY / FEW * 1.1),  # it looks at every broker
    ],
)
def test_a_decision_looks_only_at_what_it_concerns(
    decide: Callable[[Cluster], int], growth_max: float
) -> None:
    """Compares the operations per decided record in a small and in a large cluster."""
    costs: list[float] = []
    for brokers in (FEW, MANY):
        cluster = Cluster.of(brokers)
        records: list[int] = []
        operations = count_operations(lambda c=cluster, r=records: r.append(decide(c)))  # type: ignore[misc]
        costs.append(operations / records[0])
        cluster.controller.controller.check_invariants()
    few, many = costs
    assert 0 < many <= few * growth_max, costs


def test_many_topics_of_one_request_cost_no_more_each_than_few() -> None:
    """Names with '_' are compared with all others."""
    costs: list[float] = []
    for count in (20, 200):
        controller = Cluster.of(FEW).controller.controller
        topics = tuple(
            CreatableTopic(name=f"a_{number}", num_partitions=1, replication_factor=1)
            for number in range(count)
        )
        request = CreateTopicsRequest(topics=topics)
        costs.append(count_operations(lambda c=controller, r=request: c.handle(r, 0)) / count)  # type: ignore[misc]
    few, many = costs
    assert many <= few * 1.1, costs


def test_a_failover_is_one_decision_of_a_few_hundred_bytes_and_little_work_a_partition() -> None:
    controller = Cluster.of(MANY).controller.controller
    request = ReportLossRequest(brokers=(LostBroker(broker_id=1),))
    decision = controller.handle(request, 0)
    encoded = encode_records(decision.records)
    partitions = len(decision.records) - 1
    assert partitions == pytest.approx(3 * PARTITIONS_PER_BROKER, rel=0.2)
    assert len(encoded) / partitions < 250
    for work in (lambda: encode_records(decision.records), lambda: decode_records(encoded)):
        assert count_operations(work) / partitions < 1_000
