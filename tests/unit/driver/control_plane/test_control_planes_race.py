"""Several control planes on one journal in a bucket have one history, also after pauses.

Clients keep creating topics at each control plane while it is paused, continued and replaced.
"""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.connection import Connection
from sparklog.driver.control_plane.journal import Journal, commit_name
from sparklog.errors import SparklogError
from sparklog.process import Child, ChildError
from sparklog.storage_backends.registry import open_backend
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from tests.support.s3_server import S3Server
from tests.unit.driver.control_plane.control_process_rig import WAIT_S, Processes, ask
from tests.unit.driver.control_plane.driver_fakes import registration

pytestmark = [pytest.mark.process, pytest.mark.s3]

PAUSES = 2
#: The pause between two requests of a client.  A controller that is never idle cannot be replaced
#: by one that reads no faster than the other writes.
THINK_S = 0.03


class Bucket:
    """A journal in a bucket, and control planes on it."""

    def __init__(self, processes: Processes, server: S3Server, bucket: str) -> None:
        self.processes = processes
        self.url = f"s3://{bucket}/cluster/journal"
        self.options = server.options
        self.backend = open_backend(self.url, self.options)

    def start(self, **changes: Any) -> Child:
        line = {
            "journal_dir": self.url,
            "storage_options": self.options,
            "settings": {"broker.session.timeout.ms": "600000"},
        }
        return self.processes.start(**{**line, **changes})

    def commits(self) -> list[dict[str, Any]]:
        names = [name for name in self.backend.list("") if name != "secret"]
        return [json.loads(self.backend.read(name)) for name in names]


@pytest.fixture
def bucket(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> Iterator[Bucket]:
    processes = Processes(tmp_path)
    try:
        yield Bucket(processes, s3_server, s3_bucket)
    finally:
        for child in processes.children:
            child.close()


class Creator:
    """Creates topics at one control plane, one after another, until the control plane has ended."""

    def __init__(self, control_plane: Child, prefix: str) -> None:
        self.acknowledged: set[str] = set()
        self._endpoint = Endpoint("127.0.0.1", control_plane.ready["port"])
        self._prefix = prefix
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def await_topics(self, number: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= number, WAIT_S)

    def join(self) -> None:
        self._thread.join(2 * WAIT_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        connection = await Connection.open(self._endpoint, timeout_s=WAIT_S)
        try:
            for number in count():
                await self._create(connection, f"{self._prefix}-{number}")
                await asyncio.sleep(THINK_S)
        except SparklogError:
            return
        finally:
            connection.close()

    async def _create(self, connection: Connection, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = await connection.request(CreateTopicsRequest(topics=(topic,)), timeout_s=WAIT_S)
        assert answer.topics[0].error_code == 0
        with self._progress:
            self.acknowledged.add(name)
            self._progress.notify_all()


def test_a_paused_one_wakes_up_fenced_and_there_is_one_history(bucket: Bucket) -> None:
    current = bucket.start()
    ask(current, registration(1, cluster_id=current.ready["cluster_id"]))
    creators = [Creator(current, "epoch-1")]
    for number in range(PAUSES + 1):
        creators[-1].await_topics(10)
        if number < PAUSES:
            os.kill(current.pid, signal.SIGSTOP)
        successor = bucket.start()
        creators.append(Creator(successor, f"epoch-{number + 2}"))
        creators[-1].await_topics(10)
        os.kill(current.pid, signal.SIGCONT)
        assert current.wait(WAIT_S) == 1
        current = successor
    (metadata,) = ask(current, MetadataRequest(topics=None), member=False)
    current.terminate()
    for creator in creators:
        creator.join()
    acknowledged = {name for creator in creators for name in creator.acknowledged}
    assert {topic.name for topic in metadata.topics} <= acknowledged | _unanswered(creators)
    _check_history(bucket, acknowledged)
    assert bucket.processes.log().count("was replaced and ends") == PAUSES + 1
    assert "Traceback" not in bucket.processes.log()


def _unanswered(creators: list[Creator]) -> set[str]:
    """The topic of each creator whose creation was not answered before the end."""
    return {f"epoch-{n}-{len(creator.acknowledged)}" for n, creator in enumerate(creators, start=1)}


def _check_history(bucket: Bucket, acknowledged: set[str]) -> None:
    commits = bucket.commits()
    epochs = [commit["controller_epoch"] for commit in commits]
    nonces = {commit["nonce"] for commit in commits}
    assert [commit["version"] for commit in commits] == list(range(1, len(commits) + 1))
    assert epochs == sorted(epochs)
    assert set(epochs) == set(range(1, PAUSES + 3))
    assert len(nonces) == len(commits)
    image = Journal(bucket.backend).load()
    image.check_invariants()
    assert acknowledged <= set(image.topics)
    assert (image.version, image.controller_epoch) == (len(commits), PAUSES + 2)


def test_after_kill_9_it_is_back_with_all_its_state(bucket: Bucket) -> None:
    first = bucket.start()
    cluster_id, port = first.ready["cluster_id"], first.ready["port"]
    ask(first, registration(1, cluster_id=cluster_id))
    creator = Creator(first, "topic")
    creator.await_topics(20)
    os.kill(first.pid, signal.SIGKILL)
    creator.join()

    second = bucket.start(port=port, expected_cluster_id=cluster_id)
    assert (second.ready["secret"], second.ready["cluster_id"]) == (
        first.ready["secret"],
        cluster_id,
    )
    (metadata,) = ask(second, MetadataRequest(topics=None), member=False)
    assert creator.acknowledged <= {topic.name for topic in metadata.topics}
    assert bucket.backend.exists(commit_name(len(creator.acknowledged)))


def test_the_options_of_the_journal_open_the_remote_dir_too(bucket: Bucket) -> None:
    remote = bucket.url.replace("journal", "log")
    child = bucket.start(settings={"remote.dir": remote})
    store = open_backend(remote, bucket.options)
    assert store.list("") == ["cluster.json"]
    assert json.loads(store.read("cluster.json")) == {"cluster_id": child.ready["cluster_id"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"journal_dir": "s3://no-such-bucket/x"}, "the bucket does not exist; create it"),
        (
            {"settings": {"remote.dir": "s3://no-such-bucket/log"}},
            "remote_dir=s3://no-such-bucket/log cannot be used: .* the bucket does not exist",
        ),
        ({"storage_options": {}}, "no credentials were found"),
        ({"storage_options": [1]}, "stdin must be one JSON line"),
        ({"journal_dir": "fsspec+memory://x/y"}, "choose a journal_dir on a local disk or on an"),
    ],
)
def test_why_a_bucket_cannot_be_used_is_said_in_one_line(
    bucket: Bucket, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ChildError, match=message):
        bucket.start(**changes)
    assert "Traceback" not in bucket.processes.log()
