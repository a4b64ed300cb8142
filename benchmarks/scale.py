"""How much a benchmark beside Kafka moves.

Owns: the numbers.  Must not know what is measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``rows`` of a DataFrame, ``messages`` of 100 bytes of a client, in so many rounds."""

    rows: int = 10_000_000
    messages: int = 2_000_000
    rounds: int = 5
    latency_seconds: float = 10.0
