"""``sparklog serve --engine process`` and the client commands against it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.types import ConfigSource, TopicPartition

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "sparklog.cli"]


class Server:
    """A running ``serve``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.stderr = folder.with_suffix(".err").open("ab")
        self.process = subprocess.Popen(
            [
                *COMMAND,
                "serve",
                "--engine",
                "process",
                "--data-dir",
                folder,
                "--port",
                "0",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.bootstrap = self.line.strip().removeprefix("ready bootstrap=")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and what else it said on stdout."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=60)
        self.stderr.close()
        return self.process.returncode, output

    def children(self, word: str) -> list[psutil.Process]:
        every = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in every if word in child.cmdline()]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*options: str) -> Server:
        started.append(Server(tmp_path / "data", *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def run(server: Server, *arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments, "--bootstrap", server.bootstrap],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
    )


def answer(server: Server, *arguments: str, lines: str = "") -> Any:
    done = run(server, *arguments, "--json", lines=lines)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_it_is_ready_soon_says_one_line_and_stops_cleanly(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    everything = psutil.Process(server.process.pid).children(recursive=True)
    assert server.line == f"ready bootstrap={server.bootstrap}\n"
    assert len(server.children("sparklog.executors")) == 3
    assert server.stop() == (0, "")
    psutil.wait_procs(everything, timeout=60)
    assert [process for process in everything if process.is_running()] == []
    markers = sorted(path.parent.name for path in tmp_path.glob("data/*/.kafka_cleanshutdown"))
    assert markers == ["broker-1", "broker-2", "broker-3"]


def test_ctrl_c_stops_it_too(serve: Callable[..., Server]) -> None:
    assert serve("--brokers", "1").stop(signal.SIGINT) == (0, "")


def test_everything_dies_with_a_killed_driver(serve: Callable[..., Server]) -> None:
    server = serve("--brokers", "2")
    everything = psutil.Process(server.process.pid).children(recursive=True)
    assert len(everything) == 5  # control plane, and two supervisors with a broker each
    server.stop(signal.SIGKILL)
    psutil.wait_procs(everything, timeout=60)
    assert [process for process in everything if process.is_running()] == []
    again = serve("--brokers", "2")
    assert again.line.startswith("ready")


def test_a_topic_from_the_command_line(serve: Callable[..., Server]) -> None:
    server = serve()
    create = ("topics", "create", "t", "-p", "3", "-c", "retention.ms=-1")
    assert answer(server, *create) == {"topic": "t", "partitions": 3}
    assert answer(server, "topics", "list") == [
        {"topic": "t", "partitions": 3, "replication_factor": 1}
    ]
    lines = "".join(f"k{number}:v{number}\n" for number in range(1000))
    produced = answer(server, "produce", "t", "-K", ":", "-z", "zstd", lines=lines)
    assert produced == {"topic": "t", "produced": 1000, "failed": 0}
    described = answer(server, "topics", "describe", "t")
    assert described["configs"] == {"retention.ms": "-1"}
    assert sum(row["latest"] for row in described["partitions"]) == 1000
    consumed = run(server, "consume", "t", "--from-beginning", "-n", "1000", "-K", ":")
    assert sorted(consumed.stdout.splitlines()) == sorted(lines.splitlines())
    [record] = run(
        server, "consume", "t", "-p", "1", "-o", "5", "-n", "1", "-f", "json"
    ).stdout.splitlines()
    assert {name: json.loads(record)[name] for name in ("topic", "partition", "offset")} == {
        "topic": "t",
        "partition": 1,
        "offset": 5,
    }
    assert answer(server, "topics", "delete", "t") == {"topic": "t", "deleted": True}
    assert answer(server, "topics", "list") == []


def test_every_node_shows_what_it_counts(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve("--brokers", "2", "--remote-dir", str(tmp_path / "remote"))
    control_plane, *brokers = answer(server, "status")
    assert (control_plane["node"], control_plane["counters"]["brokers_alive"]) == (0, 2)
    assert [each["node"] for each in brokers] == [1, 2]
    watched = (
        *("remote_copy_lag_bytes", "remote_failures", "remote_recoveries_waiting"),
        *("remote_cache_hits", "remote_cache_misses", "damaged_ranges_found"),
    )
    assert all(each["counters"].keys() >= set(watched) for each in brokers)
    shown = run(server, "status", "unclean_*", "remote_failures").stdout.split()
    assert shown[:7] == ["counter", "node", "0", "node", "1", "node", "2"]
    assert shown[-8:] == ["unclean_recoveries", "0", "-", "-", "remote_failures", "-", "0", "0"]
    assert run(server, "status", "no_such_counter").stdout == "There are none.\n"


def test_until_end_stops_at_the_end(serve: Callable[..., Server]) -> None:
    server = serve("--brokers", "1")
    answer(server, "produce", "t", lines="one\ntwo")
    done = run(server, "consume", "t", "--from-beginning", "--until-end")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert run(server, "consume", "t", "--until-end").stdout == ""


def test_only_an_offset_that_was_asked_for_must_exist(serve: Callable[..., Server]) -> None:
    server = serve("--brokers", "1")
    answer(server, "produce", "t", lines="one\ntwo\nthree\n")
    with BlockingClient(server.bootstrap) as client:
        assert client.admin.delete_records({TopicPartition("t", 0): 2}) == {
            TopicPartition("t", 0): 2
        }
    gone = run(server, "consume", "t", "--offset", "0", "--max", "1")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "OFFSET_OUT_OF_RANGE" in gone.stderr
    first = run(server, "consume", "t", "--from-beginning", "--max", "1")
    assert (first.returncode, first.stdout) == (0, "three\n")


def test_refusals_are_exit_code_1_and_one_line(serve: Callable[..., Server]) -> None:
    server = serve("--brokers", "1")
    answer(server, "topics", "create", "t")
    for arguments, message in (
        (("topics", "create", "t"), "TOPIC_ALREADY_EXISTS"),
        (("topics", "create", "x", "-r", "3"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "describe", "nope"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "delete", "nope"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "t", "-p", "9"), "no partition 9"),
    ):
        done = run(server, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert message in done.stderr


def test_a_second_server_on_the_same_folder_is_refused(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    first = serve("--brokers", "1")
    second = serve("--brokers", "1")
    assert (second.line, second.stop()) == ("", (1, ""))
    assert f"process {first.process.pid}" in (tmp_path / "data.err").read_text()


def test_records_survive_restarts_and_a_killed_broker(serve: Callable[..., Server]) -> None:
    server = serve("--brokers", "2")
    answer(server, "topics", "create", "t", "-p", "2")
    answer(server, "produce", "t", lines="\n".join(map(str, range(100))))
    [victim, *_] = server.children("sparklog.executors")
    os.kill(victim.pid, signal.SIGKILL)
    consume = ("consume", "t", "--from-beginning", "-n", "100")
    assert sorted(map(int, run(server, *consume).stdout.split())) == list(range(100))
    server.stop()
    assert sorted(map(int, run(serve("--brokers", "2"), *consume).stdout.split())) == list(
        range(100)
    )


def test_a_script_that_forgets_to_stop_its_cluster_stops_it_cleanly(tmp_path: Path) -> None:
    script = (
        "from sparklog.cluster import start_processes\n"
        f"cluster = start_processes(2, data_dir={str(tmp_path / 'data')!r}, host='localhost')\n"
        "print(cluster)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 brokers alive" in done.stdout
    assert len(list(tmp_path.glob("data/*/.kafka_cleanshutdown"))) == 2


def test_further_data_dirs_share_the_logs_and_one_may_be_missing(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    second = tmp_path / "second"
    options = ("--brokers", "1", "--data-dir", str(second))
    server = serve(*options)
    with BlockingClient(server.bootstrap) as client:
        client.admin.create_topic("t", 4, replication_factor=1)
        client.admin.await_serving("t")  # its directories are made by then
    counts = [
        len([path for path in folder.glob("broker-1/t-*") if path.is_dir()])
        for folder in (tmp_path / "data", second)
    ]
    assert counts == [2, 2]
    journal, *rows = answer(server, "log-dirs")
    assert (journal["node"], journal["directory"]) == (0, str(tmp_path / "data/journal"))
    assert [(row["node"], row["directory"], row["partitions"]) for row in rows] == [
        (1, str(tmp_path / "data/broker-1"), 2),
        (1, str(second / "broker-1"), 2),
    ]
    assert all(0 < row["usable_bytes"] <= row["disk_bytes"] for row in rows)
    with BlockingClient(server.bootstrap) as client:
        client.admin.alter_broker_configs(None, {"log.retention.ms": "77"})
    assert server.stop()[0] == 0
    assert (second / "broker-1/.kafka_cleanshutdown").exists()
    second.rename(tmp_path / "away")
    server = serve(*options)
    assert [row["error"] for row in answer(server, "log-dirs")] == [
        None,
        None,
        "KAFKA_STORAGE_ERROR",
    ]
    with BlockingClient(server.bootstrap) as client:
        setting = client.admin.describe_broker_configs(1)["log.retention.ms"]
    assert (setting.value, setting.source) == ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert server.stop()[0] == 0
    assert not second.exists()
    log = (tmp_path / "data/logs/broker-1.log").read_text()
    said = re.findall(r"(t-\d) is in none of the data directories that work", log)
    assert len(set(said)) == 2, log  # of each again every ten seconds


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_is_stopped_leaves_its_group(
    serve: Callable[..., Server], number: signal.Signals
) -> None:
    server = serve("--brokers", "1", "--set", "group.initial.rebalance.delay.ms=0")
    answer(server, "topics", "create", "t")
    answer(server, "produce", "t", lines="a\n")
    group = ("--group", "g", "--from-beginning", "--bootstrap", server.bootstrap)
    consumer = subprocess.Popen(
        [*COMMAND, "consume", "t", *group],
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore SIGINT.
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "a\n"
    consumer.send_signal(number)
    assert (consumer.communicate(timeout=30)[0], consumer.returncode) == ("", 0)
    (described,) = answer(server, "groups", "describe", "g")
    assert (described["state"], [row["lag"] for row in described["offsets"]]) == ("Empty", [0])
