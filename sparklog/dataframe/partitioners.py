"""The partitioners of Kafka's clients, by name, for rows without a partition.

Owns: the names, and the treatment of keys, null keys and empty keys by each partitioner.  Must not
know hashes or rows: the parser of options imports it.
"""

from dataclasses import dataclass
from typing import Final, Literal

Hash = Literal["murmur2", "crc32", "fnv1a"]
#: Rows without a hashed key: runs of neighbours per partition, or round robin.
Spread = Literal["runs", "round_robin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioner:
    """The rules of one partitioner.  ``hash`` None ignores keys; other rows are spread."""

    hash: Hash | None = None
    hashes_null: bool = False
    hashes_empty: bool = True
    spread: Spread = "runs"


#: Java's default for keys; rows without a key stay together, so that batches are large.
DEFAULT: Final = Partitioner(hash="murmur2")
STICKY: Final = Partitioner()
ROUND_ROBIN: Final = Partitioner(spread="round_robin")
#: librdkafka's names (its option ``partitioner``), and two partitioners that only Java has.
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
    """The partitioner of a name.  Raises ValueError."""
    name = text.strip().lower()
    if name not in PARTITIONERS:
        raise ValueError(f"expected one of {', '.join(PARTITIONERS)}")
    return PARTITIONERS[name]


def java_partitioner(text: str) -> Partitioner:
    """The partitioner of a Java class of Kafka's.  Raises ValueError."""
    if text.strip() not in _JAVA:
        raise ValueError("a Java class cannot run here; use option partitioner or a column")
    return _JAVA[text.strip()]
