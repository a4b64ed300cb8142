"""The clients that we did not write, behind one face."""

from collections.abc import Sequence
from typing import Protocol

from tests.clients.peer_aiokafka import AioKafka
from tests.clients.peer_confluent import Confluent
from tests.clients.peer_kafka_python import KafkaPython
from tests.clients.peer_kcat import Kcat
from tests.clients.rows import Place, Row


class Peer(Protocol):
    """``empties`` and ``null_headers`` as in ``make_rows``; ``timestamps``: it can set them."""

    name: str
    empties: bool
    null_headers: bool
    timestamps: bool

    def listing(self, bootstrap: str) -> tuple[set[int], dict[str, int]]:
        """Node ids, and the number of partitions of every topic."""

    def write(self, bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
        """Send to the rows' partitions as an idempotent producer.

        Returns what was acknowledged; nothing where the client does not tell.
        """

    def read(
        self, bootstrap: str, topic: str, count: int, timestamp: int | None = None
    ) -> list[Row]:
        """``count`` rows by assignment, from the beginning or from a timestamp."""


PEERS: tuple[Peer, ...] = (Confluent(), Kcat(), KafkaPython(), AioKafka())
