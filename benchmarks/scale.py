"""The scale of a benchmark beside Kafka: rows, messages and rounds.

Owns: the numbers.  Must not know what is measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``rows`` of a DataFrame and ``messages`` of 100 bytes of a client, per round.

    The rounds follow a warm-up.  A broker is killed ``kills`` times.
    """

    rows: int = 10_000_000
    messages: int = 2_000_000
    rounds: int = 5
    kills: int = 5
    latency_seconds: float = 10.0

    @property
    def cost_messages(self) -> int:
        """Messages per run for the cost of partitions and brokers, which takes many runs."""
        return self.messages // 4

    @property
    def tiered_messages(self) -> int:
        """Messages of 1,000 bytes per round of a tiered topic: many segments."""
        return self.messages // 4

    @property
    def long_rounds(self) -> int:
        """Rounds of a part whose single run takes half a minute."""
        return min(self.rounds, 3)

    def words(self, *names: str) -> str:
        """The fields of the scale that a part uses, in words."""
        said = {
            "rows": f"{self.rows:,} rows",
            "long_rounds": f"{self.long_rounds} rounds in turns",
            "tiered_messages": f"{self.tiered_messages:,} messages of 1,000 bytes a round",
            "log_records": f"a log of {self.rows:,} records of 100 bytes",
            "messages": f"{self.messages:,} messages of 100 bytes, as many bytes of larger ones",
            "cost_messages": f"{self.cost_messages:,} messages of 100 bytes",
            "rounds": f"{self.rounds} rounds in turns after a warm-up",
            "kills": f"{self.kills} kills of each in turns",
            "latency_seconds": f"{self.latency_seconds:g} s of latencies a round",
        }
        return ", ".join(said[name] for name in names)
