"""A real Kafka: nodes that are broker, or broker and controller, in one process, on loopback.

Owns: a node's process, its configuration and its folders.  Must not know what it is asked.
"""

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.free_ports import free_ports

READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
FORMAT_SECONDS_MAX = 120.0
NODE_ID = 1
CLUSTER_ID = "c3BhcmtsX2dwZWVyc190Zw"
JAVA_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A node of the quorum, and where it listens."""

    node_id: int = NODE_ID
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def voter(self) -> str:
        return f"{self.node_id}@127.0.0.1:{self.controller_port}"


class KafkaBroker:
    """Formatted by the constructor.  Alone it is started too; ``address`` answers then.

    One of several ``seats`` waits for the others: ``launch`` all, then ``await_ready``.  The first
    ``controllers`` of them are the quorum.  ``features`` are levels such as
    ``transaction.version=0``, where they differ from Kafka's own.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        settings: Mapping[str, str] = {},
        *,
        seats: Sequence[Seat] = (),
        place: int = 0,
        controllers: int = 1,
        java_options: Sequence[str] = JAVA_OPTIONS,
        features: Sequence[str] = (),
        more_jars: Sequence[Path] = (),
    ) -> None:
        folder.mkdir(parents=True)
        self.log_dir = folder / "logs"
        all_seats = seats or make_seats(1)
        seat = all_seats[place]
        controls = place < controllers
        self.address = seat.address
        self._settings = {
            "process.roles": "broker,controller" if controls else "broker",
            "node.id": str(seat.node_id),
            "controller.quorum.voters": ",".join(each.voter for each in all_seats[:controllers]),
            "listeners": f"PLAINTEXT://{seat.address}"
            + (f",CONTROLLER://127.0.0.1:{seat.controller_port}" if controls else ""),
            "advertised.listeners": f"PLAINTEXT://{seat.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        # Its native libraries stay in the temporary folder when it is killed.
        temporary = folder / "tmp"
        temporary.mkdir()
        self._java = [
            "java",
            *java_options,
            f"-Djava.io.tmpdir={temporary}",
            "-cp",
            ":".join(str(each / "*") for each in (jars, *more_jars)),
        ]
        self._config = folder / "server.properties"
        self._config.write_text("".join(f"{k}={v}\n" for k, v in self._settings.items()))
        self._output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None
        levels = [option for level in features for option in ("--feature", level)]
        command = ("format", "-t", CLUSTER_ID, "-c", str(self._config), *levels)
        self._run("kafka.tools.StorageTool", *command)
        if not seats:
            self.start()

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process, which is not ready yet."""
        with self._output.open("ab") as output:
            command = [*self._java, "kafka.Kafka", str(self._config)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def await_ready(self) -> None:
        """Wait for its port; one that does not open it is ended."""
        try:
            self._await_port()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Cleanly, so that its files are complete."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [*self._java, *command], capture_output=True, text=True, timeout=FORMAT_SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _await_port(self) -> None:
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            assert self.process is not None
            ended = self.process.poll() is not None
            assert not ended, self._output.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, "Kafka did not open its port"
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)


def make_seats(count: int) -> list[Seat]:
    """Nodes 1 to ``count``."""
    ports = iter(free_ports(2 * count))
    return [
        Seat(node_id=number, port=next(ports), controller_port=next(ports))
        for number in range(1, count + 1)
    ]
