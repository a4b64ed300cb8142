"""How much a benchmark beside Kafka moves.

Owns: the numbers.  Must not know what is measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``rows`` of a DataFrame, ``messages`` of 100 bytes of a client, in so many rounds.

    They follow a warm-up.  A broker is killed ``kills`` times.
    """

    rows: int = 10_000_000
    messages: int = 2_000_000
    rounds: int = 5
    kills: int = 5
    latency_seconds: float = 10.0

    @property
    def cost_messages(self) -> int:
        """Of the many runs that tell what partitions and brokers cost."""
        return self.messages // 4

    def words(self, *names: str) -> str:
        """What a part says of the scale that it was measured with: the fields that it looks at."""
        said = {
            "rows": f"{self.rows:,} rows",
            "messages": f"{self.messages:,} messages of 100 bytes, as many bytes of larger ones",
            "cost_messages": f"{self.cost_messages:,} messages of 100 bytes",
            "rounds": f"{self.rounds} rounds in turns after a warm-up",
            "kills": f"{self.kills} kills of each in turns",
            "latency_seconds": f"{self.latency_seconds:g} s of latencies a round",
        }
        return ", ".join(said[name] for name in names)
