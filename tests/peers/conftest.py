"""A real Kafka, a served sparklog, Kafka's tools: once for all tests of this folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.both import Both, Side
from tests.peers.kafka_broker import JAVA_OPTIONS, KafkaBroker
from tests.peers.kafka_cluster import KafkaCluster
from tests.peers.kafka_tools import KafkaTools
from tests.peers.serving import RETENTION, broker_address
from tests.peers.transaction_story import TRANSACTED, TellTransactions, TransactionStory
from tests.peers.trios import TRIO_SETTINGS, Trio, Trios
from tests.support.kafka_jars import JarsUnavailableError, kafka_jars
from tests.support.served import ServedCluster, serving

NODES = ("broker", "control plane")
#: As the Kafka of these tests is set up.
GROUP_SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0")
GROUP_SETTINGS += ("--set", "offsets.topic.num.partitions=1")
GROUP_SETTINGS += ("--set", "offsets.topic.replication.factor=1")
GROUP_SETTINGS += ("--set", "transaction.state.log.num.partitions=1")
GROUP_SETTINGS += ("--set", "transaction.state.log.replication.factor=1")
GROUP_SETTINGS += ("--set", "transaction.state.log.min.isr=1")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last of all: their servers live until the session ends, beside whatever is tested then."""
    items.sort(key=_is_here)
    for item in filter(_is_here, items):
        item.add_marker(pytest.mark.process)


def _is_here(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


@pytest.fixture(scope="session")
def jars() -> Path:
    if shutil.which("javac") is None:
        pytest.skip("Kafka and its tools need a JDK 17 or newer (javac)")
    try:
        return kafka_jars()
    except JarsUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(jars, tmp_path_factory.mktemp("kafka") / "node", dict([RETENTION]))
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def cluster(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """One broker of ours."""
    del jars  # without Kafka there is nothing to compare with
    folder = tmp_path_factory.mktemp("served") / "data"
    retention = ("--set", "=".join(RETENTION))
    with serving(folder, *retention, *GROUP_SETTINGS, brokers=1) as served:
        yield served


@pytest.fixture(scope="session")
def tools(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    runner = KafkaTools(jars, tmp_path_factory.mktemp("tools") / "errors")
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture(scope="session")
def both(kafka: KafkaBroker, cluster: ServedCluster) -> Iterator[Both]:
    """Our broker is asked."""
    sides = (
        Side("kafka", {"broker": kafka.address}),
        Side("ours", {"broker": broker_address(cluster), "control plane": cluster.bootstrap}),
    )
    yield Both(*sides)
    for side in sides:
        side.close()


@pytest.fixture(params=NODES)
def each_node(request: pytest.FixtureRequest, both: Both) -> Both:
    """The broker, and then the control plane, of ours is asked."""
    return both.at(request.param)


@pytest.fixture(scope="session")
def trios(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trios]:
    """Three brokers of Kafka, and three of ours.

    Of Kafka's only the one that is asked is a controller: a broker goes on waiting 30 s for a
    controller that hangs, to which it had passed on a request.
    """
    options = [option for pair in TRIO_SETTINGS.items() for option in ("--set", "=".join(pair))]
    folder = tmp_path_factory.mktemp("trios")
    with KafkaCluster(
        jars,
        folder / "kafka",
        controllers=1,
        settings=TRIO_SETTINGS,
        java_options=JAVA_OPTIONS,
    ) as kafka:
        ours = ServedCluster(folder / "ours", *options)
        try:
            assert ours.bootstrap, ours.errors
            found = Trios(Trio.of_kafka(kafka), Trio.of_ours(ours))
            yield found
            found.close()
            assert ours.stop() == 0
        finally:
            ours.kill()


@pytest.fixture(scope="session")
def transacted(both: Both) -> str:
    """A topic for the stories of transactional ids."""
    return both.create(TRANSACTED, 3)


@pytest.fixture
def tell_transactions(both: Both, transacted: str) -> Iterator[TellTransactions]:
    """Begins a story of a transactional id."""
    del transacted
    stories: list[TransactionStory] = []

    def begin(name: str) -> TransactionStory:
        stories.append(TransactionStory(both, name))
        return stories[-1]

    yield begin
    for story in stories:
        story.close()
