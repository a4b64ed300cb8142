"""A real Kafka of several nodes, with Kafka's own defaults.

Owns: which nodes run.  Must not know what they are asked, nor why one is killed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.peers.kafka_broker import KafkaBroker, make_seats

#: What ``kafka-run-class.sh`` gives a broker, with a smaller heap.
JAVA_OPTIONS = (
    *("-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
#: Internal topics are not what is looked at.
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class KafkaCluster:
    """``count`` nodes, 1 to ``count``, that are ready when the constructor returns.

    All are brokers, the first ``controllers`` (by default all) the controllers too.  ``more_jars``
    are folders of plugins.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        count: int = 3,
        *,
        controllers: int | None = None,
        settings: Mapping[str, str] = {},
        java_options: Sequence[str] = JAVA_OPTIONS,
        more_jars: Sequence[Path] = (),
    ) -> None:
        seats = make_seats(count)
        self.nodes = {
            seat.node_id: KafkaBroker(
                jars,
                folder / f"node-{seat.node_id}",
                {**SETTINGS, **settings},
                seats=seats,
                place=place,
                controllers=controllers or count,
                java_options=java_options,
                more_jars=more_jars,
            )
            for place, seat in enumerate(seats)
        }
        self.bootstrap = ",".join(seat.address for seat in seats)
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.await_ready()
        except BaseException:
            self.close()
            raise

    def pid(self, node_id: int) -> int:
        process = self.nodes[node_id].process
        assert process is not None
        return process.pid

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()

    def bring_back(self, node_id: int) -> None:
        """Start it again if it is dead."""
        process = self.nodes[node_id].process
        if process is None or process.poll() is not None:
            self.nodes[node_id].start()

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
