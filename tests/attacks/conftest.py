"""One cluster of three brokers for all attacks; after each attack it must be whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.attack_rig import AttackedCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="module")
def the_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCluster]:
    with AttackedCluster.running(tmp_path_factory.mktemp("attacked") / "data") as cluster:
        yield cluster


@pytest.fixture
def cluster(the_cluster: AttackedCluster) -> Iterator[AttackedCluster]:
    """The cluster, checked after the attack: processes, ISR, acknowledged records."""
    yield the_cluster
    the_cluster.check()
