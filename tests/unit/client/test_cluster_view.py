"""The metadata cache, with Metadata responses from nodes that know more or less."""

from uuid import UUID

from sparklog.client.cluster_view import ClusterView, PartitionView
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NODES = tuple(MetadataResponseBroker(node_id=n, host="h", port=n) for n in (1, 2))


def answer(leader: int, epoch: int, topic_id: int = 1) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=(1, 2),
        isr_nodes=(leader,),
    )
    topic = MetadataResponseTopic(name="t", topic_id=UUID(int=topic_id), partitions=(partition,))
    return MetadataResponse(brokers=NODES, topics=(topic,))


def leader(view: ClusterView) -> tuple[int, int] | None:
    found: PartitionView | None = view.leader(TopicPartition("t", 0))
    return (found.leader, found.leader_epoch) if found else None


def test_a_node_that_has_not_heard_of_a_new_leader_does_not_bring_back_the_old_one() -> None:
    view = ClusterView().merge(answer(1, 3), whole=True).merge(answer(2, 4), whole=False)
    assert leader(view) == (2, 4)
    assert leader(view.merge(answer(1, 3), whole=False)) == (2, 4)
    assert leader(view.merge(answer(1, 3), whole=True)) == (2, 4)
    assert leader(view.merge(answer(-1, 5), whole=False)) is None


def test_a_topic_that_came_back_under_its_name_begins_anew() -> None:
    view = ClusterView().merge(answer(2, 4), whole=True)
    assert leader(view.merge(answer(1, 0, topic_id=2), whole=False)) == (1, 0)
