"""Kafka Connect in distributed mode: lines go from a file into a topic, and on into a file."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.blocking import BlockingClient
from tests.applications.application_runner import Application, ApplicationRunner
from tests.support.free_ports import free_ports
from tests.support.proven import proves
from tests.support.served import ServedCluster

TOPIC, PART = "connected-lines", 300
INTERNAL = ("connect-configs", "connect-offsets", "connect-status")
CONNECTORS = "org.apache.kafka.connect.file."
HTTP_SECONDS_MAX = 60.0
#: Members that are killed are missed soon.
SHORT_SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}


class Worker:
    """Settings of a worker, its connectors and their files.  One worker runs at a time."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        [port] = free_ports(1)
        self._address = f"http://127.0.0.1:{port}"
        self._source, self._sink = folder / "source", folder / "sink"
        self._source.touch()
        self._settings = folder / "worker.properties"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "config.storage.topic": INTERNAL[0],
            "offset.storage.topic": INTERNAL[1],
            "offset.storage.partitions": "3",
            "status.storage.topic": INTERNAL[2],
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": self._address,
            "offset.flush.interval.ms": "200",
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.discovery": "service_load",
            **SHORT_SESSION,
            **{"consumer." + name: value for name, value in SHORT_SESSION.items()},
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._lines: list[str] = []

    def start(self, runner: ApplicationRunner) -> Application:
        return runner.start("org.apache.kafka.connect.cli.ConnectDistributed", str(self._settings))

    def connect(self, worker: Application) -> None:
        """Make a source and a sink, once the worker takes connectors."""
        source = {
            "connector.class": CONNECTORS + "FileStreamSourceConnector",
            "file": str(self._source),
            "topic": TOPIC,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "3",
        }
        sink = {
            "connector.class": CONNECTORS + "FileStreamSinkConnector",
            "file": str(self._sink),
            "topics": TOPIC,
        }
        for name, config in (("source", source), ("sink", sink)):
            worker.wait_for(
                lambda name=name, config=config: self._ask(f"/connectors/{name}/config", config),
                f"takes the {name}",
            )

    def write(self) -> None:
        """Lines that no line before them equals."""
        added = [f"line {len(self._lines) + number}" for number in range(PART)]
        with self._source.open("a") as file:
            file.writelines(line + "\n" for line in added)
        self._lines += added

    def await_all(self, worker: Application) -> Sequence[str]:
        """What the sink has written once every line is there."""

        def written() -> list[str]:
            return self._sink.read_text().splitlines() if self._sink.exists() else []

        worker.wait_for(lambda: set(written()) >= set(self._lines), "every line is in the sink")
        assert set(written()) == set(self._lines)
        return written()

    def states(self) -> dict[str, list[str]]:
        """Of the connectors and their tasks."""
        found: dict[str, list[str]] = {}
        for name in ("source", "sink"):
            status = self._ask(f"/connectors/{name}/status")
            if status is not None:
                of_tasks = [task["state"] for task in status["tasks"]]
                found[name] = [status["connector"]["state"], *of_tasks]
        return found

    def _ask(self, path: str, put: dict[str, str] | None = None) -> Any:
        """The response in JSON; None: the worker cannot answer yet."""
        request = urllib.request.Request(
            self._address + path,
            data=None if put is None else json.dumps(put).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if put is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=HTTP_SECONDS_MAX) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409, 500, 503):
                raise
        except OSError:
            pass  # nobody listens yet
        return None


@pytest.fixture
def worker(cluster: ServedCluster, tmp_path: Path) -> Worker:
    return Worker(cluster.bootstrap, tmp_path)


@proves("connect", "java")
def test_lines_survive_a_killed_and_a_stopped_worker(
    runner: ApplicationRunner,
    killed_runner: ApplicationRunner,
    cluster: ServedCluster,
    worker: Worker,
) -> None:
    first = worker.start(killed_runner)
    worker.connect(first)
    worker.write()
    assert len(worker.await_all(first)) == PART
    with BlockingClient(cluster.bootstrap) as client:
        for topic in INTERNAL:
            configs = client.admin.describe_topic_configs(topic)
            assert configs["cleanup.policy"].value == "compact"
    killed_runner.kill()
    worker.write()
    second = worker.start(runner)
    worker.await_all(second)
    running = {"source": ["RUNNING", "RUNNING"], "sink": ["RUNNING", "RUNNING"]}
    second.wait_for(lambda: worker.states() == running, "everything runs")
    second.stop()
    before = worker.await_all(second)
    worker.write()
    third = worker.start(runner)
    after = worker.await_all(third)
    # One that is stopped has committed everything: no line comes twice because of that.
    assert after[: len(before)] == before
    assert len(after) == len(before) + PART
    third.stop()
