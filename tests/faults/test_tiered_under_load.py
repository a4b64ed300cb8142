"""A tiered topic under load while brokers, their processes for the bucket, and the bucket die.

What was acknowledged is there, once, in order, most of it in the bucket only.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.cluster import Cluster, start_processes
from tests.faults.load_rig import PARTITIONS, TOPIC, Load, kill_one, processes, stored
from tests.support.s3_server import S3Server, require_binary
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.s3, pytest.mark.timeout(300)]

SETTINGS = {
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1100000",
    "local.retention.bytes": "1100000",
    "retention.ms": "-1",
}


@pytest.fixture
def own_server(s3_server: S3Server, tmp_path: Path) -> Iterator[S3Server]:
    """One that a test may stop."""
    server = S3Server(require_binary(), tmp_path / "s3")
    yield server
    server.stop()


@pytest.fixture
def cluster(own_server: S3Server, tmp_path: Path) -> Iterator[Cluster]:
    with start_processes(
        3,
        data_dir=tmp_path / "data",
        remote_dir=f"s3://{own_server.make_bucket('segments')}/log",
        storage_options=own_server.options,
        settings=SETTINGS,
    ) as started:
        started.create_topic(TOPIC, PARTITIONS, replication_factor=3, configs=CONFIGS)
        yield started
    assert processes("sparklog.executors", "sparklog.executors.tiering") == []


def local_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob(f"{TOPIC}-*/*.log") if path.exists())


def test_nothing_is_lost_while_brokers_and_the_bucket_die(
    cluster: Cluster, own_server: S3Server, tmp_path: Path
) -> None:
    with Load(cluster.bootstrap_servers, record_bytes=400) as load:
        load.await_more(15_000)
        kill_one("sparklog.executors")
        load.await_more(15_000)
        own_server.stop()
        load.await_more(15_000)
        kill_one("sparklog.executors")
        load.await_more(10_000)
        own_server.start()
        wait_for(lambda: processes("sparklog.executors.tiering"))
        kill_one("sparklog.executors.tiering")
        load.await_more(15_000)
    assert load.failures == []
    written = 3 * 400 * sum(map(len, load.acknowledged.values()))
    wait_for(lambda: local_bytes(tmp_path / "data") < written / 2, seconds=90)
    found = stored(cluster.bootstrap_servers)
    assert found == {number: sorted(values) for number, values in load.acknowledged.items()}
    # Every broker starts again with what it has, and so do the processes for the bucket.
    for process in processes("sparklog.executors"):
        os.kill(process.pid, 9)
    wait_for(lambda: [node.node_id for node in cluster.brokers() if not node.fenced] == [1, 2, 3])
    found = stored(cluster.bootstrap_servers)
    assert found == {number: sorted(values) for number, values in load.acknowledged.items()}
