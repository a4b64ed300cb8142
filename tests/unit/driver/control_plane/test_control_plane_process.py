"""``python -m sparklog.driver`` as the launcher starts it; after a kill its state is complete."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparklog.process import ChildError
from sparklog.storage_backends.local import TEMPORARY_PREFIX
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    NodeStatusRequest,
    StopNodeRequest,
    WatchMetadataRequest,
)
from tests.unit.driver.control_plane.control_process_rig import WAIT_S, Processes, ask
from tests.unit.driver.control_plane.driver_fakes import registration

pytestmark = pytest.mark.process

NODE_0 = DescribeConfigsResource(resource_type=4, resource_name="0")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    under_test = Processes(tmp_path)
    try:
        yield under_test
    finally:
        for child in under_test.children:
            child.close()


def test_after_kill_9_it_is_back_on_its_port_with_all_its_state(processes: Processes) -> None:
    first = processes.start()
    cluster_id, port = first.ready["cluster_id"], first.ready["port"]
    topic = CreatableTopic(name="flights", num_partitions=6, replication_factor=1)
    registered, created = ask(
        first,
        registration(1, cluster_id=cluster_id),
        CreateTopicsRequest(topics=(topic,)),
    )
    assert (registered.error_code, created.topics[0].error_code) == (0, 0)
    before = ask(first, MetadataRequest(topics=None), member=False)[0]
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait(WAIT_S) == -signal.SIGKILL

    second = processes.start(port=port, expected_cluster_id=cluster_id)
    assert second.ready == {
        "ready": True,
        "port": port,
        "pid": second.pid,
        "cluster_id": cluster_id,
        "secret": first.ready["secret"],
        "controller_epoch": 2,
    }
    assert ask(second, MetadataRequest(topics=None), member=False)[0] == before
    beat, watched = ask(
        second,
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=registered.broker_epoch),
        WatchMetadataRequest(since=-1),
    )
    assert (beat.error_code, beat.fenced) == (0, False)
    assert (watched.snapshot, watched.controller_epoch) == (True, 2)


def test_what_a_killed_one_had_half_written_is_removed(processes: Processes) -> None:
    journal = processes.folder / "journal"
    journal.mkdir()
    (journal / f"{TEMPORARY_PREFIX}abc").write_bytes(b"half a comm")
    processes.start()
    assert sorted(path.name for path in journal.iterdir()) == [
        "00000000000000000001.json",
        "secret",
    ]


def test_it_stops_cleanly_when_asked(processes: Processes) -> None:
    terminated = processes.start()
    terminated.terminate()
    assert terminated.wait(WAIT_S) == 0
    asked = processes.start()
    (stopping,) = ask(asked, StopNodeRequest(reason="the cluster stops"))
    assert (stopping.error_code, asked.wait(WAIT_S)) == (0, 0)
    log = processes.log()
    assert "stopping: SIGTERM" in log
    assert "stopping: the cluster stops" in log
    assert "Traceback" not in log


def test_an_older_controller_ends_when_a_newer_one_has_taken_over(processes: Processes) -> None:
    older = processes.start()
    newer = processes.start()
    assert newer.ready["controller_epoch"] == 2
    with pytest.raises(Exception, match=r"lost|closed|reset|refused"):
        ask(older, registration(1, cluster_id=older.ready["cluster_id"]))
    assert older.wait(WAIT_S) == 1
    assert "was replaced and ends" in processes.log()
    assert "Traceback" not in processes.log()
    assert newer.poll() is None


def test_it_is_small_and_its_files_are_its_owners_alone(processes: Processes) -> None:
    child = processes.start()
    ask(child, NodeStatusRequest())
    assert psutil.Process(child.pid).memory_info().rss < 60 * 1024 * 1024
    loaded = Path(f"/proc/{child.pid}/maps").read_text()
    assert not any(name in loaded for name in ("numpy", "pyarrow", "libarrow"))
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (processes.folder / "journal").iterdir()
    }
    assert modes == {"secret": 0o600, "00000000000000000001.json": 0o600}


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ({"settings": {"num.partitions": "x"}}, "config", "num.partitions='x'"),
        ({"settings": {"num.partition": "1"}}, "config", "did you mean num.partitions"),
        ({"journal_dir": None}, "config", "must be one JSON line with journal_dir"),
        ({"journal_dir": "carrier-pigeon://x"}, "storage", "no storage for carrier-pigeon"),
        ({"journal_dir": "/proc/no/journal"}, "storage", "/proc/no"),
        ({"expected_cluster_id": "other"}, "foreign_cluster", "not 'other'"),
        ({"listen_host": "192.0.2.1"}, "start", "cannot listen at 192.0.2.1"),
        ({"listen_host": "0.0.0.0"}, "config", "needs an advertised_host"),
    ],
)
def test_why_it_cannot_start_is_said_in_one_line(
    processes: Processes, line: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(ChildError) as refusal:
        processes.start(**line)
    assert (refusal.value.kind, message in str(refusal.value)) == (kind, True), str(refusal.value)
    assert "Traceback" not in processes.log()


def test_what_opens_the_stores_is_told_on_stdin_only(processes: Processes) -> None:
    opening = {"secret": "hush-hush"}
    child = processes.start(storage_options=opening)
    process = Path(f"/proc/{child.pid}")
    told = [(process / name).read_text() for name in ("cmdline", "environ")]
    told += [str(ask(child, NodeStatusRequest(), DescribeConfigsRequest(resources=(NODE_0,))))]
    with pytest.raises(ChildError) as refusal:
        processes.start(storage_options=opening, listen_host=5)
    told += [str(refusal.value), processes.log()]
    told += [path.read_text() for path in (processes.folder / "journal").iterdir()]
    assert not any("hush-hush" in text for text in told)


def test_a_damaged_journal_is_named(processes: Processes) -> None:
    first = processes.start()
    first.terminate()
    first.wait(WAIT_S)
    commit = processes.folder / "journal" / "00000000000000000001.json"
    commit.write_bytes(commit.read_bytes()[:-40])
    with pytest.raises(ChildError) as refusal:
        processes.start()
    assert refusal.value.kind == "journal"
    assert f"{commit} is damaged" in str(refusal.value)
