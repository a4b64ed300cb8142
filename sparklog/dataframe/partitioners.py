"""How rows without a partition of their own find one: the partitioners of Kafka's clients, by name.

Owns: their names and what each does with keys, null keys and empty ones.  Must not know hashes or
rows: it is read where only options are.
"""

from dataclasses import dataclass
from typing import Final, Literal

Hash = Literal["murmur2", "crc32", "fnv1a"]
#: What becomes of rows that no hash places: runs of neighbours, or one after the other.
Spread = Literal["runs", "round_robin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioner:
    """``hash`` None: keys do not matter.  Keys that are not hashed are spread."""

    hash: Hash | None = None
    hashes_null: bool = False
    hashes_empty: bool = True
    spread: Spread = "runs"


#: Java's default for keys; rows without one stay together, so that batches are large.
DEFAULT: Final = Partitioner(hash="murmur2")
STICKY: Final = Partitioner()
ROUND_ROBIN: Final = Partitioner(spread="round_robin")
#: librdkafka's names (its option ``partitioner``), and two that only Java has.
PARTITIONERS: Final = {
    "murmur2_random": DEFAULT,
    "murmur2": Partitioner(hash="murmur2", hashes_null=True),
    "consistent_random": Partitioner(hash="crc32", hashes_empty=False),
    "consistent": Partitioner(hash="crc32", hashes_null=True),
    "fnv1a_random": Partitioner(hash="fnv1a"),
    "fnv1a": Partitioner(hash="fnv1a", hashes_null=True),
    "random": STICKY,
    "sticky": STICKY,
    "round_robin": ROUND_ROBIN,
}
_JAVA: Final = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": DEFAULT,
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": STICKY,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": ROUND_ROBIN,
}


def named_partitioner(text: str) -> Partitioner:
    """Raises ValueError."""
    name = text.strip().lower()
    if name not in PARTITIONERS:
        raise ValueError(f"expected one of {', '.join(PARTITIONERS)}")
    return PARTITIONERS[name]


def java_partitioner(text: str) -> Partitioner:
    """One of Kafka's own classes.  Raises ValueError."""
    if text.strip() not in _JAVA:
        raise ValueError("a Java class cannot run here; use option partitioner or a column")
    return _JAVA[text.strip()]
