"""How much a benchmark beside Kafka moves.

Owns: the numbers.  Must not know what is measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``rows`` of a DataFrame, ``messages`` of 100 bytes of a client, in so many rounds.

    Each of them follows a warm-up; a broker is killed ``kills`` times.
    """

    rows: int = 10_000_000
    messages: int = 2_000_000
    rounds: int = 5
    kills: int = 5
    latency_seconds: float = 10.0

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds in turns after one to warm up, {self.rows:,} rows,"
            f" {self.messages:,} messages of 100 bytes, {self.kills} kills,"
            f" {self.latency_seconds:g} s of latencies a round"
        )
