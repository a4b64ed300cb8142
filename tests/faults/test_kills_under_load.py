"""kill -9 while a client that is not ours produces: what was acknowledged is there, once, in order.

Replication factor 1: a killed process keeps its page cache, so nothing may be missing.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.cluster import Cluster, start_processes
from tests.faults.load_rig import PARTITIONS, TOPIC, Load, kill_one, processes, stored
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with start_processes(3, data_dir=tmp_path / "data") as started:
        started.create_topic(TOPIC, PARTITIONS)
        yield started
    assert processes("sparklog.executors", "sparklog.driver", "sparklog.executors.supervisor") == []


def kill_broker(cluster: Cluster) -> None:
    kill_one("sparklog.executors")


def kill_every_broker(cluster: Cluster) -> None:
    for process in processes("sparklog.executors"):
        os.kill(process.pid, 9)


def kill_supervisor(cluster: Cluster) -> None:
    kill_one("sparklog.executors.supervisor")


def kill_control_plane(cluster: Cluster) -> None:
    kill_one("sparklog.driver")


@pytest.mark.parametrize(
    "kill", [kill_broker, kill_every_broker, kill_supervisor, kill_control_plane]
)
def test_nothing_acknowledged_is_lost_doubled_or_reordered(
    cluster: Cluster, kill: Callable[[Cluster], None]
) -> None:
    with Load(cluster.bootstrap_servers) as load:
        for _ in range(3):
            load.await_more(5_000)
            kill(cluster)
        load.await_more(20_000)
    assert load.failures == []
    found = stored(cluster.bootstrap_servers)
    assert found == {number: sorted(values) for number, values in load.acknowledged.items()}
    wait_for(lambda: [node.node_id for node in cluster.brokers() if not node.fenced] == [1, 2, 3])


@pytest.mark.parametrize("kill", [kill_broker, kill_every_broker])
def test_nothing_of_a_bulk_load_is_lost_doubled_or_reordered(
    cluster: Cluster, tmp_path: Path, kill: Callable[[Cluster], None]
) -> None:
    """Appends that pass the page cache by."""
    with Load(cluster.bootstrap_servers, record_bytes=900_000) as load:
        for _ in range(2):
            load.await_more(100)
            kill(cluster)
        load.await_more(50)
    assert load.failures == []
    logs = list((tmp_path / "data").rglob(f"{TOPIC}-*/*.log"))
    assert len(logs) == PARTITIONS
    assert any(map(has_gap_in_page_cache, logs)) == direct_writes_work(logs[0])
    found = stored(cluster.bootstrap_servers)
    assert found == {number: sorted(values) for number, values in load.acknowledged.items()}


def has_gap_in_page_cache(path: Path) -> bool:
    """Whether the first byte of some page would have to come from the disk."""
    with path.open("rb") as file:
        for position in range(0, os.path.getsize(path), 4096):
            try:
                os.preadv(file.fileno(), [bytearray(1)], position, os.RWF_NOWAIT)
            except BlockingIOError:
                return True
    return False


def direct_writes_work(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    return True
