"""A broker that was added is there at the end, and has replicas."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from sparklog.cluster import Cluster
from sparklog.errors import ConnectError
from sparklog.metadata import BrokerIdAssigned, ClusterImage, PartitionImage, TopicCreated
from tests.chaos import added_broker
from tests.chaos.added_broker import AddedBroker, missing_replicas


@dataclass
class FakeCluster:
    """Refuses some calls; ``calls`` are all of them."""

    refusals: int
    then: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)

    def scale(self, brokers: int, **_: Any) -> None:
        self.calls.append(f"scale {brokers}")

    def rebalance(self, **_: Any) -> int:
        self.calls.append("rebalance")
        if self.refusals:
            self.refusals -= 1
            self.then()
            raise ConnectError("away")
        return 3


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_broker, "PAUSE_S", 0.0)


def added(cluster: FakeCluster, over: threading.Event) -> AddedBroker:
    return AddedBroker(cluster=cast(Cluster, cluster), brokers=4, over=over, say=lambda text: None)


def test_growing_goes_on_until_it_has_succeeded() -> None:
    over = threading.Event()
    cluster = FakeCluster(refusals=1, then=over.set)
    growth = added(cluster, over)
    growth.run(random.Random(1), 0.0)
    assert cluster.calls == ["scale 4", "rebalance"] * 2
    assert growth.grown.is_set()


def test_a_cluster_that_does_not_grow_after_the_troubles_is_given_up() -> None:
    over = threading.Event()
    over.set()
    growth = added(FakeCluster(refusals=9), over)
    growth.run(random.Random(1), 0.0)
    assert not growth.grown.is_set()
    assert len(growth.failures) == added_broker.ATTEMPTS_AFTER


def test_a_broker_that_is_not_there_or_idle_is_named() -> None:
    image = ClusterImage()
    image.replay_commit(1, [BrokerIdAssigned(broker_id=id_) for id_ in (1, 2)])
    state = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)
    image.replay_commit(2, [TopicCreated(topic="t", topic_id=UUID(int=1), partitions=(state,))])
    assert missing_replicas(image, 1) == []
    assert missing_replicas(image, 3) == ["broker 2 has no replicas", "there is no broker 3"]
