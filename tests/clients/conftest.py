"""One served cluster for all client tests, and the topics that each client has written to it."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.nodes import SECONDS_MAX, await_topic
from tests.clients.peer_kcat import KCAT
from tests.clients.peers import PEERS, Peer
from tests.clients.rows import PARTITIONS, Place, Row, make_rows, stored_rows
from tests.support.served import ServedCluster, serving

#: (client's name, codec) -> the topic that it wrote, and what was acknowledged to it.
Write = Callable[[str, str], tuple[str, list[Place]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


def peer_named(name: str) -> Peer:
    [peer] = [peer for peer in PEERS if peer.name == name]
    if name == "kcat" and not Path(KCAT).exists():
        pytest.skip(f"{KCAT} is not installed")
    return peer


@pytest.fixture(params=[peer.name for peer in PEERS])
def peer(request: pytest.FixtureRequest) -> Peer:
    return peer_named(request.param)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Three brokers; in the end they must be the same ones, stop cleanly and leave nothing."""
    folder = tmp_path_factory.mktemp("served") / "data"
    with serving(folder, "--set", "group.initial.rebalance.delay.ms=0") as served:
        brokers = served.broker_pids()
        assert len(brokers) == 3
        yield served
        assert served.broker_pids() == brokers


@pytest.fixture
def bootstrap(cluster: ServedCluster) -> str:
    return cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="module")
def create_topic(cluster: ServedCluster) -> Callable[..., None]:
    """Returns when every node knows the topic."""

    def create(
        name: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None
    ) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, partitions, config=config or {})])[name].result(
            SECONDS_MAX
        )
        await_topic(cluster.bootstrap, name, partitions)

    return create


@pytest.fixture(scope="module")
def written(cluster: ServedCluster, create_topic: Callable[..., None]) -> Write:
    """Writes a topic on the first call for a client and a codec."""

    @cache
    def write(name: str, codec: str) -> tuple[str, list[Place]]:
        topic = f"{name}-{codec}"
        create_topic(topic)
        peer = peer_named(name)
        rows = make_rows(empties=peer.empties, null_headers=peer.null_headers)
        return topic, peer.write(cluster.bootstrap, topic, codec, rows)

    return write


@pytest.fixture(scope="module")
def stored(cluster: ServedCluster) -> Callable[[str], tuple[list[Row], set[str]]]:
    """What the brokers' files hold of a topic, and with which codecs."""
    return lambda topic: stored_rows(cluster.data_dir, topic)
